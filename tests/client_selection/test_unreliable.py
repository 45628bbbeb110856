"""Selectors that begin with clients that they do not know, where some never return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection.active_fl import ActiveFL
from fedjax_sel.client_selection.divfl import DivFL
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.client_selection.greedy_shapley import GreedyShapley
from fedjax_sel.client_selection.haccs import HACCS
from fedjax_sel.client_selection.hics_fl import HiCSFL
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.client_selection.rpow_d import RPowD
from fedjax_sel.client_selection.ucb_cs import UCBCS
from fedjax_sel.devices.availability import Bernoulli
from tests.client_selection.rounds import HOST, KEY, cohort, context, members

SILENT, N, M = (0, 1, 2, 3), 12, 3


@pytest.mark.parametrize(
    "selector",
    [UCBCS(), UCBCS(1.0), GreedyShapley(), GreedyShapley(rule="ucb"), GreedyShapley(memory="ema"), RPowD(d=N)],
    ids=str,
)
def test_clients_that_never_return_do_not_keep_the_others_out(selector):
    rng = np.random.default_rng(0)
    state, ctx, returned = selector.init(KEY, context(np.ones(N), M), HOST), context(np.ones(N), M), []
    for t in range(30):
        now = ctx.replace(round=jnp.int32(t))
        now = now.replace(candidates=selector.candidates(jax.random.key(t), state, now))
        one = selector.select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & ~jnp.isin(one.client, jnp.array(SILENT)))
        told = {name: jnp.asarray(rng.uniform(0.5, 1, M), jnp.float32) for name in selector.signals().after}
        if "training_loss_rms" in told:
            told["training_loss_rms"] = told["training_loss"] + 0.1
        state = selector.observe(jax.random.key(t), state, now, back, **told)
        returned.append(len(members(back)))
    assert sum(returned[:6]) >= N - len(SILENT), "everybody has a turn first"
    assert sum(returned[6:]) > M * 24 / 2


@pytest.mark.parametrize("once", [False, True], ids=["never", "once"])
@pytest.mark.parametrize(
    "selector",
    [UCBCS(), UCBCS(1.0), *(GreedyShapley(rule=rule) for rule in ("greedy", "ucb", "softmax")), Oort()],
    ids=str,
)
def test_who_does_not_return_while_the_others_losses_fall_gets_no_more_than_its_share(selector, once):
    """A fifth of 40 clients never return, or not after round 20; contributions fall as losses do."""
    n, m, silent = 40, 5, 8
    ctx = context(np.full(n, 50), m, rounds=200, seconds=np.ones(n))
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    state, base, slots = selector.init(KEY, ctx, HOST), np.random.default_rng(0).uniform(0.5, 1.5, n), []
    for t in range(200):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        client = np.asarray(one.client)
        back = one.replace(mask=one.mask & ((one.client >= silent) | (once and t < 20)))
        told = {name: jnp.asarray(base[client] * 0.97**t, jnp.float32) for name in selector.signals().after}
        if "shapley" in told:
            told["shapley"] = 0.05 * told["shapley"]
        if len(told) == 2:
            told["training_loss_rms"] = 1.1 * told["training_loss"]
        state = observe(jax.random.key(t), state, now, back, **told)
        slots.append((client < silent).mean())
    assert np.mean(slots[60:]) < 0.35


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("selector", [UCBCS(), UCBCS(1.0), Oort()], ids=str)
def test_a_cohort_of_which_nobody_returns_is_not_selected_for_ever(selector, m):
    """A third of 12 clients never return; in cohorts as small, they are often among themselves."""
    ctx = context(np.ones(N), m, rounds=120, seconds=np.ones(N))
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    state, idle = selector.init(KEY, ctx, HOST), []
    for t in range(120):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & ~jnp.isin(one.client, jnp.array(SILENT)))
        told = {name: jnp.full(m, 0.99**t, jnp.float32) for name in selector.signals().after}
        state = observe(jax.random.key(t), state, now, back, **told)
        idle.append(not members(back))
    assert np.mean(idle[60:]) < 0.7, "4 of 12 in a cohort of 1"


@pytest.mark.parametrize(
    "selector",
    [ActiveFL(), HiCSFL(), DivFL(sketch=32), FedCor(warm_up=4, first_steps=50)],
    ids=lambda s: type(s).__name__,
)
def test_who_never_returns_gets_no_more_than_its_share_of_the_slots(blobs, selector):
    """A quarter of the clients never do; where that is not noticed, they fill more than half of the slots."""
    back = np.where(np.arange(20) < 5, 0.0, 1.0).astype(np.float32)
    experiment = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=selector,
        cohort_size=4,
        rounds=48,
        volatility=Bernoulli(back),
        local_training=fs.local_training.SGD(0.3, batch_size=4),
        evaluate_every=48,
    )
    history = fs.simulate(experiment, fs.Federation(blobs, fs.partition.Dirichlet(clients=20, alpha=0.5)), seeds=3)
    silent = history.selections[:, 8:] < 5
    assert (silent & (history.selections[:, 8:] >= 0)).mean() < 0.4


def test_oort_does_not_stay_with_who_never_returned_where_nobody_has():
    """Ties aside, it explores the clients of most examples first."""
    ctx = context(np.where(np.arange(N) < 5, 90, 10), 1, rounds=60, seconds=np.ones(N))
    oort, idle = Oort(), []
    state = oort.init(KEY, ctx, HOST)
    for t in range(60):
        now = ctx.replace(round=jnp.int32(t))
        one = oort.select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & (one.client >= 5))
        state = oort.observe(jax.random.key(t), state, now, back, training_loss_rms=jnp.ones(1))
        idle.append(not members(back))
    assert np.mean(idle) < 0.5


def tell(selector, state, client, back, loss):
    """The state after a round of which only some members came back."""
    ctx, who = context(np.ones(6), len(client)), cohort(client)
    who = who.replace(mask=jnp.asarray(back))
    told = {"training_loss": jnp.asarray(loss, jnp.float32)}
    if isinstance(selector, UCBCS):
        told["training_loss_rms"] = told["training_loss"]
    return selector.observe(KEY, state, ctx, who, **told)


def test_who_fails_in_the_first_round_counts_as_the_mean_of_those_that_did_not():
    ctx = context(np.ones(6), 3)
    powd = RPowD(d=6)
    state = tell(powd, powd.init(KEY, ctx, HOST), [0, 1, 2], [True, True, False], [2.0, 1.0, 0.0])
    np.testing.assert_array_equal(state, [2, 1, 1.5, np.inf, np.inf, np.inf])
    nobody = tell(powd, powd.init(KEY, ctx, HOST), [0, 1, 2], [False] * 3, [0.0] * 3)
    assert np.isinf(nobody).all(), "nothing is known"
    active = ActiveFL()
    state = tell(active, active.init(KEY, ctx, HOST), [0, 1, 2], [True, True, False], [2.0, 1.0, 0.0])
    np.testing.assert_array_equal(state, [2, 1, 1.5, -np.inf, -np.inf, -np.inf])
    ucb = UCBCS(1.0)
    state = tell(ucb, ucb.init(KEY, ctx, HOST), [0, 1, 2], [True, True, False], [2.0, 1.0, 0.0])
    np.testing.assert_array_equal(state.losses, [2, 1, 1.5, 0, 0, 0])
    nobody = tell(ucb, ucb.init(KEY, ctx, HOST), [0, 1, 2], [False] * 3, [0.0] * 3)
    assert not np.asarray(nobody.reports).any()


def test_divfl_stands_for_no_client_that_cannot_be_reached_where_it_asks_everybody():
    """0, 1, 10 and 11 can be reached: the two pairs have a member each, whatever the others' gradients are."""
    x = np.array([0.0, 1, 10, 11, *range(100, 116)])
    for far in (x, np.where(x < 50, x, -x)):
        ctx = context(np.ones(20), 2, available=x < 50)
        chosen = DivFL(gradients="all").select(KEY, (), ctx, gradient=jnp.asarray(far, jnp.float32)[:, None])
        assert {member // 2 for member in members(chosen)} == {0, 1}
        np.testing.assert_allclose(chosen.weight, [0.5, 0.5])


def test_a_cluster_that_never_returns_does_not_take_every_slot_of_haccs():
    """Three clusters of ten equally fast clients; the losses of two fall."""
    counts = np.repeat(60 * np.eye(3, dtype=int), 10, axis=0)
    ctx, selector, slots = context(counts.sum(1), 10, rounds=60, seconds=np.ones(30)), HACCS(), []
    state = selector.init(KEY, ctx, HOST, label_counts=jnp.asarray(counts))
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    for t in range(60):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & (one.client < 20))
        state = observe(jax.random.key(t), state, now, back, training_loss=jnp.full(10, 2 * 0.93**t))
        slots.append((np.asarray(one.client) >= 20).mean())
    assert np.mean(slots[20:]) < 0.5


