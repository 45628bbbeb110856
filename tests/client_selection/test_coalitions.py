"""Values of coalitions: Shapley values, double greedy search, and the selectors that go by them."""

from dataclasses import replace
from itertools import pairwise, permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, partition, signals, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.client_selection.filfl import FilFL
from fedjax_sel.client_selection.greedy_shapley import GreedyShapley, GreedyShapleyState
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import static
from fedjax_sel.signals.double_greedy import double_greedy
from fedjax_sel.signals.shapley import average_orders, exact, sample_orders
from fedjax_sel.types import Batch, Updates
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, many, members


def game(table):
    """The value of a coalition, looked up by its members as the bits of a number."""
    table = jnp.asarray(table, jnp.float32)
    return lambda who: table[jnp.sum(who * 2 ** jnp.arange(who.shape[0])).astype(int)]


def shapley_by_hand(table, m):
    """Mean marginal value over all orders."""
    total = np.zeros(m)
    for order in permutations(range(m)):
        who = 0
        for i in order:
            total[i] += table[who | 1 << i] - table[who]
            who |= 1 << i
    return total / len(list(permutations(range(m))))


def test_exact_values_by_hand():
    """v0 = .2, v1 = .3, v2 = 0, v01 = .6, v02 = .2, v12 = .3, v012 = .6: (.25, .35, 0), of which client 2 is null."""
    got = exact(game([0, 0.2, 0.3, 0.6, 0, 0.2, 0.3, 0.6]), 3)
    np.testing.assert_allclose(got, [0.25, 0.35, 0], atol=1e-6)


@pytest.mark.parametrize("m", [1, 2, 4, 6])
def test_exact_values_are_the_mean_marginals_over_all_orders(m):
    table = np.random.default_rng(m).normal(size=2**m)
    got = exact(game(table), m, side_by_side=5)
    np.testing.assert_allclose(got, shapley_by_hand(table, m), atol=1e-5)
    np.testing.assert_allclose(np.sum(got), table[-1] - table[0], atol=1e-5)


def test_random_orders_come_near_the_exact_values_and_sum_to_the_whole():
    table = np.random.default_rng(0).normal(size=32) + 3 * np.array([bin(i).count("1") for i in range(32)])
    got = jax.jit(lambda key: sample_orders(game(table), key, 5, 0.0, 50))(KEY)
    np.testing.assert_allclose(got, shapley_by_hand(table, 5), atol=0.35)
    np.testing.assert_allclose(np.sum(got), table[-1] - table[0], atol=1e-4)


def test_marginal_values_are_0_once_a_coalition_is_worth_the_whole_and_all_are_where_little_changed():
    got = sample_orders(game([0, 1, 1, 1]), KEY, 2, 1e-4, 10)
    np.testing.assert_allclose(got, [0.5, 0.5], atol=1e-6)  # each is first in every second order
    assert sample_orders(game([0, 5, -5, 5e-5]), KEY, 2, 1e-4, 10).tolist() == [0, 0]


def test_random_orders_give_the_same_where_each_coalition_is_measured_when_it_is_asked_for():
    table = np.random.default_rng(1).normal(size=64)
    ends = (jnp.float32(table[0]), jnp.float32(table[-1]))
    asked = jax.jit(lambda key: average_orders(game(table), key, 6, ends, 1e-4, 5))(KEY)
    np.testing.assert_allclose(sample_orders(game(table), KEY, 6, 1e-4, 5), asked, atol=1e-6)


def test_too_many_coalitions_are_refused():
    with pytest.raises(ValueError, match=r"shapley: the cohort has m = 11 slots, which make 2\^11 coalitions"):
        exact(game(np.zeros(2)), 11)
    with pytest.raises(ValueError, match=r"greedy_shapley: method is 'exact', but the cohort has m = 11 slots"):
        GreedyShapley(method="exact").init(KEY, context(np.ones(20), 11), HOST)


def test_a_merge_of_nobody_is_the_model_itself():
    delta = {"w": jnp.array([[1.0, 0.0], [0.0, 3.0]])}
    updates = Updates({"w": jnp.array([1.0, 2.0])}, delta, jnp.ones(2))
    assert updates.merge(jnp.zeros(2))["w"].tolist() == [1, 2]
    np.testing.assert_allclose(updates.merge(jnp.array([1.0, 3.0]))["w"], [1.25, 4.25])


class Heard(list):
    """What was heard; the same only as itself."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Listener(ClientSelector):
    """Random clients, of whose updates it passes on what it hears."""

    heard: Heard = static()
    method: str = static(default="exact")

    def signals(self):
        return Signals(after=[signals.Shapley(self.method), signals.ValidationLoss()])

    def select(self, key, state, ctx):
        one = uniform_m(key, ctx.available, ctx.m)
        mask = one.mask & (jnp.arange(ctx.m) != 1)  # the second slot stays empty
        return cohort(jnp.where(mask, one.client, -1), mask)

    def observe(self, key, state, ctx, cohort, *, shapley, validation_loss):
        jax.debug.callback(
            lambda t, s, v: self.heard.append((int(t), np.array(s), float(v))), *(ctx.round, shapley, validation_loss)
        )
        return state


def run(blobs, selector, slots=4, rounds=5, aggregation=None, seeds=1, layout=None):
    """A short run with the server's validation examples."""
    experiment = Experiment(
        Task.on(LogisticRegression(classes=3), blobs),
        client_selection=selector,
        local_training=SGD(0.2, batch_size=8),
        aggregation=aggregation or Mean(),
        cohort_size=slots,
        rounds=rounds,
    )
    federation = Federation(blobs, partition.ClientDirichlet(clients=16, alpha=0.3), data_seed=1)
    return simulate(experiment, federation, seeds=seeds, **({"layout": layout} if layout else {}))


