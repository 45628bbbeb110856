"""Tables of the leaderboard, as text; Markdown and HTML are made from the same cells."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedjax_sel.leaderboard.cells import FINISHED, Cell
from fedjax_sel.leaderboard.federations import find_group
from fedjax_sel.leaderboard.findings import FEWEST_SEEDS, Finding
from fedjax_sel.leaderboard.measures import ACCURACY, CHOICE, OF_CLIENTS, ROUNDS_TO
from fedjax_sel.leaderboard.scales import PRIMARY, Budget
from fedjax_sel.leaderboard.scores import (
    Block,
    correct,
    count_beating,
    find_ended,
    group_gains,
    list_budgets,
    list_gains,
    mean_gains,
    select,
    take_block,
)
from fedjax_sel.leaderboard.selectors import BASELINE, VARIANTS
from fedjax_sel.leaderboard.statistics import (
    LEVEL,
    Estimate,
    bootstrap,
    find_leaders,
    improvement_probabilities,
    interquartile_means,
    mean_ranks,
)
from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.paper import Table
from fedjax_sel.report.markdown import table as render_markdown

NONE = "—"
"""Shown in a cell without a number."""

COSTS = ("selection bytes", "selection flops")
ENDED = (
    "† marks numbers with a run that ended before it had spent the budget: they are of all its rounds, and what it "
    "would have reached with the rest, more or less, is not known."
)

PARTICIPATION = ("coverage", "Jain's index", "label divergence", "relative size", *OF_CLIENTS)


def show_estimate(estimate: Estimate, i: int, digits: int = 2, *, alone: bool = False) -> str:
    """Returns a number with its interval, or `alone`.

    >>> show_estimate(Estimate(np.array([1.0]), np.array([0.5]), np.array([2.0])), 0)
    '1.00 [0.50, 2.00]'
    """
    if alone:
        return f"{estimate.point[i]:.{digits}f}"
    return f"{estimate.point[i]:.{digits}f} [{estimate.low[i]:.{digits}f}, {estimate.high[i]:.{digits}f}]"


def show_gain(gain: Difference | None, *, ended: bool = False, p: float | None = None) -> str:
    """Returns a gain over the baseline in percentage points ± half its interval; a star if 0 is outside.

    Args:
      gain: the gain; None: there is none.
      ended: whether to add a dagger, since a run ended before it had spent the budget.
      p: the corrected p of no difference; if it is small, there are two stars.

    >>> show_gain(Difference(0.02, 0.01, 0.03, 1.0, 10)), show_gain(None)
    ('+2.0 ± 1.0 *', '—')
    """
    if gain is None:
        return NONE
    apart = gain.low > 0 or gain.high < 0  # false if they are NaN
    stars = "" if not apart else " **" if p is not None and p < LEVEL else " *"
    return f"{100 * gain.mean:+.1f} ± {100 * (gain.high - gain.low) / 2:.1f}{stars}{' †' if ended else ''}"


def tabulate_ranking(tidy: pd.DataFrame) -> Table:
    """Returns the first table: rank, relative accuracy and probability of improvement under the primary budget."""
    block = take_block(tidy, PRIMARY)
    few = block.values.shape[2] < FEWEST_SEEDS
    ranks = bootstrap(mean_ranks, block.values)
    middle = bootstrap(lambda values: interquartile_means(block.over_baseline(values)), block.values)
    better = estimate_improvement(block)
    beaten = count_beating(list_gains(tidy, PRIMARY), block.selectors)
    rows = [
        (
            block.selectors[i],
            show_estimate(ranks, i, 1, alone=few),
            show_estimate(middle, i, 3, alone=few),
            NONE if block.selectors[i] == BASELINE else show_estimate(better, i, alone=few),
            *(str(count) for count in beaten[block.selectors[i]].values()),
        )
        for i in np.argsort(ranks.point)
    ]
    return Table(
        f"Ranking at equal {PRIMARY.name}",
        ("selector", "mean rank", "accuracy over uniform's", "P(better than uniform)", "above", "below", "undecided"),
        tuple(rows),
        describe_leaders(block),
    )


def estimate_improvement(block: Block) -> Estimate:
    """Returns the probability of improvement over the baseline, whose seeds are resampled with the selectors'."""
    place = block.selectors.index(BASELINE)
    return bootstrap(lambda scores: improvement_probabilities(scores, scores[place]), block.values, draws=500)


