"""What user code computes, as text that is the same in every process: a program or checkpoint of other code is another.

A compiled program keeps what a method read when it was traced. A class, function, global or closure that is changed
afterwards, as in a notebook, must not run the old program, nor go on from its checkpoint. What the code itself only
notes (`log.append(x)`, `table[i] = x`, `self.calls += 1`) is left out. What it reads from files, from the environment
or from a library's modules is not followed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import operator
import os
import sys
import weakref
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from contextvars import ContextVar
from types import CodeType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import jax
import numpy as np
from flax.core import FrozenDict
from jax.core import Tracer

from fedjax_sel.bytecode import LOADS, find_noted, is_noting, list_globals, list_steps, only_notes
from fedjax_sel.mistakes import FROM_KEY, OwnCodeError, is_library_file
from fedjax_sel.pytree import Pytree

PLAIN = str | bytes | int | float | complex | None
CONTAINERS = MutableMapping | MutableSequence | MutableSet | np.ndarray
"""What code can note something in; `update` of another object, as of an optimiser, reads it."""

BUILT_IN = {str, bytes, int, bool, float, complex, type(None), tuple, list, dict, set, frozenset}

LONGEST = 10_000
"""Characters of a description; of a longer one, there is a digest."""


def describe_own(tree: Any) -> str:
    """Describes the user's code in a pytree: classes of its nodes, and what in their static fields can change.

    "" if there is none.
    """
    seen: dict[int, tuple[int, Any]] = {}
    return " ".join(describe(value, seen) for value in list_own(tree))


def describe_changeable(value: Any) -> str:
    """Describes a static value, such as a model, as far as it can change while it equals itself; "" if it cannot.

    Arrays are described by type and shape alone, which is what costs depend on; there may be many of them.
    """
    token = SHAPES_ALONE.set(True)
    try:
        return describe(value) if can_change(value) else ""
    finally:
        SHAPES_ALONE.reset(token)


def describe_lastingly(tree: Any) -> str:
    """Describes the user's code in a pytree as it is in every process, whatever order sets of strings have there."""
    token = LASTING.set(True)
    try:
        return describe_own(tree)
    finally:
        LASTING.reset(token)


LASTING: ContextVar[bool] = ContextVar("LASTING", default=False)
"""Whether the order of a dictionary, which may be that of a set, is left out of descriptions."""

SHAPES_ALONE: ContextVar[bool] = ContextVar("SHAPES_ALONE", default=False)
"""Whether numbers in arrays are left out of descriptions."""


def list_own(tree: Any) -> Iterator[Any]:
    """Yields the user's classes among the nodes of a pytree, and what its nodes' static fields hold that can change."""

    def walk(definition: Any) -> Iterator[Any]:
        kind, fixed = definition.node_data() or (None, None)
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_own_class(kind)):
            if is_own_class(kind):
                yield kind
            fixed = fixed[0] if fixed and issubclass(kind, Pytree) else fixed
            yield from filter(can_change, fixed if isinstance(fixed, tuple) else (fixed,))
        for child in definition.children():
            yield from walk(child)

    return walk(jax.tree.structure(tree))


def can_change(value: Any) -> bool:
    """Returns whether a static field's value can change while it equals itself: the user's code, and containers."""
    if is_plain(value) or isinstance(value, ModuleType):
        return False
    if not isinstance(value, type) and is_own_class(type(value)):
        return True
    if isinstance(value, tuple | frozenset):
        return any(map(can_change, value))
    if isinstance(value, FrozenDict):
        return any(map(can_change, value.values()))
    if isinstance(value, CONTAINERS | SimpleNamespace | argparse.Namespace):
        return True
    if isinstance(value, type):
        return is_own_class(value)
    if inspect.isroutine(value) or isinstance(value, functools.partial) or hasattr(value, "__wrapped__"):
        return True
    if not dataclasses.is_dataclass(value):
        return False
    try:
        return is_any_field_code(value)
    except TypeError:  # it cannot be hashed
        return is_any_field_code.__wrapped__(value)


def is_plain(value: Any) -> bool:
    """Returns whether a value is of one of the types `PLAIN`, and not of a class that the user derived from it."""
    return isinstance(value, PLAIN) and not is_own_class(type(value))


@functools.lru_cache(maxsize=128)
def is_any_field_code(value: Any) -> bool:
    """Returns whether a field of a library's dataclass, such as a model, holds what can change."""
    return any(can_change(getattr(value, field.name, None)) for field in dataclasses.fields(value))


