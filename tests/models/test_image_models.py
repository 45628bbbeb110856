"""Networks for images: MobileNetV3, EfficientNet and the wide residual network, and what ResNet computes."""

import functools
import itertools
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel import Task, models
from fedjax_sel.models._blocks import InvertedResidual, SqueezeExcite, divisible
from fedjax_sel.models.cnn import CNN
from fedjax_sel.models.conv_dropout import ConvDropout
from fedjax_sel.models.efficientnet import EfficientNet, table
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.mobilenet import BLOCKS, MobileNetV3
from fedjax_sel.models.resnet import ResNet
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.types import Batch

SMALL = {  # with the smallest rows they take, but for the last
    "mobilenet": (MobileNetV3(classes=5), 8),
    "efficientnet": (EfficientNet(classes=5, drop_path=0.2), 16),
    "wide_resnet": (WideResNet(classes=5), 8),
}
ALL = pytest.mark.parametrize("name", SMALL)
WITH_DROPOUT = pytest.mark.parametrize("name", ["mobilenet", "efficientnet"])


def size(tree):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def shapes(model, side=32, channels=3):
    return jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, side, side, channels)))


def drawn(model, x):
    """Variables that hide nothing: means, scales and shifts of normalisation differ too. By NumPy, to compile less."""
    rng = np.random.default_rng(8)

    def draw(path, leaf):
        noise = rng.uniform(-1, 1, leaf.shape)
        kind = path[-1].key
        if kind == "kernel":
            noise *= (6 / np.prod(leaf.shape[:-1])) ** 0.5
        else:
            noise = 1 + 0.5 * noise if kind in ("var", "scale") else 0.3 * noise
        return np.asarray(noise, np.float32)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(model.init, jax.random.key(0), x))


compiled = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""For programs that run a few times: it halves the seconds of their compilation."""


@functools.cache
def small(name):
    """The model on four rows, with its programs."""
    model, side = SMALL[name]
    x = np.asarray(np.random.default_rng(1).normal(size=(4, side, side, 3)), np.float32)
    y = jnp.array([0, 1, 4, 2])
    variables = drawn(model, x)

    @compiled
    def step(variables, x, mask, key):
        """Logits and statistics of a step in training, and the gradient of the loss of rows that count."""

        def loss(params):
            logits, moved = model.apply(
                {**variables, "params": params},
                x,
                train=True,
                mask=mask,
                rngs={"dropout": jax.random.key(key)},
                mutable=["batch_stats"],
            )
            return (Task(model).loss(logits, y) * mask).sum(), (logits, moved)

        gradient, (logits, moved) = jax.grad(loss, has_aux=True)(variables["params"])
        return logits, moved["batch_stats"], gradient

    step, logits = (functools.partial(f, variables) for f in (step, compiled(model.apply)))
    return SimpleNamespace(model=model, x=x, y=y, variables=variables, step=step, logits=logits)


EVERYONE = np.ones(4, bool)


def with_row(x, i, factor):
    """The rows, row `i` (or a slice of them) multiplied."""
    x = x.copy()
    x[i] *= factor
    return x


# sizes


def test_they_are_listed_and_what_they_share_is_not():
    listed = models.available()
    assert {"mobilenet", "efficientnet", "wide_resnet"} <= set(listed)
    assert "blocks" not in listed
    assert [models.load(name) for name in SMALL] == [MobileNetV3, EfficientNet, WideResNet]


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("model", "classes", "published"),
    [
        (MobileNetV3, 1000, 2_542_856),
        (MobileNetV3, 10, 1_528_106),
        (EfficientNet, 1000, 5_288_548),
        (EfficientNet, 10, 4_020_358),
        (WideResNet, 10, 175_066),
    ],
)
def test_parameters_are_the_published_ones(model, classes, published, norm):
    """Those of torchvision's mobilenet_v3_small and efficientnet_b0; with 10 classes, 990 columns and biases fewer."""
    variables = shapes(model(classes=classes, norm=norm))
    assert size(variables["params"]) == published
    assert set(variables) == {"params"} | ({"batch_stats"} if norm == "batch" else set())


def test_wider_and_deeper_residual_networks_have_the_published_sizes():
    """Zagoruyko and Komodakis, table 4, in millions."""
    millions = {(40, 1): 0.6, (40, 2): 2.2, (40, 4): 8.9, (22, 8): 17.2, (16, 8): 11.0, (28, 10): 36.5}
    for (depth, width), published in millions.items():
        params = shapes(WideResNet(depth=depth, width=width))["params"]
        assert round(size(params) / 1e6, 1) == published