def describe_leaders(block: Block) -> str:
    """Returns the note on the leaders, a winner only if told apart from all others, and on the columns."""
    leaders, seeds = find_leaders(block.selectors, block.values), block.values.shape[2]
    if len(block.selectors) == 1:
        said = f"Only {leaders[0]} is ranked."
    elif seeds < FEWEST_SEEDS:
        said = f"Seeds: {seeds}; with fewer than {FEWEST_SEEDS}, no winner is named and no bootstrap interval is shown."
    elif len(leaders) == 1:
        said = f"{leaders[0]} has the best mean rank, and is distinguishable from every other selector."
    else:
        said = (
            f"No winner: the mean ranks of {len(leaders)} selectors are indistinguishable from the best "
            f"({', '.join(leaders)})."
        )
    left = f" Not ranked, since a federation lacks them: {', '.join(block.missing)}." if block.missing else ""
    return (
        f"{said}{left} Federations: {len(block.federations)}; seeds: {block.values.shape[2]}. The intervals, nominally "
        "of 95 %, are from a bootstrap over seeds, with the same seeds for all selectors; two mean ranks are "
        "distinguishable if the interval of their difference excludes 0. Noise pulls mean ranks to the middle, and "
        "resampling does so once more, so that their intervals lean to the middle, those of the best and the worst "
        "most of all, and contain the true rank in fewer than 95 of 100 cases. Accuracy over uniform's is an "
        "interquartile mean. The columns above, below and undecided count federations by the paired "
        "interval of the difference from uniform, without correction for the number of federations or selectors."
    )


def tabulate_gains(tidy: pd.DataFrame, budget: Budget) -> Table:
    """Returns the gain over the baseline of every selector on every federation, in percentage points."""
    gains, ended = list_gains(tidy, budget), find_ended(tidy, budget)
    selectors = list(dict.fromkeys(selector for selector, _ in gains))
    federations = list(dict.fromkeys(tidy.loc[tidy["measure"] == ACCURACY, "federation"]))
    rows = [
        (one, *(show_gain(gains.get((one, name)), ended=(one, name) in ended) for name in federations))
        for one in selectors
    ]
    note = (
        "Accuracy in percentage points, paired by seed, ± half of the 95 % interval; * marks intervals that exclude 0, "
        f"without correction for {len(gains)} cells. {ENDED}"
    )
    return Table(f"Gain over uniform at equal {budget.name}", ("selector", *federations), tuple(rows), note)


def tabulate_mean_gains(tidy: pd.DataFrame) -> Table:
    """Returns the gain over the baseline under every budget, on the mean of all federations."""
    there = list_budgets(tidy)
    gains = {budget: mean_gains(tidy, budget) for budget in there}
    p = {budget: correct(found) for budget, found in gains.items()}
    ended = {budget: {name for name, _ in find_ended(tidy, budget)} for budget in there}
    first = gains[PRIMARY]
    names = sorted(first, key=lambda name: -first[name].mean)
    rows = [
        (
            name,
            *(
                show_gain(gains[budget].get(name), ended=name in ended[budget], p=p[budget].get(name))
                for budget in there
            ),
            f"{p[PRIMARY][name]:.2g}",
        )
        for name in names
    ]
    note = (
        "Accuracy in percentage points, averaged over all federations, paired by seed, ± half of the 95 % interval. "
        f"* marks intervals that exclude 0, ** those that do so after Holm's correction for the {len(names)} selectors "
        "of a column, not for the number of columns. The last column is the corrected p of no difference at equal "
        f"{PRIMARY.name}, two-sided, by Student's t. {ENDED} Selectors that did not finish on a federation are left "
        "out."
    )
    columns = ("selector", *(budget.name for budget in there), "p (Holm)")
    return Table("Mean gain over uniform under every budget", columns, tuple(rows), note)


def tabulate_counts(tidy: pd.DataFrame) -> Table:
    """Returns how many selectors are ahead of the baseline and behind it under every budget, and how many by Holm."""
    rows = []
    for budget in list_budgets(tidy):
        gains = dict(sorted(mean_gains(tidy, budget).items(), key=lambda item: -item[1].mean))
        p, ended = correct(gains), {name for name, _ in find_ended(tidy, budget)}
        ahead = [name for name, d in gains.items() if d.low > 0]
        behind = [name for name, d in gains.items() if d.high < 0]
        kept = [name for name in ahead if p[name] < LEVEL]
        rows.append(
            (
                budget.name,
                str(len(ahead)),
                str(len(kept)),
                ", ".join(f"{name} †" if name in ended else name for name in kept) or "none",
                str(len(gains) - len(ahead) - len(behind)),
                str(len(behind)),
                str(sum(p[name] < LEVEL for name in behind)),
            )
        )
    columns = ("budget", "ahead", "ahead, Holm", "these", "undecided", "behind", "behind, Holm")
    note = (
        "By the 95 % intervals of the table of mean gains; Holm: after the correction for all selectors compared under "
        "a budget, not for the number of budgets. "
        f"{ENDED}"
    )
    return Table("How many selectors differ from uniform on the mean of all federations", columns, tuple(rows), note)