def is_own(function: Any) -> bool:
    """Returns whether a function is written by the user: neither in this package nor in a library."""
    code = getattr(function, "__code__", None)
    place = "<string>" if code is None else code.co_filename
    generated = ("<string>", "<@")  # by dataclasses, by beartype
    return not place.startswith(generated) and not is_library_file(place)


def is_own_class(cls: type) -> bool:
    """Returns whether the user wrote a class, a class that it is derived from, or a method of one of them."""
    if cls in BUILT_IN:
        return False
    return any(is_own_module(one.__module__) or any(is_own(f) for _, f in list_methods(one)) for one in cls.__mro__)


def is_own_module(name: str) -> bool:
    """Returns whether a module is neither in this package, nor in a library, nor Python's."""
    package = name.partition(".")[0]
    place = getattr(sys.modules.get(name) or sys.modules.get(package), "__file__", None)
    if package in sys.stdlib_module_names:
        return name == "__main__"
    return place is None or not is_library_file(place)


def look(value: Any, name: str) -> Any:
    """Returns an attribute; None if there is none, or the user's `__getattr__` raises an error."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def list_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yields names and functions of a class's own methods and properties, sorted by name."""
    for name, value in sorted(vars(cls).items()):
        inner = look(value, "fget") or look(value, "__wrapped__") or look(value, "func")
        inner = look(value, "__func__") or inner
        function = value if inspect.isfunction(value) else inner
        while inspect.isfunction(function) and not is_own(function) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__  # the outermost one that the user wrote, else the innermost
        if inspect.isfunction(function):
            yield name, function


def describe(value: Any, seen: dict[int, tuple[int, Any]] | None = None) -> str:
    """Describes a value as text: functions by code, defaults, closure and the globals that they read; arrays by digest.

    Args:
      value: anything.
      seen: numbers of the values described before, and these values, by identity; they are not described again.
    """
    seen = {} if seen is None else seen
    if is_plain(value) or value is Ellipsis:
        return repr(value)
    if isinstance(value, Tracer | ModuleType):
        return type(value).__qualname__
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array) and not is_own_class(type(value))
    if is_array and value.dtype != object:
        return f"{value.dtype}{value.shape}" if SHAPES_ALONE.get() else describe_array(value)
    if isinstance(value, set | frozenset):  # in no order
        return f"({type(value).__name__} {' '.join(sorted(describe(part, dict(seen)) for part in value))})"
    if not isinstance(value, tuple | CodeType):  # these may or may not be one object, as Python likes
        if id(value) in seen:
            return f"#{seen[id(value)][0]}"
        seen[id(value)] = len(seen), value
    parts = [describe(part, seen) for part in list_parts(value)]
    text = f"({' '.join(parts)})" if parts else name_of(value)
    return text if len(text) < LONGEST else hashlib.sha256(text.encode()).hexdigest()


def name_of(value: Any) -> str:
    """Returns the full name of a function or class, which says what a library's computes; of others that of the class.

    >>> name_of(operator.neg), name_of(object())
    ('_operator.neg', 'builtins.object')
    """
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def describe_array(value: Any) -> str:
    """Describes an array by type, shape and a digest of its numbers."""
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    digest = f"{array.dtype}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    if isinstance(value, np.ma.MaskedArray):
        digest += describe_array(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray) and jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        place = id(value)
        known, before = CONVERTED.get(place, (lambda: None, digest))
        if known() is value and before != digest:
            jax.clear_caches()
        CONVERTED[place] = weakref.ref(value, lambda _: CONVERTED.pop(place, None)), digest
    return digest


CONVERTED: dict[int, tuple[Any, str]] = {}
"""Arrays of types that JAX converts, as float64, by identity, with their digests.

While a program holds the converted copy, JAX takes that copy for the array, also after the array was changed in place.
"""


