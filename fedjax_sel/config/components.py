"""The components that a configuration can name: strategies, models, partitions, devices, and sources of data."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import flax.linen as nn
from flax import nnx

from fedjax_sel import catalog
from fedjax_sel.config import marks, own
from fedjax_sel.config.checks import (
    REQUIRED,
    Parameter,
    complete,
    get_type_hints,
    leave_out,
    list_parameters,
    make_value,
    split_component,
)
from fedjax_sel.data import sources
from fedjax_sel.data.federation import DeviceLaw, Partition
from fedjax_sel.data.synthetic import synthetic
from fedjax_sel.data.uacs import uacs
from fedjax_sel.devices import availability, laws, table
from fedjax_sel.models._adapters import from_functions, from_nnx
from fedjax_sel.models._call import Model
from fedjax_sel.protocols import Aggregator, Availability, ClientSelector, Correction, DataSelector, LocalTrainer
from fedjax_sel.runs import pretrained

OF_ONES_OWN = "; one of your own is named my_module:Name, or lib/mine.py:Name"
"""Appended to errors that list the available names."""


ALIASES = {
    "fedadagrad": "fedopt",
    "fedadam": "fedopt",
    "fedavg": "mean",
    "fedyogi": "fedopt",
    "noniid": "dirichlet",
    "pow_d": "power_of_choice",
    "random": "uniform",
}
"""What others call a component; an error names the component to a user who gives one of these."""


@dataclass(frozen=True)
class Kind:
    """A kind of component.

    Attributes:
      what: its name in errors and tables.
      package: the package in which every module is one component.
      default: the component used if a configuration names none; None: there is none then.
      base: the class that a user's class must be a subclass of.
      filled: fields that the user cannot set because they follow from the data.
      more: parameters that every component of the kind has besides its own.
      page: the page of the documentation on writing one's own.
      listed: the name of the kind in `fedjax-sel list`, if that is not its key.
    """

    what: str
    package: str
    default: str | None
    base: type
    filled: tuple[str, ...] = ()
    more: Mapping[str, Parameter] = field(default_factory=dict)
    page: str = "docs/learn/own_selector.md"
    listed: str | None = None

    def available(self) -> list[str]:
        """Returns the names of all components of the kind."""
        return catalog.available(self.package)

    def load(self, name: str) -> Any:
        """Returns the class of a component; raises `ValueError`, which gives the nearest name, if there is none."""
        if own.names_own_code(name):
            return own.load_class(self.what, name, self.base)
        there = self.available()
        aliases = {alias: meant for alias, meant in ALIASES.items() if meant in there}
        catalog.check_name(self.what, name, there, aliases, more=OF_ONES_OWN)
        return catalog.load(self.package, name)

    def described_by(self, name: str) -> Any:
        """Returns the object whose docstring begins with a line on the component."""
        return importlib.import_module(f"{self.package}.{name}")

    def known(self, name: str) -> dict[str, Parameter]:
        """Returns the parameters of the component `name`."""
        part = self.load(name)
        of = list_parameters if hasattr(part, "__dataclass_fields__") else list_arguments
        return of(part, self.filled)

    def resolve(self, key: str, given: Any) -> dict | None:
        """Returns the name and all parameters of the component that `given` describes; None if there is none."""
        if given is None and self.default is None:
            return None
        with catalog.see(f"`fedjax-sel list {self.listed or key}`"):
            name, rest = split_component(key, given, self.default)
            with self.see_page(name):
                known = {**self.known(name), **self.more}
                part = self.load(name) if own.names_own_code(name) else None
                with self.see_explained(name):
                    return complete_marked(key, name, part, rest, known, self.digest_files(known, rest))

    def digest_files(self, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, str]:
        """Returns the digests of the files that a component reads by their paths, from its parameters' given values."""
        return marks.digest_files(marks.list_paths(known, given))

    def build(self, resolved: dict | None, **filled: Any) -> Any:
        """Returns the value that a resolved component describes."""
        if resolved is None:
            return None
        known, make = self.known(resolved["name"]), self.load(resolved["name"])
        given = {key: make_value(resolved[key], known[key].annotation) for key in known if key in resolved}
        with self.see_explained(resolved["name"]), own.run_own(self.what, resolved["name"]):
            return make(**given, **filled)

    def see_page(self, name: str) -> AbstractContextManager[None]:
        """Points errors to the page on writing one's own component, if this is a user's component."""
        return catalog.see(self.page) if own.names_own_code(name) else nullcontext()

    def see_explained(self, name: str) -> AbstractContextManager[None]:
        """Points errors to the explanation of a component."""
        return self.see_page(name) if own.names_own_code(name) else catalog.see(f"`fedjax-sel explain {name}`")


