"""Checkpoints between chunks: what a run needs to resume, and nothing that it can recompute.

Randomness is addressed by seed and round, so a checkpoint holds only the state carried between rounds, the number of
the next round, and what was measured so far. Each checkpoint is one folder, such as `round-000120`. Orbax writes it
under another name while the run goes on, and renames it when it is complete; the previous one is kept until then. It
carries a digest of its content: a damaged checkpoint is detected and reported, and the previous one is used.
"""

from __future__ import annotations

import errno
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from fedjax_sel.engine.disk import find_obstacle, reserve, room
from fedjax_sel.engine.distributed import fetch, is_first
from fedjax_sel.engine.mark import digest, name_of
from fedjax_sel.engine.orbax import handler, orbax
from fedjax_sel.engine.state import RoundState
from fedjax_sel.pytree import Range, is_key, split_name
from fedjax_sel.types import Variables

FOLDER = re.compile(r"round-(\d{6,})")
STATE, MEASURED, ABOUT = "state.", "measured.", "about."
METADATA = 2**16
"""Approximate bytes of a checkpoint besides its arrays."""
PASSING = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE}
"""Errors of the system after which a checkpoint may be whole: the run ends with them instead of starting anew."""

PASSING_STATES = ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
"""Likewise, as Orbax's storage reports them, at the beginning of a message."""

SPARE = 9
"""Least time between two checkpoints, as a multiple of the time that saving one takes."""


def on_stderr(line: str) -> None:
    """Prints a line to standard error."""
    print(line, file=sys.stderr)


@dataclass(frozen=True)
class Point:
    """A run between two chunks.

    Attributes:
      round: number of the next round, from 0; 0: clients have not trained in a round yet.
      state: state of all seeds, with a leading `R`.
      measured: everything measured so far, each array with leading `R`, `round`.
      seconds: seconds spent so far.
      ended: whether it is the end of a run of fewer rounds.
    """

    round: int
    state: RoundState
    measured: dict[str, np.ndarray]
    seconds: float
    ended: bool = False


