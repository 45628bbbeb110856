"""Entropy of the predicted class probabilities: how uncertain the model is about an example."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal
from fedjax_sel.pytree import Scalar, param

__all__ = ["Entropy"]


class Entropy(ExampleSignal):
    """`H(x) = -Σ_c p_c log p_c` in nats, with `p = softmax(logits / temperature)`.

    A temperature below 1 hardens the softmax: the entropy of examples that the model already separates falls to zero,
    and the ranking approaches that of (minus) the margin between the two largest logits.

    Attributes:
      temperature: of the softmax, at least 1e-30.

    Source: UACS-FL, "Active Client Selection for Federated Learning", the equation of `H(x)` (temperature 1); Shi, Radu
    and Yang, FedFT-EDS, 2024, equations (3) and (6), the hardened softmax (temperature ρ = 0.1).

    >>> Entropy().measure(jnp.zeros((1, 2)), jnp.zeros(1, int)).item() == jnp.log(2.0).item()
    True
    """

    name: ClassVar[str] = "entropy"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    temperature: Scalar = param(default=1.0, low=1e-30)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the entropy of each example; the labels are ignored.

        With `d_c = (z_max - z_c) / temperature` and `s` the sum of `e^-d_c` over all classes but the likeliest,
        `H = log(1 + s) + Σ_c d_c e^-d_c / (1 + s)`: no term is negative, so the entropy of a confidently classified
        example is as exact as any other, until `e^-d` itself is 0 in float32.
        """
        gap = (logits.max(-1, keepdims=True) - logits) / self.temperature  # FedFT-EDS, Eq. (6)
        likeliest = jax.nn.one_hot(logits.argmax(-1), logits.shape[-1], dtype=bool)
        chance = jnp.where(likeliest, 0.0, jnp.exp(-gap))
        rest = chance.sum(-1)
        spread = jnp.sum(jnp.where(chance > 0, chance * gap, 0.0), axis=-1)  # a gap may be infinite
        return jnp.log1p(rest) + spread / (1 + rest)  # FedFT-EDS, Eq. (3), and H(x) of UACS-FL
