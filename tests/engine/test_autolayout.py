"""Which layout is taken where none is given."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Layout
from fedjax_sel.engine.autolayout import LARGE_STEP, LEAST_EXAMPLES, MOST_EXAMPLES, SMALL_STEP, choose_layout
from fedjax_sel.engine.layout import share_bound

IRIS, MNIST, CIFAR = 420.0, 5.4e5, 5e8
"""Operations of a step: of logistic regression on each of the first two, of a convolutional network."""


@pytest.mark.parametrize(
    ("work", "runs", "members", "seeds", "clients"),
    [
        (IRIS, 64, 5, "vmap", None),
        (MNIST, 1, 100, "vmap", None),  # a single seed is nobody's turn
        (MNIST, 3, 10, "vmap", None),
        (MNIST, 16, 10, "scan", None),
        (CIFAR, 1, 5, "scan", 1),
        (CIFAR, 16, 5, "scan", 1),
    ],
)
def test_a_cpu_stacks_what_its_caches_hold(work, runs, members, seeds, clients):
    found = choose_layout(None, work, work / 30, runs=runs, members=members)
    assert (found.seeds, found.clients) == (seeds, clients)
    assert choose_layout("auto", work, work / 30, runs=runs, members=members) == found


def test_the_limits_are_of_one_device():
    runs = int(LARGE_STEP / MNIST)  # of one client each
    assert choose_layout(None, MNIST, 1.0, runs=runs, members=1).seeds == "vmap"
    assert choose_layout(None, MNIST, 1.0, runs=2 * runs, members=1).seeds == "scan"
    assert choose_layout(None, MNIST, 1.0, (2, 1), runs=2 * runs, members=1).seeds == "vmap"
    assert choose_layout(None, MNIST, 1.0, (1, 2), runs=2 * runs, members=1).seeds == "scan"


def test_an_accelerator_stacks_everything(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_layout(None, CIFAR, CIFAR / 30, runs=64, members=100).seeds == "vmap"
    assert choose_layout(None, CIFAR, CIFAR / 30, runs=64, members=100).clients is None


@pytest.mark.parametrize(("row", "rows"), [(1.0, MOST_EXAMPLES), (1e6, 1000), (1e9, LEAST_EXAMPLES)])
def test_a_flat_pass_has_fewer_rows_the_more_a_row_costs(row, rows):
    assert choose_layout(None, SMALL_STEP, row).examples == rows


def test_what_is_given_is_taken():
    for given in (Layout(seeds="scan", examples=7), Layout(clients=3)):
        assert choose_layout(given, MNIST, 1.0, runs=64, members=10) == replace(given, balanced=False)
    assert choose_layout("vmap", CIFAR, 1.0, runs=64, members=10).seeds == "vmap"
    assert choose_layout("scan", IRIS, 1.0, runs=64, members=10).seeds == "scan"


@pytest.mark.parametrize(("count", "most", "sizes"), [(20, 64, {20}), (20, 20, {20}), (21, 20, {16}), (50, 7, {7})])
def test_a_flat_pass_is_traced_once_whatever_is_left_over_and_every_example_passes_once(count, most, sizes):
    seen = []

    def double(x, y):
        seen.append(len(x))
        return {"x": 2 * x, "sum": x[:, 0] + y}

    x, y = jnp.arange(2.0 * count).reshape(count, 2), jnp.arange(count)
    out = Layout(examples=most).over_examples(double, x, y)
    assert seen == list(sizes)
    np.testing.assert_array_equal(out["x"], 2 * x)
    np.testing.assert_array_equal(out["sum"], x[:, 0] + y)


@pytest.mark.parametrize("seeds", ["vmap", "scan"])
@pytest.mark.parametrize("runs", [1, 3])
def test_only_several_seeds_are_mapped_and_those_side_by_side_share_the_bound_of_a_loop(seeds, runs):
    def count_to(limit, shared):
        return jax.lax.fori_loop(0, share_bound(limit), lambda i, sums: sums + shared, jnp.zeros(2))

    limits, shared = jnp.arange(2 * runs).reshape(runs, 2), jnp.array([1.0, 10.0])
    over_seeds = partial(Layout(seeds=seeds).over_seeds, count_to, axes=(0, None))
    bounds = limits.max(axis=1) if seeds == "scan" else jnp.full(runs, limits.max())
    np.testing.assert_array_equal(over_seeds((limits, shared)), np.outer(bounds, shared))

    loops = str(jax.make_jaxpr(over_seeds)((limits, shared)))
    assert ("scan[" in loops) == (seeds == "scan" and runs > 1)
    assert ("pmax[" in loops) == (seeds == "vmap" and runs > 1)
