"""The papers' rules, transcribed into NumPy, and numbers worked out by hand."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import Federation, Layout, Task, aggregation, partition, signals
from fedjax_sel.client_selection._ops import gumbel_m, top_m, uniform_m
from fedjax_sel.client_selection.by_size import BySize
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.data.uacs import g, uacs
from fedjax_sel.data_selection.random_subset import RandomSubset
from fedjax_sel.engine.signals import measure_clients
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import Host
from fedjax_sel.types import Cohort, Context, Plan

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""


def context(size, m, available=None, round=0):
    size = jnp.asarray(size, jnp.int32)
    available = jnp.ones(size.shape, bool) if available is None else jnp.asarray(available)
    return Context(jnp.int32(round), jnp.int32(100), size, available, cohort_size=m)


@pytest.fixture(scope="module")
def asked():
    """A drawn federation with hold-out rows, and a model on it."""
    from fedjax_sel import dataset

    rng = np.random.default_rng(3)
    data = dataset("noise", rng.normal(size=(260, 4)).astype(np.float32), rng.integers(0, 3, 260), test=0.1)
    federation = Federation(data, partition.Dirichlet(clients=11, alpha=0.5), holdout=0.25).draw(5)
    task = Task.on(MLP(classes=3, hidden=(6,), dropout=0.4), data)
    return jax.tree.map(jnp.asarray, federation), task, task.init(jax.random.key(2), data.x)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("candidates", [None, [7, 2, 9]])
@pytest.mark.parametrize("rows", [8192, 13])
def test_signals_of_clients_are_the_means_over_their_rows(asked, held, candidates, rows):
    data, task, variables = asked
    ctx = context(data.num_examples, 2)
    ctx = ctx.replace(candidates=None if candidates is None else jnp.array(candidates, jnp.int32))
    each = (signals.Entropy(0.7), signals.Loss(), signals.Margin(), signals.GradientNorm(), signals.Correct())
    wanted = {signal.name: signal for signal in each}
    got = measure_clients(
        wanted,
        task,
        variables,
        (),
        data,
        ctx,
        Layout(clients=4, examples=rows, seeds="scan"),
        key=jax.random.key(0),
        holdout=held,
    )
    logits = np.asarray(jax.jit(task.logits)(variables, data.x), np.float64)
    for slot, client in enumerate(range(11) if candidates is None else candidates):
        first = int(data.offset[client]) + (int(data.num_examples[client]) if held else 0)
        mine = np.asarray(data.order)[first : first + int((data.num_holdout if held else data.num_examples)[client])]
        if not len(mine):
            continue
        z, y = logits[mine], np.asarray(data.y)[mine]
        p = np.exp(z / 0.7) / np.exp(z / 0.7).sum(1, keepdims=True)
        best = np.sort(z, 1)
        expected = {
            "entropy": stats.entropy(p, axis=1).mean(),
            "loss": (np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]).mean(),
            "margin": (best[:, -1] - best[:, -2]).mean(),
            "correct": (z.argmax(1) == y).mean(),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(got[name][slot], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_gradient_norm_of_logistic_regression_is_the_one_by_hand():
    """∇_W = Xᵀ(p - onehot y)/n, ∇_b = mean(p - onehot y)."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(0, 2, 20)
    task = Task(LogisticRegression(classes=2))
    kernel, bias = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=2).astype(np.float32)
    variables = {"params": {"kernel": jnp.array(kernel.T), "bias": jnp.array(bias)}}
    from fedjax_sel.types import Batch

    mask = np.arange(20) < 15
    got = signals.GradientNorm().measure(
        task, variables, Batch(jnp.array(x), jnp.array(y), jnp.array(mask)), jax.random.key(0)
    )
    z = x[:15] @ kernel + bias
    r = np.exp(z) / np.exp(z).sum(1, keepdims=True) - np.eye(2)[y[:15]]
    np.testing.assert_allclose(got, np.sqrt(((x[:15].T @ r / 15) ** 2).sum() + (r.mean(0) ** 2).sum()), rtol=1e-5)


