"""One block of a sweep: its seeds in turns, each combination's callbacks, each combination's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedjax_sel import config as configuration
from fedjax_sel.engine.callback import AnyCallback, needs_variables, tell
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.driver import check_checkpoints, sweep
from fedjax_sel.engine.history import History, concat_seeds
from fedjax_sel.engine.recorder import split_history
from fedjax_sel.report.progress import Bar
from fedjax_sel.runs import layout as of_run
from fedjax_sel.runs.execute import Say
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.stopping import Stopper
from fedjax_sel.runs.sweep.layout import PROGRAMS, RUNS, list_unfinished
from fedjax_sel.runs.sweep.programs import Block, DrawnFederation


class CallbacksByCombination:
    """Tells each combination's callbacks of its own history; none can end it, as all run side by side.

    Args:
      callbacks: of each combination.
      size: how many experiments run side by side, copies included.
    """

    def __init__(self, callbacks: Sequence[Sequence[AnyCallback]], size: int):
        self.callbacks, self.size = callbacks, size
        self.needs_variables = any(needs_variables(own) for own in callbacks)

    def on_train_begin(self, history: History) -> None:
        """Tells them before the first round."""
        self._tell("on_train_begin", history)

    def on_compiled(self, history: History) -> None:
        """Tells them once the program is compiled."""
        self._tell("on_compiled", history)

    def after_central_iteration(self, history: History) -> None:
        """Tells them after every chunk."""
        self._tell("after_central_iteration", history)

    def on_train_end(self, history: History) -> None:
        """Tells them after the last round."""
        self._tell("on_train_end", history)

    def _tell(self, event: str, history: History) -> None:
        for callbacks, own in zip(self.callbacks, split_history(history, self.size), strict=False):
            if tell(callbacks, event, own) and event == "after_central_iteration":
                raise ValueError(
                    "a callback answered True, to end a run before its last round, but a sweep runs every combination "
                    "to its end; `fedjax-sel run` runs one with it"
                )


def check_block(block: Block, data: DrawnFederation, place: Path, memory: int | None, say: Say) -> None:
    """Raises `ValueError` if a block could not go on from the checkpoints of a sweep of fewer rounds, or has none.

    Args:
      block, data, place, memory, say: as for `run_block`.
    """
    for seeds in block.seeds:
        points = Checkpoints(place / PROGRAMS / name_turn(block, seeds), say=say)
        if not points.rounds():
            raise FolderError(
                f"{place} keeps no checkpoint of the end of {block.members[0].name} that this command could go on "
                "from; give the --memory with which the sweep ran (and keep all checkpoints: --keep-checkpoints, from "
                "its beginning), or another folder"
            )
        check_checkpoints(
            [run.experiment for run in block.runs],
            data,
            seeds,
            block.runs[0].execution,
            checkpoints=points,
            memory=memory,
            others=[run.experiment for run in block.group.runs],
        )


def run_block(
    block: Block,
    data: DrawnFederation,
    place: Path,
    part: Callable[..., Bar],
    done: int,
    stopper: Stopper,
    *,
    memory: int | None,
    say: Say,
    keep_models: bool = False,
    keep_checkpoints: bool = False,
    figures: bool = False,
) -> None:
    """Runs a block to its end, or until it is stopped, and saves what is finished.

    If its seeds run in turns, the combinations' callbacks are told once, when all seeds are done.

    Args:
      block: what to run.
      data: of all its seeds.
      place: the sweep's folder.
      part: makes the bar of one turn, from where it is after so many rounds.
      done: how many combinations are finished.
      stopper: ends it.
      memory: bytes that a device may use; None: what it has.
      say: called with a line that the user should see.
      keep_models: keep the final models.
      keep_checkpoints: keep those of the end.
      figures: draw each combination's figures, and write its report.
    """
    first, finished = block.runs[0], place / RUNS
    left = list_unfinished(place, block.members)
    own: list[list[Any]] = [[] for _ in block.members]
    for i, one in enumerate(block.members):
        if one in left:
            of_run.create(finished / one.name, one.config)
            own[i] = block.runs[i].callbacks(finished / one.name)
    rounds, turns = first.experiment.rounds, len(block.seeds)
    experiments = [run.experiment for run in block.runs]
    parts, kept = [], []
    for turn, seeds in enumerate(block.seeds):
        kept.append(Checkpoints(place / PROGRAMS / name_turn(block, seeds), say=say))
        bar = part(lambda past, turn=turn: done + len(left) * (turn + past / rounds) / turns)
        callbacks: list[Any] = [bar, *([CallbacksByCombination(own, len(experiments))] if turns == 1 else []), stopper]
        found = sweep(
            experiments,
            data,
            seeds,
            first.execution,
            callbacks=callbacks,
            checkpoints=kept[-1],
            memory=memory,
            others=[run.experiment for run in block.group.runs],
        )
        if found[0].rounds < rounds or (stopper.signal and turn + 1 < turns):
            return
        parts.append(found)
    for i, one in enumerate(block.members):
        if one not in left:
            continue
        several = [histories[i] for histories in parts]
        history = several[0] if turns == 1 else concat_seeds(several, first.seeds)
        if turns > 1:
            tell(own[i], "on_train_begin", before_round_0(history))
            tell(own[i], "after_central_iteration", history)
            tell(own[i], "on_train_end", history)
        about = {"side_by_side": f"{len(experiments)} combinations x {len(block.seeds[0])} seeds"}
        history = replace(history, about={**history.about, **about})
        of_run.save(finished / one.name, history, one.config, figures=figures, models=keep_models)
    for points in kept:
        if not keep_checkpoints:
            points.clear()


def list_unused(place: Path, work: Sequence[Block]) -> list[str]:
    """Returns the names of folders of checkpoints, in a sweep's folder, that no block goes on from."""
    used = {name_turn(block, seeds) for block in work for seeds in block.seeds}
    folders = sorted((place / PROGRAMS).glob("*"))
    return [one.name for one in folders if one.name not in used and Checkpoints(one).rounds()]


def before_round_0(history: History) -> History:
    """Returns a run's history as it was when the run began."""
    about = {name: value for name, value in history.about.items() if name != "seconds"}
    none = {"metrics": {}, "client_metrics": {}, "client_rounds": (), "variables": None, "personal": ()}
    return replace(history, selections=history.selections[:, :0], about=about, **none)


def name_turn(block: Block, seeds: Sequence[int]) -> str:
    """Returns the name of the folder of the checkpoints of one turn; it stays the same if rounds are added to all."""
    parts = [
        configuration.fingerprint({**one.config.to_dict(), "rounds": one.values.get("rounds")}) for one in block.members
    ]
    return configuration.fingerprint({"members": parts, "side_by_side": len(block.runs), "seeds": list(seeds)})
