"""The lowered convolution against XLA's own."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import partial_eval

from fedjax_sel.models import _conv, _native_conv
from fedjax_sel.models._batches import in_blocks
from fedjax_sel.models._conv import convolution
from fedjax_sel.models._fast_conv import Conv
from fedjax_sel.task.costs import count_flops
from tests.models.gradients import agree, with_gradients

ORDER = ("NHWC", "HWIO", "NHWC")


def rows_and_kernel(kernel=(3, 3), channels=4, out=6, groups=1, sides=(9, 8), dtype=np.float32, examples=2):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(examples, *sides, channels)).astype(dtype)
    return jnp.asarray(x), jnp.asarray(rng.normal(size=(*kernel, channels // groups, out)).astype(dtype))


def both(x, kernel, strides=(1, 1), padding="SAME", **options):
    """Of the lowered convolution and of XLA's."""
    return [
        with_gradients(lambda x, k, f=f: f(x, k, strides, padding, dimension_numbers=ORDER, **options), x, kernel)
        for f in (convolution, native)
    ]


def native(x, kernel, strides, padding, **options):
    """XLA's, rows padded beforehand: where it pads by less than 0, also backward, it reads beside them on the CPU.

    https://github.com/openxla/xla/issues/48713
    """
    if not isinstance(padding, str):
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*p, 0) for p in padding), (0, 0, 0)])
        padding = "VALID"
    return lax.conv_general_dilated(x, kernel, strides, padding, **options)


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID", [(2, 0), (1, 3)], [(-1, 1), (0, -2)]], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (4, 2)])
def test_output_and_gradients_are_those_of_the_native_convolution(kernel, strides, padding):
    agree(*both(*rows_and_kernel(kernel), strides, padding))


@pytest.mark.parametrize("out", [4, 8])
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize(
    ("kernel", "strides"), [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 4), (1, 2)), ((1, 1), (1, 1))]
)
def test_groups_of_channels_stay_apart_as_in_the_native_convolution(kernel, strides, groups, out):
    x, k = rows_and_kernel(kernel, out=out, groups=groups)
    agree(*both(x, k, strides, feature_group_count=groups))


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (0, 3)]], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_dilated_kernel_sees_the_places_that_the_native_convolution_sees(groups, padding):
    x, k = rows_and_kernel(out=4, groups=groups)
    agree(*both(x, k, (2, 1), padding, rhs_dilation=(2, 3), feature_group_count=groups))


@pytest.mark.parametrize("batch", [6, 7])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_blocks_of_rows_change_nothing(groups, batch, monkeypatch):
    monkeypatch.setattr(_conv, "choose_tile", lambda *_: None)
    x, k = rows_and_kernel(out=4, groups=groups)
    x = jnp.concatenate([x, 2 * x, -x, x])[:batch]
    of_a_row = 9 * 8 * 9 * 4 * 4
    for cores in ("SEVERAL_CORES", "ONE_CORE"):
        monkeypatch.setattr(_conv, cores, (batch * of_a_row - 1, 3 * of_a_row))
    options = {"dimension_numbers": ORDER, "feature_group_count": groups}
    text = str(jax.make_jaxpr(lambda: convolution(x, k, (1, 1), "SAME", **options))())
    assert "scan" in text
    agree(*both(x, k, feature_group_count=groups))


@pytest.fixture
def one_core(monkeypatch):
    """Devices that are a core each, and no convolution too small for XLA's own, or in tiles."""
    monkeypatch.setattr(_conv, "choose_tile", lambda *_: None)
    monkeypatch.setattr(_conv, "is_one_core", lambda: True)
    monkeypatch.setattr(_conv, "NATIVE_PATCHES", 0)
    monkeypatch.setattr(_conv, "NATIVE_ROWS", 0)


def convolve(x, kernel):
    return convolution(x, kernel, (1, 1), "SAME")


def count_native(of, *given):
    """Returns how often output and gradients call XLA's convolution."""
    return str(jax.make_jaxpr(lambda *a: with_gradients.__wrapped__(of, *a))(*given)).count("conv_general_dilated[")


@pytest.mark.parametrize(
    ("kernel", "padding"),
    [((3, 3), "SAME"), ((2, 5), "SAME"), ((4, 3), "SAME_LOWER"), ((3, 3), [(0, 2), (2, 0)])],
    ids=str,
)
def test_large_convolutions_of_one_core_are_xlas_in_three_fast_forms(kernel, padding, one_core):
    x, k = rows_and_kernel(kernel, channels=16)
    ours, theirs = both(x, k, padding=padding)
    agree(ours, theirs)
    assert count_native(lambda x, k: convolution(x, k, (1, 1), padding), x, k) == 3


@pytest.mark.parametrize(
    ("examples", "at_once", "blocks"), [(6, 2, 3), (6, 3, 2), (6, 4, 2), (6, 5, 1), (6, 6, 1), (7, 2, 1), (1, 2, 1)]
)
def test_a_kernels_gradient_is_a_sum_over_equal_blocks_of_examples(examples, at_once, blocks, one_core, monkeypatch):
    monkeypatch.setattr(_native_conv, "EXAMPLES_AT_ONCE", at_once)
    x, k = rows_and_kernel(channels=16, examples=examples)
    agree(*both(x, k))
    program = str(jax.make_jaxpr(lambda *a: with_gradients.__wrapped__(convolve, *a))(x, k))
    assert ("scan[" in program) == (blocks > 1)
    assert (f"length={blocks}\n" in program) == (blocks > 1)


