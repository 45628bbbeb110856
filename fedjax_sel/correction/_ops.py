"""The methods of a correction that remembers and sends nothing."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from fedjax_sel.types import Cohort, State, Variables


def no_state(self: object, variables: Variables, clients: int) -> State:
    """`Correction.init`: nothing."""
    return ()


def nothing_held(self: object, state: State, client: Int[Array, ""]) -> State:
    """`Correction.held`: nothing."""
    return ()


def nothing_sent(self: object, held: State, delta: Variables, way: Float[Array, ""]) -> State:
    """`Correction.upload`: nothing."""
    return ()


def unchanged(self: object, state: State, cohort: Cohort, uploads: State) -> State:
    """`Correction.merge`: as it was."""
    return state
