"""Coresets: a few weighted examples whose gradients represent those of all examples."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.protocols import DataSelector, ExampleSignal, FeatureSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, Turn


class CoresetState(NamedTuple):
    """What a client carries from round to round.

    Attributes:
      weight: of each example in its coreset; 0 for the others.
      round: round in which it chose the coreset; -1: it has none.
    """

    weight: Float[Array, "*N L"]
    round: Int[Array, "*N"]


class Coreset(DataSelector):
    """The base class of `CRAIG`, `FedCore` and `GradMatch`. Only `choose` is abstract.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset.
      gradient: proxy for an example's gradient: that of the loss with respect to the logits (`"output"`, for the
        cross-entropy `p - y`) or to the output layer (`"last_layer"`, that `⊗ (1, h)`).
    """

    weighted = True
    represents_all = True
    uses_turn = True

    fraction: Scalar = param(default=0.1, above=0, high=1)
    every: int = static(default=1, low=1)
    gradient: str = static(default="output", choices=["output", "last_layer"])

    @abstractmethod
    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a new coreset; `point` holds the gradients."""

    def signals(self) -> dict[str, ExampleSignal | FeatureSignal]:
        """Returns the gradients."""
        return {"point": signals.OutputGradient() if self.gradient == "output" else signals.LastLayerGradient()}

    def init(self, num_clients: int, longest: int) -> CoresetState | tuple[()]:
        """Returns a state without coresets; no state if clients choose a new one in every round."""
        if self.every == 1:
            return ()
        return CoresetState(jnp.zeros((num_clients, longest)), jnp.full(num_clients, -1, jnp.int32))

    def asks(self, state: CoresetState | tuple[()], round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether the client has no coreset, or one that is at least `every` rounds old."""
        if not isinstance(state, CoresetState):
            return jnp.array(True)
        return (state.round < 0) | (round >= state.round + self.every)

    def select(
        self,
        key: PRNGKey,
        state: CoresetState | tuple[()],
        valid: Bool[Array, "L"],
        *,
        point: Float[Array, "L k"],
        turn: Turn,
    ) -> Float[Array, "L"]:
        """Returns the weights of the coreset."""
        if not isinstance(state, CoresetState):
            return self.choose(key, point, valid, turn)
        fresh = self.asks(state, turn.round)
        return jax.lax.cond(fresh, lambda: self.choose(key, point, valid, turn), lambda: state.weight)

    def observe(
        self,
        key: PRNGKey,
        state: CoresetState | tuple[()],
        weight: Float[Array, "L"],
        *,
        point: Float[Array, "L k"],
        turn: Turn,
    ) -> CoresetState | tuple[()]:
        """Returns the coreset and the round in which it was chosen."""
        if not isinstance(state, CoresetState):
            return state
        return CoresetState(weight, jnp.where(self.asks(state, turn.round), turn.round, state.round))
