"""The fast layer beside Flax's, and any module with its convolutions replaced."""

import dataclasses
import functools
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel.models._fast_conv import Conv, FastConvolutions, fast_convolution, fast_convolutions
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.task import Task
from fedjax_sel.task.convolutions import list_native_convolutions, warn_native_convolutions
from fedjax_sel.types import Batch

KEY = jax.random.key(0)
IMAGES, SEQUENCES = jax.random.normal(KEY, (3, 9, 8, 4)), jax.random.normal(KEY, (3, 11, 4))
VOLUMES = jax.random.normal(KEY, (2, 5, 5, 5, 2))


class Inner(nn.Module):
    """A convolution in a submodule, with statistics and dropout."""

    @nn.compact
    def __call__(self, x, *, train=False, mask=None):
        x = nn.BatchNorm(use_running_average=not train)(nn.Conv(6, (3, 3), strides=2)(x))
        return nn.Dropout(0.5, deterministic=not train)(nn.relu(x))


class Theirs(nn.Module):
    """A user's network, with layers made in both of Flax's ways, and a lifted one."""

    def setup(self):
        self.first = nn.Conv(4, (3, 3), padding="CIRCULAR")
        self.inner = Inner()
        self.later = nn.remat(nn.Conv)(4, (2, 2))
        self.head = nn.Dense(3)

    def __call__(self, x, *, train=False, mask=None):
        return self.head(self.later(self.inner(self.first(x), train=train, mask=mask)).mean((1, 2)))


def same(tree, other, tolerance=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), tree, other)


def primitives(function, *given):
    return str(jax.make_jaxpr(function)(*given))


@pytest.mark.parametrize(
    ("x", "kernel", "options"),
    [
        (IMAGES, (3, 3), {}),
        (IMAGES, (3, 3), {"strides": 2}),
        (IMAGES, (4, 2), {"strides": (2, 1), "padding": "VALID"}),
        (IMAGES, (3, 3), {"padding": "CIRCULAR"}),
        (IMAGES, (3, 3), {"padding": "REFLECT"}),
        (IMAGES, (3, 3), {"padding": 2, "kernel_dilation": 2}),
        (IMAGES, (3, 3), {"padding": [(2, 0), (1, 3)], "use_bias": False}),
        (IMAGES, (3, 3), {"feature_group_count": 2}),
        (IMAGES, (3, 3), {"feature_group_count": 4}),
        (IMAGES[0], (3, 3), {}),
        (IMAGES[None], (3, 3), {}),
        (SEQUENCES, 3, {}),
        (SEQUENCES, (3,), {"strides": 2, "padding": "VALID"}),
        (SEQUENCES, (4,), {"padding": "CAUSAL", "kernel_dilation": 2}),
        (SEQUENCES, (3,), {"padding": 1, "feature_group_count": 4}),
    ],
)
def test_output_and_gradients_are_those_of_flax_s_layer(x, kernel, options):
    ours, theirs = Conv(8, kernel, **options), nn.Conv(8, kernel, **options)
    variables = jax.jit(theirs.init)(KEY, x)
    same(jax.jit(ours.init)(KEY, x), variables, 0)

    def both(layer):
        def loss(variables, x):
            y = layer.apply(variables, x)
            return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))

    same(both(ours)(variables, x), both(theirs)(variables, x))
    assert "conv_general_dilated" not in primitives(ours.apply, variables, x)


@pytest.mark.parametrize(
    ("x", "kernel", "options"),
    [
        (VOLUMES, (3, 3, 3), {}),
        (IMAGES, (3, 3), {"input_dilation": 2, "padding": 1}),
        (SEQUENCES, (3,), {"input_dilation": 2, "padding": 1}),
    ],
    ids=["volumes", "transposed images", "transposed sequences"],
)
def test_what_is_not_lowered_runs_natively(x, kernel, options):
    ours, theirs = Conv(8, kernel, **options), nn.Conv(8, kernel, **options)
    variables = theirs.init(KEY, x)
    same(ours.apply(variables, x), theirs.apply(variables, x), 0)
    assert "conv_general_dilated" in primitives(ours.apply, variables, x)


def test_an_option_beside_the_precision_runs_natively():
    dimensions = lax.conv_dimension_numbers(IMAGES.shape, (3, 3, 4, 5), ("NHWC", "HWIO", "NHWC"))
    options = {"dimension_numbers": dimensions, "preferred_element_type": jnp.float32}
    kernel = jax.random.normal(KEY, (3, 3, IMAGES.shape[-1], 5))
    got = fast_convolution(IMAGES, kernel, (1, 1), "SAME", **options)
    same(got, lax.conv_general_dilated(IMAGES, kernel, (1, 1), "SAME", **options), 0)


