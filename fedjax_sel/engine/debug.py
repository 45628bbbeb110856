"""Location of errors in a run without compilation: the round, the client and the stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fedjax_sel.mistakes import name_own_code, refuse_global_random_numbers


@contextmanager
def stage(name: str, **where: Any) -> Iterator[None]:
    """Adds a note to any error raised inside: the stage, and the values in `where` that are not traced.

    Raises:
      OwnCodeError: code inside drew random numbers that do not come from a key.
    """
    try:
        with name_own_code(), refuse_global_random_numbers():
            yield
    except Exception as error:
        known = ", ".join(f"{k} {v}" for k, v in where.items() if not isinstance(v, Tracer))
        note = f"in {name}" + (f", {known}" if known else "")
        if note not in getattr(error, "__notes__", ()):  # a stage may have others of its name in it
            error.add_note(note)
        raise


def check_finite(tree: Any) -> None:
    """Raises `FloatingPointError` if a known number is NaN or infinite; traced values are not checked."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, Tracer) or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            continue
        if not bool(jnp.isfinite(leaf).all()):
            raise FloatingPointError(f"{jax.tree_util.keystr(path) or 'a value'} is not finite")
