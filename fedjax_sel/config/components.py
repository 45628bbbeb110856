"""What a configuration can name: folders of strategies, models and partitions, devices, and sources of data."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedjax_sel import catalog
from fedjax_sel.config.checks import REQUIRED, Parameter, complete, make_value, parameters
from fedjax_sel.data import sources
from fedjax_sel.data.uacs import uacs
from fedjax_sel.devices import availability, laws, table


@dataclass(frozen=True)
class Kind:
    """A kind of component.

    Attributes:
      what: its name in errors and tables.
      package: the folder of which every module is one.
      default: the component where a configuration names none; None: there is none then.
      filled: fields that are not the user's: they follow from the data.
    """

    what: str
    package: str
    default: str | None
    filled: tuple[str, ...] = ()

    def available(self) -> list[str]:
        """Names of all components of the kind."""
        return catalog.available(self.package)

    def load(self, name: str) -> Any:
        """The class of one; raises `ValueError` naming the nearest where there is none."""
        catalog.check_name(self.what, name, self.available())
        module = importlib.import_module(f"{self.package}.{name}")
        exported = getattr(module, "__all__", None) or ["".join(part.capitalize() for part in name.split("_"))]
        return getattr(module, exported[0])

    def described_by(self, name: str) -> Any:
        """Whose docstring begins with a line about the component."""
        return importlib.import_module(f"{self.package}.{name}")

    def known(self, name: str) -> dict[str, Parameter]:
        """The parameters of the component `name`."""
        return parameters(self.load(name), self.filled)

    def resolve(self, key: str, given: Any) -> dict | None:
        """Name and all parameters of the component that `given` describes; None where there is none."""
        if given is None and self.default is None:
            return None
        name, rest = split(key, given, self.default)
        return {"name": name} | complete(key, name, rest, self.known(name))

    def build(self, resolved: dict | None, **filled: Any) -> Any:
        """The value that a resolved component describes."""
        if resolved is None:
            return None
        known, make = self.known(resolved["name"]), self.load(resolved["name"])
        return make(**{k: make_value(resolved[k], p.annotation) for k, p in known.items() if k in resolved}, **filled)


OF_TASK = {
    "normalise": Parameter(bool, True),
    "pretrained": Parameter(str | None, None),
    "frozen": Parameter(tuple[str, ...], ()),
    "cached": Parameter(bool, True),
}
"""Parameters that every model has besides its own: whether examples are normalised, a file or run that it begins with,
names of parts that are not trained, and whether a backbone that is not trained is run once for all examples."""


class ModelKind(Kind):
    """Models have more parameters, which are the task's."""

    def resolve(self, key: str, given: Any) -> dict:
        """As for every kind."""
        name, rest = split(key, given, self.default)
        return {"name": name} | complete(key, name, rest, self.known(name) | OF_TASK)


@dataclass(frozen=True)
class ListedKind(Kind):
    """Components of one module that are listed here: classes, or functions that read them from a file.

    Attributes:
      members: by name.
    """

    members: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def available(self) -> list[str]:
        """Names of all components of the kind."""
        return list(self.members)

    def load(self, name: str) -> Callable[..., Any]:
        """What makes one; raises `ValueError` naming the nearest where there is none."""
        catalog.check_name(self.what, name, self.members)
        return self.members[name]

    def described_by(self, name: str) -> Any:
        """Whose docstring begins with a line about the component."""
        return self.members[name]

    def known(self, name: str) -> dict[str, Parameter]:
        """The parameters of the component `name`."""
        return of_function(self.load(name), self.filled)


LAWS = {"uniform": laws.Uniform, "lognormal": laws.LogNormal, "tiers": laws.Tiers, "csv": table.from_csv}
AVAILABILITIES = {
    "always": availability.Always,
    "bernoulli": availability.Bernoulli,
    "diurnal": availability.Diurnal,
    "trace": table.trace_from_csv,
}
KINDS: dict[str, Kind] = {
    "partition": Kind("partition", "fedjax_sel.data.partition", "iid"),
    "model": ModelKind("model", "fedjax_sel.models", "mlp", filled=("classes", "parent", "name")),
    "client_selection": Kind("client selector", "fedjax_sel.client_selection", "uniform"),
    "data_selection": Kind("data selection", "fedjax_sel.data_selection", "everything"),
    "local_training": Kind("local training", "fedjax_sel.local_training", "sgd"),
    "correction": Kind("correction of local training", "fedjax_sel.correction", "none"),
    "aggregation": Kind("aggregation", "fedjax_sel.aggregation", "mean"),
    "devices": ListedKind("law of devices", "fedjax_sel.devices", None, members=LAWS),
    "availability": ListedKind(
        "availability", "fedjax_sel.devices", "always", filled=("phase",), members=AVAILABILITIES
    ),
    "volatility": ListedKind("volatility", "fedjax_sel.devices", "always", filled=("phase",), members=AVAILABILITIES),
}

SYNTHETIC: dict[str, Callable[..., Any]] = {"uacs": uacs}
"""Sources that are drawn from the seed of a run; their examples have natural owners."""

SOURCE_NAMES = (*SYNTHETIC, *sources.available(), "npz:PATH", "tfds:NAME")


def source_parameters(name: str) -> dict[str, Parameter]:
    """The parameters of a source of data.

    Raises:
      ValueError: there is no such source; the nearest is named.
    """
    if name in SYNTHETIC:
        return of_function(SYNTHETIC[name], without=("seed",))
    if name in ("npz:PATH", "tfds:NAME"):
        raise ValueError(f"data.name is {name!r}; put a file or a dataset in its place, as in 'tfds:fashion_mnist'")
    if not (name.startswith(("npz:", "tfds:")) and name.partition(":")[2]):
        catalog.check_name("data", name, SOURCE_NAMES)
    return of_function(sources.load, without=("name",)) | {"seed": Parameter(int | None, 0)}


def of_function(function: Callable, without: tuple[str, ...]) -> dict[str, Parameter]:
    """The arguments of a function that a configuration may set."""
    hints = typing.get_type_hints(function)
    return {
        name: Parameter(hints.get(name, Any), REQUIRED if p.default is inspect.Parameter.empty else p.default)
        for name, p in inspect.signature(function).parameters.items()
        if name not in without
    }


def split(key: str, given: Any, default: str | None) -> tuple[str, dict]:
    """Name and given parameters of a component written as a name or as a mapping."""
    if given is None:
        given = {}
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, dict):
        raise ValueError(f"{key} is {given!r}; it must be a name, or a mapping with a name and parameters")
    name = given.get("name", default)
    if not isinstance(name, str):
        raise ValueError(f"{key}.name is {name!r}; it must be a name")
    return name, {k: v for k, v in given.items() if k != "name"}
