"""The three other ways of power of choice: candidates, cohorts, minibatches and their bill."""

from functools import partial
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import Experiment, Federation, Task, partition, signals, simulate
from fedjax_sel.client_selection.adapow_d import AdaPowD
from fedjax_sel.client_selection.cpow_d import CPowD
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.rpow_d import RPowD
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import Host
from fedjax_sel.types import Batch, Context

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""
KEY = jax.random.key(0)
FAMILY = [PowerOfChoice, CPowD, RPowD, AdaPowD]


def context(size, m, round=0, rounds=50, available=None):
    size = jnp.asarray(size, jnp.int32)
    available = jnp.ones(size.shape, bool) if available is None else jnp.asarray(available)
    return Context(jnp.int32(round), jnp.int32(rounds), size, available, cohort_size=m)


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("d", [3, 11])
def test_too_few_and_too_many_candidates_are_refused(family, d):
    name = {PowerOfChoice: "power_of_choice", CPowD: "cpow_d", RPowD: "rpow_d", AdaPowD: "adapow_d"}[family]
    with pytest.raises(ValueError, match=rf"{name}: d is {d} candidates.* m = 4.* N = 10"):
        family(d=d).init(KEY, context(np.ones(10), 4), HOST)
    for fits in (4, 10):
        family(d=fits).init(KEY, context(np.ones(10), 4), HOST)


def test_a_minibatch_without_rows_is_refused():
    with pytest.raises(ValueError, match="cpow_d: batch_size is 0; it must be a whole number, at least 1"):
        CPowD(d=5, batch_size=0)


@pytest.mark.parametrize("family", FAMILY)
def test_candidates_are_different_available_clients_drawn_one_after_the_other_by_size(family):
    """Of two draws from (1, 2, 5): the first by p_j, the second by Σ_i p_i p_j / (1 - p_i)."""
    p, selector = np.array([1, 2, 5]) / 8, family(d=3)
    available = [True, False, True, True]
    ctx = context([1, 50, 2, 5], 2, available=available)
    state = selector.init(KEY, ctx, HOST)
    draw = jax.jit(jax.vmap(lambda key: selector.candidates(key, state, ctx)))
    asked = np.asarray(draw(jax.random.split(KEY, 8000)))
    assert (np.sort(asked, 1) == [0, 2, 3]).all()
    second = [sum(p[i] * p[j] / (1 - p[i]) for i in range(3) if i != j) for j in range(3)]
    for slot, chances in ((0, p), (1, second)):
        counts = [(asked[:, slot] == i).sum() for i in (0, 2, 3)]
        assert stats.chisquare(counts, 8000 * np.array(chances)).pvalue > 1e-4
    few = selector.candidates(KEY, state, ctx.replace(available=jnp.arange(4) == 2))
    assert few.tolist() == [2, -1, -1]


@pytest.mark.parametrize("family", [CPowD, AdaPowD])
def test_the_cohort_is_the_candidates_of_highest_loss_best_first(family):
    rng, selector = np.random.default_rng(0), family(d=7)
    for t in range(20):
        ctx = context(rng.integers(1, 9, 15), 3, t, 20, rng.random(15) < (0.15 if t % 5 == 0 else 0.8))
        asked = selector.candidates(jax.random.key(t), (), ctx)
        loss = rng.permutation(15).astype(np.float32)
        told = {next(iter(selector.signals().before)): jnp.asarray(loss)[asked]}
        cohort = selector.select(jax.random.key(t), (), ctx.replace(candidates=asked), **told)
        expected = sorted((i for i in asked.tolist() if i >= 0), key=lambda i: -loss[i])[:3]
        assert cohort.client.tolist() == expected + [-1] * (3 - len(expected))
        assert cohort.mask.tolist() == [slot < len(expected) for slot in range(3)]


# cpow-d


class Bits(Task):
    """Its loss is not one: rows are powers of two, and it is the sum of those that count."""

    def mean_loss(self, variables, batch):
        return jnp.where(batch.mask, batch.x, 0.0).sum()