def test_stacked_clients_have_no_native_convolution_but_stacked_examples_do(one_core):
    x, k = rows_and_kernel(channels=16)
    xs, ks = jnp.stack([x, 2 * x, x - 1]), jnp.stack([k, k + 1, -k])
    clients, examples = jax.vmap(convolve), jax.vmap(convolve, (0, None))
    for i, one in enumerate(zip(*jax.vmap(functools.partial(with_gradients, convolve))(xs, ks), strict=True)):
        agree(
            one, with_gradients(lambda x, k: native(x, k, (1, 1), "SAME", dimension_numbers=ORDER), xs[i], ks[i]), 1e-3
        )
    assert count_native(clients, xs, ks) == 0
    assert count_native(examples, xs, k) == 1  # forwards; each its own gradient of the kernel is no convolution
    np.testing.assert_allclose(examples(xs, k), clients(xs, jnp.stack([k] * 3)), rtol=1e-4, atol=1e-4)
    nested = jax.vmap(examples)(xs[:, None], ks)[:, 0]
    np.testing.assert_allclose(nested, clients(xs, ks), rtol=1e-4, atol=1e-4)
    assert count_native(jax.vmap(examples), xs[:, None], ks) == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"cores": 2}, False),
        ({"dtype": jnp.float16}, False),
        ({"sides": 30}, False),
        ({"kernel": (1, 1, 32, 32)}, False),
        ({"kernel": (3, 3, 24, 32)}, False),
        ({"examples": 7}, False),
        ({"sides_in": (8, 8), "sides": 8}, False),
    ],
    ids=str,
)
def test_which_convolutions_are_xlas_own(change, expected, monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    monkeypatch.setattr(_conv, "count_cores", lambda: change.get("cores", 1))
    examples, kernel = change.get("examples", 8), change.get("kernel", (3, 3, 32, 32))
    out = (examples, *(change.get("sides", 32),) * 2, kernel[3])
    lhs = jax.ShapeDtypeStruct((examples, *change.get("sides_in", (32, 32)), kernel[2]), change.get("dtype", "float32"))
    assert _conv.is_faster_natively(lhs, out, kernel, _conv.measure_patches(out, kernel, 4)) is expected


def test_pixels_have_no_gradient_in_blocks(monkeypatch):
    monkeypatch.setattr(_conv, "SEVERAL_CORES", (0, 1))
    monkeypatch.setattr(_conv, "ONE_CORE", (0, 1))
    x, k = rows_and_kernel()

    def count_products(of, *given):
        program = jax.make_jaxpr(lambda *a: with_gradients.__wrapped__(of, *a))(*given).jaxpr
        needed, _ = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
        return str(needed).count("dot_general[")

    assert (count_products(convolve, x, k), count_products(lambda k: convolve(x, k), k)) == (3, 2)
    agree(with_gradients(lambda k: convolve(x, k), k), [with_gradients(convolve, x, k)[i] for i in (0, 2)])


def test_a_batch_of_large_patches_is_taken_in_blocks_on_a_cpu_only(monkeypatch):
    large = _conv.measure_patches((50, 32, 32, 64), (3, 3, 32, 64), 4)
    small = _conv.measure_patches((8, 8, 32, 64), (3, 3, 3, 64), 4)
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    monkeypatch.setattr(_conv, "count_cores", lambda: 2)
    assert [_conv.block(50, large), _conv.block(8, large)] == [2, 8]
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)  # a core each
    assert [_conv.block(50, large), _conv.block(8, large)] == [1, 1]
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    monkeypatch.setattr(_conv, "count_cores", lambda: 1)
    assert [_conv.block(50, large), _conv.block(8, small)] == [1, 8]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _conv.block(50, large) == 50


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_clients_with_kernels_of_their_own_can_be_stacked(groups):
    x, k = rows_and_kernel(out=4, groups=groups)
    xs, ks = jnp.stack([x, 2 * x, x - 1]), jnp.stack([k, k + 1, -k])

    def convolve(x, k):
        return both(x, k, feature_group_count=groups)[0]

    for i, one in enumerate(zip(*jax.vmap(convolve)(xs, ks), strict=True)):
        agree(one, both(xs[i], ks[i], feature_group_count=groups)[1])


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays_half_precision(dtype, groups):
    x, k = (a.astype(dtype) for a in rows_and_kernel(out=4, groups=groups))
    ours, _ = both(x, k, feature_group_count=groups)
    exact, _ = both(x.astype(jnp.float32), k.astype(jnp.float32), feature_group_count=groups)
    assert {a.dtype for a in ours} == {jnp.dtype(dtype)}
    np.testing.assert_allclose(np.asarray(ours[0], np.float32), exact[0], atol=0.2)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_gradients_of_half_precision_are_added_up_over_the_kernels_places_in_32_bits(side):
    """Against float32 of the same rounded numbers: one rounding of the result, not one for each place."""
    rng = np.random.default_rng(0)
    x, k = (jnp.asarray(np.abs(rng.normal(size=s)), jnp.bfloat16) for s in ((2, 16, 16, 8), (side, side, 8, 8)))

    def gradient(x, k):
        return jax.grad(lambda x: convolution(x, k, (1, 1), "SAME").astype(jnp.float32).sum())(x)

    exact = gradient(x.astype(jnp.float32), k.astype(jnp.float32))
    np.testing.assert_allclose(gradient(x, k).astype(jnp.float32), exact, rtol=0.0081)