def test_parts_of_the_wide_residual_network_can_be_named():
    params = shapes(WideResNet())["params"]
    assert set(params) == {"stem", "group1", "group2", "group3", "norm", "head"}
    assert {part: size(params[part]) for part in params} == {
        "stem": 432,
        "group1": 9_344,
        "group2": 32_992,
        "group3": 131_520,
        "norm": 128,
        "head": 650,
    }
    upper = sum(size(params[part]) for part in ("group3", "norm", "head"))
    assert (upper, round(100 * upper / size(params), 1)) == (132_298, 75.6)
    assert set(params["group1"]) == {"block1", "block2"}
    assert set(params["group1"]["block1"]) == {"norm1", "conv1", "norm2", "conv2"}
    assert set(params["group2"]["block1"]) == {"norm1", "conv1", "norm2", "conv2", "shortcut"}
    assert params["group1"]["block1"]["conv1"]["kernel"].shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("model", "side", "expected"),
    [
        (MobileNetV3(), 32, [32, 32, 16, 16, 8, 8, 8, 8, 8, 4, 4, 4, 4]),
        (MobileNetV3(halvings=5), 224, [112, 56, 28, 28, 14, 14, 14, 14, 14, 7, 7, 7, 7]),
        (EfficientNet(), 32, [32, 32, 16, 16, 8, 8, *[4] * 6, *[2] * 6]),
        (EfficientNet(halvings=5), 224, [112, 112, 56, 56, 28, 28, *[14] * 6, *[7] * 6]),
    ],
    ids=["MobileNetV3", "MobileNetV3 as published", "EfficientNet", "EfficientNet as published"],
)
def test_the_resolution_of_every_block(model, side, expected):
    """As published: Howard et al., table 2; Tan and Le, table 1."""
    x = jnp.zeros((1, side, side, 3))
    seen = jax.eval_shape(
        lambda variables: model.apply(variables, x, capture_intermediates=True, mutable=["intermediates"])[1],
        shapes(model, side),
    )["intermediates"]
    names = ["stem", *(f"block{i}" for i in range(1, len(expected) - 1)), "last"]
    outputs = [seen[name]["__call__"][0].shape for name in names]
    assert [shape[1] for shape in outputs] == expected
    assert f"block{len(expected) - 1}" not in seen


def test_the_nearest_multiple_of_eight_takes_no_more_than_a_tenth_away():
    """From Howard et al., table 2: the widths that a quarter of the expanded channels gives."""
    assert [divisible(n / 4) for n in (16, 96, 240, 120, 144, 288, 576)] == [8, 24, 64, 32, 40, 72, 144]
    assert all(w % 8 == 0 and w >= 0.9 * n and abs(w - n) < 12 for n in range(8, 300) for w in [divisible(n)])


# what each computes


def native(x, kernel, stride=1, groups=1):
    pad = kernel.shape[0] // 2
    order = ("NHWC", "HWIO", "NHWC")
    return np.asarray(
        lax.conv_general_dilated(
            x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=order, feature_group_count=groups
        )
    )


def standardised(x, params, statistics, epsilon):
    (params,), (statistics,) = params.values(), statistics.values()
    return (x - statistics["mean"]) / np.sqrt(statistics["var"] + epsilon) * params["scale"] + params["bias"]


def wide_resnet_by_hand(variables, x):
    """WRN-16 in evaluation: what the paper's figure 1 and table 1 say, with XLA's convolutions."""
    params, statistics = variables["params"], variables["batch_stats"]
    seen = []
    x = native(x, params["stem"]["kernel"])
    for group, stride in (("group1", 1), ("group2", 2), ("group3", 2)):
        for block in ("block1", "block2"):
            p, s = params[group][block], statistics[group][block]
            step = stride if block == "block1" else 1
            y = np.maximum(standardised(x, p["norm1"], s["norm1"], 1e-5), 0)
            shortcut = native(y, p["shortcut"]["kernel"], step) if "shortcut" in p else x
            y = native(y, p["conv1"]["kernel"], step)
            y = np.maximum(standardised(y, p["norm2"], s["norm2"], 1e-5), 0)
            x = shortcut + native(y, p["conv2"]["kernel"])
        seen.append(x)
    x = np.maximum(standardised(x, params["norm"], statistics["norm"], 1e-5), 0)
    return np.mean(x, (1, 2)) @ params["head"]["kernel"] + params["head"]["bias"], seen


