"""FedCor against dense covariances in NumPy: the likelihood's gradient, its ascent, the greedy choice, whole rounds."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_sel as fs
from fedjax_sel.client_selection import _gaussian_process
from fedjax_sel.client_selection._gaussian_process import fit, gradient, greedy
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""
KEY = jax.random.key(0)
SHAPES = [(3, 8, 0.5), (2, 20, 0.1), (15, 12, 0.01), (1, 5, 1.0), (15, 40, 0.01)]


def single(*arrays):
    return tuple(jnp.asarray(a, jnp.float32) for a in arrays)


def context(n, m, round=0, size=None, available=None):
    size = np.full(n, 10) if size is None else size
    available = np.ones(n, bool) if available is None else available
    return Context(jnp.int32(round), jnp.int32(50), jnp.asarray(size, jnp.int32), jnp.asarray(available), cohort_size=m)


def covariance(factor, noise):
    return factor.T @ factor + noise**2 * np.eye(factor.shape[1])


def dense(factor, noise, mean, changes, weight):
    """Of the weighted log likelihood: `X Σ_h w_h (Σ⁻¹ r_h r_hᵀ Σ⁻¹ - Σ⁻¹)`."""
    inverse = np.linalg.inv(covariance(factor, noise))
    residual = (changes - mean) @ inverse
    return factor @ ((weight[:, None] * residual).T @ residual - weight.sum() * inverse)


def adam(factor, noise, changes, weight, steps, rate):
    """As in the paper by Kingma and Ba."""
    factor, mean = factor.astype(float), weight @ changes / weight.sum()
    first = second = np.zeros_like(factor)
    for t in range(1, steps + 1):
        g = -dense(factor, noise, mean, changes, weight)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        factor = factor - rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return factor


def greedy_by_hand(sigma, p, alpha, available, m):
    """Who is chosen, and all scores at each choice; Σ is conditioned on each in full."""
    sigma, left, chosen, scores = sigma.astype(float), [int(i) for i in np.flatnonzero(available)], [], []
    while left and len(chosen) < m:
        scores.append({k: alpha[k] * p @ sigma[:, k] / np.sqrt(sigma[k, k]) for k in left})
        k = max(left, key=scores[-1].get)
        sigma = sigma - np.outer(sigma[:, k], sigma[k]) / sigma[k, k]
        left.remove(k)
        chosen.append(k)
    return chosen, scores


def instance(seed, k, n, draws=7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, n)) / np.sqrt(k), 0.3 * rng.normal(size=n), 0.5 * rng.normal(size=(draws, n))


@pytest.mark.parametrize(("k", "n", "noise"), SHAPES)
def test_the_gradient_is_the_dense_one(k, n, noise):
    factor, mean, changes = (a.astype(np.float32).astype(float) for a in instance(1, k, n))
    weight = 0.9 ** np.arange(7)
    got = jax.jit(gradient)(*single(np.concatenate([factor, changes - mean]), noise, weight))
    expected = dense(factor, noise, mean, changes, weight)
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("block", [8, 16, 40])
def test_the_gradient_is_the_same_in_blocks_of_clients(block, monkeypatch):
    factor, mean, changes = instance(1, 3, 40)
    monkeypatch.setattr(_gaussian_process, "BLOCK", block)
    got = gradient(*single(np.concatenate([factor, changes - mean]), 0.5, np.ones(7)))
    expected = dense(factor, 0.5, mean, changes, np.ones(7))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_dense_gradient_is_that_of_scipys_density():
    """So that the formula above is an oracle itself: central differences."""
    factor, mean, changes = instance(2, 2, 4)
    weight, by_difference = 0.9 ** np.arange(7), np.zeros((2, 4))
    for place in np.ndindex(2, 4):
        step = np.zeros((2, 4))
        step[place] = 1e-5
        two = [stats.multivariate_normal.logpdf(changes, mean, covariance(factor + s, 0.3)) for s in (step, -step)]
        by_difference[place] = weight @ (two[0] - two[1]) / 2e-5
    np.testing.assert_allclose(dense(factor, 0.3, mean, changes, weight), by_difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("k", "n", "noise"), [(3, 8, 0.3), (15, 12, 0.05)])
def test_thirty_steps_of_adam_are_those_of_the_dense_formula(k, n, noise):
    factor, _, changes = instance(3, k, n, draws=9)
    weight = np.where(np.arange(9) < 6, 0.9 ** np.arange(9), 0.0)  # three places without a draw
    run = jax.jit(lambda steps: fit(single(factor)[0], noise, *single(changes, weight), steps, 0.02))
    got, mean = run(30), weight @ changes / weight.sum()
    np.testing.assert_allclose(got, adam(factor, noise, changes, weight, 30, 0.02), atol=2e-3)
    likelihood = [
        weight @ stats.multivariate_normal.logpdf(changes, mean, covariance(np.asarray(x, float), noise))
        for x in (factor, run(5), run(15), got)
    ]
    assert (np.diff(likelihood) > 0).all()


def test_without_a_draw_nothing_is_fitted():
    factor, _, changes = instance(3, 3, 8)
    got = fit(*single(factor), 0.1, *single(changes, np.zeros(7)), jnp.int32(4), 0.01)
    np.testing.assert_array_equal(got, factor.astype(np.float32))


def test_the_greedy_choice_is_the_one_by_hand():
    sigma = np.array([[1, 0.8, 0, 0], [0.8, 1, 0.1, 0], [0, 0.1, 1, 0.5], [0, 0, 0.5, 1.2]])
    noise, p, alpha = 1e-2, np.full(4, 0.25), np.ones(4)
    chosen, scores = greedy_by_hand(sigma, p, alpha, np.ones(4, bool), 2)
    assert chosen == [1, 3]
    np.testing.assert_allclose(list(scores[0].values()), [0.45, 0.475, 0.4, 0.388], atol=5e-4)
    assert {k: round(v, 4) for k, v in scores[1].items()} == {0: 0.1167, 2: 0.3543, 3: 0.388}
    factor = np.linalg.cholesky(sigma - noise**2 * np.eye(4)).T
    client, score = greedy(*single(factor), noise, *single(p, alpha), jnp.ones(4, bool), 2)
    assert client.tolist() == [1, 3]
    np.testing.assert_allclose(score, [0.475, 0.388], atol=5e-4)


def test_the_greedy_choice_is_the_dense_one_in_random_instances():
    rng, n, m, empty = np.random.default_rng(6), 12, 5, 0
    choose = jax.jit(greedy, static_argnums=5)
    for seed in range(50):
        factor, _, _ = instance(seed, 6, n)
        p, alpha, available = rng.dirichlet(np.ones(n)), 0.7 ** rng.integers(0, 4, n), rng.random(n) < 0.5
        chosen, scores = greedy_by_hand(covariance(factor, 0.1), p, alpha, available, m)
        client, score = choose(*single(factor), 0.1, *single(p, alpha), jnp.asarray(available), m)
        assert client[: len(chosen)].tolist() == chosen
        highest = [max(s.values()) for s in scores]
        np.testing.assert_allclose(score[: len(chosen)], highest, rtol=1e-3, atol=1e-4)
        assert (score[len(chosen) :] == -np.inf).all()
        empty += len(chosen) < m
    assert empty > 3, "too few are available in some"


def test_more_clients_than_the_factor_has_rows_are_still_chosen_once_each():
    factor, _, _ = instance(0, 2, 9)
    p, alpha = np.full(9, 1 / 9), np.ones(9)
    client, score = greedy(*single(factor), 0.01, *single(p, alpha), jnp.ones(9, bool), 9)
    assert sorted(client.tolist()) == list(range(9))
    assert np.isfinite(score).all()


def on_two_devices(f):
    """`f`, compiled for two devices that share the clients."""
    everywhere = jax.sharding.PartitionSpec()
    mesh = fs.Layout(mesh=(1, 2)).devices()
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False))


@pytest.mark.parametrize("n", [17, 40])
def test_a_fit_divided_between_devices_is_that_of_the_dense_formula(n, monkeypatch):
    monkeypatch.setattr(_gaussian_process, "MANY", 16)
    monkeypatch.setattr(_gaussian_process, "BLOCK", 8)
    factor, _, changes = instance(3, 3, n, draws=9)
    weight = np.where(np.arange(9) < 6, 0.9 ** np.arange(9), 0.0)
    run = on_two_devices(lambda factor, changes, weight: fit(factor, 0.3, changes, weight, jnp.int32(30), 0.02))
    args = single(factor, changes, weight)
    np.testing.assert_allclose(run(*args), adam(factor, 0.3, changes, weight, 30, 0.02), atol=2e-3)
    text = run.lower(*args).compile().as_text()
    assert text.count(" all-reduce(") == text.count(" all-gather(") == 1, "a sum a step, and X at the end"


def test_a_choice_divided_between_devices_is_the_same(monkeypatch):
    """With clients of equal scores on both devices, and fewer available than are to be chosen."""
    rng, n, m, empty = np.random.default_rng(6), 13, 5, 0
    undivided = jax.jit(greedy, static_argnums=(1, 5))
    monkeypatch.setattr(_gaussian_process, "MANY", 4)
    choose = on_two_devices(lambda *args: greedy(args[0], 0.1, *args[1:], m))
    for seed in range(50):
        factor, _, _ = instance(seed, 6, n)
        p, alpha, available = rng.dirichlet(np.ones(n)), 0.7 ** rng.integers(0, 4, n), rng.random(n) < 0.5
        for of_client in (factor.T, p, alpha):
            of_client[8] = of_client[3]
        args = *single(factor, p, alpha), jnp.asarray(available)
        client, score = choose(*args)
        expected = undivided(args[0], 0.1, *args[1:], m)
        np.testing.assert_array_equal(client, expected[0])
        np.testing.assert_allclose(score, expected[1], rtol=1e-5, atol=1e-6)
        empty += int(np.isinf(score).any())
    assert 3 < empty < 47
    text = choose.lower(*args).compile().as_text()
    assert text.count(" all-gather(") == 1, "the best of each device"
    assert text.count(" all-reduce(") == 2, "the sum before all choices, and that of each"


def test_a_run_with_divided_clients_is_the_same(monkeypatch):
    digits = fs.load("digits")
    federation = fs.Federation(digits, fs.partition.Dirichlet(clients=9, alpha=0.5))
    task = fs.Task.on(fs.models.LogisticRegression(classes=10), digits)
    selector = FedCor(warm_up=2, interval=2, dimension=4, first_steps=20, steps=5)
    experiment = fs.Experiment(task, client_selection=selector, cohort_size=3, rounds=6)
    one = fs.simulate(experiment, federation, seeds=2)
    monkeypatch.setattr(_gaussian_process, "MANY", 4)
    two = fs.simulate(experiment, federation, seeds=2, mesh=(1, 2))
    np.testing.assert_array_equal(two.selections, one.selections)
    np.testing.assert_allclose(two["loss"], one["loss"], rtol=5e-4)


def known(change, available):
    """A client that was not asked, now or in the round before, changes as the mean of the others; None: nobody was."""
    there = available & np.isfinite(change)
    return np.where(there, change, change[there].mean()) if there.any() else None


class ByHand:
    """The docstring, with a list of draws that is never shortened."""

    def __init__(self, selector, n):
        self.s, self.discount, self.draws, self.loss = selector, np.ones(n), [], np.full(n, np.nan)
        self.least = 1.0  # the smallest element of a fit's first gradient, in terms of the largest

    def probes(self, t):
        return t > self.s.warm_up and t % self.s.interval == 0

    def asks(self, t):
        return t <= self.s.warm_up or self.probes(t)

    def recent(self, t):
        return [(drawn, change) for drawn, change in self.draws if t - drawn <= self.s.history]

    def observe(self, t, selected, loss, probed_loss, factor, available):
        """The factor after the round."""
        if 0 < t <= self.s.warm_up:
            self.draws.append((t - 1, known(loss - self.loss, available)))
        if self.probes(t):
            self.draws.append((t, known(probed_loss - loss, available)))
        self.draws = [(drawn, change) for drawn, change in self.draws if change is not None]
        self.loss = np.where(available & self.asks(t), loss, np.nan)
        if t > self.s.warm_up:
            self.discount[selected] *= self.s.beta
        if t == self.s.warm_up or self.probes(t):
            self.discount[:] = 1
            weight = np.array([self.s.gamma ** (t - drawn) for drawn, _ in self.recent(t)])
            changes = np.array([change for _, change in self.recent(t)])
            steps = self.s.first_steps if t == self.s.warm_up else self.s.steps
            size = np.abs(dense(factor, self.s.noise, weight @ changes / weight.sum(), changes, weight))
            self.least = min(self.least, size.min() / size.max())
            factor = adam(factor, self.s.noise, changes, weight, steps, self.s.learning_rate)
        return factor


def test_fedcor_is_its_rule_in_random_rounds():
    """What it is told in rounds in which it does not ask is rubbish here."""
    rng, n, m = np.random.default_rng(25), 12, 3
    selector = FedCor(
        beta=0.8, gamma=0.9, noise=0.05, warm_up=4, interval=5, history=20, learning_rate=0.03, first_steps=5, steps=3
    )
    size = rng.integers(5, 40, n)
    state, plain, happened = selector.init(KEY, context(n, m), HOST), ByHand(selector, n), Counter()
    select, observe = jax.jit(selector.select), jax.jit(selector.observe)
    for t in range(50):
        available = rng.random(n) < (0.2 if t % 11 == 9 else 0.0 if t in (2, 20) else 0.8)
        ctx = context(n, m, t, size, available)
        loss, probed = rng.uniform(0.5, 2.0, (2, n)).astype(np.float32).astype(float)
        assert bool(selector.asks(ctx.round)) == plain.asks(t)
        assert bool(selector.probes(ctx.round)) == plain.probes(t)
        cohort = select(jax.random.key(t), state, ctx, loss=single(loss)[0])
        client = cohort.client[cohort.mask].tolist()
        assert len(set(client)) == len(client) == min(m, available.sum())
        assert available[client].all()
        factor = np.asarray(state.factor, float)
        if t > selector.warm_up:
            sigma = covariance(factor, selector.noise)
            assert client == greedy_by_hand(sigma, size / size.sum(), plain.discount, available, m)[0]
            happened["short"] += int(len(client) < m)
        back = cohort.replace(mask=cohort.mask & jnp.asarray(rng.random(m) < 0.8))
        told = dict(zip(("loss", "probed_loss"), single(loss, probed), strict=True))
        state = observe(jax.random.key(t), state, ctx, back, **told)
        fitted = plain.observe(t, cohort.client[cohort.mask].tolist(), loss, probed, factor, available)
        np.testing.assert_allclose(state.factor, fitted, atol=2e-4)
        np.testing.assert_allclose(state.discount, plain.discount, rtol=1e-5)
        kept = {int(r): np.asarray(c) for r, c in zip(state.round, state.changes, strict=True) if r >= 0}
        for drawn, change in plain.recent(t):
            np.testing.assert_allclose(kept.pop(drawn), change, atol=1e-5)
        assert all(t - drawn > selector.history for drawn in kept)
        happened.update(fits=int((fitted != factor).any()), old=int(len(plain.recent(t)) < len(plain.draws)))
    assert plain.least > 1e-4, "Adam's first step follows a gradient's sign, which rounding decides below"
    assert happened["fits"] == 1 + 9  # at 4, then at 5, 10 ... 45
    assert min(happened["short"], happened["old"]) > 2


def test_while_warming_up_cohorts_are_uniform_and_after_it_there_is_no_chance():
    selector = FedCor(warm_up=4)
    state = selector.init(KEY, context(8, 3), HOST)
    draw = jax.jit(jax.vmap(lambda k, ctx: selector.select(k, state, ctx, loss=jnp.arange(8.0)).client, (0, None)))
    keys = jax.random.split(KEY, 3000)
    for t in (0, 4):
        counts = np.bincount(np.ravel(draw(keys, context(8, 3, t))), minlength=8)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert len({tuple(c) for c in draw(keys, context(8, 3, 5)).tolist()}) == 1


def test_a_fit_that_fails_is_reported_and_cohorts_are_uniform():
    """With fewer clients than rows of `X`, 32 bits do not tell `XXᵀ + σ²I` from a singular matrix."""
    digits = fs.load("digits")
    federation = fs.Federation(digits, fs.partition.Iid(6))
    selector = FedCor(noise=1e-5, warm_up=2, interval=50, first_steps=200)
    task = fs.Task.on(fs.models.LogisticRegression(classes=10), digits)
    experiment = fs.Experiment(task, client_selection=selector, cohort_size=2, rounds=60)
    with pytest.warns(UserWarning, match=r"FedCor: \d+ scores that are NaN"):
        history = fs.simulate(experiment, federation, seeds=1)
    later = history.selections[0, 3:]
    assert np.bincount(later.ravel(), minlength=6).min() > 0
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FedCor(beta=1.1), r"fedcor: beta is 1.1; it must be in \[0, 1\]"),
        (lambda: FedCor(gamma=-0.1), r"fedcor: gamma is -0.1; it must be in \[0, 1\]"),
        (lambda: FedCor(noise=0.0), "fedcor: noise is 0.0; it must be above 0"),
        (lambda: FedCor(noise=float("nan")), "fedcor: noise is nan"),
        (lambda: FedCor(learning_rate=jnp.array([0.1, 0.0])), "fedcor: learning_rate"),
        (lambda: FedCor(warm_up=0), "fedcor: warm_up is 0; it must be a whole number, at least 1"),
        (lambda: FedCor(interval=0), "fedcor: interval is 0"),
        (lambda: FedCor(history=0), "fedcor: history is 0"),
        (lambda: FedCor(dimension=0), "fedcor: dimension is 0"),
        (lambda: FedCor(first_steps=0), "fedcor: first_steps is 0"),
        (lambda: FedCor(steps=0), "fedcor: steps is 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_when_the_value_is_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_round_from_which_nobody_returned_is_no_draw_of_the_process():
    selector, ctx = FedCor(warm_up=4, interval=50), context(5, 2)
    state, lost = selector.init(KEY, ctx, HOST), jnp.linspace(1, 2, 5)
    for t, loss in enumerate((lost, lost, 0.9 * lost)):
        now = context(5, 2, t)
        one = selector.select(KEY, state, now, loss=loss)
        state = selector.observe(KEY, state, now, one, loss=loss, probed_loss=jnp.full(5, jnp.nan))
    assert int(state.count) == 1
    np.testing.assert_allclose(state.changes[0], -0.1 * lost, rtol=1e-5)
