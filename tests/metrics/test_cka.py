"""CKA against definitions written out over pairs of rows."""

import itertools

import numpy as np
import pytest

from fedjax_sel.metrics.cka import check_examples, hsic, kernel_cka, linear_cka, minibatch_cka, minibatch_kernel_cka

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 7)), RNG.normal(size=(30, 4))
Y[:, :3] += X[:, :3]


def by_definition(x, y):
    """tr(KHLH) / sqrt(tr(KHKH) tr(LHLH))."""
    n = len(x)
    centre = np.eye(n) - 1 / n
    k, other = x @ x.T, y @ y.T

    def trace(a, b):
        return np.trace(a @ centre @ b @ centre)

    return trace(k, other) / np.sqrt(trace(k, k) * trace(other, other))


@pytest.mark.parametrize(("x", "y"), [(X, Y), (X[:5], Y[:5]), (RNG.normal(size=(6, 50)), RNG.normal(size=(6, 3)))])
def test_linear_cka_is_its_definition(x, y):
    np.testing.assert_allclose(linear_cka(x, y), by_definition(x, y))


def test_rotations_scalings_and_translations_change_nothing_other_maps_do():
    rotation, _ = np.linalg.qr(RNG.normal(size=(7, 7)))
    np.testing.assert_allclose(linear_cka(X @ rotation * 3 + 5, Y), linear_cka(X, Y))
    np.testing.assert_allclose(linear_cka(X, X @ rotation), 1)
    assert abs(linear_cka(X @ np.diag(np.arange(1, 8.0)), Y) - linear_cka(X, Y)) > 1e-3
    assert np.isnan(linear_cka(X, np.ones((30, 2))))


def kernels(features):
    """Products of centred rows."""
    return np.array([(x - x.mean(0)) @ (x - x.mean(0)).T for x in features])


FEATURES = [X, Y, X[:, :2] * 5 + 1, RNG.normal(size=(30, 90))]


@pytest.mark.parametrize("n", [4, 7])
def test_cka_of_a_constant_representation_is_nan(n):
    """Of fewer and of more examples than columns; 0.1 has no exact mean."""
    x, y = np.full((n, 5), 0.1), np.random.default_rng(0).normal(size=(n, 5))
    assert np.isnan([linear_cka(x, y), linear_cka(y, x), linear_cka(x, x)]).all()
    assert linear_cka(y, y) == pytest.approx(1)


def test_cka_from_kernels_is_linear_cka_of_every_pair():
    got = kernel_cka(kernels(FEATURES))
    np.testing.assert_allclose(got, [[linear_cka(x, y) for y in FEATURES] for x in FEATURES])
    np.testing.assert_allclose(np.diag(got), 1)
    np.testing.assert_allclose(kernel_cka(kernels(FEATURES).astype(np.float32)), got, rtol=1e-4)


def test_cka_from_kernels_pairs_each_with_each_of_the_others():
    got = kernel_cka(kernels(FEATURES[:3]), kernels(FEATURES[2:]))
    assert got.shape == (3, 2)
    np.testing.assert_allclose(got, [[linear_cka(x, y) for y in FEATURES[2:]] for x in FEATURES[:3]])


def test_cka_from_kernels_is_nan_only_where_one_is_constant():
    features = [X, np.ones((30, 3)), Y]
    got = kernel_cka(kernels(features))
    np.testing.assert_allclose(got, [[linear_cka(x, y) for y in features] for x in features])
    np.testing.assert_array_equal(np.isnan(got), [[False, True, False], [True, True, True], [False, True, False]])
    np.testing.assert_array_equal(np.isnan(kernel_cka(kernels([X]), kernels(features))), [[False, True, False]])


def test_hsic_is_the_mean_over_all_tuples_of_different_rows():
    """E[k_ij l_ij] + E[k_ij l_uv] - 2 E[k_ij l_iu] over different i, j, u, v."""
    k, other = X[:7] @ X[:7].T, Y[:7] @ Y[:7].T
    four = list(itertools.permutations(range(7), 4))
    pairs = np.mean([k[i, j] * other[i, j] for i, j, _, _ in four])
    apart = np.mean([k[i, j] * other[u, v] for i, j, u, v in four])
    chain = np.mean([k[i, j] * other[i, u] for i, j, u, _ in four])
    np.testing.assert_allclose(hsic(k, other), pairs + apart - 2 * chain)


def test_minibatches_estimate_the_same_whatever_their_size():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 5))
    y = x[:, :3] + rng.normal(size=(4000, 3))
    whole = linear_cka(x, y)
    for size in (10, 50):
        parts = [(x[i : i + size], y[i : i + size]) for i in range(0, 4000, size)]
        assert abs(minibatch_cka(parts) - whole) < 0.02
        biased = np.mean([linear_cka(*part) for part in parts])
        assert biased - whole > (0.1 if size == 10 else 0.02), "the plain one is biased upwards"
    independent = [(rng.normal(size=(10, 5)), rng.normal(size=(10, 3))) for _ in range(400)]
    assert abs(minibatch_cka(independent)) < 0.05


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_has_no_similarity_whatever_its_digits_are(dtype, seed):
    """As behind a dead layer: rows equal to a vector of which no power of two is a divisor."""
    rng = np.random.default_rng(seed)
    constant = np.tile(rng.normal(size=3), (40, 1)).astype(dtype)
    x = rng.normal(size=(40, 5)).astype(dtype)
    batches = [(x[i : i + 8], constant[i : i + 8]) for i in range(0, 40, 8)]
    assert np.isnan(minibatch_cka(batches))
    products = np.stack([np.stack([a @ a.T for a in part]) for part in zip(*batches, strict=True)])
    np.testing.assert_array_equal(np.isnan(minibatch_kernel_cka(products)), [[False, True], [True, True]])


def test_what_varies_by_a_hundredth_is_no_constant():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)).astype(np.float32)
    batches = [(1 + 0.01 * x[i : i + 20], x[i : i + 20]) for i in range(0, 200, 20)]
    assert minibatch_cka(batches) == pytest.approx(1, abs=0.01)
    products = np.stack([np.stack([a @ a.T for a in part]) for part in zip(*batches, strict=True)])
    np.testing.assert_allclose(minibatch_kernel_cka(products), np.ones((2, 2)), atol=0.01)


def test_bad_input():
    with pytest.raises(ValueError, match=r"shapes \(30, 7\) and \(29, 4\); needed are \[n, p\] and \[n, q\]"):
        check_examples(X, Y[1:])
    with pytest.raises(ValueError, match="a batch of 3 examples; an unbiased estimate needs at least 4"):
        minibatch_cka([(X[:3], Y[:3])])
