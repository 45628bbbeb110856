"""Summarises a finished run: a few numbers, a page, and a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from rich.table import Table

from fedjax_sel.engine.faults import find_problems, say_diverged, say_problems
from fedjax_sel.engine.history import History
from fedjax_sel.report.curves import CLIENTS, list_curves
from fedjax_sel.report.markdown import table
from fedjax_sel.report.quantities import format_about, format_bytes, format_count, format_quantity, format_seconds
from fedjax_sel.task.task import is_own_metric


def summarize(history: History) -> dict[str, dict[str, Any]]:
    """Returns the numbers of a run by name, each with its mean and standard deviation over seeds (0 for one seed).

    `final_accuracy` and `best_accuracy` exist if targets are classes; `final_…` are the task's own metrics at the end;
    `client_…`, if every client was evaluated, are the mean over clients, the mean of their worst tenth, and their
    standard deviation, at the last evaluation. `per_seed` holds the value of each seed. `bytes` and `flops` are totals,
    selection included; `selection_bytes` and `selection_flops` are selection's part of them. `seconds` and `joules`, if
    the clients have devices, are simulated totals. These exist only if there are any: `left_out` counts updates that
    were not finite, `idle` rounds in which no client trained; `faults` lists invalid results of strategies
    (`engine.faults.find_faults`), `untrained` the seeds in which no client ever trained,
    `unweighted` those in which no update ever had a weight, `unmoved` those whose loss never changed. Seeds that
    diverged are in `per_seed`, but not in the means; `diverged`, if there are any, has their `seeds`, the `rounds` in
    which they ended, and the total number of seeds, `of`.
    """
    diverged = history.diverged
    values = {
        **summarize_accuracy(history),
        "final_loss": history.last("loss"),
        **{f"final_{name}": history.last(name) for name in history.metrics if is_own_metric(name)},
        "bytes": sum_metrics(history, "bytes"),
        "flops": sum_metrics(history, "flops"),
        "selection_bytes": sum_metrics(history, "selection_bytes_down", "selection_bytes_up"),
        "selection_flops": sum_metrics(history, "selection_flops"),
        **{name: sum_metrics(history, name) for name in ("seconds", "joules") if name in history.metrics},
    }
    if history.client_rounds:
        last = history.client_rounds[-1] - 1
        values |= {name: history[name][:, last] for name in history.metrics if name.startswith("client_")}
        values.pop("client_flops")
    for name in ("left_out", "idle"):
        if name in history.metrics and history[name].any():
            values[name] = sum_metrics(history, name)
    found = {name: summarize_seeds(np.asarray(value, np.float64), diverged == 0) for name, value in values.items()}
    return found | find_problems(history)


def summarize_accuracy(history: History) -> dict[str, Float[np.ndarray, "R"]]:
    """Returns the last and the best accuracy of each seed; empty if targets are not classes."""
    if history.headline != "accuracy":
        return {}
    accuracy = history["accuracy"]
    best = np.max(accuracy, axis=1, where=~np.isnan(accuracy), initial=-np.inf)
    return {
        "final_accuracy": history.last("accuracy"),
        "best_accuracy": np.where(np.isfinite(best), best, np.nan),
    }


def sum_metrics(history: History, *metrics: str) -> Float[np.ndarray, "R"]:
    """Returns the sum of these metrics over all rounds, for each seed."""
    return np.sum([history[name].sum(1) for name in metrics], axis=0)


def summarize_seeds(values: Float[np.ndarray, "R"], among: Bool[np.ndarray, "R"]) -> dict[str, Any]:
    """Returns the mean and standard deviation (over `R - 1`) of the seeds `among` with a value, and all values.

    Mean and deviation are NaN if no seed has a value, as for the accuracy of a class that no test example has.
    """
    among = among & ~np.isnan(values)
    if not among.any():
        return {"mean": math.nan, "std": math.nan, "per_seed": values.tolist()}
    with np.errstate(invalid="ignore"):  # older runs may have infinite losses
        std = float(np.std(values[among], ddof=1)) if among.sum() > 1 else 0.0
    return {"mean": float(np.mean(values[among])), "std": std, "per_seed": values.tolist()}


FOUR_DIGITS = "{:.4f}".format

Row = tuple[str, str, Callable[[float], str]]
"""Key, description and format of a number."""

QUALITY: tuple[Row, ...] = (
    ("final_accuracy", "final accuracy", FOUR_DIGITS),
    ("best_accuracy", "best accuracy", FOUR_DIGITS),
    ("final_loss", "final loss", FOUR_DIGITS),
)

COSTS: tuple[Row, ...] = (
    ("bytes", "bytes, selection included", format_bytes),
    ("flops", "client FLOPs, selection included", lambda x: format_quantity(x, "FLOP")),
    ("selection_bytes", "bytes of selection alone", format_bytes),
    ("selection_flops", "client FLOPs of selection alone", lambda x: format_quantity(x, "FLOP")),
    ("seconds", "simulated time", format_seconds),
    ("joules", "simulated energy of all clients", lambda x: format_quantity(x, "J")),
    ("left_out", "updates left out, not finite", "{:.4g}".format),
    ("idle", "rounds in which no update came back", "{:.4g}".format),
)
"""The costs; a run may lack some of them."""

OVER_CLIENTS = {
    "mean": "mean over clients",
    "worst_decile": "worst tenth of the clients",
    "spread": "standard deviation over clients",
}


def list_rows(found: Mapping[str, Any]) -> list[Row]:
    """Returns the key, description and format of every number of a summary: quality, own metrics, clients, costs.

    >>> [what for _, what, _ in list_rows({"final_loss": {}, "final_f1": {}, "client_f1_mean": {}, "bytes": {}})]
    ['final loss', 'final f1', 'client f1, mean over clients', 'bytes, selection included']
    """
    known = {key for key, _, _ in QUALITY}
    own = [(key, key.replace("_", " "), FOUR_DIGITS) for key in found if key.startswith("final_") and key not in known]
    clients = [
        (key, f"client {key.removeprefix('client_').removesuffix(f'_{end}').replace('_', ' ')}, {what}", FOUR_DIGITS)
        for key in found
        for end, what in OVER_CLIENTS.items()
        if key.startswith("client_") and key.endswith(f"_{end}")
    ]
    return [row for row in (*QUALITY, *own, *clients, *COSTS) if row[0] in found]


def format_rows(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Returns the name, mean and standard deviation of each number, as text; – if no seed has one."""

    def format_number(number: float, write: Callable[[float], str]) -> str:
        return "–" if math.isnan(number) else write(number)

    return [
        (
            what,
            format_number(found[key]["mean"], write),
            format_number(found[key]["std"], write) if count_seeds(found) > 1 else "–",
        )
        for key, what, write in list_rows(found)
    ]


