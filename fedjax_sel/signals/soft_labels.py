"""Class probabilities that the model predicts."""

from typing import ClassVar

import jax
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal

__all__ = ["SoftLabels"]


class SoftLabels(ExampleSignal):
    """`softmax(logits)`, a vector over classes; a client's value is the mean over its examples.

    A client sends `C` numbers. Measured as `trained`, each member's new model predicts its own examples. For the
    federation's public examples, use `OnPublic(SoftLabels())`.

    Source: Ling et al., "FedEntropy: Efficient Device Grouping for Federated Learning Using Maximum Entropy Judgment",
    2022, https://arxiv.org/abs/2205.12038.

    >>> SoftLabels().measure(jax.numpy.zeros((1, 4)), jax.numpy.zeros(1, int)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    name: ClassVar[str] = "soft_labels"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True)

    def count_up(self, classes: int) -> float:
        """Returns `C`."""
        return float(classes)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b C"]:
        """Returns the probabilities of each example; the labels are ignored."""
        return jax.nn.softmax(logits)
