"""Errors caused by a full disk."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAID = ("No space left on device", "Disk quota exceeded", "File too large")
"""The texts of these errors, in case a library raises something other than `OSError`."""


class DiskFull(OSError):
    """Raised when there is no room to write; what was on the disk before is still there."""


@contextmanager
def room(
    place: Path, kept: str = "what was kept before is still there, and the same command goes on"
) -> Iterator[None]:
    """Raises `DiskFull`, naming `place`, if writing fails for lack of room; `kept` says what the user still has."""
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(said in str(error) for said in SAID):
            raise DiskFull(f"no room on the disk of {place}; {kept}") from error
        raise


def find_obstacle(folder: Path) -> str:
    """Returns why nothing can be written in a folder, or where it would be made; "" if it can. Leaves nothing behind.

    >>> find_obstacle(Path(__file__) / "mine")
    'Not a directory'
    """
    place = folder.absolute()
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return "" if error.errno in FULL else error.strerror or str(error)


def reserve(folder: Path, size: int) -> None:
    """Raises `OSError` if `size` more bytes do not fit in a folder: no space, a quota, or a limit on file size.

    Nothing is left behind, even if the process is killed. If the system cannot tell, they are taken to fit.
    """
    if hasattr(os, "posix_fallocate"):
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