def test_the_wide_residual_network_is_the_paper_s():
    of = small("wide_resnet")
    logits, seen = wide_resnet_by_hand(of.variables, of.x)
    np.testing.assert_allclose(of.logits(of.x), logits, rtol=1e-4, atol=1e-4)
    out, moved = compiled(functools.partial(of.model.apply, mutable=["intermediates"]))(of.variables, of.x)
    np.testing.assert_allclose(out, logits, rtol=1e-4, atol=1e-4)
    assert list(moved) == ["intermediates"]
    assert set(moved["intermediates"]) == {"low", "mid", "up"}
    for name, expected, shape in zip(("low", "mid", "up"), seen, [(8, 16), (4, 32), (2, 64)], strict=True):
        (sown,) = moved["intermediates"][name]
        assert sown.shape == (4, shape[0], shape[0], shape[1])
        np.testing.assert_allclose(sown, expected, rtol=1e-4, atol=1e-4)


def test_intermediates_are_no_variables_of_the_model():
    of = small("wide_resnet")
    assert set(jax.eval_shape(Task(of.model).init, jax.random.key(0), of.x)) == {"params", "batch_stats"}
    training = functools.partial(of.model.apply, train=True, mutable=["batch_stats"])
    assert list(jax.eval_shape(training, of.variables, of.x)[1]) == ["batch_stats"]


@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_the_residual_network_is_the_paper_s(shortcut):
    """He et al., section 3.3 and 4.2, with shortcuts A and B."""
    model, x = ResNet(classes=3, depth=8, shortcut=shortcut), np.random.default_rng(1).normal(size=(2, 8, 8, 3))
    x = x.astype(np.float32)
    variables, numbers = drawn(model, x), itertools.count()

    def layer(y, stride=1):
        i = next(numbers)
        params, statistics = (variables[part][f"Norm_{i}"] for part in ("params", "batch_stats"))
        return standardised(native(y, variables["params"][f"Conv_{i}"]["kernel"], stride), params, statistics, 1e-5)

    y = np.maximum(layer(x), 0)
    for stride, more in ((1, 0), (2, 8), (2, 16)):
        residual = layer(np.maximum(layer(y, stride), 0))
        if stride == 2:
            y = layer(y, 2) if shortcut == "projection" else np.pad(y[:, ::2, ::2], [(0, 0)] * 3 + [(more, more)])
        y = np.maximum(y + residual, 0)
    head = variables["params"]["Dense_0"]
    logits = y.mean((1, 2)) @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(compiled(model.apply)(variables, x), logits, rtol=1e-4, atol=1e-4)


def test_the_blocks_are_those_of_the_published_tables():
    """Howard et al., table 2: SE and NL; Tan and Le: swish throughout, stochastic depth that grows with the block."""
    assert [block.squeeze is not None for block in BLOCKS] == [True, False, False] + [True] * 8
    assert [block.act for block in BLOCKS] == [nn.relu] * 3 + [nn.hard_swish] * 8
    blocks = table(0.2)
    assert {block.act for block in blocks} == {block.squeeze.keywords["act"] for block in blocks} == {nn.swish}
    np.testing.assert_allclose([block.drop for block in blocks], 0.2 * np.arange(16) / 16)


@pytest.mark.parametrize(("name", "act"), [("mobilenet", nn.hard_swish), ("efficientnet", nn.swish)])
def test_the_last_layers_have_the_activations_of_the_paper(name, act):
    """The last convolution's normalisation multiplies by 0, so that its output is its bias."""
    of = small(name)
    params, factors = of.variables["params"], {"kernel": 1, "scale": 0, "bias": 10}
    last = jax.tree_util.tree_map_with_path(lambda path, leaf: factors[path[-1].key] * leaf, params["last"])
    (norm,) = last["norm"].values()
    y = act(norm["bias"])
    for layer in [name for name in ("hidden", "head") if name in params]:
        y = y @ params[layer]["kernel"] + params[layer]["bias"]
        y = act(y) if layer == "hidden" else y
    logits = of.logits.func({**of.variables, "params": {**params, "last": last}}, of.x)
    np.testing.assert_allclose(logits, np.tile(y, (4, 1)), rtol=1e-4, atol=1e-4)


