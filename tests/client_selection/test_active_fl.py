"""AFL against its rule in NumPy and chances by hand."""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.client_selection.active_fl import NEVER, ActiveFL
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context
from tests.client_selection.rounds import select_for

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""
KEY = jax.random.key(0)


def context(n, m, available=None, size=None):
    available = np.ones(n, bool) if available is None else available
    size = np.full(n, 10) if size is None else size
    return Context(
        jnp.int32(3),
        jnp.int32(50),
        jnp.asarray(size, jnp.int32),
        jnp.asarray(available),
        devices=None,
        timing=None,
        cohort_size=m,
    )


def cohorts(selector, state, ctx, times, key=KEY):
    """Clients of many draws, slot by slot."""
    return np.asarray(
        select_for(jax.random.split(key, times), selector, jnp.asarray(state, jnp.float32), ctx, {}).client
    )


def frequencies(clients, n):
    return np.bincount(clients.ravel(), minlength=n)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ActiveFL(fraction=1.1), r"active_fl: fraction is 1.1; it must be in \[0, 1\]"),
        (lambda: ActiveFL(alpha2=-0.1), "active_fl: alpha2 is -0.1; it must be 0 or above"),
        (lambda: ActiveFL(alpha2=float("nan")), "active_fl: alpha2 is nan"),
        (lambda: ActiveFL(alpha3=-1.0), r"active_fl: alpha3 is -1.0; it must be in \[0, 1\]"),
        (lambda: ActiveFL(alpha3=jnp.array([0.1, 2.0])), "active_fl: alpha3"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_when_the_value_is_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_those_dropped_are_never_exploited():
    """Without exploration 25 of 100 remain, those of highest valuation, and all of them are drawn."""
    valuation = np.random.default_rng(0).permutation(100) * 1.0
    drawn = frequencies(cohorts(ActiveFL(alpha3=0.0), valuation, context(100, 10), 400), 100)
    assert (drawn[valuation < 75] == 0).all()
    assert (drawn[valuation >= 75] > 0).all()


def test_the_share_dropped_is_of_those_available():
    valuation, available = np.arange(20.0), np.arange(20) % 2 == 0
    drawn = frequencies(cohorts(ActiveFL(fraction=0.7, alpha3=0.0), valuation, context(20, 2, available), 300), 20)
    assert np.flatnonzero(drawn).tolist() == [14, 16, 18]


def test_of_ten_slots_nine_exploit_and_one_explores_anywhere():
    """The explorer is one of the 75 dropped or the 16 kept and not drawn: uniform over the 91."""
    valuation = np.random.default_rng(1).permutation(100) * 1.0
    draws = cohorts(ActiveFL(), valuation, context(100, 10), 9100)
    assert all(len(set(cohort)) == 10 for cohort in draws.tolist())
    kept = valuation >= 75
    assert kept[draws[:, :9]].all()
    explorers = frequencies(draws[:, 9], 100)
    assert stats.chisquare(explorers[~kept]).pvalue > 1e-4
    assert stats.binomtest(int(explorers[kept].sum()), 9100, 16 / 91).pvalue > 1e-4


@pytest.mark.parametrize(
    ("m", "alpha3", "exploiting"),
    [(10, 0.1, 9), (20, 0.1, 18), (10, 0.3, 7), (5, 0.1, 4), (10, 0.0, 10), (4, 1.0, 0)],
)
def test_the_exploiting_slots_are_rounded_down_but_not_by_a_last_digit(m, alpha3, exploiting):
    """Twenty clients remain, so every exploiting slot shows by its client."""
    valuation = np.arange(1000.0)
    draws = cohorts(ActiveFL(fraction=0.98, alpha3=alpha3), valuation, context(1000, m), 200)
    slots = (draws >= 980).mean(0)
    assert (slots[:exploiting] == 1).all()
    assert (slots[exploiting:] < 0.2).all()


def test_the_first_slot_is_drawn_in_proportion_to_the_exponential():
    valuation, alpha2 = np.array([0.0, 1.0, 2.0, 3.5, 5.0, 6.0]), 0.4
    draws = cohorts(ActiveFL(0.34, alpha2, 0.0), valuation, context(6, 1), 20_000)
    weight = np.exp(alpha2 * valuation[2:])
    found = frequencies(draws, 6)
    assert found[:2].sum() == 0
    assert stats.chisquare(found[2:], 20_000 * weight / weight.sum()).pvalue > 1e-4


def test_pairs_are_drawn_one_after_the_other_without_replacement():
    valuation, alpha2 = np.array([1.0, 3.0, 4.0, 7.0]), 0.3
    weight = np.exp(alpha2 * valuation)
    found = Counter(map(frozenset, cohorts(ActiveFL(0.0, alpha2, 0.0), valuation, context(4, 2), 20_000).tolist()))
    expected = {
        frozenset((i, j)): weight[i]
        * weight[j]
        / weight.sum()
        * (1 / (weight.sum() - weight[i]) + 1 / (weight.sum() - weight[j]))
        for i, j in itertools.combinations(range(4), 2)
    }
    pairs = list(expected)
    assert stats.chisquare([found[p] for p in pairs], [20_000 * expected[p] for p in pairs]).pvalue > 1e-4


@pytest.mark.parametrize("alpha2", [50.0, 1e4])
def test_a_large_alpha2_takes_the_highest_valuations_without_overflow(alpha2):
    draws = cohorts(ActiveFL(0.0, alpha2, 0.0), np.arange(30.0) * 10, context(30, 5), 50)
    assert {frozenset(cohort) for cohort in draws.tolist()} == {frozenset(range(25, 30))}


def test_slots_that_too_few_are_left_for_are_filled_uniformly():
    """Of 8 clients 2 remain for 4 exploiting slots: both are in, and any 3 of the 6 dropped with equal chances."""
    draws = cohorts(ActiveFL(alpha3=0.2), np.arange(8.0), context(8, 5), 6000)
    assert {frozenset(cohort[:2]) for cohort in draws.tolist()} == {frozenset((6, 7))}
    triples = Counter(frozenset(cohort[2:]) for cohort in draws.tolist())
    assert set(triples) == set(map(frozenset, itertools.combinations(range(6), 3)))
    assert stats.chisquare(list(triples.values())).pvalue > 1e-4
    everyone_dropped = cohorts(ActiveFL(fraction=1.0), np.arange(8.0), context(8, 1), 4000)
    assert stats.chisquare(frequencies(everyone_dropped, 8)).pvalue > 1e-4


def test_slots_that_nobody_is_available_for_stay_empty():
    available = np.isin(np.arange(12), [1, 4, 9])
    for key in jax.random.split(KEY, 20):
        cohort = ActiveFL().select(key, jnp.arange(12.0), context(12, 5, available))
        assert set(cohort.client[:3].tolist()) == {1, 4, 9}
        assert cohort.mask.tolist() == [True] * 3 + [False] * 2


def test_before_anybody_was_seen_all_weigh_the_same():
    selector, ctx = ActiveFL(), context(24, 4)
    draws = cohorts(selector, selector.init(KEY, ctx, HOST), ctx, 6000)
    for slot in draws.T:
        assert stats.chisquare(frequencies(slot, 24)).pvalue > 1e-4


def test_a_client_never_seen_weighs_as_much_as_the_best():
    """Clients 2 and 5 were never seen, 4 is the best; of the other three the two lowest are dropped."""
    state = np.array([1.0, 3.0, NEVER, 2.0, 6.0, NEVER])
    np.testing.assert_array_equal(ActiveFL().valuations(jnp.asarray(state)), [1, 3, 6, 2, 6, 6])
    found = frequencies(cohorts(ActiveFL(0.34, 0.5, 0.0), state, context(6, 1), 12_000), 6)
    assert found[[0, 3]].sum() == 0
    weight = np.exp(0.5 * np.array([3, 6, 6, 6]))
    assert stats.chisquare(found[[1, 2, 4, 5]], 12_000 * weight / weight.sum()).pvalue > 1e-4
    # the best stays the best known where it cannot be reached
    away = frequencies(cohorts(ActiveFL(0.0, 0.5, 0.0), state, context(6, 1, np.arange(6) != 4), 12_000), 6)
    weight = np.exp(0.5 * np.array([1, 3, 6, 2, 6]))
    assert stats.chisquare(np.delete(away, 4), 12_000 * weight / weight.sum()).pvalue > 1e-4


def test_those_tied_at_the_cut_are_dropped_at_random():
    found = frequencies(cohorts(ActiveFL(0.5, 0.0, 0.0), [1.0, 2, 2, 2], context(4, 1), 6000), 4)
    assert found[0] == 0
    assert stats.chisquare(found[1:]).pvalue > 1e-4


class ByHand:
    """What the server knows after each round, client by client: total loss over the square root of the rows."""

    def __init__(self, size):
        self.size, self.known = size, {}

    def update(self, returned, silent=()):
        """Who was selected and did not return has the mean of those known then."""
        for client, losses in returned.items():
            self.known[client] = sum(losses) / math.sqrt(self.size[client])
        if self.known:
            mean = sum(self.known.values()) / len(self.known)
            self.known |= dict.fromkeys(silent, mean)

    def valuations(self):
        highest = max(self.known.values(), default=0.0)
        return [self.known.get(i, highest) for i in range(len(self.size))]

    def kept(self, available, share):
        """Who is certainly kept and who certainly dropped; a tie is neither."""
        value = self.valuations()
        ranked = sorted(available, key=lambda i: value[i])
        cut = int(share * len(ranked) + 1e-9)
        last, first = value[ranked[cut - 1]], value[ranked[cut]]
        return {i for i in ranked if value[i] > last}, {i for i in ranked if value[i] < first}


def test_valuations_and_drops_are_those_of_the_rule_in_random_rounds():
    rng, n, m = np.random.default_rng(2), 40, 10
    size, afl = rng.integers(5, 60, n), ActiveFL(fraction=0.6)
    plain, state = ByHand(size), afl.init(KEY, context(n, m, size=size), HOST)
    select, observe, decided = jax.jit(afl.select), jax.jit(afl.observe), 0
    for t in range(50):
        np.testing.assert_allclose(afl.valuations(state), plain.valuations(), rtol=1e-5)
        available = rng.random(n) < 0.8
        ctx = context(n, m, available, size)
        cohort = select(jax.random.key(t), state, ctx)
        client = cohort.client.tolist()
        assert available[client].all()
        _, dropped = plain.kept(np.flatnonzero(available).tolist(), 0.6)
        exploiting = min(9, available.sum() - int(0.6 * available.sum() + 1e-9))
        assert not dropped & set(client[:exploiting])
        decided += len(dropped) > 10
        back = rng.random(m) < 0.8
        losses = {c: rng.exponential(1.0, size[c]) for c, came in zip(client, back, strict=True) if came}
        reported = [losses[c].mean() if c in losses else 0.0 for c in client]
        cohort = cohort.replace(mask=cohort.mask & back)
        state = observe(KEY, state, ctx, cohort, training_loss=jnp.asarray(reported, jnp.float32))
        plain.update(losses, [c for c, came in zip(client, back, strict=True) if not came])
    assert decided > 30
    assert len(plain.known) == n
