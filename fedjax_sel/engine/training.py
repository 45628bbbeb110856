"""Training of a cohort: its members choose their examples and train on them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.arrays import add_weighted, expand, widen
from fedjax_sel.data.federated import Examples, FederatedData
from fedjax_sel.engine.cohort import restrict
from fedjax_sel.engine.contract import check_array, check_cohort, check_like, check_update
from fedjax_sel.engine.data_selection import Chosen, select_examples, set_deadline
from fedjax_sel.engine.debug import check_finite, stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.faults import (
    Faults,
    count_accept_faults,
    count_update_faults,
    refuse_faults,
)
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import Ledger, count_passed, empty_ledger, find_rates
from fedjax_sel.engine.nonfinite import guard_update, reweight
from fedjax_sel.engine.personal import own_variables
from fedjax_sel.engine.signals import measure_cohort, measure_trained
from fedjax_sel.engine.state import RoundState, Values
from fedjax_sel.engine.timing import CohortWork, fail_members, plan_cohort, time_cohort
from fedjax_sel.engine.undeclared import hide_rounds
from fedjax_sel.protocols import Signals
from fedjax_sel.pytree import Pytree
from fedjax_sel.task import Task
from fedjax_sel.task.freezing import merge_trees
from fedjax_sel.types import Cohort, Context, PRNGKey, Update, Updates, Variables


class Trained(Pytree):
    """Results of a cohort's local training.

    Attributes:
      selected: the cohort as it was selected.
      cohort: the cohort; its mask says whose update is merged.
      delta: the change that the cohort proposes.
      updates: updates of the cohort, with a leading `m`; `delta` is None if only the sum was kept.
      weight: weight of each update in the sum.
      work: the cohort's work on its devices.
      signals: the selector's `trained` signals.
      chosen: what the members train on.
      personal: parts that each member keeps for itself, after training, with a leading `m`.
      uploaded: which members sent their update to the server.
      faults: counts of invalid values from strategies (`engine.faults`), by kind.
    """

    selected: Cohort
    cohort: Cohort
    delta: Variables
    updates: Update
    weight: Float[Array, "m"]
    work: CohortWork
    signals: Values
    chosen: Chosen
    personal: Variables
    uploaded: Bool[Array, "m"]
    faults: Faults


def train_cohort(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    cohort: Cohort,
    asked: Bool[Array, "N"],
    layout: Layout,
) -> Trained:
    """Trains the cohort from the global model, on examples that its members choose, and combines accepted updates."""
    aggregator = experiment.aggregation
    signals = experiment.client_selection.signals()
    has_model = asked & needs_model(signals)
    experiment, of_deadline = set_deadline(experiment, data, state, ctx, cohort)
    chosen = select_examples(experiment, data, run_key, state, ctx, cohort, has_model, layout)
    examples, num_examples, faults = chosen.examples, chosen.counts, of_deadline | chosen.faults
    with stage("local training", round=ctx.round):
        work = plan_cohort(experiment, data, ctx, cohort, examples.mask.sum(1), chosen.screened, has_model)
        work = fail_members(experiment, data, run_key, ctx, cohort, examples.mask.sum(1), work)
        returned = restrict(cohort, work.returned)
        weight = aggregator.weights(returned, num_examples, work.plan)
        where = f"{type(aggregator).__name__}.weights"
        check_array(where, weight, (ctx.m,), jnp.floating, f"floats of shape ({ctx.m},), one an update")
        train = partial(train_member, experiment, data, run_key, state, ctx)
        accepts = experiment.client_selection.accepts
        members = (cohort.client, examples.index, examples.mask, examples.weight, work.plan)
        total, (updates, (values, personal)), deltas = layout.train(
            train, members, work.plan.steps, weight, state.variables, stacked=experiment.keeps_updates
        )
        merged = restrict(returned, work.returned & updates.finite)  # the others' weight is shared among the rest
        values = {name: jnp.where(expand(merged.mask, value), value, 0) for name, value in values.items()}
        if deltas is not None:
            together = Updates(state.variables, deltas, aggregator.weights(merged, num_examples, work.plan))
            values |= measure_cohort(signals.at("trained"), experiment.task, data, run_key, ctx.round, together)
        merged, uploaded, work, found = accept_updates(experiment, data, run_key, state, ctx, merged, values, work)
        faults |= found
        final = aggregator.weights(merged, num_examples, work.plan)
        faults |= refuse_faults(experiment, count_update_faults(final, merged), final)
        if accepts or aggregator.stacked:
            delta = widen(combine(experiment, deltas, final))  # as a sum by weights in 32 bits is
            check_like(f"{type(aggregator).__name__}.combine", widen(state.variables), delta)
        else:
            delta = reweight(total, weight, final, updates.finite)
        delta = perturb(experiment, run_key, ctx, delta)
    updates = replace(updates, delta=deltas)
    return Trained(cohort, merged, delta, updates, final, work, values, chosen, personal, uploaded, faults)


def accept_updates(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    returned: Cohort,
    values: Values,
    work: CohortWork,
) -> tuple[Cohort, Bool[Array, "m"], CohortWork, Faults]:
    """Returns the cohort of accepted updates, which members upload theirs, the work after that, and faults.

    Args:
      experiment, data, run_key, state, ctx: of the round.
      returned: the cohort; its mask says whose update is finite.
      values: the selector's `trained` signals.
      work: work of the cohort if every member uploads.
    """
    selector = experiment.client_selection
    if not selector.accepts:
        return returned, work.returned, work, {}
    key = key_for(run_key, Purpose.ACCEPT, ctx.round)
    told = hide_rounds(selector, "accept", ctx)
    accepted = selector.accept(key, state.client_selection, told, returned, **values)
    check_cohort(selector, accepted, ctx, "accept")
    faults = refuse_faults(experiment, count_accept_faults(accepted, returned), accepted)
    merged = restrict(accepted, accepted.mask & returned.mask)
    if not selector.accepts_before_upload:
        return merged, work.returned, work, faults
    rates = find_rates(experiment, data)
    part = rates.extra_up / rates.upload  # late members were still sending
    upload = jnp.where(work.returned & ~merged.mask, part, 1.0) * work.spent.upload
    return merged, merged.mask, replace(work, spent=replace(work.spent, upload=upload)), faults


def needs_model(signals: Signals) -> bool:
    """Returns whether the model is sent to clients that are asked for `before` signals."""
    return any(signal.cost.needs_model for signal in signals.at("before").values())


def train_member(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    member: Any,
    num_steps: Any,
) -> tuple[Update, tuple[Values, Variables]]:
    """Returns one member's update, its `trained` signals, and the parts that the member keeps for itself.

    Args:
      experiment, data, run_key, state, ctx: of the round.
      member: client, indices of its examples in `data`, which of them count, their weights, and its plan.
      num_steps: number of steps of the loop.
    """
    task, correction = experiment.task, experiment.correction
    client, index, mask, weight, plan = member
    with stage("local training", client=client):
        key = key_for(run_key, Purpose.TRAIN, ctx.round, client)
        own = correction.client_state(state.correction, client)
        mine = own_variables(state.variables, state.personal, client)
        received, _ = task.split(mine)

        def transform(gradient: Variables, variables: Variables) -> Variables:
            corrected = correction.correct(own, gradient, variables, received)
            check_like(f"{type(correction).__name__}.correct", gradient, corrected, "a gradient", "it got")
            _, uncorrected = task.split_personal(gradient)
            return merge_trees(corrected, uncorrected) if task.personal else corrected

        def train() -> Update:
            examples = Examples(data, index, mask, weight).fetch()
            offset = offset_of(experiment, own)
            more = {} if offset is None else {"offset": offset}
            update = experiment.local_training.train(
                key, task, mine, examples, plan, num_steps=num_steps, transform=transform, **more
            )
            check_update(experiment.local_training, update, state.variables)
            check_finite({"delta": update.delta, "loss": update.loss})
            changed, _ = task.split(keep_apart(task, update, mine)[0].delta)
            sum_of_steps = plan.step_size_sum if offset is None else plan.rate_sum
            return replace(update, upload=correction.upload(own, changed, sum_of_steps))

        update, kept = keep_apart(task, guard_update(train)(), mine)
        signals = experiment.client_selection.signals().at("trained")
        moved, statistics = task.split(update.delta)
        arrived = experiment.aggregation.receive(moved)
        check_like(f"{type(experiment.aggregation).__name__}.receive", moved, arrived, "an update", "it got")
        sent = replace(update, delta=task.join(arrived, statistics))
        if not signals:
            return sent, ({}, kept)
        measured = measure_trained(
            signals,
            task,
            data,
            received=mine,
            begun=merge_trees(state.variables, kept) if task.personal else state.variables,
            update=update,
            sent=sent,
            client=client,
            previous=state.change,
            key=key_for(run_key, Purpose.TRAINED_SIGNALS, ctx.round, client),
            holdout=experiment.measures_holdout,
        )
        return sent, (measured, kept)


def offset_of(experiment: Experiment, client_state: Any) -> Variables | None:
    """Returns the correction's offset for a client, 0 for personal parts; None: it has none."""
    offset, task = experiment.correction.offset(client_state), experiment.task
    if offset is None or not task.personal:
        return offset
    _, personal = task.split_personal(offset)
    return merge_trees(offset, jax.tree.map(jnp.zeros_like, personal))