def tabulate_groups(tidy: pd.DataFrame, budget: Budget) -> Table:
    """Returns the mean gain under a budget by groups of federations, and without the most important one."""
    whole = mean_gains(tidy, budget)
    federations = list(take_block(tidy, budget).federations)
    groups: dict[str, list[str]] = {}
    for name in federations:
        groups.setdefault(find_group(name), []).append(name)
    of_group = {group: group_gains(tidy, budget, mine) for group, mine in groups.items()}
    without = {
        one: group_gains(tidy, budget, [name for name in federations if name != one])
        for one in federations
        if len(federations) > 1
    }
    rows = []
    for name in sorted(whole, key=lambda name: -whole[name].mean):
        cells = [show_gain(found.get(name)) for found in of_group.values()]
        if without:
            most = max(without, key=lambda one: abs(without[one][name].mean - whole[name].mean))
            cells += [show_gain(without[most][name]), most]
        rows.append((name, show_gain(whole[name]), *cells))
    heads = [f"{group} ({len(mine)})" for group, mine in groups.items()]
    last = ("without one", "which") if without else ()
    note = (
        "Accuracy in percentage points, paired by seed, ± half of the 95 % interval; * marks intervals that exclude 0, "
        "without correction. The number of federations is in brackets. The last two columns leave out the federation "
        "that changes the mean most."
    )
    title = f"Mean gain over uniform at equal {budget.name}, by groups of federations"
    return Table(title, ("selector", f"all ({len(federations)})", *heads, *last), tuple(rows), note)


def tabulate_variants(tidy: pd.DataFrame) -> Table:
    """Returns the variants' gains over the baseline, and over the selector that they vary, at equal bytes.

    Those with more rounds are for the budgets that the selector's own runs do not spend, seconds and joules.
    """
    rows = []
    for one in VARIANTS.values():
        name, of = one.label, one.varies
        spent = [Budget("seconds", 0.5), Budget("joules", 0.5)]
        for budget in spent if one.horizon > 1 else [PRIMARY, Budget(PRIMARY.kind, 0.2)]:
            wide = select(tidy, ACCURACY, budget.name)
            found = wide.index.to_frame(index=False).groupby("selector")["federation"].agg(list)
            if not {name, of, BASELINE} <= set(found.index):
                continue
            common = [one for one in found[name] if one in found[of] and one in found[BASELINE]]
            if not common:
                continue
            early = {who for who, where in find_ended(tidy, budget) if where in common}
            mine, its, base = (
                np.mean([wide.loc[(which, one)].to_numpy() for one in common], axis=0) for which in (name, of, BASELINE)
            )
            apart = (difference(mine, base), difference(its, base), difference(mine, its))
            marks = (name in early, of in early, bool({name, of} & early))
            shown = [show_gain(gain, ended=ended) for gain, ended in zip(apart, marks, strict=True)]
            rows.append((name, of, budget.name, str(len(common)), *shown))
    columns = (
        "variant",
        "varies",
        "budget",
        "federations",
        "over uniform",
        "the selector over uniform",
        "over the selector",
    )
    note = (
        "Accuracy in percentage points, averaged over the federations on which both finished, paired by seed, ± half "
        "of the 95 % interval; * marks intervals that exclude 0, without correction. Variants are in no other table of "
        "gains. Runs of a name that ends in `half` have half of the rounds, so that a schedule over all rounds ends "
        "within the budget; at a fifth it does not. Runs of a name that ends in `longer` have four times the rounds, "
        "so that they can spend the budget. "
        f"{ENDED}"
    )
    return Table("Variants and controls, not ranked", columns, tuple(rows), note)


def tabulate_budgets(tidy: pd.DataFrame) -> Table:
    """Returns the accuracy of every selector under every budget, as the mean over its federations."""
    there = list_budgets(tidy)
    wide = {budget.name: select(tidy, ACCURACY, budget.name).mean(axis=1) for budget in there}
    cut = {(name, budget.name) for budget in there for name, _ in find_ended(tidy, budget)}
    rows = []
    for name in dict.fromkeys(tidy["selector"]):
        cells = [
            f"{100 * values.loc[name].mean():.1f}{' †' if (name, budget) in cut else ''}"
            if name in values.index
            else NONE
            for budget, values in wide.items()
        ]
        rows.append((name, *cells))
    note = (
        "Accuracy in percent, averaged over the federations on which the selector ran. A budget is what uniform with "
        f"the same seed spends in that share of its rounds, including the cost of selection. {ENDED} A selector that "
        "cannot afford its first round counts with the accuracy of guessing."
    )
    return Table("Accuracy under every budget", ("selector", *wide), tuple(rows), note)


