"""Other names of keys and parameters: short forms, and names from earlier versions and other libraries."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedjax_sel.config import callbacks
from fedjax_sel.config.checks import list_parameters
from fedjax_sel.config.components import KINDS, list_source_parameters
from fedjax_sel.config.marks import DIGEST, takes_path
from fedjax_sel.engine.experiment import SHORT
from fedjax_sel.engine.layout import Layout

OTHER = {
    "signals_on": "signal_split",
    "mapping": "layout",
    "strategy": "client_selection",
    "dataset": "data",
    "num_rounds": "rounds",
    "comm_rounds": "rounds",
    "clients_per_round": "cohort_size",
    "fraction_fit": "cohort_size",
    "num_clients": "partition.clients",
    "n_clients": "partition.clients",
    "clients": "partition.clients",
    "local_epochs": "local_training.epochs",
    "epochs": "local_training.epochs",
    "lr": "local_training.learning_rate",
    "learning_rate": "local_training.learning_rate",
    "batch_size": "local_training.batch_size",
    "batchsize": "local_training.batch_size",
    "momentum": "local_training.momentum",
    "weight_decay": "local_training.weight_decay",
}
"""Names from earlier versions and other libraries; users who give one are told its name here."""

PARAMETERS: dict[str, dict[str, str]] = {
    "data": {"rows": "num_examples", "test_rows": "num_test_examples"},
    "public": {"rows": "num_examples", "test_rows": "num_test_examples"},
    "partition": {"min_rows": "min_examples"},
    "client_selection": {
        "rho": "temperature",
        "share": "fraction",
        "rate": "fraction",
        "alpha1": "fraction",
        "against": "reference",
        "on": "split",
        "over": "norm_over",
    },
    "data_selection": {"rho": "temperature", "share": "fraction"},
    "local_training": {"lr": "learning_rate", "local_epochs": "epochs"},
    "aggregation": {"by": "weighting", "optimiser": "optimizer"},
    "layout": {"rows": "examples"},
}
"""Old names of the components' parameters, by key; read if a component has the new parameter but not the old one."""


