"""A Ctrl-C while a command is starting ends it, wherever Python was."""

import gc
import signal
import sys

import pytest

from fedjax_sel.interrupts import note_interrupts
from fedjax_sel.runs.stopping import catch_signals


def test_an_interrupt_that_a_callback_of_the_garbage_collector_swallows_ends_the_run_before_it_begins(monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(phase, info):
        gc.callbacks.remove(press)
        signal.raise_signal(signal.SIGINT)

    end = note_interrupts()
    try:
        gc.callbacks.append(press)
        gc.collect()
        assert [one.exc_type for one in ignored] == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt), catch_signals(print):
            pytest.fail("the run began")
        with catch_signals(print) as stopper:  # the next one is not affected
            assert not stopper.signal
        end()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_or_handled_otherwise_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        note_interrupts()()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
