"""Convolution and pooling with the examples along the last axis, against XLA's and Flax's own."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel.models import cnn
from fedjax_sel.models._thin_conv import are_thin, convolve_thin, pool_thin
from fedjax_sel.models.cnn import CNN
from tests.models.gradients import agree, with_gradients

ORDER = ("NHWC", "HWIO", "NHWC")


def draw(*shapes):
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (4, 2)], ids=str)
@pytest.mark.parametrize("channels", [(1, 6), (3, 2)], ids=str)
def test_output_and_gradients_are_those_of_the_native_convolution(kernel, channels):
    x, k = draw((7, 9, 8, channels[0]), (*kernel, *channels))
    found = with_gradients(lambda x, k: convolve_thin(x, k, (1, 1), "VALID"), x, k)
    agree(
        found,
        with_gradients(lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=ORDER), x, k),
    )
    xs, ks = jnp.stack([x, 2 * x]), jnp.stack([k, k + 1])
    stacked = jax.vmap(lambda x, k: convolve_thin(x, k, (1, 1), "VALID"))(xs, ks)
    np.testing.assert_allclose(stacked[0], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sides", [(8, 6), (9, 7)], ids=str)
def test_pooling_and_its_gradient_are_flax_s(sides):
    (x,) = draw((5, *sides, 3))
    agree(with_gradients(pool_thin, x), with_gradients(lambda x: nn.max_pool(x, (2, 2), (2, 2)), x), 1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"padding": "SAME"}, "padding 'SAME'"),
        ({"window_strides": (2, 1)}, r"strides \(2, 1\)"),
        ({"feature_group_count": 2}, "'feature_group_count': 2"),
    ],
    ids=str,
)
def test_other_convolutions_are_refused(options, said):
    x, k = draw((2, 6, 6, 2), (3, 3, 2, 2))
    with pytest.raises(NotImplementedError, match=said):
        convolve_thin(x, k, **{"window_strides": (1, 1), "padding": "VALID", **options})


@pytest.mark.parametrize(
    ("examples", "channels", "expected"),
    [
        (16, (6, 16), True),
        (15, (6, 16), False),  # do not fill a vector
        (64, (6, 17), False),
        (64, (17, 6), False),
    ],
)
def test_which_networks_have_the_examples_last(examples, channels, expected, monkeypatch):
    assert are_thin(examples, channels) is expected
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not are_thin(examples, channels)


@pytest.mark.parametrize(("channels", "pooled", "used"), [((4, 6), 2, True), ((4, 6), 1, False), ((4, 17), 2, False)])
def test_a_network_computes_the_same_with_the_examples_last(channels, pooled, used, monkeypatch):
    model, (x,) = CNN(3, channels, (5,), kernel=3, pooled=pooled), draw((16, 13, 14, 2))
    variables = jax.jit(model.init)(jax.random.key(0), x)

    def lose(variables):
        return jnp.sin(model.apply(variables, x))

    found, text = with_gradients(lose, variables), str(jax.make_jaxpr(lose)(variables))
    assert ("transpose[permutation=(1, 3, 2, 0)]" in text) == used
    monkeypatch.setattr(cnn, "are_thin", lambda *_: False)
    agree(jax.tree.leaves(found), jax.tree.leaves(with_gradients(lose, variables)))
    assert jax.tree.structure(jax.eval_shape(model.init, jax.random.key(0), x)) == jax.tree.structure(variables)