def tabulate_costs(tidy: pd.DataFrame) -> Table:
    """Returns learning speed, the costs of selection, and participation, as means over federations and seeds."""
    columns = (ROUNDS_TO, "area under the curve", *COSTS, CHOICE, *PARTICIPATION)
    wide = {name: select(tidy, name) for name in columns}
    late = tidy[tidy["measure"] == ROUNDS_TO].groupby("selector")["censored"].agg(["sum", "count"])
    rows = []
    for name in dict.fromkeys(tidy["selector"]):
        cells = [show_mean(values, name) for values in wide.values()]
        missed = f"{late.loc[name, 'sum']} of {late.loc[name, 'count']}" if name in late.index else NONE
        rows.append((name, cells[0], missed, *cells[1:]))
    heads = (ROUNDS_TO, "never reached", *columns[1:])
    note = (
        "Numbers are means over federations and seeds. The target is uniform's median accuracy after half of its "
        "rounds; a run that never reaches it counts with all its rounds, a lower bound. Selection's bytes and FLOPs "
        "are those of a whole run. A choice is what the server does alone once it has the signals (it draws "
        "candidates, selects the cohort and learns), timed on one federation. Label divergence is the relative entropy "
        "of a cohort's labels to all labels, in nats. Relative size is a member's number of examples over the mean of "
        "all clients. The columns over clients are of the last model's accuracy on every client's own examples: its "
        "mean, the mean of the worst tenth, and the standard deviation."
    )
    return Table("Learning, costs of selection, participation", ("selector", *heads), tuple(rows), note)


def show_mean(values: pd.DataFrame, name: str) -> str:
    """Returns the mean of a selector's known values, with three significant digits."""
    if name not in values.index or not values.loc[name].notna().any(axis=None):
        return NONE
    return f"{np.nanmean(values.loc[name]):.3g}"


def tabulate_remarks(cells: Sequence[Cell]) -> Table:
    """Returns the finished cells in which something went wrong, and what."""
    rows = tuple((cell.federation, cell.selector, cell.remarks) for cell in cells if cell.remarks)
    return Table("Cells in which something went wrong", ("federation", "selector", "what"), rows)


def tabulate_unfinished(cells: Sequence[Cell]) -> Table:
    """Returns the cells without numbers, and why; a federation whose cells all have the same reason is one row."""
    rows, whole = [], {}
    for cell in cells:
        whole.setdefault(cell.federation, []).append(cell)
    for name, mine in whole.items():
        reasons = {(cell.status, cell.reason) for cell in mine}
        if len(reasons) == 1 and mine[0].status != FINISHED and len(mine) > 1:
            rows.append((name, "all", *reasons.pop()))
            continue
        rows += [(name, cell.selector, cell.status, cell.reason) for cell in mine if cell.status != FINISHED]
    return Table("Cells without numbers, and why", ("federation", "selector", "status", "reason"), tuple(rows))


def tabulate_findings(findings: Sequence[Finding]) -> Table:
    """Returns the predictions with their verdicts."""
    rows = [(one.text, one.because, one.verdict, one.reason or describe(one.statistic)) for one in findings]
    return Table(
        "Verdicts on the predictions",
        ("prediction, written down before the run", "because", "verdict", "numbers"),
        tuple(rows),
    )


def describe(value: object) -> str:
    """Returns a statistic as text.

    >>> describe({"a": 0.12345, "b": ["x", "y"]})
    'a 0.123; b x, y'
    """
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {describe(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(describe, value)) or "none"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else f"{value}"


def to_markdown(table: Table) -> str:
    """Returns a table as Markdown: heading, table, note; user text cannot end a cell or open a tag."""
    rows = [[html.escape(cell, quote=False) for cell in row] for row in table.rows]
    columns = [html.escape(name, quote=False) for name in table.columns]
    note = [html.escape(table.note, quote=False)] if table.note else []
    body = render_markdown(columns, rows) if rows else "Nothing."
    return "\n\n".join([f"## {table.title}", body, *note])


def to_html(table: Table) -> str:
    """Returns a table as HTML, made by `great_tables`, with all text escaped.

    Raises:
      ImportError: `great_tables` is not installed (`pip install 'fedjax-sel[tables]'`).
    """
    import great_tables as gt

    names = [f"column {i}" for i in range(len(table.columns))]
    frame = pd.DataFrame([list(row) for row in table.rows], columns=pd.Index(names))
    id = re.sub(r"\W+", "-", table.title.lower())  # the default is random for each page
    made = gt.GT(frame, id=id).tab_header(title=table.title).cols_label(dict(zip(names, table.columns, strict=True)))
    if table.note:
        made = made.tab_source_note(table.note)
    return made.as_raw_html()
