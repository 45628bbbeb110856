"""Summarises a finished sweep: a tidy table, a comparison of the combinations, a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from rich.table import Table

from fedjax_sel.config import write_value
from fedjax_sel.engine.history import FAULT, History
from fedjax_sel.report.markdown import table as markdown
from fedjax_sel.report.quantities import COSTS, format_count
from fedjax_sel.report.summary import summarize


def build_tidy(runs: Iterable[tuple[str, Mapping[str, Any], History]]) -> pd.DataFrame:
    """Returns one row for each combination and seed: combination, its value on every axis, seed, results.

    `diverged` is the round in which the seed diverged, or 0 if it did not; `faults` is the number of invalid values
    from strategies, in tables that have any. An axis with any value that is not a number is text.

    Args:
      runs: name, values by axis, and history of each combination.
    """
    rows, axes = [], []
    for name, values, history in runs:
        found, axes = summarize(history), axes or list(values)
        numbers = {key: one["per_seed"] for key, one in found.items() if "per_seed" in one}
        invalid = count_faults(history)
        for i, seed in enumerate(history.seeds):
            measured = {key: value[i] for key, value in numbers.items()}
            row = {"combination": name, **values, "seed": seed, "rounds": history.rounds}
            faults = {"faults": int(invalid[i])} if invalid[i] else {}
            rows.append({**row, **measured, "diverged": int(history.diverged[i]), **faults})
    out = pd.DataFrame(rows)
    for key in axes:
        given = [row[key] for row in rows]  # a table would turn None into NaN
        if not all(map(is_number, given)) or len(set(map(type, given))) > 1:  # one client, 1, and all clients, 1.0
            out[key] = [write_value(value) for value in given]
    for name in ("left_out", "idle", "faults"):
        if name in out:  # only runs with a nonzero count have the column
            out[name] = out[name].fillna(0.0)
    return out


def count_faults(history: History) -> Int[np.ndarray, "R"]:
    """Returns how many invalid values the strategies returned in each seed."""
    counts = [np.nansum(history[name], axis=1) for name in history.metrics if name.startswith(FAULT)]
    return sum(counts, np.zeros(len(history.seeds))).astype(int)


def is_number(value: Any) -> bool:
    """Returns whether a value is a number; booleans are not."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


TIMED = ("seconds", "joules")
"""What runs with devices cost besides bytes and operations."""


def combine_seeds(table: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Returns one row for each combination, in the table's order, with means over the seeds that did not diverge.

    Standard deviations are NaN where fewer than two seeds did not diverge.
    """
    rows = []
    for name, of in table.groupby("combination", sort=False):
        kept = of[of["diverged"] == 0]
        row = {
            "combination": name,
            **{key: of[key].iloc[0] for key in axes},
            "seeds": len(of),
            "diverged": len(of) - len(kept),
            **({"faults": int(np.sum(of["faults"].to_numpy()))} if "faults" in of else {}),
        }
        for metric in (name for name in ("final_accuracy", "best_accuracy", "final_loss") if name in table):
            row |= {metric: kept[metric].mean(), f"{metric}_std": kept[metric].std()}
        spent = (metric for metric in ("bytes", "flops", *TIMED) if metric in table)
        rows.append(row | {metric: kept[metric].mean() for metric in spent})
    return pd.DataFrame(rows)


def rank_combinations(table: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of `combine_seeds`, best first: by mean final accuracy, or by loss if there is none.

    Combinations of which some seeds diverged come after those of which none did: their means are over the seeds that
    went well. Those whose seeds all diverged are last.
    """
    by = "final_accuracy" if "final_accuracy" in table else "final_loss"
    rows = combine_seeds(table, axes).assign(unsafe=lambda rows: rows["diverged"] > 0)
    up = by == "final_loss"
    ranked = rows.sort_values(["unsafe", by], ascending=[True, up], kind="stable", ignore_index=True)
    return ranked.drop(columns="unsafe")


def format_rows(table: pd.DataFrame, axes: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Returns the headings and the rows of the combinations, best first, as text."""
    marked = [name for name in ("diverged", "faults") if name in table and table[name].to_numpy().any()]
    timed = [name for name in TIMED if name in table]
    rows, shown = [], ("final_accuracy", "best_accuracy") if "final_accuracy" in table else ("final_loss",)
    for row in rank_combinations(table, axes).to_dict("records"):
        costs = ("bytes", "flops", *timed)
        spent = [COSTS[name](row[name]) if row["seeds"] > row["diverged"] else "–" for name in costs]
        diverged = f"{row['diverged']} of {row['seeds']}" if row["diverged"] else "–"
        accuracy = [format_spread(row, name) for name in shown]
        marks = {"diverged": diverged, "faults": f"{row['faults']:,}" if row.get("faults") else "–"}
        rows.append([*(write_value(row[key]) for key in axes), *accuracy, *spent, *(marks[name] for name in marked)])
    return [*axes, *(name.replace("_", " ") for name in shown), "bytes", "FLOPs", *timed, *marked], rows


def format_spread(row: Mapping[str, Any], metric: str) -> str:
    """Returns mean ± standard deviation over seeds, as text."""
    if np.isnan(row[metric]):
        return "–"
    spread = row[f"{metric}_std"]
    return f"{row[metric]:.4f}" + ("" if np.isnan(spread) else f" ± {spread:.4f}")


def build_table(title: str, table: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Returns the table that is printed at the end of a sweep: the combinations, best first."""
    heads, rows = format_rows(table, axes)
    seeds = format_count(len(table["seed"].unique()), "seed")
    out = Table(
        title=f"{title}: {len(rows)} combinations, {seeds} each, the best first",
        title_justify="left",
    )
    for head in heads:
        out.add_column(head, justify="right", overflow="fold")
    for i, row in enumerate(rows):
        out.add_row(*row, style="bold" if i == 0 else None)
    out.caption, out.caption_justify = (FAULTS, "left") if "faults" in heads else (None, "center")
    return out


FAULTS = "Faults: invalid values from strategies; the report of each run in runs/ says which."
"""Explains the column of faults."""


def render_page(table: pd.DataFrame, axes: Sequence[str], config: str, drawn: Iterable[str]) -> str:
    """Returns `report.md` of a sweep.

    Args:
      table: the result of `build_tidy`.
      axes: its columns that are axes.
      config: the configuration of the sweep, as YAML.
      drawn: names of the figures.
    """
    heads, rows = format_rows(table, axes)
    captions = CAPTIONS | {"map": f"Mean final {'accuracy' if 'final_accuracy' in table else 'loss'} over seeds."}
    seeds = format_count(len(table["seed"].unique()), "seed")
    parts = [
        f"# Sweep over {', '.join(axes)}",
        f"{len(rows)} combinations, {seeds} each; mean ± standard deviation, the best first.",
        markdown(heads, rows),
        *([f"**{FAULTS}**"] if "faults" in heads else []),
        *(f"![{captions[name]}](figures/{name}.png)\n\n*{captions[name]}*" for name in drawn),
        "`table.csv` and `table.parquet` have a row for each combination and seed; `runs/` has their folders.",
        "## What was asked",
        f"```yaml\n{config.strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


MEANS = (
    "mean over seeds, with bars of one standard deviation. A mean of combinations is that of those that diverged at no "
    "value shown, and its bars are the mean of their deviations."
)

CAPTIONS = {
    "accuracy": f"Accuracy against each axis: {MEANS} Dashed lines are the accuracy of the best round.",
    "loss": f"Loss against each axis: {MEANS}",
}
