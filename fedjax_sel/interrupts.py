"""Remembers a Ctrl-C that comes before a run handles signals itself.

Python raises `KeyboardInterrupt` wherever the program is. In a callback of the garbage collector, of which JAX has one,
it is printed and ignored, and the run would go on.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

_NOTED: list[int] = []


def note_interrupts() -> None:
    """Notes every SIGINT from now on before it raises `KeyboardInterrupt`; only the main thread may handle signals."""
    _NOTED.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)


def note(number: int, frame: Any) -> None:
    """Handles a signal."""
    _NOTED.append(number)
    raise KeyboardInterrupt


def raise_noted() -> None:
    """Raises `KeyboardInterrupt` if a SIGINT was noted, which was ignored or this would not be reached."""
    if _NOTED:
        _NOTED.clear()
        raise KeyboardInterrupt
