"""Updates of which only the sum over the cohort is kept: a signal that looks at one is an error, not 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.types import Update


class UnkeptError(Exception):
    """A signal looks at an update's `delta` where only the sum over the cohort is kept."""


class UnkeptUpdate(Update):
    """An update whose `delta` was added to the cohort's sum and not kept."""

    def __getattr__(self, name: str) -> Any:
        """Raises `UnkeptError` for `delta`, and `AttributeError` for anything else that is not there."""
        raise UnkeptError if name == "delta" else AttributeError(f"an update has no attribute {name!r}")


def measure_unkept(name: str, signal: UpdateSignal) -> Callable[[Update, Any], Array]:
    """Returns the function `measure` of a signal for updates without `delta`, which raises an error if it looks at it.

    None would count as an empty tree, whose norm is 0.

    Args:
      name: of the signal.
      signal: what is measured.
    """

    def measure(update: Update, reference: Any) -> Array:
        seen = object.__new__(UnkeptUpdate)
        seen.__dict__.update({key: value for key, value in vars(update).items() if key != "delta"})
        try:
            return signal.measure(seen, reference)
        except UnkeptError:
            raise ValueError(
                f"the signal {name!r} looks at update.delta after the merge, where only the sum over the cohort is "
                f"kept; give {type(signal).__name__} the attribute stacked = True, or measure it as `trained`"
            ) from None

    return measure
