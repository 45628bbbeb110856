"""Losses that a client reports from its own training."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.protocols import Cost, UpdateSignal
from fedjax_sel.types import Update, Variables

__all__ = ["TrainingLoss", "TrainingLossRMS"]


class TrainingLoss(UpdateSignal):
    """Mean training loss, in nats, over the examples of all local steps; it is one more number with the update.

    >>> TrainingLoss().cost.up
    1.0
    """

    name: ClassVar[str] = "training_loss"
    cost: ClassVar[Cost] = Cost(up=1.0)

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, ""]:
        """Returns what the client reported."""
        return update.loss


class TrainingLossRMS(UpdateSignal):
    """`sqrt(mean loss²)`, in nats, over the examples of all local steps; it is one more number with the update.

    >>> TrainingLossRMS().cost.up
    1.0
    """

    name: ClassVar[str] = "training_loss_rms"
    cost: ClassVar[Cost] = Cost(up=1.0)

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, ""]:
        """Returns what the client reported."""
        return jnp.sqrt(update.mean_sq_loss)