def keep_apart(task: Task, update: Update, received: Variables) -> tuple[Update, Variables]:
    """Returns one member's update with personal parts set to 0, and those parts after training, `()` without any."""
    if not task.personal:
        return update, ()
    _, moved = task.split_personal(update.delta)
    _, before = task.split_personal(received)
    return replace(update, delta=task.hide_personal(update.delta)), jax.tree.map(jnp.add, before, moved)


def combine(experiment: Experiment, deltas: Variables, weight: Float[Array, "m"]) -> Variables:
    """Returns the aggregator's change from all updates; batch statistics are averaged by any aggregator."""
    model, statistics = experiment.task.split(deltas)
    averaged = jax.tree.map(lambda leaf: add_weighted(weight, leaf), statistics)
    return experiment.task.join(experiment.aggregation.combine(model, weight), averaged)


def perturb(experiment: Experiment, run_key: PRNGKey, ctx: Context, change: Variables) -> Variables:
    """Returns the change as the aggregator releases it; batch statistics and personal parts are unchanged."""
    aggregator, task = experiment.aggregation, experiment.task
    model, statistics = task.split(change)
    noisy = aggregator.perturb(key_for(run_key, Purpose.NOISE, ctx.round), model, ctx.m)
    check_like(f"{type(aggregator).__name__}.perturb", model, noisy)
    released = task.join(noisy, statistics)
    return merge_trees(released, task.split_personal(change)[1]) if task.personal else released


def count_training(experiment: Experiment, data: FederatedData, trained: Trained, models_sent: Any) -> Ledger:
    """Returns what the training of a cohort used; `models_sent` is the number of members that were sent the model."""
    cohort, work = trained.selected, trained.work
    signals = experiment.client_selection.signals()
    seconds, joules = time_cohort(data, cohort, work)
    held = data.count_examples(holdout=experiment.measures_holdout)
    return replace(
        empty_ledger(signals, devices=data.devices is not None),
        members=cohort.mask.sum(),
        models_sent=models_sent,
        trained_examples=trained.updates.examples_seen.sum() + work.wasted.sum(),
        screened_examples=work.looked.sum(),
        reports=work.returned.sum(),
        measured=(work.measured >= 1).sum(),
        measured_examples=count_passed(signals.at("trained").values(), held[cohort.client], work.measured),
        uploads=trained.uploaded.sum(),
        left_out=(work.returned & ~trained.updates.finite).sum(),
        seconds=seconds,
        joules=joules,
    )