@pytest.mark.parametrize(
    ("method", "weighting", "layout"),
    [
        ("exact", "client", None),
        ("exact", "size", Layout(clients=1, seeds="scan")),
        ("gtg", "size", None),
    ],
    ids=["exact", "exact, scan", "gtg"],
)
def test_values_of_a_round_sum_to_the_fall_of_the_validation_loss(blobs, method, weighting, layout):
    """v(all) is of the merged model, v(∅) of the one before; an empty slot is a null player."""
    heard = Heard()
    run(blobs, Listener(heard, method), aggregation=Mean(weighting), layout=layout)
    jax.effects_barrier()
    heard.sort(key=lambda one: one[0])
    assert [t for t, *_ in heard] == list(range(5))
    for (_, _, before), (_, shapley, after) in pairwise(heard):
        np.testing.assert_allclose(shapley.sum(), before - after, atol=2e-5)
        assert shapley[1] == pytest.approx(0, abs=1e-6)
        assert (np.abs(shapley[[0, 2, 3]]) > 1e-5).any()


def test_greedy_values_are_means_and_the_best_are_taken_once_everybody_was_seen():
    rng, ctx, past = np.random.default_rng(0), context(np.ones(6), 2), {i: [] for i in range(6)}
    selector = GreedyShapley()
    state = selector.init(KEY, ctx, HOST)
    for t in range(12):
        one = selector.select(jax.random.key(t), state, ctx)
        if all(past.values()):
            assert set(members(one)) == set(sorted(past, key=lambda i: -np.mean(past[i]))[:2])
        else:
            assert all(not past[i] for i in members(one))
        value = rng.normal(size=2)
        state = selector.observe(KEY, state, ctx, one, shapley=jnp.asarray(value, jnp.float32))
        for i, one_value in zip(members(one), value, strict=True):
            past[i].append(one_value)
    assert max(map(len, past.values())) > 2


def test_other_memories_and_rules_by_hand():
    ctx = context(np.ones(2), 1, round=7)
    state = GreedyShapleyState(jnp.array([0.4, 0.0]), jnp.array([2, 0]), jnp.array([True, False]))
    told = {"shapley": jnp.array([0.8])}
    ema = GreedyShapley(0.75, memory="ema")
    np.testing.assert_allclose(ema.observe(KEY, state, ctx, cohort([0]), **told).value, [0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(ema.observe(KEY, state, ctx, cohort([1]), **told).value, [0.4, 0.8], rtol=1e-6)
    silent = ema.observe(KEY, state, ctx, cohort([1], [False]), **told)
    assert (silent.value.tolist(), silent.selected.tolist()) == (state.value.tolist(), [True, True])
    softmax = GreedyShapley(0.75, 0.25, rule="softmax")
    np.testing.assert_allclose(softmax.init(KEY, ctx, HOST).value, [0.5, 0.5])
    np.testing.assert_allclose(softmax.observe(KEY, state, ctx, cohort([0]), **told).value, [0.5, 0], rtol=1e-6)
    drawn = inclusion(many(softmax, state._replace(value=jnp.array([1.0, 0.0])), ctx, 8000), 2)
    np.testing.assert_allclose(drawn, [np.e / (1 + np.e), 1 / (1 + np.e)], atol=0.03)
    # .4 + β √(ln 7 / 8) against .3 + β √(ln 7 / 1)
    both = GreedyShapleyState(jnp.array([0.4, 0.3]), jnp.array([8, 1]), jnp.ones(2, bool))
    for beta, best in ((0.05, 0), (0.2, 1)):
        assert members(GreedyShapley(beta=beta, rule="ucb").select(KEY, both, ctx)) == [best]


def double_greedy_by_hand(table, m, coins, there=None):
    """The source's search with sets; a coin below the chance keeps. Players that are not there are left out."""
    players = range(m) if there is None else np.flatnonzero(there)
    kept, left = 0, sum(1 << int(i) for i in players)
    for i in players:
        a, b = table[kept | 1 << i] - table[kept], table[left & ~(1 << i)] - table[left]
        up, down = max(a, 0), max(b, 0)
        keep = a >= b if coins is None else (coins[i] * (up + down) < up or up == down == 0)
        kept, left = (kept | 1 << i, left) if keep else (kept, left & ~(1 << i))
    assert kept == left
    return [kept >> i & 1 for i in range(m)]


@pytest.mark.parametrize("randomized", [True, False])
def test_the_search_follows_the_rule(randomized):
    rng, found = np.random.default_rng(0), set()
    for t in range(30):
        table = rng.normal(size=32).astype(np.float32) * (np.arange(32) > 0)  # R(∅) = 0
        key = jax.random.key(t)
        got = double_greedy(game(table), key, jnp.ones(5), randomized)
        coins = np.asarray(jax.random.uniform(key, (5,))) if randomized else None
        assert got.tolist() == double_greedy_by_hand(table, 5, coins)
        found.add(tuple(got.tolist()))
    assert len(found) > 8
    assert double_greedy(game(np.arange(32.0)), KEY, jnp.array([1.0, 0, 1, 0, 1]), randomized).tolist() == [
        1,
        0,
        1,
        0,
        1,
    ]


@pytest.mark.parametrize(("seed", "wanted"), [(11, [0, 1, 0, 1]), (59, [0, 0, 0, 1])])
def test_the_search_goes_by_the_validation_loss_of_the_mean_model(seed, wanted):
    """Weights do not count, and with a small reward, a model of larger loss is worth less than nobody."""
    rng, reward = np.random.default_rng(seed), 2.0
    x, y = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 3, 40)
    w, delta, there = rng.normal(size=(3, 3)), 2 * rng.normal(size=(4, 3, 3)), np.array([1.0, 1, 0, 1])

    def loss(w):
        z = np.c_[x, np.ones(40)] @ w.T
        return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(40), y])

    def variables(w):
        return {"params": {"kernel": jnp.asarray(w[..., :2], jnp.float32), "bias": jnp.asarray(w[..., 2], jnp.float32)}}

    table = [0.0]
    for some in range(1, 16):
        table.append(reward - loss(w + delta[[i for i in range(4) if some >> i & 1]].mean(0)))
    updates = Updates(variables(w), variables(delta), jnp.asarray(there * [1, 2, 1, 3], jnp.float32))
    task, batch = Task(LogisticRegression(classes=3)), Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(40, bool))
    signal = signals.DoubleGreedy(reward, rule="deterministic", interval=2)
    got = [signal.measure(KEY, jnp.int32(t), task, updates, batch).tolist() for t in (2, 3)]
    assert got == [wanted, there.tolist()]
    assert double_greedy_by_hand(table, 4, None, there) == wanted
    assert min(table) < 0


