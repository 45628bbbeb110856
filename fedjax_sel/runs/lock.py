"""Locks that reserve a folder for one process at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedjax_sel.config.config import Config
from fedjax_sel.engine.disk import find_obstacle, room
from fedjax_sel.engine.distributed import is_first
from fedjax_sel.engine.history import History
from fedjax_sel.runs.files import PART
from fedjax_sel.runs.layout import LOCK, FolderError, check, create


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Locks a folder, made if it is missing, for this process; it is released however the process ends.

    Removes partial files that killed processes left in it.

    Raises:
      FolderError: another process uses it, or it cannot be written.
    """
    folder = Path(folder)
    with room(folder):
        if reason := find_obstacle(folder):
            raise FolderError(f"{folder} cannot be written ({reason}); give another folder")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, blocking=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise FolderError(f"{folder} is used by another process; wait for it, or give another folder") from error
    try:
        remove_parts(folder)
        yield
    finally:
        lock.release()


def remove_parts(folder: Path) -> None:
    """Removes partial files from a locked folder, and from those of its cells or runs that no process has locked."""
    remove(*folder.glob(f".*{PART}"), *folder.glob(f"figures/.*{PART}"), *folder.glob(f"studies/.*{PART}"))
    for name in ("cells", "runs"):  # of a reproduction or a leaderboard, and of a sweep
        for lock in folder.glob(f"{name}/*/{LOCK}"):
            parts = [*lock.parent.glob(f".*{PART}"), *lock.parent.glob(f"figures/.*{PART}")]
            if parts:
                with suppress(Timeout, OSError), FileLock(lock, blocking=False):
                    remove(*parts)


def remove(*paths: Path) -> None:
    """Removes files, and folders, which Orbax writes."""
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class FolderLock:
    """Locks a run's folder while this process uses it; any other process gets an error.

    It is a context manager and a callback: a folder that does not exist yet is made when the run begins, after all
    checks. If several processes run one program, the first one holds the lock.

    Args:
      folder: a new folder, or that of an interrupted run of this configuration.
      config: the configuration of the run.

    Raises:
      FolderError: another process uses it.
    """

    def __init__(self, folder: str | Path, config: Config):
        self.folder, self.config = Path(folder), config
        self._stack, self._has = ExitStack(), False

    def __enter__(self) -> FolderLock:
        if self.folder.is_dir() and is_first():
            self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def on_train_begin(self, history: History) -> None:
        """Makes and locks the folder."""
        check(self.folder, self.config)
        self._take()
        if create(self.folder, self.config) == "finished":
            raise FolderError(f"another process has finished the run in {self.folder}; the same command shows it")

    def _take(self) -> None:
        if not self._has:
            self._stack.enter_context(lock_folder(self.folder))
            self._has = True
