"""An example signal, measured on the federation's public examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.arrays import add_weighted
from fedjax_sel.protocols import ClientSignal, Cost, ExampleSignal
from fedjax_sel.signals.soft_labels import SoftLabels
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task

__all__ = ["OnPublic"]


class OnPublic(ClientSignal):
    """The mean of an example signal over the federation's public examples, by one client's model.

    Public examples have no labels: a signal that reads labels sees zeros. Measured as `trained`, members differ by the
    models that they have just trained; before training, all would give the same value. The value arrives under the
    example signal's name with the prefix `public_`.

    Attributes:
      signal: what is measured on each example.

    >>> OnPublic().name, OnPublic().cost.forward
    ('public_soft_labels', 1.0)
    """

    public: ClassVar[bool] = True

    signal: ExampleSignal = SoftLabels()

    @property
    def name(self) -> str:
        """Returns the example signal's name with the prefix `public_`."""
        return f"public_{self.signal.name}"

    @property
    def needs_classes(self) -> bool:
        """Returns whether the example signal needs classes."""
        return self.signal.needs_classes

    @property
    def cost(self) -> Cost:
        """Returns the cost of the example signal, for public examples."""
        return self.signal.cost

    def count_up(self, classes: int) -> float:
        """Returns how many numbers the example signal sends."""
        return self.signal.count_up(classes)

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, "..."]:
        """Returns the mean over the examples in the mask; 0 if there is none."""
        signal: Any = self.signal.of_task(task)
        value = signal.measure(task.logits(variables, batch.x), jnp.zeros_like(batch.y))
        weight = batch.mask / jnp.maximum(batch.mask.sum(), 1)
        return add_weighted(weight, value)
