"""Gradient of a client's loss, in full or as a sketch, and its noise over minibatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from fedjax_sel.arrays import widen
from fedjax_sel.protocols import ClientSignal, Cost, GradientSignal
from fedjax_sel.pytree import static
from fedjax_sel.signals.sketch import sketch_tree
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task


__all__ = ["Gradient", "GradientNoise"]


class Gradient(GradientSignal):
    """`∇F_i(w)` over all of a client's examples at once, without dropout, its leaves flattened one after the other.

    With a sketch (as in `Sketch`), inner products and hence distances equal those of the gradients in expectation. The
    client sends the whole gradient, a model's worth of numbers, or `k` numbers.

    Attributes:
      k: length of the sketch; None: all `P` numbers.
      before_training: whether a member's gradient, as a `trained` signal, is at the model that it received.

    >>> Gradient().cost.models_up, Gradient(k=16).cost.up
    (1.0, 16.0)
    """

    name: ClassVar[str] = "gradient"

    k: int | None = static(default=None, low=1)
    before_training: bool = static(default=False)

    @property
    def received(self) -> bool:
        """Returns whether it looks at the model that a member received."""
        return self.before_training

    @property
    def cost(self) -> Cost:
        """Returns the cost: a forward and a backward pass, and what is sent."""
        whole = self.k is None
        return Cost(forward=1.0, backward=1.0, needs_model=True, up=float(self.k or 0), models_up=1.0 if whole else 0.0)

    def measure_gradient(self, gradient: Variables) -> Float[Array, "k"]:
        """Returns the gradient of the mean loss, or its sketch."""
        return sketch_tree(gradient, self.k)


class GradientNoise(ClientSignal):
    """`sqrt(E ‖∇F_i(w; B) - c‖²)` over the minibatches `B` of one epoch, without dropout.

    With `c = ∇F_i(w)` this is the standard deviation `σ_i` of the gradients that local training follows; with `c = 0`
    it is their root mean square norm, `sqrt(‖∇F_i(w)‖² + σ_i²)`.

    Minibatches are drawn again every time. The last may be smaller; each is weighted by its examples. Two such signals
    in one round share their draw: with equal batch sizes they see the same minibatches.

    Attributes:
      batch_size: size of the minibatches.
      around: `c`, `"mean"` or `"zero"`.

    >>> GradientNoise(32).cost.up
    1.0
    """

    name: ClassVar[str] = "gradient_noise"
    cost: ClassVar[Cost] = Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0)

    batch_size: int = static(default=64, low=1)
    around: str = static(default="mean", choices=["mean", "zero"])

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, ""]:
        """Returns the root of the mean square over the minibatches."""
        longest = batch.mask.shape[0]
        size = min(self.batch_size, longest)
        order = jnp.argsort(jnp.where(batch.mask, jax.random.uniform(key, (longest,)), 2.0))
        place = jnp.pad(order, (0, -longest % size)).reshape(-1, size)
        inside = jnp.pad(batch.mask[order], (0, -longest % size)).reshape(-1, size)

        def measure_one(place, mask):
            gradient = task.gradient(variables, Batch(batch.x[place], batch.y[place], mask))
            return widen(task.hide_personal(gradient)), mask.sum()

        # In two passes: the difference of two mean squares would lose digits.
        def add(total, part):
            gradient, count = measure_one(*part)
            return jax.tree.map(lambda a, g: a + count * g, total, gradient), None

        zeros = jax.tree.map(jnp.zeros_like, widen(task.split(variables)[0]))
        whole, count = jax.lax.scan(add, zeros, (place, inside))[0], jnp.maximum(batch.mask.sum(), 1)
        mean = zeros if self.around == "zero" else jax.tree.map(lambda g: g / count, whole)

        def add_square(total, part):
            gradient, examples = measure_one(*part)
            off = optax.tree.norm(jax.tree.map(jnp.subtract, gradient, mean), squared=True)
            return total + examples * off, None

        return jnp.sqrt(jax.lax.scan(add_square, jnp.zeros(()), (place, inside))[0] / count)
