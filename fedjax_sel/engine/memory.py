"""Memory estimates before a run compiles: what a device holds throughout, and the peak of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine import distributed
from fedjax_sel.engine import layout as layouts
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.personal import init_personal

GIB = 2**30

ELEMENT_BY_ELEMENT = """
abs add and broadcast_in_dim ceil clamp convert_element_type copy cos div eq erf exp exp2 expand_dims expm1 floor
ge gt integer_pow iota is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow rem reshape
rng_bit_generator round rsqrt select_n shift_left shift_right_logical sign sin slice sqrt square squeeze
stop_gradient sub tanh transpose xor
"""
FUSED = frozenset(ELEMENT_BY_ELEMENT.split())
"""Operations that XLA fuses into the users of their result; they take no memory of their own."""


IN_PLACE = frozenset(["scatter", "scatter-add", "dynamic_update_slice", "cond", "pjit", "jit", "closed_call"])
"""Operations whose result may reuse the memory of an operand of the same shape that is not needed afterwards."""


class DoesNotFit(ValueError):
    """A run would need more memory than a device may use."""


def check_kept(
    experiment: Experiment,
    data: FederatedData,
    x: Any,
    runs: int,
    layout: layouts.Layout,
    memory: int | None,
) -> None:
    """Raises `DoesNotFit` if the examples and what is kept between rounds do not fit, before any of it is made.

    Args:
      experiment: one of the experiments.
      data: of all runs, with arrays of their own stacked; or its shapes, as they are placed on the devices.
      x: examples of one run.
      runs: number of runs, over all devices.
      layout: for the number of devices.
      memory: bytes that a device may use; None: all it has.
    """

    def kept():
        variables = experiment.task.init(jax.random.key(0), x)
        model, _ = experiment.task.split(variables)
        return {
            "models": (variables, experiment.aggregation.init(model)),
            "correction": experiment.correction.init(model, data.num_clients),
            "personal": init_personal(experiment.task, variables, data.num_clients),
        }

    here = runs // layout.shares[0]
    sizes = {name: here * size_of(part) for name, part in jax.eval_shape(kept).items()}
    sizes["examples"] = size_of(data)
    allowed = memory or distributed.device_memory()
    if sum(sizes.values()) <= allowed:
        return
    worst = max(sizes, key=lambda name: sizes[name])
    name, model = type(experiment.correction).__name__.lower(), experiment.task.parameters(x)
    of_all = f"for N = {data.num_clients} clients, {here} run{'s' * (here > 1)} and a model of {model} parameters"
    what, knob = {
        "examples": (
            "the examples take",
            "lower data.num_examples, or the number of seeds where each draws its own"
            + ("" if data.stays_on_host else ", or set examples_on=host"),
        ),
        "models": (
            f"the models of {here} run{'s' * (here > 1)}, {model} parameters each, take",
            "run fewer seeds at once, or take a smaller model",
        ),
        "correction": (
            f"the state of {name} {of_all} takes",
            "lower seeds or partition.clients, or take a smaller model",
        ),
        "personal": (
            f"the personal parts ({', '.join(experiment.task.personal or ())}) {of_all} take",
            "make fewer parts personal, lower seeds or partition.clients, or take a smaller model",
        ),
    }[worst]
    raise DoesNotFit(f"{what} {format_gib(sizes[worst])}, but a device has {format_gib(allowed)}; {knob}")


def check_program(function: Callable, arguments: tuple, static: Mapping[str, Any], memory: int | None) -> int:
    """Returns an estimate of the most bytes that a function holds on a device at once, before it is compiled.

    Raises:
      DoesNotFit: it is more than a device may use; the message names what would take less.
    """
    allowed, layout = memory or distributed.device_memory(), static["layout"]
    taken = estimate(function, arguments, static)
    if taken <= allowed:
        return taken
    runs = len(arguments[2])
    ways = {
        "layout=scan (one run and one client at a time)": replace(layout, clients=1, members=None, seeds="scan"),
        "layout={clients: 1, seeds: scan, examples: 512}": replace(
            layout, clients=1, members=None, seeds="scan", examples=512
        ),
    }
    found = {way: estimate(function, arguments, {**static, "layout": other}) for way, other in ways.items()}
    helps = [f"{way} takes about {format_gib(size)}" for way, size in found.items() if size < 0.9 * taken]
    raise DoesNotFit(
        f"the run would hold about {format_gib(taken)} at once with {layout} and {runs} runs, but a device has "
        f"{format_gib(allowed)}; {'; '.join(helps) or 'layout it otherwise does not help'}; fewer seeds, a smaller "
        "local_training.batch_size or m take less, too"
    )


def estimate(function: Callable, arguments: tuple, static: Mapping[str, Any]) -> int:
    """Estimates the peak bytes of a jitted function, arguments included, from its operations, most of them fused.

    Each device of a mesh holds its share. The estimate is not a bound: XLA may keep less, or need temporary memory.
    """
    program = function.trace(*arguments, **static).jaxpr.jaxpr
    if [equation.primitive.name for equation in program.eqns] == ["shard_map"]:
        # What one device of the mesh does, with its share of the arrays.
        (program,) = core.jaxprs_in_params(program.eqns[0].params)
    return sum(nbytes(v.aval) for v in program.invars + program.constvars) + peak(program)


def peak(jaxpr: Any) -> int:
    """Returns the most bytes of a program's results that are live at once, without its arguments and constants."""
    last: dict[Any, int] = {}
    for i, equation in enumerate(jaxpr.eqns):
        for v in equation.invars:
            if not isinstance(v, core.Literal):
                last[v] = i
    stays = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    held, now, most = {}, 0, 0
    for i, equation in enumerate(jaxpr.eqns):
        inner = max(map(peak, core.jaxprs_in_params(equation.params)), default=0)
        fused = equation.primitive.name in FUSED
        dying = {v for v in equation.invars if not isinstance(v, core.Literal) and last[v] == i and v not in stays}
        over = find_overwritten(equation, dying)
        made = {v: 0 if fused or v in over else nbytes(v.aval) for v in equation.outvars}
        most = max(most, now + sum(made.values()) + inner)
        held |= made | {v: held.pop(old, 0) for v, old in over.items()}
        now += sum(made.values())
        for v in {v for v in equation.invars if not isinstance(v, core.Literal)} | set(equation.outvars):
            if v in held and v not in stays and last.get(v, i) <= i:
                now -= held.pop(v)
    return max(most, now)


