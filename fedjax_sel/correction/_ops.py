"""The methods of a correction that remembers and sends nothing."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from fedjax_sel.types import Cohort, StrategyState, Variables


def no_state(self: object, variables: Variables, clients: int) -> StrategyState:
    """`Correction.init`: nothing."""
    return ()


def nothing_held(self: object, state: StrategyState, client: Int[Array, ""]) -> StrategyState:
    """`Correction.held`: nothing."""
    return ()


def nothing_sent(self: object, held: StrategyState, delta: Variables, way: Float[Array, ""]) -> StrategyState:
    """`Correction.upload`: nothing."""
    return ()


def unchanged(self: object, state: StrategyState, cohort: Cohort, uploads: StrategyState) -> StrategyState:
    """`Correction.merge`: as it was."""
    return state
