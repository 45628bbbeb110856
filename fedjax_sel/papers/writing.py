"""What a reproduction has found, and how it is written: report, figures, `summary.json`, verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.earlier import Report
from fedjax_sel.papers.judging import settle_claims
from fedjax_sel.papers.paper import Claim, Evidence, Figure, Finished, NotRun, Paper, Result, Table, join
from fedjax_sel.papers.regime import Conditions, describe_conditions
from fedjax_sel.papers.report import render_report
from fedjax_sel.report.environment import CHANGES, environment
from fedjax_sel.runs import layout
from fedjax_sel.runs.files import write_figure, write_json, write_text


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction has found.

    Attributes:
      paper, scale, seeds: what is reproduced.
      evidence: what the paper's claims, tables and figures rest on.
      conditions: of the runs of every experiment; claims are settled by them.
      made: the settings of every cell that was run, and the commit that ran it.
      of_studies: the name of every study, and the commit that made it.
      own: tables on the user's strategies, which come before the paper's.
      unfinished: experiment and method of every cell that the evidence lacks; `("study", name)` for studies.
      earlier: the report from which the evidence has the other cells.
    """

    paper: Paper
    scale: str
    seeds: tuple[int, ...]
    evidence: Evidence
    conditions: Mapping[str, Conditions]
    made: Sequence[dict[str, Any]]
    of_studies: Sequence[dict[str, Any]]
    own: Sequence[Table] = ()
    unfinished: Sequence[tuple[str, str]] = ()
    earlier: Report = field(default_factory=Report)

    @property
    def ran(self) -> Evidence:
        """The evidence of the cells that were run here; results of an earlier report are there already."""
        if not self.earlier.histories:
            return self.evidence
        here = {key: one for key, one in self.evidence.histories.items() if key not in self.earlier.histories}
        return Evidence(Finished(here), self.evidence.studies)


def write_reproduction(found: Reproduction, out: Path, again: str, console: Console) -> dict[str, Any]:
    """Writes and prints what a reproduction has found, and returns the content of `summary.json`.

    Args:
      found: what it has found.
      out: folder.
      again: the command that reproduces it.
      console: where verdicts are printed.
    """
    paper, scale, evidence = found.paper, found.scale, found.evidence
    made = [*found.made, *found.earlier.made.values()]
    claims = settle_claims(
        join(lambda: paper.claims(scale, evidence)), paper.regime, found.conditions, finished=not found.unfinished
    )
    results = join(lambda: paper.results(scale, found.ran))
    notes = [*tell_unfinished(len(made), found.unfinished), *tell_earlier(found.earlier)]
    summary = {
        "paper": paper.name,
        "scale": scale,
        "seeds": list(found.seeds),
        "environment": environment(),
        "notes": [*notes, *list_notes(made, found.of_studies)],
        **({"unfinished": [list(key) for key in found.unfinished]} if found.unfinished else {}),
        "regime": vars(paper.regime),
        "conditions": describe_conditions(found.conditions),
        "cells": made,
        "studies": found.of_studies,
        "results": [*(describe_result(result) for result in results), *found.earlier.results],
        "claims": [vars(claim) for claim in claims],
        **({"own": [vars(table) for table in found.own]} if found.own else {}),
    }
    tables = [*found.own, *join(lambda: paper.tables(scale, evidence))]
    (out / "figures").mkdir(parents=True, exist_ok=True)
    figures = join(lambda: paper.figures(scale, evidence))
    figures = [figure for figure in figures if draw_figure(out / "figures", figure)]
    text = render_report(
        paper, scale, summary["seeds"], claims, tables, figures, summary["environment"], again, notes=summary["notes"]
    )
    write_text(out / "report.md", text)
    write_json(out / "summary.json", summary)
    print_verdicts(console, paper, tables, claims)
    return summary


def list_notes(made: Sequence[Mapping[str, Any]], of_studies: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Returns what a reader must know of cells and studies: several commits, uncommitted changes, invalid values."""
    commits = {cell["commit"] for cell in made}
    out = []
    if len(commits) > 1:
        out.append(f"The cells were run at several commits: {', '.join(sorted(str(commit) for commit in commits))}.")
    if any(commit is None or CHANGES in commit or layout.UNKNOWN in commit for commit in commits):
        out.append(
            "Some cells were run from an installed package, or a checkout with changes: no commit says what ran."
        )
    others: dict[str, list[str]] = {}
    for study in of_studies:
        if study["commit"] not in commits:
            others.setdefault(study["commit"] or "a commit that was not recorded", []).append(study["name"])
    if others:
        listed = "; ".join(f"{', '.join(names)} at {commit}" for commit, names in others.items())
        out.append(f"These studies were made at other commits than the cells: {listed}.")
    for cell in made:
        out += [f"{cell['experiment']}, {cell['method']}: invalid values: {one}." for one in cell.get("faults", ())]
    return out


def tell_unfinished(finished: int, unfinished: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a note that a reproduction is not finished; no note if it is."""
    if not unfinished:
        return []
    studies = [name for experiment, name in unfinished if experiment == "study"]
    cells, missing = len(unfinished) - len(studies), f"; missing studies: {', '.join(studies)}" if studies else ""
    return [
        f"This reproduction is not finished: {finished} of {finished + cells} cells are there{missing}. Tables, "
        "figures and verdicts use only what is finished; results that need the rest are left out."
    ]


def tell_earlier(earlier: Report) -> list[str]:
    """Returns notes on an earlier report: how many cells are known from it, and which it has with other settings."""
    out, number = [], len(earlier.histories)
    if number:
        out.append(
            f"Of {number} cell{'s' * (number > 1)} only the results are known, from an earlier report; figures that "
            "need their individual rounds leave them out."
        )
    if earlier.changed:
        names = "; ".join(", ".join(key) for key in earlier.changed)
        out.append(f"These cells of an earlier report are left out, as their settings have changed: {names}.")
    return out


def describe_result(result: Result) -> dict[str, Any]:
    """Returns a result as `summary.json` lists it."""
    return {
        "experiment": result.experiment,
        "method": result.method,
        "metric": result.metric,
        "round": result.round,
        "mean": result.mean,
        "std": result.std,
        "per_seed": list(result.per_seed),
        "published": result.published,
    }


def draw_figure(folder: Path, figure: Figure) -> bool:
    """Draws a figure into a file of its name; returns whether everything that it needs was run."""
    try:
        write_figure(folder / f"{figure.name}.png", figure.draw())
    except NotRun:
        return False
    return True


def print_verdicts(console: Console, paper: Paper, tables: Sequence[Table], claims: Sequence[Claim]) -> None:
    """Prints the first table and the verdicts in the terminal."""
    for table in tables[:1]:
        shown = RichTable(title=table.title, title_justify="left")
        for i, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if i < 2 else "right")
        for row, following in zip(table.rows, [*table.rows[1:], None], strict=True):
            shown.add_row(*row, end_section=following is None or following[0] != row[0])
        console.print(shown)
    verdicts = RichTable(title=f"Claims of {paper.title}", title_justify="left")
    for column in ("claim", "verdict"):
        verdicts.add_column(column)
    for claim in claims:
        colour = {REPRODUCED: "green", NOT_REPRODUCED: "red"}.get(claim.verdict, "yellow")
        verdicts.add_row(claim.text, f"[{colour}]{claim.verdict}[/]")
    console.print(verdicts)
