"""Convolution by Winograd's minimal filtering, against sums in double precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Task, models
from fedjax_sel.models import _conv, _winograd
from fedjax_sel.models._conv import convolution
from fedjax_sel.models._winograd import COLUMN, SQUARE, make_transforms

ORDER = ("NHWC", "HWIO", "NHWC")


def make_images(examples=2, sides=(8, 8), channels=3, out=5):
    rng = np.random.default_rng(4)
    x, kernel = rng.normal(size=(examples, *sides, channels)), rng.normal(size=(3, 3, channels, out))
    return x.astype(np.float32), kernel.astype(np.float32)


def convolve_exactly(x, kernel, padding, given=None):
    """Returns the convolution in double precision, and with a gradient of its outputs those of examples and kernel."""
    x, kernel = x.astype(np.float64), kernel.astype(np.float64)
    (top, bottom), (left, right) = padding
    widths = [(0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)), (0, 0)]
    inside = (
        slice(None),
        slice(max(-top, 0), x.shape[1] - max(-bottom, 0)),
        slice(max(-left, 0), x.shape[2] - max(-right, 0)),
    )
    seen = np.pad(x[inside], widths)
    height, width = seen.shape[1] - 2, seen.shape[2] - 2
    places = [(i, j) for i in range(3) for j in range(3)]
    if given is None:
        return sum(seen[:, i : i + height, j : j + width] @ kernel[i, j] for i, j in places)
    of_seen, of_kernel = np.zeros_like(seen), np.zeros_like(kernel)
    for i, j in places:
        of_seen[:, i : i + height, j : j + width] += given @ kernel[i, j].T
        of_kernel[i, j] = np.einsum("byxi,byxo->io", seen[:, i : i + height, j : j + width], given)
    of_x = np.zeros_like(x)
    rows = slice(max(top, 0), of_seen.shape[1] - max(bottom, 0))
    columns = slice(max(left, 0), of_seen.shape[2] - max(right, 0))
    of_x[inside] = of_seen[:, rows, columns]
    return of_x, of_kernel


def agree(ours, exact, tolerance=1e-5):
    np.testing.assert_allclose(ours, exact, rtol=0, atol=tolerance * np.abs(exact).max())


PADDINGS = {
    "SAME": ((1, 1), (1, 1)),
    "VALID": ((0, 0), (0, 0)),
    "uneven": ((2, 0), (0, 3)),
    "negative": ((-1, 1), (0, -2)),
}


@pytest.mark.parametrize("tile", [SQUARE, COLUMN], ids=str)
@pytest.mark.parametrize("sides", [(8, 8), (7, 10), (5, 6)], ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
def test_outputs_and_gradients_are_those_of_a_convolution(sides, padding, tile):
    x, kernel = make_images(sides=sides)
    pads = PADDINGS[padding]
    exact = convolve_exactly(x, kernel, pads)
    given = np.random.default_rng(5).normal(size=exact.shape).astype(np.float32)

    @jax.jit
    def both(x, kernel, given):
        how = functools.partial(
            _winograd.convolve, padding=padding if padding.isupper() else pads, precision=None, tile=tile
        )
        out, back = jax.vjp(how, x, kernel)
        return out, *back(given)

    ours = both(x, kernel, given)
    for mine, true in zip(ours, (exact, *convolve_exactly(x, kernel, pads, given)), strict=True):
        agree(mine, true)


@pytest.mark.parametrize(
    "points", [(0, 1, -1, 2, -2), (0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5))], ids=["usual", "ours"]
)
def test_a_filter_of_three_on_six_numbers_gives_four(points):
    inputs, kernel, outputs = make_transforms(points)
    rng = np.random.default_rng(6)
    x, k = rng.normal(size=6), rng.normal(size=3)
    np.testing.assert_allclose(outputs @ ((kernel @ k) * (inputs @ x)), np.correlate(x, k), rtol=1e-9)


def test_the_usual_points_give_the_published_matrices():
    """Lavin and Gray (2016), section 4.3, whose rows may have other signs."""
    inputs, kernel, outputs = make_transforms((0, 1, -1, 2, -2))
    published = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
    published += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
    np.testing.assert_allclose(inputs, published, atol=1e-12)
    of_kernel = [[1 / 4, 0, 0], [-1 / 6] * 3, [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6]]
    np.testing.assert_allclose(kernel, [*of_kernel, [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], atol=1e-12)
    of_outputs = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
    np.testing.assert_allclose(outputs, of_outputs)


@pytest.mark.parametrize(("tile", "form", "limit"), [(SQUARE, "squares_forwards", 3), (COLUMN, "columns_forwards", 2)])
def test_rounding_errors_are_less_than_those_of_the_usual_points(tile, form, limit, monkeypatch):
    """Beside patches, whose errors are the measure; ReLU's outputs are the inputs of most convolutions."""
    x, kernel = make_images(8, (16, 16), 32, 64)
    x, kernel = np.maximum(x, 0), kernel / np.float32(np.sqrt(9 * 32))
    exact = convolve_exactly(x, kernel, PADDINGS["SAME"])

    def err(of):
        return np.sqrt(np.mean((np.asarray(of(jnp.asarray(x), jnp.asarray(kernel))) - exact) ** 2))

    def in_tiles(x, kernel):
        return _winograd.convolve(x, kernel, "SAME", None, tile)

    patches = err(lambda x, k: _conv.extract_patches(x, k, "SAME", (1, 1), (1, 1), None))
    ours = err(in_tiles) / patches
    monkeypatch.setattr(_winograd, form, getattr(_winograd, form).__wrapped__)  # traced again, and not kept
    monkeypatch.setattr(_winograd, "TRANSFORMS", make_transforms((0, 1, -1, 2, -2)))
    usual = err(in_tiles) / patches
    print(f"errors of patches {patches:.2e}; ours {ours:.2f}, the usual points {usual:.2f} times as large")
    assert ours < limit < usual


