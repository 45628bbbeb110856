"""Coresets: a few weighted examples whose gradients stand for those of all."""

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
    """What a client keeps.

    Attributes:
      weight: of its examples in its coreset.
      round: in which it chose that; -1: it has none.
    """

    weight: Float[Array, "*N L"]
    round: Int[Array, "*N"]


class Coreset(DataSelector):
    """The base class of `CRAIG`, `FedCore` and `GradMatch`. Only `choose` is abstract.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset.
      gradient: what stands for an example's gradient, that of the loss by the logits (`"output"`, `p - y`) or by the
        output layer (`"last_layer"`, `(p - y) ⊗ (1, h)`).
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
        """Returns the weights of a fresh coreset; `point` are the gradients."""

    def signals(self) -> dict[str, ExampleSignal | FeatureSignal]:
        """Returns the gradients."""
        return {"point": signals.OutputGradient() if self.gradient == "output" else signals.LastLayerGradient()}

    def init(self, num_clients: int, longest: int) -> CoresetState | tuple[()]:
        """Returns no coreset yet; nothing is kept where every round has its own."""
        if self.every == 1:
            return ()
        return CoresetState(jnp.zeros((num_clients, longest)), jnp.full(num_clients, -1, jnp.int32))

    def asks(self, state: CoresetState | tuple[()], round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether the client has no coreset, or one that is `every` rounds old."""
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
        """Returns the coreset, and when it was chosen."""
        if not isinstance(state, CoresetState):
            return state
        return CoresetState(weight, jnp.where(self.asks(state, turn.round), turn.round, state.round))
