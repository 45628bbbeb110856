"""ResNet-20: its parameters, its shortcuts, its normalisation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Task
from fedjax_sel.models.resnet import ResNet

ROWS = np.zeros((2, 32, 32, 3), np.uint8)


def count(model, part="params"):
    shapes = jax.eval_shape(Task(model).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes[part]))


def test_parameters_are_the_published_ones():
    """He et al., Table 6: 0.27M, 0.46M, 0.85M; LEFL: 2.06 MiB for both ways of ResNet-20."""
    assert count(ResNet()) == 269_722
    assert [round(count(ResNet(depth=d)) / 1e6, 2) for d in (32, 56)] == [0.46, 0.85]
    assert count(ResNet(classes=100)) == 269_722 + 90 * 65
    assert count(ResNet(norm="group")) == 269_722
    assert count(ResNet(depth=18, widths=(64, 128, 256, 512), shortcut="projection")) == 11_173_962
    assert round(2 * 4 * 269_722 / 2**20, 2) == 2.06
    assert count(ResNet(), "batch_stats") == 2 * (16 + 6 * 16 + 6 * 32 + 6 * 64)


def test_at_zero_residuals_a_stage_passes_on_what_it_gets():
    """Every second pixel, and channels padded with zeros on both sides."""
    model = ResNet(classes=3, depth=8)
    x = jax.random.uniform(jax.random.key(0), (1, 8, 8, 3))
    variables = model.init(jax.random.key(1), x)
    zero = {**variables["params"]}
    for i in range(1, 7):  # the second normalisation of a block scales by 0: its residual is 0
        if i % 2 == 0:
            zero[f"Norm_{i}"] = jax.tree.map(jnp.zeros_like, zero[f"Norm_{i}"])
    first = {"params": {**zero, "Dense_0": {"kernel": jnp.ones((64, 3)), "bias": jnp.zeros(3)}}}
    got = model.apply({**first, "batch_stats": variables["batch_stats"]}, x)
    kernel = variables["params"]["Conv_0"]["kernel"]
    stem = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    stem = jax.nn.relu(stem / jnp.sqrt(1 + 1e-5))[:, ::4, ::4]
    np.testing.assert_allclose(got, jnp.broadcast_to(stem.mean((1, 2)).sum(-1), (1, 3)), rtol=1e-4)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_logits_have_their_shape_in_training_and_evaluation(norm):
    model = ResNet(classes=5, depth=8, norm=norm)
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8, 8)))
    assert jax.eval_shape(model.apply, variables, jnp.zeros((3, 8, 8))).shape == (3, 5)
    train = functools.partial(model.apply, train=True, mutable=["batch_stats"])
    out, moved = jax.eval_shape(train, variables, jnp.ones((3, 8, 8)), mask=jnp.arange(3) < 2)
    assert out.shape == (3, 5)
    assert bool(moved) == (norm == "batch")


def test_bad_input():
    with pytest.raises(ValueError, match="resnet: depth is 21; it must be 6 n"):
        ResNet(depth=21)
    with pytest.raises(ValueError, match=r"resnet: an example has shape \(64,\)"):
        ResNet().init(jax.random.key(0), jnp.zeros((1, 64)))
    with pytest.raises(ValueError, match="unknown norm 'layer'"):
        ResNet(norm="layer").init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match="it must be 8 n"):
        ResNet(depth=20, widths=(4, 4, 4, 4))
    with pytest.raises(ValueError, match="shortcut of resnet"):
        ResNet(depth=8, shortcut="none")
    with pytest.raises(ValueError, match=r"widths is \(0,\)"):
        ResNet(widths=(0,))
