"""Folders of arrays on disk, written atomically and then memory-mapped.

A folder is written under another name and renamed when it is complete, so that a reader never sees a partial one, even
if the writer was killed or is still at work. `arrays.json`, written last, lists the arrays that must exist.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MANIFEST = "arrays.json"


def find_cache() -> Path:
    """Returns the folder of what is kept between runs: `$FEDJAX_SEL_CACHE` or `~/.cache/fedjax_sel`."""
    return Path(os.environ.get("FEDJAX_SEL_CACHE") or "~/.cache/fedjax_sel").expanduser()


def find_folder(cache_dir: str | Path | None = None) -> Path:
    """Returns the folder of decoded datasets: `cache_dir`, or `datasets` in the folder of `find_cache`."""
    return Path(cache_dir).expanduser() if cache_dir else find_cache() / "datasets"


A_DAY = 86_400
"""Seconds after which an unfinished folder is removed."""


def create(folder: Path, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    """Creates an array on disk, in a folder that is being written, and returns it.

    Raises:
      OSError: there is no room for it. (Found out later, when its pages are written, this would kill the process.)
    """
    place = folder / f"{name}.npy"
    array = np.lib.format.open_memmap(place, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with place.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, place.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # the file system cannot tell
                    return array
                raise OSError(
                    error.errno,
                    f"no room for the decoded arrays ({array.nbytes:,} bytes of {name})",
                    str(folder.parent),
                ) from error
    return array


def load_arrays(folder: Path, write: Callable[[Path], None]) -> dict[str, np.ndarray]:
    """Returns the arrays of `folder`, memory-mapped and read-only.

    If they are missing or damaged, `write(new)` first writes them into another folder.
    """
    found = _read(folder)
    if found is not None:
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(folder)
    # Next to its final place, since a rename is atomic only within one file system.
    new = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
    try:
        write(new)
        shapes = {path.stem: _describe(np.load(path, mmap_mode="r")) for path in sorted(new.glob("*.npy"))}
        (new / MANIFEST).write_text(json.dumps(shapes))
        new.chmod(0o755)  # mkdtemp's folders are private; a cache may be shared
        _install(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    found = _read(folder)
    if found is None:
        raise OSError(f"the cache {folder} could not be read back after it was written; is the disk full or failing?")
    return found


def _prefix(folder: Path) -> str:
    return f".writing-{folder.name}-"


def _remove_left(folder: Path) -> None:
    """Removes what killed processes left of a folder that they wrote."""
    for left in folder.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process removes or renames it
            if left.name.startswith(_prefix(folder)) and time.time() - left.stat().st_mtime > A_DAY:
                shutil.rmtree(left, ignore_errors=True)


def _describe(array: np.ndarray) -> list:
    return [array.dtype.str, list(array.shape)]


def _read(folder: Path) -> dict[str, np.ndarray] | None:
    """Returns the arrays if all those in the manifest exist at full length, else None."""
    try:
        promised = json.loads((folder / MANIFEST).read_text())
        found: dict[str, np.ndarray] = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in promised}
    except (OSError, ValueError, EOFError):
        return None
    return found if all(_describe(found[name]) == promised[name] for name in promised) else None


def _install(new: Path, folder: Path) -> None:
    try:
        os.replace(new, folder)
    except OSError:
        if _read(folder) is not None:
            return  # another process finished first; its arrays are the same
        damaged = Path(tempfile.mkdtemp(prefix=".damaged-", dir=folder.parent))
        os.replace(folder, damaged)
        os.replace(new, folder)
        shutil.rmtree(damaged, ignore_errors=True)