def find_overwritten(equation: Any, dying: set[Any]) -> dict[Any, Any]:
    """Returns the results that take the place of an operand, mapped to that operand."""
    if equation.primitive.name not in IN_PLACE:
        return {}
    found: dict[Any, Any] = {}
    for v in equation.outvars:
        like = (old for old in dying if old.aval == v.aval and old not in found.values())
        if (old := next(like, None)) is not None:
            found[v] = old
    return found


def nbytes(aval: Any) -> int:
    """Returns the bytes of one array, or of a device's share of a shape with a sharding."""
    shape = getattr(aval, "shape", ())
    if isinstance(aval, jax.ShapeDtypeStruct) and aval.sharding is not None:
        shape = aval.sharding.shard_shape(shape)
    size = int(np.prod(shape, dtype=np.int64))
    dtype = getattr(aval, "dtype", np.dtype(np.float32))
    return size * getattr(dtype, "itemsize", 4)


def size_of(tree: Any) -> int:
    """Returns the bytes of a pytree of arrays or of their shapes."""
    return sum(nbytes(leaf if hasattr(leaf, "shape") else jnp.asarray(leaf)) for leaf in jax.tree.leaves(tree))


def format_gib(size: float) -> str:
    """Formats bytes as GiB."""
    return f"{size / GIB:.3g} GiB"
