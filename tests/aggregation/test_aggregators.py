"""Aggregators against NumPy transcriptions of their papers, on quadratics whose optimum is known."""

import numpy as np
import pytest

from fedjax_sel import Experiment, Layout, aggregation, simulate
from fedjax_sel.aggregation.fedavgm import FedAvgM
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.fedopt import FedOpt
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.local_training.sgd import SGD
from tests.quadratic import TASK, A, B, clients, gradient, weights_of

ROWS = (1, 5, 2, 3, 1, 4)
RATE = 0.05


def run(aggregator, cohort_size=3, rounds=10, momentum=None, epochs=2, layout=None):
    """Batches of one row, so that a client with more rows takes more steps."""
    trainer = SGD(RATE, batch_size=1, epochs=epochs, momentum=momentum)
    experiment = Experiment(TASK, local_training=trainer, aggregation=aggregator, cohort_size=m, rounds=rounds)
    return simulate(experiment, clients(ROWS), seeds=[1], layout=layout)


def updates(w, cohort, momentum=0.0, epochs=2):
    """Δ_i, rows and steps of each member."""
    out = []
    for i in cohort:
        y, v = w.copy(), np.zeros(2)
        for _ in range(epochs * ROWS[i]):
            v = momentum * v + gradient(y, i)
            y -= RATE * v
        out.append((y - w, ROWS[i], epochs * ROWS[i]))
    return out


@pytest.mark.parametrize("momentum", [None, 0.6])
@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=str)
def test_fednova_is_its_text(momentum, layout):
    history = run(FedNova(momentum or 0.0), momentum=momentum, layout=layout)
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
        clients(ROWS),
        seeds=[2],
    )
    mean = simulate(
        Experiment(TASK, local_training=SGD(RATE, steps=4), aggregation=Mean("size"), cohort_size=4, rounds=5),
        clients(ROWS),
        seeds=[2],
    )
    np.testing.assert_allclose(weights_of(same), weights_of(mean), rtol=1e-5)


def test_small_steps_take_fednova_to_the_optimum_of_the_rows_and_fedavg_elsewhere():
    trainer = SGD(0.002, batch_size=1, epochs=1)

    def end(aggregator):
        experiment = Experiment(
            TASK, local_training=trainer, aggregation=aggregator, cohort_size=len(A), rounds=3000, evaluate_every=3000
        )
        return weights_of(simulate(experiment, clients(ROWS), seeds=[0], chunk=3000))

    share = np.array(ROWS)[:, None] / sum(ROWS)
    optimum = (share * A * B).sum(0) / (share * A).sum(0)
    np.testing.assert_allclose(end(FedNova()), optimum, atol=0.02)
    assert np.abs(end(Mean("size")) - optimum).max() > 0.1


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "yogi"])
@pytest.mark.parametrize("by", ["client", "size"])
def test_fedopt_is_its_text(optimiser, by):
    eta, b1, b2, tau = 0.3, 0.8, 0.95, 0.02
    history = run(FedOpt(eta, b1, b2, tau, optimiser=optimiser, weighting=by))
    w, m, v = np.zeros(2), np.zeros(2), np.full(2, tau**2)
    for cohort in history.selections[0]:
        told = updates(w, cohort)
        weight = [rows if by == "size" else 1 for _, rows, _ in told]
        d = sum(k * change for k, (change, _, _) in zip(weight, told, strict=True)) / sum(weight)
        m = b1 * m + (1 - b1) * d
        if optimiser == "adagrad":
            v = v + d * d
        elif optimiser == "adam":
            v = b2 * v + (1 - b2) * d * d
        else:
            v = v - (1 - b2) * d * d * np.sign(v - d * d)
        w = w + eta * m / (np.sqrt(v) + tau)
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-3, atol=1e-4)


def test_fedavgm_is_its_text_and_without_momentum_the_mean():
    history = run(FedAvgM(0.7, 0.5))
    w, v = np.zeros(2), np.zeros(2)
    for cohort in history.selections[0]:
        v = 0.7 * v + np.mean([d for d, _, _ in updates(w, cohort)], axis=0)
        w = w + 0.5 * v
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights_of(run(FedAvgM(0.0))), weights_of(run(Mean())), rtol=1e-6)


def test_an_empty_cohort_moves_nothing_but_what_rolls():
    import jax.numpy as jnp

    from fedjax_sel.types import Cohort

    nobody = Cohort(jnp.full(2, -1), jnp.zeros(2, bool), jnp.zeros(2))
    for name in aggregation.available():
        weight = aggregation.load(name)().weights(nobody, jnp.zeros(2, int), jnp.zeros(2, int))
        np.testing.assert_array_equal(weight, 0)


@pytest.mark.parametrize(
    "make", [lambda: FedOpt(optimiser="adma"), lambda: Mean("row"), lambda: FedAvgM(weighting="x")]
)
def test_what_does_not_exist_is_refused(make):
    with pytest.raises(
        ValueError, match=r"unknown (fedopt: optimiser 'adma'; did you mean 'adam'|mean: by|fedavgm: by)"
    ):
        make()
