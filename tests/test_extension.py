"""A user's own answers to the four questions, defined here and told to nobody, run as the package's own do."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, simulate
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import Aggregator, ClientSelector, Cost, DataSelector, ExampleSignal
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Cohort

N, M, ROUNDS = 8, 3, 5


class Staircase:
    """Client i owns rows in proportion to i + 1, in the order they are stored."""

    clients = N

    def assign(self, y, rng, owner):
        return np.repeat(np.arange(N), np.arange(1, N + 1) * 6)  # 216 rows


class IsClass(Pytree):
    """1 where a row has this label; clients tell the share of such rows. The labels alone answer."""

    label: int = static(default=0)
    name = "is_class"
    cost = Cost(up=1.0)

    def measure(self, logits, y):
        return (y == self.label).astype(jnp.float32)


class MostOfAClass(Pytree):
    """The clients with the largest share of a class, less a penalty for every time they had their turn."""

    penalty: float = 0.1
    before = (IsClass(0),)
    after = ()

    def init(self, key, ctx, host):
        assert host.data.num_examples.sum() == 216
        return jnp.zeros(ctx.num_clients, jnp.int32)

    def candidates(self, key, state, ctx):
        return None

    def select(self, key, state, ctx, *, is_class):
        _, client = jax.lax.top_k(is_class - self.penalty * state, ctx.m)
        return Cohort(client, jnp.ones(ctx.m, bool), jnp.ones(ctx.m))

    def observe(self, key, state, ctx, cohort, *, is_class):
        return state.at[cohort.client].add(1)


class OneClassOnly(Pytree):
    """A client trains on its rows of class 0, or on its first row where it has none."""

    needs = (IsClass(0),)

    def keep(self, key, valid, *, is_class):
        mine = valid & (is_class > 0)
        return jnp.where(mine.any(), mine, valid & (jnp.arange(valid.shape[0]) == 0))


class HeavyServer(Pytree):
    """The sum of the updates moves a velocity, and the velocity the model."""

    drag: float = 0.5

    def init(self, variables):
        return jax.tree.map(jnp.zeros_like, variables)

    def weights(self, cohort, rows, steps):
        return cohort.mask / cohort.mask.sum()

    def step(self, state, variables, delta):
        velocity = jax.tree.map(lambda v, d: self.drag * v + d, state, delta)
        return jax.tree.map(jnp.add, variables, velocity), velocity


class Squares(nn.Module):
    """A model that knows its rows' squares."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(3)(jnp.concatenate([x, x**2], axis=-1))


@pytest.fixture(scope="module")
def federation(blobs):
    return Federation(blobs, Staircase())


def experiment(**answers):
    answers = {
        "client_selection": MostOfAClass(),
        "data_selection": OneClassOnly(),
        "aggregation": HeavyServer(),
        **answers,
    }
    return Experiment(
        Task(LogisticRegression(classes=3)), local_training=SGD(batch_size=4), cohort_size=M, rounds=ROUNDS, **answers
    )


@pytest.fixture(scope="module")
def history(federation):
    return simulate(experiment(), federation, seeds=[1, 6])


def rows_of_class_0(data):
    return np.array(
        [(data.y[data.order[o : o + s]] == 0).sum() for o, s in zip(data.offset, data.num_examples, strict=True)]
    )


def test_what_is_defined_here_follows_the_protocols():
    assert isinstance(MostOfAClass(), ClientSelector)
    assert isinstance(OneClassOnly(), DataSelector)
    assert isinstance(HeavyServer(), Aggregator)
    assert isinstance(IsClass(), ExampleSignal)


def test_the_partition_is_as_it_says(federation):
    np.testing.assert_array_equal(federation.draw(0).size, np.arange(1, N + 1) * 6)


def test_the_selector_chooses_by_its_own_signal_and_its_own_memory(federation, history):
    for seed, cohorts in zip(history.seeds, history.selections, strict=True):
        data = federation.draw(seed)
        share, turns = rows_of_class_0(data) / data.num_examples, np.zeros(N)
        for cohort in cohorts:
            score = share - 0.1 * turns
            np.testing.assert_allclose(score[cohort], np.sort(score)[::-1][:M], atol=1e-6)
            assert len(set(cohort.tolist())) == M
            turns[cohort] += 1


def test_the_clients_train_on_the_rows_they_chose_and_the_price_is_on_the_bill(federation, history):
    flops = history.about["forward_flops_per_example"]
    for i, seed in enumerate(history.seeds):
        rows = np.maximum(rows_of_class_0(federation.draw(seed)), 1)
        np.testing.assert_array_equal(history["client_flops"][i], 3 * flops * rows[history.selections[i]].sum(1))
        assert set(history["selection_bytes_up"][i]) == {4 * N}
    assert not history["selection_flops"].any()
    assert not history["selection_bytes_down"].any()


def test_the_aggregator_moves_the_model_its_own_way(federation):
    """Where a client's update does not depend on the model, a velocity sums up what plain steps do not."""

    class Constant(SGD):
        def train(self, task, received, *others):
            update = super().train(task, received, *others)
            return update.replace(delta=jax.tree.map(jnp.ones_like, received))

    def moved(drag):
        run = experiment(aggregation=HeavyServer(drag)).replace(local_training=Constant(batch_size=4))
        return simulate(run, federation).variables["params"]["bias"][0]

    np.testing.assert_allclose(moved(0.0), ROUNDS)
    compiled = run_chunk.programs
    velocities = np.cumsum(0.5 ** np.arange(ROUNDS))  # 1, 1.5, 1.75, ...
    np.testing.assert_allclose(moved(0.5), velocities.sum())
    assert run_chunk.programs == compiled, "its float is traced as the package's own are"


def test_a_model_of_ones_own_needs_only_rows_to_logits(blobs, federation):
    history = simulate(Experiment(Task.on(Squares(), blobs), cohort_size=N, rounds=8), federation)
    assert history.about["parameters"] == 3 * 4 + 3
    assert history["accuracy"][0, -1] > 0.8
