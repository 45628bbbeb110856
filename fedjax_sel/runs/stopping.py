"""Handles signals that end a run, after its current chunk is finished and kept."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console

from fedjax_sel.engine.history import History
from fedjax_sel.interrupts import raise_noted

STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE = 2.0
"""Seconds that the program has to end by itself after a second signal."""


class StoppedAtOnce(KeyboardInterrupt):
    """Raised by the second signal; `signal` is the number of the first."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


class Stopper:
    """A callback that ends the run after a signal.

    Attributes:
      signal: the number of the first signal; 0: none came.
    """

    def __init__(self):
        self.signal = 0

    def after_central_iteration(self, history: History) -> bool:
        """Returns whether a signal came; called after every chunk."""
        return bool(self.signal)


@contextmanager
def catch_signals(say: Callable[[str], None]) -> Iterator[Stopper]:
    """Lets the first Ctrl-C (or SIGTERM) finish the chunk and keep it, and the second stop at once.

    Python calls a signal handler only when compiled code has returned, and merges signals that arrive before then.
    Therefore a thread reads the signals as they come: it answers the first at once, and ends the program `GRACE`
    seconds after the second, if it is still running. The disk then holds what a killed program leaves.
    """
    raise_noted()
    stopper, calls, (ours, theirs) = Stopper(), [], socket.socketpair()

    def handle(number: int, frame: Any) -> None:
        stopper.signal = stopper.signal or number
        calls.append(number)
        if len(calls) > 1:
            raise StoppedAtOnce(stopper.signal)

    def wait_for_signal() -> int:
        """Waits for a signal, and returns its number; 0: the run is over."""
        while (byte := ours.recv(1)) and byte[0] not in STOPPING:
            pass
        return byte[0] if byte else 0

    def watch() -> None:
        first = wait_for_signal()
        if not first:
            return
        say("stopping after this chunk of rounds, which is kept; once more to stop at once")
        if not wait_for_signal():
            return
        ours.settimeout(GRACE)
        with suppress(TimeoutError):
            if not wait_for_signal():
                return
        say("stopped at once; the same command goes on from what was kept before")
        Console(stderr=True).show_cursor()
        os._exit(128 + first)

    theirs.setblocking(False)
    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, handle) for number in STOPPING}
    watcher.start()
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        theirs.close()
        watcher.join()
        ours.close()
