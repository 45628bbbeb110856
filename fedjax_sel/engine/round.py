"""One round of federated learning: select, train, accept, aggregate, observe, measure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.arrays import choose
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.availability import draw_available
from fedjax_sel.engine.cohort import merge_duplicates, restrict
from fedjax_sel.engine.contract import check_candidates, check_cohort, check_like, check_pair, check_state
from fedjax_sel.engine.data_selection import merge_reports
from fedjax_sel.engine.debug import check_finite, stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.faults import (
    Faults,
    count_candidate_faults,
    count_cohort_faults,
    count_signal_faults,
    is_idle,
    refuse_faults,
)
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import Ledger
from fedjax_sel.engine.metrics import evaluate
from fedjax_sel.engine.probe import PREFIX, probe
from fedjax_sel.engine.signals import count_before, measure_after, measure_before, measure_cohort
from fedjax_sel.engine.state import RoundRecord, RoundState, Values, keep_returned, pack_faults
from fedjax_sel.engine.timing import expect_turns
from fedjax_sel.engine.training import Trained, count_training, train_cohort
from fedjax_sel.engine.undeclared import hide_rounds
from fedjax_sel.protocols import overrides
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey, StrategyState, Updates, Variables


def round_step(
    experiment: Experiment, data: FederatedData, run_key: PRNGKey, layout: Layout, state: RoundState, t: Int[Array, ""]
) -> tuple[RoundState, RoundRecord]:
    """Runs round `t`; returns the state after it, and what was measured."""
    key = partial(key_for, run_key, round=t)
    ctx = make_context(experiment, data, run_key, t)
    ctx = replace(ctx, candidates=choose_candidates(experiment, key(Purpose.CANDIDATES), state, ctx))
    before, asked = measure_before(experiment, data, run_key, state, ctx, layout)
    cohort = select_cohort(experiment, key(Purpose.SELECT), state, ctx, before)  # who trains
    # What they train on, and how; and whose update is accepted.
    trained = train_cohort(experiment, data, run_key, state, ctx, cohort, asked, layout)
    probed, probe_ledger = probe(aggregate, experiment, data, run_key, state, ctx, asked, layout)
    variables, aggregation, correction = aggregate(experiment, state, trained)  # and how updates are merged
    signals = measure_round(experiment, data, run_key, state, ctx, trained, variables, before | probed, layout)
    selector_state = observe_round(experiment, key(Purpose.OBSERVE), state, ctx, trained.cohort, signals)
    back = restrict(cohort, trained.work.returned)
    personal = keep_returned(state.personal, back, trained.personal)
    quality = evaluate(experiment, data, run_key, variables, personal, t, layout)
    ledger = count_round(experiment, data, ctx, trained, asked)
    chosen = trained.chosen
    new = RoundState(
        variables=variables,
        client_selection=selector_state,
        data_selection=keep_returned(state.data_selection, back, chosen.state),
        data_server=merge_reports(experiment, key(Purpose.DATA_MERGE), state, ctx, back, chosen.report),
        personal=personal,
        aggregation=aggregation,
        correction=correction,
        change=None if state.change is None else jax.tree.map(jnp.subtract, variables, state.variables),
        alive=state.alive,
    )
    loss = average_loss(trained)
    faults = pack_faults(count_faults(experiment, ctx, cohort, trained, signals))
    taken = {"client": cohort.client, "ledger": ledger, "probe": probe_ledger}
    return new, RoundRecord(**quality, training_loss=loss, **taken, faults=faults, idle=is_idle(trained.work))


def average_loss(trained: Trained) -> Float[Array, ""]:
    """Returns the weighted mean of the losses that the merged members report; NaN if all weights are 0."""
    whole = trained.weight.sum()
    return jnp.where(whole > 0, jnp.sum(trained.weight * trained.updates.loss) / whole, jnp.nan)


def make_context(experiment: Experiment, data: FederatedData, run_key: PRNGKey, t: Int[Array, ""]) -> Context:
    """Returns what the server knows for free in round `t`."""
    available = draw_available(experiment.availability, Purpose.AVAILABILITY, run_key, t, data.num_clients)
    ctx = Context(
        round=jnp.asarray(t, jnp.int32),
        rounds=jnp.asarray(experiment.rounds, jnp.int32),
        num_examples=data.num_examples,
        available=available,
        devices=data.devices,
        cohort_size=experiment.count_cohort(data.num_clients),
    )
    timing, epoch = expect_turns(experiment, data, ctx)
    return replace(ctx, timing=timing, epoch=epoch)


def choose_candidates(experiment: Experiment, key: PRNGKey, state: RoundState, ctx: Context) -> Int[Array, "d"] | None:
    """Returns the clients that the selector asks for its `before` signals; None: all."""
    selector = experiment.client_selection
    with stage("client selection", round=ctx.round):
        candidates = selector.candidates(key, state.client_selection, hide_rounds(selector, "candidates", ctx))
        check_candidates(selector, candidates)
        refuse_faults(experiment, count_candidate_faults(candidates, ctx.num_clients), candidates)
        return candidates


def select_cohort(experiment: Experiment, key: PRNGKey, state: RoundState, ctx: Context, before: dict) -> Cohort:
    """Returns the selector's cohort, with its shapes checked; a client that was drawn more than once trains once."""
    selector = experiment.client_selection
    with stage("client selection", round=ctx.round):
        refuse_faults(experiment, count_signal_faults(before, dict.fromkeys(before, ctx.reached)))
        cohort = selector.select(key, state.client_selection, hide_rounds(selector, "select", ctx), **before)
        check_cohort(selector, cohort, ctx)
        cohort = cohort.replace(client=jnp.where(cohort.mask, jnp.asarray(cohort.client, jnp.int32), PAD_CLIENT))
        cohort = merge_duplicates(cohort) if selector.replacement else cohort
        refuse_faults(experiment, count_cohort_faults(cohort, ctx), cohort)
        return cohort


