"""What a configuration can name: folders of strategies, models and partitions, devices, and sources of data."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import flax.linen as nn

from fedjax_sel import catalog
from fedjax_sel.config import own
from fedjax_sel.config.checks import REQUIRED, Parameter, complete, list_parameters, make_value
from fedjax_sel.data import sources
from fedjax_sel.data.federation import DeviceLaw, Partition
from fedjax_sel.data.synthetic import synthetic
from fedjax_sel.data.uacs import uacs
from fedjax_sel.devices import availability, laws, table
from fedjax_sel.protocols import Aggregator, Availability, ClientSelector, Correction, DataSelector, LocalTrainer


@dataclass(frozen=True)
class Kind:
    """A kind of component.

    Attributes:
      what: its name in errors and tables.
      package: the folder of which every module is one.
      default: the component where a configuration names none; None: there is none then.
      base: what a class of the user's must be a subclass of.
      filled: fields that are not the user's: they follow from the data.
      more: parameters that every component of the kind has besides its own.
    """

    what: str
    package: str
    default: str | None
    base: type
    filled: tuple[str, ...] = ()
    more: Mapping[str, Parameter] = field(default_factory=dict)

    def available(self) -> list[str]:
        """Returns the names of all components of the kind."""
        return catalog.available(self.package)

    def load(self, name: str) -> Any:
        """Returns the class of a component; raises `ValueError`, with the nearest name, where there is none."""
        if own.is_own(name):
            return own.load_class(self.what, name, self.base)
        more = f"; `fedjax-sel list {self.package.rpartition('.')[2]}` describes them"
        catalog.check_name(self.what, name, self.available(), more=more)
        module = importlib.import_module(f"{self.package}.{name}")
        exported = getattr(module, "__all__", None) or ["".join(part.capitalize() for part in name.split("_"))]
        return getattr(module, exported[0])

    def described_by(self, name: str) -> Any:
        """Returns the object whose docstring begins with a line on the component."""
        return importlib.import_module(f"{self.package}.{name}")

    def known(self, name: str) -> dict[str, Parameter]:
        """Returns the parameters of the component `name`."""
        part = self.load(name)
        of = list_parameters if hasattr(part, "__dataclass_fields__") else list_arguments
        return of(part, self.filled)

    def resolve(self, key: str, given: Any) -> dict | None:
        """Returns name and all parameters of the component that `given` describes; None where there is none."""
        if given is None and self.default is None:
            return None
        name, rest = split_component(key, given, self.default)
        code = own.check_code(key, self.load(name), rest) if own.is_own(name) else {}
        return {"name": name, **code} | complete(key, name, rest, {**self.known(name), **self.more})

    def build(self, resolved: dict | None, **filled: Any) -> Any:
        """Returns the value that a resolved component describes."""
        if resolved is None:
            return None
        known, make = self.known(resolved["name"]), self.load(resolved["name"])
        return make(**{k: make_value(resolved[k], p.annotation) for k, p in known.items() if k in resolved}, **filled)


OF_TASK = {
    "normalise": Parameter(bool | Literal["unit"], True),
    "pretrained": Parameter(str | None, None),
    "frozen": Parameter(tuple[str, ...], ()),
    "cached": Parameter(bool, True),
    "personal": Parameter(tuple[str, ...] | None, None),
}
"""Parameters that every model has besides its own: how examples are normalised, a file or run that it begins
with, names of parts that are not trained, whether a backbone that is not trained is run once for all examples, and
names of parts that each client keeps for itself."""


@dataclass(frozen=True)
class ListedKind(Kind):
    """Components of one module that are listed here: classes, or functions that read them from a file.

    Attributes:
      members: by name.
    """

    members: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def available(self) -> list[str]:
        """Returns the names of all components of the kind."""
        return list(self.members)

    def load(self, name: str) -> Callable[..., Any]:
        """Returns what makes a component; raises `ValueError`, with the nearest name, where there is none."""
        if own.is_own(name):
            return own.load_class(self.what, name, self.base)
        catalog.check_name(self.what, name, self.members)
        return self.members[name]

    def described_by(self, name: str) -> Any:
        """Returns the object whose docstring begins with a line on the component."""
        return self.members[name]

    def known(self, name: str) -> dict[str, Parameter]:
        """Returns the parameters of the component `name`."""
        return list_arguments(self.load(name), self.filled)


LAWS = {"uniform": laws.Uniform, "lognormal": laws.LogNormal, "tiers": laws.Tiers, "csv": table.from_csv}
AVAILABILITIES = {
    "always": availability.Always,
    "bernoulli": availability.Bernoulli,
    "classes": availability.Classes,
    "diurnal": availability.Diurnal,
    "trace": table.trace_from_file,
}
KINDS: dict[str, Kind] = {
    "partition": Kind("partition", "fedjax_sel.data.partition", "iid", Partition),
    "model": Kind("model", "fedjax_sel.models", "mlp", nn.Module, filled=("classes", "parent", "name"), more=OF_TASK),
    "client_selection": Kind("client selector", "fedjax_sel.client_selection", "uniform", ClientSelector),
    "data_selection": Kind("data selection", "fedjax_sel.data_selection", "everything", DataSelector),
    "local_training": Kind("local training", "fedjax_sel.local_training", "sgd", LocalTrainer),
    "correction": Kind("correction of local training", "fedjax_sel.correction", "none", Correction),
    "aggregation": Kind("aggregation", "fedjax_sel.aggregation", "mean", Aggregator),
    "fine_tuning": Kind("fine-tuning", "fedjax_sel.local_training", None, LocalTrainer),
    "devices": ListedKind("law of devices", "fedjax_sel.devices", None, DeviceLaw, members=LAWS),
    "availability": ListedKind(
        "availability", "fedjax_sel.devices", "always", Availability, filled=("phase",), members=AVAILABILITIES
    ),
    "volatility": ListedKind(
        "volatility", "fedjax_sel.devices", None, Availability, filled=("phase",), members=AVAILABILITIES
    ),
}

SYNTHETIC: dict[str, Callable[..., Any]] = {"synthetic": synthetic, "uacs": uacs}
"""Sources that are drawn from the seed of a run; their examples have natural owners."""

SOURCE_NAMES = (*SYNTHETIC, *sources.available(), "npz:PATH", "tfds:NAME", "hf:NAME", "MODULE:FUNCTION")


def list_source_parameters(name: str) -> dict[str, Parameter]:
    """Returns the parameters of a source of data.

    Raises:
      ValueError: there is no such source; the nearest is named.
    """
    if name in SYNTHETIC:
        return list_arguments(SYNTHETIC[name], without=("seed",))
    if own.is_own(name):
        return list_arguments(own.load_function("data", name), without=())
    if name in ("npz:PATH", "tfds:NAME", "hf:NAME", "MODULE:FUNCTION"):
        raise ValueError(f"data.name is {name!r}; put a file or a dataset in its place, as in 'tfds:fashion_mnist'")
    if not (name.startswith(("npz:", "tfds:", "hf:")) and name.partition(":")[2]):
        catalog.check_name("data", name, SOURCE_NAMES)
    return list_arguments(sources.load, without=("name",)) | {"seed": Parameter(int | None, 0)}


def list_arguments(function: Callable, without: tuple[str, ...]) -> dict[str, Parameter]:
    """Returns the arguments of a function that a configuration may set."""
    plain = isinstance(function, type) and not hasattr(function, "__dataclass_fields__")
    hints = typing.get_type_hints(function.__init__ if plain else function)
    return {
        name: Parameter(hints.get(name, Any), REQUIRED if p.default is inspect.Parameter.empty else p.default)
        for name, p in inspect.signature(function).parameters.items()
        if name not in without
    }


def split_component(key: str, given: Any, default: str | None) -> tuple[str, dict]:
    """Returns name and given parameters of a component written as a name or as a mapping."""
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
