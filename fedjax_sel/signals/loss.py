"""Loss of the model on an example, on a minibatch of a client's examples, or on the server's examples."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Shaped

from fedjax_sel.protocols import ClientSignal, Cost, ExampleSignal, ServerSignal
from fedjax_sel.pytree import static
from fedjax_sel.task.losses import CrossEntropy
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task


__all__ = ["Loss", "MinibatchLoss", "ValidationLoss"]


def use_task_loss(self: Any, task: Task) -> Any:
    """Returns a signal with the task's loss, unless it has one; None stands for cross-entropy. A signal's `of_task`."""
    return self.replace(loss=task.loss) if self.loss is None and type(task.loss) is not CrossEntropy else self


def measure_losses(loss: Any, outputs: Float[Array, "b ..."], targets: Shaped[Array, "b ..."]) -> Float[Array, "b"]:
    """Returns the loss of each example, `-log softmax(outputs)_y` in nats if `loss` is None."""
    if loss is None:
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
    return loss(outputs, targets)


class Loss(ExampleSignal):
    """The task's loss, `-log softmax(logits)_y` in nats by default; a client's value is its mean, `F_i(w)`.

    Attributes:
      loss: which loss is measured, as in `Task.loss`; None: the task's.

    >>> Loss().measure(jnp.zeros((1, 2)), jnp.zeros(1, int)).item() == jnp.log(2.0).item()
    True
    """

    name: ClassVar[str] = "loss"
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    loss: Any = field(default=None, repr=False)

    of_task = use_task_loss

    def measure(self, logits: Float[Array, "b ..."], y: Shaped[Array, "b ..."]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        return measure_losses(self.loss, logits, y)


class MinibatchLoss(ClientSignal):
    """Mean loss, in nats, of one minibatch of a client's examples, drawn again every time it is measured.

    Two such signals in a round share their draw: with equal batch sizes they see the same minibatch.

    Attributes:
      batch_size: examples drawn without replacement; all if a client has fewer.

    >>> MinibatchLoss(32).cost.max_examples
    32
    """

    name: ClassVar[str] = "minibatch_loss"

    batch_size: int = static(default=64, low=1)

    @property
    def cost(self) -> Cost:
        """Returns the cost: a forward pass over the minibatch, and one number."""
        return Cost(forward=1.0, needs_model=True, up=1.0, max_examples=self.batch_size)

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, ""]:
        """Returns the mean over the minibatch."""
        noise = jnp.where(batch.mask, jax.random.uniform(key, batch.mask.shape), -1.0)
        _, place = jax.lax.top_k(noise, min(self.batch_size, batch.mask.shape[0]))
        return task.mean_loss(variables, Batch(batch.x[place], batch.y[place], batch.mask[place]))


class ValidationLoss(ServerSignal):
    """Mean loss, in nats, of the new global model on the server's validation examples. Costs the clients nothing.

    Attributes:
      split: `"validation"`, or `"test"` for the test examples (a leak, for parity with code that has it).
      loss: which loss is measured, as in `Task.loss`; None: the task's.

    >>> ValidationLoss(split="test")
    ValidationLoss(split='test')
    """

    name: ClassVar[str] = "validation_loss"

    split: str = static(default="validation", choices=["validation", "test"])
    loss: Any = field(default=None, repr=False)

    of_task = use_task_loss

    def measure(self, logits: Float[Array, "b ..."], y: Shaped[Array, "b ..."]) -> Float[Array, ""]:
        """Returns the mean over the examples."""
        return jnp.mean(measure_losses(self.loss, logits, y))
