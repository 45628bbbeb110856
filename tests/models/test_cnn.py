"""The convolutional network against the same network of native convolutions."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import models
from fedjax_sel.models.cnn import CNN
from fedjax_sel.task import Task


class Native(nn.Module):
    """FedCor's CIFAR-10 network, written out with Flax's own layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(32, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


def images(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def agree(ours, native):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(native), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_it_is_listed_and_its_lowering_is_not():
    assert "cnn" in models.available()
    assert "conv" not in models.available()
    assert models.load("cnn") is CNN


def test_the_default_has_fedcor_s_number_of_parameters():
    assert Task(CNN()).parameters(np.zeros((1, 32, 32, 3), np.uint8)) == 122_570


def test_logits_and_gradient_are_those_of_native_convolutions():
    x, y = images(3, 32, 32, 3), jnp.array([1, 7, 4])
    variables = Native().init(jax.random.key(0), x)

    def loss(model, variables):
        logits = model.apply(variables, x)
        return Task(CNN()).loss(logits, y).mean(), logits

    def of(model):
        return jax.jit(jax.grad(lambda v: loss(model, v), has_aux=True))(variables)

    agree(of(CNN()), of(Native()))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling after both convolutions, with Flax's own layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(6, (5, 5), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(16, (5, 5), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(120)(x.reshape(x.shape[0], -1)))
        x = nn.relu(nn.Dense(84)(x))
        return nn.Dense(10)(x)


def test_it_is_lenet_where_the_last_convolution_is_pooled_too():
    x = images(3, 28, 28, 1)
    variables = LeNet().init(jax.random.key(0), x)
    agree(CNN(channels=(6, 16), hidden=(120, 84), kernel=5, pooled=2).apply(variables, x), LeNet().apply(variables, x))


def test_more_poolings_than_convolutions_are_refused():
    with pytest.raises(ValueError, match="cnn: pooled is 3; it must be 0 to 2, the number of convolutions, or None"):
        CNN(channels=(6, 16), pooled=3)


def test_stacked_clients_have_the_logits_they_have_alone():
    x = images(3, 2, 32, 32, 3)
    variables = jax.jit(jax.vmap(lambda key: CNN().init(key, x[0])))(jax.random.split(jax.random.key(0), 3))
    stacked, alone = jax.jit(jax.vmap(CNN().apply))(variables, x), jax.jit(Native().apply)
    for i in range(3):
        agree(stacked[i], alone(jax.tree.map(lambda a, i=i: a[i], variables), x[i]))


def test_rows_without_channels_have_one():
    x = images(2, 28, 28)
    variables = CNN().init(jax.random.key(0), x)
    np.testing.assert_array_equal(CNN().apply(variables, x), CNN().apply(variables, x[..., None]))


def test_dropout_draws_only_while_training():
    model, x = CNN(dropout=0.5), images(2, 18, 18, 1)
    variables = model.init(jax.random.key(0), x)

    def trained(key):
        return model.apply(variables, x, train=True, rngs={"dropout": jax.random.key(key)})

    np.testing.assert_array_equal(model.apply(variables, x), CNN().apply(variables, x))
    assert not np.array_equal(trained(1), trained(2))


@pytest.mark.parametrize(
    ("model", "side"),
    [
        (CNN(), 18),
        (CNN(kernel=5), 32),
        (CNN(kernel=2, channels=(3, 3)), 5),
        (CNN(channels=(4,)), 3),
        (CNN(kernel=1), 4),
        (CNN(kernel=5, channels=(6, 16), pooled=2), 16),
        (CNN(channels=(4, 4), pooled=0), 5),
    ],
    ids=["default", "kernel 5", "kernel 2", "one convolution", "kernel 1", "lenet", "no pooling"],
)
def test_the_smallest_image_it_takes_is_the_one_it_names(model, side):
    key = jax.random.key(0)
    variables = jax.eval_shape(model.init, key, images(1, side, side + 1, 2))
    assert jax.eval_shape(model.apply, variables, images(2, side, side + 1, 2)).shape == (2, 10)
    for small in [(side - 1, 40, 2), (40, side - 1, 2)]:
        with pytest.raises(
            ValueError, match=rf"an example has shape \({small[0]}, {small[1]}, 2\).* at least {side} for"
        ):
            model.init(key, images(1, *small))


@pytest.mark.parametrize("row", [(784,), (), (4, 32, 32, 3)], ids=str)
def test_rows_that_are_no_images_are_refused_before_anything_compiles(row):
    with pytest.raises(
        ValueError, match=r"cnn: an example has shape .* it must be \(height, width\) or \(height, width, chan"
    ):
        Task(CNN()).parameters(np.zeros((1, *row), np.float32))
