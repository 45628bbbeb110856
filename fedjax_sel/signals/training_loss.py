"""Losses a client reports from its own training."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.protocols import Cost, UpdateSignal
from fedjax_sel.types import Update, Variables


class TrainingLoss(UpdateSignal):
    """Mean training loss, in nats, over the rows of all local steps; it comes with the update for one number more."""

    name: ClassVar[str] = "training_loss"

    @property
    def cost(self) -> Cost:
        """DOC."""
        return Cost(up=1.0)

    def measure(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """As the client reported it."""
        return update.loss


class TrainingLossRMS(UpdateSignal):
    """`sqrt(mean loss²)`, in nats, over the rows of all local steps; it comes with the update for one number more."""

    name: ClassVar[str] = "training_loss_rms"

    @property
    def cost(self) -> Cost:
        """DOC."""
        return Cost(up=1.0)

    def measure(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """As the client reported it."""
        return jnp.sqrt(update.mean_sq_loss)
