"""Frozen dataclasses that are pytrees.

Each subclass of `Pytree` is registered as a node type of its own, as tree definitions do not tell classes of equal
fields apart otherwise (`compiled.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.core import Tracer
from jaxtyping import Array, Float

from fedjax_sel.catalog import suggest

MISSING = dataclasses.MISSING

Scalar = Float[Array, "..."] | float
if not TYPE_CHECKING:  # NumPy's scalars too; libraries that take numbers are annotated for the two above
    Scalar = float | np.floating | Float[Array, "..."]
"""A hyperparameter: a Python float outside, traced inside a compiled program, an array where it is swept over."""


def param(
    *,
    default: Any = MISSING,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Declares a float hyperparameter, a leaf: traced in compiled code, swept over without recompilation.

    Args:
      default: the default value; None: the field may be None.
      low, high: closed bounds.
      above, below: open bounds.
    """
    return dataclasses.field(default=default, metadata={"range": Range(low, high, above, below)})


def static(
    *,
    default: Any = MISSING,
    low: int | None = None,
    high: int | None = None,
    choices: Iterable[str] | None = None,
    default_factory: Any = MISSING,
) -> Any:
    """Declares a static field, which a program is compiled for: a whole number, a string, a flag, a module.

    Args:
      default: the default value; None: the field may be None.
      low, high: closed bounds of a whole number.
      choices: the values that a string may have.
      default_factory: makes the default.
    """
    metadata: dict[str, Any] = {"static": True}
    if choices is not None:
        metadata["choices"] = tuple(choices)
    elif low is not None or high is not None:
        metadata["range"] = Range(low, high, whole=True)
    if default_factory is not MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a number may have.

    Attributes:
      low, high: closed bounds; None: unbounded.
      above, below: open bounds.
      whole: whether it is a whole number.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    whole: bool = False

    def check(self, where: str, value: Any) -> None:
        """Raises `ValueError` if a number, or any number of an array, is NaN or out of range; traced values pass.

        >>> Range(0, 1).check("entropy: epsilon", 1.5)
        Traceback (most recent call last):
        ValueError: entropy: epsilon is 1.5; it must be in [0, 1]
        """
        if isinstance(value, Tracer):
            return
        fits = is_whole(value) if self.whole else is_real(value)
        if not (fits and self.holds(np.asarray(value, np.float64))):
            allowed = str(self)
            if not fits and not self.whole and allowed != "a number":
                allowed = f"a number{',' if allowed[0].isdigit() else ''} {allowed}"
            raise ValueError(f"{where} is {value!r}; it must be {allowed}")
        if self.whole and value >= 2**31:  # compiled programs count in 32 bits
            raise ValueError(f"{where} is {value!r}; it must be {self}, and below 2^31")

    def holds(self, value: np.ndarray) -> bool:
        """Returns whether all numbers are in the range."""
        low, high = (-math.inf if self.low is None else self.low), (math.inf if self.high is None else self.high)
        inside = (value >= low) & (value <= high)
        inside &= True if self.above is None else value > self.above
        inside &= True if self.below is None else value < self.below
        return bool(inside.all())

    def __str__(self) -> str:
        """Returns the range in words, for error messages."""
        low = self.low if self.above is None else self.above
        high = self.high if self.below is None else self.below
        if self.whole and high is None:
            return f"a whole number, at least {low:g}"
        if low is None and high is None:
            return "a number"
        number = "a whole number " if self.whole else ""
        if high is None:
            return f"above {low:g}" if self.above is not None else f"{low:g} or above"
        if low is None:
            return f"below {high:g}" if self.below is not None else f"{high:g} or below"
        return f"{number}in {'[' if self.above is None else '('}{low:g}, {high:g}{']' if self.below is None else ')'}"


