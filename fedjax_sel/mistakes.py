"""Errors in the user's own code, reported with the line they come from and a remedy."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.catalog import add_pointer

PACKAGE = f"{Path(__file__).parent}/"
LIBRARIES = ("site-packages", "dist-packages", "<frozen", f"{Path(traceback.__file__).parent}/")

TRACED = (jax.errors.JAXTypeError, jax.errors.NonConcreteBooleanIndexError)
"""Errors that JAX raises when Python code needs the concrete value of a traced number."""

OTHERS = (jax.errors.KeyReuseError, jax.errors.UnexpectedTracerError)
"""Errors that are derived from those, but say something else."""

REMEDY = (
    "a number that is known only while the compiled program runs decides an `if`, goes to NumPy, or is made a Python "
    "number; write jnp.where or jax.lax.cond instead of `if`, and jnp instead of np"
)

MASKED = (
    "a mask chooses elements, whose number is known only while the compiled program runs; write "
    "jnp.where(mask, x, -jnp.inf), or x * mask, whose shapes are fixed"
)

AMBIGUOUS = "truth value of an array"
"""What NumPy and JAX say of an array that is asked whether it is true."""


def is_library_file(path: str) -> bool:
    """Returns whether a file of code belongs to this package, to another that is installed, or to Python."""
    return path.startswith(PACKAGE) or any(name in path for name in LIBRARIES)


def is_built_in(written: Any) -> bool:
    """Returns whether a class or function is written in this package."""
    return str(getattr(written, "__module__", "")).startswith("fedjax_sel.")


class OwnCodeError(ValueError):
    """Raised for user code that cannot be compiled or does not fit its input."""


def find_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Returns the innermost line of user code in an error's traceback; None if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        generated = frame.filename == "<string>" and frame.name.startswith("__")  # by dataclasses
        if not generated and not is_library_file(frame.filename):
            return frame
    return None


def find_place(error: BaseException) -> str:
    """Returns the innermost line of user code in an error's traceback, as text; "" if there is none."""
    frame = find_frame(error)
    return "" if frame is None else f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"


