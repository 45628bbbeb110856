"""Sums over clients' examples in blocks: as many as the examples need, the same sums, losses and gradients by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax as softmax_of

from fedjax_sel import Federation, Layout, Task, partition, signals
from fedjax_sel.engine.signals import measure_candidates, measure_clients
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import losses
from fedjax_sel.types import Context

LONGEST = 11
LAYOUTS = [
    Layout(),
    Layout(clients=1),
    Layout(clients=3, seeds="scan"),
    Layout(clients=4, examples=5),
    Layout(clients=50, examples=1),
]


def over_seeds(layout, f, each):
    return jax.jit(lambda each: layout.over_seeds(f, (each,), (0,)))(each)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("size", [1, 2, 4, LONGEST])
def test_a_sum_in_blocks_is_the_sum_for_each_seed_clients_without_examples_included(layout, size):
    rng = np.random.default_rng(size)
    counts = rng.integers(0, LONGEST + 1, (3, 9)) * rng.integers(0, 2, (3, 9))
    counts[2] = 0
    rows = rng.integers(1, 99, (9, LONGEST))

    def one(count):
        def f(client, place):
            row, count = client
            return {"sum": jnp.where(place < count, row[jnp.minimum(place, LONGEST - 1)], 0).sum()}

        clients = (jnp.asarray(rows), count)
        return layout.over_blocks(f, lambda a: 10 * a["sum"] + 1, clients, count, LONGEST, size, {"sum": jnp.int32(0)})

    expected = [[10 * row[:n].sum() + 1 for row, n in zip(rows, count, strict=True)] for count in counts]
    np.testing.assert_array_equal(over_seeds(layout, one, jnp.asarray(counts)), expected)


def test_there_are_as_many_blocks_as_the_examples_need():
    layout, count = Layout(clients=1, seeds="scan"), jnp.array([0, 1, 4, 5, 11, 0])
    seen = []

    def f(client, place):
        seen.append((int(client), place.tolist()))
        return jnp.zeros(())

    with jax.disable_jit():
        layout.over_blocks(f, lambda a: a, jnp.arange(6), count, LONGEST, 4, jnp.zeros(()))
    firsts = [(client, place[0]) for client, place in seen]
    assert firsts == [(1, 0), (2, 0), (3, 0), (3, 4), (4, 0), (4, 4), (4, 8)]
    assert all(place == list(range(place[0], place[0] + 4)) for _, place in seen)


def test_blocks_are_whole_clients_unless_some_are_much_longer_or_too_long_for_a_pass():
    assert Layout().size_of_blocks(40, 20.0) == 40
    assert Layout().size_of_blocks(41, 20.0) == 24
    assert Layout(examples=16).size_of_blocks(40, 20.0) == 16
    assert Layout().size_of_blocks(9, 0.5) == 8


ASKED = 3, 7, 7, -1, 0


@pytest.mark.parametrize(
    ("layout", "holdout", "asked"),
    [
        (layout, holdout, asked)
        for i, layout in enumerate(LAYOUTS)
        for holdout, asked in (((True, None), (False, ASKED)) if i % 2 else ((False, None), (True, ASKED)))
    ],
    ids=str,
)
def test_losses_and_gradients_are_those_of_softmax_regression_by_hand(blobs, layout, holdout, asked):
    recipe = Federation(blobs, partition.Dirichlet(clients=9, alpha=0.05), holdout=0.3)
    task, data = Task.on(LogisticRegression(classes=3), blobs), jax.tree.map(jnp.asarray, recipe.draw(5))
    assert layout.size_of_blocks(data.longest, len(data.order) / 9) < data.longest
    like = task.init(jax.random.key(0), blobs.x)
    stacked = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.ndim), (2, *leaf.shape)), like)
    wanted = {"norm": signals.GradientNorm(), "whole": signals.Gradient(k=None), "loss": signals.Loss()}
    ctx = Context(jnp.int32(0), jnp.int32(9), data.num_examples, jnp.ones(9, bool), cohort_size=3)
    ctx = ctx.replace(candidates=None if asked is None else jnp.array(asked))

    def one(variables):
        key = jax.random.key(0)
        return measure_clients(wanted, task, variables, {}, data, ctx, layout, key=key, holdout=holdout)

    found = over_seeds(layout, one, stacked)
    bias, kernel = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(stacked))
    x = (np.asarray(data.x, np.float64) - np.asarray(task.shift)) * np.asarray(task.scale)
    for seed in range(2):
        for slot, client in enumerate(range(9) if asked is None else asked):
            if client < 0:
                continue  # an empty slot, of which nobody reads the value
            start, count = int(data.offset[client]), int(data.num_examples[client])
            start, count = (start + count, int(data.num_holdout[client])) if holdout else (start, count)
            rows = np.asarray(data.order[start : start + count])
            p = softmax_of(x[rows] @ kernel[seed].T + bias[seed], axis=1)
            loss = -np.log(p[np.arange(count), np.asarray(data.y)[rows]]).sum() / max(count, 1)
            np.testing.assert_allclose(found["loss"][seed, slot], loss, rtol=2e-5, atol=2e-6)
            p[np.arange(count), np.asarray(data.y)[rows]] -= 1
            whole = np.concatenate([p.sum(0), (p.T @ x[rows]).ravel()]) / max(count, 1)
            np.testing.assert_allclose(found["whole"][seed, slot], whole, rtol=2e-5, atol=2e-6)
            np.testing.assert_allclose(found["norm"][seed, slot], np.sqrt((whole**2).sum()), rtol=2e-5, atol=2e-6)


def test_gradients_of_parameters_of_half_precision_are_added_up_in_single_precision(blobs):
    recipe = Federation(blobs, partition.Dirichlet(clients=9, alpha=0.05))
    data = jax.tree.map(jnp.asarray, recipe.draw(5))
    task, layout = Task.on(LogisticRegression(classes=3), blobs), Layout(seeds="scan")
    assert layout.size_of_blocks(data.longest, len(data.order) / 9) < data.longest
    whole = task.init(jax.random.key(0), blobs.x)
    ctx = Context(jnp.int32(0), jnp.int32(9), data.num_examples, jnp.ones(9, bool), cohort_size=3)

    def measure(variables):
        wanted, key = {"norm": signals.GradientNorm()}, jax.random.key(0)
        return measure_clients(wanted, task, variables, {}, data, ctx, layout, key=key)["norm"]

    found = jax.jit(measure)(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), whole))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, measure(whole), rtol=0.05)


@pytest.mark.parametrize(("rule", "flat"), [(partition.Iid(6), True), (partition.Unequal(6, spread=2.0), False)])
def test_an_empty_candidate_slot_has_the_value_0(blobs, rule, flat):
    task, data = (
        Task.on(LogisticRegression(classes=3), blobs),
        jax.tree.map(jnp.asarray, Federation(blobs, rule).draw(0)),
    )
    layout, candidates = Layout(), jnp.array([0, 2, -1], jnp.int32)
    assert (layout.size_of_blocks(data.longest, len(data.order) / 6) == data.longest) == flat
    like = task.init(jax.random.key(0), blobs.x)
    stacked = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(0), (2, *leaf.shape)), like)

    def one(variables):
        return measure_candidates({"loss": signals.Loss()}, task, variables, data, candidates, layout)

    found = np.asarray(over_seeds(layout, one, stacked)["loss"])
    assert (found[:, 2] == 0).all()
    assert (found[:, :2] > 0).all()


def test_a_loss_derived_from_cross_entropy_is_measured_as_itself():
    class Hundredfold(losses.CrossEntropy):
        def __call__(self, outputs, targets):
            return 100 * super().__call__(outputs, targets)

    task = Task(LogisticRegression(classes=2), loss=Hundredfold())
    measured = signals.Loss().of_task(task).measure(jnp.zeros((1, 2)), jnp.zeros(1, int))
    np.testing.assert_allclose(measured, 100 * np.log(2), rtol=1e-6)
