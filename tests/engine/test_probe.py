"""Rehearsals against the same training done by hand, and what they leave behind: values, and a bill."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, partition, signals, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection import uniform_m
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.data.federated import Examples
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.ledger import COLUMNS
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import ClientSelector, ClientSignal, Cost, DataSelector, Signals
from fedjax_sel.pytree import static

N, M, ROUNDS, EPOCHS, SEEDS = 7, 3, 6, 2, (4, 9)
REHEARSED, UNASKED, LIMIT = (0, 3), 3, 6
MODEL, F = 4 * 9, 2 * 2 * 3 + 3 + 2 * 2  # bytes of logistic regression, operations of a row's forward pass
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


class Heard(dict):
    """What was heard; the same only as itself."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Calendar(ClientSelector):
    """Chooses by the calendar, does not ask in `UNASKED`, and passes on what it hears, by seed and round."""

    heard: Heard | None = static(default=None)
    asked: tuple = (signals.Loss(),)

    def signals(self):
        return Signals(before=self.asked)

    def init(self, key, ctx, host):
        return jax.random.key_data(key)

    def asks(self, round):
        return round != UNASKED

    def select(self, key, state, ctx, **before):
        client = (2 * ctx.round + jnp.arange(ctx.m)) % ctx.num_clients
        return cohort_of(client, ctx.available[client])

    def observe(self, key, state, ctx, cohort, **told):
        if self.heard is not None:
            jax.debug.callback(self.hear, ctx.round, state, **told)
        return state

    def hear(self, round, state, **told):
        self.heard[tuple(state.tolist()), int(round)] = {name: np.asarray(value) for name, value in told.items()}


class Probing(Calendar):
    """The same, and it probes."""

    def probes(self, round):
        return round % 3 == 0


class Momentum(Mean):
    """Half of the last change is added to the mean: a state that a probe could spoil."""

    def init(self, variables):
        return jax.tree.map(jnp.zeros_like, variables)

    def step(self, state, variables, delta):
        state = jax.tree.map(lambda s, d: 0.5 * s + d, state, delta)
        return optax.apply_updates(variables, state), state


class EverySecondRow(DataSelector):
    """A client looks at all its rows before it takes every second one."""

    def signals(self):
        return {"margin": signals.Margin()}

    def select(self, key, state, valid, *, margin):
        return valid & (jnp.arange(valid.shape[0]) % 2 == 0)


class Dear(ClientSignal):
    """Looks at few rows forward and back, without the model, and sends some numbers."""

    name = "dear"

    @property
    def cost(self):
        return Cost(forward=1.0, backward=1.0, down=5.0, up=2.0, max_examples=LIMIT)

    def measure(self, task, variables, batch, key):
        return jnp.zeros(())


@pytest.fixture(scope="module")
def federation(blobs):
    """Clients of unequal size, the same for all seeds."""
    rng = np.random.default_rng(2)
    devices = DeviceProfile.of(
        compute=rng.uniform(300, 9000, N),
        efficiency=rng.uniform(1e3, 1e4, N),
        memory=1e9,
        up=rng.uniform(50, 400, N),
        down=rng.uniform(100, 900, N),
        radio=rng.uniform(0.5, 2, N),
    )
    law = partition.Dirichlet(clients=N, alpha=1.0, min_examples=5)
    return Federation(blobs, law, holdout=0.25, data_seed=2, devices=devices)


def experiment(blobs, selector, **settings):
    task, trainer = Task.on(LogisticRegression(classes=3), blobs), SGD(0.3, batch_size=16, epochs=EPOCHS)
    answers = {"local_training": trainer, "aggregation": Momentum(), "cohort_size": M, "rounds": ROUNDS, **settings}
    return Experiment(task, selector, **answers)


def run(experiment, federation, seeds=SEEDS, **how):
    history = simulate(experiment, federation, seeds, **{"chunk": ROUNDS, **how})
    jax.effects_barrier()
    return history


def told(heard, seed, t):
    return heard[tuple(jax.random.key_data(key_for(jax.random.key(seed), Purpose.SELECTOR)).tolist()), t]


def present(experiment, seed, t):
    return experiment.availability.available(key_for(jax.random.key(seed), Purpose.AVAILABILITY, t), t, N)


def probe(experiment, seed, t):
    """Its key, and who takes part."""
    own = key_for(jax.random.key(seed), Purpose.PROBE, t)
    cohort = uniform_m(key_for(own, Purpose.SELECT), present(experiment, seed, t), M)
    return own, [int(client) for client in cohort.client if client >= 0]


