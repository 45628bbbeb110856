"""Studies that no run of the FedFT-EDS reproduction gives: similarity of clients' models, entropies, choices, times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection.lefl import map_trained_models
from fedjax_sel.compiled import jit
from fedjax_sel.config import Run, build, resolve
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import stack
from fedjax_sel.engine.data_selection import select_examples
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.init import init_run
from fedjax_sel.engine.keys import Purpose, key_for, make_key
from fedjax_sel.engine.layout import ONE_BY_ONE
from fedjax_sel.engine.round import make_context, round_step
from fedjax_sel.engine.state import RoundState
from fedjax_sel.metrics.cka import minibatch_kernel_cka
from fedjax_sel.papers.fedft_eds.cells import list_cells
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    EDS,
    EDS50,
    EPOCHS,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    RDS,
    RDS50,
    SCRATCH,
    STRONG,
    WEAK,
    name_few,
)
from fedjax_sel.papers.fedft_eds.scales import find_studied
from fedjax_sel.papers.paper import Cell, locate_cell
from fedjax_sel.runs import pretrained
from fedjax_sel.signals.entropy import Entropy
from fedjax_sel.signals.margin import Margin
from fedjax_sel.task import Task
from fedjax_sel.types import Cohort, PRNGKey, Rows, Variables

LEVELS = ("low", "mid", "up")
BATCH = 100
"""Number of test examples per batch of minibatch CKA; all whole batches are used."""

SHOWN = (1.0, 0.5, 0.1)
"""Values of ρ in the histograms."""

TIMED = (FEDAVG, FEDAVG_RDS, FEDPROX, ALL, RDS50, EDS50, RDS, EDS)
REPEATS = 2


def find_cell(scale: str, experiment: str, method: str) -> Cell:
    """Returns the cell with this experiment and method."""
    return next(cell for cell in list_cells(scale) if cell.key == (experiment, method))


def build_cell(cell: Cell, seeds: Sequence[int], scale: str, out: Path, **changes: Any) -> Run:
    """Returns a cell's run, which begins with the model of the cell that `cell.begins` names."""
    first = None
    if cell.begins is not None:
        first = pretrained.load(locate_cell(out, find_cell(scale, *cell.begins)))
    return build(resolve({**cell.config, "seeds": list(seeds), **changes}), first)


def limit_seeds(scale: str, seeds: Sequence[int]) -> Sequence[int]:
    """Returns the seeds with which a study trains models; at `medium`, three."""
    return seeds[:3] if scale == "medium" else seeds


