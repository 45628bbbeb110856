"""Checks of a configuration's values against the annotations of their fields."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedjax_sel import catalog
from fedjax_sel.catalog import check_name
from fedjax_sel.protocols import ClientSelector

WORDS = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    types.NoneType: "null",
    Any: "a number, text, a list or a mapping",
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A field that a configuration may set.

    Attributes:
      annotation: its type.
      default: a plain value; `REQUIRED` if it has none.
    """

    annotation: Any
    default: Any


REQUIRED = object()


def coerce(where: str, value: Any, annotation: Any) -> Any:
    """Returns `value` as a configuration file stores it; integers become floats if the annotation is float.

    Args:
      where: dotted key, for errors.
      value: the value as read from YAML.
      annotation: a type hint; a dataclass (or a union of dataclasses) denotes a component within a component.

    Raises:
      ValueError: the value has another type.
    """
    options = list_options(annotation)
    if (classes := find_components(options)) and (isinstance(value, dict | str) or dataclasses.is_dataclass(value)):
        return complete_component(where, value, classes)
    for option in options:
        fits, plain = fit_one(where, value, option)
        if fits:
            return plain
    raise ValueError(f"{where} is {value!r}; it must be {describe(options)}")


def fit_one(where: str, value: Any, option: Any) -> tuple[bool, Any]:
    """Returns whether a value fits a type, and the value converted to that type."""
    if option is Any:
        return is_plain(value), str(value) if isinstance(value, Path) else value
    if typing.get_origin(option) is typing.Literal:
        return value in typing.get_args(option), value
    if get_container(option) in SEQUENCES and isinstance(value, list | tuple):
        return True, coerce_elements(where, value, list_elements(option, len(value)))
    if get_container(option) in MAPPINGS and isinstance(value, Mapping):
        of = typing.get_args(option)[1] if typing.get_args(option) else Any
        return True, {str(name): coerce(f"{where}.{name}", one, of) for name, one in value.items()}
    if isinstance(value, bool) or option is bool:
        return isinstance(value, bool) and option is bool, value
    if option is float:
        number = parse_number(value)
        return number is not None and math.isfinite(number), number
    if option in (str, Path):
        return isinstance(value, str | Path), str(value)
    return option in (int, types.NoneType) and isinstance(value, option), value


def parse_number(value: Any) -> float | None:
    """Returns a float, or None if not a number; YAML 1.1 reads `1e-4` (without a point) and `inf` as text.

    Digits alone are text only if they were quoted, and stay text.
    """
    if isinstance(value, str) and re.fullmatch(r"[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)|\.?inf", value):
        return float(value.removeprefix(".") if value.endswith("inf") else value)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # a whole number that no float is near
        return None


SEQUENCES = (tuple, list, Sequence)
MAPPINGS = (dict, Mapping)


def get_container(option: Any) -> Any:
    """Returns the type of a list or mapping whose elements may have types: `list` for `list[int]` and for `list`."""
    return typing.get_origin(option) or option


def list_elements(option: Any, length: int) -> tuple:
    """Returns the types of the elements of a sequence with this type."""
    of = typing.get_args(option)
    several = not of or get_container(option) is not tuple or of[1:] == (Ellipsis,)
    return (of[0] if of else Any,) * length if several else of


def can_hold(parameter: Parameter) -> bool:
    """Returns whether a configuration can hold a parameter: plain values have its type, and its default is one."""
    options, default = list_options(parameter.annotation), parameter.default
    plain = default is REQUIRED or is_plain(default) or type(default) in find_components(options).values()
    return plain and any(map(is_plain_type, options))


def is_plain_type(option: Any) -> bool:
    """Returns whether plain values, except null, or components have a type."""
    if option is Any or typing.get_origin(option) is typing.Literal or find_components((option,)):
        return True
    if get_container(option) in (*SEQUENCES, *MAPPINGS):
        of = [one for one in typing.get_args(option) if one is not Ellipsis]
        return all(any(map(is_plain_type, list_options(one))) for one in of)
    return option in WORDS and option is not types.NoneType


