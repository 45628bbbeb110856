"""Clipped and noisy averages, at the level of clients and of examples, against NumPy, optax and the accountant."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from fedjax_sel import Experiment, Federation, Task, dataset, partition, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.by_size import BySize
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data.federated import Examples
from fedjax_sel.data_selection.fed_balancer import FedBalancer
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.privacy import epsilon_of
from fedjax_sel.local_training._shuffle import shuffle_epochs
from fedjax_sel.local_training.dp_sgd import DPSGD
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.metrics.privacy import epsilon
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.resnet import ResNet
from fedjax_sel.protocols import Signals
from fedjax_sel.signals import Loss, Sketch, UpdateNorm
from fedjax_sel.types import Batch, Cohort, Plan

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
M, N = 3, 6


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(7)
    y = np.arange(120) % 3
    x = rng.normal(size=(120, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    return Federation(dataset("blobs", x.astype(np.float32), y, test=0.2), partition.Iid(clients=N))


BASE = Experiment(Task(LogisticRegression(classes=3)), local_training=SGD(0.5), cohort_size=M, rounds=1)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.fixture(scope="module")
def alone(clients):
    """The update of each client by itself: everybody begins at 0."""
    data = jax.tree.map(jnp.asarray, clients.draw(0))
    variables, trainer = BASE.task.init(jax.random.key(0), data.x), BASE.local_training

    @jax.jit
    def update(client):
        examples = Examples(data, *data.examples_of(client))
        plan = trainer.plan(examples.mask.sum(), data.longest, 0, 1)
        key = key_for(jax.random.key(0), Purpose.TRAIN, 0, client)
        return trainer.train(key, BASE.task, variables, examples, plan, num_steps=plan.steps).delta

    return {i: update(jnp.int32(i)) for i in range(N)}


def run(clients, **changes):
    history = simulate(BASE.replace(**changes), clients)
    return jax.tree.map(lambda leaf: leaf[0], history.variables), [int(i) for i in history.selections[0, 0]]


def test_updates_are_clipped_and_the_noise_has_its_deviation(clients, alone):
    norms = {i: np.linalg.norm(flat(delta)) for i, delta in alone.items()}
    clip = float(np.median(list(norms.values())))
    clipped, cohort = run(clients, aggregation=DPFedAvg(clip=clip, noise_multiplier=0.0))
    expected = sum(flat(alone[i]) * min(1.0, clip / norms[i]) for i in cohort) / M
    np.testing.assert_allclose(flat(clipped), expected, **CLOSE)
    assert min(norms.values()) < clip < max(norms.values())

    noisy, _ = run(clients, aggregation=DPFedAvg(clip=clip, noise_multiplier=2.0))
    leaves, tree = jax.tree.flatten(clipped)
    keys = jax.random.split(key_for(jax.random.key(0), Purpose.NOISE, 0), len(leaves))
    noise = [2.0 * clip / M * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    np.testing.assert_allclose(flat(noisy) - flat(clipped), flat(tree.unflatten(noise)), **CLOSE)


def test_one_client_moves_the_average_by_no_more_than_the_clip_over_m(clients, alone):
    """Whatever it sends, and however few others return."""
    rule = DPFedAvg(clip=0.1)
    huge = rule.receive(jax.tree.map(lambda leaf: 1e6 * leaf, alone[0]))
    assert np.linalg.norm(flat(huge)) == pytest.approx(0.1, rel=1e-5)
    np.testing.assert_array_equal(flat(rule.receive(jax.tree.map(jnp.zeros_like, huge))), 0)
    one = Cohort(jnp.array([4, 1, -1]), jnp.array([True, False, False]), jnp.array([5.0, 2.0, 9.0]))
    none = jnp.zeros(M, int)
    np.testing.assert_allclose(rule.weights(one, none, Plan(none, none, jnp.zeros(M))), [1 / M, 0, 0], rtol=1e-6)


def test_the_sum_is_divided_by_the_expected_number_of_members(clients, alone):
    """Of 6 clients each is there with chance one half; the mean over many draws of who is there is that of all."""
    rule = DPFedAvg(clip=1e6, noise_multiplier=0.0, expected=0.5 * N)
    changes = {"aggregation": rule, "cohort_size": N, "availability": Bernoulli(0.5)}
    moved, cohort = run(clients, **changes)
    there = [client for client in cohort if client >= 0]
    assert 0 < len(there) < N
    np.testing.assert_allclose(flat(moved), sum(flat(alone[i]) for i in there) / (0.5 * N), **CLOSE)
    noise = jnp.concatenate(
        [
            leaf.ravel()
            for leaf in jax.tree.leaves(
                DPFedAvg(clip=2.0, noise_multiplier=3.0, expected=4.0).perturb(
                    jax.random.key(0), {"w": jnp.zeros(4000)}, N
                )
            )
        ]
    )
    np.testing.assert_allclose(noise.std(), 3.0 * 2.0 / 4.0, rtol=0.05)


def test_noise_is_released_though_nobody_is_there(clients):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noisy, _ = run(clients, aggregation=DPFedAvg(), availability=Bernoulli(0.0))
        plain, _ = run(clients, aggregation=Mean(), availability=Bernoulli(0.0))
    assert np.abs(flat(noisy)).min() > 0
    np.testing.assert_array_equal(flat(plain), 0)


class Measuring(Uniform):
    """Is told of the trained models and of the updates as they were sent."""

    def signals(self):
        return Signals(trained=[UpdateNorm(), Loss()], after={"sent": Sketch(None)})

    def observe(self, key, state, ctx, cohort, *, update_norm, loss, sent):
        jax.debug.callback(lambda *values: TOLD.append(values), update_norm, loss, sent)
        return state


TOLD = []


def test_signals_of_trained_updates_are_of_what_is_sent_and_those_of_models_of_what_was_trained(clients):
    told = []
    for rule in (DPFedAvg(clip=0.01, noise_multiplier=0.0), Mean()):
        TOLD.clear()
        run(clients, aggregation=rule, client_selection=Measuring())
        jax.effects_barrier()
        told.append([np.asarray(value) for value in TOLD[0]])
    (norm, loss, sent), (whole, same, _) = told
    np.testing.assert_allclose(norm, 0.01, rtol=1e-5)
    np.testing.assert_allclose(norm, np.linalg.norm(sent, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(loss, same, rtol=1e-6)
    assert (whole > 0.02).all()


def test_a_large_clip_without_noise_is_the_mean(clients):
    one, _ = run(clients, aggregation=DPFedAvg(clip=1e6, noise_multiplier=0.0))
    np.testing.assert_allclose(flat(one), flat(run(clients, aggregation=Mean())[0]), **CLOSE)


def test_private_steps_are_optax_s(clients):
    """`optax.contrib.differentially_private_aggregate` on every batch, without noise; and the noise's deviation."""
    data = jax.tree.map(jnp.asarray, clients.draw(0))
    task, key, clip = BASE.task, jax.random.key(3), 0.7
    variables = task.init(jax.random.key(0), data.x)
    index, mask = data.examples_of(jnp.int32(1))

    @jax.jit
    def train(trainer):
        examples = Examples(data, index, mask)
        plan = trainer.plan(mask.sum(), data.longest, 0, 1)
        return trainer.train(key, task, variables, examples, plan, num_steps=plan.steps + 1).delta

    trainer = DPSGD(0.3, batch_size=5, clip=clip, noise_multiplier=0.0)
    order = np.asarray(shuffle_epochs(jax.random.split(key)[0], mask, 1))[0]
    rule = optax.contrib.differentially_private_aggregate(clip, 0.0, 0)
    params, state = variables, rule.init(variables)
    count = int(mask.sum())
    for start in range(0, count, 5):
        own = np.asarray(index)[order[start : min(start + 5, count)]]

        def loss(params, x, y):
            return task.example_losses(task.logits(params, x[None]), y[None])[0]

        each = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, data.x[own], data.y[own])
        change, state = rule.update(each, state)
        rate = 0.3 * len(own) / 5
        params = jax.tree.map(lambda w, g, rate=rate: w - rate * g, params, change)
    expected = flat(params) - flat(variables)
    np.testing.assert_allclose(flat(train(trainer)), expected, **CLOSE)

    noise = flat(train(trainer.replace(noise_multiplier=50.0))) - flat(train(trainer))
    steps = -(-count // 5)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(0.3 * 50 * clip / 5 * np.sqrt(steps), rel=0.5)


def test_each_part_of_a_gradient_has_noise_of_its_own_in_default_floats():
    trained = {"a": jnp.ones((4, 3)), "b": (jnp.zeros(5, jnp.bfloat16), jnp.ones(()))}
    batch, key = Batch(jnp.zeros((6, 2)), jnp.zeros(6, int), jnp.ones(6, bool)), jax.random.key(3)
    trainer = DPSGD(0.3, batch_size=4, clip=0.5, noise_multiplier=2.0)
    still, _ = trainer.batch_gradient(lambda *_: (0.0, (jnp.zeros(()), {})), trained, {}, batch, key)
    leaves, tree = jax.tree.flatten(trained)
    keys = jax.random.split(jax.random.split(key)[1], len(leaves))
    noise = [2.0 * 0.5 * jax.random.normal(k, leaf.shape) / 4 for k, leaf in zip(keys, leaves, strict=True)]
    assert {leaf.dtype for leaf in jax.tree.leaves(still)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_array_equal(flat(still), flat(tree.unflatten(noise)))


def test_epsilon_is_the_published_one():
    """Abadi et al., 2016, section 4: q = 0.01, σ = 4, T = 10,000, δ = 1e-5 give ε = 1.26.

    From Rényi divergences of whole orders (Mironov et al., 2019, section 3.3); the accountant turns the same ones into
    ε by the tighter bound of Canonne et al., 2020, proposition 12.
    """
    pytest.importorskip("dp_accounting")
    q, sigma, rounds, delta, orders = 0.01, 4.0, 10_000, 1e-5, np.arange(2, 200)
    divergence = np.empty(len(orders))
    for i, a in enumerate(orders):
        k = np.arange(a + 1)
        chances = binom.logpmf(k, a, q)
        divergence[i] = rounds * logsumexp(chances + (k**2 - k) / (2 * sigma**2)) / (a - 1)
    assert np.min(divergence - np.log(delta) / (orders - 1)) == pytest.approx(1.26, abs=0.005)
    tight = divergence + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    assert epsilon(sigma, rounds, share=q, delta=delta) == pytest.approx(np.min(tight), rel=0.01)
    one = epsilon(2.0, 1, share=1.0, delta=1e-5)  # the Gaussian mechanism, α / (2 z²), at its best order
    orders = np.linspace(1.01, 200, 100_000)
    assert one <= np.min(orders / 8 + np.log(1e5) / (orders - 1)) + 1e-6
    assert epsilon(1.0, 5, share=(10, 100), delta=1e-5, sampling="fixed") > epsilon(1.0, 5, share=0.1, delta=1e-5)
    assert epsilon(0.0, 5, share=0.1, delta=1e-5) == float("inf")


def test_the_epsilon_of_some_clients_is_at_most_that_of_all():
    pytest.importorskip("dp_accounting")
    found = [epsilon(4.0, 50, share=(m, 30), delta=1e-3, sampling="fixed") for m in (5, 25, 29, 30)]
    assert found == sorted(found)
    assert found[0] < found[-1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"delta": 1e5}, "epsilon: delta is 100000.0; it must be"),
        ({"delta": 0.0}, "epsilon: delta is 0.0; it must be"),
        ({"delta": float("nan")}, "epsilon: delta is nan; it must be"),
        ({"rounds": 0}, "epsilon: rounds is 0; it must be a whole number, at least 1"),
        ({"noise_multiplier": -1.0}, "epsilon: noise_multiplier is -1.0; it must be"),
        ({"share": 0.0}, r"epsilon: share is 0.0; it must be in \(0, 1\]"),
        ({"share": 1.5}, r"epsilon: share is 1.5; it must be in \(0, 1\]"),
        ({"share": (5, 3), "sampling": "fixed"}, r"share is \(5, 3\); it must be whole numbers, the first"),
        ({"share": (0, 3), "sampling": "fixed"}, r"share is \(0, 3\); it must be whole numbers, the first"),
    ],
    ids=str,
)
def test_numbers_of_which_there_is_no_epsilon_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        epsilon(**{"noise_multiplier": 1.0, "rounds": 5, "share": 0.1, "delta": 1e-5, **changes})


