"""Simulated seconds and joules, against sums done by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_sel.devices.clock import Deadline, Timing, joules, slowest, timing
from fedjax_sel.devices.profile import DeviceProfile

DEVICES = DeviceProfile.of(
    compute=[10.0, 5.0, 20.0],
    efficiency=[2.0, 5.0, 4.0],
    memory=0.0,
    up=[2.0, 4.0, 1.0],
    down=[4.0, 8.0, 2.0],
    radio=3.0,
)
FLOPS, DOWN, UP = jnp.array([40.0, 40.0, 0.0]), 8.0, 4.0
# download 2, 1, 4   compute 4, 8, 0   upload 2, 1, 4   total 8, 10, 8
EVERYBODY = jnp.ones(3, bool)


def test_seconds_are_amounts_over_rates():
    t = timing(DEVICES, FLOPS, DOWN, UP)
    np.testing.assert_allclose(t.download, [2, 1, 4])
    np.testing.assert_allclose(t.compute, [4, 8, 0])
    np.testing.assert_allclose(t.upload, [2, 1, 4])
    np.testing.assert_allclose(t.total, [8, 10, 8])


def test_a_round_lasts_as_long_as_its_slowest_member():
    t = timing(DEVICES, FLOPS, DOWN, UP)
    assert slowest(t, EVERYBODY) == 10
    assert slowest(t, jnp.array([True, False, True])) == 8
    assert slowest(t, ~EVERYBODY) == 0


def test_joules_are_watts_times_seconds():
    t = timing(DEVICES, FLOPS, DOWN, UP)
    np.testing.assert_allclose(joules(DEVICES, t), [5 * 4 + 3 * 4, 1 * 8 + 3 * 2, 0 + 3 * 8])


@pytest.mark.parametrize("late", ["drop", "partial"])
def test_without_a_deadline_nobody_is_late(late):
    t = timing(DEVICES, FLOPS, DOWN, UP)
    deadline = Deadline(late=late)
    share = deadline.share(t)
    np.testing.assert_array_equal(share, [1, 1, 1])
    np.testing.assert_array_equal(deadline.spent(t, share).total, t.total)


def test_who_is_late_is_dropped_and_worked_until_the_deadline():
    t, deadline = timing(DEVICES, FLOPS, DOWN, UP), Deadline(8.0)
    share = deadline.share(t)
    np.testing.assert_array_equal(share, [1, 0, 1])
    spent = deadline.spent(t, share)
    np.testing.assert_allclose(spent.compute, [4, 7, 0])
    np.testing.assert_allclose(spent.upload, [2, 0, 4])
    assert slowest(spent, EVERYBODY) == 8


def test_who_would_be_late_returns_what_fits():
    t, deadline = timing(DEVICES, FLOPS, DOWN, UP), Deadline(6.0, late="partial")
    share = deadline.share(t)
    np.testing.assert_allclose(share, [0.5, 0.5, 0])  # the third cannot even move the model: 4 + 4 s
    spent = deadline.spent(t, share)
    np.testing.assert_allclose(spent.compute, [2, 4, 0])
    np.testing.assert_allclose(spent.total, [6, 6, 6])
    np.testing.assert_allclose(joules(DEVICES, spent), [5 * 2 + 3 * 4, 1 * 4 + 3 * 2, 3 * 6])


def test_what_is_no_training_is_not_left_out():
    """A turn of 1 + 8 + 1 seconds, of whose computation 2 are no training: of 6 seconds 2 are left for the other 6."""
    t = Timing(jnp.array([1.0]), jnp.array([8.0]), jnp.array([1.0]))
    deadline = Deadline(6.0, late="partial")
    share = deadline.share(t, fixed=2.0)
    np.testing.assert_allclose(share, [1 / 3])
    np.testing.assert_allclose(deadline.spent(t, share, fixed=2.0).compute, [4.0])
    np.testing.assert_array_equal(Deadline(4.0, late="partial").share(t, fixed=2.0), [0.0])


seconds = st.floats(0, 100, width=32)


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=1),
    limit=st.floats(0.125, 400, width=32) | st.just(math.inf),
    late=st.sampled_from(["drop", "partial"]),
)
def test_nobody_is_busy_after_the_deadline_or_longer_than_the_turn(parts, limit, late):
    t = Timing(*(jnp.asarray(p, jnp.float32) for p in zip(*parts, strict=True)))
    deadline = Deadline(limit, late)
    share = deadline.share(t)
    spent = deadline.spent(t, share)
    assert ((share >= 0) & (share <= 1)).all()
    assert (spent.total <= jnp.minimum(limit, t.total) * (1 + 1e-5) + 1e-5).all()
    assert jnp.all(jnp.where(t.total <= limit, share == 1, True))
    for part in jax.tree.leaves(spent):
        assert (part >= 0).all()


def test_the_deadline_is_traced():
    t = timing(DEVICES, FLOPS, DOWN, UP)
    shares = jax.vmap(lambda limit: Deadline(limit, "partial").share(t))(jnp.array([6.0, 9.0, jnp.inf]))
    np.testing.assert_allclose(shares[:, 1], [0.5, 0.875, 1])


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_a_deadline_leaves_time(limit):
    with pytest.raises(ValueError, match=r"Deadline: seconds is .* above 0"):
        Deadline(limit)


def test_a_policy_for_the_late_is_one_of_two():
    with pytest.raises(ValueError, match=r"late is 'wait'; it must be one of drop, partial"):
        Deadline(1.0, late="wait")