@pytest.mark.parametrize(("batch_size", "rows"), [(5, 12), (12, 12), (8, 3), (30, 12), (1, 12)])
def test_a_minibatch_has_so_many_rows_or_all_and_each_as_often(batch_size, rows):
    task, x = Bits(LogisticRegression(classes=2)), 2.0 ** jnp.arange(16)
    valid = np.sort(np.random.default_rng(1).permutation(16)[:rows])  # anywhere among the padding
    batch = Batch(x, jnp.zeros(16, int), jnp.zeros(16, bool).at[valid].set(True))
    signal = signals.MinibatchLoss(batch_size)
    sums = jax.jit(jax.vmap(lambda key: signal.measure(task, (), batch, key)))(jax.random.split(KEY, 3000))
    drawn = np.asarray(sums, int)[:, None] >> np.arange(16) & 1
    assert (drawn.sum(1) == min(batch_size, rows)).all()
    assert set(np.flatnonzero(drawn.sum(0))) == set(valid.tolist())
    np.testing.assert_allclose(drawn[:, valid].mean(0), min(batch_size, rows) / rows, atol=0.05)


def test_the_mean_loss_of_many_minibatches_is_the_loss_of_all_rows():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, 40)
    w = rng.normal(size=(4, 2)).astype(np.float32)
    variables = {"params": {"kernel": jnp.array(w[:3].T), "bias": jnp.array(w[3])}}
    z = np.c_[x, np.ones(40)] @ w.astype(float)
    losses = (np.log(np.exp(z).sum(1)) - z[np.arange(40), y])[:30]
    batch, task = Batch(jnp.array(x), jnp.array(y), jnp.arange(40) < 30), Task(LogisticRegression(classes=2))

    def means(size):
        signal = signals.MinibatchLoss(size)
        return np.asarray(
            jax.jit(jax.vmap(lambda key: signal.measure(task, variables, batch, key)))(jax.random.split(KEY, 4000))
        )

    for size in (1, 6):
        spread = losses.std(ddof=1) * np.sqrt((1 / size) * (1 - size / 30))  # without replacement
        got = means(size)
        np.testing.assert_allclose(got.std(), spread, rtol=0.06)
        np.testing.assert_allclose(got.mean(), losses.mean(), atol=4 * spread / np.sqrt(4000))
    np.testing.assert_allclose(means(64), losses.mean(), rtol=1e-5)


def test_a_minibatch_is_paid_by_its_examples():
    (signal,) = CPowD(d=5, batch_size=16).signals().before.values()
    assert (signal.cost.max_examples, signal.cost.forward, signal.cost.up, signal.cost.needs_model) == (16, 1, 1, True)


def test_in_a_run_reported_losses_cost_one_number_a_member(blobs):
    task = Task.on(LogisticRegression(classes=3), blobs)
    experiment = Experiment(task, client_selection=RPowD(d=5), local_training=SGD(), cohort_size=3, rounds=2)
    history = simulate(experiment, Federation(blobs, partition.Iid(clients=6)), [3])
    assert {name: set(np.ravel(history[name])) for name in history.metrics if name.startswith("selection")} == {
        "selection_bytes_down": {0},
        "selection_bytes_up": {3 * 4},  # with the updates
        "selection_flops": {0},
    }


def test_in_a_run_it_is_paid_by_the_rows_of_the_candidates_minibatches(blobs):
    federation = Federation(blobs, partition.Dirichlet(clients=6, alpha=0.5, min_examples=3))
    experiment = Experiment(
        Task.on(LogisticRegression(classes=3), blobs),
        client_selection=CPowD(d=6, batch_size=20),
        local_training=SGD(),
        cohort_size=2,
        rounds=2,
    )
    history, size = simulate(experiment, federation, [3]), federation.draw(3).num_examples
    assert min(size) < 20 < max(size)
    flops = history.about["forward_flops_per_example"] * np.minimum(size, 20).sum()
    np.testing.assert_array_equal(history["selection_flops"], [[flops, flops]])


# rpow-d


