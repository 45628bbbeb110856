"""Cross-entropy of the model on a row, on a few of a client's rows, or on the server's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.catalog import check_name
from fedjax_sel.protocols import ClientSignal, Cost, ExampleSignal, ServerSignal
from fedjax_sel.pytree import static
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task


class Loss(ExampleSignal):
    """`-log softmax(logits)_y` in nats; a client's value is its mean, `F_i(w)`."""

    name: ClassVar[str] = "loss"

    @property
    def cost(self) -> Cost:
        """DOC."""
        return Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Loss of each row."""
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)


class MinibatchLoss(ClientSignal):
    """Mean loss, in nats, of one minibatch of a client's rows, drawn afresh every time it is asked.

    Attributes:
      batch_size: rows drawn without replacement; all where a client has fewer.
    """

    name: ClassVar[str] = "minibatch_loss"

    batch_size: int = static(default=64)

    @property
    def cost(self) -> Cost:
        """A forward pass over the minibatch."""
        return Cost(forward=1.0, needs_model=True, up=1.0, max_examples=self.batch_size)

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, ""]:
        """Mean over the rows drawn."""
        noise = jnp.where(batch.mask, jax.random.uniform(key, batch.mask.shape), -1.0)
        _, drawn = jax.lax.top_k(noise, min(self.batch_size, batch.mask.shape[0]))
        return task.loss(variables, Batch(batch.x[drawn], batch.y[drawn], batch.mask[drawn]))


class ValidationLoss(ServerSignal):
    """Mean loss, in nats, of the new global model on the server's validation rows. Costs the clients nothing.

    Attributes:
      on: `"validation"`, or `"test"` for the test rows (a leak, for parity with codes that have it).
    """

    on: str = static(default="validation")

    def __check_init__(self) -> None:
        """Refuse rows that the server does not have."""
        check_name("validation signal: on", self.on, ["validation", "test"])

    name: ClassVar[str] = "validation_loss"

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, ""]:
        """Mean over rows."""
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y))
