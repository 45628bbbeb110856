"""Writes the leaderboard's results: the tidy table, `leaderboard.json`, the pages and the figures."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fedjax_sel.leaderboard.cells import FINISHED, Cell
from fedjax_sel.leaderboard.figures import list_figures
from fedjax_sel.leaderboard.findings import Finding, judge_predictions
from fedjax_sel.leaderboard.scales import ALL_ROUNDS, KINDS, PRIMARY, Budget
from fedjax_sel.leaderboard.scores import leave_out_variants
from fedjax_sel.leaderboard.selectors import VARIANTS
from fedjax_sel.leaderboard.tables import (
    tabulate_budgets,
    tabulate_costs,
    tabulate_counts,
    tabulate_findings,
    tabulate_gains,
    tabulate_groups,
    tabulate_mean_gains,
    tabulate_ranking,
    tabulate_remarks,
    tabulate_unfinished,
    tabulate_variants,
    to_html,
    to_markdown,
)
from fedjax_sel.papers.paper import Figure, Table
from fedjax_sel.papers.writing import list_notes
from fedjax_sel.report.environment import environment
from fedjax_sel.runs.files import write_figure, write_json, write_parquet, write_text

STYLE = (
    "body{font-family:system-ui,sans-serif;max-width:1280px;margin:0 auto;padding:1rem;box-sizing:border-box}"
    "h1{font-size:1.6em;line-height:1.25}code{overflow-wrap:anywhere}figure{margin:2rem 0}"
    ".wide{overflow-x:auto;margin:1rem 0}.wide img{max-width:100%}"
    "@media(max-width:700px){.wide table{min-width:44rem}.wide img{max-width:none;width:600px}}"
)
"""The style of the page; wide elements scroll sideways by themselves on a phone."""

PARQUET, JSON, MARKDOWN, HTML = "leaderboard.parquet", "leaderboard.json", "leaderboard.md", "leaderboard.html"


def write(
    scale: str,
    seeds: Sequence[int],
    cells: Sequence[Cell],
    tidy: pd.DataFrame,
    studies: Mapping[str, Any],
    out: Path,
    console: Console,
    again: str,
) -> dict[str, Any]:
    """Writes and prints the results, and returns the contents of `leaderboard.json`.

    Args:
      scale: the scale at which it ran.
      seeds: its seeds.
      cells: all cells, finished or not.
      tidy: their measures.
      studies: the results of the studies that need no cells.
      out: the folder of the leaderboard.
      console: where the first table is printed.
      again: the command that reproduces the leaderboard.
    """
    ranked = leave_out_variants(tidy)
    findings = judge_predictions(ranked, studies)
    tables, figures = list_tables(tidy, cells, findings), list_figures(ranked) if len(ranked) else []
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for figure in figures:
        write_figure(out / "figures" / f"{figure.name}.png", figure.draw())
    write_parquet(out / PARQUET, tidy)
    about = environment()
    head = describe(scale, seeds, cells, again)
    write_text(out / MARKDOWN, render_markdown(head, tables, figures, about))
    try:
        write_text(out / HTML, render_html(head, tables, figures, about))
    except ImportError:
        console.print(
            f"{HTML} is not written: it needs `pip install 'fedjax-sel[tables]'`", style="yellow", markup=False
        )
    summary = {
        "scale": scale,
        "seeds": list(seeds),
        "environment": about,
        "cells": [
            {**{key: value for key, value in vars(cell).items() if key != "history"}, "seconds": round(cell.seconds)}
            for cell in cells  # `known.read_known` reads them
        ],
        "findings": [vars(one) for one in findings],
        "tables": [vars(table) for table in tables],
        "studies": dict(studies),
    }
    write_json(out / JSON, summary)
    print_table(console, tables[0])
    return summary


def describe(scale: str, seeds: Sequence[int], cells: Sequence[Cell], again: str) -> str:
    """Returns the first paragraph: the leaderboard's size, how much of it is finished, and which commits ran it."""
    counted = Counter(cell.status for cell in cells)
    federations = len({cell.federation for cell in cells if cell.status == FINISHED})
    selectors = len({cell.selector for cell in cells if cell.status == FINISHED} - set(VARIANTS))
    told = ", ".join(f"{number} {status}" for status, number in counted.items())
    finished = [{"commit": cell.commit} for cell in cells if cell.status == FINISHED]
    parts = [
        f"Scale {scale}: {selectors} selectors on {federations} federations with {len(seeds)} seeds.",
        f"Cells: {told}. They ran for {sum(cell.seconds for cell in cells) / 3600:.1f} hours.",
        *list_notes(finished),
        f"To run it again: `{again}`.",
    ]
    return " ".join(parts)


