"""Local training with optax's optimisers, against a plain loop over the same batches."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import Experiment, simulate
from fedjax_sel.aggregation import FedNova
from fedjax_sel.correction import NoCorrection, Scaffold
from fedjax_sel.data import sources
from fedjax_sel.data.federated import Examples
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.partition import Iid
from fedjax_sel.local_training import DPSGD, Alternating, Exponential, MinibatchTrainer
from fedjax_sel.local_training._shuffle import shuffle_epochs, shuffle_steps
from fedjax_sel.local_training.optax import OPTIMIZERS, Optax
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import Task

FEDERATION = Federation(sources.load("iris"), Iid(clients=7))
DATA = jax.tree.map(jnp.asarray, FEDERATION.draw(0))
TASK = Task(LogisticRegression(classes=3))
PARAMS = TASK.init(jax.random.key(0), DATA.x)
KEY = jax.random.key(5)


@jax.jit
def train(trainer, round=0):
    """Client 2's update."""
    examples = Examples(DATA, *DATA.examples_of(jnp.int32(2)))
    plan = trainer.plan(examples.mask.sum(), DATA.longest, jnp.asarray(round), jnp.int32(10))
    return trainer.train(KEY, TASK, PARAMS, examples, plan, num_steps=plan.steps + 3)


def by_hand(make, epochs, batch_size, rate):
    """The same batches by a loop that anyone would write; `rate` of each epoch."""
    index, mask = DATA.examples_of(jnp.int32(2))
    n = int(mask.sum())
    order = np.asarray(shuffle_epochs(jax.random.split(KEY)[0], mask, epochs))[:, :n]
    params, state = PARAMS, make(rate(0)).init(PARAMS)
    for epoch in range(epochs):
        for start in range(0, n, batch_size):
            own = np.asarray(index)[order[epoch, start : start + batch_size]]

            def loss(params, own=own):
                return TASK.loss(TASK.logits(params, DATA.x[own]), DATA.y[own]).mean()

            change, state = make(rate(epoch)).update(jax.grad(loss)(params), state, params)
            params = optax.apply_updates(params, change)
    return jax.tree.map(jnp.subtract, params, PARAMS)


def assert_close(one, other, rtol=1e-4, atol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), one, other)


@pytest.mark.parametrize(
    ("trainer", "make"),
    [
        (Optax(learning_rate=0.01, epochs=3, batch_size=4), optax.adam),
        (
            Optax(0.02, 5, 2, optimizer="adamw", hyperparams={"b1": 0.8, "weight_decay": 0.1}),
            lambda rate: optax.adamw(rate, b1=0.8, weight_decay=0.1),
        ),
        (
            Optax(1e-3, optimizer=optax.adam, hyperparams={"b1": 0.7}, epochs=2),
            lambda rate: optax.adam(rate, b1=0.7),
        ),
        (Optax(0.01, optimizer="yogi", epochs=2), optax.yogi),
        (
            Optax(
                0.01,
                optimizer="rmsprop",
                hyperparams={"decay": 0.8},
                epochs=3,
                epoch_decay=0.5,
                schedule=Exponential(0.5),
            ),
            lambda rate: optax.rmsprop(rate, decay=0.8),
        ),
    ],
    ids=["adam", "adamw", "factory", "yogi", "rmsprop"],
)
def test_it_is_a_plain_loop_over_the_same_batches(trainer, make):
    base = trainer.learning_rate or 1e-3
    factor = 0.5**2 if isinstance(trainer.schedule, Exponential) else 1.0
    decay = trainer.epoch_decay or 1.0
    expected = by_hand(make, trainer.epochs, trainer.batch_size, lambda epoch: base * factor * decay**epoch)
    assert_close(train(trainer, 2).delta, expected, rtol=1e-3)


@pytest.mark.parametrize("how", [{"epochs": 2}, {"steps": 9}], ids=str)
def test_its_sgd_is_sgd(how):
    ours = train(SGD(0.2, momentum=0.5, batch_size=4, epoch_decay=0.9, **how))
    theirs = train(Optax(0.2, optimizer="sgd", hyperparams={"momentum": 0.5}, batch_size=4, epoch_decay=0.9, **how))
    assert_close(theirs.delta, ours.delta, rtol=1e-6)
    one, other = (
        t.plan(jnp.array([5, 9]), 9, jnp.int32(0), jnp.int32(1))
        for t in (SGD(0.2, momentum=0.5, **how), Optax(0.2, optimizer="sgd", hyperparams={"momentum": 0.5}, **how))
    )
    assert_close(one, other)


