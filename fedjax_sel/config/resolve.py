"""From what a user wrote to a complete configuration, or to an error that says what is wrong with it."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from fedjax_sel.catalog import check_name
from fedjax_sel.config import callbacks
from fedjax_sel.config.checks import Parameter, complete, fitted, parameters
from fedjax_sel.config.components import KINDS, SYNTHETIC, source_parameters, split
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.collectives import CLIENTS
from fedjax_sel.engine.driver import checked_seeds
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import SEEDS, Layout

ALIASES = {
    "selector": "client_selection",
    "samples": "data_selection",
    "trainer": "local_training",
    "aggregator": "aggregation",
    "m": "cohort_size",
    "signals_on": "signal_split",
    "mapping": "layout",
    "strategy": "client_selection",
    "dataset": "data",
    "num_rounds": "rounds",
    "comm_rounds": "rounds",
    "clients_per_round": "cohort_size",
    "fraction_fit": "cohort_size",
    "num_clients": "partition.clients",
    "local_epochs": "local_training.epochs",
    "epochs": "local_training.epochs",
    "lr": "local_training.learning_rate",
    "learning_rate": "local_training.learning_rate",
    "batch_size": "local_training.batch_size",
    "momentum": "local_training.momentum",
    "weight_decay": "local_training.weight_decay",
    "local_training.lr": "local_training.learning_rate",
    "local_training.local_epochs": "local_training.epochs",
}
"""Other names the field uses, and what they are called here."""

KEYS = (
    *("data", "public", "partition", "holdout", "data_seed", "model"),
    *("client_selection", "data_selection", "local_training", "correction", "aggregation"),
    *("devices", "availability", "deadline"),
    *("cohort_size", "rounds", "evaluate_every", "evaluate_last", "signal_split", "seeds", "layout", "mesh", "chunk"),
    "callbacks",
)
COMPONENTS = ("data", "public", *KINDS)
NAMED_LAYOUTS = ("auto", "vmap", "scan")


def plain_keys() -> dict[str, Parameter]:
    """The keys that are no components."""
    hints, defaults = typing.get_type_hints(Experiment), {f.name: f.default for f in dataclasses.fields(Experiment)}
    of_experiment = ("cohort_size", "rounds", "evaluate_every", "evaluate_last", "signal_split")
    return {name: Parameter(hints[name], defaults[name]) for name in of_experiment} | {
        "holdout": Parameter(float, 0.0),
        "data_seed": Parameter(int | None, None),
        "chunk": Parameter(int | None, None),
        "seeds": Parameter(int | tuple[int, ...], 5),
    }


def resolve(config: dict) -> dict:
    """The complete configuration: canonical names, and every parameter of every chosen component.

    Resolving twice changes nothing.

    Raises:
      ValueError: unknown keys or names (the nearest is given), or values of the wrong type.

    >>> resolve({"data": "iris", "lr": 1, "client_selection": "entropy"})["local_training"]["learning_rate"]
    1.0
    """
    if not isinstance(config, dict):
        raise ValueError(f"a configuration is a mapping of keys to values, not {config!r}")
    config = canonical(config)
    for key in config:
        check_name("key", key, KEYS)
    if config.get("data") is None:
        raise ValueError("data is missing; name a source, as in `data: digits`")
    name, rest = split("data", config["data"], None)
    out: dict[str, Any] = {"data": {"name": name} | complete("data", name, rest, source_parameters(name))}
    out["public"] = public(config.get("public"))
    if name in SYNTHETIC:
        config.setdefault("partition", "natural")
    for key, kind in KINDS.items():
        out[key] = kind.resolve(key, config.get(key))
    for key, parameter in plain_keys().items():
        out[key] = fitted(key, config.get(key, parameter.default), parameter.annotation)
    seeds = checked_seeds(out["seeds"])
    out["seeds"] = len(seeds) if seeds == tuple(range(len(seeds))) else list(seeds)
    out["deadline"] = deadline(config.get("deadline"))
    out["layout"] = layout(config.get("layout", "auto"))
    out["mesh"] = mesh(config.get("mesh"))
    out["callbacks"] = callbacks.resolved(config.get("callbacks"))
    return {key: out[key] for key in KEYS}


def public(given: Any) -> dict | None:
    """The source of public rows with all its parameters; None where there is none."""
    if given is None:
        return None
    name, rest = split("public", given, None)
    if name in SYNTHETIC:
        raise ValueError(
            f"public.name is {name!r}, which is drawn from the seed of a run; name rows that stay the same"
        )
    return {"name": name} | complete("public", name, rest, source_parameters(name))


def layout(given: Any) -> str | dict:
    """A layout's name, or its fields."""
    if isinstance(given, dict):
        return complete("layout", "", given, parameters(Layout, without=("mesh",)))
    check_name("layout", given, NAMED_LAYOUTS)
    return given


