"""The compiled round against slow, plain code."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, partition, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.gradient_norm import GradientNorm
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data.federated import Examples
from fedjax_sel.data_selection.random_subset import RandomSubset
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.local_training import Exponential
from fedjax_sel.local_training._shuffle import shuffle_epochs
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture
def skewed(blobs):
    """Clients of very unequal size."""
    return Federation(blobs, partition.Dirichlet(clients=9, alpha=0.4), data_seed=3)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fedavg_in_numpy(data, task, trainer, selections, seed, by):
    """Softmax regression by federated averaging, a client and a step at a time."""
    shift, scale = np.asarray(task.shift, np.float64), np.asarray(task.scale, np.float64)
    x, test = ((np.asarray(a, np.float64) - shift) * scale for a in (data.x, data.test_x))
    kernel, bias = np.zeros((x.shape[1], data.classes)), np.zeros(data.classes)
    accuracy, losses = [], []
    for t, cohort in enumerate(selections):
        sums, weights, round_loss = [np.zeros_like(kernel), np.zeros_like(bias)], 0.0, 0.0
        for client in cohort:
            rows = data.order[data.offset[client] : data.offset[client] + data.num_examples[client]]
            weight = len(rows) if by == "size" else 1
            key_order, _ = jax.random.split(key_for(jax.random.key(seed), Purpose.TRAIN, t, int(client)))
            place = np.asarray(shuffle_epochs(key_order, jnp.ones(len(rows), bool), trainer.epochs))
            k, b = kernel.copy(), bias.copy()
            moving_k, moving_b, total = np.zeros_like(k), np.zeros_like(b), 0.0
            for epoch in range(trainer.epochs):
                for first in range(0, len(rows), trainer.batch_size):
                    batch = rows[place[epoch][first : first + trainer.batch_size]]
                    p = softmax(x[batch] @ k + b)
                    total -= np.log(p[np.arange(len(batch)), data.y[batch]]).sum()
                    p[np.arange(len(batch)), data.y[batch]] -= 1
                    grad_k = x[batch].T @ p / len(batch) + trainer.weight_decay * k
                    grad_b = p.mean(0) + trainer.weight_decay * b
                    moving_k, moving_b = trainer.momentum * moving_k + grad_k, trainer.momentum * moving_b + grad_b
                    rate = trainer.learning_rate * trainer.schedule.rate**t * trainer.epoch_decay**epoch
                    k, b = k - rate * moving_k, b - rate * moving_b
            sums = [sums[0] + weight * (k - kernel), sums[1] + weight * (b - bias)]
            weights += weight
            round_loss += weight * total / (trainer.epochs * len(rows))
        kernel, bias = kernel + sums[0] / weights, bias + sums[1] / weights
        accuracy.append((np.argmax(test @ kernel + bias, 1) == data.test_y).mean())
        losses.append(round_loss / weights)
    p = softmax(test @ kernel + bias)
    return accuracy, losses, -np.log(p[np.arange(len(p)), data.test_y]).mean()


@pytest.mark.parametrize(
    ("by", "layout"),
    [
        ("size", Layout()),
        ("size", Layout(clients=1)),
        ("size", Layout(clients=2, seeds="scan", examples=7)),
        ("client", Layout()),
    ],
    ids=str,
)
def test_the_compiled_run_is_federated_averaging_as_written_in_numpy(blobs, skewed, layout, by):
    decays = {"epoch_decay": 0.7, "schedule": Exponential(0.9)}
    trainer = SGD(0.2, batch_size=8, epochs=2, momentum=0.5, weight_decay=0.01, **decays)
    task = Task.on(LogisticRegression(classes=3), blobs)
    experiment = Experiment(task, local_training=trainer, aggregation=Mean(weighting=by), cohort_size=3, rounds=7)
    history = simulate(experiment, skewed, seeds=[4, 9], layout=layout)
    for i, seed in enumerate((4, 9)):
        accuracy, losses, last = fedavg_in_numpy(skewed.draw(seed), task, trainer, history.selections[i], seed, by)
        np.testing.assert_allclose(history["accuracy"][i], accuracy, atol=1e-6)
        np.testing.assert_allclose(history["training_loss"][i], losses, **CLOSE)
        np.testing.assert_allclose(history["loss"][i, -1], last, **CLOSE)


@pytest.mark.parametrize(
    "selector", [Uniform(), Entropy(0.3), GradientNorm(), PowerOfChoice(d=6)], ids=lambda s: type(s).__name__
)
def test_every_mapping_and_the_uncompiled_run_agree(blobs, skewed, selector):
    experiment = Experiment(
        Task.on(MLP(classes=3, hidden=(5,), dropout=0.2), blobs),
        client_selection=selector,
        data_selection=RandomSubset(0.7),
        local_training=SGD(0.1, batch_size=16, epochs=2, momentum=0.9),
        cohort_size=4,
        rounds=2,
    )
    uncompiled = simulate(experiment, skewed, seeds=[2], debug=True)
    for layout in (Layout(), Layout(clients=1, seeds="scan"), Layout(clients=3, examples=50)):
        compiled = simulate(experiment, skewed, seeds=[1, 2], layout=layout)
        np.testing.assert_array_equal(compiled.selections[1:], uncompiled.selections)
        for metric in compiled.metrics:
            np.testing.assert_allclose(compiled[metric][1:], uncompiled[metric], **CLOSE, err_msg=metric)


def test_a_seed_alone_is_the_seed_within_a_sweep(blobs):
    federation = Federation(blobs, partition.Dirichlet(clients=9, alpha=0.4))
    experiment = Experiment(Task.on(MLP(classes=3), blobs), client_selection=Entropy(), cohort_size=3, rounds=6)
    together = simulate(experiment, federation, seeds=[0, 5, 8])
    alone = simulate(experiment, federation, seeds=[5])
    np.testing.assert_array_equal(together.selections[1], alone.selections[0])
    np.testing.assert_allclose(together["loss"][1], alone["loss"][0], **CLOSE)


def test_chunks_change_nothing_and_share_one_program(blobs, skewed):
    experiment = Experiment(
        Task.on(MLP(classes=3), blobs), client_selection=Entropy(), cohort_size=3, rounds=11, evaluate_every=3
    )
    before = run_chunk.programs
    in_fours = simulate(experiment, skewed, seeds=2, chunk=4)
    assert run_chunk.programs == before + 1, "the last chunk is shorter and must not be compiled for itself"
    at_once = simulate(experiment, skewed, seeds=2, chunk=11)
    np.testing.assert_array_equal(in_fours.selections, at_once.selections)
    np.testing.assert_allclose(in_fours["loss"], at_once["loss"], **CLOSE)
    assert np.flatnonzero(~np.isnan(at_once["accuracy"][0])).tolist() == [2, 5, 8, 10]


def test_exploring_or_not_seeds_and_length_of_the_run_share_one_program(blobs, skewed):
    experiment = Experiment(Task.on(MLP(classes=3), blobs), client_selection=Entropy(0.0), cohort_size=3, rounds=20)
    simulate(experiment, skewed, seeds=[0, 1], chunk=5)
    before = run_chunk.programs
    simulate(experiment.replace(client_selection=Entropy(0.1)), skewed, seeds=[0, 1], chunk=5)
    simulate(experiment.replace(rounds=15, evaluate_every=2), skewed, seeds=[2, 3], chunk=5)
    assert run_chunk.programs == before


def test_padding_does_not_change_a_client(blobs):
    """The same clients beside one that owns far more rows."""
    noise = jax.random.key(0)
    short = shuffle_epochs(noise, jnp.arange(10) < 7, 3)[:, :7]
    long = shuffle_epochs(noise, jnp.arange(99) < 7, 3)[:, :7]
    np.testing.assert_array_equal(short, long)


def test_a_step_of_local_training_is_optax_sgd(blobs, skewed):
    """One client, full batch: momentum and decay are optax's own."""
    data = jax.tree.map(jnp.asarray, skewed.draw(0))
    task = Task.on(MLP(classes=3, hidden=(4,)), blobs)
    variables = task.init(jax.random.key(1), data.x)
    trainer = SGD(0.1, batch_size=None, steps=4, momentum=0.9, weight_decay=0.05)
    index, valid = data.examples_of(jnp.int32(2))
    plan = trainer.plan(valid.sum(), data.longest, jnp.int32(0), jnp.int32(1))
    examples = Examples(data, index, valid)
    update = trainer.train(jax.random.key(3), task, variables, examples, plan, num_steps=jnp.int32(6))
    rows = np.asarray(index)[np.asarray(valid)]

    def loss(v):
        return optax.softmax_cross_entropy_with_integer_labels(task.logits(v, data.x[rows]), data.y[rows]).mean()

    optimiser = optax.chain(optax.add_decayed_weights(0.05), optax.sgd(0.1, momentum=0.9))
    expected, moments, gradient = variables, optimiser.init(variables), jax.jit(jax.grad(loss))
    for _ in range(4):
        change, moments = optimiser.update(gradient(expected), moments, expected)
        expected = optax.apply_updates(expected, change)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, **CLOSE),
        update.delta,
        jax.tree.map(jnp.subtract, expected, variables),
    )
    assert (int(update.num_examples), int(update.steps), int(update.examples_seen)) == (len(rows), 4, 4 * len(rows))


def test_clients_of_unequal_size_take_their_own_number_of_steps(blobs, skewed):
    data = skewed.draw(0)
    trainer = SGD(batch_size=8, epochs=3)
    steps = trainer.plan(jnp.asarray(data.num_examples), data.longest, jnp.int32(0), jnp.int32(1)).steps
    np.testing.assert_array_equal(steps, 3 * np.ceil(data.num_examples / 8))
    assert len(set(np.asarray(steps).tolist())) > 2
