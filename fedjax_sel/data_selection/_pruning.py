"""Pruning by score: the hardest examples, by their scores in one round or in a client's first turns."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.arrays import floor_share
from fedjax_sel.data_selection._ops import count_kept, places
from fedjax_sel.protocols import ClientSignal, DataSelector, ExampleSignal, FeatureSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey


class PruningState(NamedTuple):
    """What a client carries from round to round.

    Attributes:
      total: sum of each example's scores.
      turns: number of turns in which they were measured.
      kept: which examples the client chose last; final once scores are not measured any more.
    """

    total: Float[Array, "*N L"]
    turns: Int[Array, "*N"]
    kept: Bool[Array, "*N L"]


class Pruning(DataSelector):
    """The base class of `EL2N` and `GraNd`, which differ in the score.

    Attributes:
      fraction: fraction of the client's examples to keep, in (0, 1].
      drop: fraction of the examples to leave out first, those with the highest scores (they may be mislabelled), as
        long as enough others remain.
      turns: number of a client's first turns whose mean scores decide, after which scores are not measured any more;
        None: the scores of each round decide.
    """

    fraction: Scalar = param(default=0.5, above=0, high=1)
    drop: Scalar = param(default=0.0, low=0, below=1)
    turns: int | None = static(default=None, low=1)

    @property
    @abstractmethod
    def score(self) -> ExampleSignal | FeatureSignal | ClientSignal:
        """Returns the signal that ranks the examples, highest first."""

    def signals(self) -> dict[str, ExampleSignal | FeatureSignal | ClientSignal]:
        """Returns the score."""
        return {"score": self.score}

    def init(self, num_clients: int, longest: int) -> PruningState | tuple[()]:
        """Returns a state without scores; no state if `turns` is None."""
        if self.turns is None:
            return ()
        shape = num_clients, longest
        return PruningState(jnp.zeros(shape), jnp.zeros(num_clients, jnp.int32), jnp.zeros(shape, bool))

    def asks(self, state: PruningState | tuple[()], round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether the client's scores are still measured."""
        if self.turns is None or not isinstance(state, PruningState):
            return jnp.array(True)
        return state.turns < self.turns

    def select(
        self,
        key: PRNGKey,
        state: PruningState | tuple[()],
        valid: Bool[Array, "L"],
        *,
        score: Float[Array, "L"],
    ) -> Bool[Array, "L"]:
        """Returns 1 for the highest scores below those that are dropped; ties are broken at random."""
        if isinstance(state, PruningState):
            score = state.total + score
        noise = jax.random.uniform(key, valid.shape, jnp.float32)
        count = count_kept(valid, self.fraction)
        dropped = jnp.minimum(floor_share(self.drop, valid.sum()), valid.sum() - count)
        place = places(valid, score, noise)
        kept = valid & (place >= dropped) & (place < dropped + count)
        if not isinstance(state, PruningState):
            return kept
        return jnp.where(self.asks(state, jnp.int32(0)), kept, state.kept)

    def observe(
        self,
        key: PRNGKey,
        state: PruningState | tuple[()],
        weight: Bool[Array, "L"],
        *,
        score: Float[Array, "L"],
    ) -> PruningState | tuple[()]:
        """Returns the state with this turn's scores added, and its choice."""
        if self.turns is None or not isinstance(state, PruningState):
            return state
        return PruningState(state.total + score, jnp.minimum(state.turns + 1, self.turns), weight)
