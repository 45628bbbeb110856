"""Resolves what a user wrote to a complete configuration, or raises an error that says what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from fedjax_sel.catalog import check_name, see
from fedjax_sel.collectives import CLIENTS
from fedjax_sel.config import callbacks, marks, own
from fedjax_sel.config.checks import Parameter, coerce, complete, get_type_hints, list_parameters, split_component
from fedjax_sel.config.components import KINDS, SYNTHETIC, complete_marked, list_source_parameters
from fedjax_sel.config.config import Config, write_seeds
from fedjax_sel.config.files import parse_yaml
from fedjax_sel.config.names import (
    SHORT,
    names_file,
    put,
    rename,
    split_key,
    translate_key,
    translate_parameter,
    translate_value,
)
from fedjax_sel.config.task import resolve_task
from fedjax_sel.data import sources
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.execution import PLACES
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import SEEDS, Layout

ANSWERS = tuple(field.name for field in dataclasses.fields(Experiment) if field.name in KINDS)
"""The fields of an experiment that are components."""

NUMBERS = tuple(f.name for f in dataclasses.fields(Experiment) if f.name not in (*KINDS, "task", "deadline"))
"""The fields of an experiment that are plain values."""

KEYS = (
    *("data", "public", "partition", "holdout", "data_seed", "model", "task"),
    *(name for name in ANSWERS if name not in ("availability", "volatility")),
    *("devices", "availability", "volatility", "deadline"),
    *NUMBERS,
    *("seeds", "layout", "mesh", "examples_on", "chunk", "callbacks"),
)
COMPONENTS = ("data", "public", *KINDS)
NAMED_LAYOUTS = ("auto", "vmap", "scan")


def list_plain_keys() -> dict[str, Parameter]:
    """Returns the keys that are not components."""
    hints, defaults = get_type_hints(Experiment), {f.name: f.default for f in dataclasses.fields(Experiment)}
    return {name: Parameter(hints[name], defaults[name]) for name in NUMBERS} | {
        "holdout": Parameter(float, 0.0),
        "data_seed": Parameter(int | None, None),
        "chunk": Parameter(int | None, None),
        "seeds": Parameter(int | tuple[int, ...], 5),
    }


@see("docs/how-to/command-line.md")
def resolve(given: Mapping[str, Any]) -> Config:
    """Returns the complete configuration, with the names used here and every parameter of every chosen component.

    A configuration that is already resolved is returned unchanged.

    Raises:
      ValueError: a key or name is unknown (the message gives the nearest), or a value has the wrong type.

    >>> resolve({"data": "iris", "lr": 1, "client_selection": "entropy"})["local_training"]["learning_rate"]
    1.0
    """
    if isinstance(given, Config):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"a configuration is a mapping of keys to values, not {given!r}")
    config, _ = rename(given)
    for key in config:
        check_name("key", key, KEYS, SHORT)
    if config.get("data") is None:
        raise ValueError("data is missing; name a source, as in `data: digits`")
    out: dict[str, Any] = {"data": resolve_source("data", config["data"])}
    out["public"] = resolve_public(config.get("public"))
    if out["data"]["name"] in SYNTHETIC:
        asked = config.get("partition")
        if asked is None or (isinstance(asked, Mapping) and "name" not in asked):
            config["partition"] = {"name": "natural", **(asked or {})}
    for key, kind in KINDS.items():
        out[key] = kind.resolve(key, config.get(key))
    for key, parameter in list_plain_keys().items():
        out[key] = coerce(key, config.get(key, parameter.default), parameter.annotation)
    out["seeds"] = write_seeds(out["seeds"])
    out["task"] = resolve_task(config.get("task"))
    out["deadline"] = resolve_deadline(config.get("deadline"))
    out["layout"] = resolve_layout(config.get("layout", "auto"))
    out["mesh"] = resolve_mesh(config.get("mesh"))
    out["examples_on"] = resolve_place(config.get("examples_on"))
    out["callbacks"] = callbacks.resolve_callbacks(config.get("callbacks"))
    return Config({key: out[key] for key in KEYS})


TABLES = ("csv", "parquet", "json")
"""Kinds of files that are no sources of examples, but may be named like one (`csv` is also a module of Python's)."""


@see("`fedjax-sel list data`")
def resolve_source(key: str, given: Any) -> dict:
    """Returns a source of examples with all its parameters."""
    name, rest = split_component(key, given, None)
    if isinstance(name, str) and name.partition(":")[0] in TABLES:
        raise ValueError(
            f"{key} {name}: tables are read in Python; write a function that returns fs.dataset(...), with the clients "
            "as its owner, in a file of your own, and name it, as in data=mine.py:make partition=natural"
        )
    known = list_source_parameters(name)
    part = own.load_function(key, name) if own.names_own_code(name) else None
    if part is not None and (seed := known.get("seed")):  # null: each seed of the run draws its own examples
        known = {**known, "seed": dataclasses.replace(seed, annotation=seed.annotation | None)}
    found = [*marks.list_paths(known, rest), *sources.list_files(name, rest.get("data_dir"))]
    return complete_marked(key, name, part, rest, known, marks.digest_files(found))


def resolve_public(given: Any) -> dict | None:
    """Returns the source of public examples with all its parameters; None if there is none."""
    if given is None:
        return None
    source = resolve_source("public", given)
    if source["name"] in SYNTHETIC:
        raise ValueError(
            f"public.name is {source['name']!r}, which is drawn from the seed of a run; "
            "name examples that stay the same"
        )
    if source.get("seed", 0) is None:
        raise ValueError("public.seed is null, which draws other examples for each seed of a run; give a whole number")
    return source


@see("docs/how-to/memory.md")
def resolve_layout(given: Any) -> str | dict:
    """Returns a layout's name, or its fields."""
    if isinstance(given, dict) and "name" in given:
        fields = ", ".join(f"layout.{name}" for name in given if name != "name")
        raise ValueError(f"layout is {given['name']!r}, and {fields} is given, too; give a name or fields, not both")
    if isinstance(given, dict):
        return complete("layout", "", given, list_parameters(Layout, without=("mesh",)))
    check_name("layout", given, NAMED_LAYOUTS)
    return given


@see("docs/how-to/memory.md")
def resolve_place(given: Any) -> str | None:
    """Returns where the training examples are stored; None: on the device if they fit."""
    if given is not None:
        check_name("examples_on", given, PLACES)
    return None if given == "auto" else given


@see("docs/how-to/many-devices.md")
def resolve_mesh(given: Any) -> dict | None:
    """Returns the number of devices that seeds and clients are divided among; None: chosen by `simulate`."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"mesh is {given!r}; it must be a mapping, as in {{seeds: 2, clients: 4}}")
    mesh = complete("mesh", "", given, {name: Parameter(int, 1) for name in (SEEDS, CLIENTS)})
    for name, size in mesh.items():
        if size < 1:
            raise ValueError(f"mesh.{name} is {size}; it must be at least 1, the number of devices along that axis")
    return mesh


@see("docs/how-to/devices.md")
def resolve_deadline(given: Any) -> dict:
    """Returns the fields of a deadline, which is infinite if none is given."""
    if not isinstance(given, dict | None):
        raise ValueError(f"deadline is {given!r}; it must be a mapping, as in {{seconds: 60, late: drop}}")
    fields = complete("deadline", "", given or {}, list_parameters(Deadline))
    late = Deadline(**fields).late  # one of those that there are
    if given and "late" in given and "seconds" not in given:
        raise ValueError(
            f"deadline.late is {late!r}, but deadline.seconds is not given, so that nobody is late; give "
            "both, as in deadline.seconds=60"
        )
    return fields


@see("docs/how-to/command-line.md")
def override(
    given: Mapping[str, Any],
    items: Iterable[str],
    options: Mapping[str, Any] = MappingProxyType({}),
    flags: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns a copy of a configuration, with the names used here and with some values replaced.

    `client_selection=power_of_choice` replaces another component and its parameters (if it is the one that is there,
    they stay), and `client_selection.d=20` replaces one parameter; their order does not matter. Values are read as
    YAML.

    Args:
      given: the configuration.
      items: `key=value` strings.
      options: values of whole keys, by their names here, as in `--seeds 3`; None: not given.
      flags: names of the options that are not called like their keys, for errors.

    Raises:
      ValueError: an item does not have the form `key=value`, its value is not YAML, or a value is given twice.

    >>> override({"selector": {"name": "entropy", "epsilon": 0.2}}, ["selector.d=20", "selector=power_of_choice"])
    {'client_selection': {'name': 'power_of_choice', 'd': 20}}
    >>> override({"selector": {"name": "entropy", "epsilon": 0.2}}, ["selector=entropy"])
    {'client_selection': {'name': 'entropy', 'epsilon': 0.2}}
    """
    config, _ = rename(given)
    named, known = {f"{key}.name": key for key in COMPONENTS}, {}
    changes = [(key, value, f"--{flags.get(key, key)} {value}") for key, value in options.items() if value is not None]
    changes += [read_item(item) for item in items]
    changes = [(named.get(key, key), value, item) for key, value, item in changes]
    for key, value, item in sorted(changes, key=lambda change: change[0].count(".")):
        key = translate_parameter(config, key)
        check_once(known, key, item)
        if key == "callbacks":
            value = callbacks.normalize_callbacks(value)
        if names_file(config, key):
            config[key.partition(".")[0]].pop(marks.DIGEST, None)  # the mark of another file
        there = find_part(config, key)
        if isinstance(value, str) and there.get("name") == value:  # its parameters stay, and its code is today's
            for mark in marks.MARKS:
                there.pop(mark, None)
        else:
            put(config, key, {"name": value} if key in COMPONENTS and isinstance(value, str) else value)
    return config


def find_part(config: Any, key: str) -> dict:
    """Returns the mapping that stands at a dotted key; an empty one if there is none.

    >>> find_part({"local_training": {"schedule": {"name": "cosine"}}}, "local_training.schedule")
    {'name': 'cosine'}
    """
    for step in split_key(key):
        config = config.get(step) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}


@see("docs/how-to/command-line.md")
def read_item(item: str) -> tuple[str, Any, str]:
    """Returns the key (by its name here) and the value of `key=value`, and the item itself.

    Raises:
      ValueError: the item does not have that form, its key is unknown, or its value is not YAML.
    """
    written, equals, text = item.partition("=")
    if not equals or not written:
        raise ValueError(f"{item!r} is not of the form key=value, as in client_selection.epsilon=0.1")
    key = translate_key(written)
    check_name("key", key.split(".")[0], KEYS, SHORT)
    try:
        return key, translate_value(written, parse_yaml(text)), item
    except yaml.YAMLError as error:
        raise ValueError(f"{item!r}: the value cannot be read as YAML ({str(error).splitlines()[0]})") from error


def check_once(known: dict[str, str], key: str, item: str) -> None:
    """Raises `ValueError` if an item gives a key that another item gave; `known` maps each key to its first item."""
    if (other := known.setdefault(key, item)) is not item:
        raise ValueError(f"{other} and {item} both give {key}; give it once")
