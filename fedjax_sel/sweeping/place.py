"""A sweep's folder: what was asked, a run's folder for every combination, one table over all.

`sweep.yaml` comes first and `summary.json` last; between the two, `programs/` has the checkpoints of what runs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedjax_sel import config as configuration
from fedjax_sel import folder
from fedjax_sel.report import sweeps
from fedjax_sel.sweeping.grid import Combination

ASKED, RUNS, PROGRAMS = "sweep.yaml", "runs", "programs"
CSV, PARQUET = "table.csv", "table.parquet"


def asked(grid: Sequence[Combination]) -> dict[str, Any]:
    """What a sweep is: the values of every axis, and what all combinations have in common, by dotted keys."""
    flat = [configuration.flat(one.config) for one in grid]
    axes = {
        key: list({json.dumps(one.values[key]): one.values[key] for one in grid}.values()) for key in grid[0].values
    }
    common = {k: v for k, v in flat[0].items() if k not in axes and all(k in f and f[k] == v for f in flat)}
    return {"axes": axes, "common": common}


def fingerprint(grid: Sequence[Combination]) -> str:
    """Eight hexadecimal digits that differ where sweeps do."""
    return configuration.fingerprint(asked(grid))


def check(place: Path, grid: Sequence[Combination]) -> None:
    """Raise `FolderError` where a folder holds something else, or cannot be written; touches nothing."""
    if place.exists() and not place.is_dir():
        raise folder.FolderError(f"{place} is a file; a folder is needed")
    inside = [path.name for path in place.iterdir()] if place.is_dir() else []
    inside = [name for name in inside if name != folder.LOCK and not name.endswith(folder.PART)]
    if inside and ASKED not in inside:
        raise folder.FolderError(
            f"{place} is no sweep's folder: it has no {ASKED}, but {min(inside)}; give another one"
        )
    if inside and (shown := different(configuration.load_file(place / ASKED), asked(grid))):
        raise folder.FolderError(f"{place} holds another sweep ({'; '.join(shown)}); give another folder")
    for one in grid:
        folder.check(place / RUNS / one.name, one.config)


def different(theirs: dict, mine: dict) -> list[str]:
    """In what two sweeps differ: their axes; where those are equal, what all combinations have in common."""
    for part in ("axes", "common"):
        one, other = theirs.get(part, {}), mine[part]
        keys = [key for key in one | other if one.get(key, "absent") != other.get(key, "absent")]
        if keys:
            return [f"{key}: {one.get(key, 'absent')} there, {other.get(key, 'absent')} here" for key in keys]
    return []


def begin(place: Path, grid: Sequence[Combination]) -> None:
    """Write down what was asked."""
    if not (place / ASKED).exists():
        folder.write_text(place / ASKED, configuration.dump(asked(grid)))


def unfinished(place: Path, grid: Sequence[Combination]) -> list[Combination]:
    """The combinations whose runs are not finished."""
    return [one for one in grid if folder.state(place / RUNS / one.name) != "finished"]


def complete(place: Path, grid: Sequence[Combination]) -> bool:
    """Whether nothing is left to do."""
    return (place / folder.SUMMARY).exists() and not unfinished(place, grid)


def table(place: Path, grid: Sequence[Combination]) -> pd.DataFrame:
    """The table over all combinations, from their folders."""
    return sweeps.tidy((one.name, one.values, folder.read(place / RUNS / one.name)[0]) for one in grid)


def write(place: Path, grid: Sequence[Combination]) -> pd.DataFrame:
    """Write the table over all combinations, the figures, the report; gives the table."""
    from matplotlib import pyplot as plt  # late, as in `History.plot`

    from fedjax_sel.report.sweep_figures import figures

    what, found = asked(grid), table(place, grid)
    axes = list(what["axes"])
    with folder.written(place / CSV) as new:
        found.to_csv(new, index=False)
    with folder.written(place / PARQUET) as new:
        found.to_parquet(new, index=False)
    (place / "figures").mkdir(exist_ok=True)
    drawn = figures(found, axes)
    for name, figure in drawn.items():
        with folder.written(place / "figures" / f"{name}.png") as new:
            figure.savefig(new, dpi=110, format="png")
        plt.close(figure)
    folder.write_text(place / "report.md", sweeps.page(found, axes, configuration.dump(what), drawn))
    rows = sweeps.best_first(found, axes).to_dict("records")
    summary = {"axes": what["axes"], "best_first": rows, "environment": folder.environment()}
    folder.write_text(place / folder.SUMMARY, json.dumps(folder.jsonable(summary), indent=1, allow_nan=False) + "\n")
    shutil.rmtree(place / PROGRAMS, ignore_errors=True)
    return found
