"""Running statistics of batch normalisation: moved by clients, averaged by the server, not followed by gradients."""

import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, partition, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.fedopt import FedOpt
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.devices.availability import Trace
from fedjax_sel.engine.init import init_runs
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.local_training._shuffle import shuffle_epochs
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.signals import GradientNorm, Projection, Sketch, UpdateNorm
from fedjax_sel.types import Batch

pytestmark = pytest.mark.filterwarnings("ignore:.*have a last batch of one example")

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


SEEN = []
"""What signals of updates `Watching` was told."""


class Watching(ClientSelector):
    """Selects uniformly."""

    def signals(self):
        return Signals(trained=[UpdateNorm()], after=[Sketch(None), Projection("whole")])

    def select(self, key, state, ctx):
        return uniform_m(key, ctx.available, ctx.m)

    def observe(self, key, state, ctx, cohort, *, update_norm, sketch, projection):
        jax.debug.callback(lambda *values: SEEN.append(values), update_norm, sketch, projection)
        return state


class Normed(nn.Module):
    """A layer, its batch normalisation, a layer."""

    classes: int = 3

    @nn.compact
    def __call__(self, x, *, train=False, mask=None):
        x = nn.Dense(4)(x)
        counted = None if mask is None else jnp.broadcast_to(mask[:, None], x.shape)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(x, mask=counted)
        return nn.Dense(self.classes)(nn.relu(x))


@pytest.fixture
def skewed(blobs):
    return Federation(blobs, partition.Dirichlet(clients=8, alpha=0.4), data_seed=3)


def test_signals_of_updates_look_at_what_gradients_change_and_not_at_statistics(blobs, skewed):
    """At a rate of 0 parameters stay where they are, and running statistics do not."""
    experiment = Experiment(Task.on(Normed(), blobs), client_selection=Watching(), cohort_size=3, rounds=2)
    SEEN.clear()
    simulate(experiment.replace(local_training=SGD(0.0)), skewed)
    jax.effects_barrier()
    assert len(SEEN) == 2
    for one in SEEN:
        for seen in one:
            np.testing.assert_array_equal(seen, 0)
    SEEN.clear()
    simulate(experiment.replace(local_training=SGD(0.3)), skewed)
    jax.effects_barrier()
    norm, whole, _ = SEEN[-1]
    np.testing.assert_allclose(norm.ravel(), np.linalg.norm(whole, axis=-1).ravel(), rtol=1e-5)
    assert (norm > 0).all()


def test_clipped_updates_keep_their_statistics(blobs, skewed):
    """A client's parameters are clipped by their own norm; its statistics are those of its examples."""
    experiment = Experiment(Task.on(Normed(), blobs), local_training=SGD(0.0), cohort_size=3, rounds=1)
    plain, clipped = (
        simulate(experiment.replace(aggregation=rule), skewed).variables
        for rule in (Mean("cohort"), DPFedAvg(clip=1e-3, noise_multiplier=0.0))
    )
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(clipped), strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)


def trained_by_hand(task, variables, x, y, trainer, key):
    """A client's epochs on exactly its rows: flax and optax, no padding."""
    key_order, _ = jax.random.split(key)
    order = np.asarray(shuffle_epochs(key_order, jnp.ones(len(y), bool), trainer.epochs))
    params, stats = variables["params"], variables["batch_stats"]

    def loss(params, stats, x, y):
        out, after = task.model.apply(
            {"params": params, "batch_stats": stats}, task.normalize(x), train=True, mutable=["batch_stats"]
        )
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean(), after["batch_stats"]

    gradient_of = jax.jit(jax.grad(loss, has_aux=True))  # for each size of a batch
    for epoch in order:
        for first in range(0, len(y), trainer.batch_size):
            rows = epoch[first : first + trainer.batch_size]
            gradient, stats = gradient_of(params, stats, x[rows], y[rows])
            params = jax.tree.map(lambda w, g: np.asarray(w - trainer.learning_rate * g), params, gradient)
    return {"params": params, "batch_stats": stats}


class FlatNorm(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not train, name="norm")(x))


