"""The page that compares a public table with our measurements: tables, a figure, and differences in the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.external.results import Measured, compare, judge, summarize
from benchmarks.external.settings import DATA, METHODS, MUS, PARTITIONS, ROUNDS, Published, read_published
from fedjax_sel.report.markdown import table

Key = tuple[str, str, str]

NOT_RUN = "not run"

REASONS: dict[Key, str] = {
    ("mnist", "dirichlet", "fednova"): "the first edition of the table (one run) has 98.8 here, and FedAvg with the "
    "same steps a client differs by 0.9 points: 98.03 is likely a misprint, which nobody confirmed",
    ("fashion_mnist", "labels", "scaffold"): "33.80 ± 41.22 are two runs that collapsed to chance (10 %) and one of "
    "81.4: whether a run collapses decides the mean",
    ("fashion_mnist", "labels", "fedavg"): "the best of 50 rounds of a curve that jumps from round to round: few seeds "
    "say little of its deviation",
}
"""What may explain the difference of a cell of the table; shown if the cell was measured and differs."""

SETTINGS = Path(__file__).parent / "settings.md"
"""A text on which settings are the same as in the public table, and which are not."""


def render(found: Mapping[str, Any]) -> str:
    """Returns the page in Markdown, made from the JSON; cells that were not measured are marked."""
    measured, published = summarize(found["runs"]), read_published()
    parts = [
        "# Numbers that others published",
        "Flower's [`niid_bench`](https://github.com/adap/flower/tree/main/baselines/niid_bench) trains LeNet on three "
        "datasets, three of its partitions among 10 clients, by four methods, and documents every setting: a control "
        "for the engine, the partitions, the corrections and the aggregators, in which no client is selected. The page "
        "is written by `python -m benchmarks.external --page` from "
        "[`niid-bench.json`](../../benchmarks/results/niid-bench.json).",
        tell_counts(measured, published),
        "Best test accuracy of 50 rounds, in per cent. Published: mean ± deviation of 3 runs. Ours: mean with its 95 % "
        "interval over seeds (Student's t), deviation, number of seeds. Difference: ours minus published, with its "
        "95 % interval by Welch, in which both have spread. Where we have one seed, the interval is that of a "
        "further run of theirs, with their deviation (Student's t with 2 degrees of freedom). They *agree* if it holds "
        "0, which a wide interval does easily: its width is what may be hidden. With 36 cells, two would disagree by "
        "chance.",
    ]
    for data, title in DATA.items():
        rows = [row_of((data, law, method), measured, published) for law in PARTITIONS for method in METHODS]
        parts += [f"## {title}", table(("partition", "method", "published", "ours", "difference", ""), rows)]
    if measured:
        parts.append("![Published and our accuracies with intervals](../../benchmarks/results/niid-bench.png)")
    parts += explain(measured, published)
    parts += ["## What is the same, and what is not", SETTINGS.read_text(encoding="utf-8").strip()]
    parts += ["## What was run", *tell_runs(found)]
    return "\n\n".join(parts) + "\n"


def row_of(key: Key, measured: Mapping[Key, Measured], published: Mapping[Key, Published]) -> tuple[str, ...]:
    """Returns a row of a table."""
    theirs = published[key]
    name = METHODS[key[2]]
    said = f"{theirs.mean:.2f} ± {theirs.std:.2f}"
    if key not in measured:
        return PARTITIONS[key[1]], name, said, NOT_RUN, "", ""
    ours = measured[key]
    if ours.mu is not None:
        chosen = f"best of {ours.tried}" if ours.tried > 1 else f"the only one run of {len(MUS)}"
        name += f", μ = {ours.mu:g} ({chosen})"
    found = compare(ours, theirs)
    return PARTITIONS[key[1]], name, said, show_measured(ours), show_difference(*found), judge(*found)


def show_measured(ours: Measured) -> str:
    """Returns a mean with its interval, deviation and seeds.

    >>> show_measured(Measured((88.0, 89.0, 90.0))), show_measured(Measured((88.0,)))
    ('89.00 [86.52, 91.48], ± 1.00, 3 seeds', '88.00, one seed')
    """
    if len(ours.best) < 2:
        return f"{ours.mean:.2f}, one seed"
    low, high = ours.interval()
    return f"{ours.mean:.2f} [{low:.2f}, {high:.2f}], ± {ours.std:.2f}, {len(ours.best)} seeds"


def show_difference(away: float, low: float, high: float) -> str:
    """Returns a difference with its interval.

    >>> show_difference(0.5, -0.1, 1.1)
    '+0.50 [-0.10, +1.10]'
    """
    return f"{away:+.2f} [{low:+.2f}, {high:+.2f}]"


def tell_counts(measured: Mapping[Key, Measured], published: Mapping[Key, Published]) -> str:
    """Returns how many cells agree."""
    if not measured:
        return f"**No cell of {len(published)} was run yet.**"
    verdicts = [judge(*compare(ours, published[key])) for key, ours in measured.items()]
    once = sum(len(ours.best) == 1 for ours in measured.values())
    above, below = verdicts.count("ours above"), verdicts.count("ours below")
    counts = f"{verdicts.count('agree')} agree, and ours is above in {above} and below in {below}"
    return f"**Of {len(published)} cells {len(measured)} were run, {once} of them with one seed: {counts}.**"


def explain(measured: Mapping[Key, Measured], published: Mapping[Key, Published]) -> list[str]:
    """Returns the section on cells that differ, with what is known about them; empty if none does."""
    lines = []
    for key, ours in measured.items():
        away, low, high = compare(ours, published[key])
        if (verdict := judge(away, low, high)) == "agree":
            continue
        why = REASONS.get(key, "not explained")
        where = f"{DATA[key[0]]}, {PARTITIONS[key[1]]}, {METHODS[key[2]]}"
        lines.append(f"- {where}: {verdict} by {abs(away):.2f} points ({show_difference(away, low, high)}): {why}.")
    by_chance = f"One interval of 95 % in twenty leaves out 0 by chance; of {len(measured)}, {len(lines)} did."
    return ["## Where they differ", by_chance, "\n".join(lines)] if lines else []


def tell_runs(found: Mapping[str, Any]) -> list[str]:
    """Returns lines on what ran, where, and for how long."""
    runs = found["runs"]
    if not runs:
        return ["Nothing yet."]
    short = [run for run in runs if run["rounds"] != ROUNDS]
    commits = sorted({str(run["commit"]) for run in runs})
    devices = sorted({str(run["device"]) for run in runs})
    hours, count = sum(run["hours"] for run in runs), len(runs)
    said = [
        f"{count} {'run' if count == 1 else 'runs'}, {hours:.1f} hours in all, on {'; '.join(devices)}; "
        f"commit {', '.join(commits)}. `python -m benchmarks.external --out RUNS` runs what is missing.",
        table(
            ("data", "hours a run", "runs", "seeds that diverged"),
            [
                (
                    DATA[data],
                    f"{sum(run['hours'] for run in of) / len(of):.2f}",
                    str(len(of)),
                    str(sum(run["diverged"] for run in of)),
                )
                for data in DATA
                if (of := [run for run in runs if run["data"] == data])
            ],
        ),
    ]
    return said + [f"{len(short)} of them have fewer than {ROUNDS} rounds, and are in no table."] * bool(short)


def draw(found: Mapping[str, Any]) -> Any:
    """Returns a figure with a panel per dataset: published means and ours, with intervals, side by side."""
    import matplotlib.pyplot as plt
    import numpy as np
    from scipy import stats

    from fedjax_sel.report.figures import COLOURS

    measured, published = summarize(found["runs"]), read_published()
    half = float(stats.t.ppf(0.975, 2)) / math.sqrt(3)
    figure, axes = plt.subplots(1, len(DATA), figsize=(12, 4.6), layout="constrained", squeeze=False)
    for ax, (data, title) in zip(axes[0], DATA.items(), strict=True):
        keys = [(data, law, method) for law in PARTITIONS for method in METHODS]
        for place, key in enumerate(keys):
            y = -(place + place // len(METHODS))
            theirs = published[key]
            mark(ax, theirs.mean, half * theirs.std, y + 0.15, COLOURS[3], "o", "published, 3 runs")
            if ours := measured.get(key):
                low, _ = ours.interval()
                mark(ax, ours.mean, np.nan_to_num(ours.mean - low), y - 0.15, COLOURS[2], "s", "ours")
        shown = [published[key].mean for key in keys] + [measured[key].mean for key in keys if key in measured]
        room = 0.08 * (max(shown) - min(shown)) + 0.3
        ax.set_xlim(min(shown) - room, max(shown) + room)
        ax.set_title(title)
        ax.set_xlabel("best test accuracy (%), 95 % interval")
        places = [-(i + i // len(METHODS)) for i in range(len(keys))]
        ax.set_yticks(places, [f"{PARTITIONS[law]}, {METHODS[method]}" for _, law, method in keys], fontsize=7)
        ax.grid(axis="x", alpha=0.25)
    shown = [ax.get_legend_handles_labels() for ax in axes.flat]  # not every method was run on all datasets
    named = {label: handle for handles, labels in shown for handle, label in zip(handles, labels, strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def mark(ax: Any, mean: float, reach: float, y: float, colour: str, marker: str, label: str) -> None:
    """Draws a mean with its interval."""
    ax.errorbar(mean, y, xerr=reach, fmt=marker, color=colour, markersize=3.5, capsize=2, linewidth=1, label=label)
