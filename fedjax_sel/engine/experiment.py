"""Experiments as values: a task, the strategies that answer a round's four questions, and the number of rounds."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.catalog import see
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.compiled import list_classes
from fedjax_sel.correction.none import NoCorrection
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.devices.availability import Always
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.declarations import (
    check_aggregator,
    check_correction,
    check_data_signals,
    check_examples,
    check_fields,
    check_methods,
    check_signals,
    list_strategies,
    warn_of_misspelt_methods,
)
from fedjax_sel.engine.settings import check_settings
from fedjax_sel.engine.targets import check_targets
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.mistakes import check_accepts
from fedjax_sel.protocols import (
    Aggregator,
    Availability,
    ClientSelector,
    CohortSignal,
    Correction,
    DataSelector,
    LocalTrainer,
    Strategy,
    UpdateSignal,
)
from fedjax_sel.pytree import Pytree, check_scalars, is_whole, show, static, to_plain
from fedjax_sel.task import Task

SHORT = {
    "selector": "client_selection",
    "samples": "data_selection",
    "trainer": "local_training",
    "aggregator": "aggregation",
    "m": "cohort_size",
}
"""Short forms of its fields, for the command line."""


class Experiment(Pytree):
    """What is learnt, and how each round answers its four questions.

    Two experiments that differ only in floats, `rounds` or `evaluate_…` share one compiled program.

    Attributes:
      task: what is learnt.
      client_selection: who trains.
      data_selection: what they train on.
      local_training: how they train.
      correction: how the gradients of local steps are corrected.
      aggregation: how updates are merged.
      cohort_size: `m`, clients in the cohort; a float in (0, 1] is a share of all clients, rounded, but at least one.
      rounds: `T`.
      evaluate_every: rounds between evaluations on the test examples.
      evaluate_last: how many rounds at the end are all evaluated.
      evaluate_clients_every: rounds between evaluations on every client's own examples (`client_accuracy_mean`, ...),
        which also follow the last round; None: no such evaluations. They belong to the experiment, not to the
        federation: no client is billed for them. If clients have models of their own, each client is evaluated with its
        own model, on its hold-out examples.
      availability: which clients can be reached in each round.
      volatility: which clients return in each round; a member of the cohort that does not return has trained for
        nothing, and no selector knows this in advance.
      deadline: when the server stops waiting; needs data with devices.
      signal_split: whether the selector's `before` and `trained` signals look at the clients' `"training"` or
        `"holdout"` examples.
      fine_tuning: how each client trains the new global model on its own examples before it is evaluated
        (`evaluate_clients_every`); None: not at all. It is not billed, and its result is not kept.
    """

    other_names: ClassVar[Mapping[str, str]] = SHORT

    task: Task
    client_selection: ClientSelector = Uniform()
    data_selection: DataSelector = Everything()
    local_training: LocalTrainer = SGD()
    correction: Correction = NoCorrection()
    aggregation: Aggregator = Mean()
    cohort_size: int | float = static(default=10)
    rounds: int = 100
    evaluate_every: int = 1
    evaluate_last: int = 1
    evaluate_clients_every: int | None = None
    availability: Availability = Always()
    volatility: Availability = Always()
    deadline: Deadline = Deadline()
    signal_split: str = static(default="training")
    fine_tuning: LocalTrainer | None = None

    def __check_init__(self) -> None:
        """Raises `ValueError` if a part is a class or of the wrong kind."""
        for name, part in self.parts.items():
            check_part(name, part)
        if not isinstance(self.task, Task):
            hint = f"Task.on({type(self.task).__name__}(...), dataset)" if isinstance(self.task, nn.Module) else ""
            hint = hint or "Task.on(model, dataset)"
            raise ValueError(f"task is {show(self.task, 80)}; it must be a Task, as in {hint}")
        if not isinstance(self.deadline, Deadline):
            raise ValueError(f"deadline is {show(self.deadline)}; it must be a Deadline, as in Deadline(seconds=60)")
        for name in COUNTS:
            object.__setattr__(self, name, to_plain(getattr(self, name)))

    @property
    def parts(self) -> dict[str, Strategy]:
        """The strategies, by name."""
        found = {name: getattr(self, name) for name in BASES}
        return {name: part for name, part in found.items() if not (name == "fine_tuning" and part is None)}

    @property
    def has_own_models(self) -> bool:
        """Returns whether clients have models of their own, through personal parts or fine-tuning."""
        return bool(self.task.personal) or self.fine_tuning is not None

    @property
    def measures_holdout(self) -> bool:
        """Whether the selector's `before` and `trained` signals look at hold-out examples instead of training ones."""
        return self.signal_split == "holdout"

    @property
    def keeps_updates(self) -> bool:
        """Whether a cohort's updates are all kept, to be accepted, combined or looked at later, instead of added up."""
        signals = self.client_selection.signals()
        if self.client_selection.accepts or self.aggregation.stacked:
            return True
        if any(isinstance(s, UpdateSignal) and s.stacked for s in signals.at("after").values()):
            return True
        return any(isinstance(s, CohortSignal) for moment in ("trained", "after") for s in signals.at(moment).values())

    def count_cohort(self, num_clients: int) -> int:
        """Returns `m` for `N` clients.

        Raises:
          ValueError: there are too few clients, or `m` is neither a count nor a fraction.
        """
        m = self.cohort_size
        if isinstance(m, float) and 0 < m <= 1:
            m = max(1, round(m * num_clients))
        if not is_whole(m) or not 1 <= m <= num_clients:
            raise ValueError(
                f"cohort_size is {self.cohort_size!r}, but there are N = {num_clients} clients; "
                "it must be a whole number from 1 to N, or a fraction in (0, 1]"
            )
        return int(m)

    @see("docs/how-to/command-line.md")
    def check_counts(self) -> None:
        """Raises `ValueError` if a number of rounds is invalid."""
        for name in COUNTS:
            value: Any = getattr(self, name)
            fits = is_whole(value) and value >= 1
            if not fits and not (value is None and name == "evaluate_clients_every"):
                raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1")
            if fits and value >= 2**31:  # rounds are counted in 32 bits
                raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1 and below 2^31")

    def check_passes(self, data: FederatedData) -> None:
        """Raises `ValueError` if a round may pass more examples than 32 bits can count."""
        count = self.count_cohort(data.num_clients) * (self.local_training.most_examples(data.longest) or 0)
        if count >= 2**31:
            raise ValueError(
                f"a cohort may pass {count:,} examples forward and backward in a round, and counts of examples are "
                "below 2^31; lower cohort_size, or the epochs or steps of local training"
            )

    def check_devices(self, data: FederatedData) -> None:
        """Raises `ValueError` if the devices do not fit the clients, or there is a deadline but no devices."""
        if data.devices is not None:
            data.devices.check(data.num_clients)
        elif float(self.deadline.seconds) < math.inf:
            raise ValueError(
                f"the deadline is {self.deadline.seconds} seconds, but the clients have no devices, so nobody is late; "
                "give the federation devices"
            )

    def check_personal(self, data: FederatedData) -> None:
        """Raises `ValueError` if personal parts are not in the model, or clients' models cannot be evaluated."""
        self.task.check_personal(data.like)
        if self.fine_tuning is not None and self.evaluate_clients_every is None:
            raise ValueError(
                "fine_tuning trains clients' models before they are evaluated, but they never are; set "
                "evaluate_clients_every"
            )
        judged = self.has_own_models and self.evaluate_clients_every is not None
        if judged and int(jnp.max(data.num_holdout)) == 0:
            raise ValueError(
                "clients' own models (task.personal, fine_tuning) are judged on hold-out examples, but no client has "
                "any; give the federation a holdout, as in Federation(dataset, partition, holdout=0.2), or on the "
                "command line holdout=0.2"
            )

    def warn_of_sizes(self, data: FederatedData) -> None:
        """Warns if, because of their sizes, clients get wrong weights or examples are normalised wrongly.

        This is so if both the selector and the aggregation weigh clients of unequal size by their numbers of examples,
        or if features are normalised over batches and the last batch of an epoch has only one example.
        """
        selector, aggregation = self.client_selection, self.aggregation
        twice = selector.counts_examples and aggregation.counts_examples
        if twice and len(np.unique(data.num_examples)) > 1:
            has_choice = hasattr(aggregation, "weighting")
            again = type(aggregation).__name__ + ("(weighting='size')" if has_choice else "")
            other = "weighting='client' or 'cohort'" if has_choice else "Mean with weighting='client' or 'cohort'"
            warnings.warn(
                f"{type(selector).__name__} already weighs clients by their numbers of examples, and {again} does so "
                "again: a client of twice as many examples has four times the weight; "
                f"use {other}, as the selector's docstring says",
                stacklevel=3,
            )
        size = self.local_training.step_examples(data.longest)
        alone = int(np.sum(np.asarray(data.num_examples) % size == 1)) if size > 1 else 0
        if alone and (layers := self.task.list_flat_batch_norms(data.like)):
            warnings.warn(
                f"{alone} of {data.num_clients} clients have a last batch of one example (of {size}): its variance is "
                f"0, and enters the running variance of {', '.join(layers)}; choose another batch_size, or a model "
                "with layer normalisation",
                stacklevel=3,
            )

    @see("docs/how-to/data.md")
    def check(self, data: FederatedData) -> None:
        """Raises `ValueError` if the experiment cannot run on `data`."""
        with see("docs/understand/limits.md"):
            check_settings()
        with see("docs/how-to/strategies.md"):
            check_scalars(self)
        with see("docs/how-to/command-line.md"):
            self.count_cohort(data.num_clients)
            if self.signal_split not in ("training", "holdout"):
                raise ValueError(f"signal_split is {self.signal_split!r}; it must be 'training' or 'holdout'")
        with see("docs/how-to/strategies.md"):
            for name, part in self.parts.items():
                for one in list_strategies(part):
                    check_methods(one, ["transform"] if name == "fine_tuning" else [])
            if data.devices is not None or type(self.volatility) is not Always:  # members may do a part, or nothing
                where = f"{type(self.local_training).__name__}.plan"
                arguments = ("num_examples", "longest", "round", "rounds")
                check_accepts(where, self.local_training.plan, arguments, ("max_steps",))
            check_correction(self.correction)
            self.correction.check(self.local_training)
            check_aggregator(self.aggregation)
            self.aggregation.check(self.local_training, self.correction)
            self.aggregation.check_size(self.count_cohort(data.num_clients))
        with see("docs/how-to/devices.md"):
            with stage("availability"):
                self.availability.check(data.num_clients)
                self.volatility.check(data.num_clients)
            self.check_devices(data)
        self.check_counts()
        self.check_passes(data)
        with see("docs/learn/personalisation.md"):
            self.check_personal(data)
        with see("docs/learn/own_selector.md"):
            for selector in list_strategies(self.client_selection):
                if isinstance(selector, ClientSelector):  # and not a signal in a field
                    check_signals(selector)
            for part in self.parts.values():
                for one in list_strategies(part):
                    warn_of_misspelt_methods(one)
        with see("docs/learn/own_data_selector.md"):
            check_data_signals(self.data_selection)
        check_examples(self.client_selection, self.data_selection, data, holdout=self.measures_holdout)
        with see("docs/learn/own_task.md"):
            check_targets(self.task, self.client_selection, self.data_selection, data)