def list_parts(value: Any) -> list[Any]:
    """Returns what a value is made of, in an order that is the same in every process; [] if its name says enough."""
    if isinstance(value, functools.partial | functools.partialmethod):
        return [value.func, *value.args, *sorted(value.keywords.items())]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, property):
        return ["property", value.fget, value.fset]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if isinstance(value, CodeType):
        counted = [value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags]
        arguments = value.co_varnames[: value.co_argcount + value.co_kwonlyargcount]  # are given by name
        return [value.co_code.hex(), *counted, *arguments, *value.co_names, *value.co_consts]
    if isinstance(value, type):
        return list_parts_of_class(value) if is_own_class(value) else []
    if inspect.isfunction(value):
        return list_parts_of_function(value)
    own = [type(value), *list_attributes(value)] if is_own_class(type(value)) else []
    if isinstance(value, tuple | list):
        return [type(value).__name__, *value, *own]
    if isinstance(value, dict | FrozenDict):
        return [type(value).__name__, *list_items(value), *own, *filter(None, [look(value, "default_factory")])]
    if own and isinstance(value, PLAIN):
        return [write_plain(value), *own]
    if own and isinstance(value, np.ndarray):
        return [*own, np.asarray(value)]
    if dataclasses.is_dataclass(value):
        kept = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
        named = {name for name, _ in kept} | OF_MODULES
        more = [(name, one) for name, one in own[1:] if name not in named]
        return [type(value).__qualname__, type(value), *kept, *more]
    if own:
        return own
    wrapped = getattr(value, "__wrapped__", None)
    if callable(wrapped):  # and the rules of `jax.custom_vjp` and the like
        held = [one for _, one in sorted(getattr(value, "__dict__", {}).items()) if inspect.isfunction(one)]
        return [wrapped, *(one for one in held if one is not wrapped)]
    if inspect.isroutine(value):  # a method of a built-in object computes with that
        bound = look(value, "__self__")
        return [] if bound is None or isinstance(bound, ModuleType | type) else [value.__qualname__, bound]
    if isinstance(value, np.ndarray):  # of objects
        return ["objects", value.shape, *value.ravel().tolist()]
    return list_parts_of_library_object(value)


def write_plain(value: Any) -> str:
    """Returns a text or number of a class that the user derived as one of Python's class is written."""
    kind: Any = next(kind for kind in (str, bytes, int, float, complex) if isinstance(value, kind))
    return kind.__repr__(value)


def list_items(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Returns the items of a mapping in its order or, where descriptions are to last, by those of their keys."""
    return sorted(value.items(), key=lambda item: describe(item[0])) if LASTING.get() else list(value.items())


def list_parts_of_library_object(value: Any) -> list[Any]:
    """Returns what an object of a library's class is made of, as it would be pickled; [] if it is not, or no value.

    A value is of a class that says which of its objects are equal, or of one of `KINDS`, and is not used in a `with`
    statement. Others may change whenever they are used.

    >>> import threading
    >>> list_parts_of_library_object(SimpleNamespace(rate=0.1)), list_parts_of_library_object(threading.Lock())
    (['SimpleNamespace', {'rate': 0.1}], [])
    """
    cls = type(value)
    is_resource = hasattr(cls, "__enter__") and not isinstance(value, os.PathLike)
    if isinstance(value, type) or is_resource or value is os.environ:
        return []
    try:
        if hasattr(cls, "__array__"):  # of pandas or PyTorch
            return [cls.__qualname__, np.asarray(value), *(getattr(value, one, None) for one in ("index", "columns"))]
        if isinstance(value, Mapping):
            return [cls.__qualname__, *list_items(value)]
        _, made_of, *more = value.__reduce_ex__(4)
    except Exception:  # it is bound to this process, or to a device
        return []
    if not (has_equality(cls) or isinstance(value, GETTERS) or any(hasattr(cls, name) for name in KINDS)):
        return []
    state, items, pairs = (*more, None, None, None)[:3]
    return [cls.__qualname__, *(one for one in made_of if one is not cls), state, *(items or ()), *(pairs or ())]


KINDS = ("get_params", "rvs")
"""Methods of values that do not say which they equal: estimators of scikit-learn, distributions of SciPy."""

GETTERS = operator.itemgetter | operator.attrgetter | operator.methodcaller
"""Values that do not say which they equal."""


def has_equality(cls: type) -> bool:
    """Returns whether a class says which of its objects are equal."""
    return cls.__eq__ is not object.__eq__


def list_parts_of_class(cls: type) -> list[Any]:
    """Returns a class's name, its methods and attributes, and the user's classes that it is derived from."""
    held = [
        (name, value)
        for name, value in sorted(vars(cls).items())
        if not isinstance(value, ModuleType) and (name[:2] != "__" or is_method(value))
    ]
    return [cls.__qualname__, *held, *(base for base in cls.__mro__[1:] if is_own_class(base))]


def is_method(value: Any) -> bool:
    """Returns whether an attribute of a class is a method, or a property, also if it is one of those by decoration."""
    kinds = property | functools.cached_property | functools.partial | functools.partialmethod
    return inspect.isroutine(value) or isinstance(value, kinds)


def list_attributes(value: Any) -> list[tuple[str, Any]]:
    """Returns names and values of an object's attributes, without those that one of its methods both reads and sets."""
    classes = type(value).__mro__
    held = {name: getattr(value, name) for name in list_slots(classes) if hasattr(value, name)}
    held |= getattr(value, "__dict__", {})
    later = [function for cls in classes for name, function in list_methods(cls) if name not in ("__init__", "__new__")]
    noted = {name for cls in classes for name, one in vars(cls).items() if isinstance(one, functools.cached_property)}
    for steps in (list_steps(function.__code__) for function in later):
        read, stored = ({s.argval for s in steps if s.opname == kind} for kind in ("LOAD_ATTR", "STORE_ATTR"))
        noted |= read & stored
        memos = (step.argval for i, step in enumerate(steps) if is_noting(steps[i + 1 : i + 3]) == "by index")
        noted |= {name for name in memos if isinstance(held.get(name), CONTAINERS)}
    return [(name, one) for name, one in sorted(held.items()) if name not in noted]


def list_slots(classes: Iterable[type]) -> Iterator[str]:
    """Yields the names of all slots of some classes, private ones as Python stores them."""
    for cls in classes:
        for name in np.atleast_1d(vars(cls).get("__slots__", ())).tolist():
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{cls.__name__.lstrip('_')}{name}" if is_private else name


OF_MODULES = {"_state", "_id", "scope", "_parent_ref"}
"""What Flax keeps in its modules besides their fields."""


def list_parts_of_function(function: Any) -> list[Any]:
    """Returns code, defaults, the closure's content and, if the user wrote it, the globals that a function reads."""
    code, noted = function.__code__, find_noted(function.__code__)

    def is_noted(name: str, value: Any) -> bool:
        return name in noted and isinstance(value, CONTAINERS)

    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held = [one for name, cell in cells for one in content_of(cell) if not is_noted(name, one)]
    parts = [code, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items()), *held]
    if not is_own(function):
        return [] if is_named(function) else parts
    known = function.__globals__
    names = [name for name in list_globals(code) if name in known and not is_noted(name, known[name])]
    read = [*((name, known[name]) for name in names), *list_read_of_modules(function)]
    for name, value in (*((None, one) for one in held), *read):
        if isinstance(value, np.random.Generator | np.random.RandomState) and function.__name__ != "init":
            raise OwnCodeError(
                f"{function.__qualname__} reads {name or 'a variable'}, a {type(value).__name__} of np.random that was "
                f"made before: {FROM_KEY}"
            )
    return parts + [(name, value) for name, value in read if not isinstance(value, ModuleType)]


