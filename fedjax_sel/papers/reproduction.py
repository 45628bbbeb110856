"""Runs a paper's cells and studies, keeps those that are finished, and writes the results."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from fedjax_sel import catalog
from fedjax_sel.config import Config, fingerprint, resolve
from fedjax_sel.config.marks import drop_marks
from fedjax_sel.engine.driver import check_seeds
from fedjax_sel.engine.history import History
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.conditions import observe_conditions
from fedjax_sel.papers.earlier import Report, read_report
from fedjax_sel.papers.judging import settle_claims
from fedjax_sel.papers.own import list_own_cells, tabulate_own
from fedjax_sel.papers.paper import (
    Cell,
    Claim,
    Evidence,
    Figure,
    Finished,
    Histories,
    NotRun,
    Paper,
    Result,
    Table,
    join,
    locate_cell,
    locate_reproduction,
)
from fedjax_sel.papers.regime import Conditions, describe_conditions, merge_conditions
from fedjax_sel.papers.report import render_report
from fedjax_sel.report.environment import CHANGES, environment
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.execute import execute, say_on
from fedjax_sel.runs.files import read_json, to_jsonable, write_figure, write_json, write_text
from fedjax_sel.runs.lock import lock_folder


def reproduce(
    paper: Paper,
    *,
    scale: str | None = None,
    out: Path | None = None,
    seeds: int | Sequence[int] | None = None,
    add: Sequence[str] = (),
    finished: bool = False,
    known: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Runs a paper's experiments at a scale, and writes tables, figures, report and `summary.json`.

    A cell that is finished in `out` with the same configuration is read, not run again. So is a study of the same scale
    and seeds, whose other settings are code: if another commit made it, the terminal and the report say which. With
    `finished`, nothing is run, so another process may be running the rest: results that need missing cells or studies
    are left out, and the report says how many there are.

    Args:
      paper: the paper to reproduce.
      scale: one of the paper's; None: its default.
      out: folder; None: `runs/PAPER-SCALE`.
      seeds: a count or numbers; None: as many as the scale says.
      add: the user's strategies (`module:Name`), which run in every experiment that has a place for them.
      finished: whether to report on what is finished in `out`, and run nothing.
      known: with `finished`, the folder of an earlier report, for example from another machine: cells that are not
        finished in `out` have that report's measures, if their settings are the same. Their individual rounds are not
        known, so figures of rounds leave them out.
      console: where progress and tables are printed.

    Returns:
      The content of `summary.json`.

    Raises:
      ValueError: an unknown scale, a name that is no strategy or has no place, a folder of something else or in use by
        another process, with `finished` a folder in which nothing is finished, or `known` without `finished` or without
        a report of this paper at this scale.
    """
    console = console or Console(quiet=True)
    scale = scale or paper.default_scale
    catalog.check_name("scale", scale, list(paper.seeds))
    seeds = paper.seeds[scale] if seeds is None else seeds
    out = Path(out or locate_reproduction(paper, scale))
    cells = paper.cells(scale)
    added = list_own_cells(cells, add)
    cells += [one.cell for one in added]
    configs = [resolve({"seeds": seeds, **cell.config}) for cell in cells]
    for cell, config in zip(cells, configs, strict=True):  # everything is checked before anything runs
        layout.check(locate_cell(out, cell), config, extend=False)

    if known is not None and not finished:
        raise ValueError("known is for a report on what is finished; give finished (--finished), too")

    with nullcontext() if finished else lock_folder(out):
        began = time.perf_counter()
        numbers = check_seeds(seeds)
        here = find_finished(out, cells, configs) if finished else [True] * len(cells)
        elsewhere = {
            c.key: fingerprint_settings(g) for c, g, done in zip(cells, configs, here, strict=True) if not done
        }
        earlier = Report() if known is None else read_report(Path(known), paper.name, scale, cells, elsewhere)
        if not any(here) and not earlier.histories:
            raise ValueError(f"no cell of this reproduction is finished in {out}; leave out --finished to run it there")
        histories = run_cells(out, [*compress(cells, here)], [*compress(configs, here)], console)
        more = [tabulate_own([one for one in added if one.cell.key in histories], histories)] if added else []
        theirs = slice(len(cells) - len(added))  # the paper's claims, tables and figures do not see the user's cells
        cells, configs, here = cells[theirs], configs[theirs], here[theirs]
        every = {**earlier.histories, **histories}
        there = {cell.key: every[cell.key] for cell in cells if cell.key in every}
        unfinished = [cell.key for cell in cells if cell.key not in there]
        cells, configs = [*compress(cells, here)], [*compress(configs, here)]
        studies = run_studies(out, paper, scale, numbers, console, only_finished=finished)
        unfinished += [("study", name) for name in paper.studies if name not in studies]
        evidence = Evidence(Finished(there), Finished(studies)) if unfinished else Evidence(there, studies)
        conditions = observe_conditions(cells, configs, histories)
        for name, had in earlier.conditions.items():
            conditions[name] = merge_conditions(conditions.get(name), had)
        made, of_studies = describe_cells(out, cells, configs), describe_studies(out, studies)
        summary = write_reproduction(
            paper,
            scale,
            numbers,
            evidence,
            conditions,
            made,
            of_studies,
            out,
            console,
            tell_again(paper, scale, numbers, add),
            more,
            unfinished,
            earlier,
        )
        console.print(
            f"{time.perf_counter() - began:.0f} s. Report, figures and summary.json are in [bold]{out}[/]",
            soft_wrap=True,
        )
    return summary


