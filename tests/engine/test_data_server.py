"""What a data selector keeps on the server, reports and is billed for; its deadline; what its examples stand for."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, signals, simulate
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import DataSelector, Prepared
from fedjax_sel.pytree import param, static
from fedjax_sel.task import Focal
from tests.quadratic import TASK, A, clients, weights_of
from tests.quadratic import gradient as gradient_of

FEATURES, CLASSES, M, ROUNDS = 2, 3, 2, 4
F = 2 * FEATURES * CLASSES + CLASSES + 2 * FEATURES  # an example's forward pass
MODEL = 4 * (FEATURES * CLASSES + CLASSES)


TOLD = []
"""What the server of `Growing` was told of each member: round, client, its turns before, whether it measured a loss."""


class Growing(DataSelector):
    """The first `server` examples; the server adds one more for every 5 that its members have.

    Signals are measured by clients whose last turn was not in the round before.
    """

    uses_turn = True

    def signals(self):
        return {"loss": signals.Loss()}

    def validation_signals(self):
        return {"clean": signals.ValidationLoss()}

    def count_down(self, classes):
        return 1.0 + classes

    def count_up(self, classes):
        return 2.0

    def prepare(self, key, ctx, host):
        return Prepared(server={"size": jnp.float32(3.0)})

    def init(self, num_clients, longest):
        return jnp.zeros(num_clients, jnp.int32)

    def asks(self, state, round):
        return state % 2 == 0

    def select(self, key, state, valid, *, loss, turn):
        return valid & (jnp.arange(len(valid)) < turn.server["size"])

    def observe(self, key, state, weight, *, loss, turn):
        return state + 1

    def report(self, state, valid, weight, *, loss, turn):
        return {"count": valid.sum(), "turns": state, "loss": jnp.where(valid, loss, 0).sum()}

    def merge(self, key, server, ctx, cohort, reports):
        told = jnp.stack([jnp.full(ctx.m, ctx.round), cohort.client, reports["turns"], reports["loss"] > 0], 1)
        jax.debug.callback(lambda rows: TOLD.extend(rows.tolist()), told)
        return {"size": server["size"] + jnp.where(cohort.mask, reports["count"], 0).sum() // 5}


@pytest.fixture(scope="module")
def unequal(blobs):
    return Federation(blobs, partition.Dirichlet(clients=4, alpha=1.0, min_examples=4))


def experiment(blobs, selector, **parts):
    task = Task.on(LogisticRegression(classes=CLASSES), blobs)
    parts = {"local_training": SGD(batch_size=8), "cohort_size": M, "rounds": ROUNDS, **parts}
    return Experiment(task, client_selection=RoundRobin(), data_selection=selector, **parts)


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=["vmap", "scan"])
def test_reports_reach_the_server_and_what_it_keeps_reaches_the_clients_all_of_it_billed(blobs, unequal, layout):
    TOLD.clear()
    history, expected = simulate(experiment(blobs, Growing()), unequal, seeds=[0, 3], layout=layout), []
    jax.effects_barrier()
    for seed, cohorts, trained, looked in zip(
        (0, 3), history.selections, history["client_flops"], history["selection_flops"], strict=True
    ):
        n = np.asarray(unequal.draw(seed).num_examples)
        size, turns = 3, np.zeros(4, int)
        for t, cohort in enumerate(cohorts):
            assert trained[t] == 3 * F * np.minimum(n[cohort], size).sum()
            assert looked[t] == F * n[cohort][turns[cohort] % 2 == 0].sum(), "they measured, or paid nothing"
            expected += [[t, client, turns[client], turns[client] % 2 == 0] for client in cohort]
            size += n[cohort].sum() // 5
            turns[cohort] += 1
        assert turns.min() >= 1
    assert sorted(TOLD) == sorted(expected)
    np.testing.assert_array_equal(history["selection_bytes_down"], 4 * M * (1 + CLASSES))
    np.testing.assert_array_equal(history["selection_bytes_up"], 4 * M * 2)


class OneOf(DataSelector):
    """A client's first example, twice as much, in the name of all or in its own."""

    weighted = True
    whole: bool = static(default=True)

    @property
    def represents_all(self):
        return self.whole

    def select(self, key, state, valid):
        return jnp.where(jnp.arange(len(valid)) == 0, 2.0, 0.0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_client_weighs_as_much_as_the_examples_that_those_selected_stand_for(whole):
    rows = (1, 2, 3, 4, 5, 6)
    trainer = SGD(0.1, batch_size=None, steps=1)
    run = Experiment(
        TASK,
        client_selection=RoundRobin(),
        data_selection=OneOf(whole),
        aggregation=fs.aggregation.Mean(weighting="size"),
        local_training=trainer,
        cohort_size=6,
        rounds=1,
    )
    w = weights_of(simulate(run, clients(rows), seeds=1))
    each = np.array([-0.1 * 2 * gradient_of(np.zeros(2), i) for i in range(len(A))])
    np.testing.assert_allclose(w, np.average(each, axis=0, weights=rows if whole else None), rtol=1e-5)


class Affordable(DataSelector):
    """As many examples as the client can train on until the deadline, and some more."""

    uses_turn = True
    more: int = static(default=0)

    def signals(self):
        return {"loss": signals.Loss()}

    def select(self, key, state, valid, *, loss, turn):
        return valid & (jnp.arange(len(valid)) < turn.affordable + self.more)


class Sooner(Affordable):
    """The same by a deadline of its own."""

    seconds: float = param(default=1.0)

    def choose_deadline(self, server, ctx, cohort, seconds):
        return jnp.float32(self.seconds)


def test_a_client_does_not_count_on_examples_that_it_has_not():
    """In ten steps of up to ten, 10 examples are passed 100 times, but 9 are 90 times, and the other's 28 are 94 times.

    Client 0 passes three of them a second without gradients, and one with: it looks at its 10 and has time for 90.5.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)).astype(np.float32), np.arange(60) % 2
    data = dataset("few", x, y, test=22 / 60)
    own, task = [np.arange(10), np.arange(10, len(data.y))], Task.on(LogisticRegression(classes=2), data)
    passes = task.flops(data.x)
    devices = DeviceProfile.of(
        compute=[3 * passes, 1e6 * passes], efficiency=1e9, memory=2e9, up=1e12, down=1e12, radio=0.0
    )
    run = Experiment(
        task,
        data_selection=Affordable(),
        local_training=SGD(0.1, batch_size=10, steps=10),
        cohort_size=2,
        rounds=1,
        deadline=Deadline(10 / 3 + 90.5),
    )
    history = simulate(run, Federation(data, partition.Indices(own), devices=devices))
    np.testing.assert_array_equal(history["bytes_up"][0], 2 * 4 * task.parameters(data.x))
    np.testing.assert_allclose(history["seconds"][0, 0], 10 / 3 + 90, rtol=1e-5)


def test_a_client_that_trains_on_all_it_can_afford_returns_and_with_one_example_more_does_not(blobs):
    """Client 0 has 54 examples and 1000 operations a second: in 2.052 seconds it passes 107.99, of which 54 to look."""
    slow = DeviceProfile.of(compute=[1e3, 2e3, 4e3, 1.5e3], efficiency=1e9, memory=2e9, up=1e6, down=1e6)
    federation, seconds = Federation(blobs, partition.Iid(clients=4), devices=slow), 2.052
    affordable = np.array([17, 53, 54, 35])

    def run(selector, deadline):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = {"deadline": Deadline(deadline), "local_training": SGD(batch_size=1)}
            return simulate(experiment(blobs, selector, **parts), federation)

    history = run(Affordable(), seconds)
    cohorts = history.selections[0]
    np.testing.assert_array_equal(history["bytes_up"], M * MODEL)
    np.testing.assert_array_equal(history["client_flops"][0], 3 * F * affordable[cohorts].sum(1))
    assert (history["seconds"] <= seconds).all()
    late = run(Affordable(more=1), seconds)
    np.testing.assert_array_equal(late["bytes_up"][0], MODEL * (affordable[cohorts] == 54).sum(1))
    again = run(Sooner(seconds=seconds), 1e9)
    np.testing.assert_array_equal(again["client_flops"], history["client_flops"])
    np.testing.assert_array_equal(again["seconds"], history["seconds"])


def test_what_a_data_selector_declares_and_does_not_take_is_refused(blobs, unequal):
    class Deaf(Growing):
        def report(self, state, valid, weight, *, loss):
            return ()

    class Server(Growing):
        def validation_signals(self):
            return [signals.ValidationLoss()]

    class Unready(Growing):
        def prepare(self, key, ctx, host):
            return {"size": 3}

    class Growth(Growing):
        def merge(self, key, server, ctx, cohort, reports):
            return server["size"]

    for selector, says in (
        (Deaf(), r"Deaf.report cannot be called .* it must take \(state, valid, weight, \*, loss, turn\)"),
        (Server(), r"Server.validation_signals returned .* it must be a mapping from names to signals of the server"),
        (Unready(), r"Unready.prepare returned a dict; it must return Prepared\(server=...\)"),
        (Growth(), r"Growth.merge returned a state of another structure"),
    ):
        with pytest.raises(ValueError, match=says):
            simulate(experiment(blobs, selector), unequal)
    few = fs.dataset("few", np.zeros((20, 2), np.float32), np.arange(20) % 3, test=0.2)
    with pytest.raises(ValueError, match="Growing wants clean, but the server has no validation examples"):
        simulate(experiment(few, Growing(), cohort_size=1), Federation(few, partition.Iid(clients=2)))


class Nothing(DataSelector):
    """No example."""

    def select(self, key, state, valid):
        return jnp.zeros_like(valid)


@pytest.mark.filterwarnings("ignore:no update came back")
def test_who_has_nothing_to_train_on_sends_nothing_and_takes_no_time_for_it(blobs):
    """A link of a byte a second upwards: an update would take a minute."""
    two = np.ones(2)
    fast = dict.fromkeys(("compute", "efficiency", "memory", "down"), 1e9 * two)
    devices = DeviceProfile.of(**fast, up=two, radio=two)
    federation = Federation(blobs, partition.Iid(clients=2), devices=devices)
    task = Task(LogisticRegression(classes=CLASSES))
    history = simulate(Experiment(task, data_selection=Nothing(), cohort_size=2, rounds=2), federation)
    assert (history["bytes_up"] == 0).all()
    assert (history["seconds"] < 1e-3).all()
    assert (history["joules"] < 1e-3).all()


class Judging(DataSelector):
    """All examples, where the loss on the server's is what the field says."""

    uses_turn = True

    expected: float = param(default=0.0)

    def validation_signals(self):
        return {"clean": signals.ValidationLoss()}

    def select(self, key, state, valid, *, turn):
        return valid & (jnp.abs(turn.validation["clean"] - self.expected) < 1e-5)


@pytest.mark.filterwarnings("ignore:no update came back")
def test_a_loss_on_the_servers_examples_is_the_tasks(blobs):
    task = Task(LogisticRegression(classes=CLASSES), loss=Focal(2.0))
    federation = Federation(blobs, partition.Iid(clients=2))
    begun = simulate(Experiment(task, cohort_size=2, rounds=1, local_training=SGD(learning_rate=0.0)), federation)
    logits = task.logits(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), begun.variables), blobs.validation_x)
    by_hand = float(task.loss(logits, jnp.asarray(blobs.validation_y)).mean())
    other = float(Task(LogisticRegression(classes=CLASSES)).loss(logits, jnp.asarray(blobs.validation_y)).mean())
    assert abs(by_hand - other) > 0.1
    for expected, seen in ((by_hand, True), (other, False)):
        chosen = Experiment(task, data_selection=Judging(expected=expected), cohort_size=2, rounds=1)
        history = simulate(chosen, federation)
        assert (history["bytes_up"][0, 0] > 0) == seen
