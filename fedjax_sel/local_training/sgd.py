"""Minibatch SGD on one client's examples: local training as in federated averaging."""

from __future__ import annotations

import math

import optax

from fedjax_sel.local_training._minibatch import MinibatchTrainer
from fedjax_sel.pytree import Scalar, param

__all__ = ["SGD"]


class SGD(MinibatchTrainer):
    """Epochs of minibatch SGD from the global model; the momentum starts at zero every round.

    Attributes:
      learning_rate, batch_size, epochs, steps, epoch_decay, schedule, augment: as in `MinibatchTrainer`.
      momentum: of heavy-ball SGD; None: no buffer.
      weight_decay: coefficient of the decay added to the gradient; None: none.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1, ClientUpdate.

    >>> import jax.numpy as jnp
    >>> SGD(0.5, batch_size=10, epochs=2).plan(jnp.array([25, 7]), longest=25, round=0, rounds=100).steps
    Array([6, 2], dtype=int32)
    """

    momentum: Scalar | None = param(default=None, low=0, below=1)
    weight_decay: Scalar | None = param(default=None, low=0, below=math.inf)

    def build_optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Returns the optax transformation for a step at this learning rate."""
        descent = optax.sgd(rate, self.momentum)
        if self.weight_decay is None:
            return descent
        return optax.chain(optax.add_decayed_weights(self.weight_decay), descent)

    @property
    def heavy_ball(self) -> Scalar | None:
        """The momentum."""
        return self.momentum

    @property
    def linear(self) -> bool:
        """Returns true; a class derived from this one says so itself, since it may change the gradient or the step."""
        return type(self) is SGD
