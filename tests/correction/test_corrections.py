"""FedProx and SCAFFOLD, against NumPy, on quadratics whose optimum is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Layout, correction, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.feddyn import FedDyn
from fedjax_sel.correction.none import NoCorrection
from fedjax_sel.correction.proximal import Proximal
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.devices.availability import Function
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.devices.laws import Uniform as UniformLaw
from fedjax_sel.engine.memory import check_kept, size_of
from fedjax_sel.local_training import Exponential
from fedjax_sel.local_training.optax import Optax
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.types import Cohort
from tests.quadratic import OPTIMUM, TASK, A, clients, gradient, weights_of

RATE, STEPS = 0.1, 8


def run(corrected, cohort_size=3, rounds=12, client_selection=None, layout=None, **changes):
    trainer = SGD(RATE, batch_size=None, steps=STEPS, schedule=Exponential(0.9))
    experiment = Experiment(
        TASK,
        client_selection or Uniform(),
        local_training=trainer,
        correction=corrected,
        cohort_size=cohort_size,
        rounds=rounds,
    )
    return simulate(experiment.replace(**changes), clients(), seeds=[3], layout=layout)


def prox_by_hand(selections, mu):
    w = np.zeros(2)
    for t, cohort in enumerate(selections):
        moved = []
        for i in cohort:
            y = w.copy()
            for _ in range(STEPS):
                y -= RATE * 0.9**t * (gradient(y, i) + mu * (y - w))
            moved.append(y)
        w = np.mean(moved, axis=0)
    return w


def scaffold_by_hand(selections, clients_in_all=6):
    w, shared, own = np.zeros(2), np.zeros(2), np.zeros((len(A), 2))
    for t, cohort in enumerate(selections):
        moved, change = [], np.zeros(2)
        for i in cohort:
            y, rate = w.copy(), RATE * 0.9**t
            for _ in range(STEPS):
                y -= rate * (gradient(y, i) - own[i] + shared)
            new = own[i] - shared + (w - y) / (STEPS * rate)
            change += new - own[i]
            own[i] = new
            moved.append(y)
        w, shared = np.mean(moved, axis=0), shared + change / clients_in_all
    return w


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan"), Layout(clients=2)], ids=str)
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_fedprox_is_its_text(mu, layout):
    history = run(Proximal(mu), layout=layout)
    np.testing.assert_allclose(weights_of(history), prox_by_hand(history.selections[0], mu), rtol=1e-4, atol=1e-5)


def test_without_force_fedprox_is_plain_training():
    np.testing.assert_array_equal(weights_of(run(Proximal(0.0))), weights_of(run(NoCorrection())))


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan"), Layout(clients=2)], ids=str)
def test_scaffold_is_its_text(layout):
    history = run(Scaffold(), layout=layout)
    np.testing.assert_allclose(weights_of(history), scaffold_by_hand(history.selections[0]), rtol=1e-4, atol=1e-5)


def test_dividing_by_the_cohort_instead_of_all_clients_would_be_another_algorithm():
    history = run(Scaffold())
    assert np.abs(weights_of(history) - scaffold_by_hand(history.selections[0], clients_in_all=3)).max() > 0.01


@pytest.mark.parametrize(("cohort_size", "client_selection"), [(len(A), Uniform()), (3, RoundRobin())])
def test_scaffold_reaches_the_optimum_where_fedavg_drifts(cohort_size, client_selection):
    trainer = SGD(RATE, batch_size=None, steps=STEPS)
    away = {
        type(c).__name__: np.abs(
            weights_of(run(c, cohort_size, 200, client_selection, local_training=trainer)) - OPTIMUM
        ).max()
        for c in (NoCorrection(), Proximal(0.5), Scaffold())
    }
    assert away["Scaffold"] < 1e-4 < 0.05 < away["Proximal"] < away["NoCorrection"]


def feddyn_by_hand(selections, alpha, returned=lambda t, i: True):
    """Acar et al., Algorithm 1, with gradient steps for its exact minimiser."""
    w, h, own = np.zeros(2), np.zeros(2), np.zeros((len(A), 2))
    for t, cohort in enumerate(selections):
        ends = {}
        for i in cohort:
            y = w.copy()
            for _ in range(STEPS):
                y -= RATE * 0.9**t * (gradient(y, i) - own[i] + alpha * (y - w))
            if returned(t, i):
                ends[i] = y
        for i, y in ends.items():
            own[i] -= alpha * (y - w)
        if ends:
            h = h - alpha / len(A) * sum(y - w for y in ends.values())
            w = np.mean(list(ends.values()), axis=0) - h / alpha
    return w


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan"), Layout(clients=2)], ids=str)
@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_feddyn_is_its_text(alpha, layout):
    history = run(FedDyn(alpha), layout=layout)
    wanted = feddyn_by_hand(history.selections[0], alpha)
    np.testing.assert_allclose(weights_of(history), wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(wanted - prox_by_hand(history.selections[0], alpha)).max() > 0.01


def away(round, clients):
    """Client 1 drops out in round 2, everybody in round 4."""
    return (jnp.arange(clients) != 1) & (round != 4) | (round != 2) & (round != 4)


def test_feddyn_counts_who_returns_and_rests_where_nobody_does():
    history = run(FedDyn(0.3), client_selection=RoundRobin(), volatility=Function(away))
    wanted = feddyn_by_hand(history.selections[0], 0.3, lambda t, i: t != 4 and (t, i) != (2, 1))
    assert 1 in history.selections[0, 2]
    np.testing.assert_allclose(weights_of(history), wanted, rtol=1e-4, atol=1e-5)


def test_feddyn_reaches_the_optimum_of_all_with_a_part_of_them_and_sends_no_more():
    trainer = SGD(RATE, batch_size=None, steps=40)
    plain, dynamic = (run(c, 3, 400, Uniform(), local_training=trainer) for c in (NoCorrection(), FedDyn(0.5)))
    assert np.abs(weights_of(dynamic) - OPTIMUM).max() < 1e-3 < 0.05 < np.abs(weights_of(plain) - OPTIMUM).max()
    for name in ("bytes_down", "bytes_up", "client_flops"):
        np.testing.assert_array_equal(dynamic[name], plain[name])


def test_who_does_not_come_back_changes_no_variate():
    state = Scaffold().init({"w": jnp.zeros(2)}, 4)
    from fedjax_sel.types import Cohort

    cohort = Cohort(jnp.array([2, 0, -1]), jnp.array([True, False, False]), jnp.ones(3))
    merged = Scaffold().merge(state, cohort, {"w": jnp.array([[1.0, 2], [5, 5], [7, 7]])})
    np.testing.assert_array_equal(merged.client["w"], [[0, 0], [0, 0], [1, 2], [0, 0]])
    np.testing.assert_array_equal(merged.server["w"], [0.25, 0.5])


def test_a_client_without_steps_uploads_nothing():
    held = Scaffold().client_state(Scaffold().init({"w": jnp.zeros(2)}, 4), jnp.int32(1))
    up = Scaffold().upload(held, {"w": jnp.array([1.0, -2.0])}, jnp.float32(0))
    np.testing.assert_array_equal(up["w"], 0)


def test_scaffold_pays_for_its_variates():
    plain, double = run(NoCorrection()), run(Scaffold())
    for name in ("bytes_down", "bytes_up"):
        np.testing.assert_array_equal(double[name], 2 * plain[name])
    np.testing.assert_array_equal(double["client_flops"], plain["client_flops"])


def test_scaffolds_second_model_takes_time():
    from dataclasses import replace

    def seconds(corrected):
        data = replace(clients(), devices=UniformLaw(low=0.5, compute=1e12))
        experiment = Experiment(
            TASK, local_training=SGD(RATE, steps=2), correction=corrected, cohort_size=3, rounds=4, deadline=Deadline()
        )
        return simulate(experiment, data, seeds=[1])["seconds"]

    np.testing.assert_allclose(seconds(Scaffold()) / seconds(NoCorrection()), 2.0, rtol=1e-3)


@pytest.mark.parametrize("name", correction.available())
def test_every_correction_runs_compiled_and_not_and_recompiles_nothing(name):
    from fedjax_sel.engine.driver import run_chunk

    corrected = correction.load(name)()
    experiment = Experiment(
        TASK, local_training=SGD(RATE, batch_size=None, steps=3), correction=corrected, cohort_size=3, rounds=2
    )
    plain = simulate(experiment, clients(), seeds=[3], debug=True)
    again = simulate(experiment, clients(), seeds=[3])
    np.testing.assert_allclose(weights_of(again), weights_of(plain), rtol=1e-5, atol=1e-6)
    before = run_chunk.programs
    tuned = experiment.replace(correction=jax.tree.map(lambda leaf: leaf * 2.0, corrected), aggregation=Mean())
    simulate(tuned, clients(), seeds=[5])
    assert run_chunk.programs == before


@pytest.mark.parametrize("correction", [FedDyn(), Scaffold()], ids=repr)
def test_what_clients_send_beside_their_updates_would_undo_what_makes_those_private(correction):
    with pytest.raises(
        ValueError, match=r"dp_fedavg clips updates .* but (FedDyn|Scaffold)\(.*\) moves models by what"
    ):
        run(correction, aggregation=DPFedAvg())


def test_bad_input():
    with pytest.raises(ValueError, match=r"proximal: mu is -1.0; it must be in \[0, inf\)"):
        Proximal(-1.0)
    with pytest.raises(ValueError, match=r"correction is 3 \(int\); it must be an instance of fedjax_sel.Correction"):
        run(3)


def test_a_state_that_cannot_fit_is_refused_with_its_size():
    data = clients().draw(0)
    sizes = data, data.x, 100, Layout()
    rows = size_of(data)
    experiment = Experiment(TASK, Uniform(), cohort_size=3)
    check_kept(experiment, *sizes, rows + 2000)
    # 6 clients and the server, 2 numbers of 4 bytes each, a hundred times; the models are 800 bytes
    said = r"scaffold for N = 6 clients, 100 runs and a model of 2 parameters takes 5.22e-06 GiB"
    with pytest.raises(ValueError, match=said):
        check_kept(experiment.replace(correction=Scaffold()), *sizes, rows + 2000)
    check_kept(experiment.replace(correction=Scaffold()), *sizes, rows + 800 + 5600)


def test_with_momentum_a_variate_is_the_mean_gradient_of_the_clients_steps():
    """The correction goes inside the momentum; the weights of the gradients in the update are those of the mean."""
    rho, steps, rate = 0.9, 5, 0.05
    trainer = SGD(rate, batch_size=None, steps=steps, momentum=rho)
    plan = trainer.plan(jnp.array([1]), 1, jnp.int32(0), jnp.int32(1))
    rng = np.random.default_rng(0)
    gradients, own, server = rng.normal(size=(steps, 2)), rng.normal(size=2), rng.normal(size=2)
    velocity, delta = np.zeros(2), np.zeros(2)
    for g in gradients:
        velocity = rho * velocity + g - own + server
        delta -= rate * velocity
    weight = np.array([(1 - rho ** (steps - k)) / (1 - rho) for k in range(steps)])
    state = Scaffold().client_state(Scaffold().init({"w": jnp.zeros(2)}, 1), jnp.int32(0))
    state = state._replace(client={"w": jnp.asarray(own)}, server={"w": jnp.asarray(server)})
    change = Scaffold().upload(state, {"w": jnp.asarray(delta)}, plan.step_size_sum[0])["w"]
    np.testing.assert_allclose(own + change, weight @ gradients / weight.sum(), rtol=1e-4, atol=1e-5)


def scaffold_after_momentum(rounds, rows, rho, steps, rate):
    """Flower's `niid_bench`: momentum on plain gradients, then the correction; variates weighted by examples."""
    w, shared, own = np.zeros(2), np.zeros(2), np.zeros((len(A), 2))
    share = np.array(rows) / np.sum(rows)
    for _ in range(rounds):
        moved, change = [], []
        for i in range(len(A)):
            y, velocity = w.copy(), np.zeros(2)
            for _ in range(steps):
                velocity = rho * velocity + gradient(y, i)
                y = y - rate * velocity - rate * (shared - own[i])
            new = own[i] - shared + (w - y) / (rate * steps)
            change.append(new - own[i])
            own[i] = new
            moved.append(y)
        w, shared = share @ np.array(moved), shared + share @ np.array(change)
    return w