def describe(error: BaseException) -> str:
    """Returns an error as one line of text, or a remedy if a traced number was used as a Python number.

    >>> describe(ZeroDivisionError("modulo by zero"))
    'ZeroDivisionError: modulo by zero'
    """
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return MASKED
    if isinstance(error, TRACED) and not isinstance(error, OTHERS):
        return REMEDY
    if AMBIGUOUS in str(error):
        return f"{error}; for each element, write & instead of `and`, | instead of `or`, ~ instead of `not`"
    if isinstance(error, dataclasses.FrozenInstanceError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def name_own_code() -> Iterator[None]:
    """Context manager that adds the line of user code to an error about types, shapes, names or a field that was set.

    Raises:
      OwnCodeError: such an error was raised inside, and its traceback passes through user code; or user code itself
        raised a `ValueError`.
    """
    try:
        yield
    except (TypeError, NameError, AttributeError, IndexError) as error:  # AttributeError, also of a field that was set
        place = find_place(error)
        if not place:
            raise
        raise OwnCodeError(f"{place}: {describe(error)}") from error
    except ValueError as error:
        by_user = find_frame(error) == traceback.extract_tb(error.__traceback__)[-1]
        if type(error) is not ValueError or not (by_user or (AMBIGUOUS in str(error) and find_frame(error))):
            raise
        raise OwnCodeError(f"{find_place(error)}: {error if by_user else describe(error)}") from error


@contextmanager
def name_operation() -> Iterator[None]:
    """Context manager that names the function of JAX in its errors about operations that it traced but cannot compile.

    Some of NumPy's functions call a traced array's method with arguments that the method does not know, and JAX
    notices when it compiles: `np.argsort(x)` calls `x.argsort(stable=None)`.

    Raises:
      OwnCodeError: such an error was raised inside; JAX gives the operation's frame as its cause.
    """
    try:
        yield
    except TypeError as error:
        operation: Any = error.__cause__
        if type(operation).__name__ != "JaxStackTraceBeforeTransformation" or MISFIT not in str(error):
            raise
        name = traceback.extract_tb(operation.__traceback__)[-1].name
        raise OwnCodeError(
            f"JAX cannot compile {name} with the arguments that it was called with; if your code calls np.{name}, or "
            f"the array's method, write jnp.{name}"
        ) from error


MISFIT = "incompatible function arguments"
"""What JAX says of an argument for which a compiled program has no form."""


@contextmanager
def name_model(model: Any, x: Any) -> Iterator[None]:
    """Context manager that says in a model's errors which examples it was applied to.

    Args:
      model: the model that is called inside.
      x: examples, for their shape and type.

    Raises:
      OwnCodeError: the model raised an error, other than a `ValueError` of this library.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE):
            raise
        channels = "; images have a channel axis: give x[..., None]" if len(x.shape) == 3 else ""
        said = OwnCodeError(
            f"task: {type(model).__name__} cannot be applied to examples of shape {tuple(x.shape[1:])} and type "
            f"{x.dtype}: {describe(error).rstrip('.')}{channels}"
        )
        if not is_built_in(type(model)) or type(model).__module__.endswith("._adapters"):
            add_pointer(said, "docs/learn/own_model.md")
        raise said from error


def check_accepts(where: str, function: Any, arguments: Sequence[str], named: Sequence[str] = ()) -> None:
    """Raises `ValueError` if a function cannot be called with these arguments in order, and these by keyword.

    >>> check_accepts("rule", lambda labels: labels, ("labels", "rng"))
    Traceback (most recent call last):
    ValueError: rule cannot be called as it is declared (too many positional arguments); it must take (labels, rng)
    """
    wanted = f"({', '.join([*arguments, *(['*', *named] if named else [])])})"
    if not callable(function):
        raise ValueError(f"{where} is {function!r:.60}; it must be a function of {wanted}")
    failed = ""
    for follow in (True, False):  # a decorator may say what it wraps, and take other arguments itself
        try:
            inspect.signature(function, follow_wrapped=follow).bind(*arguments, **dict.fromkeys(named))
        except TypeError as error:
            failed = failed or str(error)
        except ValueError:  # some functions of C do not say what they take
            return
        else:
            return
    raise ValueError(f"{where} cannot be called as it is declared ({failed}); it must take {wanted}")


FROM_KEY = (
    "a compiled program draws them once, for all rounds and seeds, and no seed repeats them; draw them from the key, "
    "as in jax.random.uniform(key, (n,))"
)
"""What goes wrong with other random numbers in compiled code, and what to do instead."""

NOT_REPEATED = (
    "no seed repeats them; draw them from what is given, as in jax.random.uniform(key, (n,)) or "
    "np.random.default_rng(seed)"
)
"""The same of code that runs once, before round 0."""


@contextmanager
def refuse_global_random_numbers(instead: str = FROM_KEY) -> Iterator[None]:
    """Context manager for code whose random numbers must be given to it, as it is compiled or must be repeatable.

    Python's own generator is not watched, since libraries draw from it.

    Args:
      instead: what goes wrong otherwise, and what to do.

    Raises:
      OwnCodeError: the state of NumPy's global generator changed inside, or user code made a generator without a seed.
    """
    drawn = f"random numbers were drawn from np.random: {instead}"
    before = np.random.get_state(legacy=False)  # noqa: NPY002 (user code draws from it)
    with GUARD.watch(drawn):
        yield
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    if not all(map(np.array_equal, jax.tree.leaves(before), jax.tree.leaves(after))):
        raise OwnCodeError(drawn)


class Guard:
    """Stands in for `np.random.default_rng` while any thread is watched, and refuses to those threads alone."""

    def __init__(self) -> None:
        self._lock, self._watched, self._make = threading.Lock(), 0, np.random.default_rng
        self._mine = threading.local()

    @contextmanager
    def watch(self, drawn: str) -> Iterator[None]:
        """Context manager in which this thread's own code is refused a generator without a seed, with this error."""
        outer = getattr(self._mine, "drawn", None)
        with self._lock:
            if self._watched == 0:
                self._make, np.random.default_rng = np.random.default_rng, self._stand_in
            self._watched += 1
        self._mine.drawn = drawn
        try:
            yield
        finally:
            self._mine.drawn = outer
            with self._lock:
                self._watched -= 1
                if self._watched == 0:
                    np.random.default_rng = self._make

    def _stand_in(self, seed: Any = None) -> np.random.Generator:
        drawn, caller = getattr(self._mine, "drawn", None), sys._getframe(1).f_code.co_filename
        if drawn is not None and seed is None and not is_library_file(caller):
            raise OwnCodeError(drawn)
        return self._make(seed)


GUARD = Guard()
