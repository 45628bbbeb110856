"""A probe: a random cohort trains, the clients say what its model is worth to them, and it is thrown away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.client_selection import uniform_m
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.metrics import Values, counts
from fedjax_sel.engine.signals import measure_clients
from fedjax_sel.engine.timing import simulated
from fedjax_sel.types import Context, PRNGKey

if TYPE_CHECKING:
    from fedjax_sel.engine.round import State, Trained

PREFIX = "probed_"


def run_probe(
    train: Callable[..., Trained],
    merge: Callable[..., Any],
    experiment: Experiment,
    data: FederatedData,
    seed: PRNGKey,
    state: State,
    ctx: Context,
    asked: Bool[Array, "N"],
    layout: Layout,
) -> tuple[Values, Values]:
    """The selector's `before` signals on a probed model, and what that took; nothing where it never probes.

    Both are zeros in rounds without a probe. The counts are named `probed_…`; `seconds` and `joules`, where
    there are devices, are to be added to the round's.

    Args:
      train, merge: `engine.round.train_cohort` and `merge`.
      experiment, data, seed, state, ctx: of this round.
      asked: who was asked for signals on the model as it is.
      layout: how.
    """
    probes: Any = getattr(experiment.client_selection, "probes", None)
    if probes is None:
        return {}, {}

    def perform() -> tuple[Values, Values]:
        own = key_for(seed, Purpose.PROBE, ctx.round)
        cohort = uniform_m(key_for(own, Purpose.SELECT), ctx.available, ctx.m)
        with stage("probe", round=ctx.round):
            trained = train(experiment, data, own, state, ctx, cohort, asked, layout)
            variables, _ = merge(experiment, state, trained)
            whole = replace(ctx, candidates=None)
            asking = key_for(own, Purpose.ASK, ctx.round)
            held = experiment.signal_split == "holdout"
            signals = experiment.client_selection.before
            values = measure_clients(signals, experiment.task, variables, data, whole, layout, key=asking, held=held)
        everyone = ctx.available
        taken = counts(experiment, data, everyone, cohort, trained.turns, trained.updates)
        holds_model = asked & any(signal.cost.model for signal in experiment.client_selection.before)
        taken["sent"] = (cohort.mask & ~holds_model[cohort.client]).sum()
        return (
            {PREFIX + name: value for name, value in values.items()},
            {PREFIX + name: value for name, value in taken.items()}
            | simulated(experiment, data, cohort, everyone, trained.turns),
        )

    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(perform))
    return jax.lax.cond(probes(ctx.round), perform, lambda: nothing)