@WITH_DROPOUT
def test_variances_are_normalised_with_an_epsilon_of_a_thousandth(name):
    """A variance of 0.009 with a tenth of the scale is then as good as one of 0.999."""
    of = small(name)

    def logits(variance, scale):
        def change(path, leaf):
            return {"var": np.full_like(leaf, variance), "scale": np.float32(scale) * leaf}.get(path[-1].key, leaf)

        return of.logits.func(jax.tree_util.tree_map_with_path(change, of.variables), of.x)

    np.testing.assert_allclose(logits(0.009, 0.1), logits(0.999, 1.0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("expanded", "width", "kernel", "stride"),
    [(16, 8, 3, 1), (8, 8, 3, 1), (16, 8, 5, 2), (16, 6, 3, 1)],
    ids=["shortcut", "nothing expands", "stride", "other width"],
)
def test_an_inverted_residual_is_its_formula(expanded, width, kernel, stride):
    squeeze = functools.partial(SqueezeExcite, 4, gate=nn.hard_sigmoid)
    block = InvertedResidual(expanded, width, kernel, stride, act=nn.hard_swish, squeeze=squeeze)
    x = np.asarray(np.random.default_rng(0).normal(size=(2, 6, 6, 8)), np.float32)
    variables = drawn(block, x)
    p, s = variables["params"], variables["batch_stats"]

    def gated(z):
        return np.clip(z / 6 + 0.5, 0, 1)

    def convolved(y, part, **options):
        y = native(y, p[part]["conv"]["kernel"], **options)
        return standardised(y, p[part]["norm"], s[part]["norm"], 1e-5)

    y = x
    if expanded != 8:
        y = convolved(y, "expand")
        y = y * gated(y)
    assert ("expand" in p) == (expanded != 8)
    y = convolved(y, "depthwise", stride=stride, groups=expanded)
    y = y * gated(y)
    squeezed, excited = p["squeeze_excite"]["squeeze"], p["squeeze_excite"]["excite"]
    z = np.maximum(np.mean(y, (1, 2)) @ squeezed["kernel"] + squeezed["bias"], 0)
    y = y * gated(z @ excited["kernel"] + excited["bias"])[:, None, None, :]
    y = convolved(y, "project")
    if (stride, width) == (1, 8):
        y = y + x
    np.testing.assert_allclose(compiled(block.apply)(variables, x), y, rtol=1e-4, atol=1e-4)


def test_a_row_passes_by_a_whole_block_or_through_it():
    block = InvertedResidual(8, 8, drop=0.5)
    x = np.asarray(np.random.default_rng(0).normal(size=(40, 4, 4, 8)), np.float32)
    variables = drawn(block, x)

    def residuals(block):
        training = functools.partial(block.apply, train=True, mutable=["batch_stats"])
        return np.asarray(compiled(training)(variables, x, rngs={"dropout": jax.random.key(2)})[0] - x)

    some, all_of_them = residuals(block), residuals(InvertedResidual(8, 8))
    passed = (some == 0).all((1, 2, 3))
    assert 5 < passed.sum() < 35
    np.testing.assert_allclose(some[~passed], 2 * all_of_them[~passed], rtol=1e-4, atol=1e-4)


# what all of them promise


@ALL
def test_rows_that_do_not_count_change_neither_statistics_nor_logits_nor_gradient(name):
    of = small(name)
    mask = np.array([True, True, False, True])
    other = with_row(of.x, 2, -30.0)
    logits, moved, gradient = of.step(of.x, mask, 0)
    logits_other, moved_other, gradient_other = of.step(other, mask, 0)
    np.testing.assert_allclose(logits[mask], logits_other[mask], rtol=1e-4, atol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), moved, moved_other)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max())

    assert not np.allclose(logits[0], of.step(other, EVERYONE, 0)[0][0], atol=1e-3)


def test_statistics_of_a_masked_batch_are_those_of_the_rows_that_count():
    of = small("wide_resnet")
    moved = of.step(of.x, np.array([True, True, True, False]), 0)[1]
    training = functools.partial(of.model.apply, train=True, mutable=["batch_stats"])
    alone = compiled(training)(of.variables, of.x[:3])[1]["batch_stats"]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), moved, alone)


@ALL
def test_evaluation_draws_nothing_and_sees_each_row_alone(name):
    of = small(name)
    logits = of.logits(of.x)
    assert logits.shape == (4, 5)
    np.testing.assert_array_equal(logits, of.logits(of.x))
    others = of.logits(with_row(of.x, slice(1, None), -7.0))
    np.testing.assert_allclose(logits[0], others[0], rtol=1e-5, atol=1e-5)
    assert not np.allclose(logits[1:], others[1:], atol=1e-3)


