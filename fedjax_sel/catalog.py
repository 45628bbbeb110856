"""Strategies by name: a folder is the list of what is in it; and where an error says to read on."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def available(package: str) -> list[str]:
    """Names of the strategies in a folder: its modules, less those that begin with an underscore.

    >>> "entropy" in available("fedjax_sel.client_selection")
    True
    """
    path = importlib.import_module(package).__path__
    return sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))


def load(package: str, name: str) -> Any:
    """The one class that the module `name` of `package` exports.

    Raises:
      ValueError: there is no such module; the nearest names are given.
    """
    check_name(package.rsplit(".", 1)[-1].replace("_", " "), name, available(package))
    module = importlib.import_module(f"{package}.{name}")
    (exported,) = module.__all__
    return getattr(module, exported)


def namespace(package: str, **private: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a folder, which show all its classes and import one when it is asked for.

    Args:
      package: the folder.
      private: modules of classes that do not stand in the `__all__` of a public one.

    >>> __getattr__, __dir__ = namespace("fedjax_sel.client_selection")
    >>> __getattr__("PowerOfChoice").__name__, "Uniform" in __dir__()
    ('PowerOfChoice', True)
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # asked for by import machinery and tools; nothing is read for them
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = {**private, **exports(package)}
        if name not in home:
            near = difflib.get_close_matches(name, home, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    def list_names() -> list[str]:
        public = {name for name, value in vars(importlib.import_module(package)).items() if is_public(name, value)}
        return sorted({*public, *private, *exports(package)})

    return get, list_names


def is_public(name: str, value: Any) -> bool:
    """Whether a folder shows a name that its `__init__` holds: its functions and its classes, not what it imports."""
    return not name.startswith("_") and callable(value) and value is not functools.partial


@functools.cache
def exports(package: str) -> Mapping[str, str]:
    """Module of each name that a module of the folder exports, read off its `__all__` without importing it.

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
      module: as it is imported.
      extra: of this library, that installs it.
      what: needs it, for the error.

    Raises:
      ValueError: it is not installed; the extra is named.

    >>> import_extra("no_such_package", "more", "this")
    Traceback (most recent call last):
    ValueError: this needs the package no_such_package, which is not installed: pip install 'fedjax-sel[more]'
    """
    check_installed(module.partition(".")[0], extra, what)
    return importlib.import_module(module)


def check_installed(package: str, extra: str, what: str) -> None:
    """Raises `ValueError`, which names the extra, where a package is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except ValueError:  # it was taken out of `sys.modules`
        found = None
    if found is None or found.origin is None:  # a folder of that name is not a package
        raise ValueError(
            f"{what} needs the package {package}, which is not installed: pip install 'fedjax-sel[{extra}]'"
        )


SEE = "see "
"""How a note of an error begins that says where to read on."""

NOTES = ("in ", "this is ", "several values ", SEE)
"""How the notes begin that this library adds to errors; JAX adds others."""


@contextmanager
def see(where: str) -> Iterator[None]:
    """Gives errors of what is done in it a note that says where to read on, unless they have one; also a decorator.

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
    """Adds the note where an error has none of the kind."""
    if not any(note.startswith(SEE) for note in list_notes(error)):
        error.add_note(SEE + where)


def list_notes(error: BaseException) -> list[str]:
    """Returns the notes that this library added to an error, where to read on last."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(NOTES)]
    return sorted(notes, key=lambda note: note.startswith(SEE))


def check_name(what: str, name: Any, known: Iterable[str], aliases: Mapping[str, str] = {}, more: str = "") -> None:
    """Raises `ValueError` naming the nearest of `known` where `name` is not one of them.

    Args:
      what: it names, for the error.
      name: as given.
      known: the names there are.
      aliases: other names of some of them, which it may have been meant to be.
      more: what else is allowed.

    >>> check_name("client selection", "entrop", ["entropy", "uniform"])
    Traceback (most recent call last):
    ValueError: unknown client selection 'entrop'; did you mean 'entropy'? There are: entropy, uniform
    """
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(str(name), [*known, *aliases], n=1, cutoff=0.5)
        hint = f"; did you mean {aliases.get(near[0], near[0])!r}?" if near else "."
        raise ValueError(f"unknown {what} {name!r}{hint} There are: {', '.join(known)}{more}")
