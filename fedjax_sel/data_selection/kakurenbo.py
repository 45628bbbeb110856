"""KAKURENBO: all examples but those that the model has learnt."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.arrays import floor_share
from fedjax_sel.data_selection._ops import places
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, StrategyState, Turn

__all__ = ["Kakurenbo"]


class Kakurenbo(DataSelector):
    """All but those of the `⌊F n⌋` examples of lowest loss that are predicted correctly with `max_c p_c` at least `τ`.

    `F` is `fraction`, times 0.8 after 3 tenths of the rounds, 0.6 after 6 tenths, and 0.4 after 8 tenths; at least one
    example is kept. To compensate for the smaller number of steps, the paper divides the learning rate by `1 - F*`,
    where `F*` is the fraction of hidden examples; here, the examples' weights are divided, which is the same for SGD
    without weight decay, clipping or a correction.
    Losses and predictions are those of the received model, from a forward pass over all examples; the authors reuse
    those of the previous epoch. Ties are broken at random.

    The authors' code divides the learning rate by `1 - F`, whatever is hidden (`rescale="scheduled"`), and normalises
    the probabilities over the batch instead of the classes, which is not implemented. Its first epoch hides nothing.

    An aggregator that weights by size counts all of the client's examples.

    Attributes:
      fraction: largest fraction of the examples to hide, `F` at the start, in [0, 1).
      confidence: `τ`, in [0, 1].
      rescale: `"hidden"`, `"scheduled"`, or `"none"` for weights of 1.

    Source: Nguyen et al., "KAKURENBO: Adaptively Hiding Samples in Deep Neural Network Training", 2023,
    https://arxiv.org/abs/2310.10102, section 3; code: https://github.com/TruongThaoNguyen/kakurenbo. It is a method for
    a single trainer; here, each client hides examples of its own.

    >>> sorted(Kakurenbo(fraction=0.3).signals())
    ['confidence', 'correct', 'loss']
    """

    weighted = True
    represents_all = True
    uses_turn = True

    fraction: Scalar = param(default=0.3, low=0, below=1)
    confidence: Scalar = param(default=0.7, low=0, high=1)
    rescale: str = static(default="hidden", choices=["hidden", "scheduled", "none"])

    uses_rounds: ClassVar[bool] = True  # `F` falls over the run

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns each example's loss, whether it is predicted correctly, and how confidently."""
        return {"loss": signals.Loss(), "correct": signals.Correct(), "confidence": signals.Confidence()}

    def limit(self, turn: Turn) -> Float[Array, ""]:
        """Returns `F` in a round."""
        tenths = 10 * turn.round
        steps = sum((tenths >= k * turn.rounds).astype(jnp.int32) for k in (3, 6, 8))
        return self.fraction * jnp.array([1.0, 0.8, 0.6, 0.4])[steps]

    def select(
        self,
        key: PRNGKey,
        state: StrategyState,
        valid: Bool[Array, "L"],
        *,
        loss: Float[Array, "L"],
        correct: Float[Array, "L"],
        confidence: Float[Array, "L"],
        turn: Turn,
    ) -> Float[Array, "L"]:
        """Returns `1 / (1 - F*)`, or what `rescale` says, for all examples that are not hidden."""
        n, limit = jnp.maximum(valid.sum(), 1), self.limit(turn)
        place = places(valid, -loss, jax.random.uniform(key, valid.shape, jnp.float32))
        low = valid & (place < jnp.minimum(floor_share(limit, n), n - 1))  # `F` may be 1 in float32
        hidden = low & (correct > 0) & (confidence >= self.confidence)  # the others are moved back
        kept = (valid & ~hidden).astype(jnp.float32)
        if self.rescale == "none":
            return kept
        part = hidden.sum() / n if self.rescale == "hidden" else limit
        return kept / jnp.maximum(1 - part, jnp.finfo(jnp.float32).eps)
