"""Turns the records of rounds into a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedjax_sel.engine.history import FAULT, History
from fedjax_sel.engine.ledger import Rates, count_as_selection, price, stack_rates
from fedjax_sel.engine.metrics import are_clients_due
from fedjax_sel.engine.program import Program
from fedjax_sel.engine.state import RoundRecord, unflatten_record
from fedjax_sel.metrics.clients import mean_over_clients, spread_over_clients, worst_decile
from fedjax_sel.types import PAD_CLIENT

CLIENTS = "clients."
"""Prefix of the names of arrays with an axis of clients in a flattened record."""


class Recorder:
    """Collects the records of a program's chunks, and builds its history from them.

    Args:
      program: what is run.
      rates: unit costs.
      upfront: what the clients paid before round 0, by metric, Float[R].

    Attributes:
      arrays: everything recorded, by name, each with leading `R`, rounds; arrays of clients' metrics have only the
        rounds in which clients were evaluated.
      of_clients: statistics over clients, by name, Float[R, E].
      labels: training examples of each client by class, of the first seed; None if targets are not classes.
    """

    def __init__(self, program: Program, rates: Sequence[Rates], upfront: dict[str, np.ndarray]):
        self.program, self.rates, self.upfront = program, stack_rates(rates), upfront
        self.arrays: dict[str, np.ndarray] = {}
        first = program.federations[0]
        self.labels = first.count_labels() if first.targets == "classes" else None
        self.of_clients: dict[str, np.ndarray] = {}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Resumes from recorded `arrays`."""
        self.arrays, self.of_clients = keep_safe(dict(arrays)), {}

    def add(self, arrays: dict[str, np.ndarray]) -> None:
        """Appends a chunk of rounds."""
        first = self.arrays["client"].shape[1] if self.arrays else 0
        due = [t - first for t in self.client_rounds(first, first + arrays["client"].shape[1])]
        # Arrays of no rounds are left out: a checkpoint cannot hold them.
        arrays = {
            name: value[:, due] if name.startswith(CLIENTS) else value
            for name, value in arrays.items()
            if due or not name.startswith(CLIENTS)
        }
        self.arrays = keep_safe(concat_chunks([self.arrays, arrays]) if self.arrays else arrays)

    def client_rounds(self, first: int, last: int) -> list[int]:
        """Returns the rounds from `first` to `last - 1`, counted from 0, after which every client is evaluated."""
        rounds = np.arange(first, last)
        return rounds[np.asarray(are_clients_due(self.program.first, rounds))].tolist()

    def build_history(self, about: dict[str, Any]) -> History:
        """Returns the history so far, with every cost; upfront costs are added to the first round."""
        seeds = tuple(self.program.seeds[: self.program.count])
        if not self.arrays:
            m = about["cohort_size"]
            none = np.zeros((len(seeds), 0, m), np.int32)
            return History(seeds, {}, none, about["clients"], about, labels=self.labels)
        record = unflatten_record(self.arrays)
        clients = spread_classes(record.clients, axes=3)
        rounds = self.client_rounds(0, record.client.shape[1])
        measured = self.build_client_metrics(clients, rounds, record.client.shape[1])
        selections = empty_outside(np.asarray(record.client), about["clients"])
        selections.setflags(write=False)
        return History(
            seeds,
            keep_safe({**self.build_metrics(record), **measured}),
            selections,
            about["clients"],
            about,
            client_metrics=keep_safe(clients),
            client_rounds=tuple(t + 1 for t in rounds),
            labels=self.labels,
        )

    def build_metrics(self, record: RoundRecord) -> dict[str, Any]:
        """Returns every metric of all rounds, Float[R, T], from a record with leading `R`, `T`."""
        metrics: dict[str, Any] = {
            "accuracy": record.accuracy,
            "loss": record.loss,
            "training_loss": record.training_loss,
            **spread_classes(record.metrics, axes=2),
            **price(record.ledger, self.rates),
            "seconds": record.ledger.seconds,
            "joules": record.ledger.joules,
            "left_out": record.ledger.left_out,
            "alive": record.alive,
            "idle": record.idle,
            **{FAULT + name: counts for name, counts in (record.faults or {}).items() if np.any(counts)},
        }
        if record.probe is not None:
            added = count_as_selection(price(record.probe, self.rates))
            added |= {"seconds": record.probe.seconds, "joules": record.probe.joules}
            metrics |= {name: metrics[name] + value for name, value in added.items() if value is not None}
        metrics = {name: value for name, value in metrics.items() if value is not None}
        for name, value in self.upfront.items():
            is_first = np.arange(metrics[name].shape[1]) == 0
            metrics[name] = metrics[name] + value[:, None] * is_first
        return metrics

    def build_client_metrics(
        self, clients: Mapping[str, np.ndarray], rounds: Sequence[int], of_rounds: int
    ) -> dict[str, np.ndarray]:
        """Returns every metric's mean, worst decile and spread over clients, Float[R, T]; NaN where not measured.

        Args:
          clients: every client's values, Float[R, E, N].
          rounds: the `E` rounds, from 0.
          of_rounds: `T`.
        """
        out = {}
        task = self.program.first.task
        for name, values in clients.items():
            measures: dict[str, Callable[..., Any]] = {"mean": mean_over_clients, "spread": spread_over_clients}
            if (higher := task.is_better_higher(name)) is not None:
                measures["worst_decile"] = partial(worst_decile, higher_is_better=higher)
            for what, of in measures.items():
                full = f"client_{name}_{what}"
                known = self.of_clients.get(full, np.zeros((len(values), 0)))  # of rounds measured earlier
                new = of(values[:, known.shape[1] :])
                self.of_clients[full] = np.concatenate([known, new], axis=1)
                out[full] = np.full((len(values), of_rounds), np.nan)
                out[full][:, rounds] = self.of_clients[full]
        return out


def empty_outside(selections: np.ndarray, clients: int) -> np.ndarray:
    """Returns cohorts whose slots with a client that does not exist are empty; faults count these clients.

    >>> empty_outside(np.array([[[0, 7], [2, -1]]]), clients=3).tolist()
    [[[0, -1], [2, -1]]]
    """
    return np.where((selections >= 0) & (selections < clients), selections, PAD_CLIENT)


def spread_classes(metrics: Mapping[str, Any] | None, axes: int) -> dict[str, np.ndarray]:
    """Splits metrics that have a number for each class into `NAME_0`, `NAME_1`, ...; keeps the others.

    Args:
      metrics: metrics by name.
      axes: number of axes of a metric that is a single number.

    >>> spread_classes({"recall": np.zeros((2, 5, 3))}, axes=2).keys()
    dict_keys(['recall_0', 'recall_1', 'recall_2'])
    """
    out: dict[str, np.ndarray] = {}
    for name, value in (metrics or {}).items():
        classes = range(value.shape[-1]) if value.ndim > axes else ()
        out |= {f"{name}_{c}": value[..., c] for c in classes} if classes else {name: value}
    return out


def concat_chunks(chunks: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenates the records of chunks of rounds; not every chunk has every array."""
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    return {name: np.concatenate([chunk[name] for chunk in chunks if name in chunk], axis=1) for name in names}


def keep_safe(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays that nobody can write to: histories, which callbacks see, share what a run records."""
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def split_history(history: History, experiments: int) -> list[History]:
    """Splits the history of all runs into one for each experiment."""
    size = len(history.seeds) // experiments
    return [history.take(slice(i * size, (i + 1) * size)) for i in range(experiments)]
