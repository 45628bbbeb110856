"""A finished run in a few numbers, as a page, and as a table in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from rich.table import Table

from fedjax_sel.engine.faults import find_faults, find_untrained, say_fault, say_untrained
from fedjax_sel.engine.history import History
from fedjax_sel.report.markdown import table


def results(history: History) -> dict[str, dict[str, Any]]:
    """What a run is judged by: each number's mean and standard deviation over seeds (0 for one seed), and its values.

    `bytes` and `flops` are totals, selection included; `selection_bytes` and `selection_flops` its part in them;
    `seconds` and `joules`, where the clients have devices, are simulated totals; `left_out`, where there are any, the
    updates that were not finite, and `idle` the rounds in which nobody trained. `faults`, where there are any, is what
    strategies returned that cannot be (`engine.faults.find_faults`), and `untrained` the seeds in which nobody ever
    trained. Seeds that diverged are in the values, but not in the means; `diverged`, where there
    are any, names them: `seeds`, the `rounds` they ended in, and `of` how many.
    """
    accuracy, diverged = history["accuracy"], history.diverged
    best = np.max(accuracy, axis=1, where=~np.isnan(accuracy), initial=-np.inf)
    values = {
        "final_accuracy": accuracy[:, -1],
        "best_accuracy": np.where(np.isfinite(best), best, np.nan),
        "final_loss": history["loss"][:, -1],
        "bytes": total(history, "bytes"),
        "flops": total(history, "flops"),
        "selection_bytes": total(history, "selection_bytes_down", "selection_bytes_up"),
        "selection_flops": total(history, "selection_flops"),
        **{name: total(history, name) for name in ("seconds", "joules") if name in history.metrics},
    }
    for name in ("left_out", "idle"):
        if name in history.metrics and history[name].any():
            values[name] = total(history, name)
    found = {name: over_seeds(np.asarray(value, np.float64), diverged == 0) for name, value in values.items()}
    if diverged.any():
        seeds = [seed for seed, round in zip(history.seeds, diverged, strict=True) if round]
        found["diverged"] = {"seeds": seeds, "rounds": diverged[diverged > 0].tolist(), "of": len(history.seeds)}
    if faults := find_faults(history):
        found["faults"] = {"found": faults}
    if untrained := find_untrained(history):
        found["untrained"] = {"seeds": untrained, "of": len(history.seeds)}
    return found


def total(history: History, *metrics: str) -> Float[np.ndarray, "R"]:
    """Sum of these metrics over all rounds."""
    return np.sum([history[name].sum(1) for name in metrics], axis=0)


def over_seeds(values: Float[np.ndarray, "R"], among: Bool[np.ndarray, "R"]) -> dict[str, Any]:
    """Mean and standard deviation (`R - 1` in the denominator) of the seeds `among`, NaN where none is; all values."""
    if not among.any():
        return {"mean": math.nan, "std": math.nan, "per_seed": values.tolist()}
    with np.errstate(invalid="ignore"):  # the loss may be infinite in runs of before seeds were ended for it
        std = float(np.std(values[among], ddof=1)) if among.sum() > 1 else 0.0
    return {"mean": float(np.mean(values[among])), "std": std, "per_seed": values.tolist()}


def words(diverged: Mapping[str, Any], most: int = 8) -> str:
    """Which seeds diverged, and when.

    >>> words({"seeds": [3], "rounds": [17], "of": 5})
    '1 of 5 seeds diverged: seed 3 in round 17'
    >>> words({"seeds": [0, 1], "rounds": [2, 1], "of": 2}, most=1)
    '2 of 2 seeds diverged: seed 0 in round 2, ...'
    """
    each = [f"seed {seed} in round {round}" for seed, round in zip(diverged["seeds"], diverged["rounds"], strict=True)]
    shown = ", ".join(each[:most] + ["..."] * (len(each) > most))
    return f"{len(each)} of {diverged['of']} seed{'s' * (diverged['of'] != 1)} diverged: {shown}"


def remarks(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines on what went wrong in a run: seeds that diverged or never trained, faults of strategies."""
    return [
        *([words(found["diverged"])] if "diverged" in found else []),
        *([say_untrained(**found["untrained"])] if "untrained" in found else []),
        *(say_fault(fault) for fault in found.get("faults", {}).get("found", ())),
    ]


ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("final_accuracy", "final accuracy", "{:.4f}".format),
    ("best_accuracy", "best accuracy", "{:.4f}".format),
    ("final_loss", "final loss (nats)", "{:.4f}".format),
    ("bytes", "bytes, selection included", lambda x: quantity(x, "B")),
    ("flops", "client FLOPs, selection included", lambda x: quantity(x, "FLOP")),
    ("selection_bytes", "bytes of selection alone", lambda x: quantity(x, "B")),
    ("selection_flops", "client FLOPs of selection alone", lambda x: quantity(x, "FLOP")),
    ("seconds", "simulated seconds", lambda x: quantity(x, "s")),
    ("joules", "simulated joules of all clients", lambda x: quantity(x, "J")),
    ("left_out", "updates left out, not finite", "{:.4g}".format),
    ("idle", "rounds in which nobody trained", "{:.4g}".format),
)
"""Key, words, how to write the number; a run need not have the last four."""


