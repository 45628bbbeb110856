"""Checks of what strategies return: shapes, types and structures, while a program is traced, before it compiles.

Faults that depend on values (a client that does not exist, a weight below 0) are counted by `engine.faults`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from fedjax_sel.protocols import ClientSelector, Upfront, overrides
from fedjax_sel.pytree import ARRAYS, Range, is_key, show_value
from fedjax_sel.types import Cohort, Context, Plan, Update


def check_cohort(selector: ClientSelector, cohort: Any, ctx: Context, method: str = "select") -> None:
    """Raises `ValueError` if a value is not a cohort of `m` slots."""
    where = f"{type(selector).__name__}.{method}"
    if not isinstance(cohort, Cohort):
        raise ValueError(f"{where} returned {name_kind(cohort)}; it must return a Cohort, as `top_m` does")
    wanted = {"client": jnp.integer, "mask": jnp.bool_, "weight": jnp.floating}
    for field, kind in wanted.items():
        value = getattr(cohort, field)
        if not (isinstance(value, ARRAYS) and value.shape == (ctx.m,) and jnp.issubdtype(value.dtype, kind)):
            raise ValueError(
                f"{where} returned a cohort whose {field} is {show_value(value)}; "
                f"it must be {kind.__name__.rstrip('_')} of shape ({ctx.m},), one entry a slot"
            )


def check_candidates(selector: ClientSelector, candidates: Any) -> None:
    """Raises `ValueError` if a value is neither None nor a vector of clients."""
    if candidates is None:
        return
    fits = isinstance(candidates, ARRAYS) and candidates.ndim == 1 and jnp.issubdtype(candidates.dtype, jnp.integer)
    if not fits or candidates.size == 0:
        raise ValueError(
            f"{type(selector).__name__}.candidates returned {show_value(candidates)}; "
            "it must be None (everyone), or the integer numbers of clients, of shape (d,)"
        )


def check_array(where: str, value: Any, shape: tuple[int, ...], kind: Any, words: str) -> None:
    """Raises `ValueError` if a value is not an array of the given shape and kind.

    Args:
      where: what returned it, as in `Mean.weights`.
      value: what was returned.
      shape: the shape that it must have.
      kind: the kind of type that it must have, as `jnp.issubdtype` takes it.
      words: what it must be, in words.
    """
    if not (is_numeric(value) and jnp.shape(value) == shape and jnp.issubdtype(jnp.result_type(value), kind)):
        raise ValueError(f"{where} returned {show_value(value)}; it must be {words}")


def check_flag(where: str, value: Any) -> Bool[Array, ""]:
    """Returns a value as an array; raises `ValueError` unless it is one truth value."""
    value = jnp.asarray(value)
    check_array(where, value, (), jnp.bool_, "true or false")
    return value


def check_example_weights(selector: Any, weight: Any, longest: int) -> None:
    """Raises `ValueError` if a value does not have one weight for each of a client's examples."""
    where = f"{type(selector).__name__}.select"
    if not is_numeric(weight) or jnp.shape(weight) != (longest,):
        raise ValueError(
            f"{where} returned {show_value(weight)}; it must be one weight (or true and false) for each of the L = "
            f"{longest} places of a client's examples"
        )


def check_plan(trainer: Any, plan: Any, m: int) -> None:
    """Raises `ValueError` if a value is not a plan of `m` members."""
    where = f"{type(trainer).__name__}.plan"
    if not isinstance(plan, Plan):
        raise ValueError(f"{where} returned {name_kind(plan)}; it must return a Plan(steps, examples_seen, ...)")
    for field in ("steps", "examples_seen"):
        check_array(f"{where}: {field}", getattr(plan, field), (m,), jnp.integer, f"integers of shape ({m},)")
    check_array(f"{where}: step_size_sum", plan.step_size_sum, (m,), jnp.floating, f"numbers of shape ({m},)")


def check_update(trainer: Any, update: Any, variables: Any) -> None:
    """Raises `ValueError` if a value is not an update of a model's variables."""
    where = f"{type(trainer).__name__}.train"
    if not isinstance(update, Update):
        raise ValueError(f"{where} returned {name_kind(update)}; it must return an Update(delta, num_examples, ...)")
    check_like(where, variables, update.delta, "a delta")
    for field in ("loss", "mean_sq_loss"):
        check_array(f"{where}: {field}", getattr(update, field), (), jnp.floating, "one number")
    for field in ("num_examples", "steps", "examples_seen"):
        check_array(f"{where}: {field}", getattr(update, field), (), jnp.integer, "one integer")


