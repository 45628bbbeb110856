"""The kernels that several selectors share, against NumPy's sort."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection import _ops
from fedjax_sel.client_selection._ops import (
    add_gumbel,
    check_numbers,
    draw_members,
    find_noise_mode,
    gumbel_m,
    nth_smallest,
)
from fedjax_sel.client_selection._stale_chances import draw_clients
from fedjax_sel.client_selection._unbiased import draw_unbiased
from fedjax_sel.client_selection.by_size import BySize
from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling
from fedjax_sel.types import Context
from tests.client_selection.rounds import cohort


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_nth_number_is_that_of_a_sort(size, monkeypatch):
    monkeypatch.setattr(_ops, "MAX_SORTED", 0)
    rng = np.random.default_rng(size)
    x = (rng.normal(size=size) * 10.0 ** rng.integers(-30, 30, size)).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-42, -1e-42, 3.0, 3.0, 3.0], np.float32)
    for numbers in (x, np.concatenate([special, x]), np.full(size, -2.5, np.float32)):
        got = jax.jit(jax.vmap(nth_smallest, in_axes=(None, 0)))(numbers, jnp.arange(len(numbers)))
        np.testing.assert_array_equal(got, np.sort(numbers))


@pytest.mark.parametrize("few", [0, 1000])
def test_numbers_that_are_none_come_last_as_in_a_sort(few, monkeypatch):
    monkeypatch.setattr(_ops, "MAX_SORTED", few)
    negative = np.array([0xFFC00000], np.uint32).view(np.float32)[0]  # as 0 / 0 on an x86 processor
    x = jnp.array([negative, 2.0, jnp.inf, -1.0])
    assert [float(nth_smallest(x, jnp.int32(n))) for n in range(3)] == [-1.0, 2.0, np.inf]
    assert np.isnan(nth_smallest(x, jnp.int32(3)))


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_those_drawn_are_the_first_of_the_cohort_that_gumbel_noise_draws(count):
    """With as few allowed as there are, all of them; and equal weights of nothing do not make more of them."""
    allowed = np.arange(30) % 5 > 1
    for seed in range(20):
        key = jax.random.key(seed)
        weight = jax.random.normal(jax.random.key(100 + seed), (30,))
        got = np.flatnonzero(draw_members(key, weight, jnp.asarray(allowed), jnp.int32(count), 9))
        cohort = gumbel_m(key, weight, jnp.asarray(allowed), 9)
        assert set(got) == set(np.asarray(cohort.client)[:count])
    few = draw_members(jax.random.key(0), jnp.zeros(30), jnp.arange(30) < 3, jnp.int32(count), 9)
    assert int(few.sum()) == min(3, count)
    tied = draw_members(jax.random.key(0), jnp.full(30, jnp.inf), jnp.asarray(allowed), jnp.int32(count), 9)
    assert int(tied.sum()) == count


def test_a_client_of_weight_0_fills_a_slot_that_nobody_else_can_whatever_its_number():
    weight = jnp.log(jnp.array([1.0, 1.0, 1.0, 0.0]))
    for order in itertools.permutations(range(4)):
        available = jnp.array([True, True, False, True])[jnp.array(order)]
        cohort = gumbel_m(jax.random.key(0), weight[jnp.array(order)], available, 3)
        assert cohort.mask.all()
        assert [order[i] for i in cohort.client.tolist()][2] == 3
    nobody, some = jnp.full(5, -jnp.inf).at[4].set(0.0), jnp.array([False, True, True, True, True])
    second = {int(gumbel_m(jax.random.key(k), nobody, some, 2).client[1]) for k in range(40)}
    assert second == {1, 2, 3}, "in random order"
    assert draw_members(jax.random.key(0), nobody[:2], jnp.array([False, True]), jnp.int32(1), 1).tolist() == [
        False,
        True,
    ]


ALL = jnp.ones(6, bool)


@pytest.mark.parametrize(
    ("score", "available", "m", "says"),
    [
        (
            jnp.float32(1.0),
            ALL,
            2,
            "top_m: score is float32 of shape (); it must be one number for each of the 6 clients",
        ),
        (jnp.ones((6, 1)), ALL, 2, "top_m: score is float32 of shape (6, 1); it must be one number for each of the 6"),
        (jnp.ones(4), ALL, 2, "top_m: score is float32 of shape (4,); it must be one number for each of the 6 clients"),
        ([1.0, 2.0], ALL, 2, "top_m: score is [1.0, 2.0] (list); it must be one number for each of the 6 clients"),
        (ALL, jnp.ones(6), 2, "top_m: available is float32 of shape (6,); it must be true or false for each client"),
        (2, 3, 2, "top_m: available is 3 (int); it must be true or false for each client, as ctx.available"),
        (jnp.ones(6), ALL, ALL, "top_m: m is bool of shape (6,); it must be a whole number, as ctx.m"),
    ],
)
def test_what_is_no_number_for_each_client_is_refused(score, available, m, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        check_numbers("top_m", score, available, m)


def test_places_of_the_selected_and_of_those_who_returned_skip_empty_slots():
    members = cohort([3, -1, 0], mask=[False, False, True])
    for places, expected in ((members.selected, [1, 0, 0, 1]), (members.returned, [1, 0, 0, 0])):
        np.testing.assert_array_equal(jnp.zeros(4).at[places].add(1, mode="drop"), expected)


def test_fewer_candidates_than_slots_leave_the_last_slots_empty():
    got = _ops.top_m(jax.random.key(0), jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, True]), 5)
    assert got.client.tolist() == [1, 0, 2, -1, -1]
    assert got.mask.tolist() == [True] * 3 + [False] * 2
    assert int(got.nan_scores) == 1


def test_among_many_clients_the_largest_noise_is_hardly_ever_shared():
    """In steps of 2^-23, some 60 of the thousand largest of a million numbers would be equal to another."""
    top = jax.lax.top_k(add_gumbel(jax.random.key(0), jnp.zeros(2**20)), 1000)[0]
    assert len(np.unique(top)) > 998
    assert find_noise_mode(4096) == "low", "so that the cohorts of small federations stay what they are"


@pytest.mark.parametrize("draw", ["by_size", "unbiased", "stale", "clustered"])
def test_draws_with_replacement_among_many_clients_have_fine_noise(draw, monkeypatch):
    modes, n = [], 5000

    def categorical(key, logits, axis=-1, shape=None, mode=None):
        modes.append(mode)
        return jnp.zeros(2, int)

    monkeypatch.setattr(jax.random, "categorical", categorical)
    ctx = Context(jnp.int32(0), jnp.int32(9), jnp.ones(n, int), jnp.ones(n, bool), cohort_size=2)
    key, chance = jax.random.key(0), jnp.full(n, 1 / n)
    if draw == "by_size":
        BySize(replacement=True).select(key, (), ctx)
    elif draw == "unbiased":
        draw_unbiased(key, chance, chance, 2)
    elif draw == "stale":
        draw_clients(key, chance, ctx)
    else:
        ClusteredSampling(by="size").select(key, (), ctx)
    assert modes == ["high"]