def test_the_correction_can_come_after_the_momentum_and_variates_be_weighted_by_examples():
    rows, rho, rate = (3, 1, 2, 1, 5, 2), 0.8, 0.02
    trainer = SGD(rate, batch_size=None, steps=STEPS, momentum=rho)

    def train(corrected):
        experiment = Experiment(
            TASK, local_training=trainer, correction=corrected, aggregation=Mean("size"), cohort_size=6, rounds=7
        )
        return weights_of(simulate(experiment, clients(rows), seeds=[3]))

    found = train(Scaffold("after_momentum", "size"))
    np.testing.assert_allclose(found, scaffold_after_momentum(7, rows, rho, STEPS, rate), rtol=1e-4, atol=1e-5)
    for other in (Scaffold(weighting="size"), Scaffold("after_momentum")):
        assert np.abs(train(other) - found).max() > 1e-3


def test_a_trainer_that_adds_nothing_after_its_momentum_is_refused():
    from fedjax_sel.local_training.alternating import Alternating

    Scaffold().check(Alternating())
    with pytest.raises(ValueError, match=r"scaffold: applied is 'after_momentum', but Alternating\(.*leave it out"):
        Scaffold("after_momentum").check(Alternating())


def test_scaffold_refuses_steps_that_are_no_sum_of_gradients():
    Scaffold().check(SGD(momentum=0.9))
    Scaffold().check(Optax(optimizer="sgd", hyperparams={"momentum": 0.9}))
    NoCorrection().check(Optax(optimizer="adam"))
    with pytest.raises(ValueError, match=r"scaffold needs .*sgd.*; Optax\(.*optimizer='adam'.*\) is adaptive"):
        run(Scaffold(), local_training=Optax(optimizer="adam"))


@pytest.mark.parametrize("corrected", [FedDyn(alpha=0.01), Scaffold()], ids=str)
def test_sums_over_rounds_of_16_bits_do_not_stop_growing(corrected):
    """Ten of 100 members tell the same small number in each of 2000 rounds."""
    variables = {"w": jnp.zeros(1, jnp.bfloat16)}
    state = corrected.init(variables, 100)
    members = Cohort(jnp.arange(10), jnp.ones(10, bool), jnp.ones(10))
    told = {"w": jnp.full((10, 1), 2.0**-7, jnp.bfloat16)}
    state = jax.lax.fori_loop(0, 2000, lambda _, state: corrected.merge(state, members, told), state)
    step = -0.01 * 2.0**-7 if isinstance(corrected, FedDyn) else 2.0**-7
    np.testing.assert_allclose(state.client["w"][:11, 0], [2000 * step] * 10 + [0], rtol=1e-4)
    np.testing.assert_allclose(state.server["w"], 200 * step, rtol=1e-4)
    own = corrected.client_state(state, jnp.int32(0))
    gradient = corrected.correct(own, {"w": jnp.ones(1, jnp.bfloat16)}, variables, variables)
    assert gradient["w"].dtype == jnp.bfloat16
