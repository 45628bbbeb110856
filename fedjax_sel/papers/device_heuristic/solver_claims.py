"""Claims of the thesis on heuristic device selection about its search, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import difference
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.device_heuristic.numbers import OURS, select_rows, select_seconds
from fedjax_sel.papers.device_heuristic.studies import BEST, EVERY, EXACT, LETTER, SAME
from fedjax_sel.papers.differences import describe_differences
from fedjax_sel.papers.judging import judge_larger, make_claim
from fedjax_sel.papers.paper import Claim


def judge_solvers(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims on the search and the cost of the optimum; the time of enumeration is judged at N = 30."""
    below_one = sorted({row["epsilon"] for row in study["optimality"]} - {1.0})
    largest = max(row["N"] for row in study["optimality"])

    def each(solver: str, what: str) -> dict[str, np.ndarray]:
        return {
            f"N={row['N']}, epsilon={row['epsilon']:g}": np.asarray(row[what])
            for epsilon in below_one
            for row in select_rows(study, solver, epsilon=epsilon)
            if row["N"] in (8, 16, largest)
        }

    every, best = each(EVERY, "share_optimal"), each(BEST, "share_optimal")
    better = {name: difference(every[name], best[name]) for name in every}
    lost = {name: difference(np.full_like(gap, 1e-3), gap) for name, gap in each(EVERY, "mean_gap").items()}
    by_greedy, by_exact = (select_seconds(study, solver, "half") for solver in (EVERY, EXACT))
    most = max(by_greedy)
    few_greedy, few_exact = select_seconds(study, EVERY, "few"), select_seconds(study, EXACT, "few")
    apart = max(row["largest_difference"] for row in study["enumeration"])
    return [
        make_claim(
            "every-start-better",
            "Greedy search that starts from every device is better than greedy search that starts from the best "
            "device alone",
            "5.2",
            judge_larger(better),
            {"share of instances with the optimum, every start - best start": describe_differences(better)},
            fixed="the best device is one of the starts, so the search from all is better wherever another wins",
        ),
        make_claim(
            "greedy-as-good",
            "The sets that greedy search finds are as good as the optimal sets: on average, their H is less than 0.1 "
            "% lower",
            "4.2; 5.2 (implied)",
            judge_larger(lost),
            {
                "share of instances with the optimum": {name: float(v.mean()) for name, v in every.items()},
                "mean loss of H": {name: float(v.mean()) for name, v in each(EVERY, "mean_gap").items()},
                "worst loss of H": {name: float(v.max()) for name, v in each(EVERY, "worst_gap").items()},
            },
        ),
        make_claim(
            "no-heuristic-needed",
            "The optimum itself can be found in O(N log N) time, since only f4 enters H by its minimum: the exact "
            f"solver finds what enumeration finds, and is faster than greedy search at N = {most}",
            OURS,
            REPRODUCED if apart <= SAME and by_exact[most] < by_greedy[most] else NOT_REPRODUCED,
            {
                "largest difference from enumeration": apart,
                "instances compared": sum(row["instances"] for row in study["enumeration"]),
                "greedy / exact, seconds, s = N/2": {f"N={k}": by_greedy[k] / by_exact[k] for k in by_greedy},
                "greedy / exact, seconds, s = 10": {f"N={k}": few_greedy[k] / few_exact[k] for k in few_greedy},
            },
        ),
        judge_first_rates(study, below_one, largest),
    ]


def judge_first_rates(study: Mapping[str, Any], epsilons: list[float], largest: int) -> Claim:
    """Returns the verdict on the rates computed before this study."""

    def rates(solver: str, wanted: Callable[[int], bool] = lambda n: True) -> list[float]:
        rows = [row for epsilon in epsilons for row in select_rows(study, solver, epsilon=epsilon)]
        return [100 * float(np.mean(row["share_optimal"])) for row in rows if wanted(row["N"])]

    worst = [100 * float(np.max(row["worst_gap"])) for e in epsilons for row in select_rows(study, EVERY, epsilon=e)]
    parts = {
        f"{EVERY}, N <= 12": (99.7, 100.0, rates(EVERY, lambda n: n <= 12)),
        f"{EVERY}, N = {largest}": (97.0, 100.0, rates(EVERY, lambda n: n == largest)),
        f"{EVERY}, worst loss": (0.0, 0.8, worst),
        f"{BEST}": (40.0, 78.0, rates(BEST)),
        f"{LETTER}, N = 10 to 12": (46.0, 58.0, rates(LETTER, lambda n: n in (10, 12))),
        f"{LETTER}, N = {largest}": (46.0, 58.0, rates(LETTER, lambda n: n == largest)),
    }
    holds = {name: low - 1 <= min(found) and max(found) <= high + 1 for name, (low, high, found) in parts.items()}
    return make_claim(
        "rates-as-first-computed",
        "Greedy search finds the optimum in at least 99.7 % of the instances up to N = 12 and in at least 97 % at "
        "N = 30, with losses of up to 0.8 %; in 40-78 % if it starts from the best device alone; and in 46-58 % if it "
        "follows the pseudocode to the letter (at N = 10, 12 and 30; ±1 %)",
        f"{OURS}: computed once before this study",
        REPRODUCED if all(holds.values()) else NOT_REPRODUCED,
        {
            name: {"least": min(found), "most": max(found), "holds": str(holds[name]).lower()}
            for name, (_, _, found) in parts.items()
        },
    )