def test_filfl_filters_all_slots_and_then_selects_of_those_kept():
    selector, ctx = FilFL(members=2, interval=3), context(np.ones(8), 6)
    state = selector.init(KEY, ctx, HOST)
    one = selector.select(KEY, state, ctx)
    assert len(members(one)) == 6
    kept = jnp.array([1.0, 0, 1, 0, 1, 0])
    accepted = selector.accept(KEY, state, ctx, one, kept=kept)
    assert len(members(accepted)) == 2
    assert set(members(accepted)) <= set(np.asarray(one.client)[[0, 2, 4]].tolist())
    state = selector.observe(KEY, state, ctx, accepted, kept=kept)
    assert set(np.flatnonzero(state)) == set(np.asarray(one.client)[[0, 2, 4]].tolist())
    now = ctx.replace(round=jnp.int32(1))
    later = {frozenset(members(selector.select(jax.random.key(k), state, now))) for k in range(30)}
    assert all(len(group) == 2 and group <= set(np.flatnonzero(state)) for group in later)
    assert len(later) == 3
    every = selector.accept(KEY, state, now, one, kept=kept)
    assert members(every) == members(one)
    away = now.replace(available=~state)
    assert len(members(selector.select(KEY, state, away))) == 2


def test_a_filtering_round_trains_all_and_merges_a_few(blobs):
    selector = FilFL(members=2, interval=3, rule="deterministic")
    assert selector.signals().trained == {"kept": signals.DoubleGreedy(rule="deterministic", interval=3)}
    history = run(blobs, selector, slots=6, rounds=7)
    model = 4 * 9
    np.testing.assert_array_equal(history["bytes_down"][0] / model >= 6, np.arange(7) % 3 == 0)
    np.testing.assert_array_equal(history["bytes_up"], history["bytes_down"])
    assert np.isfinite(history["accuracy"]).all()


def test_shapley_runs_greedily_and_needs_validation_examples(blobs):
    for method in ("exact", "gtg"):
        assert GreedyShapley(method=method).signals().after == {"shapley": signals.Shapley(method)}
    history = run(blobs, GreedyShapley(method="gtg"), slots=3, rounds=8, seeds=2)
    first = history.selections[0][:5].ravel().tolist()
    assert len(set(first)) == 15
    with pytest.raises(ValueError, match="greedy_shapley wants shapley, but the server has no validation examples"):
        run(replace(blobs, validation_x=blobs.validation_x[:0], validation_y=blobs.validation_y[:0]), GreedyShapley())


def test_more_members_than_slots_are_refused():
    with pytest.raises(ValueError, match="filfl: members is 5, but the cohort has m = 4 slots"):
        FilFL(members=5).init(KEY, context(np.ones(8), 4), HOST)
