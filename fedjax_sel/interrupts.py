"""Remembers a Ctrl-C that comes before a run handles signals itself.

Python raises `KeyboardInterrupt` wherever the program is. In a callback of the garbage collector, of which JAX has one,
it is printed and ignored, and the run would go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

_NOTED: list[int] = []


def note_interrupts() -> Callable[[], None]:
    """Notes every SIGINT from now on before it raises `KeyboardInterrupt`, and returns a function that ends this.

    Nothing changes outside of the main thread, or if SIGINT is ignored or handled otherwise.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return lambda: None
    signal.signal(signal.SIGINT, note)

    def end() -> None:
        _NOTED.clear()
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    return end


def note(number: int, frame: Any) -> None:
    """Handles a signal."""
    _NOTED.append(number)
    raise KeyboardInterrupt


def raise_noted() -> None:
    """Raises `KeyboardInterrupt` if a SIGINT was noted and ignored, as the command goes on."""
    if _NOTED:
        _NOTED.clear()
        raise KeyboardInterrupt
