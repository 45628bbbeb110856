"""Members that fail once they have trained: what is merged, what is billed, and what E3CS makes of it."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Experiment, Layout, simulate
from fedjax_sel.devices.availability import Always, Bernoulli, Trace
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.devices.laws import Uniform
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import Cohort
from tests.quadratic import TASK, A, clients, gradient, weights_of

RATE, STEPS, M = 0.1, 3, 4
MODEL = 4 * 2  # bytes


class ByCalendar(ClientSelector):
    """Clients t to t + m - 1 in round t."""

    def select(self, key, state, ctx):
        client = (ctx.round + jnp.arange(ctx.m)) % ctx.num_clients
        return Cohort(client.astype(jnp.int32), jnp.ones(ctx.m, bool), jnp.ones(ctx.m))


def experiment(selector, volatility, rounds=6):
    trainer = fs.local_training.SGD(RATE, batch_size=None, steps=STEPS)
    parts = {"client_selection": selector, "local_training": trainer, "volatility": volatility}
    return Experiment(TASK, cohort_size=M, rounds=rounds, evaluate_every=rounds, **parts)


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=["vmap", "scan"])
def test_only_those_who_come_back_are_merged_and_those_who_fail_have_trained(layout):
    back = np.random.default_rng(0).random((6, len(A))) < 0.6
    back[3] = False  # nobody
    history = simulate(experiment(ByCalendar(), Trace(back)), clients(), seeds=[1], layout=layout)
    w, uploads = np.zeros(2), []
    for t in range(6):
        deltas = []
        for i in (t + np.arange(M)) % len(A):
            y = w.copy()
            for _ in range(STEPS):
                y -= RATE * gradient(y, i)
            if back[t, i]:
                deltas.append(y - w)
        uploads.append(len(deltas))
        w = w + (np.mean(deltas, 0) if deltas else 0)
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-6)
    assert 0 in uploads
    np.testing.assert_array_equal(history["bytes_up"][0], MODEL * np.array(uploads))
    np.testing.assert_array_equal(history["bytes_down"][0], MODEL * M)
    np.testing.assert_allclose(history["client_flops"][0], history["client_flops"][0, 0])


def test_on_devices_who_fails_computes_and_uploads_nothing():
    data = fs.Federation(clients().source, clients().partition, devices=Uniform(low=0.1), data_seed=0)
    always = simulate(experiment(ByCalendar(), Trace(np.full((1, len(A)), True))), data, seeds=[1])
    with pytest.warns(UserWarning, match="no update came back in any round of all seeds"):
        never = simulate(experiment(ByCalendar(), Trace(np.full((1, len(A)), False))), data, seeds=[1])
    np.testing.assert_allclose(never["client_flops"], always["client_flops"])
    assert (never["seconds"] < always["seconds"]).all()
    assert (never["joules"] < always["joules"]).all()
    np.testing.assert_array_equal(never["bytes_up"], 0)


class Judged(ByCalendar):
    """Members measure their loss after training, on their own examples and on public ones, and send it."""

    def signals(self):
        own, public = fs.signals.Loss(), fs.signals.OnPublic(fs.signals.SoftLabels())
        return fs.Signals(trained={"trained_loss": own, "soft_labels": public})

    def observe(self, key, state, ctx, cohort, **told):
        return state


@pytest.mark.parametrize("late", [False, True])
def test_who_fails_or_is_late_has_measured_its_signals(late):
    """All energy is that of operations, at 1e6 a joule; the upload alone misses the deadline."""
    iris = fs.load("iris")
    slow = 1e9 if not late else 40.0
    devices = DeviceProfile.of(compute=[1e4, 1e4], efficiency=1e4, memory=1e9, up=slow, down=1e9, radio=0.0)
    federation = fs.Federation(iris, fs.partition.Iid(clients=2), data_seed=0, devices=devices, public=iris.x[:7])
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), iris)

    def run(back, seconds):
        volatility, trainer = Trace(np.full((1, 2), back)), fs.local_training.SGD(0.1, epochs=1)
        limits = {"deadline": Deadline(seconds), "volatility": volatility}
        parts = {"client_selection": Judged(), "local_training": trainer, **limits}
        return simulate(Experiment(task, cohort_size=2, rounds=1, **parts), federation, seeds=1)

    whole = run(True, math.inf)
    with pytest.warns(UserWarning, match="no update came back"):
        none = run(late, whole["seconds"][0, 0] - 0.01 if late else math.inf)
    assert whole["selection_flops"][0, 0] > 0
    np.testing.assert_array_equal(none["flops"], whole["flops"])
    np.testing.assert_allclose(none["joules"], whole["joules"], rtol=1e-6)
    np.testing.assert_allclose(whole["joules"] * 1e4, whole["flops"], rtol=1e-6)
    np.testing.assert_array_equal(none["selection_bytes_up"], 0)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5])
def test_a_deadline_makes_no_round_longer_where_members_fail_that_would_be_late(seconds):
    """With a model of 60 bytes, training takes a hundredth of a second and the upload a whole one."""
    iris = fs.load("iris")
    devices = DeviceProfile.of(compute=np.full(2, 1e7), efficiency=1e9, memory=1e9, up=60.0, down=6000.0)
    federation = fs.Federation(iris, fs.partition.Iid(clients=2), data_seed=0, devices=devices)
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), iris)
    volatility = Trace(np.zeros((1, 2), bool))

    def run(deadline):
        run = Experiment(task, cohort_size=2, rounds=1, volatility=volatility, deadline=Deadline(deadline))
        with pytest.warns(UserWarning, match="no update came back"):
            return simulate(run, federation, seeds=1)

    free, limited = run(math.inf), run(seconds)
    assert free["seconds"] < 0.1
    for cost in ("seconds", "joules", "bytes_up", "bytes_down", "flops"):
        np.testing.assert_allclose(limited[cost], free[cost], rtol=1e-6)


def test_e3cs_finds_who_comes_back_in_a_run():
    """Of six clients three come back with .2 and three with .9: at random .55 of four do; the best four, .725."""
    chance = np.array([0.2, 0.9, 0.2, 0.9, 0.2, 0.9])
    rates = {}
    for name, selector in (
        ("uniform", fs.client_selection.Uniform()),
        ("e3cs", fs.client_selection.E3CS(fairness=0.3)),
    ):
        history = simulate(experiment(selector, Bernoulli(chance), rounds=300), clients(), seeds=3)
        rates[name] = float(history["bytes_up"].mean() / MODEL / M)
    assert rates["uniform"] == pytest.approx(0.55, abs=4 * 0.5 / np.sqrt(3600))
    assert 0.62 < rates["e3cs"] < 0.74


def test_volatility_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"p has shape \(4,\)"):
        simulate(experiment(ByCalendar(), Bernoulli(np.full(4, 0.5))), clients(), seeds=1)
    with pytest.raises(ValueError, match=r"volatility is 0\.5"):
        experiment(ByCalendar(), 0.5)


class NeverBack(Always):
    """Nobody comes back, though the class is derived from one whose clients all do."""

    def available(self, key, t, n):
        return jnp.zeros(n, bool)


def test_a_class_derived_from_always_says_itself_who_comes_back():
    with pytest.warns(UserWarning, match="no update came back in any round"):
        simulate(experiment(ByCalendar(), NeverBack()), clients(), seeds=1)
