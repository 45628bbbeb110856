"""Strategy lookup by name, with each folder as its own registry, and error notes that point to documentation."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def available(package: str) -> list[str]:
    """Returns the names of the strategies in a folder: its modules whose names do not begin with an underscore.

    >>> "entropy" in available("fedjax_sel.client_selection")
    True
    """
    return list(list_modules(package))


@functools.cache
def list_modules(package: str) -> tuple[str, ...]:
    """Returns the names of a folder's modules that do not begin with an underscore, read from disk once."""
    path = importlib.import_module(package).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_")))


def load(package: str, name: str) -> Any:
    """Returns the one class that module `name` of `package` exports.

    Raises:
      ValueError: there is no such module; the message suggests the nearest name.
    """
    check_name(package.rsplit(".", 1)[-1].replace("_", " "), name, available(package))
    module = importlib.import_module(f"{package}.{name}")
    (exported,) = module.__all__
    return getattr(module, exported)


def namespace(package: str, **private: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a folder: they list all its classes and import each on first access.

    Args:
      package: the folder.
      private: for each class that is in no public module's `__all__`, the module that defines it.

    >>> __getattr__, __dir__ = namespace("fedjax_sel.client_selection")
    >>> __getattr__("PowerOfChoice").__name__, "Uniform" in __dir__()
    ('PowerOfChoice', True)
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # import machinery and tools ask for these; parse no modules for them
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = {**private, **exports(package)}
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{suggest(name, list(home))}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    def list_names() -> list[str]:
        public = {name for name, value in vars(importlib.import_module(package)).items() if is_public(name, value)}
        return sorted({*public, *private, *exports(package)})

    return get, list_names


def is_public(name: str, value: Any) -> bool:
    """Returns whether a folder lists a name of its `__init__`: its functions and classes, not its imports."""
    return not name.startswith("_") and callable(value) and value is not functools.partial


@functools.cache
def exports(package: str) -> Mapping[str, str]:
    """Returns the module of each name that a folder's modules export, read from `__all__` without importing them.

    >>> exports("fedjax_sel.client_selection")["PowerOfChoice"]
    'power_of_choice'
    """
    path = importlib.import_module(package).__path__
    home: dict[str, str] = {}
    for module in pkgutil.iter_modules(path):
        spec = None if module.name.startswith("_") else module.module_finder.find_spec(f"{package}.{module.name}", None)
        source: Any = None if spec is None else spec.loader
        for node in ast.parse(source.get_source(spec.name)).body if spec is not None else ():
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
                home |= dict.fromkeys(ast.literal_eval(node.value), module.name)
    return home


def import_extra(module: str, extra: str, what: str) -> Any:
    """Returns a module of an optional package.

    Args:
      module: dotted name of the module.
      extra: the extra of this library that installs it.
      what: what needs it, for the error message.

    Raises:
      ValueError: it is not installed; the message names the extra.

    >>> import_extra("no_such_package", "more", "this")
    Traceback (most recent call last):
    ValueError: this needs the package no_such_package, which is not installed: pip install 'fedjax-sel[more]'
    """
    check_installed(module.partition(".")[0], extra, what)
    return importlib.import_module(module)


def check_installed(package: str, extra: str, what: str) -> None:
    """Raises `ValueError`, naming the extra, if a package is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except ValueError:  # its entry in `sys.modules` has no spec
        found = None
    if found is None or found.origin is None:  # a folder of that name is not a package
        raise ValueError(
            f"{what} needs the package {package}, which is not installed: pip install 'fedjax-sel[{extra}]'"
        )


SEE = "see "
"""Prefix of error notes that say where to read more."""

NOTES = ("in ", "this is ", "several values ", SEE)
"""Prefixes of the notes that this library adds to errors; JAX adds others."""


@contextmanager
def see(where: str) -> Iterator[None]:
    """Adds a note on where to read more to errors raised inside, unless they have one; also usable as a decorator.

    Args:
      where: a command, or a page of the documentation.

    >>> try:
    ...     with see("docs/how-to/data.md"), see("`fedjax-sel explain oort`"):
    ...         raise ValueError("no")
    ... except ValueError as error:
    ...     print(list_notes(error))
    ['see `fedjax-sel explain oort`']
    """
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError) as error:
        add_pointer(error, where)
        raise


def add_pointer(error: BaseException, where: str) -> None:
    """Adds a note on where to read more to an error, unless it has one."""
    if not any(note.startswith(SEE) for note in list_notes(error)):
        error.add_note(SEE + where)


def list_notes(error: BaseException) -> list[str]:
    """Returns the notes that this library added to an error, with those on where to read more last."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(NOTES)]
    return sorted(notes, key=lambda note: note.startswith(SEE))


def check_name(what: str, name: Any, known: Iterable[str], aliases: Mapping[str, str] = {}, more: str = "") -> None:
    """Raises `ValueError`, suggesting the nearest known name, if `name` is not in `known`.

    Args:
      what: what it names, for the error message.
      name: the name as given.
      known: all valid names.
      aliases: other names that may have been meant, mapped to the known ones.
      more: what else is allowed, for the error message.

    >>> check_name("client selection", "entrop", ["entropy", "uniform"])
    Traceback (most recent call last):
    ValueError: unknown client selection 'entrop'; did you mean 'entropy'? There are: entropy, uniform
    >>> check_name("metric", "acc", ["auc", "accuracy"])
    Traceback (most recent call last):
    ValueError: unknown metric 'acc'; did you mean 'accuracy'? There are: auc, accuracy
    """
    known = list(known)
    if name not in known:
        hint = suggest(name, known, aliases) or "."
        raise ValueError(f"unknown {what} {name!r}{hint} There are: {', '.join(known)}{more}")


def suggest(name: Any, known: Sequence[str], aliases: Mapping[str, str] = {}) -> str:
    """Returns a question for the end of an error message, whether the nearest known name was meant; "" if none is near.

    The only known name that begins with the given one is the nearest, or one that differs in capitals alone.

    >>> suggest("unifrom", ["entropy", "uniform"])
    "; did you mean 'uniform'?"
    >>> suggest("Mlp", ["CNN", "MLP"])
    "; did you mean 'MLP'?"
    """
    if str(name) in aliases:
        return f"; did you mean {aliases[str(name)]!r}?"
    if same := [one for one in known if one.lower() == str(name).lower()]:
        return f"; did you mean {same[0]!r}?"
    begin = [one for one in known if len(str(name)) > 2 and one.startswith(str(name))]
    near = begin if len(begin) == 1 else difflib.get_close_matches(str(name), [*known, *aliases], n=1, cutoff=0.5)
    return f"; did you mean {aliases.get(near[0], near[0])!r}?" if near else ""
