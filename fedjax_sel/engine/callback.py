"""Callbacks, which get the history so far between chunks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedjax_sel.engine.history import History
from fedjax_sel.pytree import show


class Callback(Protocol):
    """Anything with some of these methods; a plain function is an `after_central_iteration`.

    The names are those of pfl-research (Granqvist et al., 2024, https://arxiv.org/abs/2404.06430); here the host looks
    after every chunk of rounds, and is shown all rounds so far. A run that goes on from a checkpoint begins with the
    rounds that were done before: what a callback writes should follow from the history, so that it is the same then.

    A class that says `needs_variables = True` finds the global models in `history.variables` after every chunk, with a
    leading `R`, on the host; it is declared, since the transfer from the device costs time.

    Attributes:
      needs_variables: whether it looks at `history.variables`; may be left out, false then.
    """

    needs_variables: bool = False

    def on_train_begin(self, history: History) -> None:
        """Once, when everything is checked; `history.about` says how it will be run."""

    def on_compiled(self, history: History) -> None:
        """Once, when the program is compiled, before its first chunk; not where no round is left, nor in debugging."""

    def after_central_iteration(self, history: History) -> bool | None:
        """After every chunk; a true answer ends the run."""

    def on_train_end(self, history: History) -> None:
        """Once, after the last chunk, also where the run was ended before its last round."""


AnyCallback = Callback | Callable[[History], Any]


EVENTS = ("on_train_begin", "on_compiled", "after_central_iteration", "on_train_end")
"""The methods of a callback."""


def check_callbacks(callbacks: Any) -> None:
    """Raises `ValueError` for what is no sequence of callbacks."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise ValueError(f"callbacks is {show(callbacks)}; it must be a list of callbacks, as in [my_callback]")
    for one in callbacks:
        if isinstance(one, type):
            raise ValueError(f"callbacks holds the class {one.__name__}; give an instance, as in {one.__name__}()")
        if not callable(one) and not any(callable(getattr(one, event, None)) for event in EVENTS):
            raise ValueError(
                f"callbacks holds {show(one)}; a callback is a function of the history, or has one of the methods "
                f"{', '.join(EVENTS)}"
            )


def needs_variables(callbacks: Sequence[Any]) -> bool:
    """Whether any of these callbacks declares that it looks at the global models."""
    return any(bool(getattr(callback, "needs_variables", False)) for callback in callbacks)


def tell(callbacks: Sequence[Any], event: str, history: History) -> bool:
    """Calls all callbacks that have this method; returns whether any of them answered true."""
    answers = []
    for callback in callbacks:
        method = getattr(callback, event, None)
        if method is None and event == "after_central_iteration" and callable(callback):
            method = callback
        if method is not None:
            answers.append(bool(method(history)))
    return any(answers)
