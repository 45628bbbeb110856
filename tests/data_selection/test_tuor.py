"""The selection by a benchmark model: its threshold against SciPy's statistic, and mislabelled examples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

from fedjax_sel import Experiment, Federation, Task, dataset, partition, simulate
from fedjax_sel.data_selection.tuor import Tuor, find_threshold
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context


def test_the_threshold_is_that_of_the_least_distance_of_kolmogorov_and_smirnov():
    rng = np.random.default_rng(0)
    clean = rng.gamma(2.0, size=31).astype(np.float32)
    losses = np.concatenate([rng.gamma(2.0, size=60), rng.gamma(9.0, size=40)]).astype(np.float32)
    counts = np.arange(31) < 25
    rising = np.sort(losses)
    tried = rising[np.arange(5, 101, 5) - 1]
    distance = [ks_2samp(losses[losses <= one], clean[counts]).statistic for one in tried]
    best = find_threshold(jnp.asarray(losses), jnp.asarray(clean), jnp.asarray(counts), 20)
    assert float(best) == tried[int(np.argmin(distance))]
    assert float(best) < rising[-1]


@pytest.mark.parametrize("strange", [np.inf, np.nan])
def test_one_loss_that_is_not_finite_moves_the_threshold_by_no_more_than_any_other(strange):
    rng = np.random.default_rng(0)
    clean, losses = rng.gamma(2.0, size=31).astype(np.float32), rng.gamma(2.0, size=100).astype(np.float32)
    some = np.where(np.arange(100) == 7, np.float32(1e30), losses)
    wild = np.where(np.arange(100) == 7, np.float32(strange), losses)
    counts = jnp.arange(31) < 25
    best = [float(find_threshold(jnp.asarray(one), jnp.asarray(clean), counts, 20)) for one in (some, wild)]
    assert best[0] == best[1]
    spoilt = jnp.asarray(clean).at[3].set(strange)
    assert np.isfinite(float(find_threshold(jnp.asarray(losses), spoilt, counts, 20)))


@pytest.fixture(scope="module")
def noisy():
    """Two far classes; a third of the training labels are wrong, those of the validation examples right."""
    rng = np.random.default_rng(2)
    y = np.arange(300) % 2
    x = (rng.normal(size=(300, 2)) + 3.0 * np.where(y, 1, -1)[:, None]).astype(np.float32)
    data = dataset("noisy", x, y, test=0.2, validation=0.2)
    truth = np.asarray(data.y)
    wrong = rng.random(len(truth)) < 1 / 3
    return replace(data, y=np.where(wrong, 1 - truth, truth)), wrong


def test_mislabelled_examples_are_left_out_and_it_is_billed_once(noisy):
    data, wrong = noisy
    federation = Federation(data, partition.Iid(clients=6))
    drawn, task = federation.draw(0), Task.on(LogisticRegression(classes=2), data)
    ctx = Context(jnp.int32(0), jnp.int32(1), jnp.asarray(drawn.num_examples), jnp.ones(6, bool), cohort_size=2)
    host = Host(task, drawn, task.init(jax.random.key(0), data.x), SGD(batch_size=8))
    ready = Tuor().prepare(jax.random.key(1), ctx, host)
    index, valid = jax.vmap(jax.tree.map(jnp.asarray, drawn).examples_of)(jnp.arange(6))
    keep, index, valid = np.asarray(ready.clients), np.asarray(index), np.asarray(valid)
    assert keep[valid & ~wrong[index]].mean() > 0.95
    assert keep[valid & wrong[index]].mean() < 0.1
    assert not keep[~valid].any()
    experiment = Experiment(task, data_selection=Tuor(), local_training=SGD(batch_size=8), cohort_size=2, rounds=3)
    history = simulate(experiment, federation, seeds=[0])
    n, model = len(data.x), 4 * task.parameters(data.x)
    assert history["selection_flops"][0].tolist() == [n * task.flops(data.x), 0, 0]
    assert history["selection_bytes_down"][0].tolist() == [6 * (model + 4), 0, 0]
    assert history["selection_bytes_up"][0].tolist() == [4 * n, 0, 0]
    drawn = federation.draw(0)
    ctx = Context(jnp.int32(0), jnp.int32(3), jnp.asarray(drawn.num_examples), jnp.ones(6, bool), cohort_size=2)
    host = Host(task, drawn, task.init(jax.random.key(0), data.x), SGD(batch_size=8))
    sent = Tuor().prepare(jax.random.key(1), ctx, host).cost.up
    np.testing.assert_array_equal(sent, 4 * drawn.num_examples, "a loss for each example of one's own")
    assert history["accuracy"][0, -1] > 0.95


def test_without_validation_examples_it_says_what_it_needs():
    data = dataset("few", np.zeros((20, 2), np.float32), np.arange(20) % 2, test=0.1)
    task = Task(LogisticRegression(classes=2))
    with pytest.raises(ValueError, match="benchmark model on the server's validation examples, but there are 0"):
        simulate(Experiment(task, data_selection=Tuor(), cohort_size=1), Federation(data, partition.Iid(clients=2)))


def test_the_benchmark_model_is_billed_whole_also_its_personal_parts(noisy):
    data, _ = noisy
    drawn, task = Federation(data, partition.Iid(clients=6)).draw(0), Task.on(MLP(2, hidden=(3,)), data)
    ctx = Context(jnp.int32(0), jnp.int32(1), jnp.asarray(drawn.num_examples), jnp.ones(6, bool), cohort_size=2)
    costs = []
    for each in (task, task.replace(personal=("Dense_1",))):
        host = Host(each, drawn, each.init(jax.random.key(0), data.x), SGD(batch_size=8))
        costs.append(Tuor().prepare(jax.random.key(1), ctx, host).cost.down)
    assert costs == [4 * (task.parameters(data.x) + 1)] * 2