def test_epsilon_of_an_experiment(clients):
    pytest.importorskip("dp_accounting")
    data, private = clients.draw(0), BASE.replace(aggregation=DPFedAvg(noise_multiplier=1.5), rounds=20)
    fixed = epsilon(1.5, 20, share=(M, N), delta=1e-3, sampling="fixed")
    assert epsilon_of(private, data, 1e-3) == pytest.approx(fixed)
    drawn = private.replace(availability=Bernoulli(0.25), cohort_size=N)
    assert epsilon_of(drawn, data, 1e-3) == pytest.approx(epsilon(1.5, 20, share=0.25, delta=1e-3))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"aggregation": Mean()}, "no ε: aggregation is Mean, not DPFedAvg"),
        ({"client_selection": BySize()}, "no ε: client_selection is BySize"),
        ({"client_selection": Measuring()}, "no ε: client_selection is Measuring, not Uniform"),
        ({"volatility": Bernoulli(0.5)}, "no ε: volatility is Bernoulli"),
        ({"data_selection": FedBalancer()}, "no ε: data_selection is FedBalancer, by which clients tell the server"),
        ({"availability": Bernoulli(0.5)}, r"no ε: availability is Bernoulli and cohort_size is 3 of N = 6"),
    ],
)
def test_where_the_guarantee_does_not_hold_there_is_no_epsilon(changes, match, clients):
    with pytest.raises(ValueError, match=match):
        epsilon_of(BASE.replace(**{"aggregation": DPFedAvg(), **changes}), clients.draw(0), 1e-3)


