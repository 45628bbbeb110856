"""Orthogonal matching pursuit: hand-checked numbers, scikit-learn without a ridge, a loop in NumPy with one."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import orthogonal_mp

from fedjax_sel.kernels.matching_pursuit import pursue

G = jnp.array([[1.0, 0], [0, 1], [1, 1], [-1, 2]])
B = jnp.array([1.0, 4.0])


def loop(g, b, steps, ridge):
    chosen, w = [], np.zeros(0)
    for _ in range(steps):
        score = np.abs(g @ (b - g[chosen].T @ w))
        score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
        own = g[chosen]
        w = np.linalg.solve(own @ own.T + ridge * np.eye(len(chosen)), own @ b)
    return chosen, w


def test_two_steps_by_hand():
    """The products with (1, 4) are 1, 4, 5, 7; 7 / (5 + 1/2) = 1.272727; then 5.5 and 2.5 on the diagonal, 1 beside."""
    everyone = jnp.ones(4, bool)
    weight, chosen = pursue(G, B, everyone, 1, ridge=0.5)
    np.testing.assert_allclose(weight, [0, 0, 0, 1.272727], atol=1e-5)
    weight, chosen = pursue(G, B, everyone, 2, ridge=0.5)
    assert chosen.tolist() == [False, False, True, True]
    np.testing.assert_allclose(weight, [0, 0, 1.607843, 0.980392], atol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(B - G.T @ weight), 0.569978, atol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_it_is_the_loop_and_without_a_ridge_that_of_scikit_learn(ridge):
    rng = np.random.default_rng(1)
    for steps in (1, 4, 7):
        g, b, allowed = rng.normal(size=(30, 9)), rng.normal(size=9), rng.random(30) < 0.7
        weight, chosen = map(np.asarray, pursue(*map(jnp.float32, (g, b)), jnp.asarray(allowed), steps, ridge, 0.0))
        own = np.flatnonzero(allowed)
        picked, w = loop(g[own], b, steps, ridge)
        assert sorted(own[picked]) == np.flatnonzero(chosen).tolist()
        np.testing.assert_allclose(weight[own[picked]], w, rtol=1e-3, atol=1e-4)
        if ridge == 0:
            norm = np.linalg.norm(g[own], axis=1)
            unit = orthogonal_mp((g[own] / norm[:, None]).T, b, n_nonzero_coefs=1) / norm
            same = pursue(*map(jnp.float32, (g[own] / norm[:, None], b)), jnp.ones(len(own), bool), 1)[0]
            np.testing.assert_allclose(same / norm, unit, rtol=1e-4, atol=1e-5)
            unit = orthogonal_mp((g[own] / norm[:, None]).T, b, n_nonzero_coefs=steps)
            same = pursue(*map(jnp.float32, (g[own] / norm[:, None], b)), jnp.ones(len(own), bool), steps)[0]
            np.testing.assert_allclose(same, unit, rtol=1e-3, atol=1e-4)


def test_it_ends_where_the_target_is_reached_where_nothing_is_left_and_skips_what_adds_nothing():
    g = jnp.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    weight, chosen = pursue(g, jnp.array([4.0, 0.0]), jnp.ones(3, bool), 3)
    assert (weight.tolist(), chosen.tolist()) == ([2, 0, 0], [True, False, False])
    weight, chosen = pursue(g, jnp.array([4.0, 3.0]), jnp.ones(3, bool), 3, 0.0, 0.0)
    assert (weight.tolist(), chosen.tolist()) == ([2, 0, 3], [True, False, True])
    weight, chosen = pursue(g, jnp.array([4.0, 3.0]), jnp.zeros(3, bool), 2)
    assert not chosen.any()
    assert not weight.any()


@pytest.mark.parametrize(("spread", "steps"), [(0.1, 60), (0.03, 24), (0.01, 12)])
def test_many_alike_vectors_are_solved_in_float32_as_in_float64(spread, steps):
    """Gradients of the output layer for a class that the model has never seen: long, and nearly the same."""
    rng, n = np.random.default_rng(0), 120
    h = np.maximum(rng.normal(size=64) + 0.5, 0)
    h = 30 * h / np.linalg.norm(h) * (1 + spread * rng.normal(size=(n, 64)))
    z = 4 * rng.normal(size=10) + spread * 4 * rng.normal(size=(n, 10))
    z[:, 0] = -8
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[:, 0] -= 1
    g = (p[:, :, None] * np.c_[np.ones(n), h][:, None, :]).reshape(n, -1).astype(np.float32)
    b = g.sum(0)
    weight, chosen = pursue(jnp.asarray(g), jnp.asarray(b), jnp.ones(n, bool), steps, 0.5, 0.0)
    weight, chosen = np.asarray(weight, np.float64), np.asarray(chosen)
    own = g[chosen].astype(np.float64)
    best = np.linalg.solve(own @ own.T + 0.5 * np.eye(chosen.sum()), own @ b)  # of the same set
    assert chosen.sum() == steps
    np.testing.assert_allclose(weight[chosen], best, atol=0.1, rtol=0.05)  # float32 has 2e-7 of 1e5 in the products
    assert (weight[chosen] > 0).all()