def is_whole(value: Any) -> bool:
    """Returns whether a value is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def escape(step: str, separator: str) -> str:
    """Returns a step of a name without the character that separates steps, which `split_name` puts back.

    >>> escape("layers.0", "."), split_name("layers%2E0.kernel", ".")
    ('layers%2E0', ('layers.0', 'kernel'))
    """
    return step.replace("%", "%25").replace(separator, f"%{ord(separator):02X}")


def split_name(name: str, separator: str) -> tuple[str, ...]:
    """Returns the steps of a name that were joined after `escape`."""
    code = f"%{ord(separator):02X}"
    return tuple(step.replace(code, separator).replace("%25", "%") for step in name.split(separator))


def is_key(value: Any) -> bool:
    """Returns whether a value is an array of typed random keys.

    >>> is_key(jax.random.key(0)), is_key(jax.random.PRNGKey(0)), is_key(0)
    (True, False, False)
    """
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def is_real(value: Any) -> bool:
    """Returns whether a value is a real number or an array of some."""
    if isinstance(value, bool | str) or value is None:
        return False
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return isinstance(value, int | float | np.number)
    return bool(jnp.issubdtype(dtype, jnp.number) and not jnp.issubdtype(dtype, jnp.complexfloating))  # bfloat16, too


@dataclass_transform(frozen_default=True, field_specifiers=(param, static, dataclasses.field))
class Pytree:
    """Base class that makes each subclass a frozen dataclass and a pytree, with its class in the tree definition.

    Fields are leaves or subtrees, unless they are declared with `static`. The ranges that `param` and `static` declare
    are checked when a value is made; rules that involve several fields belong in `__check_init__`. Values that JAX
    makes while it maps over leaves are not checked.

    >>> class Spread(Pytree):
    ...     '''Two numbers and a name.'''
    ...     low: float = 0.0
    ...     high: float = param(default=1.0, above=0)
    ...     name: str = static(default="plain", choices=["plain", "wide"])
    >>> jax.tree.map(lambda x: 2 * x, Spread(1.0, 3.0))
    Spread(low=2.0, high=6.0, name='plain')
    >>> Spread(high=-1)
    Traceback (most recent call last):
    ValueError: Spread: high is -1; it must be above 0
    """

    other_names: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "__post_init__" in vars(cls):
            raise TypeError(f"{cls.__name__} defines __post_init__; what it checks belongs in __check_init__")
        own = {name for name in vars(cls) if name not in inspect.get_annotations(cls)}
        for base in cls.__mro__[1:]:
            if shadowed := own & {field.name for field in dataclasses.fields(base)} if is_pytree(base) else set():
                name = min(shadowed)
                raise TypeError(
                    f"{cls.__name__} defines {name}, but {name} is a field of {base.__name__}, and its value would be "
                    f"used instead; give it when a value is made, as in {base.__name__}(..., {name}=...)"
                )
        if "__dataclass_fields__" not in vars(cls):  # as it has if it was unpickled with its code
            is_generated = "__init__" not in vars(cls)
            dataclasses.dataclass(frozen=True)(cls)
            cls.__setattr__ = refuse_to_set
            if is_generated:
                cls.__init__ = suggest_arguments(cls.__init__)

        split = FieldSplit(cls)

        def flatten(node: Any) -> tuple[tuple, tuple]:
            names = split.now()
            fixed = tuple(getattr(node, name) for name in names.static)
            leaves = tuple(getattr(node, name) for name in names.leaves)
            return leaves, (fixed, tuple(map(tell_type, fixed)))  # 1 == 1.0 == True

        def flatten_with_keys(node: Any) -> tuple[tuple, tuple]:
            children, static = flatten(node)
            return tuple(zip(split.now().keys, children, strict=True)), static

        def unflatten(static: tuple, children: Iterable[Any]) -> Any:
            node, names = object.__new__(cls), split.now()
            for name, value in (*zip(names.leaves, children, strict=True), *zip(names.static, static[0], strict=True)):
                object.__setattr__(node, name, value)
            return node

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)

    def __post_init__(self) -> None:
        """Checks every field, then the rules that involve several fields."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if field.metadata.get("static") and (plain := to_plain(getattr(self, field.name))) is not None:
                object.__setattr__(self, field.name, plain)  # programs are compiled for it, so it must be hashable
                if isinstance(plain, np.ndarray | jax.Array):
                    raise ValueError(
                        f"{title(type(self))}: {field.name} is {show(plain)}; a static field cannot hold an array, as "
                        "programs are compared by it; declare the field with fs.param, or give a tuple"
                    )
            value: Any = getattr(self, field.name)
            check_field(title(type(self)), field, value)
            if (real := make_real(field.type, value)) is not value:
                object.__setattr__(self, field.name, real)
        self.__check_init__()

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed; the copy is checked."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __check_init__(self) -> None:
        """Raises `ValueError` for fields that do not go together; does nothing by default."""


