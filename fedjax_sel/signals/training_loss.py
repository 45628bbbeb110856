"""Losses a client reports from its own training."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.protocols import Price
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Update, Variables


class TrainingLoss(Pytree):
    """Mean training loss, in nats, over the rows of all local steps; it comes with the update for one number more."""

    name: ClassVar[str] = "training_loss"
    price: ClassVar[Price] = Price(up=1.0)
    stacked: ClassVar[bool] = False

    def update(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """As the client reported it."""
        return update.loss


class TrainingLossRMS(Pytree):
    """`sqrt(mean loss²)`, in nats, over the rows of all local steps; it comes with the update for one number more."""

    name: ClassVar[str] = "training_loss_rms"
    price: ClassVar[Price] = Price(up=1.0)
    stacked: ClassVar[bool] = False

    def update(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """As the client reported it."""
        return jnp.sqrt(update.square)