@pytest.mark.parametrize("rule", ["greedy", "ucb", "softmax"])
@pytest.mark.parametrize("memory", ["mean", "ema"])
def test_who_does_not_return_is_worth_no_more_than_the_others_where_contributions_are_negative(rule, memory):
    """0 would be the best value of all: the silent would fill every cohort, and nothing would ever change again."""
    selector = GreedyShapley(rule=rule, memory="mean" if rule == "softmax" else memory)
    ctx, slots, idle = context(np.ones(N), M, rounds=100), [], []
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    state = selector.init(KEY, ctx, HOST)
    for t in range(100):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & ~jnp.isin(one.client, jnp.array(SILENT)))
        shapley = jnp.where(back.mask, -0.02, 0.0) * jax.random.uniform(jax.random.key(t), M, minval=0.5, maxval=1.5)
        state = observe(jax.random.key(t), state, now, back, shapley=shapley)
        slots.append(np.isin(np.asarray(one.client), SILENT).mean())
        idle.append(not back.mask.any())
    assert np.mean(slots[20:]) < 0.5
    assert np.mean(idle[20:]) < 0.2


@pytest.mark.parametrize(("gamma", "most"), [(0.7, 0.05), (1.0, 0.5)])
def test_large_clients_that_never_return_do_not_stop_the_rounds_of_ucb_cs(gamma, most):
    """The index is a product with the client's share of the examples; a fifth of 40 clients are silent and large.

    With γ = 1, exploring prefers large clients as such.
    """
    n, m, silent = 40, 5, 8
    sizes = np.where(np.arange(n) < silent, 4, 1)
    ctx, selector = context(sizes, m, rounds=300), UCBCS(gamma)
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    state, base, idle = selector.init(KEY, ctx, HOST), np.random.default_rng(0).uniform(0.5, 1.5, n), []
    for t in range(300):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & (one.client >= silent))
        loss = jnp.asarray(base[np.asarray(one.client)] * 0.99**t, jnp.float32)
        state = observe(jax.random.key(t), state, now, back, training_loss=loss, training_loss_rms=1.1 * loss)
        idle.append(not back.mask.any())
    assert np.mean(idle[150:]) < most


