"""A progress bar for a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from fedjax_sel.engine.history import History
from fedjax_sel.report.quantities import format_bytes, format_count, format_seconds

SILENCE = 60.0
"""Seconds without output after which a log, which has no moving bar, gets a line."""

BEFORE = "before round 0"
"""What a bar shows until a run begins: data are placed, and selectors may train every client."""


class Bar:
    """A callback of `simulate` that moves a bar and shows round, accuracy or loss (mean over seeds), rounds per second.

    Args:
      progress: the display that the bar belongs to.
      task: the bar's task.
      announce: whether to print device and layout when the run begins.
      label: text before the news.
      place: maps a number of rounds to a position of the bar.
      rounds: `T`, for the remaining time; None: it is not shown.
    """

    def __init__(
        self,
        progress: Progress,
        task: TaskID,
        *,
        announce: bool = True,
        label: str = "",
        place: Callable[[int], float] = float,
        rounds: int | None = None,
    ):
        self._progress, self._task, self._announce = progress, task, announce
        self._label, self._place, self._rounds = label, place, rounds
        self._first: tuple[int, float] = 0, time.monotonic()
        self._spoke = time.monotonic()

    def on_train_begin(self, history: History) -> None:
        """Prints device, layout and sizes before the first chunk."""
        self._first, self._spoke = (history.rounds, time.monotonic()), time.monotonic()
        about, seeds = history.about, len(history.seeds)
        if self._announce:
            self._progress.console.print(
                f"device: {about['device']}\nlayout: {about['layout']}\n{history.num_clients} clients, cohorts of "
                f"{about['cohort_size']}, {format_count(seeds, 'seed')} · {about['parameters']:,} parameters"
                + (f" · about {format_bytes(about['memory'])} on each device, estimated" if "memory" in about else "")
                + (f"\nexamples: {about['examples_on']}" if "examples_on" in about else ""),
                highlight=False,
                soft_wrap=True,
            )
        if history.rounds:
            self._progress.console.print(f"continuing after round {history.rounds}", highlight=False)
        self._show(history.rounds, "compiling", since=time.monotonic())

    def on_compiled(self, history: History) -> None:
        """Shows that the first chunk runs, and starts the clock."""
        self._first = history.rounds, time.monotonic()
        self._show(history.rounds, "first rounds", since=time.monotonic())

    def after_central_iteration(self, history: History) -> None:
        """Moves the bar after a chunk; in a log, prints a line if there was none for a while."""
        rounds, began = self._first
        ran = history.rounds - rounds
        speed = ran / max(time.monotonic() - began, 1e-9)
        measured = history[history.headline]
        known = np.nanmean(measured[:, ~np.isnan(measured).all(0)][:, -1:], axis=0)
        parts = [f"{history.headline} {known[-1]:.4f}"] if known.size else []
        news = " · ".join([*parts, *([f"{speed:.3g} rounds/s"] if ran else [])])  # a resumed round is reported again
        if self._rounds is not None and ran and history.rounds < self._rounds:
            news += f" · {format_seconds((self._rounds - history.rounds) / speed)} left"
        self._show(history.rounds, news)
        self._speak(history.rounds, news)

    def _speak(self, rounds: int, news: str) -> None:
        console, of = self._progress.console, "" if self._rounds is None else f" of {self._rounds}"
        if is_moving(console) or time.monotonic() - self._spoke < SILENCE or rounds == self._rounds:
            return
        self._spoke = time.monotonic()
        (name,) = (task.description for task in self._progress.tasks if task.id == self._task)
        console.print(
            f"{name}: round {rounds}{of} · {self._label}{news}", highlight=False, soft_wrap=True, markup=False
        )

    def make_part(self, label: str, place: Callable[[int], float], *, announce: bool) -> Bar:
        """Returns a callback that moves the same bar for one of several runs, of which the next begins now."""
        self._progress.update(self._task, news=label + BEFORE, since=time.monotonic())
        return Bar(self._progress, self._task, announce=announce, label=label, place=place)

    def move_to(self, place: float) -> None:
        """Moves the bar to a position, also if nothing was left to run."""
        (task,) = (one for one in self._progress.tasks if one.id == self._task)
        over = place >= (task.total or 0)
        told = {"news": "", "since": None} if over and task.fields["news"].endswith(BEFORE) else {}
        self._progress.update(self._task, completed=place, **told)

    def _show(self, rounds: int, news: str, since: float | None = None) -> None:
        self._progress.update(self._task, completed=self._place(rounds), news=self._label + news, since=since)


class News(ProgressColumn):
    """A column with the text `news` of a bar, and the time since `since` if that is set."""

    def render(self, task: Task) -> Text:
        """Returns the text, as in "compiling (12 s)"."""
        news, since = task.fields["news"], task.fields.get("since")
        return Text(news if since is None else f"{news} ({time.monotonic() - since:.0f} s)")


def is_moving(console: Console) -> bool:
    """Returns whether a bar moves there; otherwise it is a log."""
    return console.is_terminal or console.is_jupyter


@contextmanager
def report_waiting(bars: Progress) -> Iterator[None]:
    """Prints in a log what a run waits for, after `SILENCE` seconds of it, then after twice as many, and so on."""
    over = threading.Event()

    def watch() -> None:
        waits, pause = None, SILENCE
        while not over.wait(SILENCE / 60):
            (task,) = bars.tasks
            since = task.fields["since"]
            if since != waits:
                waits, pause = since, SILENCE
            if since is not None and time.monotonic() - since >= pause:
                pause *= 2
                line = f"{task.description}: {News().render(task)}"
                bars.console.print(line, highlight=False, soft_wrap=True, markup=False)

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    if not is_moving(bars.console):
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if watcher.is_alive():
            watcher.join()


@contextmanager
def show_progress(console: Console, label: str, rounds: int, *, announce: bool = True) -> Iterator[Bar]:
    """Yields a bar that is shown during a run and stays when it is over.

    Args:
      console: where the bar is shown.
      label: name of the run.
      rounds: `T`.
      announce: whether to print device, memory and layout first.
    """
    columns = (
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        News(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, expand=True) as bars:
        task = bars.add_task(label, total=rounds, news=BEFORE, since=time.monotonic())
        try:
            with report_waiting(bars):
                yield Bar(bars, task, announce=announce, rounds=rounds)
        except BaseException:
            if bars.tasks[0].fields["news"].endswith(BEFORE):
                bars.update(task, visible=False)
            raise
