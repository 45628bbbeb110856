"""The selection by a benchmark model: its threshold against SciPy's statistic, and mislabelled examples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

from fedjax_sel import Experiment, Federation, Task, dataset, partition, simulate
from fedjax_sel.data_selection import tuor
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


def prepared(data, model=None):
    """A host of six clients, and the context before round 0."""
    drawn, task = Federation(data, partition.Iid(clients=6)).draw(0), Task.on(model or LogisticRegression(2), data)
    ctx = Context(jnp.int32(0), jnp.int32(1), jnp.asarray(drawn.num_examples), jnp.ones(6, bool), cohort_size=2)
    return Host(task, drawn, task.init(jax.random.key(0), data.x), SGD(batch_size=8)), ctx


def test_mislabelled_examples_are_left_out_and_it_is_billed_once(noisy):
    data, wrong = noisy
    host, ctx = prepared(data)
    drawn, task = host.data, host.task
    ready = Tuor().prepare(jax.random.key(1), ctx, host)
    index, valid = jax.vmap(jax.tree.map(jnp.asarray, drawn).examples_of)(jnp.arange(6))
    keep, index, valid = np.asarray(ready.clients), np.asarray(index), np.asarray(valid)
    assert keep[valid & ~wrong[index]].mean() > 0.95
    assert keep[valid & wrong[index]].mean() < 0.1
    assert not keep[~valid].any()
    experiment = Experiment(task, data_selection=Tuor(), local_training=SGD(batch_size=8), cohort_size=2, rounds=3)
    history = simulate(experiment, Federation(data, partition.Iid(clients=6)), seeds=[0])
    n, model = len(data.x), 4 * task.parameters(data.x)
    assert history["selection_flops"][0].tolist() == [n * task.flops(data.x), 0, 0]
    assert history["selection_bytes_down"][0].tolist() == [6 * (model + 4), 0, 0]
    assert history["selection_bytes_up"][0].tolist() == [4 * n, 0, 0]
    np.testing.assert_array_equal(ready.cost.up, 4 * drawn.num_examples, "a loss for each example of one's own")
    assert history["accuracy"][0, -1] > 0.95


def test_the_threshold_is_of_the_share_that_is_held_out(noisy, monkeypatch):
    """The benchmark model is trained on the other validation examples, and on none of these."""
    find, train, seen = tuor.find_threshold, Tuor.train, {}

    def note_find(losses, clean, counts, candidates):
        seen.update(held_out=np.asarray(counts), candidates=candidates)
        return find(losses, clean, counts, candidates)

    def note_train(self, key, host, trained_on):
        seen.update(trained_on=np.asarray(trained_on), passes=self.passes)
        return train(self, key, host, trained_on)

    monkeypatch.setattr(tuor, "find_threshold", note_find)
    monkeypatch.setattr(Tuor, "train", note_train)
    host, ctx = prepared(noisy[0])
    Tuor(held_out=0.25, passes=1, candidates=7).prepare(jax.random.key(1), ctx, host)
    assert seen["held_out"].sum() == round(0.25 * len(host.data.validation_y))
    np.testing.assert_array_equal(seen["trained_on"], ~seen["held_out"])
    assert (seen["candidates"], seen["passes"]) == (7, 1)


def test_the_benchmark_model_is_trained_for_its_passes(noisy):
    """Two passes over all examples at once are one, and one that begins with its model."""
    host = replace(prepared(noisy[0])[0], trainer=SGD(batch_size=None))
    key, on = jax.random.key(1), jnp.arange(len(host.data.validation_y)) % 2 == 0
    one = Tuor(passes=1).train(key, host, on)
    again = Tuor(passes=1).train(key, replace(host, variables=one), on)
    twice = Tuor(passes=2).train(key, host, on)
    for two, both in zip(*map(jax.tree.leaves, (again, twice)), strict=True):
        np.testing.assert_allclose(two, both, rtol=1e-4)
    assert not np.allclose(jax.tree.leaves(one)[0], jax.tree.leaves(twice)[0], rtol=0.1)


def test_without_validation_examples_it_says_what_it_needs():
    data = dataset("few", np.zeros((20, 2), np.float32), np.arange(20) % 2, test=0.1)
    task = Task(LogisticRegression(classes=2))
    with pytest.raises(ValueError, match="benchmark model on the server's validation examples, but there are 0"):
        simulate(Experiment(task, data_selection=Tuor(), cohort_size=1), Federation(data, partition.Iid(clients=2)))


def test_the_benchmark_model_is_billed_whole_also_its_personal_parts(noisy):
    data, _ = noisy
    host, ctx = prepared(data, MLP(2, hidden=(3,)))
    personal = replace(host, task=host.task.replace(personal=("Dense_1",)))
    costs = [Tuor(passes=1).prepare(jax.random.key(1), ctx, each).cost.down for each in (host, personal)]
    assert costs == [4 * (host.task.parameters(data.x) + 1)] * 2
