"""FedEntOpt: cohorts of balanced labels, and the buffer of those just used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare, entropy

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import entropy_of, label_distances
from fedjax_sel.client_selection.fed_ent_opt import FedEntOpt
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, labelled, many, members


def start(selector, counts, ctx):
    return selector.init(KEY, ctx, HOST, label_counts=jnp.asarray(counts, jnp.int32))


def greedy(counts, m, size, buffer, available, first=None):
    """Algorithm 1 with a list for the buffer; the first client is `first`, or the one of largest entropy."""
    pooled, chosen = np.zeros(counts.shape[1]), []
    for slot in range(min(m, sum(available))):
        left = [i for i in range(len(counts)) if available[i] and i not in chosen]
        free = [i for i in left if i not in buffer] or left
        best = first if slot == 0 and first is not None else max(free, key=lambda i: entropy(pooled + counts[i]))
        chosen.append(best)
        pooled = pooled + counts[best]
    buffer += chosen
    del buffer[: max(0, len(buffer) - size)]
    return chosen


@pytest.mark.parametrize(("fraction", "size"), [(0.0, 1), (0.3, 4), (0.5, 6), (1.0, 9)])
@pytest.mark.parametrize("first", ["entropy", "random"])
def test_cohorts_follow_the_rule_over_rounds(fraction, size, first):
    """Sizes of primes make ties rare; the buffer holds at least one client and at most N - m."""
    rng = np.random.default_rng(1)
    counts = np.round(rng.dirichlet(np.full(4, 0.4), 13) * rng.integers(400, 900, (13, 1))).astype(int) + 1
    selector, ctx = FedEntOpt(fraction, first=first), context(counts.sum(1), 4)
    assert int(selector.buffer_size(ctx)) == size
    state, buffer = start(selector, counts, ctx), []
    for t in range(12):
        available = rng.random(13) < (0.2 if t % 4 == 3 else 0.9)
        here = ctx.replace(available=jnp.asarray(available))
        one = selector.select(jax.random.key(t), state, here)
        begun = members(one)[0] if first == "random" and members(one) else None
        assert members(one) == greedy(counts, 4, size, buffer, available, begun)
        state = selector.observe(KEY, state, here, one)


def test_the_complement_is_chosen_by_hand():
    """After (9, 1, 0): with (0, 0, 5) the entropy of (9, 1, 5) is .8532, with (1, 9, 0) that of (10, 10) is .6931."""
    counts = np.array([[9, 1, 0], [1, 9, 0], [0, 0, 5], [8, 2, 0]])
    np.testing.assert_allclose(entropy_of(jnp.array([[9.0, 1, 5], [10, 10, 0]])), [0.853236, 0.693147], atol=1e-5)
    selector, ctx = FedEntOpt(0.0, first="entropy"), context(counts.sum(1), 2)
    assert members(selector.select(KEY, start(selector, counts, ctx), ctx)) == [3, 2]


def test_the_first_client_is_uniform_and_ties_are_settled_by_chance():
    selector, ctx = FedEntOpt(0.0), context(np.full(6, 10), 2)
    drawn = many(selector, start(selector, np.full((6, 2), 5), ctx), ctx, 3000)
    for slot in range(2):
        assert chisquare(np.bincount(np.asarray(drawn.client)[:, slot], minlength=6)).pvalue > 1e-4
    np.testing.assert_allclose(inclusion(drawn, 6), 1 / 3, atol=0.04)


def test_nobody_in_the_buffer_is_chosen_unless_it_holds_everybody():
    counts = np.eye(6, dtype=int) * 7
    selector, ctx = FedEntOpt(1.0), context(np.full(6, 7), 2)
    state, turns = start(selector, counts, ctx), []
    for t in range(9):
        one = selector.select(jax.random.key(t), state, ctx)
        state = selector.observe(KEY, state, ctx, one)
        turns.append(set(members(one)))
    assert all(turns[t] | turns[t + 1] | turns[t + 2] == set(range(6)) for t in range(7))
    only = ctx.replace(available=jnp.isin(jnp.arange(6), jnp.array(sorted(turns[-1]))))
    assert set(members(selector.select(KEY, state, only))) == turns[-1]


def test_empty_slots_do_not_enter_the_buffer():
    selector, ctx = FedEntOpt(0.5), context(np.full(4, 3), 2)
    state = start(selector, np.full((4, 3), 1), ctx)
    after = selector.observe(KEY, state, ctx, cohort([2, -1]))
    assert int(after.entries) == 1
    assert (np.asarray(after.entry) >= 0).tolist() == [False, False, True, False]


def test_label_counts_are_asked_once_and_a_fraction_outside_is_refused():
    counts = np.array([[2, 0, 1], [1, 1, 1]])
    (signal,) = FedEntOpt().signals().upfront.values()
    assert isinstance(signal, signals.LabelCounts)
    assert np.asarray(signal.measure(KEY, labelled(counts))).tolist() == counts.tolist()
    assert signal.count_up(3) == 3
    with pytest.raises(ValueError, match=r"fed_ent_opt: buffer is 1.5; it must be in \[0, 1\]"):
        FedEntOpt(1.5)


def test_distances_of_labels_by_hand():
    """Hellinger's of (½, ½, 0) and (½, 0, ½) is √½; the Euclidean one is the same."""
    counts = np.array([[3, 3, 0], [5, 0, 5], [1, 1, 0], [0, 0, 4]])
    apart = label_distances(counts, "hellinger")
    np.testing.assert_allclose(apart[0], [0, 0.5**0.5, 0, 1], atol=1e-7)
    np.testing.assert_allclose(label_distances(counts, "euclidean")[0], [0, 0.5**0.5, 0, 1.5**0.5], atol=1e-7)