class Checkpoints:
    """The checkpoints of one run.

    Args:
      folder: where they are stored; created when the first is saved.
      keep: how many of the newest are kept.
      pause: least seconds between two saves (0: every chunk is saved), so that short runs are not slowed down; `SPARE`
        times the duration of the last save if that is more, so that runs with large states are not either.
      say: called with each line that the user should see.
    """

    def __init__(
        self, folder: str | Path, *, keep: int = 2, pause: float = 1.0, say: Callable[[str], None] = on_stderr
    ):
        Range(1, whole=True).check("checkpoints: keep", keep)
        Range(0, below=math.inf).check("checkpoints: pause", pause)
        self.folder, self.keep, self.pause, self.say = Path(folder).absolute(), keep, pause, say
        self.saved: int | None = None  # round of the newest checkpoint
        self._last, self._took = time.monotonic(), 0.0
        self._writing: Writing | None = None

    def rounds(self) -> list[int]:
        """Returns the rounds after which there is a checkpoint, damaged or not."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(found[1]) for found in map(FOLDER.fullmatch, names) if found)

    def restore(self, like: RoundState, mark: str, mark_at: Callable[[int], str] | None = None) -> Point | None:
        """Returns the newest point that can be read; None: start from the beginning.

        Args:
          like: a state of this run, for its structure, shapes and types.
          mark: mark of the run (`mark.mark_of`).
          mark_at: returns the mark of the same run with another number of rounds, whose end is a point of this run;
            None: only a point of this run counts.

        Raises:
          OSError, MemoryError: one cannot be read now (`PASSING`), which is not damage.
          ValueError: the newest readable checkpoint is of another run, or of another version of this program; or the
            folder is a file.
        """
        found = self._newest(mark, mark_at)
        if found is None:
            self.saved = None  # the folder may have been removed since
            return None
        number, arrays, ended = found
        if shapes(like) != {name: a.shape for name, a in arrays.items() if name.startswith(STATE)}:
            raise ValueError(f"{self._path(number)} was written by another version of this program; use another folder")
        self.saved = number
        measured = {name.removeprefix(MEASURED): a for name, a in arrays.items() if name.startswith(MEASURED)}
        return Point(number, fill_state(like, arrays), measured, float(arrays[ABOUT + "seconds"]), ended)

    def check_folder(self) -> None:
        """Raises `ValueError` if the folder cannot be made or written, so that a run ends before it compiles."""
        if reason := find_obstacle(self.folder) if is_first() else "":
            raise ValueError(f"checkpoints: {self.folder} cannot be written ({reason}); give another folder")

    def check(self, mark: str, mark_at: Callable[[int], str] | None = None) -> None:
        """Raises the errors of `restore` that a mark alone shows, before anything else is changed."""
        self._newest(mark, mark_at)

    def _newest(
        self, mark: str, mark_at: Callable[[int], str] | None
    ) -> tuple[int, dict[str, np.ndarray], bool] | None:
        """Returns number and content of the newest point that can be read, and whether it is a shorter run's end."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file; checkpoints need a folder of that name")
        for number in reversed(self.rounds()):
            path = self._path(number)
            arrays = read_unless_damaged(path)
            if isinstance(arrays, Exception):
                left = number != self.rounds()[0]
                instead = "using the one before it" if left else "there is no other, so the run begins anew"
                reason = f"{type(arrays).__name__}: {find_first_line(arrays)}"
                self.say(f"checkpoint {path} is damaged ({reason}); {instead}")
                continue
            found = arrays[ABOUT + "mark"].tobytes().hex()
            ends = {number, self.rounds()[-1]} - {0}  # if the end itself is damaged, an earlier point counts
            ended = found != mark and mark_at is not None and found in map(mark_at, ends)
            if found != mark and not ended:
                raise ValueError(f"{path} is a checkpoint {tell_difference(arrays)}, or use another folder")
            return number, arrays, ended
        return None

    def due(self, number: int, *, now: bool = False) -> bool:
        """Returns whether the point after round `number` should be saved: `now`, or if the last was long enough ago.

        Raises:
          DiskFull: there was no room for the last one.
        """
        if number == self.saved or now or not self.pause:
            return number != self.saved
        if not is_first():
            return False  # the first process writes them, and decides when
        if self._writing is not None:
            if self._writing.ended is None:
                return False
            self.finish()
        return time.monotonic() - self._last >= max(self.pause, SPARE * self._took)

    def save(self, point: Point, mark: str) -> None:
        """Starts to write `point`, once the previous write is complete.

        Raises:
          DiskFull: there was no room for the one before it.
        """
        self.finish()
        arrays = {STATE + name: to_host(leaf) for name, leaf in leaves(point.state) if leaf.size}
        arrays |= {MEASURED + name: value for name, value in point.measured.items()}
        arrays |= {
            ABOUT + "seconds": np.asarray(point.seconds),
            ABOUT + "mark": np.frombuffer(bytes.fromhex(mark), np.uint8),
            ABOUT + "devices": np.asarray(jax.device_count()),
        }
        newest, self.saved = -1 if self.saved is None else self.saved, point.round
        if is_first():
            self._remove(lambda number: number > newest)  # these are damaged, or the run would have resumed there
            self._writing = write(self._path(point.round), arrays)

    def finish(self) -> None:
        """Waits until the checkpoint being written is complete, then removes the oldest ones.

        Raises:
          DiskFull: there was no room for it; earlier checkpoints are still there.
        """
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            with room(self.folder, self._kept()):
                writing.wait()
        except BaseException:
            self._remove(lambda number: False)
            raise
        self._last = writing.ended or writing.began
        self._took = self._last - writing.began
        kept = self.rounds()[-self.keep :]
        self._remove(lambda number: number not in kept)

    def variables(self) -> Variables | None:
        """Returns the global models of the newest undamaged checkpoint, dictionaries with a leading `R`; None: none.

        Raises:
          OSError, MemoryError: one cannot be read now (`PASSING`), which is not damage.
        """
        for number in reversed(self.rounds()):
            arrays = read_unless_damaged(self._path(number))
            if not isinstance(arrays, Exception):
                return select_variables(arrays)
        return None

    def variables_after(self, number: int) -> Variables:
        """Returns the global models after round `number`; raises as `read` does."""
        return select_variables(read(self._path(number)))

    def clear(self) -> None:
        """Removes all checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.saved = None

    def _kept(self) -> str:
        done = self.rounds()
        if not done:
            return "nothing was kept before"
        return f"the state after round {done[-1]} is kept, and the same command goes on from there"

    def _path(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}"

    def _remove(self, which: Callable[[int], bool]) -> None:
        for number in filter(which, self.rounds()):
            shutil.rmtree(self._path(number))
        for unfinished in self.folder.glob("*.orbax-checkpoint-tmp*"):  # from a process killed while writing
            shutil.rmtree(unfinished, ignore_errors=True)


class Writing:
    """A checkpoint being written by a thread of its own.

    Attributes:
      began, ended: by `time.monotonic`; `ended` is None until it is complete or has failed.
    """

    def __init__(self, path: Path, arrays: Mapping[str, np.ndarray]):
        self.began = time.monotonic()
        self.ended: float | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(path, arrays), name=path.name, daemon=True)
        self._thread.start()

    def _run(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        try:
            self._write(path, arrays)
        except BaseException as error:  # raised by `wait`
            self._error = error
        self.ended = time.monotonic()

    def _write(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        signed = {**arrays, ABOUT + "digest": np.frombuffer(bytes.fromhex(digest(arrays)), np.uint8)}
        path.parent.mkdir(parents=True, exist_ok=True)
        reserve(
            path.parent, METADATA + sum(array.nbytes for array in signed.values())
        )  # Orbax would fail array by array
        with handler() as checkpointer:
            checkpointer.save(path, args=orbax().args.StandardSave(signed))

    def wait(self) -> None:
        """Waits until it is complete; raises the error of a failed write."""
        self._thread.join()
        if self._error is not None:
            raise self._error


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> Writing:
    """Starts to write a checkpoint and its digest."""
    return Writing(path, arrays)


def read(path: Path) -> dict[str, np.ndarray]:
    """Reads a checkpoint; raises whatever Orbax raises for a damaged one, and `ValueError` if the digest differs."""
    with handler() as checkpointer:
        arrays = {name: np.asarray(value) for name, value in checkpointer.restore(path).items()}
    if arrays.pop(ABOUT + "digest").tobytes().hex() != digest(arrays):
        raise ValueError("its content is not what was written")
    return arrays


def read_unless_damaged(path: Path) -> dict[str, np.ndarray] | Exception:
    """Returns the content of a checkpoint, or the error that shows that it is damaged.

    Raises:
      OSError, MemoryError: it cannot be read now (`PASSING`), which is not damage.
    """
    try:
        return read(path)
    except MemoryError:
        raise
    except Exception as error:  # damaged files can make the reader raise anything
        if getattr(error, "errno", None) in PASSING:
            raise
        if (reason := find_first_line(error)).startswith(PASSING_STATES):
            raise OSError(f"{path} cannot be read now: {reason}") from error
        return error


def find_first_line(error: Exception) -> str:
    """Returns the first line of an error's text; empty if it has none."""
    return (str(error).splitlines() or [""])[0]