def test_a_number_of_steps_is_a_plain_loop_over_one_shuffle_after_another():
    size, steps = 4, 9
    index, mask = DATA.examples_of(jnp.int32(2))
    n = int(mask.sum())
    order = np.asarray(shuffle_steps(jax.random.split(KEY)[0], mask, steps, size))

    @jax.jit
    @jax.grad
    def gradient(params, own):
        return TASK.loss(TASK.logits(params, DATA.x[own]), DATA.y[own]).mean()

    params, velocity = PARAMS, jax.tree.map(jnp.zeros_like, PARAMS)
    for step in range(steps):
        epoch, batch = divmod(step, -(-n // size))
        own = np.asarray(index)[order[epoch * n + size * batch : epoch * n + min(size * (batch + 1), n)]]
        velocity = jax.tree.map(lambda v, g: 0.5 * v + g, velocity, gradient(params, own))
        params = jax.tree.map(lambda w, v, rate=0.2 * 0.9**epoch: w - rate * v, params, velocity)
    assert n % size
    assert epoch == 1
    update = train(SGD(0.2, momentum=0.5, batch_size=size, epoch_decay=0.9, steps=steps))
    assert_close(update.delta, jax.tree.map(jnp.subtract, params, PARAMS), rtol=1e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_named_optimiser_trains_with_traced_numbers(name):
    trainer = Optax(0.01, optimizer=name, epochs=2)
    update = train(trainer)
    moved = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(update.delta)])
    assert np.isfinite(moved).all()
    assert moved.any()
    assert trainer.linear == (name == "sgd")


def test_its_numbers_are_traced():
    traced = []

    @jax.jit
    def compiled(trainer):
        traced.append(1)
        return train(trainer).delta

    got = [compiled(Optax(rate, optimizer="adam", hyperparams={"b1": b1})) for rate, b1 in ((0.01, 0.9), (0.1, 0.5))]
    assert len(traced) == 1
    assert_close(got[1], train(Optax(0.1, optimizer="adam", hyperparams={"b1": 0.5})).delta)
    assert len(jax.tree.leaves(Optax(0.1, optimizer="adam", hyperparams={"b1": 0.5}))) == 2


def test_a_run_learns_with_adam():
    experiment = Experiment(TASK, local_training=Optax(0.05, optimizer="adam", epochs=3), cohort_size=4, rounds=15)
    assert simulate(experiment, FEDERATION, seeds=[0])["accuracy"][0, -1] > 0.8


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Optax(optimizer="adma"), "unknown optax: optimizer 'adma'; did you mean 'adam"),
        (lambda: Optax(optimizer="adam", hyperparams={"beta": 0.9}), "unknown number of optax: 'beta'"),
        (
            lambda: Optax(optimizer="adam", hyperparams={"b1": float("nan")}),
            r"optax: hyperparams\.b1 is nan; it must be in \[0, 1\)",
        ),
        (
            lambda: Optax(0.1, optimizer="adam", hyperparams={"learning_rate": 0.1}),
            "optax: learning_rate is a field of its own",
        ),
        (lambda: Optax(-0.1, optimizer="adam"), r"optax: learning_rate is -0.1; it must be in \[0, inf\)"),
        (lambda: Optax(epochs=1, steps=1), "optax: epochs is 1 and steps is 1"),
    ],
)
def test_what_it_cannot_be_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_an_optimiser_that_keeps_its_rate_in_its_state_trains():
    kept = Optax(0.1, optimizer=optax.inject_hyperparams(optax.sgd), batch_size=4)
    assert_close(train(kept), train(Optax(0.1, optimizer=optax.sgd, batch_size=4)))
    with pytest.raises(ValueError, match=r"keeps the learning rate in its state, where epoch_decay cannot change it"):
        Optax(0.1, optimizer=optax.inject_hyperparams(optax.sgd), epoch_decay=0.9)
    Optax(0.1, optimizer=optax.adam, epoch_decay=0.9)


def test_noise_of_an_optimiser_is_each_client_s_and_round_s_own():
    """Of 49 updates of an epoch of one step each, the mean of standard noise has a deviation of 1 / 7."""

    def noisy(learning_rate):
        return optax.chain(optax.sgd(learning_rate), optax.add_noise(1.0, 0.0, 3))

    trainer = Optax(1.0, optimizer=noisy, batch_size=None)
    still = Optax(1.0, optimizer="sgd", batch_size=None)

    @jax.jit
    def noise(key, client):
        examples = Examples(DATA, *DATA.examples_of(client))
        plan = trainer.plan(examples.mask.sum(), DATA.longest, jnp.int32(0), jnp.int32(10))
        both = [one.train(key, TASK, PARAMS, examples, plan, num_steps=1).delta for one in (trainer, still)]
        return jax.flatten_util.ravel_pytree(jax.tree.map(jnp.subtract, *both))[0]

    keys = jax.random.split(KEY, 49)  # every client of every round has its own
    drawn = np.stack([noise(key, i % 7) for i, key in enumerate(keys)])
    assert drawn.std() == pytest.approx(1.0, abs=0.1)
    assert np.abs(drawn.mean(0)).max() < 4 / 7
    assert np.abs(np.diff(drawn, axis=0)).max(1).min() > 0.1, "no two are alike"


def test_a_trainer_of_ones_own_is_a_sum_of_gradients_only_if_it_says_so():
    class Momentum(MinibatchTrainer):
        def build_optimizer(self, rate):
            return optax.sgd(rate, momentum=0.9)

    class Signs(SGD):
        def batch_gradient(self, *arguments):
            gradient, kept = super().batch_gradient(*arguments)
            return jax.tree.map(jnp.sign, gradient), kept

    class Told(Momentum):
        linear = True
        heavy_ball = 0.9

    class Sgd(Optax):
        pass

    class Turns(Alternating):
        pass

    assert Optax(0.1, optimizer="sgd").linear
    assert Alternating().linear
    for trainer in (Momentum(0.1), Signs(0.1), Sgd(0.1, optimizer="sgd"), Turns()):
        with pytest.raises(
            ValueError, match=r"scaffold needs .* or does not say that its update is one \(property linear\)"
        ):
            Scaffold().check(trainer)
        with pytest.raises(ValueError, match="fednova needs local training whose update is a weighted sum"):
            FedNova().check(trainer, NoCorrection())
    assert SGD().linear
    assert DPSGD().linear
    Scaffold().check(Told(0.1))
    plans = [one.plan(jnp.array([25]), 25, 0, 1) for one in (Told(0.1), SGD(0.1, momentum=0.9))]
    assert plans[0].step_size_sum == plans[1].step_size_sum
