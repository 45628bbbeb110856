"""Errors of a full disk."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAID = ("No space left on device", "Disk quota exceeded", "File too large")
"""What these become in the words of a library that raises something else."""


class DiskFull(OSError):
    """There is no room for what was to be written; what was there before is still there."""


@contextmanager
def room(
    place: Path, kept: str = "what was kept before is still there, and the same command goes on"
) -> Iterator[None]:
    """Raise `DiskFull` naming `place` where writing fails for lack of room; `kept`: what the user still has."""
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(said in str(error) for said in SAID):
            raise DiskFull(f"no room on the disk of {place}; {kept}") from error
        raise


def reserve(folder: Path, size: int) -> None:
    """Raise `OSError` where `size` bytes more do not fit into a folder: no space, a quota, a limit of a file's size.

    Nothing is left behind, also where the process is killed. Where the system cannot tell, it fits.
    """
    if hasattr(os, "posix_fallocate"):
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