def is_plain(value: Any) -> bool:
    """Returns whether a value is one that YAML and JSON can hold: a number, text, a path, null, a list or a mapping."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(map(is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | Path)


def coerce_elements(where: str, value: list | tuple, of: tuple) -> list:
    """Returns the elements of a list, each coerced to its type in `of`."""
    if len(of) != len(value):
        raise ValueError(f"{where} is {list(value)!r}; it must have {len(of)} elements")
    return [coerce(f"{where}[{i}]", one, annotation) for i, (one, annotation) in enumerate(zip(value, of, strict=True))]


def complete_component(where: str, value: Any, classes: dict[str, type]) -> dict:
    """Returns a component within a component with all its parameters: `{name: steps, at: [150], factor: 0.5}`."""
    if dataclasses.is_dataclass(value):
        name = next((n for n, cls in classes.items() if cls is type(value)), to_snake(type(value).__name__))
        value = {"name": name} | {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    name, given = split_component(where, value, next(iter(classes)) if len(classes) == 1 else None)
    check_name(where, name, classes)
    return {"name": name} | complete(where, name, given, list_parameters(classes[name]))


def split_component(key: str, given: Any, default: str | None) -> tuple[str, dict]:
    """Returns the name and the given parameters of a component written as a name or as a mapping."""
    if given is None:
        given = {}
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, dict):
        raise ValueError(f"{key} is {given!r}; it must be a name, or a mapping with a name and parameters")
    name = given.get("name", default)
    if name is None and given:
        raise ValueError(f"{key} has {', '.join(given)}, but no name that says which one it is, as in {key}=NAME")
    if not isinstance(name, str):
        raise ValueError(f"{key}.name is {name!r}; it must be a name")
    return name, {k: v for k, v in given.items() if k != "name"}


def complete(where: str, name: str, given: dict, known: dict[str, Parameter]) -> dict:
    """Returns the parameters of the component `name`, with defaults for those not given.

    Raises:
      ValueError: a parameter is unknown, has the wrong type, or is required but missing.
    """
    for key in given:
        if not known:
            raise ValueError(f"{where}: {name} has no parameters, but {key!r} is given")
        check_name(f"parameter of {f'{where} {name}'.strip()}:", key, known)
    out = {}
    for key, parameter in known.items():
        value = given.get(key, parameter.default)
        if value is REQUIRED and not can_hold(parameter):
            raise ValueError(
                f"{where}.{key} has no default, and a configuration cannot hold "
                f"{describe(list_options(parameter.annotation))}; give it one"
            )
        if value is REQUIRED:
            raise ValueError(f"{where}.{key} is missing; {name} needs {describe(list_options(parameter.annotation))}")
        if parameter.default == math.inf and parse_number(value) == math.inf:
            out[key] = math.inf
        else:
            out[key] = coerce(f"{where}.{key}", value, parameter.annotation)
    return out


UNKNOWN = (NameError, AttributeError, TypeError)
"""Errors of an annotation that names something that is not there."""


@functools.cache
def get_type_hints(of: Any) -> dict[str, Any]:
    """Returns the annotations of a class or callable as types, evaluated once; `Any` for a name that is not there.

    Such a name may be imported for type checkers alone.
    """
    while isinstance(of, functools.partial):
        of = of.func
    of = of if inspect.isclass(of) or inspect.isroutine(of) else type(of).__call__
    try:
        return typing.get_type_hints(of)
    except UNKNOWN:
        parts = reversed(of.__mro__) if inspect.isclass(of) else [inspect.unwrap(of)]
        return {name: hint for part in parts for name, hint in evaluate_each(part)}


def evaluate_each(of: Any) -> Iterator[tuple[str, Any]]:
    """Yields the annotations of a class, without its bases, or of a function, as types; `Any` where there is none."""
    known = vars(sys.modules[of.__module__])
    for name, hint in inspect.get_annotations(of).items():
        try:
            one = typing.get_type_hints(types.SimpleNamespace(__annotations__={name: hint}), known)
        except UNKNOWN:
            one = {name: Any}
        yield name, one[name]


def list_parameters(cls: type, without: tuple[str, ...] = ()) -> dict[str, Parameter]:
    """Returns the fields of a dataclass that a configuration may set."""
    hints = get_type_hints(cls)
    out = {}
    for field in dataclasses.fields(cls):
        if field.init and field.name not in without:
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            out[field.name] = Parameter(hints[field.name], REQUIRED if default is dataclasses.MISSING else default)
    return leave_out(out)


def leave_out(known: dict[str, Parameter]) -> dict[str, Parameter]:
    """Returns the parameters without those that have a default and that no configuration can hold, as functions."""
    return {name: one for name, one in known.items() if one.default is REQUIRED or can_hold(one)}


def make_value(value: Any, annotation: Any) -> Any:
    """Returns the value that a plain value stands for: lists become tuples, named components become objects."""
    classes = find_components(list_options(annotation))
    if isinstance(value, dict) and classes:
        cls = classes[value["name"]]
        return cls(**{key: make_value(value[key], p.annotation) for key, p in list_parameters(cls).items()})
    return tuple(make_value(one, Any) for one in value) if isinstance(value, list) else value


def list_options(annotation: Any) -> tuple:
    """Returns the members of a union, or the type itself if it is not a union."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(one for member in typing.get_args(annotation) for one in list_options(member))
    return (annotation,)


def find_components(options: tuple) -> dict[str, type]:
    """Returns the dataclasses among some types, by their names in a configuration; `ClientSelector`: all selectors."""
    found: dict[str, type] = {}
    for option in options:
        if option is ClientSelector:
            folder = "fedjax_sel.client_selection"
            found |= {name: catalog.load(folder, name) for name in catalog.available(folder)}
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            found[to_snake(option.__name__)] = option
    return found


def describe(options: tuple) -> str:
    """Returns a description of some types in words, for errors."""
    words = []
    for option in (o for o in options if not (o is int and float in options)):
        of = {WORDS.get(one, str(one)) for one in typing.get_args(option) if one is not Ellipsis}
        if get_container(option) in SEQUENCES:
            words.append("a list" + (f", each {' or '.join(sorted(of))}" if of else ""))
        elif get_container(option) in MAPPINGS:
            words.append("a mapping")
        elif typing.get_origin(option) is typing.Literal:
            words += [repr(value) for value in typing.get_args(option)]
        elif option in WORDS:
            words.append(WORDS[option])
    names = [getattr(option, "__name__", str(option)) for option in options]
    return " or ".join([*words, *find_components(options)]) or f"of type {' or '.join(names)}"


def to_snake(name: str) -> str:
    """Returns a class name in snake case.

    >>> to_snake("RoundRobin"), to_snake("SGD"), to_snake("ClientDirichlet")
    ('round_robin', 'sgd', 'client_dirichlet')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