def is_named(function: Any) -> bool:
    """Returns whether a library's function is known by its name: no call made it, and it wraps no other."""
    is_made = function.__closure__ or hasattr(function, "__wrapped__") or "<" in function.__qualname__
    return not is_made and not function.__code__.co_filename.startswith("<")


def list_read_of_modules(function: Any) -> list[tuple[str, Any]]:
    """Returns what a function reads of the user's modules, by name: `helpers.rate`, `helpers.score(x)`."""
    code, defaults = function.__code__, function.__defaults__ or ()
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held = {name: value for name, cell in cells for value in content_of(cell)}
    positional = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    given = dict(zip(positional, defaults, strict=True)) | (function.__kwdefaults__ or {})
    known, found, noted = ChainMap(given, held, function.__globals__), {}, {}
    place, path, imported = None, "", None
    steps = list_steps(code)
    for i, step in enumerate(steps):
        kind, name = step.opname, step.argval
        if kind == "IMPORT_NAME":  # after the level and the names that are imported from it
            level, names = steps[i - 2].argval, steps[i - 1].argval
            full = importlib.util.resolve_name("." * level + name, known.get("__package__")) if level else name
            path = full if names else full.partition(".")[0]
            place = imported = sys.modules.get(path)
            continue
        if kind.startswith("STORE_FAST") and isinstance(place, ModuleType):  # import helpers, within the function
            known[name if isinstance(name, str) else name[0]] = place
        if kind in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            place = imported if kind == "IMPORT_FROM" else place
            if isinstance(place, ModuleType) and is_own_module(place.__name__) and hasattr(place, name):
                path, place = f"{place.__name__}.{name}", getattr(place, name)
                found[path] = place
                way = is_noting(steps[i + 1 : i + 3]) if isinstance(place, CONTAINERS) else ""
                noted.setdefault(path, []).append(way)
            else:
                place = None
        elif kind in LOADS or "LOAD_FAST" in kind:
            path = name if isinstance(name, str) else name[-1]
            place = known.get(path)
        else:
            place = None
    return [(name, value) for name, value in found.items() if not only_notes(noted[name])]


def content_of(cell: Any) -> tuple[Any, ...]:
    """Returns the content of a closure cell; empty if it has no value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
