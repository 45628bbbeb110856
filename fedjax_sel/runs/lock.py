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
        for left in find_parts(folder):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)  # Orbax writes folders
        yield
    finally:
        lock.release()


def find_parts(folder: Path) -> list[Path]:
    """Returns the partial files in a locked folder and in those of its folders that no process has locked."""
    found = [*folder.glob(f".*{PART}"), *folder.glob(f"figures/.*{PART}"), *folder.glob(f"studies/.*{PART}")]
    for part in (*folder.glob(f"*/*/.*{PART}"), *folder.glob(f"*/*/figures/.*{PART}")):  # cells, a sweep's runs
        owner = part.parent.parent if part.parent.name == "figures" else part.parent
        lock = FileLock(owner / LOCK, blocking=False)
        with suppress(Timeout), lock:
            found.append(part)
    return found


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