def check_upfront(where: str, cost: Any, num_clients: int) -> Upfront:
    """Returns what a strategy cost before round 0.

    Raises:
      ValueError: a number is not finite, negative, or of another shape.
    """
    if not isinstance(cost, Upfront):
        raise ValueError(f"{where} is {name_kind(cost)}; it must be Upfront(flops, down, up)")
    for field in ("flops", "down", "up"):
        amount = getattr(cost, field)
        Range(0, below=math.inf).check(f"{where}: {field}", amount)
        if np.shape(amount) not in ((), (num_clients,)):
            words = f"one number, or one for each of the N = {num_clients} clients"
            raise ValueError(f"{where}: {field} is {show_value(amount)}; it must be {words}")
    return cost


def check_like(where: str, like: Any, given: Any, noun: str = "a model", origin: str = "the global model has") -> None:
    """Raises `ValueError` if a pytree has another structure, or a leaf another shape or type, than `like`.

    Args:
      where: what returned it, as in `Mean.step`.
      like: what it must be like.
      given: what was returned.
      noun: what it is, in words.
      origin: where `like` comes from, in words that end with a verb.
    """
    if jax.tree.structure(like) != jax.tree.structure(given):
        raise ValueError(
            f"{where} returned {noun} of another structure than {origin.rpartition(' ')[0]}: "
            f"{jax.tree.structure(given)} instead of {jax.tree.structure(like)}"
        )
    leaves = zip(jax.tree_util.tree_leaves_with_path(like), jax.tree.leaves(given), strict=True)
    for (path, old), new in leaves:
        fits = (is_numeric(new) or is_key(new)) and jnp.shape(old) == jnp.shape(new)
        if not (fits and jnp.result_type(old) == jnp.result_type(new)):
            place = jax.tree_util.keystr(path) or "it"
            raise ValueError(
                f"{where} returned {noun} in which {place} is {show_value(new)}; {origin} it {show_value(old)}"
            )


def check_state(strategy: Any, before: Any, after: Any, method: str = "observe") -> None:
    """Raises `ValueError` if a state changes its structure, a shape or a type in a round."""
    check_like(f"{type(strategy).__name__}.{method}", before, after, "a state", "`init` made")


def check_pair(aggregator: Any, result: Any) -> tuple[Any, Any]:
    """Returns the new model and state that `step` returned; raises `ValueError` if they are not such a pair."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ValueError(
            f"{type(aggregator).__name__}.step returned {name_kind(result)}; it must return the new model and the state"
        )
    return result


def check_init(strategy: Any, state: Any, leading: int | None = None, method: str = "init") -> None:
    """Raises `ValueError` if an initial state is not a pytree of arrays.

    Args:
      strategy: the strategy that it belongs to.
      state: what the method returned.
      leading: length of every array's first axis; None: any.
      method: the method that made it.
    """
    if state is None and method == "init" and overrides(strategy, method):
        raise ValueError(f"{type(strategy).__name__}.init returned None; it must return the state, () if there is none")
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        place = jax.tree_util.keystr(path) or "it"
        where = f"{type(strategy).__name__}.{method} returned a state in which {place}"
        if not (is_numeric(leaf) or is_key(leaf)):
            raise ValueError(
                f"{where} is {show_value(leaf)}; a state is a pytree of arrays: what is not a number belongs in a "
                "static field"
            )
        check_bits(where, leaf)
        if leading is not None and jnp.shape(leaf)[:1] != (leading,):
            raise ValueError(f"{where} is {show_value(leaf)}; its first axis must be N = {leading}, one entry a client")


def check_bits(where: str, value: Any) -> None:
    """Raises `ValueError` if an array of NumPy, or a number, is a whole one that JAX would cut to 32 bits."""
    if isinstance(value, int | np.ndarray | np.integer):
        given = np.asarray(value)
        limit = np.iinfo(np.uint32 if given.dtype.kind == "u" else np.int32)
        beyond = given.size and given.dtype.kind in "iuO" and (given.min() < limit.min or given.max() > limit.max)
        if beyond:
            raise ValueError(
                f"{where} has integers beyond 32 bits, from {given.min()} to {given.max()}; renumber or rescale them"
            )


def check_value(name: str, value: Any, count: int) -> None:
    """Raises `ValueError` if a signal's values of `count` examples do not have one entry per example."""
    if not is_numeric(value) or jnp.shape(value)[:1] != (count,):
        raise ValueError(
            f"the signal {name!r} returned {show_value(value)} for {count} examples; its first axis must be as long, "
            "one entry an example"
        )


def is_numeric(value: Any) -> bool:
    """Returns whether a value is a number or an array of numbers."""
    if isinstance(value, bool | int | float):
        return True
    return isinstance(value, ARRAYS) and (value.dtype == jnp.bool_ or jnp.issubdtype(value.dtype, jnp.number))


def name_kind(value: Any) -> str:
    """Names the class of a value, with an indefinite article; describes an array by type and shape."""
    if value is None or isinstance(value, ARRAYS):
        return show_value(value)
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
