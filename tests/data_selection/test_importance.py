"""Importance sampling and FedSampling: the expected weighted gradient is the full one, exactly and by drawing."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Federation, Task, dataset, partition, signals
from fedjax_sel.data_selection.fed_sampling import FedSampling, answer_at_random
from fedjax_sel.data_selection.importance import Importance, draw_examples, mix_chances, weigh_draws
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context, Turn

BOUND = jnp.array([0.5, 2.0, 0.1, 1.0, 7.0])
VALID = jnp.arange(5) < 4
GRADIENT = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
KEYS = jax.random.split(jax.random.key(3), 20_000)


@pytest.mark.parametrize("uniform", [0.0, 0.3])
def test_the_expected_mean_of_the_weighted_gradients_over_all_draws_is_the_full_gradient(uniform):
    """All 4³ sequences of three draws, each with its chance; what a client minimises is the mean over what it drew."""
    q = np.asarray(mix_chances(BOUND, VALID, uniform), np.float64)
    np.testing.assert_allclose(
        q, (1 - uniform) * np.array([0.5, 2, 0.1, 1, 0]) / 3.6 + uniform * np.array([1, 1, 1, 1, 0]) / 4
    )
    draws = np.array(list(itertools.product(range(4), repeat=3)))
    times = np.array([np.bincount(one, minlength=5) for one in draws], np.float32)
    weight = np.asarray(jax.vmap(lambda t: weigh_draws(t, jnp.asarray(q, jnp.float32), VALID))(jnp.asarray(times)))
    expected = np.where(times > 0, times / (4 * 3 * np.where(q > 0, q, 1)) * (times > 0).sum(1, keepdims=True), 0)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    each = (weight @ GRADIENT) / (times > 0).sum(1, keepdims=True)
    chance = q[draws].prod(1)
    np.testing.assert_allclose(chance.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(chance @ each, GRADIENT[:4].mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bound", [[np.inf, 1, 1, 1, 0], [np.nan, 1, 1, 1, 0], [0, 0, 0, 0, 9], [3e38, 3e38, 1, 1, 0]])
def test_bounds_that_say_nothing_draw_uniformly(bound):
    np.testing.assert_allclose(mix_chances(jnp.array(bound, jnp.float32), VALID, 0.0), [0.25, 0.25, 0.25, 0.25, 0])


def test_draws_have_their_chances_and_a_selection_is_what_its_draws_weigh():
    q = mix_chances(BOUND, VALID, 0.0)
    drawn = np.asarray(jax.vmap(lambda key: draw_examples(key, q))(KEYS)).ravel()
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / len(drawn), q, atol=4e-3)
    weight = np.asarray(jax.vmap(lambda key: Importance(0.5).select(key, (), VALID, bound=BOUND))(KEYS))
    once = jax.vmap(lambda key: Importance(0.25, uniform=0.3).select(key, (), VALID, bound=BOUND) > 0)(KEYS)
    np.testing.assert_allclose(once.mean(0), mix_chances(BOUND, VALID, 0.3), atol=0.016)
    different = (weight > 0).sum(1, keepdims=True)
    assert set(different.ravel()) == {1, 2}, "two draws of four examples"
    each = weight @ GRADIENT / different
    error = each.mean(0) - GRADIENT[:4].mean(0)
    assert (np.abs(error) < 4 * each.std(0) / np.sqrt(len(KEYS))).all()


def test_the_bound_is_the_one_that_was_asked_for():
    assert Importance(bound="last_layer").signals() == {"bound": signals.GraNd()}


def test_an_example_without_a_chance_is_not_drawn_where_sums_in_32_bits_do_not_rise(monkeypatch):
    """XLA adds up in another order for each place. Every mark is where one example ends and the next begins."""
    rng = np.random.default_rng(0)
    bound = jnp.asarray(np.where(rng.random(3001) < 0.5, rng.random(3001), 0), jnp.float32)
    q = mix_chances(bound, jnp.ones(3001, bool), 0.0)
    reach = jnp.cumsum(q)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: reach / reach[-1])
    drawn = np.asarray(draw_examples(KEYS[0], q))
    assert (np.asarray(q)[drawn] > 0).all()
    assert (np.abs(drawn - np.arange(3001)) < 30).all()


def test_examples_without_a_bound_are_drawn_evenly_and_padding_never():
    assert mix_chances(jnp.zeros(5), VALID, 0.0).tolist() == [0.25, 0.25, 0.25, 0.25, 0]
    weight = Importance(1.0).select(KEYS[0], (), VALID, bound=jnp.zeros(5))
    assert weight[4] == 0
    np.testing.assert_allclose(weight.sum() / (weight > 0).sum(), 1.0, rtol=1e-6)


SIZES = [3, 5, 8, 1]


def prepare(samples, key=KEYS[0], m=2):
    labels = np.arange(20) % 2
    data = dataset("few", np.zeros((20, 2), np.float32), labels, test=0.1)
    drawn = Federation(data, partition.Iid(clients=4)).draw(0)
    task = Task(LogisticRegression(classes=2))
    ctx = Context(jnp.int32(0), jnp.int32(1), jnp.array(SIZES), jnp.ones(4, bool), cohort_size=m)
    return samples.prepare(key, ctx, Host(task, drawn, {}))


def test_every_example_of_every_client_takes_part_with_the_same_chance_and_the_sum_is_unbiased():
    """`K = 5` of 17 examples, two of four clients: `p = 5 · 4 / (17 · 2)`."""
    ready = prepare(FedSampling(examples=5.0))
    np.testing.assert_allclose(ready.server, 10 / 17, rtol=1e-6)
    assert ready.cost.up == 4
    none = jnp.int32(0)
    turn = Turn(none, none, jnp.zeros(5, int), ready.server, None, {})
    taken = np.asarray(jax.vmap(lambda key: FedSampling().select(key, (), VALID, turn=turn))(KEYS[:4000]))
    np.testing.assert_allclose(taken[:, :4].mean(0), 10 / 17, atol=0.03)
    assert not taken[:, 4].any()
    total = 17 / 5 * (2 / 4) * taken @ GRADIENT  # times the chance of a client to be in the cohort
    np.testing.assert_allclose(total.mean(0), GRADIENT[:4].sum(0), atol=4 * total.std(0).max() / np.sqrt(4000))


def test_answers_at_random_estimate_how_many_examples_there_are():
    size, n, honest, most = jnp.array(SIZES), 4, 0.4, 12
    answers = jax.vmap(lambda key: answer_at_random(key, size, honest, most).sum())(KEYS)
    estimate = (answers - n * (1 - honest) * most / 2) / honest
    np.testing.assert_allclose(estimate.mean(), 17, atol=4 * float(estimate.std()) / np.sqrt(len(KEYS)))
    chances = [float(prepare(FedSampling(examples=2.0, honest=0.4, most=12), key).server) for key in KEYS[:30]]
    assert max(chances) <= 1.0  # of at least N examples
    assert len(set(chances)) > 5


def test_how_much_a_client_may_answer_is_one_more_than_the_largest_has():
    """And nothing of how long the clients of other seeds are, beside which the federation is padded."""
    largest = [
        float(prepare(FedSampling(examples=2.0, honest=0.4, most=m), key).server)
        for m in (9, None)
        for key in KEYS[:20]
    ]
    assert largest[:20] == largest[20:]
