"""Complete configurations, resolved once and then used by everything that runs, stores or reports."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedjax_sel.catalog import see
from fedjax_sel.collectives import CLIENTS
from fedjax_sel.config.marks import CODE, MARKS
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.driver import check_seeds
from fedjax_sel.engine.layout import SEEDS, Layout


@dataclass(frozen=True, eq=False, repr=False)
class Config(Mapping[str, Any]):
    """The immutable configuration of a run: every key, and every parameter of every component; made by `resolve`.

    It is a mapping from keys to plain values (numbers, text, lists, dictionaries), and equal to a dictionary with the
    same items (`is_same`). Values for the simulator are typed properties: `seeds`, `layout`, `mesh`, `examples_on`,
    `deadline`, `chunk`, `data_seed`, `holdout`.

    Args:
      values: the value of every key.

    >>> from fedjax_sel.config import resolve
    >>> config = resolve({"data": "iris", "seeds": 2, "rounds": 7})
    >>> config["rounds"], config["data"]["name"], config.seeds
    (7, 'iris', (0, 1))
    """

    values: Mapping[str, Any]

    def __post_init__(self):
        """Copies the values, so that later changes to the argument have no effect."""
        object.__setattr__(self, "values", copy.deepcopy(dict(self.values)))

    def __getitem__(self, key: str) -> Any:
        """Returns a copy of a plain value."""
        return copy.deepcopy(self.values[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and is_same(self.values, dict(other))

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Config({dict(self.values)!r})"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs."""
        return check_seeds(self.values["seeds"])

    def with_seeds(self, seeds: Any) -> Config:
        """Returns this configuration with other seeds, given by their number or as a list."""
        return Config({**self.values, "seeds": write_seeds(seeds)})

    @property
    def layout(self) -> Layout | str:
        """How the axes of seeds and clients are run."""
        given = self.values["layout"]
        return Layout(**given) if isinstance(given, dict) else given

    @property
    def mesh(self) -> tuple[int, int] | str:
        """The number of devices that seeds and clients are divided among, as `simulate` takes it."""
        given = self.values["mesh"]
        return "auto" if given is None else (given[SEEDS], given[CLIENTS])

    @property
    @see("docs/how-to/devices.md")
    def deadline(self) -> Deadline:
        """When the server stops waiting."""
        return Deadline(**self.values["deadline"])

    @property
    def examples_on(self) -> str | None:
        """Where the training examples are stored, `"device"` or `"host"`; None: on the device if they fit."""
        return self.values["examples_on"]

    @property
    def chunk(self) -> int | None:
        """Rounds per call of the compiled program; None: chosen by the engine."""
        return self.values["chunk"]

    @property
    def data_seed(self) -> int | None:
        """Seed of the data's split and partition; None: the run's seed."""
        return self.values["data_seed"]

    @property
    def holdout(self) -> float:
        """The share of each client's examples that it does not train on."""
        return self.values["holdout"]

    @property
    def fingerprint(self) -> str:
        """A digest of the configuration in eight hexadecimal digits."""
        return fingerprint(self.values)

    def flat(self) -> dict[str, Any]:
        """Returns the values by dotted key."""
        return flat(self.values)

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Returns the dotted keys whose values differ between two configurations, the keys of `other` first."""
        one, two = flat(other), self.flat()
        return [key for key in one | two if key not in one or key not in two or not is_same(one[key], two[key])]

    def name_marked(self, key: str) -> str:
        """Returns what a mark (`code` or `digest`) is of: a user's class or function, or files; "" for another key."""
        *path, mark = find_path(self.values, key)
        if mark not in MARKS:
            return ""
        part: Any = functools.reduce(lambda inner, name: inner[name], path, self.values)
        if mark == CODE or ":" in part.get("name", ""):
            return part.get("name", path[-1])
        files = [str(one) for one in part.values() if isinstance(one, str) and Path(one).expanduser().exists()]
        return " or ".join(files) or f"a file of {path[-1]}"

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy as a plain dictionary."""
        return copy.deepcopy(dict(self.values))

    def dump(self) -> str:
        """Returns the configuration as YAML, one component per line."""
        return dump(self.values)


def write_seeds(seeds: Any) -> int | list[int]:
    """Returns seeds as configurations have them: their number, if they are numbered from 0.

    >>> write_seeds([0, 1, 2]), write_seeds([1, 2])
    (3, [1, 2])
    """
    seeds = check_seeds(seeds)
    return len(seeds) if seeds == tuple(range(len(seeds))) else list(seeds)


def find_path(config: Mapping[str, Any], key: str) -> list[str]:
    """Returns the keys, from the outermost on, to the value with a dotted key of `flat`; a key may have dots itself.

    >>> find_path({"callbacks": {"mine.py:Log": {"code": 1}}}, "callbacks.mine.py:Log.code")
    ['callbacks', 'mine.py:Log', 'code']
    """
    for name, value in config.items():
        if key == name:
            return [name]
        if key.startswith(f"{name}.") and isinstance(value, Mapping):
            return [name, *find_path(value, key.removeprefix(f"{name}."))]
    return [key]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of nested dictionaries by dotted key; an empty dictionary is a value.

    >>> flat({"a": {"b": 1, "c": {}}, "d": 2})
    {'a.b': 1, 'a.c': {}, 'd': 2}
    """
    out = {}
    for key, value in config.items():
        inside = isinstance(value, Mapping) and value
        out |= flat(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return out


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two plain values say the same: unlike for `==`, numbers of other types differ.

    >>> 1 == 1.0, is_same({"cohort_size": 1}, {"cohort_size": 1.0})  # one client, all clients
    (True, False)
    """
    return one == other and write(one) == write(other)


def fingerprint(values: Mapping[str, Any]) -> str:
    """Returns a digest of plain values in eight hexadecimal digits."""
    return hashlib.sha256(write(dict(values)).encode()).hexdigest()[:8]


def write(value: Any) -> str:
    """Returns a plain value as JSON, dictionaries by their sorted keys."""
    return json.dumps(value, sort_keys=True)


def write_value(value: Any) -> str:
    """Returns a plain value as a configuration file writes it; text is unchanged.

    >>> write_value(0.05), write_value("entropy"), write_value(None), write_value([32]), write_value(float("inf"))
    ('0.05', 'entropy', 'null', '[32]', '.inf')
    """
    return value if isinstance(value, str) else json.dumps(value).replace("Infinity", ".inf")


def dump(values: Mapping[str, Any]) -> str:
    """Returns plain values as YAML, one component per line."""
    return yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None, allow_unicode=True, width=2**20)
