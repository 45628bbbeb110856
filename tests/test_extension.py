"""A user's own answers to the four questions, defined here and told to nobody, run as the package's own do."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Experiment, Federation, Task, simulate
from fedjax_sel.client_selection import cohort_of, gumbel_m
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.types import Context

N, M, ROUNDS = 8, 3, 5


class Staircase:
    """Client i owns rows in proportion to i + 1, in the order they are stored."""

    clients = N

    def assign(self, y, rng, owner):
        return np.repeat(np.arange(N), np.arange(1, N + 1) * 6)  # 216 rows


class IsClass(fs.ExampleSignal):
    """1 where an example has this label; clients tell the share of such. The labels alone answer."""

    label: int = fs.static(default=0)
    name = "is_class"

    @property
    def cost(self):
        return fs.Cost(up=1.0)

    def measure(self, logits, y):
        return (y == self.label).astype(jnp.float32)


class MostOfAClass(fs.ClientSelector):
    """The clients with the largest share of a class, less a penalty for every time they had their turn."""

    penalty: float = fs.param(default=0.1, low=0)

    def signals(self):
        return fs.Signals(before=[IsClass(0)])

    def init(self, key, ctx, host):
        assert host.data.num_examples.sum() == 216
        return jnp.zeros(ctx.num_clients, jnp.int32)

    def select(self, key, state, ctx, *, is_class):
        _, client = jax.lax.top_k(is_class - self.penalty * state, ctx.m)
        return fs.Cohort(client, jnp.ones(ctx.m, bool), jnp.ones(ctx.m))

    def observe(self, key, state, ctx, cohort, *, is_class):
        return state.at[cohort.client].add(1)


class OneClassOnly(fs.DataSelector):
    """A client trains on its examples of class 0, or on its first where it has none."""

    def signals(self):
        return {"is_class": IsClass(0)}

    def select(self, key, state, valid, *, is_class):
        mine = valid & (is_class > 0)
        return jnp.where(mine.any(), mine, valid & (jnp.arange(valid.shape[0]) == 0))


class HeavyServer(fs.Aggregator):
    """The sum of the updates moves a velocity, and the velocity the model."""

    drag: float = fs.param(default=0.5)

    def init(self, variables):
        return jax.tree.map(jnp.zeros_like, variables)

    def weights(self, cohort, num_examples, plan):
        return cohort.mask / cohort.mask.sum()

    def step(self, state, variables, delta):
        velocity = jax.tree.map(lambda v, d: self.drag * v + d, state, delta)
        return jax.tree.map(jnp.add, variables, velocity), velocity


class Squares(nn.Module):
    """A model that knows its examples' squares."""

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
    assert isinstance(MostOfAClass(), fs.ClientSelector)
    assert isinstance(OneClassOnly(), fs.DataSelector)
    assert isinstance(HeavyServer(), fs.Aggregator)
    assert isinstance(IsClass(), fs.ExampleSignal)


def test_what_is_defined_here_is_checked_as_the_packages_own():
    with pytest.raises(ValueError, match="MostOfAClass: penalty is -1; it must be 0 or above"):
        MostOfAClass(penalty=-1)


def test_the_partition_is_as_it_says(federation):
    np.testing.assert_array_equal(federation.draw(0).num_examples, np.arange(1, N + 1) * 6)


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


@pytest.mark.filterwarnings("ignore:the loss is the same")  # the outputs of all classes move alike
def test_the_aggregator_moves_the_model_its_own_way(federation):
    """Where a client's update does not depend on the model, a velocity sums up what plain steps do not."""

    class Constant(SGD):
        def train(self, key, task, params, *others, **named):
            update = super().train(key, task, params, *others, **named)
            return update.replace(delta=jax.tree.map(jnp.ones_like, params))

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


# A selector that decides after training, as CONTRIBUTING.md describes them


class FedEntropy(fs.ClientSelector):
    """Merges the members whose soft labels, pooled by size, have the highest entropy: the others upload nothing.

    Source: Ling et al., "FedEntropy", 2022, https://arxiv.org/abs/2205.12038.
    """

    threshold: float = fs.param(default=0.8, low=0, high=1)

    def signals(self):
        return fs.Signals(trained=[fs.signals.SoftLabels()])

    def init(self, key, ctx, host):
        return jnp.ones(ctx.num_clients)

    def select(self, key, state, ctx):
        key_coin, key_draw = jax.random.split(key)
        by_value = jax.random.uniform(key_coin) >= self.threshold
        return gumbel_m(key_draw, jnp.where(by_value, jnp.log(state), 0.0), ctx.available, ctx.m)

    def accept(self, key, state, ctx, cohort, *, soft_labels):
        sizes = ctx.num_examples[cohort.client]

        def entropy(mask):
            p = jnp.where(mask, sizes, 0) @ soft_labels
            p = p / jnp.maximum(p.sum(), 1e-12)
            return -jnp.sum(jax.scipy.special.xlogy(p, p))

        def judge(_, mask):
            without = mask[None] & ~jnp.eye(ctx.m, dtype=bool)
            each = jnp.where(mask & (mask.sum() > 1), jax.vmap(entropy)(without), -jnp.inf)
            return jnp.where(each.max() > entropy(mask), without[each.argmax()], mask)

        return cohort.replace(mask=jax.lax.fori_loop(0, ctx.m, judge, cohort.mask))

    def observe(self, key, state, ctx, cohort, **signals):
        value = jnp.where(cohort.mask, state[cohort.client] + 1, state[cohort.client] / 2)
        return state.at[cohort.selected].set(value, mode="drop")


def test_a_post_training_selector_keeps_the_members_of_highest_pooled_entropy():
    """By hand: the entropy of all four is 1.5579 bits, without the second 1.5850, and then no more is gained."""
    soft_labels = jnp.array([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    ctx = Context(jnp.int32(0), jnp.int32(5), jnp.full(6, 10), jnp.ones(6, bool), cohort_size=4)
    cohort = cohort_of(jnp.array([5, 2, 0, 3]), jnp.ones(4, bool))
    accepted = FedEntropy().accept(jax.random.key(0), jnp.ones(6), ctx, cohort, soft_labels=soft_labels)
    assert accepted.mask.tolist() == [True, False, True, True]
    state = FedEntropy().observe(jax.random.key(0), jnp.ones(6), ctx, accepted)
    assert state.tolist() == [2, 1, 0.5, 2, 1, 2]


def test_a_post_training_selector_runs_and_uploads_less(federation):
    run = experiment(client_selection=FedEntropy(), data_selection=fs.data_selection.Everything())
    fewer = simulate(run, federation, seeds=[1, 6])
    all_of_them = simulate(run.replace(client_selection=fs.client_selection.Uniform()), federation, seeds=[1, 6])
    assert np.isfinite(fewer["loss"]).all()
    assert (fewer["bytes_up"] < all_of_them["bytes_up"]).any()
