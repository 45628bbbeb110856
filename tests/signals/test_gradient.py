"""Gradients, their noise and the output layer's change, against NumPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Task, signals
from fedjax_sel.types import Batch, Update

RNG = np.random.default_rng(0)
X, Y, W = RNG.normal(size=(13, 2)).astype(np.float32), RNG.integers(0, 3, 13), RNG.normal(size=(3, 2))
TASK = Task(fs.models.LogisticRegression(classes=3))
VARIABLES = {"params": {"kernel": jnp.asarray(W, jnp.float32), "bias": jnp.zeros(3)}}


def gradient(rows):
    """Of the mean cross-entropy: (p - y) xᵀ and p - y."""
    z = X[rows] @ W.T
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True) - np.eye(3)[Y[rows]]
    return np.concatenate([p.mean(0), (p[:, :, None] * X[rows][:, None]).mean(0).ravel()])  # bias before kernel


def batch(count):
    return Batch(jnp.asarray(X), jnp.asarray(Y), jnp.arange(13) < count)


def measure(signal, count, key=0):
    return np.asarray(signal.measure(TASK, VARIABLES, batch(count), jax.random.key(key)))


def test_the_gradient_is_that_of_the_mean_loss_and_its_sketch_is_the_sketch_of_it():
    np.testing.assert_allclose(measure(signals.Gradient(), 11), gradient(np.arange(11)), rtol=1e-4, atol=1e-6)
    tree = TASK.gradient(VARIABLES, batch(11))
    one = jnp.ones((), int)
    sketched = signals.Sketch(4).measure(Update(tree, one, one, one, jnp.ones(()), jnp.ones(())), None)
    np.testing.assert_allclose(measure(signals.Gradient(4), 11), sketched, rtol=1e-6)
    norm = np.linalg.norm(measure(signals.Gradient(), 9))
    np.testing.assert_allclose(norm, measure(signals.GradientNorm(), 9), rtol=1e-5)


@pytest.mark.parametrize("around", ["mean", "zero"])
def test_the_noise_of_minibatches_of_one_is_that_of_examples(around):
    whole = gradient(np.arange(11)) * (around == "mean")
    wanted = np.sqrt(np.mean([((gradient([i]) - whole) ** 2).sum() for i in range(11)]))
    assert measure(signals.GradientNoise(1, around), 11) == pytest.approx(wanted, rel=1e-4)


def test_the_noise_of_a_minibatch_of_all_examples_is_0():
    assert measure(signals.GradientNoise(13), 13) == pytest.approx(0, abs=1e-5)
    assert measure(signals.GradientNoise(64), 11) == pytest.approx(0, abs=1e-5)
    norm = np.linalg.norm(gradient(np.arange(11)))
    assert measure(signals.GradientNoise(64, "zero"), 11) == pytest.approx(norm, rel=1e-4)


def test_the_noise_is_that_of_minibatches_drawn_without_replacement():
    """Expected square: that of one example, times (minibatches - 1) / (examples - 1); the last may be smaller."""
    keys = jax.vmap(jax.random.key)(jnp.arange(1000))
    for n, size in ((12, 3), (11, 10)):
        one = np.mean([((gradient([i]) - gradient(np.arange(n))) ** 2).sum() for i in range(n)])
        signal, own = signals.GradientNoise(size), batch(n)
        noise = jax.jit(jax.vmap(lambda key, s=signal, own=own: s.measure(TASK, VARIABLES, own, key)))(keys)
        assert np.mean(np.square(noise)) == pytest.approx(one * (-(-n // size) - 1) / (n - 1), rel=0.1)


def update(tree):
    one = jnp.ones((), int)
    tree = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    return Update({"params": tree}, one, one, one, jnp.ones(()), jnp.ones(()))


LAYERS = {f"Dense_{i}": {"kernel": RNG.normal(size=(4, 3)), "bias": np.full(3, i)} for i in (0, 2, 10)}


def test_the_output_layer_is_the_last_dense_one_by_number():
    assert signals.OutputUpdate().measure(update(LAYERS), None).tolist() == [10, 10, 10]
    assert signals.OutputUpdate(layer="Dense_2").measure(update(LAYERS), None).tolist() == [2, 2, 2]
    weights = signals.OutputUpdate(part="weights").measure(update(LAYERS), None)
    np.testing.assert_allclose(weights, LAYERS["Dense_10"]["kernel"].mean(0), rtol=1e-5)
    assert signals.OutputUpdate(part="layer").measure(update(LAYERS), None).shape == (4 * 3 + 3,)
    head = {"hidden": LAYERS["Dense_0"], "head": LAYERS["Dense_2"]}
    assert signals.OutputUpdate().measure(update(head), None).tolist() == [2, 2, 2]


def test_an_output_layer_that_is_not_found_is_an_error_that_names_the_layers():
    with pytest.raises(ValueError, match=r"layer is None.*must be one of block/out, hidden"):
        signals.OutputUpdate().measure(update({"block": {"out": LAYERS["Dense_0"]}, "hidden": LAYERS["Dense_2"]}), None)
    with pytest.raises(ValueError, match=r"layer is 'head'.*Dense_0, Dense_10, Dense_2"):
        signals.OutputUpdate(layer="head").measure(update(LAYERS), None)


def test_a_sketch_of_nothing_left_out_is_the_update():
    one = {"b": np.ones(2), "a": np.arange(3)}
    assert signals.Sketch(k=None).measure(update(one), None).tolist() == [0, 1, 2, 1, 1]


def test_prices():
    assert signals.Gradient().cost.models_up == 1
    assert signals.Gradient(7).cost.up == 7
    assert signals.GradientNoise().cost.up == 1
    assert signals.UpdateNorm(sends=2, receives=3).cost.down == 3


def of_layer(delta, part="weights"):
    return signals.OutputUpdate(part).measure(Update(delta, *(jnp.int32(1),) * 3, jnp.ones(()), jnp.ones(())), None)


@pytest.mark.parametrize("features", [5, 3])
def test_the_change_of_the_weights_into_a_class_is_that_classs_whatever_axis_the_classes_are_on(features):
    """Also where there are as many features as classes."""
    kernel, bias = jax.random.normal(jax.random.key(0), (3, features)), jnp.zeros(3)
    expected = np.asarray(kernel).mean(1)
    np.testing.assert_allclose(of_layer({"params": {"kernel": kernel, "bias": bias}}), expected, rtol=1e-6)  # logistic
    dense = {"params": {"Dense_0": {"kernel": kernel.T, "bias": bias}}}
    np.testing.assert_allclose(of_layer(dense), expected, rtol=1e-6)


def test_a_head_is_the_output_layer_beside_hidden_layers_that_have_no_name():
    hidden = {"kernel": jnp.ones((4, 7)), "bias": jnp.zeros(7)}
    head = {"kernel": jnp.ones((7, 3)), "bias": jnp.arange(3.0)}
    np.testing.assert_array_equal(of_layer({"params": {"Dense_0": hidden, "head": head}}, "bias"), [0, 1, 2])


def test_the_output_layer_is_the_one_whose_outputs_no_other_layer_takes():
    """In `Dense(3)(relu(Dense(8)(x)))` Python makes the outer layer first."""

    class Inside(nn.Module):
        @nn.compact
        def __call__(self, x, *, train=False):
            return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))

    variables = Task(Inside()).init(jax.random.key(0), X)
    assert {name: leaf["bias"].shape for name, leaf in variables["params"].items()} == {
        "Dense_0": (3,),
        "Dense_1": (8,),
    }
    assert signals.OutputUpdate().measure(update(variables["params"]), None).shape == (3,)


def test_no_personal_part_is_in_the_noise_of_gradients():
    task = Task(fs.models.MLP(3, hidden=(4,)), personal=("Dense_1",))
    variables = task.init(jax.random.key(0), jnp.asarray(X))
    noise = signals.GradientNoise(64, "zero").measure(task, variables, batch(11), jax.random.key(0))
    shared = signals.Gradient().measure(task, variables, batch(11), jax.random.key(0))
    assert float(noise) == pytest.approx(float(jnp.linalg.norm(shared)), rel=1e-5)


def test_no_personal_part_is_in_a_gradient_that_is_sent():
    task = Task(fs.models.MLP(3, hidden=(4,)), personal=("Dense_1",))
    variables = task.init(jax.random.key(0), X)
    sent = signals.Gradient().measure(task, variables, batch(13), jax.random.key(0))
    whole = task.gradient(variables, batch(13))["params"]
    parts = [np.ravel(leaf) for leaf in jax.tree.leaves(whole["Dense_0"])]
    lacking = sum(leaf.size for leaf in jax.tree.leaves(whole["Dense_1"]))
    np.testing.assert_allclose(sent, np.concatenate([*parts, np.zeros(lacking)]), rtol=1e-6)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(whole["Dense_1"]))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_updates_and_gradients_of_16_bits_are_added_up_in_32(dtype):
    rng = np.random.default_rng(1)
    one, other = ({"w": jnp.asarray(100 * rng.normal(size=3000), dtype)} for _ in range(2))
    wide, along = (np.asarray(tree["w"], np.float64) for tree in (one, other))
    found = signals.Projection(norm_over="whole", cosine=True).measure(update_of(one), other)
    cosine = wide @ along / np.linalg.norm(wide) / np.linalg.norm(along)
    np.testing.assert_allclose(found, cosine, atol=1e-5)
    exact = signals.Sketch(4).measure(update_of({"w": jnp.asarray(wide, jnp.float32)}), None)
    np.testing.assert_allclose(signals.Sketch(4).measure(update_of(one), None), exact, rtol=1e-5)


def update_of(delta):
    one = jnp.ones((), int)
    return Update(delta, one, one, one, jnp.ones(()), jnp.ones(()))
