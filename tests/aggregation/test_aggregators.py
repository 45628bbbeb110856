"""Aggregators against NumPy transcriptions of their papers, on quadratics whose optimum is known."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Layout, aggregation, simulate
from fedjax_sel.aggregation.fedavgm import FedAvgM
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.fedopt import FedOpt
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.aggregation.trimmed_mean import TrimmedMean
from fedjax_sel.devices.availability import Trace
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.types import Cohort, Plan
from tests.quadratic import TASK, A, B, clients, gradient, weights_of

EXAMPLES = (1, 5, 2, 3, 1, 4)
RATE = 0.05


def run(aggregator, cohort_size=3, rounds=10, momentum=None, epochs=2, layout=None):
    """Batches of one example, so that a client with more examples takes more steps."""
    trainer = SGD(RATE, batch_size=1, epochs=epochs, momentum=momentum)
    experiment = Experiment(
        TASK, local_training=trainer, aggregation=aggregator, cohort_size=cohort_size, rounds=rounds
    )
    return simulate(experiment, clients(EXAMPLES), seeds=[1], layout=layout)


def updates(w, cohort, momentum=0.0, epochs=2):
    """Δ_i, examples and steps of each member."""
    out = []
    for i in cohort:
        y, v = w.copy(), np.zeros(2)
        for _ in range(epochs * EXAMPLES[i]):
            v = momentum * v + gradient(y, i)
            y -= RATE * v
        out.append((y - w, EXAMPLES[i], epochs * EXAMPLES[i]))
    return out


@pytest.mark.parametrize("momentum", [None, 0.6])
@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=str)
def test_fednova_is_its_text(momentum, layout):
    history = run(FedNova(), momentum=momentum, layout=layout)
    w, rho = np.zeros(2), momentum or 0.0
    for cohort in history.selections[0]:
        told = updates(w, cohort, rho)
        n = sum(rows for _, rows, _ in told)
        a = [(tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho) for _, _, tau in told]
        effective = sum(rows / n * a_i for (_, rows, _), a_i in zip(told, a, strict=True))
        w = w + effective * sum(rows / n * d / a_i for (d, rows, _), a_i in zip(told, a, strict=True))
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-5)


def test_with_equal_steps_fednova_is_the_mean_by_size():
    same = simulate(
        Experiment(TASK, local_training=SGD(RATE, steps=4), aggregation=FedNova(), cohort_size=4, rounds=5),
        clients(EXAMPLES),
        seeds=[2],
    )
    mean = simulate(
        Experiment(TASK, local_training=SGD(RATE, steps=4), aggregation=Mean("size"), cohort_size=4, rounds=5),
        clients(EXAMPLES),
        seeds=[2],
    )
    np.testing.assert_allclose(weights_of(same), weights_of(mean), rtol=1e-5)


def test_small_steps_take_fednova_to_the_optimum_of_the_examples_and_fedavg_elsewhere():
    trainer = SGD(0.002, batch_size=1, epochs=1)

    def end(aggregator):
        experiment = Experiment(
            TASK, local_training=trainer, aggregation=aggregator, cohort_size=len(A), rounds=3000, evaluate_every=3000
        )
        return weights_of(simulate(experiment, clients(EXAMPLES), seeds=[0], chunk=3000))

    share = np.array(EXAMPLES)[:, None] / sum(EXAMPLES)
    optimum = (share * A * B).sum(0) / (share * A).sum(0)
    np.testing.assert_allclose(end(FedNova()), optimum, atol=0.02)
    assert np.abs(end(Mean("size")) - optimum).max() > 0.1


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "yogi"])
@pytest.mark.parametrize("weighting", ["client", "size"])
def test_fedopt_is_its_text(optimizer, weighting):
    eta, b1, b2, tau = 0.3, 0.8, 0.95, 0.02
    history = run(FedOpt(eta, b1, b2, tau, optimizer=optimizer, weighting=weighting))
    w, m, v = np.zeros(2), np.zeros(2), np.full(2, tau**2)
    for cohort in history.selections[0]:
        told = updates(w, cohort)
        weight = [n if weighting == "size" else 1 for _, n, _ in told]
        d = sum(k * change for k, (change, _, _) in zip(weight, told, strict=True)) / sum(weight)
        m = b1 * m + (1 - b1) * d
        if optimizer == "adagrad":
            v = v + d * d
        elif optimizer == "adam":
            v = b2 * v + (1 - b2) * d * d
        else:
            v = v - (1 - b2) * d * d * np.sign(v - d * d)
        w = w + eta * m / (np.sqrt(v) + tau)
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("nesterov", [False, True])
def test_fedavgm_is_its_text_and_without_momentum_the_mean(nesterov):
    history = run(FedAvgM(0.7, 0.5, nesterov=nesterov))
    w, v = np.zeros(2), np.zeros(2)
    for cohort in history.selections[0]:
        delta = np.mean([d for d, _, _ in updates(w, cohort)], axis=0)
        v = 0.7 * v + delta
        w = w + 0.5 * (delta + 0.7 * v if nesterov else v)
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights_of(run(FedAvgM(0.0))), weights_of(run(Mean())), rtol=1e-6)


def test_an_empty_cohort_weighs_nothing():
    nobody = Cohort(jnp.full(2, -1), jnp.zeros(2, bool), jnp.zeros(2))
    none = jnp.zeros(2, int)
    for name in aggregation.available():
        weight = aggregation.load(name)().weights(nobody, none, Plan(none, none, jnp.zeros(2)))
        np.testing.assert_array_equal(weight, 0)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "yogi", None])
def test_a_round_from_which_nobody_returns_leaves_model_and_momentum(optimizer):
    """The run whose second and third round have nobody is the one without these rounds."""
    rule = FedAvgM(0.7, 0.5) if optimizer is None else FedOpt(0.3, 0.8, 0.95, 0.02, optimizer=optimizer)
    base = Experiment(TASK, local_training=SGD(RATE, batch_size=None), aggregation=rule, cohort_size=len(A))

    def end(there):
        trace = Trace(np.repeat(np.array(there)[:, None], len(A), 1))
        experiment = base.replace(availability=trace, rounds=len(there))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return weights_of(simulate(experiment, clients(EXAMPLES), seeds=[1]))

    np.testing.assert_array_equal(end([True, False, False]), end([True]))
    np.testing.assert_allclose(end([True, False, False, True]), end([True, True]), rtol=1e-6)


def test_who_returns_without_a_step_of_the_shared_model_adds_no_length():
    """Half of the examples each, lengths .2 and 0: τ is .1, whatever the unit of the length."""
    cohort = Cohort(jnp.arange(2), jnp.ones(2, bool), jnp.ones(2))
    for unit in (1.0, 0.1):
        plan = Plan(jnp.array([2, 2]), jnp.array([2, 2]), jnp.array([2 * unit, 0.0]))
        weight = FedNova().weights(cohort, jnp.array([5, 5]), plan)
        np.testing.assert_allclose(weight[0], 0.25, rtol=1e-6)


def fednova_weights(trainer, examples):
    """Of clients with so many examples, all of which return."""
    examples = jnp.asarray(examples)
    cohort = Cohort(jnp.arange(len(examples)), jnp.ones(len(examples), bool), jnp.ones(len(examples)))
    plan = trainer.plan(examples, 100, jnp.int32(0), jnp.int32(10))
    return np.asarray(FedNova().weights(cohort, examples, plan)), np.asarray(plan.steps)


@pytest.mark.parametrize("rate", [0.1, 0.003])
def test_fednova_knows_the_trainers_momentum(rate):
    """Two steps beside twenty: a_i are 1 + 1.9, and the sum of (1 - .9^k) / .1 over k = 1..20."""
    weights, steps = fednova_weights(SGD(rate, batch_size=10, epochs=2, momentum=0.9), [10, 100])
    np.testing.assert_array_equal(steps, [2, 20])
    a = np.array([2.9, sum((1 - 0.9**k) / 0.1 for k in range(1, 21))])
    share = np.array([10, 100]) / 110
    np.testing.assert_allclose(weights, share * (share * a).sum() / a, rtol=1e-5)
    np.testing.assert_allclose(weights, [3.45, 0.83], atol=0.005)
    plain, _ = fednova_weights(SGD(rate, batch_size=10, epochs=2), [10, 100])
    np.testing.assert_allclose(plain, [0.835, 0.835], atol=0.001)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.999, 1 - 1e-5, 1 - 2**-24])
def test_fednova_is_finite_and_exact_up_to_momentum_1(momentum):
    weights, steps = fednova_weights(SGD(0.1, batch_size=1, momentum=momentum), [3, 10, 100])
    a = np.array([sum(sum(momentum**j for j in range(k)) for k in range(1, tau + 1)) for tau in steps])
    share = np.array([3, 10, 100]) / 113
    np.testing.assert_allclose(weights, share * (share * a).sum() / a, rtol=1e-4)


def test_fednova_without_a_learning_rate_is_the_mean_by_size():
    weights, _ = fednova_weights(SGD(0.0, batch_size=1), [3, 10, 100])
    np.testing.assert_allclose(weights, np.array([3, 10, 100]) / 113, rtol=1e-6)


@pytest.mark.parametrize("make", [Mean, FedAvgM, FedOpt], ids=lambda c: c.__name__)
def test_a_cohorts_own_weights_may_have_any_sum(make):
    cohort = Cohort(jnp.array([4, 1, -1]), jnp.array([True, True, False]), jnp.array([0.5, 2.0, 9.0]))
    examples, plan = jnp.array([3, 5, 7]), Plan(*[jnp.ones(3)] * 3)

    def of(weighting):
        return np.asarray(make(weighting=weighting).weights(cohort, examples, plan))

    np.testing.assert_array_equal(of("cohort"), [0.5, 2, 0])
    np.testing.assert_allclose(of("client"), [0.2, 0.8, 0], rtol=1e-6)
    np.testing.assert_allclose(of("size"), [1.5 / 11.5, 10 / 11.5, 0], rtol=1e-6)


def test_the_state_of_a_server_optimiser_is_that_of_optax():
    variables = {"w": jnp.ones(2)}
    for aggregator in (Mean(), FedAvgM(), FedOpt(), FedNova()):
        transformation, state = aggregator.server_optimizer(), aggregator.init(variables)
        assert jax.tree.structure(state) == jax.tree.structure(transformation.init(variables))
        new, after = aggregator.step(state, variables, {"w": jnp.array([1.0, -2.0])})
        assert jax.tree.structure(after) == jax.tree.structure(state)
        assert new["w"].shape == (2,)


@pytest.mark.parametrize(
    "make", [lambda: FedOpt(optimizer="adma"), lambda: Mean("row"), lambda: FedAvgM(weighting="x")]
)
def test_what_does_not_exist_is_refused(make):
    said = r"fedopt: optimizer is 'adma'; .*did you mean 'adam'|mean: weighting is 'row'|fedavgm: weighting is 'x'"
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("number", [float, np.float32, jnp.float32], ids=["python", "numpy", "jax"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda of: FedAvgM(of(-5)), r"fedavgm: momentum is .*; it must be in \[0, 1\)"),
        (lambda of: FedAvgM(of(1)), "fedavgm: momentum is"),
        (lambda of: FedAvgM(of("nan")), "fedavgm: momentum is"),
        (lambda of: FedAvgM(learning_rate=of(-0.1)), "fedavgm: learning_rate is"),
        (lambda of: FedOpt(of("inf")), "fedopt: learning_rate is"),
        (lambda of: FedOpt(beta1=of(1)), "fedopt: beta1 is"),
        (lambda of: FedOpt(beta2=of(-0.5)), "fedopt: beta2 is"),
        (lambda of: FedOpt(tau=of(1e-46)), "fedopt: tau is .*; it must be in \\[1e-30, inf\\)"),
        (lambda of: TrimmedMean(of(0.5)), "trimmed_mean: beta is"),
    ],
)
def test_numbers_out_of_range_are_refused(make, said, number):
    def of(value):
        return number(float(value))

    with pytest.raises(ValueError, match=said):
        make(of)


def test_fedadagrad_has_no_momentum_unless_it_is_given():
    """As in the source's experiments: the first step is `η Δ / (sqrt(Δ² + τ²) + τ)`."""
    for optimizer, beta1 in (("adagrad", 0.0), ("adam", 0.9), ("yogi", 0.9)):
        default, given = (
            FedOpt(0.5, beta, 0.99, 0.01, optimizer=optimizer).server_optimizer() for beta in (None, beta1)
        )
        change = jnp.array([2.0, -0.5])
        (first, _), (other, _) = (rule.update(change, rule.init(change)) for rule in (default, given))
        np.testing.assert_array_equal(first, other)
        if optimizer == "adagrad":
            np.testing.assert_allclose(-first, 0.5 * change / (jnp.sqrt(change**2 + 0.01**2) + 0.01), rtol=1e-5)
