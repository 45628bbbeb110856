"""Signals that draw, that look at few rows, at the round before or at test rows; and which rounds are evaluated."""

from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, signals, simulate
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.fed_entropy import FedEntropy
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data.federated import Examples
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.engine.signals import measure_clients
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import ClientSelector, ClientSignal, Cost, ExampleSignal, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Batch, Context

N, M, ROUNDS, EPOCHS, SEEDS = 7, 3, 5, 2, (4, 9)
MODEL, F = 4 * 9, 2 * 2 * 3 + 3 + 2 * 2  # bytes of logistic regression, operations of a row's forward pass


class Drawn(ClientSignal):
    """A number drawn by each client. Free."""

    name: ClassVar[str] = "drawn"

    def measure(self, task, variables, batch, key):
        return jax.random.uniform(key)


class Four(Drawn):
    """The same with a pass forward and back over four examples."""

    name: ClassVar[str] = "four"

    @property
    def cost(self):
        return Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0, max_examples=4)


class Ten(Drawn):
    """The same with a pass forward over ten examples."""

    name: ClassVar[str] = "ten"

    @property
    def cost(self):
        return Cost(forward=1.0, needs_model=True, up=1.0, max_examples=10)


class Whole(signals.Projection):
    name: ClassVar[str] = "whole"


class Now(signals.Projection):
    name: ClassVar[str] = "now"


class OwnLoss(signals.ValidationLoss):
    name: ClassVar[str] = "own_loss"


LOOKING_BACK = (Whole(norm_over="whole", reference="previous"), signals.Projection(cosine=True, reference="previous"))
TESTED = (signals.ValidationAccuracy(split="test"), signals.ValidationLoss(split="test"))


HEARD = {}
"""What each listener heard, by seed and round."""


class Listener(ClientSelector):
    """Chooses by the calendar and passes on what it hears, by seed and round."""

    before: tuple = static(default=())
    after: tuple = static(default=())
    asked: tuple | None = static(default=None)

    def signals(self):
        return Signals(before=self.before, after=self.after)

    @property
    def heard(self):
        return HEARD.setdefault(self, {})

    def init(self, key, ctx, host):
        return jax.random.key_data(key)

    def candidates(self, key, state, ctx):
        return None if self.asked is None else jnp.array(self.asked)

    def select(self, key, state, ctx, **before):
        client = (2 * ctx.round + jnp.arange(ctx.m)) % ctx.num_clients
        return cohort_of(client, client >= 0)

    def observe(self, key, state, ctx, cohort, **told):
        jax.debug.callback(self.hear, ctx.round, state, **told)
        return state

    def hear(self, round, state, **told):
        self.heard[tuple(state.tolist()), int(round)] = {name: np.asarray(value) for name, value in told.items()}

    def told(self, seed, t):
        return self.heard[tuple(jax.random.key_data(key_for(jax.random.key(seed), Purpose.SELECTOR)).tolist()), t]


def different_devices():
    rng = np.random.default_rng(2)
    rates = {"compute": (300, 9000), "efficiency": (1e3, 1e4), "up": (50, 400), "down": (100, 900), "radio": (0.5, 2)}
    return DeviceProfile.of(memory=1e9, **{name: rng.uniform(*ends, N) for name, ends in rates.items()})


def recipe(source, devices=None):
    law = partition.Dirichlet(clients=N, alpha=1.0, min_examples=5)
    return Federation(source, law, holdout=0.25, data_seed=2, devices=devices)


def experiment(blobs, selector, **settings):
    task, trainer = Task.on(LogisticRegression(classes=3), blobs), SGD(0.3, batch_size=8, epochs=EPOCHS)
    return Experiment(task, selector, **{"local_training": trainer, "cohort_size": M, "rounds": ROUNDS, **settings})


def run(experiment, federation, seeds=SEEDS, **how):
    history = simulate(experiment, federation, seeds, **{"chunk": ROUNDS, **how})
    jax.effects_barrier()
    return history


@pytest.fixture(scope="module")
def heard(blobs):
    """An experiment with all of these signals, its clients and its history."""
    before = (Drawn(), signals.Loss(), Four(), Ten())
    after = (*LOOKING_BACK, Now(norm_over="whole"), *TESTED, OwnLoss())
    one, federation = experiment(blobs, Listener(before, after), evaluate_every=2), recipe(blobs, different_devices())
    return one, federation, run(one, federation)


