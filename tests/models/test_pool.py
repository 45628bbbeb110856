"""Max-pooling against Flax's own, and its gradient by hand."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.models._pool import max_pool
from fedjax_sel.task.costs import count_flops
from tests.models.gradients import agree, with_gradients


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 8, 6, 3), (2, 9, 7, 3), (7, 11, 1), (2, 3, 5, 4, 2)], ids=str)
def test_pooling_and_its_gradient_are_flax_s(shape, window):
    x = jax.random.normal(jax.random.key(1), shape)

    ours = with_gradients(lambda x: max_pool(x, window), x)
    agree(ours, with_gradients(lambda x: nn.max_pool(x, (window, window), (window, window)), x), 1e-6)


def test_equal_maxima_share_the_gradient_of_pooling_by_hand():
    x = jnp.array([[4.0, 1, 5, 5, 7, 2], [4, 4, 5, 5, 7, 1]])[..., None]

    largest, gradient = with_gradients(max_pool, x)

    given = np.cos([0, 1, 2])
    shares = np.array([[1 / 3, 0, 1 / 4, 1 / 4, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 4, 1 / 4, 1 / 2, 0]])
    np.testing.assert_array_equal(largest[0, :, 0], [4, 5, 7])
    np.testing.assert_allclose(gradient[..., 0], shares * np.repeat(given, 2), rtol=1e-6)


def test_the_operations_of_one_example_are_those_of_automatic_differentiation():
    def reduce(x):
        return x.reshape(1, 4, 2, 3, 2, 5).max((2, 4)).sum()

    x = jnp.zeros((1, 8, 6, 5))

    ours, theirs = (count_flops(jax.grad(f), x)[0] for f in (lambda x: max_pool(x).sum(), reduce))
    assert ours == theirs > 0


def test_pooling_rows_smaller_than_the_window_is_refused():
    with pytest.raises(ValueError, match="examples of 1x4 hold no window of 2x2"):
        max_pool(jnp.zeros((2, 1, 4, 3)))
