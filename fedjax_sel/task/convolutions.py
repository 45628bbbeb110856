"""Detection, before anything compiles, of layers that a CPU runs slowly."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend import core

from fedjax_sel.code import describe_changeable
from fedjax_sel.models._call import ModelAdapter, apply_model, init_model
from fedjax_sel.models._fast_conv import is_native
from fedjax_sel.task.task import Task
from fedjax_sel.types import Rows

SHOWN = 3
"""How many layers a warning names."""


def list_native_convolutions(task: Task, x: Rows) -> list[str]:
    """Returns the paths of the model's layers that call XLA's own convolution and that `models.Conv` could replace.

    Layers of a model that is not a Linen module are numbered. The model is traced, not compiled.

    Args:
      task: what is learnt.
      x: examples as stored, for their shape.

    >>> class Small(nn.Module):
    ...     '''Somebody's network.'''
    ...     @nn.compact
    ...     def __call__(self, x, *, train=False):
    ...         return nn.Conv(4, (3, 3))(x).mean((1, 2))
    >>> list_native_convolutions(Task(Small()), jnp.zeros((1, 8, 8, 1)))
    ['Conv_0']
    """
    dtype, options = x.dtype if task.raw else jnp.float32, tuple(task.frozen.model_options.items())
    if not isinstance(task.model, nn.Module):
        return _list_native_operations(task.model, x.shape[1:], dtype)
    return list(_list_native_layers(task.model, x.shape[1:], dtype, options, code=describe_changeable(task.model)))


def _list_native_operations(model: ModelAdapter, example: tuple[int, ...], dtype: Any) -> list[str]:
    """Returns a name for each of XLA's own convolutions in a model that is not a Linen module."""
    x = jax.ShapeDtypeStruct((1, *example), dtype)
    variables = jax.eval_shape(lambda x: init_model(model, jax.random.key(0), x), x)
    program = jax.make_jaxpr(lambda variables, x: apply_model(model, variables, x, train=False))(variables, x)
    return [f"convolution {i + 1}" for i in range(count_replaceable(program.jaxpr))]


def count_replaceable(program: core.Jaxpr) -> int:
    """Returns how many of XLA's own convolutions in a program `models.fast_convolution` could replace.

    They are those over one or two axes that are not transposed, outside of `fast_convolution` itself, which holds one
    for programs without a loop.
    """
    count = 0
    for step in program.eqns:
        if step.primitive.name == "conv_general_dilated":
            axes = len(getattr(step.invars[0].aval, "shape", ()))
            count += axes in (3, 4) and set(step.params["lhs_dilation"]) == {1}
        elif step.primitive.name != "custom_vmap_call":
            count += sum(map(count_replaceable, core.jaxprs_in_params(step.params)))
    return count


@functools.lru_cache(maxsize=64)
def _list_native_layers(
    model: nn.Module, example: tuple[int, ...], dtype: Any, options: tuple[tuple[str, Any], ...], *, code: str
) -> tuple[str, ...]:
    """Returns the paths in a Linen module that is called with these options; `code` tells changed code from earlier."""
    del code
    found: dict[str, None] = {}

    def note(layer, args, kwargs, context):
        out = layer(*args, **kwargs)
        module = context.module
        # Checked after the call, which may have replaced it; a lifted layer (remat) is called again without a path.
        if module.path and isinstance(module, nn.Conv) and is_native(module):
            found["/".join(module.path)] = None
        return out

    with nn.intercept_methods(note):
        jax.eval_shape(
            lambda key, x: init_model(model, key, x, **dict(options)),
            jax.random.key(0),
            jax.ShapeDtypeStruct((1, *example), dtype),
        )
    return tuple(found)


def warn_native_convolutions(task: Task, x: Rows) -> None:
    """Warns if a CPU will run native convolutions inside a compiled loop, and says what to do.

    Args:
      task: what is learnt.
      x: examples as stored, for their shape.
    """
    if jax.default_backend() != "cpu":
        return
    names = list_native_convolutions(task, x)
    if not names:
        return
    others = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    helps = (
        "use fedjax_sel.models.Conv instead of flax.linen.Conv, or "
        "Task(fedjax_sel.models.fast_convolutions(model), ...)"
        if isinstance(task.model, nn.Module)
        else "give its layers conv_general_dilated=fedjax_sel.models.fast_convolution"
    )
    warnings.warn(
        f"{type(task.model).__name__} has native convolutions ({', '.join(names[:SHOWN])}{others}), which a CPU runs "
        f"several times slower in a compiled loop; {helps}",
        stacklevel=2,
    )
