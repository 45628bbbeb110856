"""How confident the model is in the class that it predicts."""

from typing import ClassVar

import jax
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal

__all__ = ["Confidence"]


class Confidence(ExampleSignal):
    """`max_c p_c` of an example, with `p = softmax(logits)`.

    >>> Confidence().measure(jax.numpy.zeros((1, 4)), jax.numpy.zeros(1, int)).tolist()
    [0.25]
    """

    name: ClassVar[str] = "confidence"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the largest probability of each example; the labels are ignored."""
        return jax.nn.softmax(logits).max(-1)
