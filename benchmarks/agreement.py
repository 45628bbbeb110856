"""How often the bootstrap intervals of the leaderboard contain the value of the expected scores.

The committed leaderboard's mean scores stand for the expected ones, and its residuals, mixed anew with normal weights,
for new seeds: of all selectors together, and apart for each federation. `python -m benchmarks.agreement` takes some ten
minutes and prints, for both predictions and for three statistics of the selectors, how many of a hundred intervals
contain the value, and how many lie above and below it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from fedjax_sel.leaderboard.findings import take_fair_block
from fedjax_sel.leaderboard.scales import PRIMARY, Budget
from fedjax_sel.leaderboard.scores import leave_out_variants
from fedjax_sel.leaderboard.statistics import (
    Agreement,
    Estimate,
    Scores,
    bootstrap,
    estimate_agreement,
    improvement_probabilities,
    interquartile_means,
    mean_agreement,
    mean_ranks,
    rank_within_federations,
)

TABLE = Path(__file__).parent / "results" / "leaderboard-small" / "leaderboard.parquet"
DRAWS = {"agreement": 80, "statistic": 150}
"""Resamples of an interval: fewer than the leaderboard's, whose ends they only make noisier."""


def draw_scores(scores: Scores, rng: np.random.Generator) -> Scores:
    """Returns scores of as many new seeds, with the means and covariances of these."""
    mean, seeds = scores.mean(axis=2, keepdims=True), scores.shape[2]
    weights = rng.normal(size=(scores.shape[1], seeds, seeds)) / np.sqrt(seeds - 1)
    return mean + np.einsum("kds,dst->kdt", scores - mean, weights)


def count_misses(
    find: Callable[[Scores], Agreement | Estimate], truth: float | np.ndarray, scores: Scores, repeats: int
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Returns the shares of intervals of drawn scores that lie above and below the truth, of each number."""
    rng = np.random.default_rng(0)
    found = [find(draw_scores(scores, rng)) for _ in range(repeats)]
    above = np.mean([np.asarray(one.low) > truth for one in found], axis=0)
    return above, np.mean([np.asarray(one.high) < truth for one in found], axis=0)


def main(repeats: int = 100) -> None:
    """Prints the shares, of selectors their mean and that of the best."""
    tidy = pd.read_parquet(TABLE)
    block = take_fair_block(tidy, PRIMARY).values
    both = np.concatenate([take_fair_block(tidy, Budget("rounds", PRIMARY.share)).values, block])
    agreements: dict[str, tuple[Callable[[Scores], float], Scores]] = {
        "rounds and bytes": (lambda two: mean_agreement([mean_ranks(half) for half in np.split(two, 2)]), both),
        "seventeen federations": (lambda one: mean_agreement(list(rank_within_federations(one).T)), block),
    }
    for name, (agree, scores) in agreements.items():
        find = partial(estimate_agreement, agree, draws=DRAWS["agreement"])
        above, below = count_misses(find, agree(scores), scores, repeats)
        print(f"{name}: {1 - above - below:.0%} contain it, {above:.0%} lie above it, {below:.0%} below")
    fair = take_fair_block(leave_out_variants(tidy), PRIMARY)
    scores, uniform = fair.values, fair.selectors.index("uniform")
    many = np.concatenate([draw_scores(scores, np.random.default_rng(seed)) for seed in range(1, 16)], axis=2)
    statistics: dict[str, tuple[Callable[[Scores], np.ndarray], np.ndarray]] = {
        "mean ranks": (mean_ranks, mean_ranks(scores)),
        "probabilities of improvement": (
            lambda one: improvement_probabilities(one, one[uniform]),
            improvement_probabilities(many, many[uniform]),
        ),
        "interquartile means over uniform's": (
            lambda one: interquartile_means(one / one[uniform].mean(axis=1)[None, :, None]),
            interquartile_means(many / many[uniform].mean(axis=1)[None, :, None]),
        ),
    }
    best = int(np.argmin(mean_ranks(scores)))
    others = np.arange(len(scores)) != uniform  # uniform's probability is a half by definition
    for name, (statistic, truth) in statistics.items():
        above, below = count_misses(partial(bootstrap, statistic, draws=DRAWS["statistic"]), truth, scores, repeats)
        covered = 1 - above - below
        of_best = f"{covered[best]:.0%} of {fair.selectors[best]}'s, and {above[best]:.0%} of these lie above it"
        print(f"{name}: {covered[others].mean():.0%} contain it on average, {of_best}")


if __name__ == "__main__":
    main()