def test_rpow_d_goes_by_the_losses_reported_last_in_random_rounds():
    rng, n, d, m = np.random.default_rng(4), 14, 7, 3
    selector, size, known, ranked = RPowD(d=d), rng.integers(1, 30, n), {}, 0
    state = selector.init(KEY, context(size, m), HOST)

    @jax.jit
    def step(key, state, ctx, came, loss):
        ctx = ctx.replace(candidates=selector.candidates(key, state, ctx))
        cohort = selector.select(key, state, ctx)
        back = cohort.replace(mask=cohort.mask & came)
        return ctx.candidates, cohort, selector.observe(key, state, ctx, back, training_loss=loss)

    for t in range(50):
        came, loss = rng.random(m) < 0.8, rng.permutation(m).astype(np.float32) + t % 4
        available = rng.random(n) < (0.15 if t % 9 == 8 else 0.8)
        ctx = context(size, m, t, available=available)
        asked, cohort, state = step(jax.random.key(t), state, ctx, jnp.asarray(came), jnp.asarray(loss))
        asked = [i for i in asked.tolist() if i >= 0]
        client = cohort.client[cohort.mask].tolist()
        assert len(set(asked)) == len(asked) == min(d, available.sum())
        assert available[asked].all()
        assert set(client) <= set(asked)
        values = [known.get(i, np.inf) for i in client]
        assert values == sorted((known.get(i, np.inf) for i in asked), reverse=True)[:m]
        ranked += np.isfinite(values).all() and len(asked) > m
        known |= {i: loss[slot] for slot, i in enumerate(client) if came[slot]}
        if known:  # their mean stands for those who returned nothing
            mean = np.mean(list(known.values()))
            known |= {i: mean for slot, i in enumerate(client) if not came[slot]}
        np.testing.assert_allclose(state, [known.get(i, np.inf) for i in range(n)], rtol=1e-6)
    assert ranked > 20


# adapow-d


@pytest.mark.parametrize(("d", "m", "rounds"), [(9, 3, 7), (10, 4, 50), (8, 8, 5), (10, 1, 3), (6, 2, 1)])
def test_candidates_fall_from_d_in_the_first_round_to_m_in_the_last(d, m, rounds):
    count = jax.jit(lambda ctx: (AdaPowD(d=d).candidates(KEY, (), ctx) >= 0).sum())
    counts = [int(count(context(np.ones(10), m, t, rounds))) for t in range(rounds)]
    assert counts[0] == d
    if rounds > 1:
        assert counts == [d - (d - m) * t // (rounds - 1) for t in range(rounds)]
        assert counts[-1] == m
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("rest", [7, 14, 28, 45, 56])
def test_candidates_of_a_long_run_fall_to_m_in_the_last_round(rest):
    ctx = context(np.ones(rest + 1), 1, 40_000, 40_001)
    assert int((AdaPowD(d=rest + 1).candidates(KEY, (), ctx) >= 0).sum()) == 1


def test_adapow_d_has_the_closed_form_of_its_rounds_number():
    """Chance of loss rank r among d of N = 10 uniform candidates, m = 2; with d = m it is 1/5 for all."""
    n, m, draws, selector, losses = 10, 2, 20_000, AdaPowD(d=6), jnp.arange(10.0, 0, -1)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def cohort(key, ctx):
        key_candidates, key_select = jax.random.split(key)
        asked = selector.candidates(key_candidates, (), ctx)
        return selector.select(key_select, (), ctx.replace(candidates=asked), loss=losses[asked]).client

    for t, d in ((0, 6), (4, 4), (8, 2)):
        chances = [sum(comb(r, j) * comb(n - r - 1, d - 1 - j) for j in range(m)) / comb(n, d) for r in range(n)]
        if d == m:
            np.testing.assert_allclose(chances, 0.2)
        chosen = cohort(jax.random.split(KEY, draws), context(np.full(n, 3), m, t, 9))
        share = np.bincount(np.ravel(chosen), minlength=n) / draws
        np.testing.assert_allclose(share, chances, atol=4 * np.sqrt(0.25 / draws))
