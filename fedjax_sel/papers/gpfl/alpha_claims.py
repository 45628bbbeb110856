"""Verdicts on what GPFL says about how much to explore, α and ρ."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import (
    compare_with,
    describe_difference,
    describe_differences,
    describe_each,
    subtract,
)
from fedjax_sel.papers.gpfl.cells import (
    ALPHAS,
    FOR_LONGER,
    GROWING,
    LONG,
    NEVER,
    RHOS,
    SENSITIVE,
    SWEPT,
    name_experiment,
)
from fedjax_sel.papers.gpfl.comparisons import NOTICED, list_settings, measure_cell
from fedjax_sel.papers.gpfl.numbers import find_data
from fedjax_sel.papers.judging import (
    Judgement,
    ask_comparable,
    ask_not_below,
    ask_not_smaller,
    judge,
    judge_each,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Histories

EXPLORED = 0.09
"""What "nearly 10% higher" means at least."""

CLOSE = 0.01
"""How far below the others "good results" are at most."""

PLATEAU = 0.01
"""By how much accuracy changes at most on a plateau."""


def judge_parameters(
    histories: Histories, settings: str = SWEPT, slug: str = "", words: str = " (500 rounds)"
) -> list[Claim]:
    """Returns the verdicts on α and ρ; the source says that exploring pays after round 500, which only `LONG` can test.

    Args:
      histories: of the cells.
      settings: the settings under which α and ρ were varied.
      slug, words: what the claims' ids and texts say about these settings.
    """

    def compare(first: str, second: str, metric: str = "accuracy_last") -> dict[str, Difference]:
        return {
            SENSITIVE: subtract(*(measure_cell(histories, SENSITIVE, settings, m, metric) for m in (first, second)))
        }

    experiment = name_experiment(find_data(histories), SENSITIVE, settings)
    there = [method for method in (*ALPHAS, *RHOS) if (experiment, method) in histories]
    over = {method: compare(GROWING, method) for method in there if method in RHOS and method != GROWING}
    fixed = {method: compare(GROWING, method) for method in there if method in ALPHAS}
    steadier = {method: compare(method, GROWING, "deviation_last") for method in fixed}
    asked: list[tuple[str, str, str, Judgement, dict[str, Any]]] = [
        (
            "schedule-beats-constant",
            "α growing with the round (ρ = 1) beats every fixed α that was run",
            "section VI-E: 'higher test accuracy'; the code's logs have 0, 0.1, 2 and 5",
            judge_larger_than_each(fixed, NOTICED),
            {"ρ = 1 - fixed α, mean of the last 10 rounds": describe_each(fixed)},
        ),
        (
            "schedule-is-steadier",
            "α growing with the round (ρ = 1) fluctuates less over the last 10 rounds than every fixed α that was run",
            "section VI-E: 'greater stability'",
            judge_larger_than_each(steadier),
            {"largest deviation, fixed α - ρ = 1": describe_each(steadier)},
        ),
    ]
    if over:
        asked.append(
            (
                "rho-1-is-best",
                "ρ = 1 gives a higher accuracy than ρ = 0.5, 2 and 5",
                "Fig. 7b, section VI-E",
                judge_larger_than_each(over, NOTICED),
                {"ρ = 1 - the other ρ, mean of the last 10 rounds": describe_each(over)},
            )
        )
    if settings == SWEPT:
        unexplored = {method: compare(NEVER, method) for method in fixed if method != NEVER}
        asked.append(
            (
                "good-without-exploring",
                f"Without exploration (α = 0), GPFL ends at most {CLOSE:g} below every other fixed α that was run",
                "section VI-E: 'In the first 500 rounds, not using EE mechanism yields good results'",
                judge_each(ask_not_below(CLOSE), unexplored),
                {"α = 0 - the other α, mean of the last 10 rounds": describe_each(unexplored)},
            )
        )
    if settings == LONG:
        explored = {m: compare(m, NEVER) for m in fixed if m != NEVER}
        beyond = {
            m: {name: compare_with(np.asarray(d.values), EXPLORED) for name, d in found.items()}
            for m, found in explored.items()
        }
        asked += [
            (
                "exploring-pays",
                "With every fixed α above 0 that was run, GPFL is more accurate than without exploration (α = 0)",
                "section VI-E, on the rounds after 500: 'higher than that without EE'",
                judge_larger_than_each(explored, NOTICED),
                {"fixed α - α = 0, mean of the last 10 rounds": describe_each(explored)},
            ),
            (
                "exploring-pays-a-tenth",
                f"With every fixed α above 0 that was run, GPFL ends at least {EXPLORED:g} above α = 0",
                "section VI-E: 'nearly 10% higher'",
                judge_each(ask_not_smaller(), beyond),
                {f"fixed α - α = 0, minus {EXPLORED:g}": describe_each(beyond)},
            ),
        ]
    rests_on = list_settings(histories, settings, partitions=(SENSITIVE,))
    return [
        make_claim(f"{name}{slug}", f"{text}{words}", source, found, statistic, rests_on=rests_on)
        for name, text, source, found, statistic in asked
    ]


def judge_growth(histories: Histories) -> list[Claim]:
    """Returns the verdicts on what rounds 501 to 1500 bring, with and without exploration, at fixed α.

    The rate is constant and α is fixed, so a run of 1500 rounds continues one of 500. With α = t/T it does not.
    """
    gains = {
        method: subtract(*(measure_cell(histories, SENSITIVE, s, method, "accuracy_last") for s in (LONG, SWEPT)))
        for method in FOR_LONGER
        if method in ALPHAS
    }
    exploring = {method: gain for method, gain in gains.items() if method != NEVER}
    what = "mean of the last 10 of 1500 rounds - of 500"
    rests_on = list_settings(histories, LONG, SWEPT, partitions=(SENSITIVE,))
    return [
        make_claim(
            "gains-after-500",
            f"With exploration, accuracy still rises after round 500 ({'; '.join(exploring)}; 1500 rounds)",
            "section VI-E: 'the results can still increase after 500 rounds'",
            judge_larger(exploring, NOTICED),
            {what: describe_differences(exploring)},
            rests_on=rests_on,
        ),
        make_claim(
            "plateau-without-exploring",
            f"Without exploration, accuracy plateaus after round 500 (within {PLATEAU:g}; 1500 rounds)",
            "section VI-E: 'performance plateaus after this point'",
            judge(ask_comparable(PLATEAU), {NEVER: gains[NEVER]}),
            {what: describe_difference(gains[NEVER])},
            rests_on=rests_on,
        ),
    ]