@WITH_DROPOUT
def test_dropout_draws_while_training_only(name):
    of = small(name)
    np.testing.assert_array_equal(of.step(of.x, EVERYONE, 1)[0], of.step(of.x, EVERYONE, 1)[0])
    assert not np.allclose(of.step(of.x, EVERYONE, 1)[0], of.step(of.x, EVERYONE, 2)[0], atol=1e-3)
    off = of.model.clone(dropout=0.9)
    assert str(jax.make_jaxpr(off.apply)(of.variables, of.x)).count("random_bits") == 0


@ALL
def test_a_gradient_is_finite_and_reaches_every_parameter(name):
    of = small(name)
    _, moved, gradient = of.step(of.x, EVERYONE, 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((moved, gradient)))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


@ALL
def test_a_task_trains_it(name):
    """Shapes only: dropout's key and the mask arrive, and the statistics come back."""
    of = small(name)
    batch = Batch(*map(jnp.asarray, (of.x, of.y, EVERYONE)))
    losses, moved = jax.eval_shape(Task(of.model).training_losses, of.variables, batch, jax.random.key(0))
    assert losses.shape == (4,)
    assert jax.tree.map(jnp.shape, moved) == jax.tree.map(jnp.shape, {"batch_stats": of.variables["batch_stats"]})


@ALL
def test_group_normalisation_has_no_statistics_and_sees_each_row_alone(name):
    model, side = SMALL[name]
    model = model.clone(norm="group")
    x = jnp.zeros((3, side, side, 1))
    variables = shapes(model, side, 1)
    assert list(variables) == ["params"]
    assert jax.eval_shape(model.apply, variables, x).shape == (3, 5)
    if name == "wide_resnet":  # the others' programs compile slowly, and normalise by the same module
        of = small(name)
        logits = functools.partial(compiled(model.apply), drawn(model, of.x))
        others = with_row(of.x, slice(1, None), -7.0)
        np.testing.assert_allclose(logits(of.x)[0], logits(others)[0], rtol=1e-4, atol=1e-5)


@ALL
def test_rows_without_channels_have_one(name):
    model, side = SMALL[name]
    x = jnp.zeros((2, side, side))
    assert jax.tree.map(jnp.shape, jax.eval_shape(model.init, jax.random.key(0), x)) == jax.tree.map(
        jnp.shape, shapes(model, side, 1)
    )


@pytest.mark.parametrize(
    ("model", "least"),
    [
        (MobileNetV3(), 8),
        (EfficientNet(), 16),
        (EfficientNet(halvings=5), 32),
        (MobileNetV3(halvings=0), 1),
        (WideResNet(), 4),
    ],
    ids=["mobilenet", "efficientnet", "efficientnet 5", "mobilenet 0", "wide_resnet"],
)
def test_the_smallest_image_it_takes_is_the_one_it_names(model, least):
    def shaped(*row):
        return jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *row)))

    shaped(least, least + 1, 3)
    for row in [(least - 1, 40, 3), (40, least - 1, 3), (784,), (), (4, 32, 32, 3)]:
        with pytest.raises(
            ValueError, match=rf": an example has shape .*; it must be \(height, width\) .* at least {least}"
        ):
            shaped(*row)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: WideResNet(depth=18), "wide_resnet: depth is 18; it must be 6 n \\+ 4"),
        (lambda: WideResNet(depth=4), "wide_resnet: depth is 4"),
        (lambda: ConvDropout(channels=(32,)), r"conv_dropout: channels is \(32,\); it must be two numbers"),
        (lambda: ConvDropout(dropout=(0.3,)), r"conv_dropout: dropout is \(0.3,\); it must be two numbers"),
        (lambda: MLP(initial="x"), "unknown initial of mlp: 'x'"),
        (lambda: CNN(initial="x"), "unknown initial of cnn: 'x'"),
        (lambda: WideResNet(width=0), "wide_resnet: width is 0; it must be a whole number, at least 1"),
        (lambda: MobileNetV3(halvings=6), "mobilenet: halvings is 6; it must be 0 to 5"),
        (lambda: EfficientNet(halvings=-1), "efficientnet: halvings is -1; it must be 0 to 5"),
        (lambda: MobileNetV3(norm="layer"), "unknown norm 'layer'"),
        (lambda: EfficientNet(norm="layer"), "unknown norm 'layer'"),
        (lambda: WideResNet(norm="layer"), "unknown norm 'layer'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_fields(build, match):
    with pytest.raises(ValueError, match=match):
        shapes(build())
