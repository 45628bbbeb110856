"""Layers of a model that a CPU runs slowly, named before anything compiles."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_sel.models._fast_conv import is_native
from fedjax_sel.task.task import Task
from fedjax_sel.types import Rows

SHOWN = 3
"""How many layers a warning names."""


def native_convolutions(task: Task, x: Rows) -> list[str]:
    """Paths of the model's layers that call XLA's own convolution, where `models.Conv` could take their place.

    The model is traced, not compiled.

    Args:
      task: what is learnt.
      x: examples as stored, for their shape.

    >>> class Small(nn.Module):
    ...     '''Somebody's network.'''
    ...     @nn.compact
    ...     def __call__(self, x, *, train=False):
    ...         return nn.Conv(4, (3, 3))(x).mean((1, 2))
    >>> native_convolutions(Task(Small()), jnp.zeros((1, 8, 8, 1)))
    ['Conv_0']
    """
    return list(_native_layers(task.model, x.shape[1:], tuple(task.frozen.model_options.items())))


@functools.lru_cache(maxsize=64)
def _native_layers(model: nn.Module, example: tuple[int, ...], options: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    """The paths, of a model called with these options."""
    found: dict[str, None] = {}

    def note(layer, args, kwargs, context):
        out = layer(*args, **kwargs)
        module = context.module
        # After the call, in which it may have been replaced; a lifted layer (remat) is called again without a path.
        if module.path and isinstance(module, nn.Conv) and is_native(module):
            found["/".join(module.path)] = None
        return out

    with nn.intercept_methods(note):
        jax.eval_shape(
            lambda key, x: model.init(key, x, train=False, **dict(options)),
            jax.random.key(0),
            jax.ShapeDtypeStruct((1, *example), jnp.float32),
        )
    return tuple(found)


def warn_native_convolutions(task: Task, x: Rows) -> None:
    """Warns where a CPU will run native convolutions inside a compiled loop, and says what to do.

    Args:
      task: what is learnt.
      x: examples as stored, for their shape.
    """
    if jax.default_backend() != "cpu":
        return
    names = native_convolutions(task, x)
    if not names:
        return
    others = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    warnings.warn(
        f"{type(task.model).__name__} has native convolutions ({', '.join(names[:SHOWN])}{others}), which a CPU runs "
        "several times slower in a compiled loop; use fedjax_sel.models.Conv instead of flax.linen.Conv, or "
        "Task(fedjax_sel.models.fast_convolutions(model), ...)",
        stacklevel=2,
    )