def test_each_client_in_each_round_of_each_seed_draws_with_its_own_key(heard):
    drawn = np.array([[heard[0].client_selection.told(seed, t)["drawn"] for t in range(ROUNDS)] for seed in SEEDS])
    assert len(np.unique(drawn)) == len(SEEDS) * ROUNDS * N
    for seed, of_seed in zip(SEEDS, drawn, strict=True):
        keys = [[key_for(jax.random.key(seed), Purpose.SIGNALS, t, i) for i in range(N)] for t in range(ROUNDS)]
        np.testing.assert_array_equal(of_seed, [[jax.random.uniform(key) for key in of_round] for of_round in keys])


def test_a_key_depends_neither_on_who_else_is_asked_nor_on_the_mapping(blobs, heard):
    some = Listener((Drawn(),), asked=(5, 0, 3))
    run(experiment(blobs, some, rounds=2), recipe(blobs), SEEDS[1:], layout=Layout(clients=1, seeds="scan"))
    for t in range(2):
        np.testing.assert_array_equal(
            some.told(SEEDS[1], t)["drawn"], heard[0].client_selection.told(SEEDS[1], t)["drawn"][[5, 0, 3]]
        )


def test_who_looks_at_few_rows_pays_for_few_rows_in_operations_and_seconds(heard):
    _, federation, history = heard
    data = federation.draw(0)
    d, size = jax.tree.map(np.asarray, data.devices), np.asarray(data.num_examples)
    assert min(size) < 10 < max(size), "some have fewer rows than a signal would look at"
    looked = F * (size + 3 * np.minimum(size, 4) + np.minimum(size, 10))
    np.testing.assert_array_equal(history["selection_flops"], np.full((len(SEEDS), ROUNDS), looked.sum()))
    np.testing.assert_array_equal(history["selection_bytes_up"], np.full((len(SEEDS), ROUNDS), 4 * 3 * N))
    np.testing.assert_array_equal(history["selection_bytes_down"], np.full((len(SEEDS), ROUNDS), MODEL * (N - M)))
    asking = MODEL / d.down, looked / d.compute, 4 * 3 / d.up
    training = 0, 3 * F * EPOCHS * size / d.compute, MODEL / d.up  # who was asked has the model
    watts = d.compute / d.efficiency
    asked, trained = (watts * compute + d.radio * (down + up) for down, compute, up in (asking, training))
    for t, cohort in enumerate(history.selections[0]):
        np.testing.assert_allclose(history["seconds"][:, t], max(sum(asking)) + max(sum(training)[cohort]), rtol=1e-5)
        np.testing.assert_allclose(history["joules"][:, t], asked.sum() + trained[cohort].sum(), rtol=1e-5)


def test_of_hold_out_rows_it_pays_for_as_few(blobs):
    one, federation = experiment(blobs, Listener((Four(), Ten())), signal_split="holdout"), recipe(blobs)
    held = np.asarray(federation.draw(0).num_holdout)
    assert min(held) < 4 < max(held)
    looked = F * (3 * np.minimum(held, 4) + np.minimum(held, 10)).sum()
    assert (run(one, federation)["selection_flops"] == looked).all()


def test_signals_after_training_need_hold_out_rows_too_where_they_look_at_them(blobs):
    one = experiment(blobs, FedEntropy(), signal_split="holdout")
    with pytest.raises(ValueError, match=r"is 'holdout', and fed_entropy wants .*, but no client has hold-out"):
        one.check(replace(recipe(blobs), holdout=0.0).draw(0))
    one.check(recipe(blobs).draw(0))


def test_a_minibatch_is_of_the_clients_own_rows_and_all_of_them_where_it_has_fewer(blobs):
    task, mask = Task.on(LogisticRegression(classes=3), blobs), np.arange(12) % 3 > 0
    batch = Batch(jnp.asarray(blobs.x[:12]), jnp.asarray(blobs.y[:12]), jnp.asarray(mask))
    kernel = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    variables = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.zeros(3)}}
    each = np.asarray(task.losses(variables, batch))[mask]
    measure = jax.jit(jax.vmap(lambda key: signals.MinibatchLoss(1).measure(task, variables, batch, key)))
    drawn = np.asarray(measure(jax.random.split(jax.random.key(0), 60)))
    assert {int(np.abs(each - one).argmin()) for one in drawn} == set(range(8))
    assert max(np.abs(each - one).min() for one in drawn) < 1e-6
    for size in (8, 12, 64):
        np.testing.assert_allclose(
            signals.MinibatchLoss(size).measure(task, variables, batch, jax.random.key(1)), each.mean(), rtol=1e-6
        )