def test_at_equal_logits_entropy_is_log_c_and_ties_are_broken_at_random():
    np.testing.assert_allclose(signals.Entropy().measure(jnp.zeros((1, 7)), jnp.zeros(1, int)), np.log(7), rtol=1e-6)
    ctx = context(np.full(10, 5), 3)
    chosen = [
        Entropy(0.0).select(jax.random.key(k), (), ctx, entropy=jnp.full(10, np.log(2.0))).client for k in range(300)
    ]
    counts = np.bincount(np.ravel(chosen), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_entropy_of_two_classes_falls_with_the_distance_of_the_logits():
    """So that with logistic regression the top m are the clients nearest the boundary (exact)."""
    distance = jnp.linspace(0, 12, 60)
    h = signals.Entropy().measure(jnp.stack([distance, jnp.zeros(60)], 1), jnp.zeros(60, int))
    assert bool((jnp.diff(h) < 0).all())


def test_once_the_model_separates_the_top_m_are_the_boundary_clients():
    """A linear model that has the curve as its boundary, by a feature that is g(x) itself."""
    drawn = uacs(setting=1, seed=0)
    data = jax.tree.map(jnp.asarray, Federation(drawn, partition.Natural()).draw(0))
    data = data.replace(x=jnp.asarray(g(drawn.x), jnp.float32)[:, None])
    variables = {"params": {"kernel": jnp.array([[-8.0], [8.0]]), "bias": jnp.zeros(2)}}
    ctx = context(data.num_examples, 6)
    layout = Layout(seeds="scan")
    values = measure_clients(
        {"entropy": signals.Entropy()},
        Task(LogisticRegression(classes=2)),
        variables,
        (),
        data,
        ctx,
        layout,
        key=jax.random.key(0),
    )
    cohort = Entropy(0.0).select(jax.random.key(0), (), ctx, **values)
    assert sorted(cohort.client.tolist()) == [0, 1, 2, 3, 4, 5]


def uacs_rule(entropy, m, epsilon, coin, explorers):
    """The paper's Step 2."""
    return set(explorers) if coin < epsilon else set(np.argsort(-entropy)[:m])


def test_entropy_selection_follows_the_papers_rule_over_random_rounds():
    rng = np.random.default_rng(1)
    explored = 0
    for t in range(60):
        entropy = rng.permutation(20) / 20
        key = jax.random.key(t)
        cohort = set(
            Entropy(0.4)
            .select(key, (), context(np.ones(20), 5), entropy=jnp.asarray(entropy, jnp.float32))
            .client.tolist()
        )
        coin = float(jax.random.uniform(jax.random.split(key, 3)[0], (1,))[0])
        assert cohort == uacs_rule(entropy, 5, 0.4, coin, cohort)
        explored += coin < 0.4
    assert 10 < explored < 40


def test_one_coin_a_slot_explores_a_binomial_number_of_slots():
    ctx, entropy = context(np.ones(50), 6), jnp.arange(50.0)
    select = jax.jit(lambda k: Entropy(0.3, per_slot=True).select(k, (), ctx, entropy=entropy).client)
    chosen = np.array([select(jax.random.key(k)) for k in range(600)])
    assert all(len(set(row)) == 6 for row in chosen)
    outside = (chosen < 44).sum(1)
    # Explorers are drawn from all who are not already in, so a few of them are top clients again.
    assert abs(outside.mean() - 6 * 0.3 * 44 / (44 + 6 * 0.3)) < 0.15
    assert outside.max() >= 4
    assert outside.min() == 0


def test_power_of_choice_has_its_closed_form():
    """Chance that the client of loss rank r is in the cohort; Cho et al. 2020, uniform sizes. N = 10, d = 4, m = 2."""
    n, d, m, draws = 10, 4, 2, 40_000
    expected = [sum(comb(r - 1, j) * comb(n - r, d - 1 - j) for j in range(m)) / comb(n, d) for r in range(1, n + 1)]
    by_hand = [0.4, 0.4, 0.36667, 0.30952, 0.2381, 0.1619, 0.09048, 0.03333, 0, 0]
    np.testing.assert_allclose(expected, by_hand, atol=5e-6)
    np.testing.assert_allclose(sum(expected), m)
    selector, ctx, losses = PowerOfChoice(d=d), context(np.full(n, 3), m), jnp.arange(10.0, 0, -1)

    @jax.vmap
    def cohort(key):
        key_candidates, key_select = jax.random.split(key)
        asked = selector.candidates(key_candidates, (), ctx)
        return selector.select(key_select, (), ctx.replace(candidates=asked), loss=losses[asked]).client

    chosen = cohort(jax.random.split(jax.random.key(0), draws))
    share = np.bincount(np.ravel(chosen), minlength=n) / draws
    np.testing.assert_allclose(share, expected, atol=4 * np.sqrt(0.25 / draws))


def test_power_of_choice_refuses_too_few_and_too_many_candidates():
    for d in (3, 11):
        with pytest.raises(ValueError, match=rf"d is {d} candidates.* m = 4.* N = 10"):
            PowerOfChoice(d=d).init(jax.random.key(0), context(np.ones(10), 4), HOST)


def test_by_size_with_replacement_is_drawn_in_proportion_to_rows():
    size = np.array([10, 20, 30, 40])
    ctx = context(size, 3)
    chosen = jax.vmap(lambda k: BySize(replacement=True).select(k, (), ctx).client)(
        jax.random.split(jax.random.key(0), 4000)
    )
    counts = np.bincount(np.ravel(chosen), minlength=4)
    assert stats.chisquare(counts, size / size.sum() * counts.sum()).pvalue > 1e-4
    inclusion = np.array([(np.asarray(chosen) == i).any(1).mean() for i in range(4)])
    np.testing.assert_allclose(inclusion, 1 - (1 - size / size.sum()) ** 3, atol=0.03)


def test_by_size_without_replacement_draws_one_after_the_other():
    """First and second of two draws from (1, 2, 5): p_j and Σ_i p_i p_j / (1 - p_i)."""
    p = np.array([1, 2, 5]) / 8
    second = [sum(p[i] * p[j] / (1 - p[i]) for i in range(3) if i != j) for j in range(3)]
    ctx = context([1, 2, 5], 2)
    chosen = np.asarray(
        jax.vmap(lambda k: BySize().select(k, (), ctx).client)(jax.random.split(jax.random.key(1), 20_000))
    )
    np.testing.assert_allclose(np.bincount(chosen[:, 0], minlength=3) / 20_000, p, atol=0.015)
    np.testing.assert_allclose(np.bincount(chosen[:, 1], minlength=3) / 20_000, second, atol=0.015)


@pytest.mark.parametrize(("n", "m"), [(10, 3), (12, 4), (7, 7), (5, 1), (3, 2), (10, 6)])
def test_round_robin_reaches_everyone_once_in_every_cycle(n, m):
    selector, ctx = RoundRobin(), context(np.ones(n), m)
    state, seen = selector.init(jax.random.key(0), ctx, HOST), []
    cycle = -(-n // m)
    for t in range(12 * cycle):
        now = ctx.replace(round=jnp.int32(t))
        cohort = selector.select(jax.random.key(t), state, now)
        state = selector.observe(jax.random.key(t), state, now, cohort)
        seen.append(set(cohort.client.tolist()))
        if t >= cycle - 1:
            assert set.union(*seen[-cycle:]) == set(range(n))
        counts = np.bincount([i for s in seen for i in s], minlength=n)
        assert counts.max() - counts.min() <= 1


def test_round_robin_keeps_the_turn_of_a_client_that_was_away():
    selector, away = RoundRobin(), np.array([False, True, True, True])
    state = selector.init(jax.random.key(0), context(np.ones(4), 1), HOST)
    for t in range(3):
        ctx = context(np.ones(4), 1, available=away, round=t)
        state = selector.observe(jax.random.key(t), state, ctx, selector.select(jax.random.key(t), state, ctx))
    assert selector.select(jax.random.key(9), state, context(np.ones(4), 1, round=3)).client.tolist() == [0]


def test_top_m_is_numpys_sort_where_nothing_ties():
    rng = np.random.default_rng(0)
    for k in range(30):
        score, available = rng.permutation(15).astype(np.float32), rng.random(15) < 0.6
        cohort = top_m(jax.random.key(k), jnp.asarray(score), jnp.asarray(available), 4)
        ranked = [i for i in np.argsort(-score) if available[i]][:4]
        assert cohort.client[cohort.mask].tolist() == ranked


def test_uniform_and_gumbel_draws_of_equal_weights_are_uniform():
    keys = jax.random.split(jax.random.key(2), 6000)
    for draw in (
        lambda k: uniform_m(k, jnp.ones(8, bool), 3).client,
        lambda k: gumbel_m(k, jnp.zeros(8), jnp.ones(8, bool), 3).client,
    ):
        counts = np.bincount(np.ravel(jax.vmap(draw)(keys)), minlength=8)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_weights_of_the_mean_add_up_to_one_over_the_filled_slots():
    cohort = Cohort(jnp.array([4, 1, -1]), jnp.array([True, True, False]), jnp.array([1.0, 2.0, 0.0]))
    rows, steps = jnp.array([10, 30, 0]), jnp.array([1, 3, 0])
    steps, mean = Plan(steps, rows, steps.astype(jnp.float32)), aggregation.load("mean")
    np.testing.assert_allclose(mean("client").weights(cohort, rows, steps), [1 / 3, 2 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(mean("size").weights(cohort, rows, steps), [1 / 7, 6 / 7, 0], rtol=1e-6)
    nobody = cohort.replace(mask=jnp.zeros(3, bool))
    np.testing.assert_array_equal(mean("size").weights(nobody, rows, steps), [0, 0, 0])


@pytest.mark.parametrize(("rows", "fraction", "count"), [(10, 0.5, 5), (10, 0.04, 1), (7, 1.0, 7), (9, 0.34, 3)])
def test_a_random_subset_has_the_stated_number_of_rows_and_every_row_the_same_chance(rows, fraction, count):
    keep = jax.vmap(lambda k: RandomSubset(fraction).select(k, (), jnp.arange(12) < rows))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert set(np.asarray(keep.sum(1)).tolist()) == {count}
    np.testing.assert_allclose(np.asarray(keep.mean(0))[:rows], count / rows, atol=0.04)