def test_channels_first_run_natively():
    x, kernel = jnp.moveaxis(IMAGES, -1, 1), jax.random.normal(KEY, (5, 4, 3, 3))
    same(fast_convolution(x, kernel, (1, 1), "SAME"), lax.conv_general_dilated(x, kernel, (1, 1), "SAME"), 0)


@pytest.fixture(scope="module")
def variables():
    return Theirs().init(KEY, IMAGES)


def test_a_module_keeps_its_variables(variables):
    model = fast_convolutions(Theirs())
    same(model.init(KEY, IMAGES), variables, 0)
    assert model == FastConvolutions(Theirs())
    assert hash(model) == hash(fast_convolutions(Theirs()))


def test_a_module_trains_as_before_without_a_native_convolution(variables):
    batch = Batch(IMAGES, jnp.array([0, 1, 2]), jnp.array([True, True, False]))

    def step(model):
        def loss(params):
            given = {**variables, "params": params}
            losses, statistics = Task(model).training_losses(given, batch, jax.random.key(1))
            return losses.sum(), statistics

        return jax.value_and_grad(loss, has_aux=True)

    theirs, ours = step(Theirs()), step(fast_convolutions(Theirs()))
    params = variables["params"]
    same(jax.jit(ours)(params), jax.jit(theirs)(params))
    assert "conv_general_dilated" in primitives(theirs, params)
    assert "conv_general_dilated" not in primitives(ours, params)


def test_a_module_trains_side_by_side_and_in_a_loop(variables):
    x = jnp.stack([IMAGES, IMAGES[::-1]])

    def run(model):
        def one(x):
            def step(params, _):
                loss = lambda p: (model.apply({**variables, "params": p}, x) ** 2).mean()  # noqa: E731
                value, gradient = jax.value_and_grad(loss)(params)
                return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value

            return lax.scan(step, variables["params"], length=3)

        return jax.jit(jax.vmap(one))(x)

    same(run(fast_convolutions(Theirs())), run(Theirs()), 1e-3)


def test_the_users_own_module_stays_as_it_was(variables):
    mine = Theirs()
    before = hash(mine)
    fast_convolutions(mine).apply(variables, IMAGES)
    assert hash(mine) == before
    assert "conv_general_dilated" in primitives(mine.apply, variables, IMAGES)


def test_frozen_parts_and_stages_are_named_as_before():
    model = dataclasses.replace(WideResNet(classes=3, depth=10), norm="group")
    task, plain = Task(fast_convolutions(model)), Task(model)
    x = jax.random.normal(KEY, (2, 8, 8, 1))
    ours, theirs = (t.fine_tune(x, frozen=["stem", "group1"]) for t in (task, plain))
    same(ours.frozen.variables, theirs.frozen.variables, 0)
    given = theirs.init(KEY, x)
    same(*(jax.jit(functools.partial(t.logits, train=True))(given, x) for t in (ours, theirs)))
    assert task.model.stages == model.stages
    assert fast_convolutions(Theirs()).stages == ()


def test_native_layers_are_named():
    assert list_native_convolutions(Task(Theirs()), IMAGES) == ["first", "inner/Conv_0", "later"]
    assert list_native_convolutions(Task(fast_convolutions(Theirs())), IMAGES) == []
    assert list_native_convolutions(Task(WideResNet(depth=10)), IMAGES) == []


def test_layers_that_could_not_be_replaced_are_not_named():
    class Volume(nn.Module):
        @nn.compact
        def __call__(self, x, *, train=False):
            x = nn.Conv(2, (3, 3, 3))(x).mean((1,))
            return nn.ConvTranspose(3, (2, 2))(nn.Conv(2, (3, 3), input_dilation=2, padding=1)(x)).mean((1, 2))

    assert list_native_convolutions(Task(Volume()), VOLUMES) == []


def test_a_warning_names_the_remedy_on_a_cpu_only(monkeypatch):
    message = r"Theirs has native convolutions \(first, inner/Conv_0, later\).*models\.Conv"
    with pytest.warns(UserWarning, match=message):
        warn_native_convolutions(Task(Theirs()), IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_native_convolutions(Task(fast_convolutions(Theirs())), IMAGES)
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        warn_native_convolutions(Task(Theirs()), IMAGES)
