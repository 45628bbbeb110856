"""ResNet-20: its parameters, its shapes, its normalisation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Task
from fedjax_sel.models.resnet import ResNet


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
