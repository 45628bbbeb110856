"""What is not a finite number: an update is left out of the aggregate, a seed is frozen; the others go on.

A seed ends where its model or its loss on the test rows is not finite, or where of all the updates that came back none
is: what a step size that is far too large comes to, since nothing is left to average.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.engine.metrics import Values
from fedjax_sel.types import Update, Variables

if TYPE_CHECKING:
    from fedjax_sel.engine.round import State

TINY = jnp.finfo(jnp.float32).tiny
WITHOUT: dict[str, float] = {"client": -1, "accuracy": jnp.nan, "loss": jnp.nan, "training_loss": jnp.nan}
"""What a frozen round measures where it is not 0."""


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number of a pytree is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves] or [jnp.ones((), bool)]).all()


def only_finite(update: Update) -> Update:
    """One client's update; all 0 where any of its numbers is not finite, and marked."""
    finite = all_finite((update.delta, update.upload, update.loss, update.mean_sq_loss))

    def kept(leaf):
        return jnp.where(finite, leaf, jnp.zeros_like(leaf)) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

    return replace(jax.tree.map(kept, update), finite=finite)


def reweighted(
    total: Variables, weight: Float[Array, "m"], among: Float[Array, "m"], finite: Bool[Array, "m"]
) -> Variables:
    """A sum of updates as if those that were left out had not been in the cohort.

    Args:
      total: weighted by `weight`.
      weight: of the cohort.
      among: of the cohort without those left out; in proportion to `weight`.
      finite: who was not left out.
    """
    scale = jnp.where(finite.all(), 1.0, among.sum() / jnp.maximum(jnp.sum(weight * finite), TINY))
    return jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, total)


def still_finite(
    variables: Variables,
    loss: Float[Array, ""],
    due: Bool[Array, ""],
    returned: Bool[Array, "m"],
    finite: Bool[Array, "m"],
) -> Bool[Array, ""]:
    """Whether a seed goes on.

    Args:
      variables: its model, which must be finite.
      loss: which must be, where it was measured.
      due: whether it was.
      returned: who returned an update.
      finite: whose is; one of those who returned must be.
    """
    some = (returned & finite).any() | ~returned.any()
    return all_finite(variables) & (jnp.isfinite(loss) | ~due) & some


def frozen(before: State, after: State, measured: Values) -> tuple[State, Values]:
    """The state a seed goes on from, and what its round measured.

    Where the round ended the seed, the state is the one before it, and its quality NaN; a seed that had ended measures
    nothing any more. The correction's state, which may be large, is left as it is: the round has not merged anything
    into it where the seed ended.
    """
    alive = before.alive & after.alive

    def kept(new, old):
        return jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, old)

    state = replace(
        after,
        variables=kept(after.variables, before.variables),
        client_selection=kept(after.client_selection, before.client_selection),
        aggregation=kept(after.aggregation, before.aggregation),
        change=kept(after.change, before.change),
        alive=alive,
    )
    quality = ("accuracy", "loss", "training_loss")

    def shown(name, value):
        without = jnp.asarray(WITHOUT.get(name, 0), value.dtype)
        return jnp.where(alive if name in quality else before.alive, value, without)

    measured = {name: shown(name, value) for name, value in measured.items()}
    return state, {**measured, "alive": alive}