def list_tables(tidy: pd.DataFrame, cells: Sequence[Cell], findings: Sequence[Finding]) -> list[Table]:
    """Returns all tables, the ranking first; only unfinished cells and findings if nothing is finished."""
    judged, remarks = tabulate_findings(findings), tabulate_remarks(cells)
    unfinished = [*([remarks] if remarks.rows else []), tabulate_unfinished(cells)]
    varied, tidy = tabulate_variants(tidy), leave_out_variants(tidy)
    if not len(tidy):
        return [*unfinished, judged]
    others = [Budget(kind, PRIMARY.share) for kind in KINDS if kind != PRIMARY.kind]
    known = set(tidy["budget"])
    return [
        tabulate_ranking(tidy),
        judged,
        tabulate_counts(tidy),
        tabulate_mean_gains(tidy),
        *(tabulate_groups(tidy, budget) for budget in (PRIMARY, ALL_ROUNDS) if budget.name in known),
        *([varied] if varied.rows else []),
        tabulate_gains(tidy, PRIMARY),
        tabulate_budgets(tidy),
        tabulate_costs(tidy),
        *(tabulate_gains(tidy, budget) for budget in others if budget.name in known),
        *unfinished,
    ]


def render_markdown(head: str, tables: Sequence[Table], figures: Sequence[Figure], about: Mapping[str, Any]) -> str:
    """Returns the page as Markdown, with the figures after the first two tables."""
    shown = [f"![{one.name}](figures/{one.name}.png)\n\n*{one.caption}*" for one in figures]
    parts = [to_markdown(table) for table in tables]
    ran = "## Environment\n\n" + "\n".join(f"- {html.escape(f'{k}: {v}', quote=False)}" for k, v in about.items())
    return "\n\n".join(["# Leaderboard of client selectors", head, *parts[:2], *shown, *parts[2:], ran]) + "\n"


def render_html(head: str, tables: Sequence[Table], figures: Sequence[Figure], about: Mapping[str, Any]) -> str:
    """Returns the page as HTML; all text is escaped.

    Raises:
      ImportError: `great_tables` is not installed.
    """
    parts = [f'<div class="wide">{to_html(table)}</div>' for table in tables]
    shown = [
        f'<figure><div class="wide"><img src="figures/{one.name}.png" alt="{html.escape(one.caption)}"></div>'
        f"<figcaption>{html.escape(one.caption)}</figcaption></figure>"
        for one in figures
    ]
    told = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(head))
    ran = "".join(f"<li>{html.escape(f'{k}: {v}')}</li>" for k, v in about.items())
    body = "\n".join([*parts[:2], *shown, *parts[2:]])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Leaderboard of client selectors</title><style>{STYLE}</style></head><body>"
        f"<h1>Leaderboard of client selectors</h1><p>{told}</p>\n{body}\n"
        f"<h2>Environment</h2><ul>{ran}</ul></body></html>\n"
    )


def print_table(console: Console, table: Table) -> None:
    """Prints a table in the terminal."""
    shown = RichTable(title=Text(table.title), title_justify="left")
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="left" if i == 0 else "right")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    console.print(shown)
    console.print(table.note, markup=False, highlight=False)
