"""Affine maps, against sums in double precision."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel.models._dense import BYTES, EXAMPLES, Dense, multiply
from fedjax_sel.models.conv_dropout import ConvDropout

LARGE, WIDER, NARROWER = (BYTES // 4 // 64, 64), (7, 12), (12, 7)
AFFINE = (((1,), (0,)), ((), ()))


def make_factors(examples, shape=LARGE, runs=()):
    rng = np.random.default_rng(3)
    return [
        rng.normal(size=(*runs, *s)).astype(np.float32) for s in ((examples, shape[0]), shape, (examples, shape[1]))
    ]


def both(multiply):
    def run(x, kernel, given):
        out, back = jax.vjp(lambda x, kernel: multiply(x, kernel, AFFINE), x, kernel)
        return out, *back(given)

    return run


def count_products(examples, shape=LARGE):
    x, kernel, given = make_factors(examples, shape)
    return str(jax.make_jaxpr(both(multiply))(x, kernel, given)).count("dot_general[")


@pytest.mark.parametrize("runs", [(), (3,)], ids=["alone", "stacked"])
@pytest.mark.parametrize("shape", [LARGE, WIDER, NARROWER])
@pytest.mark.parametrize("examples", [0, 1, 2, EXAMPLES, EXAMPLES + 1])
def test_outputs_and_gradients_are_those_of_the_product(examples, shape, runs):
    x, kernel, given = make_factors(examples, shape, runs)
    run = both(multiply)
    out, of_x, of_kernel = jax.jit(jax.vmap(run) if runs else run)(x, kernel, given)
    x, kernel, given = (a.astype(np.float64) for a in (x, kernel, given))
    np.testing.assert_allclose(out, x @ kernel, rtol=0, atol=1e-5 * np.abs(x @ kernel).max(initial=0))
    exact = given @ kernel.swapaxes(-1, -2)
    np.testing.assert_allclose(of_x, exact, rtol=0, atol=1e-5 * np.abs(exact).max(initial=0))
    exact = x.swapaxes(-1, -2) @ given
    np.testing.assert_allclose(of_kernel, exact, rtol=0, atol=1e-5 * np.abs(exact).max(initial=0))


@pytest.mark.parametrize("shape", [LARGE, WIDER, NARROWER])
def test_it_can_be_differentiated_forwards_and_twice(shape):
    x, kernel, _ = make_factors(2, shape)

    def bend(multiply):
        def along(kernel):
            return jax.grad(lambda kernel: (multiply(x, kernel, AFFINE) ** 3).sum())(kernel)

        moved = jax.jvp(lambda x, kernel: multiply(x, kernel, AFFINE), (x, kernel), (2 * x, kernel + 1))
        return moved, jax.jvp(along, (kernel,), (kernel,))

    ours, theirs = jax.jit(bend, static_argnums=0)(multiply), jax.jit(bend, static_argnums=0)(lax.dot_general)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max()), ours, theirs)


@pytest.mark.parametrize("shape", [LARGE, WIDER, NARROWER])
@pytest.mark.parametrize("moving", [0, 1], ids=["inputs", "kernel"])
def test_one_factor_alone_can_have_a_gradient(shape, moving):
    factors = make_factors(2, shape)[:2]

    def gradient(multiply):
        return jax.grad(lambda *factors: (multiply(*factors, AFFINE) ** 2).sum(), moving)(*factors)

    exact = gradient(lax.dot_general)
    np.testing.assert_allclose(gradient(multiply), exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("shape", [WIDER, NARROWER])
def test_the_narrower_factor_of_a_kernels_gradient_is_transposed_in_memory(shape):
    jaxpr = jax.make_jaxpr(both(multiply))(*make_factors(5, shape))
    kept = [
        equation.outvars[0].aval.shape for equation in jaxpr.eqns if equation.primitive.name == "optimization_barrier"
    ]
    assert (7, 5) in kept
    assert (12, 5) not in kept


def test_only_few_examples_and_large_kernels_are_summed():
    assert [count_products(examples) for examples in (1, 2, EXAMPLES, EXAMPLES + 1)] == [3, 2, 2, 3]
    assert count_products(2, (LARGE[0] - 1, LARGE[1])) == 3


def test_other_products_are_left_as_they_are():
    x, kernel = jnp.ones((2, 3, LARGE[0])), jnp.ones(LARGE)
    how = (((2,), (0,)), ((), ()))
    np.testing.assert_array_equal(multiply(x, kernel, how), lax.dot_general(x, kernel, how))


def test_the_gradient_of_a_kernel_takes_no_memory_of_its_own():
    x, kernel, _ = make_factors(10, (12544, 128))

    def memory(dot_general):
        def move(kernel, x):
            of_kernel = jax.grad(lambda kernel: (dot_general(x, kernel, AFFINE) ** 2).sum())(kernel)
            return kernel - 0.1 * of_kernel

        return jax.jit(move, donate_argnums=0).lower(kernel, x).compile().memory_analysis().temp_size_in_bytes

    assert memory(lax.dot_general) >= kernel.nbytes > 10 * memory(multiply)


def test_the_network_trains_as_with_products(monkeypatch):
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype(np.float32)
    model, labels = ConvDropout(), np.arange(4)
    variables = model.init(jax.random.key(0), images)

    def gradient():
        def loss(variables):
            logits = model.apply(variables, images, train=True, rngs={"dropout": jax.random.key(1)})
            return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 10)).sum()

        return jax.jit(jax.grad(loss))(variables)

    assert sorted(variables["params"]) == ["Conv_0", "Conv_1", "Dense_0", "Dense_1"]
    ours = gradient()
    monkeypatch.setattr("fedjax_sel.models.conv_dropout.Dense", nn.Dense)
    theirs = gradient()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max()), ours, theirs)


def test_kernel_gradients_of_half_precision_are_added_up_in_32_bits():
    """Against float32 of the same rounded numbers: one rounding of the result, not one for each example."""
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(np.abs(rng.normal(size=s)), jnp.bfloat16) for s in ((16, 1024), (1024, 1024)))

    def gradient(x, w):
        dense = Dense(1024, use_bias=False, dtype=x.dtype, param_dtype=x.dtype)
        loss = lambda w: (dense.apply({"params": {"kernel": w}}, x).astype(jnp.float32) ** 2).sum()  # noqa: E731
        return jax.jit(jax.grad(loss))(w)

    outputs = (x.astype(jnp.float32) @ w.astype(jnp.float32)).astype(jnp.bfloat16).astype(jnp.float32)
    exact = x.astype(jnp.float32).T @ (2 * outputs)
    np.testing.assert_allclose(gradient(x, w).astype(jnp.float32), exact, rtol=0.0081)
