"""What a client selector must return: checked while a program is traced, before anything compiles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import PAD_CLIENT, Cohort, Context


def check_cohort(selector: ClientSelector, cohort: Any, ctx: Context) -> None:
    """Raises `ValueError` for what is no cohort of `m` slots."""
    name = type(selector).__name__
    if not isinstance(cohort, Cohort):
        raise ValueError(f"{name}.select returned a {type(cohort).__name__}; it must return a Cohort, as `top_m` does")
    wanted = {"client": jnp.integer, "mask": jnp.bool_, "weight": jnp.floating}
    for field, kind in wanted.items():
        value = jnp.asarray(getattr(cohort, field))
        if value.shape != (ctx.m,) or not jnp.issubdtype(value.dtype, kind):
            raise ValueError(
                f"{name}.select returned a cohort whose {field} is {value.dtype} of shape {value.shape}; "
                f"it must be {kind.__name__.rstrip('_')} of shape ({ctx.m},), one entry a slot"
            )


def check_state(strategy: Any, before: Any, after: Any) -> None:
    """Raises `ValueError` where a state changes its structure, a shape or a type in a round."""
    name = type(strategy).__name__
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ValueError(
            f"{name}.observe returned a state of another structure than `init`: {jax.tree.structure(after)} "
            f"instead of {jax.tree.structure(before)}"
        )
    leaves = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in leaves:
        was, now = (jnp.shape(old), jnp.result_type(old)), (jnp.shape(new), jnp.result_type(new))
        if was != now:
            where = jax.tree_util.keystr(path) or "it"
            raise ValueError(
                f"{name}.observe returned a state in which {where} is {now[1]} of shape {now[0]}; "
                f"`init` made it {was[1]} of shape {was[0]}"
            )


def merge_duplicates(cohort: Cohort) -> Cohort:
    """The cohort in which a client drawn more than once stands once, with the sum of its weights."""
    same = (cohort.client[:, None] == cohort.client[None]) & cohort.mask[:, None] & cohort.mask[None]
    first = cohort.mask & (jnp.argmax(same, axis=1) == jnp.arange(cohort.mask.shape[0]))
    weight = jnp.where(first, jnp.sum(jnp.where(same, cohort.weight[None], 0.0), axis=1), 0.0)
    return Cohort(jnp.where(first, cohort.client, PAD_CLIENT), first, weight)
