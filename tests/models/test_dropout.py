"""Dropout against what Flax's does: as many zeros, the same scale, other random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.models._dropout import Dropout, draw_mask


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.75, 0.9375, 0.1, 1 / 3])
def test_as_many_are_kept_as_the_rate_says_and_each_by_itself(rate):
    keep, share = draw_mask(jax.random.key(3), 1 - rate, (300, 400))
    keep, n = np.asarray(keep), 300 * 400
    assert abs(share - (1 - rate)) < 2**-16
    bound = 4 * np.sqrt(rate * (1 - rate) / n)
    assert abs(keep.mean() - (1 - rate)) < bound
    # Neighbours, which may come from one random word, know nothing of each other; nor do rows.
    for a, b in ((keep[:, 1:], keep[:, :-1]), (keep[:, 16:], keep[:, :-16]), (keep[1:], keep[:-1])):
        assert abs((a & b).mean() - (1 - rate) ** 2) < 2 * bound


def test_what_is_kept_is_scaled_and_the_mean_stays():
    x = jnp.full((100, 1000), 2.0)
    y = np.asarray(Dropout(0.25).apply({}, x, train=True, rngs={"dropout": jax.random.key(0)}))
    assert set(np.unique(y)) == {0.0, np.float32(2 / 0.75)}
    assert y.mean() == pytest.approx(2.0, abs=0.02)


def test_gradients_pass_where_numbers_are_kept():
    x = jnp.arange(1.0, 65.0)

    def total(x):
        return Dropout(0.5).apply({}, x, train=True, rngs={"dropout": jax.random.key(1)}).sum()

    gradient = np.asarray(jax.grad(total)(x))
    assert set(np.unique(gradient)) == {0.0, 2.0}


def test_rows_behind_a_batch_change_nothing_in_it():
    few, _ = draw_mask(jax.random.key(5), 0.6, (7, 33))
    many, _ = draw_mask(jax.random.key(5), 0.6, (20, 33))
    np.testing.assert_array_equal(few, many[:7])


def test_no_rate_and_all_of_it_and_no_training():
    x = jnp.arange(4.0)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, train=True), x)
    np.testing.assert_array_equal(Dropout(0.9).apply({}, x, train=False), x)
    np.testing.assert_array_equal(Dropout(1.0).apply({}, x, train=True), jnp.zeros(4))