def count_seeds(found: Mapping[str, Mapping[str, Any]]) -> int:
    """Returns the number of seeds that did not diverge; the means are over these."""
    return len(found["final_loss"]["per_seed"]) - len(found.get("diverged", {}).get("seeds", ()))


def build_table(title: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns the table that is printed at the end of a run."""
    seeds = count_seeds(found)
    said = "\n".join(say_problems(found)) or None
    out = Table(title=title, title_justify="left", caption=said, caption_justify="left")
    out.add_column("metric")
    out.add_column(f"mean of {format_count(seeds, 'seed')}", justify="right")
    out.add_column("std", justify="right")
    for line in format_rows(found):
        out.add_row(*line)
    return out


def show_figure(name: str, caption: str) -> tuple[str, str]:
    """Returns a figure of the folder `figures`, and its caption, in Markdown."""
    return f"![{caption}](figures/{name}.png)", f"*{caption}*"


LEFT_OUT = "they are not in the means and figures."


def render_page(title: str, found: Mapping[str, Mapping[str, Any]], config: str, about: Mapping[str, Any]) -> str:
    """Returns `report.md` of one run."""
    of = "accuracy" if "final_accuracy" in found else "loss"
    figures = {curve.name(of): curve.caption for curve in list_curves(found)}
    figures |= {"clients": CLIENTS} if f"client_{of}_mean" in found else {}
    parts = [
        f"# {title}",
        table(("metric", "mean over seeds", "std"), format_rows(found)),
        *(
            [f"{say_diverged(**found['diverged'])}; {LEFT_OUT if count_seeds(found) else 'the figures show them.'}"]
            if "diverged" in found
            else []
        ),
        *(f"**{line}**" for line in say_problems({key: one for key, one in found.items() if key != "diverged"})),
        *(line for name, caption in figures.items() for line in show_figure(name, caption.format(Of=of.capitalize()))),
        "## How it was run",
        table(("what", "value"), format_about(about)),
        "## Configuration",
        f"```yaml\n{config.strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"
