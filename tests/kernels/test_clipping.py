"""Clipping against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.kernels.clipping import clipping_factor


@pytest.mark.parametrize("clip", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_factor_is_that_of_the_exact_norm(clip, dtype):
    """Ten thousand squares, which would not add up in 16 bits."""
    update = {"a": jnp.full((100, 100), 0.01, dtype), "b": (jnp.asarray([3.0, -4.0], dtype),)}
    exact = np.sqrt(sum(np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in (update["a"], update["b"][0])))
    assert float(clipping_factor(update, clip)) == pytest.approx(min(1.0, clip / exact), rel=1e-5)


def test_a_norm_beyond_float32_is_clipped_to_nothing():
    assert clipping_factor({"w": jnp.full(2, 1e30)}, 1.0) == 0.0
    assert clipping_factor({"w": jnp.zeros(2)}, 1.0) == 1.0
