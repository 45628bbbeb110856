"""The network with dropout against Flax's own layers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.models.conv_dropout import ConvDropout
from fedjax_sel.task import Task


class Native(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(32, (3, 3), padding="VALID")(x))
        x = nn.max_pool(nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


def test_its_numbers_of_parameters_are_the_published_ones():
    assert Task(ConvDropout()).parameters(np.zeros((1, 32, 32, 3), np.uint8)) == 1_626_442
    assert Task(ConvDropout(classes=62)).parameters(np.zeros((1, 28, 28), np.uint8)) == 1_206_590


def test_its_logits_are_those_of_native_layers():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 32, 32, 3)), jnp.float32)
    variables = Native().init(jax.random.key(0), x)
    np.testing.assert_allclose(ConvDropout().apply(variables, x), Native().apply(variables, x), rtol=1e-4, atol=1e-5)


def test_dropout_is_drawn_while_training_only():
    x = jnp.ones((2, 8, 8, 1))
    model = ConvDropout()
    variables = model.init(jax.random.key(0), x)
    one, other = (model.apply(variables, x, train=True, rngs={"dropout": jax.random.key(s)}) for s in (1, 2))
    assert not np.allclose(one, other)
    np.testing.assert_array_equal(model.apply(variables, x), model.apply(variables, x))


def test_rows_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match=r"conv_dropout: an example has shape \(5, 5\); .* at least 6"):
        ConvDropout().init(jax.random.key(0), jnp.ones((1, 5, 5)))
