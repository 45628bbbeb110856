"""What a selector is told, against softmax regression in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, signals, simulate
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import ClientSelector, Signals, UpdateSignal
from fedjax_sel.pytree import static

N, M, ROUNDS, STEPS, RATE = 7, 3, 4, 2, 0.3


class Present(UpdateSignal):
    """1 for everyone who sent an update: unlike the package's own, not 0 of an update that is 0."""

    name = "present"

    def measure(self, update, reference):
        return jnp.ones(())


ON_UPDATES = (signals.TrainingLoss(), signals.UpdateNorm(), Present())
AFTER = (*ON_UPDATES, signals.ValidationAccuracy(), signals.ValidationLoss())
MAPPINGS = {
    "vmap": Layout(),
    "scan": Layout(clients=1, seeds="scan"),
    "blocks of 2, the last one filled up": Layout(clients=2, examples=16),
}


def in_cohort(round, slot):
    """Who trains where; in odd rounds the middle slot stays empty."""
    return -1 if round % 2 and slot == 1 else (2 * round + slot) % N


class Heard(list):
    """What was heard; the same only as itself."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Listener(ClientSelector):
    """Chooses by the calendar, asks in every second round, and passes on what it hears."""

    heard: Heard = static()
    after: tuple = AFTER

    def signals(self):
        return Signals(before=[signals.Loss(), signals.GradientNorm()], after=self.after)

    def init(self, key, ctx, host):
        return jnp.zeros((), jnp.int32)

    def asks(self, round):
        return round % 2 == 0

    def select(self, key, state, ctx, *, loss, gradient_norm):
        slot = jnp.arange(ctx.m)
        client = (2 * ctx.round + slot) % ctx.num_clients
        return cohort_of(client, ~((ctx.round % 2 == 1) & (slot == 1)))

    def observe(self, key, state, ctx, cohort, **told):
        jax.debug.callback(self.hear, ctx.round, state, **told)
        return state + 1

    def hear(self, round, state, **told):
        assert int(state) == int(round), "one observation a round"
        self.heard.append((int(round), {name: np.asarray(value) for name, value in told.items()}))


@pytest.fixture(scope="module")
def federation(blobs):
    """Clients of unequal size, a quarter of whose rows nobody may look at."""
    return Federation(blobs, partition.Dirichlet(clients=N, alpha=1.0, min_examples=5), holdout=0.25, data_seed=2)


def experiment(blobs, selector):
    task = Task.on(LogisticRegression(classes=3), blobs)
    trainer = SGD(RATE, batch_size=None, steps=STEPS)
    return Experiment(task, client_selection=selector, local_training=trainer, cohort_size=M, rounds=ROUNDS)


def passes(w, x, y):
    """Mean loss, its gradient and the accuracy of softmax regression with weights `w`, the last row the biases."""
    z = np.c_[x, np.ones(len(x))] @ w
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    right = np.mean(z.argmax(1) == y)
    p[np.arange(len(y)), y] -= 1
    return loss, np.c_[x, np.ones(len(x))].T @ p / len(y), right


@pytest.fixture(scope="module")
def plain(blobs, federation):
    """What should be heard in each round, a client at a time; full batches, so that there is no chance in it."""
    data = federation.draw(0)
    shift, deviation = blobs.x.mean(0), blobs.x.std(0)
    x, validation = ((np.asarray(a, np.float64) - shift) / deviation for a in (data.x, data.validation_x))
    w, rounds = np.zeros((3, 3)), []
    for t in range(ROUNDS):
        told = {name: np.zeros(N) for name in ("loss", "gradient_norm")}
        told |= {name: np.zeros(M) for name in ("training_loss", "update_norm", "present")}
        rows = [data.order[data.offset[i] : data.offset[i] + data.num_examples[i]] for i in range(N)]
        for i in range(N) if t % 2 == 0 else ():
            told["loss"][i], gradient, _ = passes(w, x[rows[i]], data.y[rows[i]])
            told["gradient_norm"][i] = np.sqrt((gradient**2).sum())
        changes = []
        for slot in range(M):
            if (client := in_cohort(t, slot)) < 0:
                continue
            own, seen = w.copy(), []
            for _ in range(STEPS):
                loss, gradient, _ = passes(own, x[rows[client]], data.y[rows[client]])
                own -= RATE * gradient
                seen.append(loss)
            changes.append(own - w)
            told["present"][slot] = 1
            told["training_loss"][slot] = np.mean(seen)
            told["update_norm"][slot] = np.sqrt((changes[-1] ** 2).sum())
        w = w + np.mean(changes, axis=0)
        told["validation_loss"], _, told["validation_accuracy"] = passes(w, validation, data.validation_y)
        rounds.append(told)
    return rounds


@pytest.fixture(scope="module", params=MAPPINGS)
def listened(request, blobs, federation):
    """What two seeds heard under a layout (they differ in nothing), and their history."""
    heard = Heard()
    history = simulate(experiment(blobs, Listener(heard)), federation, 2, layout=MAPPINGS[request.param])
    jax.effects_barrier()
    return heard, history


def test_the_selector_hears_what_a_client_at_a_time_would_have_told_it(listened, plain):
    heard, history = listened
    assert sorted(round for round, _ in heard) == sorted(2 * list(range(ROUNDS)))
    assert history.selections[0].tolist() == [[in_cohort(t, slot) for slot in range(M)] for t in range(ROUNDS)]
    for round, told in heard:
        assert told.keys() == plain[round].keys()
        for name, value in told.items():
            np.testing.assert_allclose(value, plain[round][name], rtol=2e-5, atol=1e-6, err_msg=f"{name}, {round}")


def test_empty_slots_tell_zero(listened):
    for round, told in listened[0]:
        for name in (signal.name for signal in ON_UPDATES):
            assert (told[name] > 0).tolist() == [in_cohort(round, slot) >= 0 for slot in range(M)]


def test_a_round_without_questions_tells_zeros_and_costs_nothing(listened, federation):
    heard, history = listened
    for round, told in heard:
        assert (told["loss"] > 0).all() == (told["gradient_norm"] > 0).all() == (round % 2 == 0)
        assert told["loss"].any() == told["gradient_norm"].any() == (round % 2 == 0)
    model, members = 4 * 9, np.array([3, 2, 3, 2])
    asks = np.array([1, 0, 1, 0])
    flops = (1 + 3) * history.about["forward_flops_per_example"] * federation.draw(0).num_examples.sum()
    for seed in range(2):
        np.testing.assert_array_equal(history["selection_flops"][seed], asks * flops)
        np.testing.assert_array_equal(history["selection_bytes_down"][seed], asks * model * (N - 3))
        np.testing.assert_array_equal(history["selection_bytes_up"][seed], asks * 4 * 2 * N + 4 * members)


def test_a_loss_without_the_updates_is_heard_all_the_same(blobs, federation, plain):
    """No signal looks at a delta here, so that none is kept."""
    heard = Heard()
    simulate(experiment(blobs, Listener(heard, (signals.TrainingLoss(),))), federation, layout="scan")
    jax.effects_barrier()
    assert len(heard) == ROUNDS
    for round, told in heard:
        np.testing.assert_allclose(told["training_loss"], plain[round]["training_loss"], rtol=2e-5)


def test_a_signal_on_validation_rows_that_are_not_there_is_refused_before_anything_compiles(blobs):
    bare = dataset("bare", blobs.x, blobs.y, test=(blobs.test_x, blobs.test_y))
    compiled = run_chunk.programs
    with pytest.raises(
        ValueError, match=r"validation_accuracy, validation_loss, but the server has no validation examples; .*share"
    ):
        simulate(experiment(bare, Listener(Heard())), Federation(bare, partition.Iid(clients=N)))
    assert run_chunk.programs == compiled
