"""What user code computes, as text that is the same in every process: a program or checkpoint of other code is another.

A compiled program keeps what a method read when it was traced. A class, function, global number or closure that is
changed afterwards, as in a notebook, must not run the old program, nor go on from its checkpoint.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
from collections.abc import Iterator
from types import CodeType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fedjax_sel.mistakes import LIBRARIES, PACKAGE

PLAIN = str | bytes | int | float | complex | None


def describe_own(tree: Any, *, contents: bool = True) -> str:
    """Describes the user's code in a pytree: classes of its nodes, and functions and objects in their static fields.

    "" if there is none. What is in a module that the user's code imports as a whole is not followed.

    Args:
      tree: any pytree.
      contents: whether lists, dictionaries and attributes of objects count, in which user code may note what happens.
    """
    seen: dict[int, tuple[int, Any]] = {}
    return " ".join(describe(value, seen, contents=contents) for value in list_own(tree))


def list_own(tree: Any) -> Iterator[Any]:
    """Yields the user's classes among the nodes of a pytree, and what its nodes' static fields hold of user code."""

    def walk(definition: Any) -> Iterator[Any]:
        node = definition.node_data()
        if node is not None and isinstance(node[0], type) and dataclasses.is_dataclass(node[0]):
            if is_own_class(node[0]):
                yield node[0]
            fixed = node[1][0] if isinstance(node[1], tuple) and node[1] else ()
            yield from (value for value in (fixed if isinstance(fixed, tuple) else ()) if holds_code(value))
        for child in definition.children():
            yield from walk(child)

    return walk(jax.tree.structure(tree))


def holds_code(value: Any) -> bool:
    """Returns whether a static field's value holds what may be the user's code: a function, an object of its class."""
    if isinstance(value, PLAIN):
        return False
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(holds_code, value))
    if isinstance(value, dict):
        return any(map(holds_code, value.values()))
    if isinstance(value, type):
        return is_own_class(value)
    if inspect.isroutine(value) or isinstance(value, functools.partial) or hasattr(value, "__wrapped__"):
        return True
    if is_own_class(type(value)):
        return True
    if not dataclasses.is_dataclass(value):
        return False
    try:
        return is_any_field_code(value)
    except TypeError:  # it cannot be hashed
        return is_any_field_code.__wrapped__(value)


@functools.lru_cache(maxsize=128)
def is_any_field_code(value: Any) -> bool:
    """Returns whether a field of a library's dataclass, such as a model, holds what may be the user's code."""
    return any(holds_code(getattr(value, field.name, None)) for field in dataclasses.fields(value))


def is_own(function: Any) -> bool:
    """Returns whether a function is written by the user: neither in this package nor in a library."""
    code = getattr(function, "__code__", None)
    place = "<string>" if code is None else code.co_filename
    return not place.startswith((PACKAGE, "<string>")) and not any(name in place for name in LIBRARIES)


@functools.cache
def is_own_class(cls: type) -> bool:
    """Returns whether any method of a class is written by the user."""
    return any(is_own(function) for _, function in list_methods(cls))


def list_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yields names and functions of a class's own methods and properties, sorted by name."""
    for name, value in sorted(vars(cls).items()):
        inner = getattr(value, "fget", None) or getattr(value, "__wrapped__", None) or getattr(value, "func", None)
        inner = getattr(value, "__func__", inner)
        function = value if inspect.isfunction(value) else inner
        if inspect.isfunction(function):
            yield name, inspect.unwrap(function)


def describe(value: Any, seen: dict[int, tuple[int, Any]] | None = None, *, contents: bool = True) -> str:
    """Describes a value as text: functions by code, defaults, closure and the globals that they read; arrays by digest.

    Args:
      value: anything.
      seen: numbers of the values described before, and these values, by identity; they are not described again.
      contents: as for `describe_own`.
    """
    seen = {} if seen is None else seen
    if isinstance(value, PLAIN) or value is Ellipsis:
        return repr(value)
    if isinstance(value, Tracer | ModuleType):
        return type(value).__qualname__
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return describe_array(value)
    if not isinstance(value, tuple | frozenset | CodeType):  # these may or may not be one object, as Python likes
        if id(value) in seen:
            return f"#{seen[id(value)][0]}"
        seen[id(value)] = len(seen), value
    parts = [describe(part, seen, contents=contents) for part in list_parts(value, contents)]
    return f"({' '.join(parts)})" if parts else getattr(value, "__qualname__", type(value).__qualname__)


def describe_array(value: Any) -> str:
    """Describes an array by type, shape and a digest of its numbers."""
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return f"objects {array.shape}"
    return f"{array.dtype}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


def list_parts(value: Any, contents: bool) -> list[Any]:
    """Returns what a value is made of, in an order that is the same in every process; [] if its name says enough."""
    if isinstance(value, list | dict | set) and not contents:
        return []
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *sorted(value.keywords.items())]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, CodeType):
        return [value.co_code.hex(), *value.co_names, *value.co_consts]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *value]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, *sorted(map(repr, value))]
    if isinstance(value, dict):
        return [type(value).__name__, *sorted(value.items(), key=lambda item: repr(item[0]))]
    if isinstance(value, type):
        bases = [base for base in value.__mro__[1:] if is_own_class(base)]
        fixed = [(name, one) for name, one in sorted(vars(value).items()) if name[:2] != "__" and is_fixed(one)]
        return [value.__qualname__, *list_methods(value), *fixed, *bases] if is_own_class(value) else []
    if inspect.isfunction(value):
        return list_parts_of_function(value)
    wrapped = getattr(value, "__wrapped__", None)
    if callable(wrapped):
        return [wrapped]
    if inspect.isroutine(value):
        return []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
        return [type(value).__qualname__, type(value), *kept]
    if is_own_class(type(value)):
        return [type(value), *(sorted(getattr(value, "__dict__", {}).items()) if contents else ())]
    return []


def list_parts_of_function(function: Any) -> list[Any]:
    """Returns code, defaults, the closure's content and, if the user wrote it, the globals that a function reads."""
    held = [content for cell in function.__closure__ or () for content in content_of(cell)]
    parts = [function.__code__, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items()), *held]
    if not is_own(function):
        return parts
    known = function.__globals__
    names = [name for name in list_globals(function.__code__) if name in known]
    return parts + [(name, known[name]) for name in names if counts(known[name])]


def counts(value: Any) -> bool:
    """Returns whether a global is followed: numbers, texts, arrays, and the user's functions and classes.

    A list or dictionary is not: user code uses these to note what happens.
    """
    if isinstance(value, type):
        return is_own_class(value)
    if isinstance(value, tuple):
        return all(map(counts, value))
    return is_fixed(value) or is_own(getattr(value, "__wrapped__", value))


def is_fixed(value: Any) -> bool:
    """Returns whether a value is a number, a text or an array."""
    return isinstance(value, PLAIN | np.ndarray | np.generic | jax.Array)


def list_globals(code: CodeType) -> list[str]:
    """Returns the names of the globals that a function's code reads and does not set, the functions inside included."""
    codes = [code]
    for one in codes:
        codes += [const for const in one.co_consts if isinstance(const, CodeType)]
    steps = [step for one in codes for step in dis.get_instructions(one)]
    stored = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    read = (step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return [name for name in dict.fromkeys(read) if name not in stored]


def content_of(cell: Any) -> tuple[Any, ...]:
    """Returns the content of a closure cell; empty if it has no value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