def test_moments_of_the_clients_examples_have_no_epsilon_unless_they_are_said_to_be_public(clients):
    """Another client's examples would change every client's update."""
    pytest.importorskip("dp_accounting")
    data, private = clients.draw(0), BASE.replace(aggregation=DPFedAvg(noise_multiplier=1.5), rounds=20)
    normalised = private.replace(task=Task.on(LogisticRegression(classes=3), clients.source))
    with pytest.raises(ValueError, match=r"no ε: the task normalises by moments .* use Task.on\(\.\.\."):
        epsilon_of(normalised, data, 1e-3)
    assert epsilon_of(normalised, data, 1e-3, public_moments=True) == epsilon_of(private, data, 1e-3)


def test_a_pretrained_start_has_no_epsilon_unless_it_is_said_to_be_public(clients):
    data, private = clients.draw(0), BASE.replace(aggregation=DPFedAvg(noise_multiplier=1.5), rounds=20)
    before = private.task.init(jax.random.key(1), data.like)
    tuned = private.replace(task=private.task.fine_tune(data.like, pretrained=before))
    with pytest.raises(ValueError, match=r"no ε: the task starts from pretrained variables.*public_start=True"):
        epsilon_of(tuned, data, 1e-3)
    pytest.importorskip("dp_accounting")
    assert epsilon_of(tuned, data, 1e-3, public_start=True) == epsilon_of(private, data, 1e-3)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"share is 0\.1; with sampling='fixed' it must be"):
        epsilon(1.0, 1, share=0.1, delta=1e-5, sampling="fixed")
    with pytest.raises(ValueError, match=r"clip is 0\.0; it must be in \(0, inf\)"):
        DPFedAvg(clip=0.0)
    task, trainer = Task(ResNet(depth=8)), DPSGD()
    variables = jax.eval_shape(lambda: task.init(jax.random.key(0), jnp.zeros((1, 8, 8, 3))))
    batch = Batch(jnp.zeros((1, 8, 8, 3)), jnp.zeros(1, jnp.int32), jnp.ones(1, bool))
    with pytest.raises(ValueError, match="statistics of batches"):
        trainer.batch_gradient(lambda: 0, *task.split(variables), batch, jax.random.key(0))


def test_a_whole_batch_is_divided_by_the_clients_examples_not_by_the_padding(clients):
    data = jax.tree.map(jnp.asarray, clients.draw(0))
    variables = BASE.task.init(jax.random.key(0), data.x)

    def train(trainer, longest):
        padded = replace(data, longest=longest)
        index, mask = padded.examples_of(jnp.int32(1))
        plan = trainer.plan(mask.sum(), longest, 0, 1)
        return flat(
            trainer.train(
                jax.random.key(3), BASE.task, variables, Examples(padded, index, mask), plan, num_steps=1
            ).delta
        )

    private, plain = DPSGD(0.3, batch_size=None, clip=1e9, noise_multiplier=0.0), SGD(0.3, batch_size=None)
    for longest in (data.longest, 2 * data.longest):
        np.testing.assert_allclose(train(private, longest), train(plain, longest), **CLOSE)