@pytest.mark.parametrize("options", [{}, {"strides": 2}, {"feature_group_count": 4}, {"padding": "CIRCULAR"}], ids=str)
def test_a_flax_layer_is_the_same_layer_with_either_convolution(options):
    x, _ = rows_and_kernel()
    ours, flaxs = Conv(8, (3, 3), **options), nn.Conv(8, (3, 3), **options)
    variables = flaxs.init(jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, ours.init(jax.random.key(0), x)) == jax.tree.map(jnp.shape, variables)
    np.testing.assert_allclose(ours.apply(variables, x), flaxs.apply(variables, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_no_native_convolution_is_left(groups):
    x, k = rows_and_kernel(out=4, groups=groups)

    def program(convolve):
        options = {"dimension_numbers": ORDER, "feature_group_count": groups}
        step = jax.value_and_grad(lambda *a: convolve(*a, (1, 1), "SAME", **options).sum(), (0, 1))
        return str(jax.make_jaxpr(step)(x, k))

    assert "conv_general_dilated" in program(lax.conv_general_dilated)
    assert "conv_general_dilated" not in program(convolution)


def test_a_1x1_kernel_is_the_product_alone():
    x, k = rows_and_kernel((1, 1))
    assert "concatenate" not in str(jax.make_jaxpr(lambda x, k: convolution(x, k, (1, 1), "SAME"))(x, k))


@pytest.mark.parametrize(
    ("shapes", "options", "error", "match"),
    [
        (((2, 9, 8, 4), (3, 3, 4, 6)), {"lhs_dilation": (2, 1)}, NotImplementedError, r"lhs_dilation is \(2, 1\)"),
        (((2, 9, 4), (3, 4, 6)), {}, NotImplementedError, "only images are lowered"),
        (((2, 4, 9, 8), (6, 4, 3, 3)), {"dimension_numbers": None}, NotImplementedError, "dimension_numbers is None"),
        (((2, 9, 8, 4), (3, 3, 3, 6)), {}, ValueError, "needs 3 channels in"),
        (((2, 9, 8, 4), (3, 3, 2, 5)), {"feature_group_count": 2}, ValueError, "that 2 divides"),
        (((2, 2, 8, 4), (3, 3, 4, 6)), {}, ValueError, "reaches over 3x3 places does not fit examples of 2x8"),
        (((2, 4, 8, 4), (3, 3, 4, 6)), {"rhs_dilation": (2, 1)}, ValueError, "reaches over 5x3 places"),
    ],
    ids=["lhs dilation", "sequence", "channels first", "channels", "groups", "small", "small for dilation"],
)
def test_what_is_not_lowered_is_refused(shapes, options, error, match):
    with pytest.raises(error, match=match):
        convolution(*map(jnp.zeros, shapes), (1, 1), "VALID", **options)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_kernels_gradients_of_half_precision_do_not_stop_growing(groups):
    """Sums of ones over 12,544 positions; in 8 bits of mantissa a sum of ones stops at 256."""
    x, k = jnp.ones((64, 16, 16, 8), jnp.bfloat16), jnp.ones((3, 3, 8 // groups, 8), jnp.bfloat16)

    def gradient(k):
        return convolution(x, k, (1, 1), "VALID", feature_group_count=groups).astype(jnp.float32).sum()

    exact = 64 * 14 * 14
    np.testing.assert_allclose(np.asarray(jax.grad(gradient)(k), np.float32), exact, rtol=0.01)
    in_fives = functools.partial(in_blocks, lambda x, k: x[:, :1, :1] @ k[0, 0], 1)
    many = jnp.ones((2000, 1, 1, 8), jnp.bfloat16)
    total = jax.grad(lambda k: in_fives(many, k).astype(jnp.float32).sum())(jnp.ones((1, 1, 8, 8), jnp.bfloat16))
    np.testing.assert_allclose(np.asarray(total, np.float32), 2000, rtol=0.01)


def test_the_operations_of_one_example_do_not_depend_on_the_cores(monkeypatch):
    x, k = jnp.ones((1, 16, 16, 256)), jnp.ones((3, 3, 256, 16))

    def count():
        return count_flops(lambda x, k: convolution(x, k, (1, 1), "SAME"), x, k)[0]

    found = []
    for alone in (False, True):
        monkeypatch.setattr(_conv, "is_one_core", lambda alone=alone: alone)
        found.append(count())
    assert found[0] == found[1]