def mesh(given: Any) -> dict | None:
    """Among how many devices seeds and clients are divided; None: there is one device."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"mesh is {given!r}; it must be a mapping, as in {{seeds: 2, clients: 4}}")
    return complete("mesh", "", given, {name: Parameter(int, 1) for name in (SEEDS, CLIENTS)})


def deadline(given: Any) -> dict:
    """The fields of a deadline; infinite where none is given."""
    if not isinstance(given, dict | None):
        raise ValueError(f"deadline is {given!r}; it must be a mapping, as in {{seconds: 60, late: drop}}")
    return complete("deadline", "", given or {}, parameters(Deadline))


def canonical(config: dict) -> dict:
    """A copy in which every alias is written under its own name, and callbacks as a mapping.

    Raises:
      ValueError: a value is given under two names.
    """
    config = copy.deepcopy(config)
    for alias in ALIASES:
        if alias not in set(keys(config)):
            continue
        *path, last = alias.split(".")
        holder = config if not path else config[path[0]]
        put(config, ALIASES[alias], holder.pop(last), alias)
    if "callbacks" in config:
        config["callbacks"] = callbacks.by_name(config["callbacks"])
    return config


def aliases_in(config: dict) -> list[str]:
    """The keys of a configuration that go by another name here (`ALIASES`)."""
    return [alias for alias in ALIASES if alias in set(keys(config))]


def own_name(key: str) -> str:
    """What a dotted key is called here.

    >>> own_name("lr"), own_name("selector.epsilon"), own_name("m")
    ('local_training.learning_rate', 'client_selection.epsilon', 'cohort_size')
    """
    head, dot, rest = key.partition(".")
    return ALIASES.get(key, ALIASES.get(head, head) + dot + rest)


def keys(config: dict, prefix: str = "") -> Iterator[str]:
    """All dotted keys, of components too."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{prefix}{key}.")


def put(config: dict, key: str, value: Any, alias: str | None = None) -> None:
    """Set a dotted key; where `alias` is given, it must not be set already."""
    *path, last = key.split(".")
    for name in path:
        inner = config.get(name)
        config[name] = {"name": inner} if isinstance(inner, str) else {} if inner is None else inner
        config = config[name]
        if not isinstance(config, dict):
            raise ValueError(f"{key}: {name} is {config!r}, which has no parameters")
    if alias is not None and last in config:
        raise ValueError(f"{alias} and {key} are the same; give one of them (it is called {key} here)")
    config[last] = value


def override(config: dict, items: Iterable[str]) -> dict:
    """A copy of a configuration with some values replaced.

    `client_selection=power_of_choice` replaces the whole component, `client_selection.d=20` one of its parameters, whatever their
    order. Values are read as YAML.

    Raises:
      ValueError: an item is not `key=value`, or its value is not YAML.

    >>> override({"selector": {"name": "entropy", "epsilon": 0.2}}, ["selector.d=20", "selector=power_of_choice"])
    {'client_selection': {'name': 'power_of_choice', 'd': 20}}
    """
    config, changes = canonical(config), []
    named = {f"{key}.name": key for key in COMPONENTS}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise ValueError(f"{item!r} is not of the form key=value, as in client_selection.epsilon=0.1")
        key = own_name(key)
        check_name("key", key.split(".")[0], KEYS)
        try:
            changes.append((named.get(key, key), yaml.safe_load(text)))
        except yaml.YAMLError as error:
            raise ValueError(f"{item!r}: the value cannot be read as YAML ({str(error).splitlines()[0]})") from error
    for key, value in sorted(changes, key=lambda change: change[0].count(".")):
        if key == "callbacks":
            value = callbacks.by_name(value)
        put(config, key, {"name": value} if key in COMPONENTS and isinstance(value, str) else value)
    return config


def differences(a: dict, b: dict) -> list[str]:
    """The dotted keys in which two configurations differ."""
    one, other = flat(a), flat(b)
    return [key for key in one | other if key not in one or key not in other or one[key] != other[key]]


def flat(config: dict, prefix: str = "") -> dict[str, Any]:
    """Dotted keys with their values."""
    out = {}
    for key, value in config.items():
        inside = isinstance(value, dict) and value  # an empty mapping is a value
        out |= flat(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return out


def fingerprint(config: dict) -> str:
    """Eight hexadecimal digits that differ where resolved configurations do."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