def convolve(x, kernel):
    return convolution(x, kernel, (1, 1), "SAME", dimension_numbers=ORDER)


@pytest.fixture(params=[SQUARE, COLUMN], ids=str)
def tile(request, monkeypatch):
    """Returns the tiles in which all convolutions of two examples are."""
    limits = {"THINNEST": 0, "CHANNELS": 0} if request.param == SQUARE else {"FEWEST": 0}
    for name, limit in ({"TILES": 0} | limits).items():
        monkeypatch.setattr(_conv, name, limit)
    return request.param


@pytest.mark.usefixtures("tile")
def test_clients_with_kernels_of_their_own_can_be_stacked():
    x, kernel = make_images()
    xs, kernels = np.stack([x, 2 * x, x - 1]), np.stack([kernel, kernel + 1, -kernel])
    for one in zip(jax.vmap(convolve)(xs, kernels), xs, kernels, strict=True):
        agree(one[0], convolve_exactly(*one[1:], PADDINGS["SAME"]))
    agree(jax.vmap(convolve, (0, None))(xs, kernel)[1], convolve_exactly(xs[1], kernel, PADDINGS["SAME"]))


def test_blocks_of_examples_change_nothing(tile, monkeypatch):
    x, kernel = make_images(6)
    weight = np.random.default_rng(5).normal(size=(6, 8, 8, 5)).astype(np.float32)
    of_example = _winograd.measure_tiles((6, 8, 8, 5), kernel.shape, 4, tile)
    assert of_example == {SQUARE: 4 * 36, COLUMN: 16 * 18}[tile] * 3 * 4

    def total(x, kernel):
        return (weight * convolve(x, kernel)).sum()

    whole = jax.value_and_grad(total, (0, 1))(x, kernel)
    for cores in ("SEVERAL_CORES", "ONE_CORE"):
        monkeypatch.setattr(_conv, cores, (6 * of_example - 1, 3 * of_example))
    assert "length=2" in str(jax.make_jaxpr(total)(x, kernel))
    blocks = jax.value_and_grad(total, (0, 1))(x, kernel)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(blocks), strict=True):
        agree(a, b)


@pytest.mark.usefixtures("tile")
def test_a_gradient_has_the_gradient_of_patches(monkeypatch):
    x, kernel = make_images()

    def norm(x, kernel):
        gradient = jax.grad(lambda k: jnp.square(convolve(x, k)).sum())(kernel)
        return jnp.square(gradient).sum()

    ours = jax.grad(norm, (0, 1))(x, kernel)
    monkeypatch.setattr(_conv, "choose_tile", lambda *_: None)
    for mine, true in zip(ours, jax.grad(norm, (0, 1))(x, kernel), strict=True):
        agree(mine, true)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, SQUARE),
        ({"channels": 16}, SQUARE),
        ({"channels": 15, "out": 64}, None),
        ({"channels": 16, "out": 16}, COLUMN),
        ({"channels": 4, "out": 8}, COLUMN),
        ({"channels": 4, "out": 9}, None),
        ({"channels": 40, "out": 4}, COLUMN),
        ({"channels": 3, "out": 6}, None),
        ({"examples": 4, "side": 8}, SQUARE),
        ({"examples": 3, "side": 8}, None),
        ({"examples": 1}, None),
        ({"side": 7}, SQUARE),
        ({"side": 13}, SQUARE),
        ({"side": 6}, None),
        ({"side": 6, "channels": 16, "out": 16}, COLUMN),
        ({"side": 5, "channels": 16, "out": 16}, None),
        ({"kernel": 5}, None),
        ({"kernel": 5, "channels": 16, "out": 16}, None),
        ({"dtype": jnp.bfloat16}, None),
        ({"backend": "gpu"}, None),
    ],
    ids=str,
)
def test_which_convolutions_are_in_tiles(change, expected, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: change.get("backend", "cpu"))
    side, channels, out = change.get("side", 16), change.get("channels", 32), change.get("out", 32)
    shape = (change.get("examples", 64), side, side)
    kernel = (change.get("kernel", 3),) * 2 + (channels, out)
    lhs = jax.ShapeDtypeStruct((*shape, channels), change.get("dtype", jnp.float32))
    assert _conv.choose_tile(lhs, (*shape, out), kernel) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"window_strides": (2, 2)}, False),
        ({"rhs_dilation": (1, 2)}, False),
        ({"feature_group_count": 2}, False),
    ],
    ids=str,
)
def test_strides_dilation_and_groups_are_not_in_tiles(options, expected):
    x, kernel = jnp.zeros((8, 16, 16, 32)), jnp.zeros((3, 3, 32 // options.get("feature_group_count", 1), 32))
    called = functools.partial(convolution, **({"window_strides": (1, 1), "padding": "SAME"} | options))
    products = str(jax.make_jaxpr(called)(x, kernel)).count("dot_general[")
    assert (products == _winograd.SEEN) is expected


def test_the_bill_of_an_example_is_that_of_the_direct_convolution():
    x = jnp.zeros((1, 32, 32, 32))
    task = Task(models.CNN(classes=2, channels=(32,), hidden=(), pooled=0))
    assert task.flops(x) == pytest.approx(2 * 30 * 30 * 32 * (9 * 32 + 2), rel=0.01)
