"""KAKURENBO against its rule, example by example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.data_selection.kakurenbo import Kakurenbo
from fedjax_sel.types import Turn


def turn(round, rounds=10):
    return Turn(jnp.int32(round), jnp.int32(rounds), jnp.zeros(12, int), (), None, {})


def hide(loss, correct, confidence, n, limit, tau):
    """As the authors' code: the lowest losses, one after the other, but those that are moved back."""
    hidden = np.zeros(len(loss), bool)
    for i in np.argsort(loss[:n])[: int(limit * n + 1e-9)]:
        hidden[i] = correct[i] and confidence[i] >= tau
    return hidden


@pytest.mark.parametrize("rescale", ["hidden", "scheduled", "none"])
@pytest.mark.parametrize("fraction", [0.9999, 0.99999999])
@pytest.mark.parametrize("n", [1, 5, 12])
def test_a_client_that_has_learnt_everything_keeps_an_example(rescale, fraction, n):
    samples = Kakurenbo(fraction=fraction, rescale=rescale)
    sure = {"loss": jnp.arange(12.0), "correct": jnp.ones(12), "confidence": jnp.ones(12)}
    weight = np.asarray(samples.select(jax.random.key(0), (), jnp.arange(12) < n, turn=turn(0), **sure))
    assert weight.nonzero()[0].tolist() == [n - 1]
    if rescale == "hidden":
        np.testing.assert_allclose(weight[n - 1], n, rtol=1e-6)
    assert np.isfinite(weight).all()


@pytest.mark.parametrize(("round", "factor"), [(0, 1.0), (2, 1.0), (3, 0.8), (6, 0.6), (9, 0.4)])
@pytest.mark.parametrize("rescale", ["hidden", "scheduled", "none"])
def test_the_learnt_examples_of_lowest_loss_are_hidden(round, factor, rescale):
    rng = np.random.default_rng(round)
    loss, correct, confidence = rng.random(12), rng.random(12) < 0.8, rng.uniform(0.5, 1, 12)
    n, samples = 10, Kakurenbo(fraction=0.5, confidence=0.6, rescale=rescale)
    told = {"loss": loss, "correct": correct, "confidence": confidence}
    weight = samples.select(
        jax.random.key(0), (), jnp.arange(12) < n, turn=turn(round), **{k: jnp.float32(v) for k, v in told.items()}
    )
    hidden = hide(loss, correct, confidence, n, 0.5 * factor, 0.6)
    part = {"hidden": hidden.sum() / n, "scheduled": 0.5 * factor, "none": 0}[rescale]
    np.testing.assert_allclose(weight, np.where((np.arange(12) < n) & ~hidden, 1 / (1 - part), 0), rtol=1e-6)
    assert hidden.any()
