"""Digests of what a configuration names but does not contain: the user's source, tables, arrays and variables.

A component whose class or function the user wrote has a `code`, and one that reads files has a `digest`: eight
hexadecimal digits of a hash of those files when the configuration was resolved. Both are called marks.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedjax_sel.code import is_own_module
from fedjax_sel.config.checks import Parameter


class SourceChangedError(ValueError):
    """Raised if a configuration was written for another state of the user's code or files."""


CODE, DIGEST = "code", "digest"
MARKS = (CODE, DIGEST)


def check_own_parameters(key: str, name: str, known: Iterable[str]) -> None:
    """Raises `ValueError` if a user's component has a parameter that a configuration writes beside its parameters."""
    taken = MARKS if key.startswith("callbacks.") else ("name", *MARKS)  # the name of a callback is its key
    for parameter in known:
        if parameter in taken:
            raise ValueError(
                f"{key} {name} has a parameter {parameter!r}, where a configuration has a {parameter} of its own; call "
                "it otherwise"
            )


def mark_code(key: str, part: Any, given: dict[str, Any]) -> dict[str, str]:
    """Returns the `code` of a user's class or function, which a configuration stores beside its name.

    It is of the file that defines it, and of the user's modules that this file imports.

    Args:
      key: the component's key.
      part: the class or function.
      given: its parameters; a `code` among them is removed.

    Raises:
      ValueError: the configuration was written for another state of the source.
    """
    return check_mark(key, CODE, digest_sources(part), given)


def mark_files(key: str, states: Mapping[str, str], given: dict[str, Any]) -> dict[str, str]:
    """Returns the `digest` of the files that a component reads; an empty dictionary if it has none.

    Args:
      key: the component's key.
      states: the digest of each file by its path, as `digest_files` returns them.
      given: its parameters; a `digest` among them is removed, and is returned unchanged if no file exists.

    Raises:
      ValueError: the configuration was written for another state of the files.
    """
    if states:
        return check_mark(key, DIGEST, states, given)
    return {DIGEST: given.pop(DIGEST)} if DIGEST in given else {}


def check_mark(key: str, mark: str, states: Mapping[str, str], given: dict[str, Any]) -> dict[str, str]:
    """Returns the mark of some files and removes it from `given`; raises `ValueError` if the two differ."""
    several = list(states.values())
    now = several[0] if len(several) == 1 else hashlib.sha256(" ".join(several).encode()).hexdigest()[:8]
    before = given.pop(mark, None)
    if before not in (None, now):
        raise SourceChangedError(
            f"{key}.{mark} is {before!r}, but {' and '.join(states)} is {now!r}: the file has changed since "
            f"this configuration was written; leave {mark} out to run it as it is now"
        )
    return {mark: now}


def find_source(part: Any) -> Path:
    """Returns the file that defines a class, a function, what a function was wrapped in, or any other callable."""
    return Path(inspect.getsourcefile(unwrap(part)) or "")


def unwrap(part: Any) -> Any:
    """Returns the class or function that is behind a callable."""
    while isinstance(part, functools.partial):
        part = part.func
    part = inspect.unwrap(part)
    return part if inspect.isclass(part) or inspect.isroutine(part) else type(part)


def digest_sources(part: Any) -> dict[str, str]:
    """Returns the digests of the files that `mark_code` names, by path, as they were when they were imported."""
    found, module = {str(find_source(part)): digest_source(part)}, sys.modules.get(unwrap(part).__module__)
    for one in [] if module is None else sorted(list_imported(module), key=lambda one: one.__name__):
        note_import(one)
        path = str(one.__file__)
        found.setdefault(path, getattr(one.__spec__, IMPORTED, {}).get(path) or digest(Path(path)))
    return found


def list_imported(module: ModuleType) -> list[ModuleType]:
    """Returns the user's modules that a module imports at its top level, or from which it imports names; and so on."""
    found, left = {module.__name__: module}, [module]
    while left:
        for value in list(vars(left.pop()).values()):
            name: Any = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            one = sys.modules.get(name) if isinstance(name, str) and name not in found else None
            if one is not None and getattr(one, "__file__", None) and is_own_module(name):
                found[name] = one
                left.append(one)
    return [one for one in found.values() if one is not module]


def digest_source(part: Any) -> str:
    """Returns the digest of the file that defines a class or function, as it was when it was imported."""
    path, module = find_source(part), sys.modules.get(unwrap(part).__module__)
    known = getattr(getattr(module, "__spec__", None), IMPORTED, {})
    return known.get(str(path)) or digest(path)


def note_import(module: ModuleType) -> None:
    """Notes the digest of a module's file, which counts until the module is imported anew, as by `importlib.reload`."""
    path, spec = getattr(module, "__file__", None), module.__spec__
    if path and spec and not hasattr(spec, IMPORTED):
        setattr(spec, IMPORTED, {path: digest(Path(path))})


IMPORTED = "fedjax_sel_imported"
"""The attribute of a module's specification in which `note_import` keeps the digest of its file."""


def digest_files(paths: Iterable[Path]) -> dict[str, str]:
    """Returns the digest of each file among some paths, by its path."""
    return {str(path): digest(path) for path in paths if path.is_file()}


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
