"""Callbacks, which get the history so far between chunks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedjax_sel.engine.history import History


class Callback(Protocol):
    """Anything with some of these methods; a plain function is an `after_central_iteration`.

    The names are those of pfl-research (Granqvist et al., 2024, https://arxiv.org/abs/2404.06430); here the host looks
    after every chunk of rounds, and is shown all rounds so far. A run that goes on from a checkpoint begins with the
    rounds that were done before: what a callback writes should follow from the history, so that it is the same then.
    """

    def on_train_begin(self, history: History) -> None:
        """Once, when everything is checked; `history.about` says how it will be run."""

    def after_central_iteration(self, history: History) -> bool | None:
        """After every chunk; a true answer ends the run."""

    def on_train_end(self, history: History) -> None:
        """Once, after the last chunk, also where the run was ended before its last round."""


AnyCallback = Callback | Callable[[History], Any]


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
