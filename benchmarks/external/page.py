"""The page that compares a public table with our measurements: tables, a figure, and differences in the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.external.results import LEVEL, Measured, compare, judge, summarize
from benchmarks.external.settings import DATA, METHODS, MUS, PARTITIONS, ROUNDS, Published, read_published
from fedjax_sel.report.markdown import table

Key = tuple[str, str, str]

NOT_RUN = "not run"

REASONS: dict[Key, str] = {
    ("mnist", "dirichlet", "fednova"): "The first edition of the table (one run) has 98.8 here, and the published "
    "FedAvg, with the same steps a client, is 0.9 points above it. So 98.03 is likely a misprint; nobody has confirmed "
    "it.",
    ("fashion_mnist", "labels", "scaffold"): "33.80 ± 41.22 are two runs that collapsed to chance (10 %) and one of "
    "81.4. Whether a run collapses decides the mean.",
    ("fashion_mnist", "labels", "fedavg"): "This is the best of 50 rounds of a curve that jumps from round to round, "
    "so few seeds say little of its deviation.",
    ("mnist", "labels", "fedprox"): "The published number is of the best of four μ, ours of 0.01 alone, which is not "
    "small (below): it costs 1.5 to 1.7 points beside our FedAvg with the same seed. With μ = 0.001 one seed ends at "
    "96.68.",
}
"""What may explain the difference of a cell of the table; shown if the cell was measured and differs."""

OF_ONE_RUN: dict[Key, str] = {
    ("fashion_mnist", "dirichlet", "fednova"): "The published deviation is rounded: with .123 instead of .12, the "
    "interval would hold 0.",
    ("mnist", "dirichlet", "fedprox"): "The published number is of the best of four μ, ours of 0.01 alone, which ends "
    "as FedAvg does here; and its deviation, 0.02, is the smallest of the table: with 0.05, as FedAvg has on IID, the "
    "interval would hold 0.",
}
"""Likewise, but shown only while our number is that of a single run, which it describes."""

DIFFER = ("ours above", "ours below")
"""Verdicts of cells that differ."""

SETTINGS = Path(__file__).parent / "settings.md"
"""A text on which settings are the same as in the public table, and which are not."""


def render(found: Mapping[str, Any]) -> str:
    """Returns the page in Markdown, made from the JSON; cells that were not measured are marked."""
    measured, published = summarize(found["runs"]), read_published()
    parts = [
        "# Numbers that others published",
        "Flower's [`niid_bench`](https://github.com/adap/flower/tree/main/baselines/niid_bench) trains LeNet on three "
        "datasets, divided among 10 clients, by four methods, and publishes its code and most settings. We compare "
        "with three of its partitions. No client is selected there, so this is a control for the engine, the "
        "partitions, the corrections and the aggregators. The page is written by "
        "`python -m benchmarks.external --page` from "
        "[`niid-bench.json`](../../benchmarks/results/niid-bench.json).",
        tell_counts(measured, published),
        "Best test accuracy of 50 rounds, in per cent. Published: mean ± deviation, of 3 runs as we infer from "
        "33.80 ± 41.22 (of 10, 10 and 81.4). Ours: mean with its 95 % "
        "interval over seeds (Student's t), deviation, number of seeds. Difference: ours minus published, with its "
        "95 % interval by Welch's method, which takes both deviations into account. Where we have one seed, it is the "
        "interval in which a further run of theirs would lie, by their deviation (Student's t with 2 degrees of "
        "freedom). The two *agree* if the interval contains 0 and lies within ± 1 point; if it contains 0 and reaches "
        "further, the cell is *undecided*. The margin of a point was set when 15 of these cells were known.",
    ]
    for data, title in DATA.items():
        rows = [row_of((data, law, method), measured, published) for law in PARTITIONS for method in METHODS]
        parts += [f"## {title}", table(("partition", "method", "published", "ours", "difference", ""), rows)]
    if measured:
        parts.append(
            "![Our accuracies minus the published ones, with intervals](../../benchmarks/results/niid-bench.png)"
        )
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
        chosen = f"best of {ours.tried}" if ours.tried > 1 else f"of {len(MUS)}, the one with most seeds"
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
    """Returns how many cells agree, differ, or are undecided."""
    if not measured:
        return f"**No cell of {len(published)} was run yet.**"
    found = [compare(ours, published[key]) for key, ours in measured.items()]
    verdicts = [judge(*one) for one in found]
    names = ("agree", "undecided", "ours above", "ours below")
    agree, undecided, above, below = (verdicts.count(name) for name in names)
    once = sum(len(ours.best) == 1 for ours in measured.values())
    seeds = "each with one seed" if once == len(measured) else f"{once} of them with one seed"
    counts = f"{agree} agree, {undecided} are undecided, ours is above in {above} and below in {below}"
    fewer = sum(ours.mu is not None and ours.tried < len(MUS) for ours in measured.values())
    note = (
        f" In {fewer} of them, we ran FedProx with fewer values of μ than the {len(MUS)} of which they show the best."
    )
    return f"**Of {len(published)} cells {len(measured)} were run, {seeds}: {counts}.**" + note * bool(fewer)


def explain(measured: Mapping[Key, Measured], published: Mapping[Key, Published]) -> list[str]:
    """Returns the sections on cells that differ, with what is known about them, and on those that no run decides."""
    lines, beyond = [], []
    for key, ours in measured.items():
        away, low, high = compare(ours, published[key])
        if high - low >= 2 * max(published[key].mean, 100 - published[key].mean):
            why = REASONS.get(key, "")
            beyond.append(f"- {name_cell(key)}: no accuracy of ours could leave the interval. {why}".rstrip())
        if (verdict := judge(away, low, high)) not in DIFFER:
            continue
        known = REASONS | (OF_ONE_RUN if len(ours.best) == ours.tried == 1 else {})
        why = known.get(key, "Not explained.")
        shown = show_difference(away, low, high)
        lines.append(f"- {name_cell(key)}: {verdict} by {abs(away):.2f} points ({shown}). {why}")
    cells, out = len(measured), len(lines)
    by_chance = (
        f"By chance, one 95 % interval in twenty leaves out 0, {(1 - LEVEL) * cells:.1f} of {cells} on average. Here "
        f"{out} did; as many or more do in {100 * stats.binom.sf(out - 1, cells, 1 - LEVEL):.0f} % of such tables by "
        "chance, if cells are independent. We looked for reasons after the differences were known."
    )
    differ = ["## Where they differ", by_chance, "\n".join(lines)] if lines else []
    return [*differ, *(["## What no run could decide", "\n".join(beyond)] if beyond else [])]


def name_cell(key: Key) -> str:
    """Returns data, partition and method in words."""
    return f"{DATA[key[0]]}, {PARTITIONS[key[1]]}, {METHODS[key[2]]}"


def tell_runs(found: Mapping[str, Any]) -> list[str]:
    """Returns lines on what ran, where, and for how long."""
    runs = found["runs"]
    if not runs:
        return ["Nothing yet."]
    short = [run for run in runs if run["rounds"] != ROUNDS]
    commits = sorted({str(run["commit"])[:7] for run in runs})
    devices = sorted({str(run["device"]) for run in runs})
    hours, count = sum(run["hours"] for run in runs), len(runs)
    said = [
        f"{count} {'run' if count == 1 else 'runs'}, {hours:.1f} hours in all, with the time in which some were "
        f"stopped, on {'; '.join(devices)}; {'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}. "
        "`python -m benchmarks.external --out RUNS` runs what is missing.",
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
    said += [f"{len(short)} of them have fewer than {ROUNDS} rounds, and are in no table."] * bool(short)
    return said + [tell_collapse(run) for run in runs if not run["diverged"] and run["last"] < run["best"] / 2]


def tell_collapse(run: Mapping[str, Any]) -> str:
    """Returns a line on a run that lost more than half of its best accuracy, while its updates stayed finite."""
    where = f"{DATA[run['data']]}, {PARTITIONS[run['partition']]}, {METHODS[run['method']]}, seed {run['seed']}"
    return (
        f"{where} collapsed: its best accuracy is {run['best']:.2f} % in round {run['best_round']}, and its last "
        f"{run['last']:.2f} %. Its updates stayed finite, so that it does not count as diverged."
    )


def draw(found: Mapping[str, Any]) -> Any:
    """Returns a figure of our accuracies minus the published ones, with intervals, logarithmic beyond a point."""
    import matplotlib.pyplot as plt

    from fedjax_sel.report.figures import COLOURS

    measured, published = summarize(found["runs"]), read_published()
    keys = [(data, law, method) for data in DATA for law in PARTITIONS for method in METHODS]
    keys = [key for key in keys if key in measured]
    figure, ax = plt.subplots(figsize=(8, 1.6 + 0.26 * len(keys)), layout="constrained")
    ax.axvline(0.0, color="black", linewidth=0.8)
    for place, key in enumerate(keys):
        away, low, high = compare(measured[key], published[key])
        verdict = judge(away, low, high)
        colour = COLOURS[2] if verdict in DIFFER else COLOURS[0] if verdict == "agree" else "grey"
        ax.errorbar(
            away,
            -place,
            xerr=[[away - low], [high - away]],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2,
            linewidth=1,
        )
    ax.set_xscale("symlog", linthresh=1.0)
    ticks = [-100, -10, -1, 0, 1, 10, 100]
    ax.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    ax.set_yticks(
        [-place for place in range(len(keys))],
        [f"{DATA[data]}, {PARTITIONS[law]}, {METHODS[method]}" for data, law, method in keys],
        fontsize=8,
    )
    ax.set_xlabel("best test accuracy, ours minus published (points), 95 % interval")
    ax.grid(axis="x", alpha=0.25)
    return figure