def study_alikeness(scale: str, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """Returns the CKA of all pairs of clients' models after a round of local training, with and without pretraining."""
    seeds = limit_seeds(scale, seeds)
    name, found = find_studied(scale), {}
    for alpha in (STRONG,) if scale == "smoke" else (STRONG, WEAK):
        for method in (SCRATCH, FEDAVG):
            run = build_cell(find_cell(scale, name_few(name, alpha), method), seeds, scale, out)
            heats = np.array([compare_clients(run, data, seed) for seed, data in draw_federations(run)])
            upper = np.triu_indices(heats.shape[-1], 1)
            found[f"{method}, α = {alpha:g}"] = {"heat": heats[0], "mean": heats[..., upper[0], upper[1]].mean(-1)}
    return {"levels": LEVELS, "cells": found}


def draw_federations(run: Run) -> list[tuple[int, FederatedData]]:
    """Returns each seed with its federation."""
    return list(zip(run.seeds, run.data.draws(run.seeds), strict=True))


def compare_clients(run: Run, data: FederatedData, seed: int) -> Float[np.ndarray, "3 N N"]:
    """Returns the minibatch CKA of the clients' models at each level, on the test examples."""
    task, key = run.experiment.task, make_key(seed)
    variables = task.init(key_for(key, Purpose.MODEL), data.like)
    kernels = map_trained_models(
        measure_batches,
        task,
        jax.tree.map(jnp.asarray, data),
        run.experiment.local_training,
        variables,
        jnp.asarray(split_batches(np.asarray(data.test_x))),
        jnp.arange(data.num_clients),
        key_for(key, Purpose.TRAIN),
        jnp.int32(run.experiment.rounds),
        side_by_side=1,
        devices=tuple(jax.local_devices()),
    )
    return np.array([minibatch_kernel_cka(np.asarray(kernels[:, :, level])) for level in range(len(LEVELS))])


def split_batches(x: np.ndarray) -> np.ndarray:
    """Returns examples in whole batches, without the remainder; a single smaller batch if there are few."""
    size = min(BATCH, len(x))
    return x[: len(x) // size * size].reshape(-1, size, *x.shape[1:])


def measure_batches(task: Task, variables: Variables, batches: Rows) -> Float[Array, "B 3 b b"]:
    """Returns the result of `measure_levels` for each batch."""
    return jax.lax.map(lambda x: measure_levels(task, variables, x), batches)


def measure_levels(task: Task, variables: Variables, x: Rows) -> Float[Array, "3 b b"]:
    """Returns the inner products of all pairs of examples at the three levels."""
    made: Any = task.model.apply(task.frozen.merge(variables), task.normalize(x), mutable=["intermediates"])[1]
    flat = [made["intermediates"][name][0].reshape(len(x), -1) for name in LEVELS]
    return jnp.stack([layer @ layer.T for layer in flat])


def study_entropies(scale: str, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """Returns entropies of training examples after the run, by ρ, and how close their order is to the margin's."""
    seeds = limit_seeds(scale, seeds)
    run = build_cell(find_cell(scale, name_few(find_studied(scale), STRONG), ALL), seeds, scale, out)
    history, found = run.simulate(), {}
    for i, (_, data) in enumerate(draw_federations(run)):
        variables = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), history.variables)
        owned = np.asarray(data.order)
        y = jnp.asarray(data.y)[owned]
        logits = run.experiment.task.logits(variables, jnp.asarray(data.x)[owned])
        margin = -np.asarray(Margin().measure(logits, y))
        for rho in SHOWN:
            value = np.asarray(Entropy(temperature=rho).measure(logits, y))
            tenth = max(1, len(value) // 10)
            order = np.lexsort((-margin, -value))  # as in selection: the margin breaks ties in entropy
            place = np.argsort(order)
            first, other = set(order[:tenth].tolist()), set(np.argsort(-margin, kind="stable")[:tenth].tolist())
            row = found.setdefault(f"{rho:g}", {"histogram": None, "correlation": [], "overlap": []})
            row["correlation"].append(float(np.asarray(scipy.stats.spearmanr(-place, margin)[0])))
            row["overlap"].append(len(first & other) / tenth)
            if row["histogram"] is None:
                row["histogram"] = np.histogram(value, bins=40, range=(0, np.log(data.classes)))[0]
    return {"most": float(np.log(data.classes)), "rho": found}


def study_choices(scale: str, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """Returns, for random and entropy selection, how often each example was chosen, and the chosen labels' entropy."""
    seeds = limit_seeds(scale, seeds)
    found = {}
    for method in (RDS, EDS):
        run = build_cell(find_cell(scale, name_few(find_studied(scale), STRONG), method), seeds, scale, out)
        counts, labels = zip(*(replay_choices(run, data, seed) for seed, data in draw_federations(run)), strict=True)
        rounds = run.experiment.rounds
        found[method] = {
            "times": np.array([np.bincount(count, minlength=rounds + 1) / len(count) for count in counts]),
            "never": [float((count == 0).mean()) for count in counts],
            "labels": np.array(labels).mean(0),
        }
    return {"rounds": rounds, "methods": found}


def replay_choices(run: Run, data: FederatedData, seed: int) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "T"]]:
    """Returns in how many rounds each example was chosen, and each round's mean entropy of clients' chosen labels.

    The run is replayed round by round, and the examples are chosen as in the run.
    """
    experiment, key = run.experiment, make_key(seed)
    together, _ = stack([data])
    state = init_run(experiment, data, key, ONE_BY_ONE)
    data = jax.tree.map(jnp.asarray, together)
    times, mixes = np.zeros(data.x.shape[0], int), []
    for t in range(experiment.rounds):
        index, keep = choose_examples(experiment, data, key, state, jnp.int32(t))
        picked = np.asarray(index)[np.asarray(keep)]
        np.add.at(times, picked, 1)
        mixes.append(measure_label_entropy(np.asarray(index), np.asarray(keep), np.asarray(data.y), data.classes))
        state, _ = run_round(experiment, data, key, ONE_BY_ONE, state, jnp.int32(t))
    owned = np.zeros(len(times), bool)
    owned[np.asarray(data.order)] = True
    return times[owned], np.array(mixes)


@jit()
def choose_examples(
    experiment: Experiment, data: FederatedData, key: PRNGKey, state: RoundState, t: Int[Array, ""]
) -> tuple[Int[Array, "N L"], Bool[Array, "N L"]]:
    """Returns every client's examples, and which of them it would train on in round `t`."""
    n = data.num_clients
    everyone = Cohort(jnp.arange(n), jnp.ones(n, bool), jnp.ones(n))
    ctx = make_context(experiment, data, key, t)
    chosen = select_examples(experiment, data, key, state, ctx, everyone, jnp.zeros(n, bool), ONE_BY_ONE)
    return chosen.examples.index, chosen.examples.mask


run_round = jit(static_argnames=("layout",))(round_step)


def measure_label_entropy(index: np.ndarray, keep: np.ndarray, y: np.ndarray, classes: int) -> float:
    """Returns the entropy of the labels that a client trains on, in nats, averaged over clients."""
    out = []
    for places, kept in zip(index, keep, strict=True):
        if kept.any():
            out.append(scipy.stats.entropy(np.bincount(y[places[kept]], minlength=classes)))
    return float(np.mean(out))


def study_time(scale: str, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """Returns measured seconds of a round of each method, with one seed, all methods in turn, after compilation.

    A round has the source's five local epochs, except at `smoke`.
    """
    rounds = 1
    changes = {"rounds": rounds, "evaluate_every": rounds, "evaluate_last": 1, "chunk": rounds}
    epochs = {} if scale == "smoke" else {"epochs": EPOCHS}
    title = name_few(find_studied(scale), STRONG)
    there = {cell.method: cell for cell in list_cells(scale) if cell.experiment == title}
    runs = {}
    for method in TIMED:
        if method in there:
            own = {"local_training": {**there[method].config["local_training"], **epochs}}
            runs[method] = build_cell(there[method], seeds[:1], scale, out, **changes, **own)
    seconds: dict[str, list[float]] = {method: [] for method in runs}
    for turn in range(REPEATS + 1):
        for method, run in runs.items():
            history = run.simulate()
            if turn:
                seconds[method].append(float(history.about["seconds"]))
    return {"rounds": rounds, "seconds": seconds}
