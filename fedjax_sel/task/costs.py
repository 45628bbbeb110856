"""Costs of a task: parameters, and floating-point operations of forward and backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core
from jaxtyping import Array

from fedjax_sel.task.freezing import PARAMETERS, FrozenParams
from fedjax_sel.types import Variables


class Costs(NamedTuple):
    """Costs of a task.

    Attributes:
      parameters: numbers in the variables that are trained.
      flops: floating-point operations of one example's forward pass, by XLA's count of the unoptimised program.
      backward: an example's backward pass as a multiple of that; 2 if all is trained, less if parts are frozen.
      outputs: shape of one example's logits.
      fixed_parameters: numbers in the frozen parts.
      statistics: how many of `parameters` are statistics, as of batch normalisation, not weights.
    """

    parameters: int
    flops: float
    backward: float
    outputs: tuple[int, ...]
    fixed_parameters: int
    statistics: int = 0


def count_costs(logits: Callable[..., Array], frozen: FrozenParams, variables: Variables, *inputs: Any) -> Costs:
    """Returns the costs of a task, from XLA's counts of programs that are lowered but never compiled.

    A backward pass costs twice a forward pass if all is trained. If parts are frozen, that is multiplied by the share
    of the gradient's operations beyond the forward pass that remain when only the trained parts have gradients.

    Args:
      logits: function of `FrozenParams`, the variables that these leave to train, and `inputs`.
      frozen: the names of the frozen parts.
      variables: shapes of all of the model's variables.
      inputs: shapes of one example, and of what else `logits` takes.
    """
    flops, outputs = count_flops(lambda v, *given: logits(FrozenParams(), v, *given), variables, *inputs)
    trained, fixed = frozen.split(variables)

    def beyond(frozen: FrozenParams, trained: Variables, fixed: Variables) -> float:
        def total(trained, fixed, *given):
            return logits(frozen.replace(variables=fixed), trained, *given).sum()

        both = jax.value_and_grad(total, allow_int=True)  # the gradient alone may not need all of the forward pass
        return max(count_flops(both, trained, fixed, *inputs)[0] - flops, 0.0)

    backward = 2.0
    if frozen.names:
        some, every = beyond(frozen, trained, fixed), beyond(FrozenParams(), variables, {})
        backward = 2.0 * min(some / every, 1.0) if every else 0.0
    statistics = count_numbers({name: part for name, part in trained.items() if name != PARAMETERS})
    return Costs(count_numbers(trained), flops, backward, outputs.shape, count_numbers(fixed), statistics)


def count_flops(function: Callable[..., Any], *inputs: Any) -> tuple[float, Any]:
    """Returns XLA's count of a function's operations, and the shapes of its results; nothing is compiled.

    XLA counts one iteration of a loop; here all iterations of `lax.scan` and `lax.map`, and so of `nn.RNN` and
    `nn.scan`, are counted. Of a `lax.while_loop`, one iteration counts, as their number is not known. Of the branches
    of `lax.cond`, the most expensive counts. JAX offers the count for a CPU alone, so the bill is the same on every
    device.

    Raises:
      ValueError: `JAX_PLATFORMS` leaves out the CPU.
    """
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ValueError(
            f"JAX has no CPU ({str(error).splitlines()[0]}), for which operations are counted; add it, as in "
            "JAX_PLATFORMS=cuda,cpu"
        ) from error
    with jax.default_device(cpu):
        traced: Any = jax.jit(function).trace(*inputs)
        lowered = traced.lower()
    return float(lowered.cost_analysis().get("flops", 0.0)) + count_repeats(traced.jaxpr.jaxpr), lowered.out_info


def count_repeats(program: core.Jaxpr) -> float:
    """Returns the operations of a program's loops of known length that XLA does not count.

    Of an unrolled loop, it counts the iterations of one step, which are `unroll`, and those that are left over.
    """
    more = 0.0
    for equation in program.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            body, length, unroll = params["jaxpr"], params["length"], params["unroll"]
            counted = length if length <= unroll else unroll + length % unroll
            once, _ = count_flops(core.jaxpr_as_fun(body), *body.in_avals)
            more += (length - counted) * once + counted * count_repeats(body.jaxpr)
        elif name == "cond":
            whole = [count_flops(core.jaxpr_as_fun(one), *one.in_avals)[0] for one in params["branches"]]
            repeats = [count_repeats(one.jaxpr) for one in params["branches"]]
            more += max(whole) - max(np.subtract(whole, repeats))
        else:
            more += sum(map(count_repeats, core.jaxprs_in_params(params)))
    return more


def count_numbers(variables: Variables) -> int:
    """Returns how many numbers variables hold.

    >>> count_numbers({"kernel": np.zeros((3, 2)), "bias": np.zeros(2)})
    8
    """
    leaves: list[Any] = jax.tree.leaves(variables)
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)