OF_TASK = {
    "normalise": Parameter(bool | Literal["unit"], True),
    "pretrained": Parameter(str | None, None),
    "frozen": Parameter(tuple[str, ...], ()),
    "cached": Parameter(bool, True),
    "personal": Parameter(tuple[str, ...] | None, None),
}
"""Parameters that every model has besides its own: how examples are normalised, a file or run whose variables it starts
from, names of parts that are not trained, whether a frozen backbone is run once for all examples, and names of parts
that each client keeps for itself."""


FROM_DATA = ("classes", "shape", "rngs")
"""Arguments of a user's function or NNX class that a configuration does not set: the number of classes, the shape of an
example, and the random streams of an NNX module."""


@dataclass(frozen=True)
class MakeNNX:
    """Makes an NNX module; instances are equal if their class or function and their parameters are."""

    part: Callable[..., nnx.Module]
    parameters: tuple[tuple[str, Any], ...]

    def __call__(self, rngs: nnx.Rngs) -> nnx.Module:
        """Returns the module."""
        return self.part(**dict(self.parameters), rngs=rngs)


@dataclass(frozen=True)
class ModelKind(Kind):
    """Models: Linen modules; users may also give NNX modules, and functions that make a model of any kind."""

    def load(self, name: str) -> Any:
        """Returns a module class, or the user's function; raises `ValueError` if it is neither."""
        if not own.names_own_code(name):
            return super().load(name)
        found = own.load_own(self.what, name)
        if inspect.isfunction(found) or (isinstance(found, type) and issubclass(found, nn.Module | nnx.Module)):
            return found
        raise ValueError(
            f"{self.what} {name} is {found!r:.80}; it must be a subclass of flax.linen.Module or flax.nnx.Module, or a "
            "function that returns a model"
        )

    def known(self, name: str) -> dict[str, Parameter]:
        """Returns the parameters of the model `name`."""
        part = self.load(name)
        return list_parameters(part, self.filled) if is_linen(part) else list_arguments(part, FROM_DATA)

    def digest_files(self, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, str]:
        """Returns the digests of the files among the model's own parameters, and of its pretrained variables."""
        found, begin = super().digest_files(known, given), given.get("pretrained")
        if not isinstance(begin, str):
            return found
        return found | marks.digest_files(pretrained.list_files(begin)) | pretrained.digest_folder(begin)

    def build(self, resolved: dict | None, **filled: Any) -> Any:
        """Returns the model; a user's class or function gets those of the `filled` arguments that it takes.

        Raises:
          ValueError: the user's function returns something else.
        """
        name = (resolved or {})["name"]
        part, known = self.load(name), self.known(name)
        takes = inspect.signature(signed_function(part)).parameters
        given = {key: make_value((resolved or {})[key], parameter.annotation) for key, parameter in known.items()}
        given |= {key: value for key, value in filled.items() if key in takes and key not in known}
        with self.see_explained(name), own.run_own(self.what, name):
            if "rngs" in takes and not is_linen(part):
                return from_nnx(MakeNNX(part, tuple(given.items())))
            made = part(**given)
            if isinstance(made, tuple) and len(made) == 2:
                made = from_functions(*made)
            if isinstance(made, Model):
                return made
            raise ValueError(
                f"{self.what} {name} returned {made!r:.60}; it must return a Linen module, or the functions init and "
                "apply of fedjax_sel.models.from_functions; one that makes an NNX module takes rngs"
            )


def is_linen(part: Any) -> bool:
    """Returns whether a part is a Linen module class."""
    return isinstance(part, type) and issubclass(part, nn.Module)