def test_a_last_batch_of_one_example_that_enters_statistics_of_features_is_told(blobs):
    def warn(model, size):
        data = Federation(blobs, partition.Iid(clients=len(blobs.x) // 9)).draw(0)
        assert set(data.num_examples) == {9}
        trainer = SGD(0.1, batch_size=size)
        Experiment(Task(model), local_training=trainer, cohort_size=2, rounds=1).warn_of_sizes(data)

    with pytest.warns(UserWarning, match=r"have a last batch of one example \(of 4\).* variance of norm; choose"):
        warn(FlatNorm(), 4)
    with warnings.catch_warnings(action="error"):
        warn(FlatNorm(), 5)
        warn(FlatNorm(), 1)
        warn(nn.Dense(3), 4)


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=str)
@pytest.mark.parametrize("aggregator", [Mean("size"), FedNova()], ids=lambda a: type(a).__name__)
def test_a_round_is_the_one_by_hand_whatever_stands_beside_a_client(blobs, skewed, layout, aggregator):
    task, trainer = Task.on(Normed(), blobs), SGD(0.1, batch_size=7, epochs=2)
    experiment = Experiment(task, local_training=trainer, aggregation=aggregator, cohort_size=3, rounds=1)
    history = simulate(experiment, skewed, seeds=[4], layout=layout)
    data, seed = skewed.draw(4), jax.random.key(4)
    begin = task.init(key_for(seed, Purpose.MODEL), data.x)
    ends, rows = [], []
    for client in history.selections[0, 0]:
        mine = data.order[data.offset[client] : data.offset[client] + data.num_examples[client]]
        key = key_for(seed, Purpose.TRAIN, 0, int(client))
        ends.append(trained_by_hand(task, begin, data.x[mine], data.y[mine], trainer, key))
        rows.append(len(mine))
    share = np.array(rows) / sum(rows)
    steps = 2 * np.ceil(np.array(rows) / 7)
    pull = share if isinstance(aggregator, Mean) else share * (share * steps).sum() / steps
    got = jax.tree.map(lambda leaf: leaf[0], history.variables)
    for name, weight in (("params", pull), ("batch_stats", pull / pull.sum())):
        wanted = jax.tree.map(
            lambda b, *e, w=weight: b + sum(k * (x - b) for k, x in zip(w, e, strict=True)),
            begin[name],
            *(end[name] for end in ends),
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), got[name], wanted)


def test_evaluation_uses_the_running_statistics(blobs, skewed):
    task = Task.on(Normed(), blobs)
    history = simulate(
        Experiment(task, local_training=SGD(0.1, batch_size=7), cohort_size=3, rounds=4), skewed, seeds=[0]
    )
    variables = jax.tree.map(lambda leaf: leaf[0], history.variables)
    alone = np.concatenate([task.logits(variables, blobs.test_x[i : i + 1]) for i in range(10)])
    np.testing.assert_allclose(task.logits(variables, blobs.test_x[:10]), alone, **CLOSE)
    accuracy = (np.asarray(task.logits(variables, blobs.test_x)).argmax(1) == blobs.test_y).mean()
    np.testing.assert_allclose(history["accuracy"][0, -1], accuracy, atol=1e-6)


def test_gradients_optimisers_and_variates_do_not_follow_statistics(blobs, skewed):
    task, data = Task.on(Normed(), blobs), skewed.draw(0)
    variables = task.init(jax.random.key(0), data.x)
    experiment = Experiment(task, correction=Scaffold(), aggregation=FedOpt(), cohort_size=2, rounds=2)
    state, _ = init_runs([experiment], [data], jax.vmap(jax.random.key)(jnp.arange(1, dtype=jnp.uint32)), Layout())
    for tree in (state.aggregation.first, state.correction.server, state.correction.client):
        assert set(tree) == {"params"}
    batch = Batch(jnp.asarray(data.x[:9]), jnp.asarray(data.y[:9]), jnp.ones(9, bool))
    by_hand = jax.grad(lambda p: task.mean_loss({**variables, "params": p}, batch))(variables["params"])
    norm = GradientNorm().measure(task, variables, batch, jax.random.key(0))
    np.testing.assert_allclose(norm, optax.tree.norm(by_hand), rtol=1e-5)
    history = simulate(experiment, skewed, seeds=2)
    assert np.isfinite(history["loss"]).all()
    assert all((leaf > 0).all() for leaf in jax.tree.leaves(history.variables["batch_stats"]["BatchNorm_0"]["var"]))


def test_noise_is_added_to_the_model_alone_and_statistics_stay_where_nobody_returns(blobs, skewed):
    def run(noise, rounds=1, **changes):
        one = Experiment(
            Task.on(Normed(), blobs), aggregation=DPFedAvg(1.0, noise), cohort_size=8, rounds=rounds, **changes
        )
        return jax.tree.map(lambda leaf: leaf[0], simulate(one, skewed).variables)

    plain, noisy, later = run(0.0), run(5.0), run(5.0, rounds=3)
    jax.tree.map(np.testing.assert_array_equal, noisy["batch_stats"], plain["batch_stats"])
    assert not np.allclose(noisy["params"]["Dense_0"]["kernel"], plain["params"]["Dense_0"]["kernel"])
    assert (later["batch_stats"]["BatchNorm_0"]["var"] > 0).all()
    with pytest.warns(UserWarning, match="no update came back"):
        nobody = run(5.0, volatility=Trace(np.zeros((1, 8), bool)))
    begun = Task.on(Normed(), blobs).init(key_for(jax.random.key(0), Purpose.MODEL), skewed.draw(0).x)
    jax.tree.map(np.testing.assert_array_equal, nobody["batch_stats"], begun["batch_stats"])


def test_a_batch_without_rows_moves_nothing(blobs):
    task = Task.on(Normed(), blobs)
    variables = task.init(jax.random.key(0), blobs.x)
    batch = Batch(jnp.asarray(blobs.x[:4]), jnp.asarray(blobs.y[:4]), jnp.zeros(4, bool))
    losses, after = task.training_losses(variables, batch, jax.random.key(1))
    np.testing.assert_array_equal(losses, 0)
    jax.tree.map(np.testing.assert_array_equal, after["batch_stats"], variables["batch_stats"])
