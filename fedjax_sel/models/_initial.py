"""Initial values of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax

from fedjax_sel.models._dense import Dense
from fedjax_sel.models._dropout import Dropout

KINDS = ("flax", "torch")
"""Flax: kernels normal with variance 1/fan-in (Le Cun), biases 0. PyTorch: both uniform within ±1/sqrt(fan-in)."""


def init_options(kind: str, fan_in: int) -> dict[str, Any]:
    """Returns `kernel_init` and `bias_init` of a layer whose outputs each see `fan_in` inputs.

    Source of `"torch"`: the default of PyTorch's `Linear` and `Conv2d`, whose kernels have a third of the variance.
    """
    if kind == "flax":
        return {}
    bound = fan_in**-0.5

    def uniform(key, shape, dtype=float):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return {"kernel_init": uniform, "bias_init": uniform}


def dense(width: int, kind: str, x: jax.Array) -> jax.Array:
    """Applies an affine map to `x`, initialised as `kind` says."""
    return Dense(width, **init_options(kind, x.shape[-1]))(x)


def apply_hidden(widths: Sequence[int], kind: str, dropout: float, x: jax.Array, *, train: bool) -> jax.Array:
    """Applies affine maps to `x`, initialised as `kind` says, each with dropout and then a ReLU."""
    for width in widths:
        x = nn.relu(Dropout(dropout)(dense(width, kind, x), train=train))
    return x