def test_a_projection_is_on_the_change_of_the_round_before_in_the_first_on_nothing(heard):
    """Updates are trained again by hand, from the models at the ends of shorter runs."""
    one, federation, _ = heard
    listener, task, trainer = one.client_selection, one.task, one.local_training
    told = {(seed, t): listener.told(seed, t) for seed in SEEDS for t in range(3)}
    data = jax.tree.map(jnp.asarray, federation.draw(0))
    ends = {t: run(one.replace(rounds=t), federation).variables for t in (1, 2, 3)}

    @jax.jit
    def train(variables, client, key):
        examples = Examples(data, *data.examples_of(client))
        plan = trainer.plan(examples.mask.sum(), data.longest, jnp.int32(0), jnp.int32(1))
        return trainer.train(key, task, variables, examples, plan, num_steps=plan.steps).delta

    def flat(tree):
        return [np.float64(leaf).ravel() for leaf in jax.tree.leaves(tree)]

    for i, seed in enumerate(SEEDS):
        key = jax.random.key(seed)
        start = task.init(key_for(key, Purpose.MODEL), data.x)
        models = [start] + [jax.tree.map(lambda leaf, i=i: leaf[i], ends[t]) for t in (1, 2, 3)]
        changes = [[b - a for a, b in zip(*map(flat, models[t : t + 2]), strict=True)] for t in range(3)]
        for t in range(3):
            for slot in range(M):
                client = (2 * t + slot) % N
                own = flat(train(models[t], client, key_for(key, Purpose.TRAIN, t, client)))
                whole, last, now = np.concatenate(own), changes[t - 1], np.concatenate(changes[t])
                back, cosines = 0.0, 0.0
                if t > 0:
                    back = whole @ np.concatenate(last) / np.linalg.norm(np.concatenate(last))
                    pairs = zip(own, last, strict=True)
                    cosines = np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])
                want = {"whole": back, "projection": cosines, "now": whole @ now / np.linalg.norm(now)}
                for name, value in want.items():
                    np.testing.assert_allclose(told[seed, t][name][slot], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_change_of_the_round_before_survives_a_stop(blobs, tmp_path):
    selector = GPFL(variant="paper", warm_up=1, signal="test")
    one, federation = experiment(blobs, selector, rounds=8), recipe(blobs)
    whole = run(one, federation, chunk=2)
    for callbacks in ([lambda history: history.rounds >= 4], []):
        part = run(one, federation, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=callbacks)
    assert part.about["resumed_at"] == 4
    np.testing.assert_array_equal(whole.selections, part.selections)
    jax.tree.map(np.testing.assert_array_equal, whole.variables, part.variables)


def test_a_signal_on_test_rows_is_what_the_history_says_where_it_was_evaluated(heard):
    one, _, history = heard
    for i, seed in enumerate(SEEDS):
        told = [one.client_selection.told(seed, t) for t in range(ROUNDS)]
        evaluated = np.flatnonzero(~np.isnan(history["accuracy"][i]))
        assert evaluated.tolist() == [1, 3, 4]
        for t in evaluated:
            np.testing.assert_allclose(told[t]["validation_accuracy"], history["accuracy"][i, t], rtol=1e-6)
            np.testing.assert_allclose(told[t]["validation_loss"], history["loss"][i, t], rtol=1e-5)
        assert all(abs(heard["own_loss"] - heard["validation_loss"]) > 1e-4 for heard in told), "other rows"


def test_signals_on_test_rows_need_no_validation_rows_but_others_beside_them_do(blobs):
    bare = dataset("bare", blobs.x, blobs.y, test=(blobs.test_x, blobs.test_y))
    history = run(experiment(bare, listener := Listener((), TESTED), rounds=1), recipe(bare), [4])
    np.testing.assert_allclose(listener.told(4, 0)["validation_accuracy"], history["accuracy"][0, 0], rtol=1e-6)
    with pytest.raises(ValueError, match=r"Listener wants own_loss, but the server has no validation examples"):
        run(experiment(bare, Listener((), (*TESTED, OwnLoss()))), recipe(bare))


@pytest.mark.parametrize(
    ("every", "last", "evaluated"),
    [(4, 1, [3, 7, 8]), (4, 3, [3, 6, 7, 8]), (100, 2, [7, 8]), (4, 9, range(9)), (4, 50, range(9)), (1, 1, range(9))],
)
def test_the_last_rounds_are_evaluated_besides_every_so_many(blobs, every, last, evaluated):
    one = experiment(blobs, Uniform(), rounds=9, evaluate_every=every)
    alike, before = run(one, recipe(blobs)), run_chunk.programs
    history = run(one.replace(evaluate_last=last), recipe(blobs))
    assert run_chunk.programs == before
    for metric in ("accuracy", "loss"):
        for of_seed in history[metric]:
            assert np.flatnonzero(~np.isnan(of_seed)).tolist() == list(evaluated)
        both = ~np.isnan(alike[metric])
        np.testing.assert_array_equal(history[metric][both], alike[metric][both])


@pytest.mark.parametrize("last", [0, -1, 1.5])
def test_no_last_round_to_evaluate_is_refused(blobs, last):
    with pytest.raises(ValueError, match=f"evaluate_last is {last}; it must be a whole number, at least 1"):
        run(experiment(blobs, Uniform(), evaluate_last=last), recipe(blobs))


class TwoHundred(ExampleSignal):
    """200 for examples of class 2, in eight bits, whose sum overflows."""

    name: ClassVar[str] = "two_hundred"

    def measure(self, logits, y):
        return jnp.where(y == 2, 200, 0).astype(jnp.uint8)


@pytest.mark.parametrize("layout", [Layout(), Layout(examples=16)], ids=str)
def test_small_whole_numbers_are_averaged_as_floats(blobs, layout):
    data = Federation(blobs, partition.Dirichlet(clients=6, alpha=0.5)).draw(1)
    task = Task.on(LogisticRegression(classes=3), blobs)
    stored, wanted = jax.tree.map(jnp.asarray, data), {"two_hundred": TwoHundred()}
    variables = task.init(jax.random.key(0), data.x)
    ctx = Context(jnp.int32(0), jnp.int32(1), stored.num_examples, jnp.ones(6, bool), cohort_size=2)
    expected = 200 * data.count_labels()[:, 2] / data.num_examples
    for candidates in (None, jnp.arange(6)):
        told = ctx.replace(candidates=candidates)
        got = measure_clients(wanted, task, variables, (), stored, told, layout, key=jax.random.key(1))
        np.testing.assert_allclose(got["two_hundred"], expected, rtol=1e-5)


@pytest.mark.parametrize("selector", [Entropy(0.0), PowerOfChoice(d=20)], ids=lambda one: type(one).__name__)
def test_clients_whose_examples_are_all_alike_tie_whatever_their_number(selector):
    """An initial model of zeros has one loss and one entropy everywhere; sums that round by size would rank clients."""
    rng = np.random.default_rng(0)
    data = dataset("noise", rng.normal(size=(4000, 5)).astype(np.float32), rng.integers(0, 10, 4000), test=0.1)
    federation = Federation(data, partition.Unequal(clients=20, spread=0.6), data_seed=0)
    one = Experiment(Task(LogisticRegression(classes=10)), client_selection=selector, cohort_size=4, rounds=1)
    history = simulate(one, federation, seeds=60)
    times = np.bincount(history.selections.ravel(), minlength=20)
    assert stats.chisquare(times).pvalue > 1e-3  # 12 each


class Outlier(ExampleSignal):
    """10⁸ for examples of class 0, else their class."""

    name: ClassVar[str] = "outlier"

    def measure(self, logits, y):
        return jnp.where(y == 0, 1e8, y.astype(jnp.float32))


@pytest.mark.parametrize("candidates", [None, range(5)])
@pytest.mark.parametrize("sizes", [(20, 20, 20, 20, 20), (2, 3, 90, 3, 2)], ids=["flat", "in blocks"])
def test_outliers_of_the_first_client_cost_the_others_no_digits(sizes, candidates):
    owner = np.repeat(np.arange(5), sizes)
    y = np.where(owner == 0, 0, 1 + np.arange(100) % 2)
    rows = dataset("rows", np.zeros((100, 2), np.float32), y, test=(np.zeros((2, 2), np.float32), y[:2]), owner=owner)
    data = Federation(rows, partition.Natural()).draw(0)
    task, stored = Task(LogisticRegression(classes=3)), jax.tree.map(jnp.asarray, data)
    ctx = Context(jnp.int32(0), jnp.int32(1), stored.num_examples, jnp.ones(5, bool), cohort_size=2)
    ctx = ctx.replace(candidates=None if candidates is None else jnp.array(candidates))
    wanted, variables, layout = {"outlier": Outlier()}, task.init(jax.random.key(0), data.x), Layout(examples=8)
    got = measure_clients(wanted, task, variables, (), stored, ctx, layout, key=jax.random.key(1))["outlier"]
    np.testing.assert_allclose(got[1:], [y[owner == i].mean() for i in range(1, 5)], rtol=1e-6)
