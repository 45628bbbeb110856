"""A sweep's folder: what was asked, a run's folder for every combination, one table over all.

`sweep.yaml` comes first and `summary.json` last; between the two, `programs/` has the checkpoints of what runs, which a
sweep that is to go on to more rounds keeps.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedjax_sel import config as configuration
from fedjax_sel.catalog import see
from fedjax_sel.config import Config, is_same
from fedjax_sel.config.marks import MARKS
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.report import sweeps
from fedjax_sel.report.environment import environment
from fedjax_sel.report.summary import summarize
from fedjax_sel.runs import files
from fedjax_sel.runs import layout as of_run
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.sweep.grid import Combination, name_combination

ASKED, RUNS, PROGRAMS = of_run.SWEEP, "runs", "programs"
CSV, PARQUET = "table.csv", "table.parquet"


def describe(grid: Sequence[Combination]) -> dict[str, Any]:
    """Returns what a sweep is, by dotted keys: the values of every axis, and what all combinations have in common.

    Marks of the user's own code and files that not all have in common are its `sources`.
    """
    flat = [one.config.flat() for one in grid]
    axes = {
        key: list({json.dumps(one.values[key]): one.values[key] for one in grid}.values()) for key in grid[0].values
    }
    common = {k: v for k, v in flat[0].items() if k not in axes and all(k in f and f[k] == v for f in flat)}
    marks = {k: sorted({f[k] for f in flat if k in f}) for f in flat for k in f if k.rpartition(".")[2] in MARKS}
    sources = {k: states for k, states in sorted(marks.items()) if k not in common}
    return {"axes": axes, "common": common, **({"sources": sources} if sources else {})}


def write_infinite(value: Any) -> Any:
    """Returns plain values with infinite ones as text, because JSON has none: `.inf`, as in a configuration file."""
    if isinstance(value, dict):
        return {key: write_infinite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [write_infinite(one) for one in value]
    return configuration.write_value(value) if isinstance(value, float) and math.isinf(value) else value


def fingerprint(grid: Sequence[Combination]) -> str:
    """Returns eight hexadecimal digits that differ if sweeps do."""
    return configuration.fingerprint(describe(grid))


@see("docs/how-to/sweeps.md")
def check(place: Path, grid: Sequence[Combination]) -> None:
    """Raises `FolderError` if a folder holds something else or cannot be written; changes nothing in it.

    A finished sweep that differs in having fewer rounds, and can continue, is accepted.
    """
    if place.exists() and not place.is_dir():
        raise FolderError(f"{place} is a file; a folder is needed")
    inside = of_run.contents(place)
    if inside and ASKED not in inside:
        raise FolderError(f"{place} is not a sweep's folder: it has no {ASKED}, but {inside[0]}; give another one")
    done = find_finished_rounds(place, grid)
    if inside and done is None and (shown := list_differences(read_description(place), describe(grid))):
        raise FolderError(f"{place} holds another sweep ({'; '.join(shown)}); give another folder")
    for one in grid:
        points = None if done is None else find_checkpoints(place, done)
        of_run.check(find_run(place, one, done), one.config, extend=done is not None, checkpoints=points)


def find_finished_rounds(place: Path, grid: Sequence[Combination]) -> int | None:
    """Returns the rounds of a folder's finished sweep, if it differs from this one in these alone, else None."""
    if not (place / ASKED).exists():
        return None
    theirs, mine = read_description(place), describe(grid)
    had, has = theirs.get("common", {}), mine["common"]
    same = all(is_same(theirs.get(part), mine.get(part)) for part in ("axes", "sources"))
    same = same and list(theirs.get("axes", {})) == list(mine["axes"])  # their order is in the names of folders
    differs = {key for key in had | has if not is_same(had.get(key), has.get(key))}
    return had.get("rounds") if same and differs == {"rounds"} and (place / of_run.SUMMARY).exists() else None


def continues(place: Path, grid: Sequence[Combination]) -> bool:
    """Returns whether a folder holds a finished sweep of fewer rounds, which this one continues."""
    return find_finished_rounds(place, grid) is not None


def find_checkpoints(place: Path, done: int) -> Path:
    """Returns a folder with a checkpoint of the end of a sweep of `done` rounds; `programs/` if there is none."""
    folders = sorted((place / PROGRAMS).glob("*"))
    return next((one for one in folders if done in Checkpoints(one).rounds()), place / PROGRAMS)


def find_run(place: Path, one: Combination, done: int | None) -> Path:
    """Returns the folder of a combination, or that which it had when the sweep had `done` rounds."""
    if done is not None:  # a name that is cut ends with the fingerprint of the configuration
        before = place / RUNS / name_combination(one.values, Config({**one.config.to_dict(), "rounds": done}))
        if before.exists():
            return before
    return place / RUNS / one.name


