"""The number of rounds, hidden from strategies that do not declare that they read it."""

from __future__ import annotations

from typing import Any, TypeVar

from fedjax_sel.mistakes import is_built_in
from fedjax_sel.protocols import Strategy
from fedjax_sel.types import Context, Turn, Undeclared

Told = TypeVar("Told", Context, Turn)


def hide_round_count(strategy: Strategy, method: str, rounds: Any) -> Any:
    """Returns the number of rounds; for a user's method whose class lacks `uses_rounds`, an `Undeclared`.

    That raises an error when it is used. Otherwise a finished run of the method could be given more rounds, and would
    not be the run that had them from the start.

    Args:
      strategy: whose method is called.
      method: its name; one that a class inherits from the library may read it.
      rounds: the number.
    """
    while is_of_library(strategy, method) and isinstance(inner := find_wrapped(strategy, method), Strategy):
        strategy = inner
    if strategy.uses_rounds or is_of_library(strategy, method):
        return rounds
    return Undeclared(f"{type(strategy).__name__}.{method}")


def hide_rounds(strategy: Strategy, method: str, told: Told) -> Told:
    """Returns the context or the turn that a method gets, with its number of rounds as of `hide_round_count`."""
    rounds = hide_round_count(strategy, method, told.rounds)
    return told if rounds is told.rounds else told.replace(rounds=rounds)


def find_wrapped(strategy: Strategy, method: str) -> Any:
    """Returns the selector or trainer with a method of this name that a strategy wraps; None if it wraps none."""
    held = (getattr(strategy, name, None) for name in ("selector", "trainer"))
    return next((one for one in held if hasattr(type(one), method)), None)


def is_of_library(strategy: Strategy, method: str) -> bool:
    """Returns whether a strategy's method is written in this library."""
    return is_built_in(getattr(type(strategy), method))
