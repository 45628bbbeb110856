"""Orders of examples: each epoch is a permutation of the client's own, fresh and without preference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.local_training._shuffle import count_digits, shuffle_epochs, shuffle_steps


@pytest.mark.parametrize("longest", [5, 100, 2500])
def test_an_epochs_order_begins_with_the_places_that_count(longest):
    mask = jax.random.bernoulli(jax.random.key(1), 0.6, (longest,))
    order = np.asarray(shuffle_epochs(jax.random.key(0), mask, 3))
    for row in order:
        np.testing.assert_array_equal(np.sort(row), np.arange(longest))
        np.testing.assert_array_equal(np.sort(row[: mask.sum()]), np.flatnonzero(mask))
    assert longest < 10 or (order[0] != order[1]).any()


@pytest.mark.parametrize(("longest", "size", "steps"), [(30, 7, 1), (30, 7, 40), (300, 10, 95), (5000, 50, 900)])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.01, 0.0])
def test_enough_epochs_stand_one_after_another_however_few_examples_there_are(longest, size, steps, share):
    mask = jnp.zeros(longest, bool).at[:: max(round(1 / share), 1) if share else longest].set(share > 0)
    n, places = int(mask.sum()), np.flatnonzero(mask)
    order = np.asarray(jax.jit(shuffle_steps, static_argnums=(2, 3))(jax.random.key(0), mask, steps, size))
    epochs = -(-steps // max(-(-n // size), 1)) if n else 0
    assert epochs * n <= len(order) <= (steps + longest / size) * size
    seen = order[: epochs * n].reshape(epochs, n)
    for row in seen:
        np.testing.assert_array_equal(np.sort(row), places)
    if n > 9 and epochs > 1:
        assert (seen[0] != seen[1]).any()


def test_no_place_is_preferred():
    """Of 6 examples every one stands in every position equally often; 3 sigma of 20000 draws."""
    mask = jnp.array([True, True, False, True, True, True, True, False])
    draw = jax.jit(jax.vmap(lambda key: shuffle_steps(key, mask, 10, 3)[:12]))
    order = np.asarray(draw(jax.random.split(jax.random.key(2), 20_000))).reshape(-1, 6)
    for position in range(6):
        share = np.bincount(order[:, position], minlength=8)[np.flatnonzero(mask)] / len(order)
        np.testing.assert_allclose(share, 1 / 6, atol=4 * np.sqrt(5 / 36 / len(order)))


def test_padding_changes_nothing():
    short = shuffle_steps(jax.random.key(3), jnp.arange(20) < 17, 9, 4)
    long = shuffle_steps(jax.random.key(3), jnp.arange(24) < 17, 9, 4)
    np.testing.assert_array_equal(short[: 3 * 17], long[: 3 * 17])


def test_digits():
    got = [int(count_digits(jnp.uint32(n))) for n in (0, 1, 2, 3, 4, 255, 256)]
    assert got == [0, 1, 2, 2, 3, 8, 9]