def aggregate(
    experiment: Experiment, state: RoundState, trained: Trained
) -> tuple[Variables, StrategyState, StrategyState]:
    """Returns the new global model, and the states of aggregator and correction.

    Batch statistics are averaged by any aggregator. If no update has a weight, the model and the aggregator's state
    stay as they were, unless the aggregator perturbs the change.
    """
    task, correction = experiment.task, merge_correction(experiment, state, trained)
    with stage("aggregation"):
        (model, statistics), (delta, moved) = task.split(state.variables), task.split(trained.delta)
        stepped, aggregation = check_pair(
            experiment.aggregation, experiment.aggregation.step(state.aggregation, model, delta)
        )
        check_like(f"{type(experiment.aggregation).__name__}.step", model, stepped)
        check_state(experiment.aggregation, state.aggregation, aggregation, "step")
        whole = trained.weight.sum()
        if not overrides(experiment.aggregation, "perturb"):  # noise is released whoever returned
            new, old = (stepped, aggregation), (model, state.aggregation)
            stepped, aggregation = choose(whole == 0, old, new)
        if overrides(experiment.correction, "adjust"):
            adjusted = experiment.correction.adjust(correction, stepped)
            check_like(f"{type(experiment.correction).__name__}.adjust", model, adjusted)
            stepped = choose(whole == 0, stepped, adjusted)
        share = jnp.where(whole > 0, 1 / jnp.where(whole > 0, whole, 1.0), 0.0)
        variables = task.join(stepped, jax.tree.map(lambda s, d: s + d * share, statistics, moved))
        check_finite(variables)
        return variables, aggregation, correction


def measure_round(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    trained: Trained,
    variables: Variables,
    known: Values,
    layout: Layout,
) -> Values:
    """Returns all signals of the round.

    Args:
      experiment, data, run_key, state, ctx: of the round.
      trained: results of the cohort's training.
      variables: the new global model.
      known: signals measured before training and by a probe.
      layout: how examples are run.
    """
    with stage("signals after training", round=ctx.round):
        change = jax.tree.map(jnp.subtract, variables, state.variables)
        signals = experiment.client_selection.signals().at("after")
        after = measure_after(
            signals,
            experiment.task,
            variables,
            data,
            updates=trained.updates,
            aggregate=change,
            previous=state.change,
            mask=trained.cohort.mask,
            layout=layout,
        )
        updates = Updates(state.variables, trained.updates.delta, trained.weight)
        together = measure_cohort(signals, experiment.task, data, run_key, ctx.round, updates)
        return known | trained.signals | after | together


def observe_round(
    experiment: Experiment, key: PRNGKey, state: RoundState, ctx: Context, cohort: Cohort, signals: Values
) -> StrategyState:
    """Returns the client selector's state after the round; the cohort's mask says whose update was merged."""
    selector = experiment.client_selection
    with stage("what the selector learns", round=ctx.round):
        told = hide_rounds(selector, "observe", ctx)
        selector_state = selector.observe(key, state.client_selection, told, cohort, **signals)
        check_state(selector, state.client_selection, selector_state)
        return selector_state


def merge_correction(experiment: Experiment, state: RoundState, trained: Trained) -> StrategyState:
    """Returns the correction's state after the round, from what the merged members sent for it."""
    cohort = trained.cohort.replace(num_examples=trained.updates.num_examples)
    merged = experiment.correction.merge(state.correction, cohort, trained.updates.upload)
    check_state(experiment.correction, state.correction, merged, "merge")
    return merged


def count_faults(experiment: Experiment, ctx: Context, cohort: Cohort, trained: Trained, signals: Values) -> Faults:
    """Counts the invalid values that strategies returned in the round, by kind."""
    before = experiment.client_selection.signals().at("before")
    with stage("signals", round=ctx.round):
        probed = dict.fromkeys((PREFIX + name for name in before), ctx.available)
        of_signals = count_signal_faults(signals, dict.fromkeys(before, ctx.reached) | probed)
        refuse_faults(experiment, of_signals)
    of_candidates = count_candidate_faults(ctx.candidates, ctx.num_clients)
    return {**of_candidates, **count_cohort_faults(cohort, ctx), **trained.faults, **of_signals}


def count_round(
    experiment: Experiment, data: FederatedData, ctx: Context, trained: Trained, asked: Bool[Array, "N"]
) -> Ledger:
    """Returns what the round used, without a probe; a model that a member receives anyway is not sent for signals."""
    cohort = trained.selected
    members = jnp.zeros(ctx.num_clients, bool).at[cohort.returned].set(True, mode="drop")
    training = count_training(experiment, data, trained, cohort.mask.sum())
    return count_before(experiment, data, asked, members) + training
