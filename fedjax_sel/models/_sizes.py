"""Checks of a network's sizes when it is constructed."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn

from fedjax_sel.pytree import is_real, is_whole, show, title, to_plain

COUNTS = ("classes", "hidden", "channels", "kernel", "depth", "width", "widths", "heads", "patch", "vocabulary")
"""Fields that are whole numbers, at least 1, or tuples of them."""

SHARES = ("dropout", "drop_path", "momentum")
"""Fields that are numbers in [0, 1), or tuples of them."""


def check_sizes(model: nn.Module) -> None:
    """Raises `ValueError` if a size is not at least 1, or a share not in [0, 1).

    Scalars of NumPy and JAX become Python numbers, and lists tuples, so that the model is hashable.

    >>> from fedjax_sel.models.mlp import MLP
    >>> MLP(hidden=(0,))
    Traceback (most recent call last):
    ValueError: mlp: hidden is (0,); it must be whole numbers, each at least 1
    """
    for field in dataclasses.fields(model):
        if field.name not in (*COUNTS, *SHARES):
            continue
        value, several = to_plain(getattr(model, field.name)), isinstance(field.default, tuple)
        fits = fits_count if field.name in COUNTS else fits_share
        if several and isinstance(value, list | tuple):
            value = tuple(to_plain(one) for one in value)
        if not (all(map(fits, value)) if several and isinstance(value, tuple) else not several and fits(value)):
            count, counts = "a whole number, at least 1", "whole numbers, each at least 1"
            share, shares = "in [0, 1)", "numbers, each in [0, 1)"
            must = (counts if several else count) if field.name in COUNTS else (shares if several else share)
            raise ValueError(f"{title(type(model))}: {field.name} is {show(value)}; it must be {must}")
        object.__setattr__(model, field.name, value)


def fits_count(value: Any) -> bool:
    """Returns whether a value is a whole number, at least 1."""
    return is_whole(value) and value >= 1


def fits_share(value: Any) -> bool:
    """Returns whether a value is a number in [0, 1)."""
    return is_real(value) and 0 <= value < 1