def losses_after(variables, task, data, *, held):
    """Each client's mean loss, in NumPy."""
    first = data.offset + data.num_examples if held else data.offset
    affine, out = jax.tree.map(np.float64, variables["params"]), []
    for start, count in zip(first, data.num_holdout if held else data.num_examples, strict=True):
        rows = data.order[start : start + count]
        x = (np.float64(data.x[rows]) - np.float64(task.shift)) * np.float64(task.scale)
        z = x @ affine["kernel"].T + affine["bias"]
        out.append(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(count), data.y[rows]]))
    return out


@pytest.fixture(scope="module")
def whole(blobs, federation):
    one = experiment(blobs, Probing(Heard()))
    return one, run(one, federation)


@pytest.fixture(scope="module")
def reached(blobs, federation):
    """With clients that cannot be reached, and signals on hold-out rows."""
    one = experiment(blobs, Probing(Heard()), availability=Bernoulli(0.3), signal_split="holdout")
    return one, run(one, federation)


@pytest.mark.parametrize(("which", "smallest"), [("whole", M), ("reached", 1)])
def test_the_probed_losses_are_those_of_the_same_cohort_trained_by_hand(request, federation, which, smallest):
    whole, _ = request.getfixturevalue(which)
    heard = dict(whole.client_selection.heard)
    stored, task, trainer = federation.draw(0), whole.task, whole.local_training
    data = jax.tree.map(jnp.asarray, stored)

    @jax.jit
    def train(variables, client, key):
        index, valid = data.examples_of(client)
        plan = trainer.plan(valid.sum(), data.longest, jnp.int32(0), jnp.int32(ROUNDS))
        examples = Examples(data, index, valid)
        return trainer.train(key, task, variables, examples, plan, num_steps=plan.steps).delta

    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="no update came back", category=UserWarning
        )  # in the first rounds of a seed
        ends = {t: run(whole.replace(rounds=t), federation).variables for t in (2, 3)}
    sizes = []
    for i, seed in enumerate(SEEDS):
        models = {t: jax.tree.map(lambda leaf, i=i: leaf[i], end) for t, end in ends.items()}
        models[0] = models[-1] = task.init(key_for(jax.random.key(seed), Purpose.MODEL), data.x)
        for t in REHEARSED:
            own, cohort = probe(whole, seed, t)
            sizes.append(len(cohort))
            deltas = [train(models[t], c, key_for(own, Purpose.TRAIN, t, c)) for c in cohort]
            made = jax.tree.map(
                lambda now, last, *d: now + 0.5 * (now - last) + sum(d) / max(len(d), 1),
                *(models[t], models[t - 1], *deltas),
            )
            want = losses_after(made, task, stored, held=whole.signal_split == "holdout")
            want = np.where(present(whole, seed, t), want, np.nan)  # who cannot be reached says nothing
            np.testing.assert_allclose(told(heard, seed, t)["probed_loss"], want, **CLOSE)
        for t in set(range(ROUNDS)) - {*REHEARSED}:
            np.testing.assert_array_equal(told(heard, seed, t)["probed_loss"], np.zeros(N))
    assert min(sizes) == smallest


def test_a_rehearsal_leaves_no_trace_but_costs(blobs, federation, whole):
    """Bit for bit, with an aggregator that remembers and a selector that chooses the same without probes."""
    heard, before = Heard(), whole[0].client_selection.heard
    plain = run(experiment(blobs, Calendar(heard)), federation)
    jax.tree.map(np.testing.assert_array_equal, plain.variables, whole[1].variables)
    np.testing.assert_array_equal(plain.selections, whole[1].selections)
    costs = {"selection_bytes_down", "selection_bytes_up", "selection_flops", "seconds", "joules"}
    assert costs < plain.metrics.keys() == whole[1].metrics.keys()
    for metric in plain.metrics:
        more = whole[1][metric] > plain[metric]
        np.testing.assert_array_equal(np.where(more, 0, whole[1][metric]), np.where(more, 0, plain[metric]))
        assert more.tolist() == [[metric in costs and t in REHEARSED for t in range(ROUNDS)]] * 2, metric
    for key, values in heard.items():
        assert values.keys() == {"loss"}
        np.testing.assert_array_equal(values["loss"], before[key]["loss"])


@pytest.mark.parametrize(
    ("rounds", "seeds", "how"),
    [
        (ROUNDS, SEEDS, {"layout": Layout(clients=1)}),
        (ROUNDS, SEEDS, {"layout": Layout(seeds="scan", examples=16)}),
        (1, SEEDS[:1], {"debug": True}),
    ],
    ids=["clients scanned", "seeds scanned", "uncompiled"],
)
def test_every_mapping_and_the_uncompiled_run_agree(blobs, federation, whole, rounds, seeds, how):
    heard, before = Heard(), whole[0].client_selection.heard
    other = run(experiment(blobs, Probing(heard), rounds=rounds), federation, seeds, **how)
    for metric in other.metrics:
        np.testing.assert_allclose(other[metric], whole[1][metric][: len(seeds), :rounds], **CLOSE, err_msg=metric)
    assert len(heard) == len(seeds) * rounds
    for key, values in heard.items():
        assert values.keys() == {"loss", "probed_loss"}
        for name, value in values.items():
            np.testing.assert_allclose(value, before[key][name], **CLOSE)