@dataclass(frozen=True)
class ListedKind(Kind):
    """Components that are listed here, not found in a package: classes, or functions that read them from a file.

    Attributes:
      members: the components, by name.
    """

    members: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def available(self) -> list[str]:
        """Returns the names of all components of the kind."""
        return list(self.members)

    def load(self, name: str) -> Callable[..., Any]:
        """Returns a component's class or function; raises `ValueError`, with the nearest name, if there is none."""
        if own.names_own_code(name):
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
AVAILABILITY_PAGE = "docs/learn/own_availability.md"
KINDS: dict[str, Kind] = {
    "partition": Kind("partition", "fedjax_sel.data.partition", "iid", Partition, page="docs/how-to/data.md"),
    "model": ModelKind(
        "model",
        "fedjax_sel.models",
        "mlp",
        nn.Module,
        filled=("classes", "parent", "name"),
        more=OF_TASK,
        page="docs/learn/own_model.md",
    ),
    "client_selection": Kind("client selector", "fedjax_sel.client_selection", "uniform", ClientSelector),
    "data_selection": Kind("data selection", "fedjax_sel.data_selection", "everything", DataSelector),
    "local_training": Kind(
        "local training", "fedjax_sel.local_training", "sgd", LocalTrainer, page="docs/learn/own_trainer.md"
    ),
    "correction": Kind(
        "correction of local training", "fedjax_sel.correction", "none", Correction, page="docs/learn/own_correction.md"
    ),
    "aggregation": Kind(
        "aggregation", "fedjax_sel.aggregation", "mean", Aggregator, page="docs/learn/own_aggregator.md"
    ),
    "fine_tuning": Kind(
        "fine-tuning", "fedjax_sel.local_training", None, LocalTrainer, page="docs/learn/own_trainer.md"
    ),
    "devices": ListedKind(
        "law of devices", "fedjax_sel.devices", None, DeviceLaw, members=LAWS, page=AVAILABILITY_PAGE
    ),
    "availability": ListedKind(
        "availability",
        "fedjax_sel.devices",
        "always",
        Availability,
        filled=("phase",),
        members=AVAILABILITIES,
        page=AVAILABILITY_PAGE,
    ),
    "volatility": ListedKind(
        "volatility",
        "fedjax_sel.devices",
        None,
        Availability,
        filled=("phase",),
        members=AVAILABILITIES,
        page=AVAILABILITY_PAGE,
    ),
}

SYNTHETIC: dict[str, Callable[..., Any]] = {"synthetic": synthetic, "uacs": uacs}
"""Sources that are drawn from the seed of a run; their examples have natural owners."""

SOURCE_NAMES = (*SYNTHETIC, *sources.available(), "npz:PATH", "tfds:NAME", "hf:NAME", "MODULE:FUNCTION")


def list_source_parameters(name: str) -> dict[str, Parameter]:
    """Returns the parameters of a source of data.

    Raises:
      ValueError: there is no such source; the message names the nearest.
    """
    if name in SYNTHETIC:
        return list_arguments(SYNTHETIC[name], without=("seed",))
    if own.names_own_code(name):
        return list_arguments(own.load_function("data", name), without=())
    if name in ("npz:PATH", "tfds:NAME", "hf:NAME", "MODULE:FUNCTION"):
        raise ValueError(f"data.name is {name!r}; put a file or a dataset in its place, as in 'tfds:fashion_mnist'")
    if name.endswith(".npz") and ":" not in name:
        raise ValueError(f"unknown data {name!r}; a file is named 'npz:{name}'")
    if not (name.startswith(("npz:", "tfds:", "hf:")) and name.partition(":")[2]):
        catalog.check_name("data", name, SOURCE_NAMES)
    return list_arguments(sources.load, without=("name",)) | {"seed": Parameter(int | None, 0)}


def list_arguments(function: Callable, without: tuple[str, ...]) -> dict[str, Parameter]:
    """Returns the arguments of a function that a configuration may set, without `*args` and `**options`."""
    call = signed_function(function)
    hints, out = get_type_hints(call), {}
    for name, p in inspect.signature(call).parameters.items():
        if name not in ("self", *without) and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            default = REQUIRED if p.default is inspect.Parameter.empty else p.default
            out[name] = Parameter(hints.get(name, OF_DEFAULT.get(type(default), Any)), default)
    return leave_out(out)


OF_DEFAULT: dict[type, Any] = {int: int | float | Any, float: float | Any}
"""Types of arguments without annotation, by that of their default: `1e-3`, which YAML reads as text, is a number."""


def signed_function(function: Callable) -> Callable:
    """Returns the callable whose signature has the arguments: `__init__` of a class that is not a dataclass."""
    plain = isinstance(function, type) and not hasattr(function, "__dataclass_fields__")
    return function.__init__ if plain else function


def complete_marked(
    key: str, name: str, own_part: Any, given: dict, known: dict[str, Parameter], digests: Mapping[str, str]
) -> dict:
    """Returns a component's name, the marks of a user's code and of the files that it reads, and all its parameters.

    Args:
      key, name: of the component.
      own_part: a user's class or function; None: it is one of ours.
      given: its parameters, and the marks of an earlier run.
      known: the parameters that it has.
      digests: of the files that it reads.
    """
    if own_part is not None:
        marks.check_own_parameters(key, name, known)
    code = {} if own_part is None else marks.mark_code(key, own_part, given)
    files = marks.mark_files(key, digests, given)
    return {"name": name, **code, **files} | complete(key, name, given, known)