DEVICE_FIGURES = (
    "![Accuracy against simulated seconds](figures/accuracy_by_seconds.png)",
    "*The same against simulated seconds: a round lasts as long as its slowest member, or until the deadline.*",
    "![Accuracy against joules](figures/accuracy_by_joules.png)",
    "*The same against the joules that all clients spent.*",
)


def lines(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Metric, mean and deviation over seeds, as text; – where no seed has any."""

    def format_number(number: float, write: Callable[[float], str]) -> str:
        return "–" if math.isnan(number) else write(number)

    return [
        (
            what,
            format_number(found[key]["mean"], write),
            format_number(found[key]["std"], write) if count_seeds(found) > 1 else "–",
        )
        for key, what, write in ROWS
        if key in found
    ]


def count_seeds(found: Mapping[str, Mapping[str, Any]]) -> int:
    """Seeds that did not diverge: those the means are over."""
    return len(found["final_accuracy"]["per_seed"]) - len(found.get("diverged", {}).get("seeds", ()))


def in_terminal(title: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table a run ends with."""
    seeds = count_seeds(found)
    said = "\n".join(remarks(found)) or None
    out = Table(title=title, title_justify="left", caption=said, caption_justify="left")
    out.add_column("metric")
    out.add_column(f"mean of {seeds} seed{'s' * (seeds != 1)}", justify="right")
    out.add_column("std", justify="right")
    for line in lines(found):
        out.add_row(*line)
    return out


def page(title: str, found: Mapping[str, Mapping[str, Any]], config: str, about: Mapping[str, Any]) -> str:
    """`report.md` of one run."""
    parts = [
        f"# {title}",
        table(("metric", "mean over seeds", "std"), lines(found)),
        *([f"{words(found['diverged'])}; they are not in the means and figures."] if "diverged" in found else []),
        *(f"**{line}**" for line in remarks({key: one for key, one in found.items() if key != "diverged"})),
        "![Accuracy on the test rows against rounds](figures/accuracy.png)",
        "*Accuracy on the test rows: median over seeds, band from the first to the ninth decile.*",
        "![Accuracy against bytes](figures/accuracy_by_bytes.png)",
        "*The same against the bytes sent both ways, selection included.*",
        *DEVICE_FIGURES * ("seconds" in found),
        "## How it was run",
        table(("what", "value"), [(key.replace("_", " "), f"{value}") for key, value in about.items()]),
        "## Configuration",
        f"```yaml\n{config.strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def quantity(value: float, unit: str) -> str:
    """A large number for reading.

    >>> quantity(0, "B"), quantity(999, "B"), quantity(1_234_567, "B"), quantity(5e12, "FLOP")
    ('0 B', '999 B', '1.23 MB', '5 TFLOP')
    """
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.3g} E{unit}"
