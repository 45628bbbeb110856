"""Handling of non-finite numbers: such an update is left out of the aggregate, such a seed ends, and others go on.

Both guards are wrappers, as `optax.apply_if_finite` is: `guard_update` wraps the training of one client, `guard_round`
a round. A seed ends if its model or its loss on the test examples is not finite, or if none of the updates that came
back is finite, since then nothing is left to average; a step size that is far too large has this effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.arrays import choose
from fedjax_sel.engine.faults import may_diverge
from fedjax_sel.engine.state import FaultCounts, RoundRecord, RoundState
from fedjax_sel.types import PAD_CLIENT, Update, Variables

TINY = jnp.finfo(jnp.float32).tiny


SMALL = 4096
"""The largest size of arrays that are concatenated and checked together, because one check compiles faster."""


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Returns whether every number of a pytree is finite; large arrays are checked without a copy."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    small, large = ([x for x in leaves if (x.size <= SMALL) == few] for few in (True, False))
    parts = [*large, *([jnp.concatenate(small)] if small else [])]
    return jnp.stack([jnp.isfinite(part).all() for part in parts] or [jnp.ones((), bool)]).all()


def guard_update(train: Callable[..., Update]) -> Callable[..., Update]:
    """Wraps the training of one client: an update with a number that is not finite becomes all 0 and is marked."""

    def guarded(*args: Any) -> Update:
        update = train(*args)
        most = jnp.finfo(update.mean_sq_loss.dtype).max  # the square of a finite loss may overflow
        update = replace(update, mean_sq_loss=jnp.minimum(update.mean_sq_loss, most))
        finite = all_finite((update.delta, update.upload, update.loss))

        def keep(leaf):
            return choose(finite, leaf, jnp.zeros_like(leaf)) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

        return replace(jax.tree.map(keep, update), finite=finite)

    return guarded


def reweight(
    total: Variables, weight: Float[Array, "m"], finite_weight: Float[Array, "m"], finite: Bool[Array, "m"]
) -> Variables:
    """Returns a sum of updates as if those left out had not been in the cohort.

    Args:
      total: sum of updates, weighted by `weight`.
      weight: weights of the cohort.
      finite_weight: weights of the cohort without those left out; in proportion to `weight`.
      finite: which updates were not left out.
    """
    scale = jnp.where(finite.all(), 1.0, finite_weight.sum() / jnp.maximum(jnp.sum(weight * finite), TINY))
    return jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, total)


def guard_round(
    step: Callable[[RoundState, Int[Array, ""]], tuple[RoundState, RoundRecord]],
) -> Callable[[RoundState, Int[Array, ""]], tuple[RoundState, RoundRecord]]:
    """Wraps a round so that a seed that diverges in it keeps the state from before it.

    The record of the round that ends a seed has NaN quality; a seed that has ended records nothing more. The
    correction's state, which may be large, is not restored: nothing reads it after the end.
    """

    def guarded(before: RoundState, t: Int[Array, ""]) -> tuple[RoundState, RoundRecord]:
        after, record = step(before, t)
        returned, left_out = record.ledger.reports, record.ledger.left_out
        some_finite = (returned > left_out) | (returned == 0)
        # The loss is NaN where the model was not evaluated, and infinite where it was measured as NaN.
        finite = all_finite(after.variables) & ~jnp.isinf(record.loss) & some_finite
        alive = before.alive & finite
        kept = choose(alive, *(replace(state, correction=()) for state in (after, before)))
        return replace(kept, correction=after.correction, alive=alive), hide_ended(record, before.alive, alive)

    return guarded


def hide_ended(record: RoundRecord, began: Bool[Array, ""], alive: Bool[Array, ""]) -> RoundRecord:
    """Removes the quality from the record of a seed that is no longer `alive`; everything if it had ended before."""

    def hide(values: Any, shown: Bool[Array, ""], otherwise: float | int = 0) -> Any:
        return choose(shown, values, jax.tree.map(lambda value: jnp.full_like(value, otherwise), values))

    quality = ("accuracy", "loss", "training_loss", "metrics", "clients")
    return replace(
        record,
        **{name: hide(getattr(record, name), alive, jnp.nan) for name in quality},
        client=hide(record.client, began, PAD_CLIENT),
        ledger=hide(record.ledger, began),
        probe=hide(record.probe, began),
        alive=alive,
        faults=None if record.faults is None else hide_faults(record.faults, began, alive),
        idle=None if record.idle is None else record.idle & alive,
    )


def hide_faults(faults: Any, began: Bool[Array, ""], alive: Bool[Array, ""]) -> FaultCounts:
    """Returns a round's faults, without those that divergence causes if the seed ended; none if it had ended before."""
    diverging = np.array([may_diverge(name) for name in faults.names])
    shown = jnp.where(diverging, alive, began)
    return faults.replace(counts=jnp.where(shown, faults.counts, 0))