def select_variables(arrays: Mapping[str, np.ndarray]) -> Variables:
    """Returns the global models among the arrays of a checkpoint."""
    prefix = STATE + "variables."
    flat = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    return traverse_util.unflatten_dict({split_name(name, "."): a for name, a in flat.items()})


def leaves(state: RoundState) -> Iterator[tuple[str, Any]]:
    """Yields every array of a state with its name."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        yield name_of(path), leaf


def shapes(state: RoundState) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every array of a state, as it is stored."""
    found = {STATE + name: leaf for name, leaf in leaves(state) if leaf.size}
    return {name: (jax.random.key_data(leaf) if is_key(leaf) else leaf).shape for name, leaf in found.items()}


def to_host(leaf: Any) -> np.ndarray:
    """Copies an array to the host, because the device's memory is reused while the copy is written."""
    return np.array(fetch(leaf))


def fill_state(like: RoundState, arrays: Mapping[str, np.ndarray]) -> RoundState:
    """Returns a state of the structure of `like` with the arrays of a checkpoint."""

    def restored(path, leaf):
        if not leaf.size:
            return leaf
        value = jnp.asarray(arrays[STATE + name_of(path)])
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf)) if is_key(leaf) else value

    return jax.tree_util.tree_map_with_path(restored, like)


def tell_difference(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns how the run of a checkpoint differs from this one, as far as it is known, and what to do about it."""
    here = jax.device_count()
    there = int(arrays.get(ABOUT + "devices", here))
    if there != here:
        cure = f" (on a CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={there})"
        cure = cure if jax.default_backend() == "cpu" else ""
        number = f"{there} device{'s' if there > 1 else ''}"
        return f"of a run on {number}, and not on {here}, perhaps of another run; continue it on {number}{cure}"
    told = "of another run (other data, seeds, strategies, parameters or code, or another mesh)"
    return f"{told}; continue it with what it was started with"