def stack_experiments(
    experiments: Sequence[Experiment], others: Sequence[Experiment] = ()
) -> tuple[Experiment, tuple[bool, ...]]:
    """Stacks experiments into one to map over; returns it and whether each of its leaves has a leading axis.

    Leaves that are the same in all experiments, `others` included, stay as they are.

    Args:
      experiments: the experiments that run together.
      others: experiments that the same program runs at another time.

    Raises:
      ValueError: they differ in more than floats, or in pretrained variables, so they cannot share a program.
    """
    first, *rest = [jax.tree_util.tree_flatten_with_path(one) for one in (*experiments, *others)]
    classes = list_classes(experiments[0])
    for (_, tree), one in zip(rest, (*experiments[1:], *others), strict=True):
        if tree != first[1] or list_classes(one) != classes:
            found = ", ".join(list_differences(experiments[0], one)) or "structure"
            raise ValueError(
                f"experiments that share a program differ in floats alone, but two of these differ in {found}; run "
                "them one after the other"
            )
    leaves, differs = [], []
    for (path, leaf), *same in zip(first[0], *(flat for flat, _ in rest), strict=True):
        values = [leaf, *(other for _, other in same)]
        differs.append(any(value is not leaf and not np.array_equal(value, leaf) for value in values))
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if differs[-1] and name.startswith("task.frozen.start."):  # one program draws the initial models of all
            raise ValueError("experiments begin with different pretrained variables; run them one after the other")
        if differs[-1] and not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ValueError(f"experiments differ in {name}, which is not a float; run them one after the other")
        if differs[-1] and len(shapes := {np.shape(value) for value in values}) > 1:
            shown = " and ".join(map(str, sorted(shapes)))
            raise ValueError(f"experiments differ in the shape of {name} ({shown}); run them one after the other")
        mine = values[: len(experiments)]
        leaves.append(jnp.stack([jnp.asarray(value) for value in mine]) if differs[-1] else leaf)
    return first[1].unflatten(leaves), tuple(differs)