def tell_type(value: Any) -> Any:
    """Returns the type of a static value, with those of its elements if they are not texts and integers alone.

    Values that are equal and not of one type, as 1 and 1.0, or -0.0 and 0.0, are told apart by it.

    >>> tell_type((1, "a")), tell_type((1, 2.0))
    (<class 'tuple'>, (<class 'tuple'>, <class 'int'>, <class 'float'>))
    """
    kind = type(value)
    if kind is float:
        return kind if value != 0 or math.copysign(1.0, value) > 0 else "-0.0"
    if not isinstance(value, tuple | frozenset | FrozenDict):
        return kind
    parts = [tell_type(one) for one in (value.values() if isinstance(value, FrozenDict) else value)]
    if set(parts) <= {int, str, type(None), tuple}:
        return kind
    return kind, *(sorted(parts, key=str) if isinstance(value, frozenset) else parts)


class Names(NamedTuple):
    """Names of a class's fields: of the leaves, with their keys, and of the static ones; `of` are the fields."""

    of: Mapping[str, Any]
    leaves: tuple[str, ...]
    static: tuple[str, ...]
    keys: tuple[Any, ...]


class FieldSplit:
    """The names of a class's fields, read again whenever the class's fields have been replaced.

    This happens because unpickled code fills a class after it is made, and reloaded code changes it.
    """

    def __init__(self, cls: type):
        self._cls, self._known = cls, Names({}, (), (), ())

    def now(self) -> Names:
        """Returns the names as they are now."""
        known = self._known
        if known.of is not self._cls.__dataclass_fields__:
            fields = dataclasses.fields(self._cls)
            leaves = tuple(field.name for field in fields if not field.metadata.get("static"))
            static = tuple(field.name for field in fields if field.metadata.get("static"))
            known = Names(self._cls.__dataclass_fields__, leaves, static, tuple(map(jax.tree_util.GetAttrKey, leaves)))
            self._known = known  # at once, as other threads read it
        return known


def refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    """Raises `FrozenInstanceError`, which says what to do instead."""
    more = ""
    if hasattr(type(self), "uses_rounds"):  # a strategy
        more = (
            f". Its class must not have an __init__ of its own; declare each of its numbers as a field, as in {name}: "
            "float = fs.param(default=0.1). What it learns is its state (init, observe)"
        )
    raise dataclasses.FrozenInstanceError(
        f"{title(type(self))}: {name} cannot be set, as such a value never changes; x.replace({name}=...) makes a copy"
        f"{more}"
    )


def suggest_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Returns an `__init__` whose error for an unknown argument gives the nearest one, and all that there are.

    The class's `other_names` are names under which users may know an argument.

    >>> class Spread(Pytree):
    ...     low: float = 0.0
    >>> Spread(lo=1.0)
    Traceback (most recent call last):
    TypeError: Spread: unknown argument 'lo'; did you mean 'low'? There are: low
    """

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        init = checked.__wrapped__  # where reloaded code is put
        names = init.__code__.co_varnames[1 : init.__code__.co_argcount + init.__code__.co_kwonlyargcount]
        for name in given:
            if name not in names:
                hint = suggest(name, names, type(self).other_names) or "."
                raise TypeError(f"{title(type(self))}: unknown argument {name!r}{hint} There are: {', '.join(names)}")
        init(self, *args, **given)

    return checked


def is_pytree(cls: type) -> bool:
    """Returns whether a class is a subclass of `Pytree` that has been made a dataclass."""
    return issubclass(cls, Pytree) and dataclasses.is_dataclass(cls)


def show(value: Any, most: int = 60) -> str:
    """Returns a value as one line of text for an error message, truncated if it is long.

    >>> show(np.eye(2)), show(tuple(range(99)), most=12)
    ('array([[1., 0.], [0., 1.]])', '(0, 1, 2, 3,...')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[:most]}..."


ARRAYS = (jax.Array, np.ndarray, np.generic)


