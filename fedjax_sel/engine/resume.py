"""Where a run begins: at round 0, at its newest checkpoint, or at the end of a shorter run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedjax_sel.data.federation import EXAMPLES
from fedjax_sel.engine.checkpoint import Checkpoints, Point
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.experiment import Experiment, check_more_rounds
from fedjax_sel.engine.init import init_runs
from fedjax_sel.engine.mark import digest_examples, mark_of
from fedjax_sel.engine.metrics import is_due
from fedjax_sel.engine.program import Program
from fedjax_sel.engine.recorder import CLIENTS
from fedjax_sel.engine.state import RoundState


def begin_or_resume(
    program: Program, how: Execution, mark: str, mark_at: Callable[[int], str]
) -> tuple[Point, dict[str, np.ndarray]]:
    """Returns the newest point of a program, or its beginning, and what clients paid before round 0, by metric.

    A selector that declares the shape of its state does not repeat its work before round 0 if the program resumes.

    Args:
      program, how: what is run, and how.
      mark: of the program.
      mark_at: returns its mark with another number of rounds.
    """
    runs = program.experiments, program.federations, program.keys, program.layout
    if how.checkpoints is not None and how.checkpoints.rounds():
        like, upfront = init_runs(*runs, only_like=True)
        point = restore_point(program, like, how.checkpoints, mark, mark_at)
        if point is not None:
            return point, upfront
    state, upfront = init_runs(*runs)
    return Point(0, state, {}, 0.0), upfront


def mark_program(program: Program) -> Callable[[int], str]:
    """Returns a function that returns a digest of what a program computes in so many rounds."""
    names = (*EXAMPLES, "public_x")
    digests = {name: digest_examples([getattr(one, name) for one in program.federations]) for name in names}
    told = replace(program.data, **digests)
    return lambda rounds: mark_of(program.experiment.replace(rounds=rounds), program.seeds, told, repr(program.layout))


def restore_point(
    program: Program, like: RoundState, checkpoints: Checkpoints, mark: str, mark_at: Callable[[int], str]
) -> Point | None:
    """Returns the newest point of a program, or the end of the same program with fewer rounds; None: there is none.

    Raises:
      ValueError: as `Checkpoints.restore`; or a finished run cannot be given more rounds (`check_more_rounds`).
    """
    first = program.first
    point = checkpoints.restore(like, mark, mark_at)
    if point is None or not point.ended:
        return point
    check_more_rounds(first.parts, point.round, first.rounds)
    check_late_ends(program, point)
    return replace(point, measured=forget_evaluations(point.measured, first))


def check_late_ends(program: Program, point: Point) -> None:
    """Raises `ValueError` if a seed ended in a round that a run evaluated only because its end was near.

    What ended it may be a loss on the test examples that a longer run does not measure.
    """
    if "alive" not in point.measured:
        return
    alive = point.measured["alive"][: program.count].astype(bool)
    ended = ~alive & np.concatenate([np.ones((len(alive), 1), bool), alive[:, :-1]], axis=1)
    rounds = np.arange(alive.shape[1])
    late = (rounds >= point.round - program.first.evaluate_last) & ~np.asarray(is_due(program.first, rounds))
    for seed, round in np.argwhere(ended & late).tolist():
        raise ValueError(
            f"seed {program.seeds[seed]} ended in round {round + 1}, perhaps in an evaluation that a run of "
            f"{program.first.rounds} rounds does not make; run it anew in another folder"
        )


def forget_evaluations(measured: dict[str, np.ndarray], experiment: Experiment) -> dict[str, np.ndarray]:
    """Returns what was measured, without evaluations made only because the run ended, as it now ends later."""
    rounds = np.arange(measured["client"].shape[1])
    due = np.asarray(is_due(experiment, rounds))
    every = experiment.evaluate_clients_every
    of_clients = 0 if every is None else len(rounds) // int(every)

    def forget(name: str, value: np.ndarray) -> np.ndarray:
        if name.startswith(CLIENTS):
            return value[:, :of_clients]
        if name in ("accuracy", "loss") or name.startswith("metrics."):
            return np.where(due.reshape(-1, *(1,) * (value.ndim - 2)), value, np.nan).astype(value.dtype)
        return value

    empty = {name for name in measured if name.startswith(CLIENTS) and not of_clients}  # a checkpoint cannot hold these
    return {name: forget(name, value) for name, value in measured.items() if name not in empty}