def test_rounds_and_chunks_with_and_without_rehearsals_share_one_program(blobs, federation, whole):
    one, before = experiment(blobs, Probing()), run_chunk.programs
    in_twos = run(one, federation, chunk=2)
    run(one.replace(rounds=5), federation, chunk=2)
    assert run_chunk.programs == before + 1
    for metric in in_twos.metrics:
        np.testing.assert_allclose(in_twos[metric], whole[1][metric], **CLOSE)


def test_a_rehearsal_is_on_the_bill_and_takes_time_and_energy(blobs, federation):
    """One probe where the round asks as well, and who was asked has the model; one where it does not."""
    before = signals.Loss(), Dear()
    settings = {"data_selection": EverySecondRow(), "availability": Bernoulli(0.7)}
    one = experiment(blobs, Probing(None, before), **settings)
    history = run(one, federation)
    plain = run(experiment(blobs, Calendar(None, before), **settings), federation)
    data = federation.draw(0)
    d, size = jax.tree.map(np.asarray, data.devices), np.asarray(data.num_examples)

    def looked(clients):
        return F * sum(3 * min(size[c], LIMIT) + size[c] for c in clients)

    def turn(c, down, flops, up):
        parts = down / d.down[c], flops / d.compute[c], up / d.up[c]
        energy = d.compute[c] / d.efficiency[c] * parts[1] + d.radio[c] * (parts[0] + parts[2])
        return sum(parts), energy

    for i, seed in enumerate(SEEDS):
        for t in REHEARSED:
            here = np.flatnonzero(present(one, seed, t)).tolist()
            holds = here if t != UNASKED else []
            _, cohort = probe(one, seed, t)
            training = {c: F * (size[c] + 3 * EPOCHS * -(-size[c] // 2)) for c in cohort}
            asking = [turn(c, MODEL + 4 * 5, looked([c]), 4 * 3) for c in here]
            trained = [turn(c, 0 if c in holds else MODEL, training[c], MODEL) for c in cohort]
            for column, extra in {
                "selection_bytes_down": MODEL * len({*cohort} - {*holds}) + len(here) * (MODEL + 4 * 5),
                "selection_bytes_up": MODEL * len(cohort) + 4 * 3 * len(here),
                "selection_flops": looked(here) + sum(training.values()),
            }.items():
                assert history[column][i, t] - plain[column][i, t] == extra, f"{column}, seed {seed}, round {t}"
            seconds = max(s for s, _ in asking) + max(s for s, _ in trained)
            energy = sum(j for _, j in asking + trained)
            np.testing.assert_allclose(history["seconds"][i, t] - plain["seconds"][i, t], seconds, rtol=1e-4)
            np.testing.assert_allclose(history["joules"][i, t] - plain["joules"][i, t], energy, rtol=1e-4)
    quiet = [t for t in range(ROUNDS) if t not in REHEARSED]
    for column in (*COLUMNS, "seconds", "joules"):
        np.testing.assert_array_equal(history[column][:, quiet], plain[column][:, quiet])


def test_who_could_answer_without_the_model_gets_it_for_the_rehearsal(blobs, federation):
    one = experiment(blobs, Probing(None, (Dear(),)), rounds=1)
    history = run(one, federation)
    assert history["selection_bytes_down"].tolist() == [[4 * 5 * N + MODEL * M + 4 * 5 * N]] * 2


def test_fedcor_goes_on_where_it_was_stopped(blobs, federation, tmp_path):
    """It probes in rounds 4 and 6; the first stop is between the first fit and a probe, the next after one."""
    selector = FedCor(warm_up=2, interval=2, history=4, dimension=3, first_steps=20, steps=5)
    one = experiment(blobs, selector, rounds=8)
    whole = run(one, federation, chunk=2)
    for stop in (4, 6, 8):
        places = Checkpoints(tmp_path)
        part = run(one, federation, chunk=2, checkpoints=places, callbacks=[lambda h, stop=stop: h.rounds >= stop])
    assert part.about["resumed_at"] == 6
    probed = whole["selection_bytes_up"] > 4 * N
    assert probed.tolist() == [[t in (4, 6) for t in range(8)]] * 2
    np.testing.assert_array_equal(whole.selections, part.selections)
    jax.tree.map(np.testing.assert_array_equal, whole.variables, part.variables)
    for metric in whole.metrics:
        np.testing.assert_array_equal(whole[metric], part[metric])
