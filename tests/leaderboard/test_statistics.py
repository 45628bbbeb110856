import numpy as np
import pytest
from scipy import stats

from fedjax_sel.leaderboard.statistics import (
    apply_nemenyi,
    bootstrap,
    estimate_agreement,
    find_cliques,
    find_front,
    find_leaders,
    improvement_probabilities,
    interquartile_means,
    mean_agreement,
    mean_ranks,
    performance_profiles,
)

SCORES = np.random.default_rng(0).normal(size=(5, 7, 9)).round(1) + np.arange(5)[:, None, None] / 4


def test_the_probability_of_improvement_is_scipys_mann_whitney_statistic():
    found = improvement_probabilities(SCORES, SCORES[0])
    for k in range(5):
        each = [stats.mannwhitneyu(x, y).statistic / 81 for x, y in zip(SCORES[k], SCORES[0], strict=True)]
        assert found[k] == pytest.approx(np.mean(each))
    assert found[0] == pytest.approx(0.5)


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    scores = np.array([[[8.0, 1.0, 2.0, 100.0], [-50.0, 3.0, 4.0, 5.0]]])  # sorted: -50 1 | 2 3 4 5 | 8 100
    assert interquartile_means(scores) == pytest.approx(3.5)


def test_ranks_are_averaged_over_federations_and_shared_by_ties():
    scores = np.array([[[3.0], [1.0]], [[2.0], [1.0]], [[1.0], [0.0]]])
    np.testing.assert_allclose(mean_ranks(scores), [1.25, 1.75, 3.0])


def test_profiles_count_runs_above_each_threshold():
    scores = np.array([[[0.1, 0.2], [0.3, 0.4]]])
    np.testing.assert_allclose(performance_profiles(scores, np.array([0.0, 0.2, 0.35])), [[1.0, 0.5, 0.25]])


def test_the_bootstrap_interval_of_a_mean_is_about_students():
    scores = np.random.default_rng(1).normal(size=(1, 1, 200))
    found = bootstrap(lambda s: s.mean(axis=(1, 2)), scores)
    low, high = stats.t.interval(0.95, 199, scores.mean(), stats.sem(scores.ravel()))
    assert (found.low[0], found.high[0]) == pytest.approx((low, high), abs=0.02)


def test_seeds_are_paired_in_the_bootstrap():
    scores = np.random.default_rng(2).normal(size=(1, 3, 10)).repeat(2, axis=0)
    scores[1] += 0.001  # always a little better, whatever seeds are drawn
    found = bootstrap(mean_ranks, scores, draws=50)
    assert (found.low.tolist(), found.high.tolist()) == ([2.0, 1.0], [2.0, 1.0])


@pytest.mark.parametrize(("k", "q"), [(4, 2.569), (10, 3.164)])  # Demšar (2006), table 5(a)
def test_the_critical_difference_is_demsars(k, q):
    scores = np.random.default_rng(3).normal(size=(k, 14, 2))
    found = apply_nemenyi(scores)
    assert found.difference == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)
    reference = stats.friedmanchisquare(*scores.mean(axis=2))
    assert (found.statistic, found.p) == pytest.approx((reference.statistic, reference.pvalue))


def test_pairs_beyond_the_critical_difference_are_those_of_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs", reason="scikit-posthocs is the oracle")
    found = apply_nemenyi(SCORES)
    p = posthocs.posthoc_nemenyi_friedman(SCORES.mean(axis=2).T).to_numpy()
    apart = np.abs(found.ranks[:, None] - found.ranks[None, :])
    off = ~np.eye(5, dtype=bool)
    assert ((p < 0.05) == (apart > found.difference))[off].all()


def test_too_few_for_friedman_is_refused():
    with pytest.raises(ValueError, match="2 selectors on 7 federations; at least 3 and 2"):
        apply_nemenyi(SCORES[:2])


def test_cliques_are_the_largest_groups_only():
    assert find_cliques(np.array([2.0, 1.0, 2.4, 2.6, 9.0]), 1.5) == [(0, 2), (1, 3)]
    assert find_cliques(np.array([1.0, 5.0]), 1.0) == []


def test_the_front_is_that_of_a_search_over_all_pairs():
    rng = np.random.default_rng(4)
    value, cost = rng.integers(5, size=30).astype(float), rng.integers(5, size=30).astype(float)
    for i, on_front in enumerate(find_front(value, cost)):
        beaten = any(
            value[j] >= value[i] and cost[j] <= cost[i] and (value[j] > value[i] or cost[j] < cost[i])
            for j in range(30)
        )
        assert on_front != beaten


def test_a_winner_is_named_only_where_no_other_is_level():
    a, b = np.array([[0.5, 0.7, 0.6, 0.8]]), np.array([[0.7, 0.5, 0.6, 0.8]])
    assert find_leaders("abc", np.stack([a, b, b - 1.0])) == ["a", "b"]
    assert find_leaders("abc", np.stack([b - 0.3, b, b - 1.0])) == ["b"]


def test_who_is_always_behind_is_told_apart_though_the_intervals_of_ranks_overlap():
    """Whether the third is first or last depends on the seeds; the second is a place behind the first with all."""
    first, third = np.array([[0.5, 0.5, 0.5, 0.5]]), np.array([[0.9, 0.1, 0.1, 0.9]])
    scores = np.stack([first, first - 0.01, third])
    ranks = bootstrap(mean_ranks, scores)
    assert ranks.low[1] <= ranks.high[0]
    assert find_leaders("abc", scores) == ["a", "c"]


def test_agreement_is_kendalls():
    rankings = [np.array([1, 2, 3, 4]), np.array([2, 1, 3, 4]), np.array([4, 3, 2, 1])]
    assert mean_agreement(rankings) == pytest.approx((4 / 6 - 1 - 4 / 6) / 3)
    assert np.isnan(mean_agreement(rankings[:1]))


def test_the_interval_of_an_agreement_contains_the_percentile_interval_and_its_mirror_image():
    rng = np.random.default_rng(4)
    truth = np.arange(12.0)[:, None, None] * np.ones((1, 4, 1))  # the rankings of the four federations are the same

    def agree(scores):
        return mean_agreement(list(scores.mean(axis=2).T))

    for noise in (0.0, 1.0, 6.0):
        scores = truth + rng.normal(size=(12, 4, 10)) * noise
        found = estimate_agreement(agree, scores, draws=100)
        raw = bootstrap(lambda some: np.array([agree(some)]), scores, draws=100)
        assert found.value == raw.point[0] == agree(scores)
        assert found.low <= raw.low[0] <= raw.high[0] <= found.high <= 1
        assert found.low <= 2 * found.value - raw.high[0] <= found.high
        assert found.high == min(max(raw.high[0], 2 * found.value - raw.low[0]), 1.0)
    assert found.low < found.value < found.high < 1
