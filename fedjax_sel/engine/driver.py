"""The driver: rounds in scanned chunks, runs side by side, the host in between."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.devices.bill import bill
from fedjax_sel.engine.callback import AnyCallback, tell
from fedjax_sel.engine.checkpoint import Checkpoints, Point, mark_of
from fedjax_sel.engine.distributed import any_process, check_same, describe_device, fetched, meet, several
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.engine.init import start
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.runs import laid_out
from fedjax_sel.engine.scan import chunk_in_python, run_chunk


def simulate(
    experiment: Experiment,
    data: Federation | FederatedData,
    seeds: int | Iterable[int] = 1,
    *,
    layout: Layout | str | None = None,
    mesh: tuple[int, int] | str | None = None,
    chunk: int | None = None,
    callbacks: Sequence[AnyCallback] = (),
    checkpoints: Checkpoints | None = None,
    memory: int | None = None,
    debug: bool = False,
) -> History:
    """Run an experiment for every seed, all in one compiled program.

    Args:
      experiment: what to run.
      data: a recipe, drawn afresh for every seed; or clients' rows, the same for all.
      seeds: a count or numbers; each draws its partition, initial model and cohorts.
      layout: `"auto"`, `"vmap"`, `"scan"` or a `Layout`.
      mesh: over how many devices (of all hosts) seeds, and the clients of a cohort, are divided; None: one device;
        `"auto"`: of a CPU that JAX sees as several devices as many as help, else one.
      chunk: rounds between two looks of the host; about a twentieth of the run by default.
      callbacks: told between chunks (`engine.callback.Callback`); a true answer ends the run.
      checkpoints: saved between chunks; a run that has some goes on from the newest, to the same result bit for bit.
      memory: bytes that a device may use; None: what it has.
      debug: without compilation, one client at a time; an error names the round and the stage.

    Raises:
      ValueError: for what cannot run, before anything compiles.
    """
    how: dict[str, Any] = {"layout": layout, "mesh": mesh, "chunk": chunk, "callbacks": callbacks}
    how |= {"checkpoints": checkpoints, "memory": memory, "debug": debug}
    return sweep([experiment], data, seeds, **how)[0]


def sweep(
    experiments: Sequence[Experiment],
    data: Federation | FederatedData,
    seeds: int | Iterable[int] = 1,
    *,
    layout: Layout | str | None = None,
    mesh: tuple[int, int] | str | None = None,
    chunk: int | None = None,
    callbacks: Sequence[AnyCallback] = (),
    checkpoints: Checkpoints | None = None,
    memory: int | None = None,
    debug: bool = False,
    others: Sequence[Experiment] = (),
) -> list[History]:
    """Run several experiments that differ only in floats for every seed, all of them in one compiled program.

    Args:
      experiments: alike but for floats.
      data, seeds, layout, mesh, chunk, checkpoints, memory, debug: as for `simulate`.
      callbacks: told between chunks; their history has all runs, the first experiment's seeds first.
      others: experiments that the same program runs at another time: nothing is compiled again for as many of them.

    Returns:
      The history of each.

    Raises:
      ValueError: for what cannot run, before anything compiles.
    """
    began = time.perf_counter()
    seeds = checked_seeds(seeds)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; it must be at least 1 round, or None")
    of_seeds = data.draws(seeds) if isinstance(data, Federation) else [data] * len(seeds)
    for one in {id(one): one for one in of_seeds}.values():
        for each in experiments:
            each.check(one)
    layout = Layout(clients=1, seeds="scan") if debug else layout
    runs = laid_out(
        experiments, of_seeds, seeds, layout=layout, mesh=None if debug else mesh, chunk=chunk, others=others
    )
    experiment, x, length = runs.first, of_seeds[0].x, runs.length
    m, clients = experiment.cohort(runs.together.num_clients), runs.together.num_clients
    runs.check_kept(memory)
    state, taken = start(runs.experiments, runs.drawn, runs.keys, runs.layout)
    taken = {name: value[: runs.count] for name, value in taken.items()}
    runs = runs.without_public_examples()
    about = {
        "device": describe_device(),
        "layout": str(runs.layout),
        "parameters": experiment.task.parameters(x),
        "forward_flops_per_example": experiment.task.flops(x),
        "backward_over_forward": experiment.task.backward(x),
        "clients": clients,
        "cohort_size": m,
    }
    if not debug:
        about["memory"] = runs.check_program(state, memory)

    flat = tuple(runs.seeds[: runs.count])
    first, spent, parts, mark = 0, 0.0, [], ""
    history = History(flat, {}, np.zeros((len(flat), 0, m), np.int32), clients, about)
    if checkpoints is not None:
        told = replace(runs.together, x=0, test_x=0, validation_x=0)
        mark = mark_of(runs.shared, runs.seeds, told, str(runs.layout))
        if (point := checkpoints.restore(state, mark)) is not None:
            first, spent, state, parts = point.round, point.seconds, point.state, [point.measured]
            about = {**about, "seconds": spent, "resumed_at": first}
            history = recorded(experiment, flat, parts[0], taken, clients, about)
    meet()
    check_same(first)
    tell(callbacks, "on_train_begin", history)
    # A run that was ended may have been killed before its end was written down: it ends here again.
    ended = 0 < first < experiment.rounds and any_process(tell(callbacks, "after_central_iteration", history))
    shared, together, keys, state = runs.placed(state)
    try:
        if several() and not debug:  # compiling may take one of them longer than the others wait where they talk
            run_chunk.lower(shared, together, keys, state, np.int32(first), **runs.static).compile()
            meet()
        for t in range(first, experiment.rounds, length):
            if ended:
                break
            count = min(length, experiment.rounds - t)
            if debug:
                state, measured = chunk_in_python(
                    runs.experiments, runs.drawn, runs.seeds, keys, state, t, count, runs.layout
                )
            else:
                state, measured = run_chunk(shared, together, keys, state, np.int32(t), **runs.static)
            parts.append({name: value[: len(flat), :count] for name, value in fetched(measured).items()})
            parts = [whole := joined(parts)]
            about = {**about, "seconds": spent + time.perf_counter() - began}
            about.setdefault("seconds_of_first_chunk", about["seconds"] - spent)
            history = recorded(experiment, flat, whole, taken, clients, about)
            ended = any_process(tell(callbacks, "after_central_iteration", history))
            if checkpoints is not None:
                done = t + count
                if any_process(checkpoints.due(done, now=ended or done == experiment.rounds)):
                    checkpoints.save(Point(done, state, whole, about["seconds"]), mark)
    finally:
        if checkpoints is not None:  # whatever ended the run, what is being written is complete
            checkpoints.finish()
    history = replace(history, variables=fetched(state.variables))
    tell(callbacks, "on_train_end", history)
    return apart(history, len(experiments))


def apart(history: History, experiments: int) -> list[History]:
    """The history of each experiment, from the one of all runs."""
    size = len(history.seeds) // experiments

    def of(i):
        mine = slice(i * size, (i + 1) * size)
        return replace(
            history,
            seeds=history.seeds[mine],
            metrics={name: value[mine] for name, value in history.metrics.items()},
            selections=history.selections[mine],
            variables=jax.tree.map(lambda leaf: leaf[mine], history.variables),
        )

    return [of(i) for i in range(experiments)]


def recorded(
    experiment: Experiment, seeds, whole: dict[str, np.ndarray], taken: dict[str, np.ndarray], clients: int, about: dict
) -> History:
    """The history of what was measured so far, with the bill written; what was taken upfront is the first round's."""
    quality = {name: whole[name] for name in QUALITY if name in whole}
    costs = bill(
        whole,
        experiment.client_selection,
        experiment.data_selection,
        experiment.correction,
        parameters=about["parameters"],
        flops=about["forward_flops_per_example"],
        backward=about["backward_over_forward"],
    )
    metrics = {**quality, **costs, "left_out": whole["left_out"], "alive": whole["alive"]}
    for name, value in taken.items():
        first = np.arange(metrics[name].shape[1]) == 0
        metrics[name] = metrics[name] + value[:, None] * first
    return History(seeds, metrics, whole["client"], clients, about)


QUALITY = ("accuracy", "loss", "training_loss", "seconds", "joules")


def joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What was measured in all chunks."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def checked_seeds(seeds: Any) -> tuple[int, ...]:
    """Seeds as integers; a count stands for the first so many.

    >>> checked_seeds(3)
    (0, 1, 2)
    """
    try:
        out = tuple(range(seeds) if isinstance(seeds, int | np.integer) else map(operator.index, seeds))
    except TypeError:  # a seed that is no whole number must not be rounded to another run's
        out = ()
    if not out or min(out) < 0 or max(out) >= 2**32 or len(set(out)) < len(out):
        raise ValueError(
            f"seeds are {seeds!r}; there must be at least one, all different whole numbers from 0 to 2^32 - 1"
        )
    return out
