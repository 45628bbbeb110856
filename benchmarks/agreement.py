"""How often the interval of an agreement of rankings contains the agreement of the expected scores.

The committed leaderboard's mean scores stand for the expected ones, and its residuals, mixed anew with normal weights,
for new seeds: of all selectors together, and apart for each federation. `python -m benchmarks.agreement` takes four
minutes and prints, for both predictions, how many of a hundred intervals contain it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from fedjax_sel.leaderboard.findings import take_fair_block
from fedjax_sel.leaderboard.scales import PRIMARY, Budget
from fedjax_sel.leaderboard.statistics import (
    Scores,
    estimate_agreement,
    mean_agreement,
    mean_ranks,
    rank_within_federations,
)

TABLE = Path(__file__).parent / "results" / "leaderboard-small" / "leaderboard.parquet"


def draw_scores(scores: Scores, rng: np.random.Generator) -> Scores:
    """Returns scores of as many new seeds, with the means and covariances of these."""
    mean, seeds = scores.mean(axis=2, keepdims=True), scores.shape[2]
    weights = rng.normal(size=(scores.shape[1], seeds, seeds)) / np.sqrt(seeds - 1)
    return mean + np.einsum("kds,dst->kdt", scores - mean, weights)


def count_covered(agree: Callable[[Scores], float], scores: Scores, repeats: int, draws: int = 80) -> int:
    """Returns how many intervals of drawn scores contain the agreement of the means."""
    rng, truth = np.random.default_rng(0), agree(scores)
    found = [estimate_agreement(agree, draw_scores(scores, rng), draws) for _ in range(repeats)]
    return sum(one.low <= truth <= one.high for one in found)


def main(repeats: int = 100) -> None:
    """Prints both counts."""
    tidy = pd.read_parquet(TABLE)
    block = take_fair_block(tidy, PRIMARY).values
    rounds = take_fair_block(tidy, Budget("rounds", PRIMARY.share)).values
    cases: dict[str, tuple[Callable[[Scores], float], Scores]] = {
        "rounds and bytes": (
            lambda both: mean_agreement([mean_ranks(half) for half in np.split(both, 2)]),
            np.concatenate([rounds, block]),
        ),
        "seventeen federations": (lambda one: mean_agreement(list(rank_within_federations(one).T)), block),
    }
    for name, (agree, scores) in cases.items():
        print(f"{name}: {count_covered(agree, scores, repeats)} of {repeats}")


if __name__ == "__main__":
    main()
