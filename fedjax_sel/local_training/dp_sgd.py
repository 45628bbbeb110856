"""Minibatch SGD on clipped per-example gradients with Gaussian noise: example-level differential privacy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.arrays import add_weighted
from fedjax_sel.kernels.clipping import clipping_factor
from fedjax_sel.local_training._minibatch import MinibatchTrainer
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Batch, PRNGKey, Variables

__all__ = ["DPSGD"]


class DPSGD(MinibatchTrainer):
    """SGD on `(Σ_b g_b min(1, S / ‖g_b‖) + N(0, (z S)² I)) / B`, over the batch's examples `b`.

    The sum is divided by the full batch size `B`, however many examples the last batch has. It needs a model without
    batch statistics, and memory for one gradient per example.

    Attributes:
      learning_rate, batch_size, epochs, steps, epoch_decay, schedule, augment: as in `MinibatchTrainer`.
      clip: `S`, the largest norm of an example's gradient.
      noise_multiplier: `z`.

    Source: Abadi et al., "Deep Learning with Differential Privacy", 2016, https://arxiv.org/abs/1607.00133, Algorithm
    1; batches are those of a shuffled pass, where the source draws each example independently.

    >>> DPSGD(0.1, clip=0.5).noise_multiplier
    1.0
    """

    clip: Scalar = param(default=1.0, above=0, below=math.inf)
    noise_multiplier: Scalar = param(default=1.0, low=0, below=math.inf)

    def build_optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Returns plain gradient descent at this rate."""
        return optax.sgd(rate)

    @property
    def linear(self) -> bool:
        """Returns true; a class derived from this one says so itself."""
        return type(self) is DPSGD

    def batch_gradient(
        self, loss: Callable[..., Any], trained: Variables, statistics: Variables, batch: Batch, key: PRNGKey
    ) -> tuple[Variables, Any]:
        """Returns the noisy mean of the examples' clipped gradients, and the auxiliary output of `loss`.

        Raises:
          ValueError: the model has batch statistics.
        """
        if jax.tree.leaves(statistics):
            raise ValueError(
                "dp_sgd: the model has variables beside its parameters, such as statistics of batches, which no "
                "gradient of a single example has; use a model without, as with norm='group'"
            )
        key_loss, key_noise = jax.random.split(key)

        def one(example: Batch, key: PRNGKey) -> tuple[Variables, Any]:
            alone = jax.tree.map(lambda leaf: leaf[None], example)
            return jax.grad(loss, has_aux=True)(trained, statistics, alone, key)

        each, (sums, _) = jax.vmap(one)(batch, jax.random.split(key_loss, batch.mask.shape[0]))
        size = jnp.maximum(batch.mask.sum(), 1) if self.batch_size is None else self.batch_size
        factor = jax.vmap(lambda gradient: clipping_factor(gradient, self.clip))(each)
        total = jax.tree.map(lambda leaf: add_weighted(factor, leaf), each)
        noise = optax.tree.random_like(key_noise, total, dtype=float)
        deviation = self.noise_multiplier * self.clip
        gradient = jax.tree.map(lambda leaf, normal: (leaf + deviation * normal) / size, total, noise)  # Alg. 1: g̃_t
        return gradient, (sums.sum(0), statistics)
