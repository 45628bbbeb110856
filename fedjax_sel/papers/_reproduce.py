"""Runs a paper's cells and studies, keeps what is finished, and writes down what came out."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from fedjax_sel import catalog
from fedjax_sel import config as configuration
from fedjax_sel.engine.driver import check_seeds
from fedjax_sel.papers._paper import Cell, Claim, Evidence, Histories, Paper, Result, Table, folder_of
from fedjax_sel.report.environment import environment
from fedjax_sel.report.markdown import report
from fedjax_sel.runs import files, layout, pretrained
from fedjax_sel.runs.execute import execute
from fedjax_sel.runs.lock import lock_folder


def reproduce(
    paper: Paper,
    *,
    scale: str | None = None,
    out: Path | None = None,
    seeds: int | Sequence[int] | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a paper's experiments at a scale, and write tables, figures, report and `summary.json`.

    A cell that is finished in `out` with the same configuration is read, not run again; so is a study of the same scale
    and seeds.

    Args:
      paper: whose.
      scale: one of the paper's; None: its default.
      out: folder; None: `runs/PAPER-SCALE`.
      seeds: a count or numbers; None: as many as the scale says.
      console: where progress and tables go.

    Returns:
      What `summary.json` holds.

    Raises:
      ValueError: unknown scale, a folder of something else, or one that another process uses.
    """
    console = console or Console(quiet=True)
    scales = list(paper.seeds)
    scale = scale or scales[1]
    catalog.check_name("scale", scale, scales)
    seeds = paper.seeds[scale] if seeds is None else seeds
    out = Path(out or Path("runs") / f"{paper.name}-{scale}")
    cells = paper.cells(scale)
    configs = [configuration.resolve({"seeds": seeds, **cell.config}) for cell in cells]
    for cell, config in zip(cells, configs, strict=True):  # everything is checked before anything runs
        layout.check(folder_of(out, cell), config)

    with lock_folder(out):
        return run_in_folder(paper, scale, check_seeds(seeds), cells, configs, out, console)


def run_in_folder(
    paper: Paper,
    scale: str,
    numbers: tuple[int, ...],
    cells: list[Cell],
    configs: list[configuration.Config],
    out: Path,
    console: Console,
) -> dict[str, Any]:
    """Run the cells and studies, and write down what came out; what `summary.json` holds."""
    began = time.perf_counter()
    histories = run_cells(out, cells, configs, console)
    evidence = Evidence(histories, run_studies(out, paper, scale, numbers, console))
    (out / "figures").mkdir(parents=True, exist_ok=True)
    claims, results = paper.claims(scale, evidence), paper.results(scale, evidence)
    summary = {
        "paper": paper.name,
        "scale": scale,
        "seeds": list(numbers),
        "environment": environment(),
        "results": [as_entry(result) for result in results],
        "claims": [vars(claim) for claim in claims],
    }
    figures, tables = paper.figures(scale, evidence), paper.tables(scale, evidence)
    for figure in figures:
        drawn = figure.draw()
        with files.write_atomic(out / "figures" / f"{figure.name}.png") as new:
            drawn.savefig(new, dpi=110, format="png")
        close(drawn)
    text = report(paper, scale, summary["seeds"], claims, tables, figures, environment())
    files.write_text(out / "report.md", text)
    files.write_text(out / "summary.json", json.dumps(files.to_jsonable(summary), indent=1, allow_nan=False) + "\n")
    show(console, paper, tables, claims, out, time.perf_counter() - began)
    return summary


def run_cells(out: Path, cells: list[Cell], configs: list[configuration.Config], console: Console) -> Histories:
    """The cells' histories: read where they are finished, run where not."""
    histories, known, announced = {}, {}, False
    places, wanted = {cell.key: folder_of(out, cell) for cell in cells}, {cell.begins for cell in cells}
    say = partial(console.print, style="yellow", soft_wrap=True, highlight=False, markup=False)
    for number, (cell, config) in enumerate(zip(cells, configs, strict=True), start=1):
        place, same = folder_of(out, cell), config.fingerprint
        if same in known:  # the same run, called otherwise
            histories[cell.key] = known[same]
            continue
        if layout.state(place) == "finished":
            known[same], _ = layout.read(place)
            histories[cell.key] = known[same]
            continue
        first = None if cell.begins is None else pretrained.load(places[cell.begins])
        history = execute(
            f"{number}/{len(cells)} {cell.experiment}, {cell.method}",
            config,
            place,
            begin=first,
            figures=False,
            keep_checkpoints=False,
            keep_variables=cell.key in wanted,
            more_follow=True,
            announce=not announced,
            console=console,
            say=say,
            kept_in=out,
        )
        announced = True
        histories[cell.key] = known[same] = history
    return histories


def run_studies(out: Path, paper: Paper, scale: str, seeds: Sequence[int], console: Console) -> dict[str, Any]:
    """What the studies found: read where this scale and these seeds are finished, found out where not."""
    out, found = out / "studies", {}
    for name, study in paper.studies.items():
        place, asked = out / f"{name}.json", {"scale": scale, "seeds": list(seeds)}
        kept = read_study(place)
        if {key: kept.get(key) for key in asked} != asked:
            with console.status(f"study: {name.replace('_', ' ')}"):
                kept = files.to_jsonable({**asked, "found": study(scale, seeds, out.parent)})
            out.mkdir(parents=True, exist_ok=True)
            files.write_text(place, json.dumps(kept, indent=1, allow_nan=False) + "\n")
            kept = read_study(place)  # so that a study read later is no other than this one
        found[name] = kept["found"]
    return found


def read_study(place: Path) -> dict[str, Any]:
    """What is kept of a study; nothing where it is not finished."""
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and "found" in kept else {}


def as_entry(result: Result) -> dict[str, Any]:
    """A result as `summary.json` lists it."""
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


def close(figure: Any) -> None:
    """Free a figure's memory."""
    import matplotlib.pyplot as plt

    plt.close(figure)


def show(console: Console, paper: Paper, tables: list[Table], claims: list[Claim], out: Path, seconds: float) -> None:
    """The first table, the verdicts and the folder, in the terminal."""
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
        colour = {"reproduced": "green", "not reproduced": "red"}.get(claim.verdict, "yellow")
        verdicts.add_row(claim.text, f"[{colour}]{claim.verdict}[/]")
    console.print(verdicts)
    console.print(f"{seconds:.0f} s. Report, figures and summary.json are in [bold]{out}[/]", soft_wrap=True)
