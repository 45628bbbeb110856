"""Strategies by name: a folder is the list of what is in it."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
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


def check_name(what: str, name: Any, known: Iterable[str], aliases: Mapping[str, str] = {}) -> None:
    """Raises `ValueError` naming the nearest of `known` where `name` is not one of them.

    Args:
      what: it names, for the error.
      name: as given.
      known: the names there are.
      aliases: other names of some of them, which it may have been meant to be.

    >>> check_name("client selection", "entrop", ["entropy", "uniform"])
    Traceback (most recent call last):
    ValueError: unknown client selection 'entrop'; did you mean 'entropy'? There are: entropy, uniform
    """
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(str(name), [*known, *aliases], n=1, cutoff=0.5)
        hint = f"; did you mean {aliases.get(near[0], near[0])!r}?" if near else "."
        raise ValueError(f"unknown {what} {name!r}{hint} There are: {', '.join(known)}")