def list_differences(one: Experiment, other: Experiment) -> list[str]:
    """Returns the fields, other than floats, in which two experiments differ, each with both values."""
    out = []
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if jax.tree.structure(a) != jax.tree.structure(b) or list_classes(a) != list_classes(b):
            out.append(f"{field.name} ({show(a)} and {show(b)})")
        elif field.metadata.get("static") and (type(a), a) != (type(b), b):
            out.append(f"{field.name} ({a!r} and {b!r})")
    return out


COUNTS = ("rounds", "evaluate_every", "evaluate_last", "evaluate_clients_every")
"""The fields that are numbers of rounds."""


def check_more_rounds(parts: Mapping[str, Strategy | None], done: int, rounds: int) -> None:
    """Raises `ValueError` if a finished run cannot be given more rounds.

    Args:
      parts: strategies of the experiment, by name; None for a part that it does not have.
      done: rounds that it has run.
      rounds: rounds that it is to have.
    """
    if rounds < done:
        raise ValueError(f"the run has {done} rounds, but rounds is {rounds}; a finished run goes on only to more")
    if using := [f"{name} ({type(part).__name__})" for name, part in parts.items() if part and part.uses_rounds]:
        raise ValueError(
            f"the run of {done} rounds cannot go on to {rounds}: {', '.join(using)} depends on how many rounds there "
            "are, so that all rounds come out otherwise; run it anew in another folder"
        )


BASES: dict[str, type[Strategy]] = {
    "client_selection": ClientSelector,
    "data_selection": DataSelector,
    "local_training": LocalTrainer,
    "correction": Correction,
    "aggregation": Aggregator,
    "availability": Availability,
    "volatility": Availability,
    "fine_tuning": LocalTrainer,
}
"""The base class of each part."""


def check_part(name: str, part: Any) -> None:
    """Raises `ValueError` if a part of an experiment is not an instance of its base class."""
    base = BASES[name]
    if isinstance(part, type):
        raise ValueError(f"{name} is {part.__name__}, a class; give an instance, as in {part.__name__}()")
    if not isinstance(part, base):
        raise ValueError(
            f"{name} is {show(part, 80)} ({type(part).__name__}); it must be an instance of fedjax_sel.{base.__name__}"
        )
    with see("docs/learn/own_selector.md"):
        check_fields(name, part)
