"""Functions shared by several partitions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from fedjax_sel.pytree import is_real, is_whole

NO_CLIENT = -1
"""The client of an example that no client owns."""


def check_count(name: str, value: int, examples: int) -> None:
    """Raises `ValueError` unless `value` is an integer from 1 to `examples`: each counted item needs an example."""
    if not is_whole(value) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1")
    if value > examples:
        raise ValueError(f"{name} is {value}, but there are only {examples} examples; each needs at least one")


def check_alpha(alpha: float) -> None:
    """Raises `ValueError` for a concentration that does not define a Dirichlet distribution."""
    if not (is_real(alpha) and np.ndim(alpha) == 0 and 1e-6 <= float(alpha) <= 1e300):
        raise ValueError(
            f"alpha is {alpha!r}; a Dirichlet concentration is a finite number above 0 (at least 1e-6: below, every "
            "draw is one-hot in floating point; at most 1e300). For equal shares use Iid"
        )


def group_by_class(y: Int[np.ndarray, "n"], rng: np.random.Generator) -> list[Int[np.ndarray, "k"]]:
    """Returns the examples of each class that occurs, in random order.

    Raises `ValueError` for targets that are not classes.
    """
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"the partition divides examples by class, but targets are {y.dtype} of shape {y.shape}, which are not "
            "classes; Iid, Natural, Indices and Function divide them"
        )
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(y[order])) + 1)
