"""What a task costs: parameters, and floating-point operations forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from fedjax_sel.task.freezing import FrozenParams
from fedjax_sel.types import Variables


class Costs(NamedTuple):
    """What a task costs.

    Attributes:
      parameters: numbers in the variables that are trained.
      flops: floating-point operations of one example's forward pass, by XLA's count of the unoptimised program.
      backward: an example's backward pass as a multiple of that; 2 where all is trained, less where parts are frozen.
      outputs: shape of one example's logits.
      fixed_parameters: numbers in the frozen parts.
    """

    parameters: int
    flops: float
    backward: float
    outputs: tuple[int, ...]
    fixed_parameters: int


def count_costs(logits: Callable[..., Array], frozen: FrozenParams, variables: Variables, *inputs: Any) -> Costs:
    """Costs of a task, from XLA's counts of programs that are lowered and never compiled.

    A backward pass costs twice a forward pass where all is trained. Where parts are frozen it costs twice the share of
    the gradient's operations beyond the forward pass that are left when only what is trained has gradients.

    Args:
      logits: of `FrozenParams`, the variables that these leave to train, and `inputs`.
      frozen: the names of the frozen parts.
      variables: shapes of all of the model's.
      inputs: shapes of one example, and of what else `logits` takes.
    """
    forward: Any = jax.jit(lambda v, *given: logits(FrozenParams(), v, *given)).lower(variables, *inputs)
    flops = float(forward.cost_analysis()["flops"])
    trained, fixed = frozen.split(variables)

    def beyond(frozen: FrozenParams, trained: Variables, fixed: Variables) -> float:
        def total(trained, fixed, *given):
            return logits(frozen.replace(variables=fixed), trained, *given).sum()

        gradient: Any = jax.jit(jax.grad(total, allow_int=True)).lower(trained, fixed, *inputs)
        return max(float(gradient.cost_analysis()["flops"]) - flops, 0.0)

    backward = 2.0
    if frozen.names:
        some, every = beyond(frozen, trained, fixed), beyond(FrozenParams(), variables, {})
        backward = 2.0 * min(some / every, 1.0) if every else 0.0
    return Costs(count_numbers(trained), flops, backward, forward.out_info.shape, count_numbers(fixed))


def count_numbers(variables: Variables) -> int:
    """How many numbers some variables hold.

    >>> count_numbers({"kernel": np.zeros((3, 2)), "bias": np.zeros(2)})
    8
    """
    leaves: list[Any] = jax.tree.leaves(variables)
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)
