"""Mistakes in the user's own code, told in the user's words: where they are, and what helps."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

PACKAGE = f"{Path(__file__).parent}/"
LIBRARIES = ("site-packages", "dist-packages", "<frozen", f"{Path(traceback.__file__).parent}/")

TRACED = (jax.errors.JAXTypeError, jax.errors.NonConcreteBooleanIndexError)
"""What JAX raises where Python is given a number that is known only while the compiled program runs."""

REMEDY = (
    "a number that is known only while the compiled program runs decides an `if`, goes to NumPy, or is made a Python "
    "number; write jnp.where or jax.lax.cond instead of `if`, and jnp instead of np"
)


class OwnCodeError(ValueError):
    """Code of the user's that cannot be compiled or does not fit its input."""


def find_place(error: BaseException) -> str:
    """Returns the innermost line of the user's that an error came through; "" where it came through none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(PACKAGE) and not any(name in frame.filename for name in LIBRARIES):
            return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
    return ""


def describe(error: BaseException) -> str:
    """Returns an error in one line; a remedy where a traced number was used as a Python number.

    >>> describe(ZeroDivisionError("modulo by zero"))
    'ZeroDivisionError: modulo by zero'
    """
    if isinstance(error, TRACED):
        return REMEDY
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def name_own_code() -> Iterator[None]:
    """A context that says of an error of types or shapes on which line of the user's it is.

    Raises:
      OwnCodeError: what was called raised a `TypeError`, and a line of the user's leads there.
    """
    try:
        yield
    except TypeError as error:
        place = find_place(error)
        if not place:
            raise
        raise OwnCodeError(f"{place}: {describe(error)}") from error


@contextmanager
def name_model(model: Any, x: Any) -> Iterator[None]:
    """A context that says of an error in a model to which examples it was applied.

    Args:
      model: that is called inside.
      x: examples, for their shape and type.

    Raises:
      OwnCodeError: the model raised an error that is no `ValueError`.
    """
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        channels = "; images have a channel axis: give x[..., None]" if len(x.shape) == 3 else ""
        raise OwnCodeError(
            f"task: {type(model).__name__} cannot be applied to examples of shape {tuple(x.shape[1:])} and type "
            f"{x.dtype}: {describe(error)}{channels}"
        ) from error
