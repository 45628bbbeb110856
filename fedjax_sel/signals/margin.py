"""Margin between the two likeliest classes of an example."""

from typing import ClassVar

import jax
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal

__all__ = ["Margin"]


class Margin(ExampleSignal):
    """Largest logit minus the second largest, `z_(1) - z_(2)`: small where the model is uncertain.

    The negative margin ranks examples as the entropy of the softmax does when its temperature goes to 0.

    >>> Margin().measure(jax.numpy.array([[3.0, 1.0, 2.5]]), jax.numpy.zeros(1, int)).tolist()
    [0.5]
    """

    name: ClassVar[str] = "margin"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the margin of each example; the labels are ignored."""
        top, _ = jax.lax.top_k(logits, 2)
        return top[:, 0] - top[:, 1]