def test_who_reports_no_loss_to_ucb_cs_counts_with_the_mean_of_losses_times_shares():
    """By hand: shares .1, .2, .3, .4; clients 1 and 3 return losses 2 and 1, so the mean product is .4."""
    selector, ctx = UCBCS(1.0), context(np.array([1, 2, 3, 4]), 4)
    state = selector.init(KEY, ctx, HOST)
    one = cohort([0, 1, 2, 3], 4).replace(mask=jnp.array([False, True, False, True]))
    loss = jnp.array([9.0, 2.0, 9.0, 1.0])
    state = selector.observe(KEY, state, ctx, one, training_loss=loss, training_loss_rms=loss)
    np.testing.assert_allclose(state.losses, [4, 2, 0.4 / 0.3, 1], rtol=1e-6)
    np.testing.assert_allclose(selector.indices(state, ctx), 0.4, rtol=1e-6)
    empty = context(np.array([0, 2, 3, 4]), 4)
    state = selector.observe(
        KEY, selector.init(KEY, empty, HOST), empty, one, training_loss=loss, training_loss_rms=loss
    )
    assert np.isfinite(state.losses).all()


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_who_never_returns_to_gpfl_gets_no_better_reward_than_the_others(alpha):
    """Accuracy falls whenever anybody trains, so that all rewards are negative; a fifth of 40 clients are silent."""
    n, m, silent = 40, 5, 8
    ctx, selector = context(np.full(n, 50), m, rounds=300), GPFL(schedule="constant", alpha=alpha)
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    state, accuracy, slots, idle = selector.init(KEY, ctx, HOST), 0.9, [], []
    for t in range(300):
        now = ctx.replace(round=jnp.int32(t))
        one = select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & (one.client >= silent))
        accuracy -= 0.001 * bool(back.mask.any())
        projection = jax.random.normal(jax.random.key(t), m)
        told = {"validation_accuracy": jnp.float32(accuracy), "validation_loss": jnp.float32(1.0)}
        state = observe(jax.random.key(t), state, now, back, projection=projection, **told)
        slots.append((np.asarray(one.client) < silent).mean())
        idle.append(not back.mask.any())
    assert np.mean(slots[150:]) < 0.4
    assert np.mean(idle[150:]) < 0.1
