"""The global model on every client's own examples."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedjax_sel import Experiment, Federation, Layout, partition, simulate
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.faults import find_lost
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.metrics.clients import mean_over_clients, spread_over_clients, worst_decile
from fedjax_sel.models.mlp import MLP
from fedjax_sel.report.figures import plot_run
from fedjax_sel.report.summary import render_page, summarize
from fedjax_sel.runs import files
from fedjax_sel.task import AUC, F1, Accuracy, ClassAccuracy, Task

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
METRICS = {"accuracy": Accuracy(), "f1": F1(), "recall": ClassAccuracy()}


def experiment(blobs, **changes):
    task = Task.on(MLP(classes=3, hidden=(4,)), blobs, metrics=METRICS)
    return Experiment(task, cohort_size=3, rounds=5, evaluate_clients_every=2).replace(**changes)


@pytest.fixture(scope="module", params=[0.0, 0.3], ids=["training", "hold-out"])
def data(request, blobs):
    return Federation(blobs, partition.Dirichlet(12, 0.5, min_examples=5), holdout=request.param)


@pytest.fixture(scope="module")
def history(blobs, data):
    return simulate(experiment(blobs), data, seeds=2)


def test_ranks_are_among_a_clients_own_examples(blobs, data):
    task = Task.on(MLP(classes=3, hidden=(4,)), blobs, metrics={"auc": AUC(), "accuracy": Accuracy()})
    history = simulate(Experiment(task, cohort_size=3, rounds=1, evaluate_clients_every=1), data, seeds=1)
    assert [*history.client_metrics] == ["accuracy", "auc", "loss"]
    drawn, variables = data.draw(0), jax.tree.map(lambda leaf: leaf[0], history.variables)
    outputs, begin = np.asarray(task.logits(variables, drawn.x)), drawn.offset
    if data.holdout:
        begin = begin + drawn.num_examples
    scores = outputs - np.log(np.stack([np.exp(np.delete(outputs, c, 1)).sum(1) for c in range(3)], 1))
    size = drawn.num_holdout if data.holdout else drawn.num_examples
    for client, found in enumerate(history.client_metrics["auc"][0, 0]):
        own = drawn.order[begin[client] : begin[client] + size[client]]
        y, areas = np.asarray(drawn.y)[own], []
        for c in range(3):
            if 0 < (y == c).sum() < len(y):
                areas.append(roc_auc_score(y == c, scores[own, c]))
        np.testing.assert_allclose(found, np.mean(areas) if areas else np.nan, rtol=1e-5)


def test_every_client_is_evaluated_on_its_own_examples(blobs, data, history):
    task = experiment(blobs).task
    assert history.client_rounds == (2, 4, 5)
    for seed in range(2):
        drawn = data.draw(seed)
        held = data.holdout > 0
        variables = jax.tree.map(lambda leaf, seed=seed: leaf[seed], history.variables)
        each = task.example_metrics(task.logits(variables, drawn.x), jax.numpy.asarray(drawn.y))
        for client in range(drawn.num_clients):
            index, mask = drawn.replace(**{k: jax.numpy.asarray(getattr(drawn, k)) for k in LAYS}).examples_of(
                client, holdout=held
            )
            own = np.asarray(index)[np.asarray(mask)]
            sums = jax.tree.map(lambda v, own=own: jax.numpy.asarray(np.asarray(v)[own].sum(0, dtype=np.float32)), each)
            expected = task.compute_metrics(sums, float(len(own)))
            for name in ("accuracy", "f1", "loss"):
                found = history.client_metrics[name][seed, -1, client]
                np.testing.assert_allclose(found, expected[name], **CLOSE, err_msg=name)
            found = [history.client_metrics[f"recall_{c}"][seed, -1, client] for c in range(3)]
            np.testing.assert_allclose(found, expected["recall"], **CLOSE)
    on = "hold-out" if data.holdout else "training"
    assert on in history.about["clients_evaluated_on"]


LAYS = ("order", "offset", "num_examples", "num_holdout")


def test_values_that_are_not_finite_count_nowhere():
    for odd in (np.nan, np.inf, -np.inf):
        values = np.array([odd] + [0.25] * 2 + [0.5] * 17)
        rest = values[1:]
        np.testing.assert_allclose(mean_over_clients(values), rest.mean())
        np.testing.assert_allclose(spread_over_clients(values), rest.std())
        for higher, worst in ((True, 0.25), (False, 0.5)):
            np.testing.assert_allclose(worst_decile(values, higher_is_better=higher), worst)


def test_a_client_without_hold_out_examples_counts_nowhere_whoever_else_there_is(blobs):
    """The others are not judged by what they trained on; and as in a run in which clients have own, equal models."""
    owner = np.concatenate([[0], np.arange(len(blobs.y) - 1) % 7 + 1])
    data = Federation(dataclasses.replace(blobs, owner=owner.astype(np.int32)), partition.Natural(), holdout=0.3)
    asked = experiment(blobs, evaluate_clients_every=5)
    shared = simulate(asked, data, seeds=2)
    tuned = simulate(asked.replace(fine_tuning=SGD(learning_rate=0.0)), data, seeds=2)
    for name in ("accuracy", "loss"):
        values = shared.client_metrics[name]
        assert np.isnan(values[:, :, 0]).all()
        assert np.isfinite(values[:, :, 1:]).all()
        np.testing.assert_allclose(values, tuned.client_metrics[name], **CLOSE)
    np.testing.assert_allclose(
        shared["client_accuracy_mean"][:, -1], shared.client_metrics["accuracy"][:, -1, 1:].mean(1), rtol=1e-6
    )
    assert "up to 1 of 8 clients have none, and count nowhere" in shared.about["clients_evaluated_on"]


def test_a_client_whose_own_model_is_not_finite_is_warned_of(blobs):
    """It counts in no mean of losses, which would otherwise fall by it in silence."""
    owner = np.arange(len(blobs.y)) % 6
    data = Federation(dataclasses.replace(blobs, owner=owner.astype(np.int32)), partition.Natural(), holdout=0.3)
    asked = experiment(blobs, evaluate_clients_every=1, rounds=1, fine_tuning=SGD(learning_rate=3e38, epochs=5))
    with pytest.warns(UserWarning, match=r"clients are not finite \(seed 1, round 1\): they count in no mean") as said:
        history = simulate(asked, data, seeds=[1])
    losses = history.client_metrics["loss"][0, 0]
    lost = np.isposinf(losses)
    assert lost.any()
    assert any(str(one.message).startswith(f"the losses of up to {lost.sum()} of 6 clients") for one in said)
    assert find_lost(history)["clients"] == lost.sum()
    assert not find_lost(dataclasses.replace(history, metrics={**history.metrics, "alive": np.zeros((1, 1), bool)}))
    assert not history.diverged.any()
    assert not np.isnan(losses).any()
    page = render_page("run", summarize(history), "", history.about)
    assert f"the losses of up to {lost.sum()} of 6 clients are not finite" in page


def test_a_client_on_whose_examples_the_shared_model_overflows_is_warned_of(blobs):
    """Its loss is infinite, not NaN, which would mean that it has no examples."""
    owner = np.arange(len(blobs.y)) % 6
    x = np.where((owner == 5)[:, None], 1e38, 1.0).astype(np.float32) * np.sign(blobs.x)
    data = Federation(dataclasses.replace(blobs, x=x, owner=owner.astype(np.int32)), partition.Natural(), holdout=0.3)
    asked = Experiment(Task(Doubled(classes=3)), cohort_size=6, rounds=1, evaluate_clients_every=1)
    asked = asked.replace(local_training=SGD(learning_rate=0.0))
    with pytest.warns(UserWarning, match=r"up to 1 of 6 clients are not finite \(seed 0, round 1\)"):
        history = simulate(asked, data, seeds=1)
    assert np.isposinf(history.client_metrics["loss"][0, 0]).tolist() == [False] * 5 + [True]


class Doubled(nn.Module):
    """Logits that overflow, and cancel to NaN, beyond a tenth of the largest number."""

    classes: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.classes)(x) + (x * 10 - x * 10).sum(-1, keepdims=True)


def test_a_history_has_mean_worst_decile_and_spread_of_the_evaluated_rounds(history):
    values = history.client_metrics["accuracy"][:, -1].astype(float)
    np.testing.assert_allclose(history["client_accuracy_mean"][:, -1], values.mean(1))
    np.testing.assert_allclose(history["client_accuracy_worst_decile"][:, -1], np.sort(values, 1)[:, :2].mean(1))
    np.testing.assert_allclose(history["client_accuracy_spread"][:, -1], values.std(1))
    losses = np.sort(history.client_metrics["loss"][:, -1].astype(float), 1)
    np.testing.assert_allclose(history["client_loss_worst_decile"][:, -1], losses[:, -2:].mean(1))
    assert np.isnan(history["client_accuracy_mean"][:, [0, 2]]).all()


def test_a_client_without_a_value_does_not_count():
    values = np.array([np.nan, 3.0, 1.0, 2.0])
    assert worst_decile(values, higher_is_better=True) == 1
    assert worst_decile(values, higher_is_better=False) == 3
    assert mean_over_clients(values) == 2
    np.testing.assert_allclose(spread_over_clients(values), np.std([1, 2, 3]))
    assert np.isnan(mean_over_clients(np.full(3, np.nan)))


def test_evaluating_clients_changes_no_other_number_and_bills_nobody(blobs, data, history):
    without = simulate(experiment(blobs, evaluate_clients_every=None), data, seeds=2)
    assert not without.client_metrics
    assert not [name for name in without.metrics if name.startswith("client_") and name != "client_flops"]
    np.testing.assert_array_equal(without.selections, history.selections)
    for name in without.metrics:
        np.testing.assert_allclose(history[name], without[name], **CLOSE, err_msg=name)


@pytest.mark.parametrize("data", [0.3], indirect=True, ids=["hold-out"])
@pytest.mark.parametrize("given", [{"layout": Layout(clients=1, seeds="scan", examples=50)}, {"mesh": (1, 2)}], ids=str)
def test_layouts_agree_about_every_client(blobs, data, history, given):
    other = simulate(experiment(blobs), data, seeds=2, **given)
    assert other.client_metrics.keys() == history.client_metrics.keys()
    for name, values in history.client_metrics.items():
        np.testing.assert_allclose(other.client_metrics[name], values, **CLOSE, err_msg=name)


class Killed(BaseException):
    """As if the process had been killed."""


class KillsAfter:
    """Ends a run after so many rounds."""

    def __init__(self, rounds):
        self.rounds = rounds

    def after_central_iteration(self, history):
        if history.rounds == self.rounds:
            raise Killed


@pytest.mark.parametrize("data", [0.3], indirect=True, ids=["hold-out"])
def test_a_run_that_was_killed_goes_on_to_the_same_clients_bit_for_bit(blobs, data, tmp_path):
    whole = simulate(experiment(blobs), data, seeds=2, chunk=1)
    points = Checkpoints(tmp_path, pause=0)
    with pytest.raises(Killed):
        simulate(experiment(blobs), data, seeds=2, chunk=1, checkpoints=points, callbacks=[KillsAfter(4)])
    again = simulate(experiment(blobs), data, seeds=2, chunk=1, checkpoints=Checkpoints(tmp_path, pause=0))
    assert again.about["resumed_at"] == 3
    assert again.client_rounds == whole.client_rounds == (2, 4, 5)
    for name, values in whole.client_metrics.items():
        np.testing.assert_array_equal(again.client_metrics[name], values)
    for name, values in whole.metrics.items():
        np.testing.assert_array_equal(again[name], values)


def test_all_values_are_in_a_file_that_is_read_back(history, tmp_path):
    files.write_clients(tmp_path / "clients.parquet", history)
    metrics, rounds = files.read_clients(tmp_path / "clients.parquet", history.seeds, history.num_clients)
    assert rounds == history.client_rounds
    for name, values in history.client_metrics.items():
        np.testing.assert_array_equal(metrics[name], values)
    table = pd.read_parquet(tmp_path / "clients.parquet")
    row = table[(table["round"] == 4) & (table["seed"] == 1) & (table["client"] == 7)]
    assert row["accuracy"].item() == history.client_metrics["accuracy"][1, 1, 7]


def test_a_summary_a_page_and_a_figure_show_it(history):
    found = summarize(history)
    np.testing.assert_allclose(found["client_accuracy_mean"]["per_seed"], history["client_accuracy_mean"][:, -1])
    page = render_page("run", found, "", history.about)
    assert "figures/clients.png" in page
    assert "No client is billed" in page
    assert "worst tenth of the clients" in page
    figures = dict(plot_run(history))
    assert len(figures["clients"].axes) == 2
    import matplotlib.pyplot as plt

    plt.close("all")