def write_reproduction(
    paper: Paper,
    scale: str,
    seeds: tuple[int, ...],
    evidence: Evidence,
    conditions: Mapping[str, Conditions],
    made: list[dict[str, Any]],
    of_studies: list[dict[str, Any]],
    out: Path,
    console: Console,
    again: str,
    more: Sequence[Table] = (),
    unfinished: Sequence[tuple[str, str]] = (),
    earlier: Report | None = None,
) -> dict[str, Any]:
    """Writes and prints what the evidence shows, and returns the content of `summary.json`.

    Args:
      paper, scale, seeds, evidence: of the reproduction.
      conditions: of the runs of every experiment; claims are settled by them.
      made: the settings of every cell that was run, and the commit that ran it.
      of_studies: the name of every study, and the commit that made it.
      out: folder.
      console: where verdicts are printed.
      again: the command that reproduces it.
      more: tables that come before the paper's.
      unfinished: experiment and method of every cell that the evidence lacks; `("study", name)` for studies.
      earlier: the report from which the evidence has the other cells; None: there are no others.
    """
    earlier = earlier or Report()
    made = [*made, *earlier.made.values()]
    ran = evidence
    if earlier.histories:  # whose results are rows already
        ran_here = {key: one for key, one in evidence.histories.items() if key not in earlier.histories}
        ran = Evidence(Finished(ran_here), evidence.studies)
    found = join(lambda: paper.claims(scale, evidence))
    claims = settle_claims(found, paper.regime, conditions, finished=not unfinished)
    results = join(lambda: paper.results(scale, ran))
    summary = {
        "paper": paper.name,
        "scale": scale,
        "seeds": list(seeds),
        "environment": environment(),
        "notes": [*tell_unfinished(len(made), unfinished), *tell_earlier(earlier), *list_notes(made, of_studies)],
        **({"unfinished": [list(key) for key in unfinished]} if unfinished else {}),
        "regime": vars(paper.regime),
        "conditions": describe_conditions(conditions),
        "cells": made,
        "studies": of_studies,
        "results": [*(describe_result(result) for result in results), *earlier.results],
        "claims": [vars(claim) for claim in claims],
        **({"own": [vars(table) for table in more]} if more else {}),
    }
    tables = [*more, *join(lambda: paper.tables(scale, evidence))]
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


def tell_again(paper: Paper, scale: str, seeds: Sequence[int], add: Sequence[str] = ()) -> str:
    """Returns the command that runs a reproduction, with the number of its seeds where it is not the scale's.

    Seeds that are not numbered from 0 can be given in Python alone, and are left out.

    >>> from fedjax_sel import papers
    >>> tell_again(papers.load("lefl"), "smoke", (0, 1, 2, 3), ["mine.py:Last"])
    'fedjax-sel reproduce lefl --scale smoke --seeds 4 --add mine.py:Last'
    """
    counted = list(seeds) == list(range(len(seeds))) and len(seeds) != len(check_seeds(paper.seeds[scale]))
    options = (("--seeds", [str(len(seeds))] if counted else []), ("--add", add))
    named = [part for option, values in options for one in values for part in (option, one)]
    return shlex.join(["fedjax-sel", "reproduce", paper.name, "--scale", scale, *named])


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


def draw_figure(folder: Path, figure: Figure) -> bool:
    """Draws a figure into a file of its name; returns whether everything that it needs was run."""
    try:
        write_figure(folder / f"{figure.name}.png", figure.draw())
    except NotRun:
        return False
    return True


def find_finished(out: Path, cells: Sequence[Cell], configs: Sequence[Config]) -> list[bool]:
    """Returns whether each cell's run is finished."""
    return [layout.state(place) == "finished" for place in locate_runs(out, cells, configs).values()]


def run_cells(out: Path, cells: Sequence[Cell], configs: Sequence[Config], console: Console) -> Histories:
    """Returns the cells' histories, which are read if finished and run otherwise.

    Cells of one configuration that begin with the same model share one run.
    """
    places = locate_runs(out, cells, configs)
    begun_with = {places[cell.begins] for cell in cells if cell.begins is not None}
    known: dict[Path, History] = {}
    announced = False
    for number, (cell, config) in enumerate(zip(cells, configs, strict=True), start=1):
        place = places[cell.key]
        if place in known:
            continue
        new = layout.state(place) != "finished"
        known[place] = execute(
            f"{number}/{len(cells)} {cell.experiment}, {cell.method}",
            config,
            place,
            begin=pretrained.load(places[cell.begins]) if new and cell.begins is not None else None,
            figures=False,
            keep_checkpoints=False,  # a cell is never resumed, and SCAFFOLD's state is one model per client
            keep_variables=place in begun_with,
            more_follow=True,
            announce=not announced,
            console=console,
            say=say_on(console),
            kept_in=out,
        )
        announced |= new
    return {key: known[place] for key, place in places.items()}