def rename(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns a copy with the names used here and callbacks as a mapping, and a mapping from old to new names.

    Short forms (`SHORT`) are not listed as renamed.

    Raises:
      ValueError: a value is given under two names, or contains itself.

    >>> rename({"selector": {"name": "entropy", "rho": 2.0}, "lr": 0.1})[0]
    {'client_selection': {'name': 'entropy', 'temperature': 2.0}, 'local_training': {'learning_rate': 0.1}}
    >>> rename({"selector": {"name": "entropy", "rho": 2.0}, "lr": 0.1})[1]
    {'lr': 'local_training.learning_rate', 'client_selection.rho': 'client_selection.temperature'}
    """
    try:
        out, renamed = copy_apart(config), {}
    except RecursionError:
        raise ValueError("the configuration holds a mapping that contains itself, as by an anchor within it") from None
    for alias, name in (SHORT | OTHER).items():
        if alias in out:
            put(out, name, translate_value(alias, out.pop(alias)), alias)
            if alias in OTHER:
                renamed[alias] = name
    for key in PARAMETERS:
        for old in list(out[key]) if isinstance(out.get(key), dict) else []:
            if (name := translate_parameter(out, f"{key}.{old}")) != f"{key}.{old}":
                put(out, name, out[key].pop(old), f"{key}.{old}")
                renamed[f"{key}.{old}"] = name
    if "callbacks" in out:
        out["callbacks"] = callbacks.normalize_callbacks(out["callbacks"])
    return out, renamed


def copy_apart(value: Any) -> Any:
    """Returns a copy of nested mappings and lists in which none is shared, as a YAML file's anchors share them.

    >>> both = copy_apart({"a": (one := {"b": 1}), "c": one})
    >>> both["a"] is both["c"]
    False
    """
    if isinstance(value, Mapping):
        return {key: copy_apart(one) for key, one in value.items()}
    return [copy_apart(one) for one in value] if isinstance(value, list) else copy.deepcopy(value)


def translate_key(key: str) -> str:
    """Returns the name of a dotted key here; parameters are translated only if every component has them.

    >>> translate_key("lr"), translate_key("selector.epsilon"), translate_key("m")
    ('local_training.learning_rate', 'client_selection.epsilon', 'cohort_size')
    """
    key = expand_short_form(key)
    head, dot, rest = key.partition(".")
    return OTHER.get(head, head) + dot + rest


def translate_value(key: str, value: Any) -> Any:
    """Returns the value that a key's name here has if the key that was written has `value`.

    >>> translate_value("fraction_fit", 1), translate_value("m", 1)  # the share of all clients, and one client
    (1.0, 1)
    """
    return float(value) if key == "fraction_fit" and type(value) is int else value


def expand_short_form(key: str) -> str:
    """Returns a dotted key with its first part expanded to its full name."""
    head, dot, rest = key.partition(".")
    return SHORT.get(head, head) + dot + rest


def translate_parameter(config: Mapping[str, Any], key: str) -> str:
    """Returns the name of a dotted parameter here, given the component that a configuration names.

    >>> translate_parameter({"aggregation": "mean"}, "aggregation.by")
    'aggregation.weighting'
    """
    head, dot, rest = key.partition(".")
    new = PARAMETERS.get(head, {}).get(rest)
    if new is None:
        return key
    known = list_known_parameters(config, head)
    return head + dot + new if new in known and rest not in known else key


def list_known_parameters(config: Mapping[str, Any], key: str) -> frozenset[str]:
    """Returns the parameters of the component that a configuration names at `key`; empty if it does not exist."""
    given = config.get(key)
    name = given.get("name") if isinstance(given, Mapping) else given
    if key == "layout":
        return frozenset(list_parameters(Layout))
    try:
        if key in KINDS:
            return frozenset(KINDS[key].known(name or KINDS[key].default or ""))
        return frozenset(list_source_parameters(name) if isinstance(name, str) else ())
    except ValueError:  # the name is checked elsewhere, and the error raised there
        return frozenset()


def names_file(config: Mapping[str, Any], key: str) -> bool:
    """Returns whether a dotted key is a parameter that names files, of a component with a mark of what they contain."""
    head, _, rest = key.partition(".")
    given = config.get(head)
    if not (isinstance(given, dict) and given.keys() >= {"name", DIGEST} and rest):
        return False
    known = KINDS[head].known(given["name"]) if head in KINDS else list_source_parameters(given["name"])
    return rest in ("pretrained", "data_dir") or (rest in known and takes_path(known[rest].annotation))


def split_key(key: str) -> list[str]:
    """Returns the names in a dotted key.

    >>> split_key("callbacks.mine.py:Log.every")
    ['callbacks', 'mine.py:Log', 'every']
    """
    return re.split(r"\.(?!py:)", key)


def put(config: dict[str, Any], key: str, value: Any, alias: str | None = None) -> None:
    """Sets a dotted key.

    Args:
      config: the configuration, changed in place.
      key: the dotted key; a bare component name along its path becomes a mapping.
      value: the new value.
      alias: the other name that the value was given under; if not None, the key must not be set already.

    Raises:
      ValueError: the key is set already, or something along its path has no parameters.
    """
    *path, last = split_key(key)
    for name in path:
        inner = config.get(name)
        config[name] = {"name": inner} if isinstance(inner, str) else {} if inner is None else inner
        config = config[name]
        if not isinstance(config, dict):
            raise ValueError(f"{key}: {name} is {config!r}, which has no parameters")
    if alias is not None and last in config:
        raise ValueError(f"{alias} and {key} are the same; give one of them (it is called {key} here)")
    config[last] = value


def describe_renames(given: Mapping[str, Any], items: Iterable[str] = ()) -> Iterator[str]:
    """Yields a line for each name, in a configuration or on the command line, that has another name here.

    Args:
      given: a configuration as it was written.
      items: `key=value` strings.

    >>> list(describe_renames({"lr": 0.1, "m": 5}, ["mapping=scan", "selector=entropy"]))
    ['lr is local_training.learning_rate here', 'mapping is layout here']
    """
    out, renamed = rename(given)
    for item in items:
        key = item.partition("=")[0]
        if (name := translate_parameter(out, translate_key(key))) != expand_short_form(key):
            renamed[key] = name
    for old, name in renamed.items():
        yield f"{old} is {name} here"
