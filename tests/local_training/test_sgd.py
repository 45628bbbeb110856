"""What a client plans, the sum of its step sizes written out step by step; and that training does just that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.data import sources
from fedjax_sel.data.federated import Examples
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.partition import Iid
from fedjax_sel.local_training import Cosine, Exponential
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import Task

EXAMPLES = np.array([1, 9, 10, 11, 25, 30])  # of clients; batches of 10, the last one often smaller
LONGEST = 30


def step_by_step(trainer, examples, steps, factor):
    """Sum over the steps one takes of learning_rate * factor * epoch_decay ** epoch."""
    size = min(trainer.batch_size or LONGEST, LONGEST)
    decay = 1.0 if trainer.epoch_decay is None else trainer.epoch_decay
    out = []
    for n, taken in zip(examples, steps, strict=True):
        batches = max(int(np.ceil(n / size)), 1)
        out.append(sum(trainer.learning_rate * factor * decay ** (s // batches) for s in range(taken)))
    return np.array(out)


def plan(trainer, examples, factor=1.0, max_steps=None):
    """Of each client, in a round with this factor."""
    if max_steps is not None:
        max_steps = jnp.asarray(max_steps)
    trainer = trainer.replace(schedule=Exponential(factor))
    return trainer.plan(jnp.asarray(examples), LONGEST, jnp.int32(1), jnp.int32(10), max_steps)


@pytest.mark.parametrize("decay", [None, 0.5, 0.99, 1.0, 0.0])
@pytest.mark.parametrize(
    "how", [{"epochs": 1}, {"epochs": 4}, {"steps": 7}, {"epochs": 3, "batch_size": None}, {"batch_size": 50}], ids=str
)
def test_the_step_size_sum_is_the_sum_of_the_steps_rates(how, decay):
    trainer = SGD(0.3, epoch_decay=decay, **how)
    got = plan(trainer, EXAMPLES, 0.7)
    np.testing.assert_allclose(
        got.step_size_sum, step_by_step(trainer, EXAMPLES, np.asarray(got.steps), 0.7), rtol=1e-5
    )
    np.testing.assert_allclose(got.rate_factor, np.full(len(EXAMPLES), 0.7), rtol=1e-6)


@pytest.mark.parametrize("momentum", [None, 0.5])
@pytest.mark.parametrize("examples", [50_000, 1_000_000, 1])
def test_of_many_steps_in_an_epoch_that_is_long_the_sum_does_not_overflow(momentum, examples):
    """50,000 steps times 50,000 batches are more than an int32 holds."""
    trainer = SGD(0.125, batch_size=1, steps=50_000, momentum=momentum or 0.0)
    got = trainer.plan(jnp.array([examples]), examples, jnp.int32(0), jnp.int32(1)).step_size_sum
    one = 1 / (1 - (momentum or 0.0))
    np.testing.assert_allclose(got, 0.125 * (50_000 - (one - 1)) * one, rtol=1e-4)


@pytest.mark.parametrize("decay", [None, 0.5])
@pytest.mark.parametrize("momentum", [0.0, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("how", [{"epochs": 1}, {"epochs": 4}, {"steps": 7}], ids=str)
def test_with_momentum_it_is_the_sum_of_what_each_gradient_weighs(how, momentum, decay):
    """A gradient of 1 in every step, through the momentum."""
    trainer = SGD(0.3, epoch_decay=decay, momentum=momentum, **how)
    got, expected = plan(trainer, EXAMPLES, 0.7), []
    for n, steps in zip(EXAMPLES, np.asarray(got.steps), strict=True):
        velocity = total = 0.0
        for s in range(steps):
            velocity = momentum * velocity + 1
            total += 0.3 * 0.7 * (decay or 1.0) ** (s // int(np.ceil(n / 10))) * velocity
        expected.append(total)
    np.testing.assert_allclose(got.step_size_sum, expected, rtol=1e-4)


@pytest.mark.parametrize("how", [{"epochs": 1}, {"epochs": 3}, {"steps": 7}, {"batch_size": None}], ids=str)
def test_the_examples_seen_are_those_of_its_batches(how):
    trainer = SGD(**how)
    for most in (None, 0, 1, 2, 5):
        got = plan(trainer, EXAMPLES, max_steps=most if most is None else np.full(len(EXAMPLES), most))
        for n, steps, seen in zip(EXAMPLES, np.asarray(got.steps), np.asarray(got.examples_seen), strict=True):
            size = min(trainer.batch_size or LONGEST, LONGEST)
            batches = [min(size, n - start) for start in range(0, n, size)]
            assert seen == sum(batches[s % len(batches)] for s in range(steps))
            assert most is None or steps <= most


@pytest.mark.parametrize("decay", [None, 0.8])
def test_of_a_client_that_was_stopped_only_the_steps_taken_count(decay):
    trainer = SGD(0.1, epochs=4, epoch_decay=decay)
    for steps in range(12):
        some = np.minimum(np.asarray(plan(trainer, EXAMPLES).steps), steps)
        got = plan(trainer, EXAMPLES, max_steps=some)
        np.testing.assert_array_equal(got.steps, some)
        np.testing.assert_allclose(got.step_size_sum, step_by_step(trainer, EXAMPLES, some, 1.0), rtol=1e-5)


def test_one_client_plans_as_it_does_among_several():
    trainer = SGD(0.1, epochs=3, epoch_decay=0.8)
    together = plan(trainer, EXAMPLES)
    each = jax.vmap(lambda n: trainer.plan(n, LONGEST, jnp.int32(1), jnp.int32(10)))(jnp.asarray(EXAMPLES))
    jax.tree.map(np.testing.assert_array_equal, each, together)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_no_steps_and_no_examples_go_nowhere(momentum):
    trainer = SGD(0.1, epochs=2, epoch_decay=0.9, momentum=momentum)
    for got in (plan(trainer, np.zeros(3, np.int32)), plan(trainer, EXAMPLES[:3], max_steps=np.zeros(3, np.int32))):
        for of in ("steps", "examples_seen", "step_size_sum"):
            np.testing.assert_array_equal(getattr(got, of), 0)


def test_it_compiles_once_for_all_rates_decays_and_factors():
    traced = []

    @jax.jit
    def compiled(trainer, examples, factor):
        traced.append(1)
        return plan(trainer, examples, factor)

    for rate, decay, factor in ((0.1, 0.9, 1.0), (0.02, 0.5, 0.3), (1.0, 1.0, 0.0)):
        trainer = SGD(rate, epochs=3, epoch_decay=decay)
        got = compiled(trainer, EXAMPLES, factor)
        expected = step_by_step(trainer, EXAMPLES, np.asarray(got.steps), factor)
        np.testing.assert_allclose(got.step_size_sum, expected, rtol=1e-5)
    assert len(traced) == 1


@pytest.mark.parametrize(
    "how", [{"epochs": 3, "epoch_decay": 0.5}, {"epochs": 2}, {"steps": 5, "epoch_decay": 0.9}], ids=str
)
def test_where_all_gradients_are_one_training_goes_just_that_far(how):
    data, task = FEDERATION, TASK
    trainer = SGD(0.2, batch_size=7, schedule=Exponential(0.5), **how)
    params = task.init(jax.random.key(0), data.x)
    for i in (0, 6):
        examples = Examples(data, *data.examples_of(jnp.int32(i)))
        planned = trainer.plan(examples.mask.sum(), data.longest, jnp.int32(1), jnp.int32(10))
        update = trainer.train(
            jax.random.key(1),
            task,
            params,
            examples,
            planned,
            num_steps=planned.steps,
            transform=lambda gradient, variables: jax.tree.map(jnp.ones_like, gradient),
        )
        for leaf in jax.tree.leaves(update.delta):
            np.testing.assert_allclose(leaf, np.full_like(leaf, -planned.step_size_sum), rtol=1e-4, atol=1e-6)


FEDERATION = jax.tree.map(jnp.asarray, Federation(sources.load("iris"), Iid(clients=7)).draw(0))
TASK = Task(LogisticRegression(classes=3))


def test_an_examples_weight_multiplies_its_loss():
    """One step on all examples: the gradient is the sum of the weighted gradients over the number that count."""
    data, params = FEDERATION, TASK.init(jax.random.key(0), FEDERATION.x)
    trainer = SGD(1.0, batch_size=None)
    index, valid = data.examples_of(jnp.int32(2))
    mask = valid & (jnp.arange(data.longest) != 3)
    weight = jnp.where(mask, jnp.linspace(0.5, 3.0, data.longest), 0.0)
    planned = trainer.plan(mask.sum(), data.longest, jnp.int32(0), jnp.int32(1))

    def delta(weight):
        examples = Examples(data, index, mask, weight)
        return trainer.train(jax.random.key(1), TASK, params, examples, planned, num_steps=planned.steps)

    def loss(params):
        losses = TASK.loss(TASK.logits(params, data.x[index]), data.y[index])
        return jnp.sum(losses * weight) / mask.sum()

    update = delta(weight)
    jax.tree.map(
        lambda d, g: np.testing.assert_allclose(d, -g, rtol=1e-4, atol=1e-5), update.delta, jax.grad(loss)(params)
    )
    plain, ones = delta(None), delta(jnp.where(mask, 1.0, 0.0))
    jax.tree.map(np.testing.assert_array_equal, plain.delta, ones.delta)
    np.testing.assert_allclose(update.loss, plain.loss)  # what is reported is the loss of the examples
    assert int(update.num_examples) == int(mask.sum())


def test_a_cosine_falls_from_1_to_its_end():
    factors, half = [Cosine(0.2)(jnp.int32(t), jnp.int32(4)) for t in range(5)], np.sqrt(0.5)
    np.testing.assert_allclose(factors, [1, 0.6 + 0.4 * half, 0.6, 0.6 - 0.4 * half, 0.2], rtol=1e-6)


@pytest.mark.parametrize("number", [float, np.float32, jnp.float32], ids=["python", "numpy", "jax"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", -0.1),
        ("learning_rate", np.nan),
        ("learning_rate", np.inf),
        ("momentum", 1.0),
        ("momentum", -0.5),
        ("weight_decay", -1),
        ("epoch_decay", np.nan),
    ],
)
def test_numbers_out_of_range_are_refused(field, value, number):
    with pytest.raises(ValueError, match=rf"sgd: {field} is .*; it must be in \[0, "):
        SGD(**{field: number(value)})


def test_counts_out_of_range_are_refused():
    for field in ("batch_size", "epochs", "steps"):
        with pytest.raises(ValueError, match=rf"sgd: {field} is 0; it must be a whole number, at least 1"):
            SGD(**{field: 0})
    with pytest.raises(ValueError, match=r"sgd: epochs is 2 and steps is 5; give one of them"):
        SGD(epochs=2, steps=5)
    assert SGD(batch_size=None, steps=5).epochs is None
    with pytest.raises(ValueError, match=r"Exponential: rate is -0.5; it must be in \[0, inf\)"):
        Exponential(-0.5)
