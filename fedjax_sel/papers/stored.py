"""Reads and judges again what a reproduction wrote, `summary.json` and its studies, without running anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel import papers
from fedjax_sel.papers.judging import settle_claims
from fedjax_sel.papers.paper import Claim, Evidence, Finished, StoredCell
from fedjax_sel.papers.regime import Conditions
from fedjax_sel.report.markdown import show_claims, show_notes
from fedjax_sel.runs.files import write_json, write_text


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


def read_report(folder: Path, paper: str, scale: str, settings: Mapping[tuple[str, str], str]) -> Report:
    """Returns what an earlier report knows of cells.

    Args:
      folder: of the report.
      paper, scale: what it must be about.
      settings: the fingerprint of the settings of every cell that is asked for.

    Raises:
      ValueError: the folder has no report, or one of another paper or scale.
    """
    place = folder / "summary.json"
    if not place.is_file():
        raise ValueError(f"{folder} has no summary.json; known must be the folder of an earlier report")
    summary = json.loads(place.read_text(encoding="utf-8"))
    about = summary.get("paper"), summary.get("scale")
    if about != (paper, scale):
        raise ValueError(f"{place} is about {about[0]} at scale {about[1]}, not about {paper} at scale {scale}")
    made = {(row["experiment"], row["method"]): row for row in summary["cells"]}
    made = {key: row for key, row in made.items() if key in settings}
    changed = tuple(key for key, row in made.items() if settings[key] != row["settings"])
    cells = {key: cell for key, cell in read_cells(summary).items() if key in made and key not in changed}
    results = tuple(row for row in summary["results"] if (row["experiment"], row["method"]) in cells)
    named = {experiment for experiment, _ in cells}
    conditions = {name: Conditions(**had) for name, had in summary["conditions"].items() if name in named}
    return Report(cells, {key: made[key] for key in cells}, results, conditions, changed)


def read_cells(summary: Mapping[str, Any]) -> dict[tuple[str, str], StoredCell]:
    """Returns the measures of all cells of a summary that the paper still has, in the paper's order."""
    measures: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for row in summary["results"]:
        if row["round"] is None:
            values = [np.inf if value is None else value for value in row["per_seed"]]
            measures.setdefault((row["experiment"], row["method"]), {})[row["metric"]] = np.array(values)
    cells = {}
    for cell in papers.load(summary["paper"]).cells(summary["scale"]):
        if cell.key not in measures:  # added later, or not finished
            continue
        stored = measures[cell.key]
        runs = len(next(iter(stored.values())))
        nobody = np.zeros((runs, 0, 0), np.int32)
        rounds = cell.config["rounds"]
        cells[cell.key] = StoredCell(tuple(range(runs)), {}, nobody, 0, stored=stored, stored_rounds=rounds)
    return cells


def read_evidence(folder: Path) -> Evidence:
    """Returns the evidence in a reproduction's folder: the measures of the cells that it ran, and its studies."""
    cells = read_cells(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    studies = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))["found"]
        for path in sorted((folder / "studies").glob("*.json"))
    }
    return Evidence(Finished(cells), Finished(studies))


def judge_again(folder: Path) -> list[Claim]:
    """Returns the claims in a reproduction's folder under today's policy, from its stored numbers.

    Raises:
      KeyError: a claim needs individual rounds, which are not stored: the paper has to be run again.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    paper = papers.load(summary["paper"])
    conditions = {name: Conditions(**had) for name, had in summary["conditions"].items()}
    claims, finished = paper.claims(summary["scale"], read_evidence(folder)), "unfinished" not in summary
    return settle_claims(claims, paper.regime, conditions, finished=finished)


def write_again(folder: Path, commit: str | None) -> None:
    """Writes today's verdicts, and today's text on what was run, into a reproduction's `summary.json` and report.

    Args:
      folder: of the reproduction; its numbers, tables and figures stay as they are.
      commit: the commit whose policy is applied, for the summary.
    """
    claims, place = judge_again(folder), folder / "summary.json"
    summary = json.loads(place.read_text(encoding="utf-8"))
    paper = papers.load(summary["paper"])
    summary |= {"claims": [vars(claim) for claim in claims], "regime": asdict(paper.regime), "judged_at": commit}
    text = (folder / "report.md").read_text(encoding="utf-8")
    _, _, after = text.partition("\n## Results\n")
    head, _, _ = text.partition("\n## What was run\n")
    head = "\n\n".join(part for part in head.split("\n\n") if not part.startswith("> **Note.**")).rstrip()
    notes = "\n\n".join(show_notes(summary["notes"]))
    section = "\n\n".join(show_claims(claims, paper.regime))
    write_text(
        folder / "report.md",
        f"{head}\n\n{notes}\n\n## What was run\n\n{paper.settings.strip()}\n\n{section}\n\n## Results\n{after}",
    )
    write_json(place, summary)