def read_description(place: Path) -> dict[str, Any]:
    """Returns what the sweep in a folder is.

    Raises:
      FolderError: it cannot be read, or an earlier version wrote it, with other names of keys.
    """

    def read(path: Path) -> dict[str, Any]:
        found = configuration.load_file(path)
        if not all(isinstance(found.get(part, {}), dict) for part in ("axes", "common", "sources")):
            raise ValueError("it is cut short, or is no sweep's")
        return found

    theirs = of_run.read_file(place / ASKED, read)
    for key in (*theirs.get("axes", {}), *theirs.get("common", {})):
        if (own := configuration.translate_key(key)) != key:
            raise FolderError(
                f"{place} holds a sweep of an earlier version ({key} is {own} here); its runs in {place / RUNS} can be "
                "read and compared, but not be added to; give another folder"
            )
    return theirs


def list_differences(theirs: dict, mine: dict) -> list[str]:
    """Returns in what two sweeps differ: their axes, else what all combinations have in common, else their sources."""
    for part in ("axes", "common", "sources"):
        one, other = theirs.get(part, {}), mine.get(part, {})
        keys = [key for key in one | other if not is_same(one.get(key, "absent"), other.get(key, "absent"))]
        if keys:
            return [f"{key}: {one.get(key, 'absent')} there, {other.get(key, 'absent')} here" for key in keys]
        if part == "axes" and list(one) != list(other):
            return [f"the axes in the order {', '.join(one)} there, in which it goes on, {', '.join(other)} here"]
    return []


def create(place: Path, grid: Sequence[Combination]) -> None:
    """Writes what was asked; if a finished sweep goes on to more rounds, its runs count as interrupted from now on."""
    done = find_finished_rounds(place, grid)
    if done is not None:
        for one in grid:
            before = find_run(place, one, done)
            of_run.create(before, one.config, checkpoints=find_checkpoints(place, done))
            before.rename(place / RUNS / one.name)
    if done is not None or not (place / ASKED).exists():
        files.write_text(place / ASKED, configuration.dump(describe(grid)))
        (place / of_run.SUMMARY).unlink(missing_ok=True)


def list_unfinished(place: Path, grid: Sequence[Combination]) -> list[Combination]:
    """Returns the combinations whose runs are not finished."""
    return [one for one in grid if of_run.state(place / RUNS / one.name) != "finished"]


def is_complete(place: Path, grid: Sequence[Combination]) -> bool:
    """Returns whether nothing is left to do."""
    return (place / of_run.SUMMARY).exists() and not continues(place, grid) and not list_unfinished(place, grid)


def check_kept(place: Path, grid: Sequence[Combination], *, keep_models: bool, keep_checkpoints: bool) -> None:
    """Raises `FolderError` if finished runs, which are not run again, did not keep what is to be kept."""
    if not (place / ASKED).exists() or find_finished_rounds(place, grid) is not None:
        return  # it is new, or goes on to more rounds
    left = {one.name for one in list_unfinished(place, grid)}
    done = [place / RUNS / one.name for one in grid if one.name not in left]
    if keep_models and (without := [folder.name for folder in done if not (folder / of_run.MODELS).exists()]):
        raise FolderError(
            f"{place} holds finished runs without their models ({without[0]}{' and others' * (len(without) > 1)}), "
            "which --keep-models cannot add; give another folder"
        )
    if keep_checkpoints and is_complete(place, grid) and not (place / PROGRAMS).exists():
        raise FolderError(
            f"{place} holds a finished sweep without checkpoints, which --keep-checkpoints cannot add; give another "
            "folder"
        )


def draw_missing(place: Path, grid: Sequence[Combination]) -> None:
    """Draws the figures and writes the report of every finished run that lacks them."""
    for folder, config in ((place / RUNS / one.name, one.config) for one in grid):
        if not (folder / of_run.HTML).exists():
            history, _ = of_run.read(folder)
            of_run.write_report(folder, history, config, summarize(history))


def read_table(place: Path, grid: Sequence[Combination]) -> pd.DataFrame:
    """Returns the table over all combinations, from their folders."""
    return sweeps.build_tidy((one.name, one.values, of_run.read(place / RUNS / one.name)[0]) for one in grid)


def write(place: Path, grid: Sequence[Combination], *, keep_checkpoints: bool = False) -> pd.DataFrame:
    """Writes the table over all combinations, the figures and the report; returns the table.

    Args:
      place: the sweep's folder.
      grid: its combinations, all finished.
      keep_checkpoints: whether those of its end are kept.
    """
    from fedjax_sel.report.sweep_figures import plot_sweep  # late: matplotlib takes a second

    what, found = describe(grid), read_table(place, grid)
    axes = list(what["axes"])
    with files.write_atomic(place / CSV) as new:
        found.to_csv(new, index=False)
    files.write_parquet(place / PARQUET, found)
    (place / of_run.FIGURES).mkdir(exist_ok=True)
    drawn = plot_sweep(found, axes)
    for name, figure in drawn.items():
        files.write_figure(place / of_run.FIGURES / f"{name}.png", figure)
    files.write_text(place / of_run.REPORT, sweeps.render_page(found, axes, configuration.dump(what), drawn))
    rows = sweeps.rank_combinations(found, axes).to_dict("records")
    shown = {"axes": write_infinite(what["axes"]), "best_first": write_infinite(rows), "environment": environment()}
    files.write_json(place / of_run.SUMMARY, shown)
    if not keep_checkpoints:
        shutil.rmtree(place / PROGRAMS, ignore_errors=True)
    return found
