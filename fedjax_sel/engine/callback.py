"""Callbacks, which receive the history so far between chunks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.mistakes import find_place
from fedjax_sel.pytree import show


class Callback(Protocol):
    """Any object with some of these methods; a plain function counts as `after_central_iteration`.

    The names are those of pfl-research (Granqvist et al., 2024, https://arxiv.org/abs/2404.06430); here callbacks are
    called after every chunk of rounds, with all rounds so far. A run that resumes from a checkpoint starts with the
    rounds that were done before: what a callback writes should depend only on the history, so that it is the same then.

    A class with `needs_variables = True` finds the global models in `history.variables` after every chunk, with a
    leading `R`, on the host. It must be declared, because the transfer from the device takes time.

    Attributes:
      needs_variables: whether it looks at `history.variables`; false if omitted.
    """

    needs_variables: bool = False

    def check_metrics(self, metrics: Collection[str]) -> None:
        """Called first of all, before anything compiles or is written, with the names of what evaluations measure.

        These are `loss`, the task's own metrics, and `accuracy` if targets are classes. Not called by
        `fedjax-sel sweep`.

        Raises:
          ValueError: the callback needs another metric.
        """

    def on_train_begin(self, history: History) -> None:
        """Called once, when everything has been checked; `history.about` says how the run will be executed."""

    def on_compiled(self, history: History) -> None:
        """Called once, when the program is compiled, before the first chunk; not if no round is left or in debug."""

    def after_central_iteration(self, history: History) -> bool | None:
        """Called after every chunk; a true answer ends the run."""

    def on_train_end(self, history: History) -> None:
        """Called once, after the last chunk, even if the run was ended before its last round."""


AnyCallback = Callback | Callable[[History], Any]


EVENTS = ("on_train_begin", "on_compiled", "after_central_iteration", "on_train_end")
"""The methods of a callback."""


def check_callbacks(callbacks: Any) -> None:
    """Raises `ValueError` if the argument is not a sequence of callbacks."""
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
    """Returns whether any of these callbacks declares that it looks at the global models."""
    return any(bool(getattr(callback, "needs_variables", False)) for callback in callbacks)


@contextmanager
def name_callback(callback: Any, event: str) -> Iterator[None]:
    """Makes a `ValueError` of the user's own code say in which callback it was raised, and where."""
    try:
        yield
    except ValueError as error:
        if (place := find_place(error)) == "" or type(error) is not ValueError:
            raise
        raise ValueError(f"callback {show(callback)}: {event}: {error} ({place})") from error


def tell(callbacks: Sequence[Any], event: str, history: History) -> bool:
    """Calls this method of all callbacks that have it; returns whether any of them answered true."""
    answers = []
    for callback in callbacks:
        method = getattr(callback, event, None)
        if method is None and event == "after_central_iteration" and callable(callback):
            method = callback
        if method is not None:
            with name_callback(callback, event):
                answer = method(history)
            if not isinstance(answer, bool | np.bool_ | None):
                raise ValueError(
                    f"callback {show(callback)}: {event} answered {show(answer)}; it must answer True, which ends the "
                    "run, or False or None"
                )
            answers.append(bool(answer))
    return any(answers)
