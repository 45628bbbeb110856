"""K-Vib: chances, weights without bias, and what is remembered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.k_vib import Feedback, KVib
from fedjax_sel.local_training.sgd import SGD
from tests.client_selection.rounds import HOST, KEY, cohort, context, many, members
from tests.quadratic import OPTIMUM, TASK, clients, weights_of


def solve(weight, k):
    """Chances of sum `k` in proportion to the weights, at most 1: those above 1 are cut one after the other."""
    chance, cut = np.zeros(len(weight)), np.zeros(len(weight), bool)
    while True:
        chance[~cut] = (k - cut.sum()) * weight[~cut] / weight[~cut].sum()
        chance[cut] = 1
        if chance.max() <= 1 + 1e-12:
            return chance
        cut |= chance > 1


def after(total):
    """The state with this feedback; the largest is that of no update."""
    return Feedback(jnp.asarray(total, jnp.float32), jnp.zeros(()))


@pytest.mark.parametrize(("rule", "regularizer"), [("text", 0.01), ("code", 0.01), ("text", None)])
def test_chances_follow_the_rule_over_rounds(rule, regularizer):
    rng, n, m, rounds = np.random.default_rng(0), 12, 12, 40
    size, largest = rng.integers(5, 50, n), 0.0
    selector, share = KVib(2 / 12, regularizer, rule=rule), size / size.sum()
    ctx, k = context(size, m, rounds=rounds), 2.0
    theta = (n / (rounds * k)) ** (1 / 3)
    feedback, state = np.zeros(n), selector.init(KEY, ctx, HOST)
    for t in range(12):
        r = (largest or 1.0) if regularizer is None else regularizer
        inner = feedback + r * n / (theta * k)
        p = (1 - theta) * solve(inner if rule == "code" else np.sqrt(inner), k) + theta * k / n
        np.testing.assert_allclose(selector.chances(state, ctx).drawn, p, rtol=1e-4)
        np.testing.assert_allclose(p.sum(), k)
        one = selector.select(jax.random.key(t), state, ctx)
        np.testing.assert_allclose(one.weight[one.mask], share[members(one)] / p[members(one)], rtol=1e-4)
        length = rng.lognormal(3, 1, m).astype(np.float32)
        state = selector.observe(KEY, state, ctx, one, update_norm=jnp.asarray(length))
        for i, a in zip(members(one), length[np.asarray(one.mask)], strict=True):
            feedback[i] += (share[i] * a) ** 2 / p[i]
            largest = max(largest, (share[i] * a) ** 2)
        np.testing.assert_allclose(state.total, feedback, rtol=1e-4)
        np.testing.assert_allclose(state.largest, largest, rtol=1e-5)
    assert feedback.max() > 1


def test_where_some_cannot_be_reached_weights_add_up_to_1_over_the_others():
    size, available = np.arange(1, 13), np.arange(12) % 2 == 0
    drawn = many(KVib(1.0), after(np.ones(12)), context(size, 6, rounds=30, available=available), 20000)
    total = np.where(drawn.mask, drawn.weight, 0).sum(1)
    assert abs(total.mean() - 1) < 4.5 * total.std() / np.sqrt(20000)


@pytest.mark.parametrize("expected", [0.5, 1.0])
def test_the_weighted_sum_is_that_of_all_clients_on_average_also_where_slots_are_short(expected):
    """With K = m about half of the draws have more members than slots; those that stay stand for the others."""
    rng, n, draws = np.random.default_rng(1), 10, 40000
    size, value = rng.integers(1, 30, n), rng.normal(size=n)
    selector, ctx = KVib(expected), context(size, 4, rounds=30)
    drawn = many(selector, after(rng.lognormal(2, 2, n)), ctx, draws)
    client, weight, mask = (np.asarray(leaf) for leaf in (drawn.client, drawn.weight, drawn.mask))
    total = np.where(mask, weight * value[client], 0).sum(1)
    assert abs(total.mean() - (size * value).sum() / size.sum()) < 4.5 * total.std() / np.sqrt(draws)
    assert (mask.sum(1) == 4).mean() > (0.3 if expected == 1 else 0.01)
    if expected < 1:
        np.testing.assert_allclose(mask.sum(1).mean(), 2, atol=0.1)


def test_who_cannot_be_reached_is_not_drawn_and_few_are_drawn_surely():
    selector, ctx = KVib(), context(np.ones(5), 3, available=[True, False, False, True, False])
    np.testing.assert_allclose(selector.chances(after(np.arange(5)), ctx).drawn, [1, 0, 0, 1, 0], atol=1e-6)
    assert sorted(members(selector.select(KEY, after(np.arange(5)), ctx))) == [0, 3]


def test_updates_that_did_not_return_are_not_remembered():
    selector, ctx = KVib(), context(np.full(4, 5), 2)
    one = cohort([1, 3], [True, False], [0.5, 0.0])
    state = selector.observe(KEY, after(np.zeros(4)), ctx, one, update_norm=jnp.array([2.0, 9.0]))
    np.testing.assert_allclose(state.total, [0, 0.25 * 4 * 0.5, 0, 0])
    np.testing.assert_allclose(state.largest, (0.25 * 2) ** 2)


@pytest.mark.parametrize(("regularizer", "least"), [(None, 1.2), (0.1, 1.0)])
def test_probabilities_follow_norms_of_any_scale_unless_the_regularizer_has_another(regularizer, least):
    """Half of 100 clients send updates ten times as long as the others', of norm 2: `a²` is at most 4e-4."""
    selector, ctx = KVib(regularizer=regularizer), context(np.ones(100), 10, rounds=500)
    norms = jnp.where(jnp.arange(100) < 50, 0.2, 2.0)

    def play(state, t):
        now, key = ctx.replace(round=t), jax.random.fold_in(KEY, t)
        one = selector.select(key, state, now)
        return selector.observe(key, state, now, one, update_norm=norms[one.client]), None

    state, _ = jax.lax.scan(play, selector.init(KEY, ctx, HOST), jnp.arange(100))
    drawn = selector.chances(state, ctx).drawn
    ratio = float(drawn[50:].mean() / drawn[:50].mean())
    assert least < ratio < (4 if regularizer is None else 1.02)


def test_with_weights_of_the_cohort_it_approaches_the_optimum_of_all_clients():
    """The model begins ten times as far away as is allowed; a biased cohort would end twice as far."""
    one = Experiment(
        TASK,
        client_selection=KVib(),
        local_training=SGD(0.02, batch_size=None, steps=1),
        aggregation=Mean("cohort"),
        cohort_size=3,
        rounds=400,
        evaluate_every=400,
    )
    history = simulate(one, clients(), seeds=64)
    final = np.array([weights_of(history, seed) for seed in range(64)])
    error = final.std(0, ddof=1) / np.sqrt(64)
    assert (error < 0.03).all()
    assert (np.abs(final.mean(0) - OPTIMUM) < 4 * error + 0.01).all()


@pytest.mark.parametrize(("expected", "regularizer"), [(0.0, 0.1), (1.5, 0.1), (1.0, 0.0)])
def test_numbers_out_of_range_are_refused(expected, regularizer):
    with pytest.raises(ValueError, match=r"k_vib: (expected is .* in \(0, 1\]|regularizer is 0.0; it must be above 0)"):
        KVib(expected, regularizer)
