"""Soft labels, signals on public examples, sketches of updates and label counts, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Federation, Task, dataset, partition, signals
from fedjax_sel.protocols import Host
from fedjax_sel.types import Batch, Update


def softmax(z):
    e = np.exp(np.asarray(z, float) - np.max(z, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_soft_labels_are_the_probabilities_and_a_client_sends_one_number_a_class():
    z = np.random.default_rng(0).normal(0, 3, (7, 4)).astype(np.float32)
    got = signals.SoftLabels().measure(jnp.asarray(z), jnp.zeros(7, int))
    np.testing.assert_allclose(got, softmax(z), rtol=1e-5)
    assert signals.SoftLabels().count_up(4) == signals.OnPublic().count_up(4) == 4
    assert signals.OnPublic(signals.Entropy()).count_up(4) == 1


@pytest.mark.parametrize("signal", [signals.SoftLabels(), signals.Entropy(0.5)])
def test_a_signal_on_public_examples_is_its_mean_over_them(signal):
    rng = np.random.default_rng(1)
    x, w, b = rng.normal(size=(9, 2)).astype(np.float32), rng.normal(size=(3, 2)), rng.normal(size=3)
    task = Task(fs.models.LogisticRegression(classes=3))
    variables = {"params": {"kernel": jnp.asarray(w, jnp.float32), "bias": jnp.asarray(b, jnp.float32)}}
    mask = np.arange(9) < 6
    batch = Batch(jnp.asarray(x), jnp.full(9, 2), jnp.asarray(mask))
    got = signals.OnPublic(signal).measure(task, variables, batch, jax.random.key(0))
    p = softmax(x[mask] @ w.T + b)
    if isinstance(signal, signals.Entropy):
        p = softmax((x[mask] @ w.T + b) / 0.5)
        p = -(p * np.log(p)).sum(1)
    np.testing.assert_allclose(got, p.mean(0), rtol=1e-4)


def test_a_signal_on_public_examples_has_a_name_of_its_own():
    wanted = fs.Signals(trained=[signals.SoftLabels(), signals.OnPublic(signals.SoftLabels())])
    assert list(wanted.trained) == ["soft_labels", "public_soft_labels"]
    assert signals.OnPublic.public


def test_a_signal_that_looks_at_labels_sees_zeros_on_public_examples():
    task = Task(fs.models.LogisticRegression(classes=2))
    variables = {"params": {"kernel": jnp.zeros((2, 1)), "bias": jnp.array([1.0, 0.0])}}
    batch = Batch(jnp.zeros((3, 1)), jnp.ones(3, int), jnp.ones(3, bool))
    assert float(signals.OnPublic(signals.Correct()).measure(task, variables, batch, jax.random.key(0))) == 1.0


def update_of(tree):
    one = jnp.ones((), int)
    return Update(jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree), one, one, one, jnp.ones(()), jnp.ones(()))


def mix(place):
    """The finalizer of MurmurHash3, on Python's whole numbers."""
    h = place & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@pytest.mark.parametrize("k", [1, 5, 64])
def test_a_sketch_is_the_signed_sum_of_what_hashes_to_each_place(k):
    rng = np.random.default_rng(2)
    tree = {"a": rng.normal(size=(4, 3)), "b": rng.normal(size=5), "c": rng.normal(size=(2, 2, 2))}
    flat = np.concatenate([leaf.ravel() for leaf in tree.values()])
    expected = np.zeros(k)
    for i, value in enumerate(flat):
        h = mix(i + 1)
        expected[(h >> 1) % k] += value if h & 1 else -value
    got = signals.Sketch(k).measure(update_of(tree), None)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_inner_products_of_sketches_are_those_of_the_updates_but_for_noise():
    """Their variance is at most (‖a‖² ‖b‖² + <a, b>²) / k; the hash is fixed, so the updates are drawn."""
    rng, k = np.random.default_rng(3), 512
    errors = []
    for _ in range(40):
        a, b = rng.normal(size=(2, 3000)) / np.sqrt(3000)
        b = 0.6 * a + 0.8 * b
        sketches = [np.asarray(signals.Sketch(k).measure(update_of([v]), None), float) for v in (a, b)]
        errors.append(sketches[0] @ sketches[1] - a @ b)
    assert np.sqrt(np.mean(np.square(errors))) < 1.5 * np.sqrt(1.5 / k)
    assert abs(np.mean(errors)) < 4 * np.sqrt(1.5 / k / 40)


def test_label_counts_are_those_of_each_clients_training_examples():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 4, 300)
    data = dataset("noise", rng.normal(size=(300, 2)).astype(np.float32), y, test=0.1)
    federation = Federation(data, partition.Dirichlet(clients=8, alpha=0.3, min_examples=2), holdout=0.2).draw(1)
    federation = jax.tree.map(jnp.asarray, federation)
    got = np.asarray(signals.LabelCounts().measure(jax.random.key(0), Host(None, federation, None)))
    assert got.shape == (8, 4)
    np.testing.assert_array_equal(got.sum(1), federation.num_examples)
    for i in range(8):
        index, valid = federation.examples_of(i)
        mine = np.asarray(federation.y)[np.asarray(index)[np.asarray(valid)]]
        np.testing.assert_array_equal(got[i], [(mine == c).sum() for c in range(4)])
    assert signals.LabelCounts().count_up(4) == 4
