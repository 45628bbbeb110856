"""Compares selectors over federations and seeds: ranks, probabilities, profiles, critical differences, Pareto fronts.

Scores are arrays `[k, D, R]` of `k` selectors on `D` federations with `R` seeds; larger is better. Intervals are from
the bootstrap over seeds within each federation, nominally of 95 %, with the same seeds for all selectors, since a seed
draws data, model and cohorts for all of them. Federations are resampled apart, although they share seeds; on the small
leaderboard this makes intervals 3 to 5 % too narrow.

With scores drawn like those of the small leaderboard (`python -m benchmarks.agreement`), intervals contain the
value of the expected scores in 84 % of cases for mean ranks (59 % for that of the best selector), 89 % for
probabilities of improvement, 93 % for interquartile means, and 73 to 92 % for `estimate_agreement`.

Source of the interquartile mean, the probability of improvement, the profiles and the stratified bootstrap: Agarwal et
al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021, https://arxiv.org/abs/2108.13264.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Bool, Float

DRAWS = 2000
"""Resamples of the bootstrap."""

LEVEL = 0.05
"""The probability outside an interval, and the significance level of the critical difference."""

Scores = Float[np.ndarray, "k D R"]


@dataclass(frozen=True)
class Estimate:
    """A number for each selector, with its interval.

    Attributes:
      point: the estimate from all seeds.
      low, high: the ends of the interval.
    """

    point: Float[np.ndarray, "k"]
    low: Float[np.ndarray, "k"]
    high: Float[np.ndarray, "k"]


def bootstrap(
    statistic: Callable[[Scores], Float[np.ndarray, "k"]], scores: Scores, draws: int = DRAWS, seed: int = 0
) -> Estimate:
    """Returns a statistic of each selector, and its percentile interval.

    Args:
      statistic: maps scores to a number for each selector.
      scores: the scores of all selectors.
      draws: number of resamples of the seeds of each federation.
      seed: seed of the resampling.
    """
    rng = np.random.default_rng(seed)
    _, federations, seeds = scores.shape
    found = []
    for _ in range(draws):
        chosen = rng.integers(seeds, size=(1, federations, seeds))
        found.append(statistic(np.take_along_axis(scores, np.broadcast_to(chosen, scores.shape), axis=2)))
    low, high = np.quantile(found, [LEVEL / 2, 1 - LEVEL / 2], axis=0)
    return Estimate(statistic(scores), low, high)


def mean_ranks(scores: Scores) -> Float[np.ndarray, "k"]:
    """Returns each selector's rank by its mean over seeds (1 is best), averaged over federations; ties share ranks.

    >>> mean_ranks(np.array([[[0.9], [0.5]], [[0.8], [0.5]]]))
    array([1.25, 1.75])
    """
    return rank_within_federations(scores).mean(axis=1)


def rank_within_federations(scores: Scores) -> Float[np.ndarray, "k D"]:
    """Returns the ranks of the means over seeds; 1 is best."""
    return scipy.stats.rankdata(-scores.mean(axis=2), axis=0)


def interquartile_means(scores: Scores) -> Float[np.ndarray, "k"]:
    """Returns the mean of the middle half of each selector's scores, over all federations and seeds together.

    A quarter of the scores, rounded down, is cut off at each end.

    >>> interquartile_means(np.array([[[0.0, 1.0, 3.0, 100.0]]]))
    array([2.])
    """
    return scipy.stats.trim_mean(scores.reshape(len(scores), -1), 0.25, axis=1)


def improvement_probabilities(scores: Scores, baseline: Float[np.ndarray, "D R"]) -> Float[np.ndarray, "k"]:
    """Returns `P(X > Y)` for a run `X` of each selector and one `Y` of the baseline, drawn from the same federation.

    It is the mean over federations of the Mann-Whitney statistic divided by `R²`; a tie counts as a half.

    >>> improvement_probabilities(np.array([[[1.0, 2.0]]]), np.array([[0.0, 2.0]]))
    array([0.625])
    """
    apart = scores[:, :, :, None] - baseline[None, :, None, :]
    return ((apart > 0) + 0.5 * (apart == 0)).mean(axis=(1, 2, 3))


def performance_profiles(scores: Scores, thresholds: Float[np.ndarray, "q"]) -> Float[np.ndarray, "k q"]:
    """Returns the share of each selector's runs, over all federations equally, whose score is above each threshold.

    >>> performance_profiles(np.array([[[0.2, 0.6]]]), np.array([0.0, 0.5, 0.7]))
    array([[1. , 0.5, 0. ]])
    """
    return (scores[..., None] > thresholds).mean(axis=(1, 2))


@dataclass(frozen=True)
class Nemenyi:
    """Friedman's test, and the difference of mean ranks at which two selectors differ significantly.

    Attributes:
      ranks: mean rank of each selector over federations.
      statistic, p: Friedman's χ² and its p-value.
      difference: the critical difference at 5 %.
    """

    ranks: Float[np.ndarray, "k"]
    statistic: float
    p: float
    difference: float


def apply_nemenyi(scores: Scores) -> Nemenyi:
    """Returns Friedman's test over federations, and Nemenyi's critical difference `q √(k (k + 1) / 6 D)`.

    Raises:
      ValueError: there are fewer than three selectors, or only one federation.

    Source: Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", 2006, JMLR 7, section 3.2.2.
    """
    k, federations, _ = scores.shape
    if k < 3 or federations < 2:
        raise ValueError(f"Friedman's test of {k} selectors on {federations} federations; at least 3 and 2 are needed")
    means = scores.mean(axis=2)
    statistic, p = (0.0, 1.0) if (means == means[:1]).all() else scipy.stats.friedmanchisquare(*means)
    q = scipy.stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / np.sqrt(2)
    return Nemenyi(mean_ranks(scores), float(statistic), float(p), float(q * np.sqrt(k * (k + 1) / (6 * federations))))


def find_cliques(ranks: Float[np.ndarray, "k"], difference: float) -> list[tuple[int, int]]:
    """Returns the maximal groups of selectors, in order of rank, whose ranks differ by less than `difference`.

    Each is given by its first and last position in that order; groups of one, or inside another group, are left out.

    >>> find_cliques(np.array([1.0, 1.5, 3.0, 3.2]), 1.0)
    [(0, 1), (2, 3)]
    """
    ranks, out = np.sort(ranks), []
    for i, rank in enumerate(ranks):
        j = int(np.searchsorted(ranks, rank + difference, side="left")) - 1
        if j > i and (not out or j > out[-1][1]):
            out.append((i, j))
    return out


def find_front(value: Float[np.ndarray, "k"], cost: Float[np.ndarray, "k"]) -> Bool[np.ndarray, "k"]:
    """Returns which selectors are Pareto optimal: no other has as much value at no more cost, and improves one of them.

    >>> find_front(np.array([0.5, 0.7, 0.6]), np.array([1.0, 2.0, 3.0]))
    array([ True,  True, False])
    """
    at_least = (value[None, :] >= value[:, None]) & (cost[None, :] <= cost[:, None])
    better = (value[None, :] > value[:, None]) | (cost[None, :] < cost[:, None])
    return np.asarray(~(at_least & better).any(axis=1))


def find_leaders(names: Sequence[str], scores: Scores) -> list[str]:
    """Returns the selectors that cannot be told apart from the one with the best mean rank; if alone, it is a winner.

    They are those for which the interval of the difference of the two mean ranks contains 0; the bootstrap draws the
    same seeds for both.

    >>> find_leaders("abc", np.array([[[0.5, 0.7]], [[0.7, 0.5]], [[0.1, 0.2]]]))
    ['a', 'b']
    """
    best = int(np.argmin(mean_ranks(scores)))

    def places_behind(scores: Scores) -> Float[np.ndarray, "k"]:
        ranks = mean_ranks(scores)
        return ranks - ranks[best]

    behind = bootstrap(places_behind, scores)
    return [name for name, low in zip(names, behind.low, strict=True) if low <= 0]


def mean_agreement(rankings: Sequence[Float[np.ndarray, "k"]]) -> float:
    """Returns the mean of Kendall's τ over all pairs of rankings: 1 if all are the same; NaN for fewer than two.

    >>> round(mean_agreement([np.array([1, 2, 3]), np.array([1, 2, 3]), np.array([3, 2, 1])]), 3)
    -0.333
    """
    pairs = [(a, b) for i, a in enumerate(rankings) for b in rankings[i + 1 :]]
    found: list[Any] = [scipy.stats.kendalltau(a, b) for a, b in pairs]
    return float(np.mean([one.statistic for one in found])) if found else float("nan")


@dataclass(frozen=True)
class Agreement:
    """How far rankings agree.

    Attributes:
      value: Kendall's τ, from all seeds.
      low, high: the ends of its interval.
    """

    value: float
    low: float
    high: float


def estimate_agreement(agree: Callable[[Scores], float], scores: Scores, draws: int = 200) -> Agreement:
    """Returns how far rankings agree, with an interval that contains both the percentile and the basic bootstrap's.

    Resampled seeds repeat. Rankings by them are noisier and so agree less, which pulls the percentile interval below
    the estimate; the basic interval, its mirror image at the estimate, makes up for that (Davison and Hinkley,
    "Bootstrap Methods and their Application", 1997, equation 5.6), and its upper end is above. Neither is exact: with
    scores drawn like those of the small leaderboard, both together contain the agreement of the expected scores in 92
    of 100 cases for two budgets, and in 73 for seventeen federations (`python -m benchmarks.agreement`).

    Args:
      agree: maps scores to Kendall's τ.
      scores: the scores of all selectors.
      draws: number of resamples of the seeds of each federation.
    """
    found = bootstrap(lambda resampled: np.array([agree(resampled)]), scores, draws)
    value, low, high = (float(one[0]) for one in (found.point, found.low, found.high))
    return Agreement(value, max(min(low, 2 * value - high), -1.0), min(max(high, 2 * value - low), 1.0))
