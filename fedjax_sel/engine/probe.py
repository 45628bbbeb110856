"""Probes: a uniform cohort trains, clients measure signals on the resulting model, and it is discarded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.arrays import run_if
from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.contract import check_flag
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import Ledger
from fedjax_sel.engine.signals import count_before, hide_others, measure_clients
from fedjax_sel.engine.state import RoundState, Values
from fedjax_sel.engine.training import Trained, count_training, needs_model, train_cohort
from fedjax_sel.protocols import overrides
from fedjax_sel.types import Context, PRNGKey, StrategyState, Variables

PREFIX = "probed_"


def probe(
    aggregate: Callable[[Experiment, RoundState, Trained], tuple[Variables, StrategyState, StrategyState]],
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    asked: Bool[Array, "N"],
    layout: Layout,
) -> tuple[Values, Ledger | None]:
    """Returns the selector's `before` signals on the model of a probe, `probed_NAME`, and what the probe used.

    Both are zeros in rounds without a probe; a selector that never probes gets no values and no ledger. Of clients that
    cannot be reached nothing is known, as in `measure_before`.

    Args:
      aggregate: makes a global model from the results of a cohort's training.
      experiment, data, run_key, state, ctx: of this round.
      asked: which clients were asked for signals on the current model.
      layout: how clients are run.
    """
    selector = experiment.client_selection
    if not overrides(selector, "probes"):
        return {}, None
    signals = selector.signals()

    def perform() -> tuple[Values, Ledger]:
        own = key_for(run_key, Purpose.PROBE, ctx.round)
        cohort = uniform_m(key_for(own, Purpose.SELECT), ctx.available, ctx.m)
        with stage("probe", round=ctx.round):
            trained = train_cohort(experiment, data, own, state, ctx, cohort, asked, layout)
            variables, *_ = aggregate(experiment, state, trained)
            values = measure_clients(
                signals.at("before"),
                experiment.task,
                variables,
                state.personal,
                data,
                replace(ctx, candidates=None),
                layout,
                key=key_for(own, Purpose.SIGNALS, ctx.round),
                holdout=experiment.measures_holdout,
            )
        has_model = asked & needs_model(signals)
        models_sent = (cohort.mask & ~has_model[cohort.client]).sum()
        asking = count_before(experiment, data, ctx.available, jnp.zeros(ctx.num_clients, bool))
        training = count_training(experiment, data, trained, models_sent)
        told = {PREFIX + name: hide_others(value, ctx.available) for name, value in values.items()}
        return told, asking + training

    probes = check_flag(f"{type(selector).__name__}.probes", selector.probes(ctx.round))
    return run_if(probes, perform)