def locate_runs(out: Path, cells: Sequence[Cell], configs: Sequence[Config]) -> dict[tuple[str, str], Path]:
    """Returns the folder of each cell's run, by key; cells that share a run have the first one's folder."""
    first: dict[tuple[str, ...], Path] = {}
    return {
        cell.key: first.setdefault(same, locate_cell(out, cell))
        for cell, same in zip(cells, identify_runs(cells, configs), strict=True)
    }


def identify_runs(cells: Sequence[Cell], configs: Sequence[Config]) -> list[tuple[str, ...]]:
    """Returns what identifies each cell's run: its configuration, and that of every cell that it builds on.

    Raises:
      ValueError: a cell begins with the model of a cell that does not come before it.
    """
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for cell, config in zip(cells, configs, strict=True):
        if cell.begins is not None and cell.begins not in out:
            raise ValueError(f"the cell {cell.key} begins with the model of {cell.begins}, which is no cell before it")
        out[cell.key] = (config.fingerprint, *(() if cell.begins is None else out[cell.begins]))
    return list(out.values())


def describe_cells(out: Path, cells: Sequence[Cell], configs: Sequence[Config]) -> list[dict[str, Any]]:
    """Returns each cell's experiment and method, its settings' fingerprint, and the commit that ran it."""
    places = locate_runs(out, cells, configs)
    return [
        {
            "experiment": cell.experiment,
            "method": cell.method,
            "settings": fingerprint_settings(config),
            "commit": layout.read_commit(places[cell.key]),
        }
        for cell, config in zip(cells, configs, strict=True)
    ]


def describe_studies(out: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Returns each study's name, and the commit that made it; None: it was not recorded."""
    return [{"name": name, "commit": read_study(locate_study(out, name)).get("commit")} for name in names]


def list_notes(made: Sequence[Mapping[str, Any]], of_studies: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Returns what a reader must know about where cells and studies come from: several commits, uncommitted changes."""
    commits = {cell["commit"] for cell in made}
    out = []
    if len(commits) > 1:
        out.append(f"The cells were run at several commits: {', '.join(sorted(str(commit) for commit in commits))}.")
    if any(commit is None or CHANGES in commit or layout.UNKNOWN in commit for commit in commits):
        out.append("Some cells were not run from a clean checkout: no commit says what ran.")
    others: dict[str, list[str]] = {}
    for study in of_studies:
        if study["commit"] not in commits:
            others.setdefault(study["commit"] or "a commit that was not recorded", []).append(study["name"])
    if others:
        listed = "; ".join(f"{', '.join(names)} at {commit}" for commit, names in others.items())
        out.append(f"These studies were made at other commits than the cells: {listed}.")
    return out


def run_studies(
    out: Path, paper: Paper, scale: str, seeds: Sequence[int], console: Console, *, only_finished: bool = False
) -> dict[str, Any]:
    """Returns the studies' results, which are read if finished at this scale with these seeds, and computed otherwise.

    If a study that is read was made at another commit than today's, the terminal says so.

    Args:
      out: folder of the reproduction.
      paper, scale, seeds: of the reproduction.
      console: where progress is printed.
      only_finished: whether to leave out studies that are not finished.
    """
    found, today = {}, environment()["commit"]
    for name, study in paper.studies.items():
        place, asked = locate_study(out, name), {"scale": scale, "seeds": list(seeds)}
        kept = read_study(place)
        if {key: kept.get(key) for key in asked} != asked:
            if only_finished:
                continue
            with console.status(f"study: {name.replace('_', ' ')}"):
                kept = to_jsonable({**asked, "commit": today, "found": study(scale, seeds, out)})
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, kept)
            kept = read_study(place)  # so that it equals what later calls read
        elif not only_finished and kept.get("commit") != today:
            say_on(console)(
                f"The study {name} is read from {place}; it was made at {kept.get('commit') or 'an unknown commit'}. "
                "If its settings have changed since, delete that file, and it is made again."
            )
        found[name] = kept["found"]
    return found


def locate_study(out: Path, name: str) -> Path:
    """Returns the file of a study in a reproduction's folder."""
    return out / "studies" / f"{name}.json"


def read_study(place: Path) -> dict[str, Any]:
    """Returns the stored content of a study; an empty dictionary if it is not finished."""
    try:
        kept = read_json(place)
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and "found" in kept else {}


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


def fingerprint_settings(config: Config) -> str:
    """Returns eight hexadecimal digits that differ if the settings of runs differ.

    Null parameters are left out, so that an option which is added later and not used changes nothing. Digests of the
    data are left out too, because the settings are known without the data; they are part of the cell's own
    configuration.
    """
    settings = Config(drop_marks(config)).flat()
    return fingerprint({key: value for key, value in settings.items() if value is not None})
