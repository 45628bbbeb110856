"""The way a client goes: the sum of its steps' learning rates, written out step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.data import sources
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.partition import Iid
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import Task

ROWS = np.array([1, 9, 10, 11, 25, 30])  # of clients; batches of 10, the last one often smaller
LONGEST = 30


def step_by_step(trainer, rows, steps, factor):
    """Sum over the steps one takes of learning_rate * factor * epoch_decay ** epoch."""
    size = min(trainer.batch_size or LONGEST, LONGEST)
    decay = 1.0 if trainer.epoch_decay is None else trainer.epoch_decay
    out = []
    for n, taken in zip(rows, steps, strict=True):
        batches = max(int(np.ceil(n / size)), 1)
        out.append(sum(trainer.learning_rate * factor * decay ** (s // batches) for s in range(taken)))
    return np.array(out)


def way(trainer, rows, steps, factor):
    """Of each client, as a round asks for it."""
    return jax.vmap(lambda n, taken: trainer.way(n, taken, LONGEST, factor))(jnp.asarray(rows), jnp.asarray(steps))


@pytest.mark.parametrize("decay", [None, 0.5, 0.99, 1.0, 0.0])
@pytest.mark.parametrize(
    "how", [{"epochs": 1}, {"epochs": 4}, {"steps": 7}, {"epochs": 3, "batch_size": None}, {"batch_size": 50}], ids=str
)
def test_the_way_is_the_sum_of_the_steps_rates(how, decay):
    trainer = SGD(0.3, epoch_decay=decay, **how)
    whole = trainer.local_steps(jnp.asarray(ROWS), LONGEST)
    got = way(trainer, ROWS, whole, 0.7)
    np.testing.assert_allclose(got, step_by_step(trainer, ROWS, np.asarray(whole), 0.7), rtol=1e-5)


@pytest.mark.parametrize("decay", [None, 0.8])
def test_of_a_client_that_was_stopped_only_the_steps_taken_count(decay):
    trainer = SGD(0.1, epochs=4, epoch_decay=decay)
    for steps in range(12):
        some = np.minimum(np.asarray(trainer.local_steps(jnp.asarray(ROWS), LONGEST)), steps)
        np.testing.assert_allclose(way(trainer, ROWS, some, 1.0), step_by_step(trainer, ROWS, some, 1.0), rtol=1e-5)


def test_several_clients_may_be_asked_of_at_once():
    trainer = SGD(0.1, epochs=3, epoch_decay=0.8)
    steps = trainer.local_steps(jnp.asarray(ROWS), LONGEST)
    got = trainer.way(jnp.asarray(ROWS), steps, LONGEST, 1.0)
    np.testing.assert_allclose(got, step_by_step(trainer, ROWS, np.asarray(steps), 1.0), rtol=1e-5)


def test_no_steps_and_no_rows_are_no_way():
    trainer = SGD(0.1, epochs=2, epoch_decay=0.9)
    nobody = jnp.zeros(3, jnp.int32)
    np.testing.assert_array_equal(way(trainer, nobody, trainer.local_steps(nobody, LONGEST), 1.0), 0)
    assert trainer.way(jnp.int32(12), jnp.int32(0), LONGEST, 1.0) == 0


def test_it_compiles_once_for_all_rates_decays_and_factors():
    traced = []

    @jax.jit
    def compiled(trainer, rows, steps, factor):
        traced.append(1)
        return way(trainer, rows, steps, factor)

    for rate, decay, factor in ((0.1, 0.9, 1.0), (0.02, 0.5, 0.3), (1.0, 1.0, 0.0)):
        trainer = SGD(rate, epochs=3, epoch_decay=decay)
        steps = trainer.local_steps(jnp.asarray(ROWS), LONGEST)
        got = compiled(trainer, ROWS, steps, factor)
        np.testing.assert_allclose(got, step_by_step(trainer, ROWS, np.asarray(steps), factor), rtol=1e-5)
    assert len(traced) == 1


@pytest.mark.parametrize(
    "how", [{"epochs": 3, "epoch_decay": 0.5}, {"epochs": 2}, {"steps": 5, "epoch_decay": 0.9}], ids=str
)
def test_where_all_gradients_are_one_training_goes_just_that_way(how):
    data = jax.tree.map(jnp.asarray, Federation(sources.load("iris"), Iid(clients=7)).draw(0))
    task, trainer = Task(LogisticRegression(classes=3)), SGD(0.2, batch_size=7, **how)
    received = task.init(jax.random.key(0), data.x)
    for i in (0, 6):
        index, keep = data.examples_of(jnp.int32(i))
        steps = trainer.local_steps(keep.sum(), data.longest)
        update = trainer.train(
            task,
            received,
            data,
            index,
            keep,
            jax.random.key(1),
            0.5,
            steps,
            steps,
            lambda gradient, variables: jax.tree.map(jnp.ones_like, gradient),
        )
        way = trainer.way(keep.sum(), steps, data.longest, 0.5)
        for leaf in jax.tree.leaves(update.delta):
            np.testing.assert_allclose(leaf, -way, rtol=1e-4, atol=1e-6)
