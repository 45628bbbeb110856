"""The callbacks of a configuration: a mapping from their names to their parameters.

They are written as a name, a list of names and one-entry mappings, or the mapping itself:

    callbacks: table
    callbacks: [stopwatch, {early_stopping: {patience: 5}}]
    callbacks: {stopwatch: {}, early_stopping: {patience: 5}}
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedjax_sel.catalog import check_name, see
from fedjax_sel.config.components import Kind
from fedjax_sel.config.config import Config
from fedjax_sel.config.own import names_own_code
from fedjax_sel.engine.callback import Callback

PAGE = "docs/how-to/callbacks.md"
CALLBACKS = Kind(
    "callback", "fedjax_sel.callbacks", None, object, filled=("folder", "config"), page=PAGE, listed="callbacks"
)


@see(PAGE)
def normalize_callbacks(given: Any) -> dict[str, Any]:
    """Returns callbacks, given as a name, a list or a mapping, as a mapping; null gives an empty one.

    Raises:
      ValueError: `given` has none of these forms, or a name is given twice.

    >>> normalize_callbacks(["table", {"early_stopping": {"patience": 5}}])
    {'table': {}, 'early_stopping': {'patience': 5}}
    """
    out: dict[str, Any] = {}
    for one in given if isinstance(given, list | tuple) else [{} if given is None else given]:
        named = {one: {}} if isinstance(one, str) else one
        if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
            raise ValueError(
                f"callbacks is {given!r}; it must be a name, a list of names, or a mapping from names to parameters, "
                "as in {early_stopping: {patience: 5}}"
            )
        if twice := out.keys() & named.keys():
            raise ValueError(f"callbacks: {min(twice)} is given twice")
        out |= named
    return out


@see(PAGE)
def resolve_callbacks(given: Any) -> dict[str, dict]:
    """Returns every callback with all its parameters.

    Raises:
      ValueError: a callback (the message names the nearest) or parameter is unknown, or a value has the wrong type.
    """
    out = {}
    for name, rest in normalize_callbacks(given).items():
        if not names_own_code(name):
            with see("`fedjax-sel list callbacks`"):
                check_name("callback", name, CALLBACKS.available())
        if not isinstance(rest, dict | None) or "name" in (rest or {}):
            raise ValueError(f"callbacks.{name} is {rest!r}; it must be a mapping of its parameters")
        complete = CALLBACKS.resolve(f"callbacks.{name}", {"name": name, **(rest or {})}) or {}
        out[name] = {key: value for key, value in complete.items() if key != "name"}
    return out


@see(PAGE)
def make_callbacks(config: Config, folder: Path) -> list[Callback]:
    """Returns the callbacks of a configuration, for a run in `folder`.

    Raises:
      ValueError: a parameter is out of range, or a package is not installed.
    """
    own = {"folder": folder, "config": config.to_dict()}

    def make_one(name: str, given: dict) -> Callback:
        fields = inspect.signature(CALLBACKS.load(name)).parameters
        return CALLBACKS.build({"name": name, **given}, **{key: own[key] for key in own if key in fields})

    return [make_one(name, given) for name, given in config["callbacks"].items()]