def show_value(value: Any) -> str:
    """Returns an array's type and shape, or anything else as `show` does with its class, for an error message.

    >>> show_value(np.eye(2)), show_value([1, 2]), show_value(None)
    ('float64 of shape (2, 2)', '[1, 2] (list)', 'None')
    """
    if isinstance(value, ARRAYS):
        return f"{value.dtype} of shape {value.shape}"
    return f"{show(value)} ({type(value).__name__})" if value is not None else "None"


def to_plain(value: Any) -> Any:
    """Converts a scalar of NumPy or JAX to a Python number; returns anything else unchanged.

    >>> to_plain(np.int64(3)), to_plain(jax.numpy.int32(3)), to_plain("sgd")
    (3, 3, 'sgd')
    """
    is_scalar = isinstance(value, np.generic | np.ndarray | jax.Array) and not isinstance(value, Tracer)
    return value.item() if is_scalar and value.shape == () and getattr(value.dtype, "kind", "V") in "biuf" else value


def allows_none(annotation: Any) -> bool:
    """Returns whether an annotation, given as a string or as a type, is a union with None.

    >>> allows_none("int | None"), allows_none(float)
    (True, False)
    """
    written = annotation if isinstance(annotation, str) else str(annotation)
    return "None" in [option.strip() for option in written.split("|")]


def is_scalar(annotation: Any) -> bool:
    """Returns whether an annotation, given as a string or as a type, is of one number, or also of None.

    >>> is_scalar("types.Scalar | None"), is_scalar(float), is_scalar("Float[Array, 'N']")
    (True, True, False)
    """
    if not isinstance(annotation, str):
        return annotation in (float, Scalar)
    options = {option.strip().rpartition(".")[-1] for option in annotation.split("|")}
    return options - {"None"} in ({"Scalar"}, {"float"})


def check_field(owner: str, field: dataclasses.Field, value: Any) -> None:
    """Raises `ValueError` if a value is none of a field's choices, or outside its range.

    Args:
      owner: name of the field's class in the error.
      field, value: the field and its value.
    """
    if not (field.metadata.keys() & {"range", "choices"}):
        return
    if value is None and (field.default is None or allows_none(field.type)):
        return
    where = f"{owner}: {field.name}"
    if (choices := field.metadata.get("choices")) is None:
        field.metadata["range"].check(where, value)
    elif value not in choices:
        allowed = f"{', '.join(choices)}{suggest(value, choices)}"
        raise ValueError(f"{where} is {show(value)}; it must be one of {allowed}")


def make_real(annotation: Any, value: Any) -> Any:
    """Returns a value with floats for whole numbers, where the annotation has floats: a program sees one type.

    >>> make_real("Scalar | None", 1), make_real("tuple[float, ...]", (1, 0.5)), make_real("int | float", 1)
    (1.0, (1.0, 0.5), 1)
    """
    if is_whole(value) and is_scalar(annotation):
        return float(value)
    written = annotation if isinstance(annotation, str) else str(annotation)
    if isinstance(value, tuple) and written.startswith("tuple[float") and any(map(is_whole, value)):
        return tuple(float(one) if is_whole(one) else one for one in value)
    return value


def check_scalars(node: Any) -> None:
    """Raises `ValueError` if a value holds an array, to be mapped over, where it is to be run with one number.

    >>> class Spread(Pytree):
    ...     high: float = param(default=1.0, above=0)
    >>> check_scalars(Spread(np.array([1.0, 2.0])))
    Traceback (most recent call last):
    ValueError: Spread: high is array([1., 2.]); it must be one number; fs.sweep runs several
    """
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Pytree):
            check_scalars(value)
        elif "range" in field.metadata and is_scalar(field.type) and getattr(value, "ndim", 0):
            raise ValueError(
                f"{title(type(node))}: {field.name} is {show(value)}; it must be one number; fs.sweep runs several"
            )


def title(cls: type) -> str:
    """Returns a class's name for errors: its module's if it has one to itself, as in configurations, else its own."""
    package, _, module = cls.__module__.rpartition(".")
    own = module.replace("_", "") == cls.__name__.lower()
    return module if package.startswith("fedjax_sel.") and own else cls.__name__
