"""Digests of what a configuration names but does not contain: the user's source, tables, arrays and variables.

A component whose class or function the user wrote has a `code`, and one that reads files has a `digest`: eight
hexadecimal digits of a hash of those files when the configuration was resolved. Both are called marks.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedjax_sel.config.checks import Parameter


class SourceChangedError(ValueError):
    """Raised if a configuration was written for another state of the user's code or files."""


CODE, DIGEST = "code", "digest"
MARKS = (CODE, DIGEST)


def mark_code(key: str, part: Any, given: dict[str, Any]) -> dict[str, str]:
    """Returns the `code` of a user's class or function, which a configuration stores beside its name.

    Args:
      key: the component's key.
      part: the class or function.
      given: its parameters; a `code` among them is removed.

    Raises:
      ValueError: the configuration was written for another state of the source.
    """
    return check_mark(key, CODE, [Path(inspect.getsourcefile(part) or "")], given)


def mark_files(key: str, paths: Iterable[Path], given: dict[str, Any]) -> dict[str, str]:
    """Returns the `digest` of the files that a component reads; an empty dictionary if it has none.

    Args:
      key: the component's key.
      paths: where the files may be.
      given: its parameters; a `digest` among them is removed, and is returned unchanged if no file exists.

    Raises:
      ValueError: the configuration was written for another state of the files.
    """
    there = [path for path in paths if path.is_file()]
    if there:
        return check_mark(key, DIGEST, there, given)
    return {DIGEST: given.pop(DIGEST)} if DIGEST in given else {}


def check_mark(key: str, mark: str, paths: list[Path], given: dict[str, Any]) -> dict[str, str]:
    """Returns the mark of some files and removes it from `given`; raises `ValueError` if the two differ."""
    states = [digest(path) for path in paths]
    now = states[0] if len(states) == 1 else hashlib.sha256(" ".join(states).encode()).hexdigest()[:8]
    before = given.pop(mark, now)
    if before != now:
        raise SourceChangedError(
            f"{key}.{mark} is {before!r}, but {' and '.join(map(str, paths))} is {now!r}: the file has changed since "
            f"this configuration was written; leave {mark} out to run it as it is now"
        )
    return {mark: now}


def digest_source(part: Any) -> str:
    """Returns the digest of the file that defines a class or function."""
    return digest(Path(inspect.getsourcefile(part) or ""))


def digest(path: Path) -> str:
    """Returns a digest of a file in eight hexadecimal digits; the file is read again only after it was written."""
    state = path.stat()
    return digest_state(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=1024)
def digest_state(path: Path, time: int, size: int) -> str:
    """Returns the digest of a file that was last written at `time`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]


def list_paths(known: Mapping[str, Parameter], given: Mapping[str, Any]) -> list[Path]:
    """Returns the paths among the parameters of a component: those that are annotated as `Path`."""
    named = [key for key, parameter in known.items() if takes_path(parameter.annotation)]
    return [Path(given[key]).expanduser() for key in named if isinstance(given.get(key), str | Path)]


def takes_path(annotation: Any) -> bool:
    """Returns whether an annotation is `Path`, or a union with it.

    >>> takes_path(str | Path), takes_path(str)
    (True, False)
    """
    return annotation is Path or Path in typing.get_args(annotation)


def has_mark(part: Any) -> bool:
    """Returns whether a component of a configuration, or one within it, has a mark of its source or files."""
    return isinstance(part, dict) and (any(mark in part for mark in MARKS) or any(map(has_mark, part.values())))


def drop_marks(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration without marks, which is valid for any state of sources and files.

    >>> drop_marks({"rounds": 3, "client_selection": {"name": "mine:Last", "code": "e84839d2"}})
    {'rounds': 3, 'client_selection': {'name': 'mine:Last'}}
    """
    return {key: drop_marks(part) if has_mark(part) else part for key, part in config.items() if key not in MARKS}
