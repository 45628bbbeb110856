"""What an earlier report of a reproduction knows of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.papers.paper import Cell, StoredCell
from fedjax_sel.papers.regime import Conditions
from fedjax_sel.runs.files import read_json


@dataclass(frozen=True)
class Report:
    """What an earlier report knows of cells.

    Attributes:
      histories: their measures.
      made: their settings and commits, as in `summary.json`.
      results: their results, as in `summary.json`.
      conditions: of the runs of their experiments.
      changed: cells that are left out, since their settings are others today.
    """

    histories: dict[tuple[str, str], StoredCell] = field(default_factory=dict)
    made: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    results: tuple[dict[str, Any], ...] = ()
    conditions: dict[str, Conditions] = field(default_factory=dict)
    changed: tuple[tuple[str, str], ...] = ()


def read_report(
    folder: Path, paper: str, scale: str, cells: Sequence[Cell], settings: Mapping[tuple[str, str], str]
) -> Report:
    """Returns what an earlier report knows of cells.

    Args:
      folder: of the report.
      paper, scale: what it must be about.
      cells: of the paper, in its order.
      settings: the fingerprint of the settings of every cell that is asked for.

    Raises:
      ValueError: the folder has no report, or one of another paper or scale.
    """
    place = folder / "summary.json"
    if not place.is_file():
        raise ValueError(f"{folder} has no summary.json; known must be the folder of an earlier report")
    summary = read_json(place)
    about = summary.get("paper"), summary.get("scale")
    if None in about:
        raise ValueError(f"{folder} holds no report of `reproduce`; known must be the folder of an earlier report")
    if about != (paper, scale):
        raise ValueError(f"{place} is about {about[0]} at scale {about[1]}, not about {paper} at scale {scale}")
    made = {(row["experiment"], row["method"]): row for row in summary["cells"]}
    made = {key: row for key, row in made.items() if key in settings}
    changed = tuple(key for key, row in made.items() if settings[key] != row["settings"])
    read = read_cells(summary, cells, may_lack=True)
    known = {key: cell for key, cell in read.items() if key in made and key not in changed}
    results = tuple(row for row in summary["results"] if (row["experiment"], row["method"]) in known)
    named = {experiment for experiment, _ in known}
    conditions = {name: Conditions(**had) for name, had in summary["conditions"].items() if name in named}
    return Report(known, {key: made[key] for key in known}, results, conditions, changed)


def read_cells(
    summary: Mapping[str, Any], cells: Sequence[Cell], *, may_lack: bool = False
) -> dict[tuple[str, str], StoredCell]:
    """Returns the measures of all cells of a summary that the paper still has, in the paper's order.

    Args:
      summary: content of `summary.json`.
      cells: of the paper.
      may_lack: as in `StoredCell`.
    """
    measures: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for row in summary["results"]:
        if row["round"] is None:
            absent = np.inf if "_to_" in row["metric"] else np.nan  # a target that was not reached, or no value
            values = [absent if value is None else value for value in row["per_seed"]]
            measures.setdefault((row["experiment"], row["method"]), {})[row["metric"]] = np.array(values)
    known = {}
    for cell in cells:
        if cell.key not in measures:  # added later, or not finished
            continue
        stored = measures[cell.key]
        runs = len(next(iter(stored.values())))
        nobody = np.zeros((runs, 0, 0), np.int32)
        rounds = cell.config["rounds"]
        known[cell.key] = StoredCell(
            tuple(range(runs)), {}, nobody, 0, stored=stored, stored_rounds=rounds, may_lack=may_lack
        )
    return known
