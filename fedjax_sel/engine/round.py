"""One round of federated learning: select, train, accept, aggregate, observe, measure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.contract import check_cohort, check_state, merge_duplicates
from fedjax_sel.engine.debug import check_finite, stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import Ledger
from fedjax_sel.engine.metrics import evaluate
from fedjax_sel.engine.probe import probe
from fedjax_sel.engine.signals import count_before, measure_after, measure_before, measure_cohort
from fedjax_sel.engine.state import RoundRecord, RoundState, Values
from fedjax_sel.engine.timing import expected_timing
from fedjax_sel.engine.training import Trained, count_training, train_cohort
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState, Variables


def round_step(
    experiment: Experiment, data: FederatedData, seed: PRNGKey, state: RoundState, t: Int[Array, ""], layout: Layout
) -> tuple[RoundState, RoundRecord]:
    """Round `t`: from the state before it to the state after it, and what was measured."""
    selector, key = experiment.client_selection, partial(key_for, seed, round=t)
    ctx = make_context(experiment, data, seed, t)
    ctx = replace(ctx, candidates=selector.candidates(key(Purpose.CANDIDATES), state.client_selection, ctx))
    before, asked = measure_before(experiment, data, seed, state.variables, ctx, layout)
    cohort = select_cohort(experiment, key(Purpose.SELECT), state, ctx, before)  # who trains
    # On what, and how; and whose update is accepted.
    trained = train_cohort(experiment, data, seed, state, ctx, cohort, asked, layout)
    probed, probe_ledger = probe(aggregate, experiment, data, seed, state, ctx, asked, layout)
    variables, aggregation = aggregate(experiment, state, trained)  # and how it is merged
    learnt = observe_round(experiment, data, key(Purpose.OBSERVE), state, ctx, trained, variables, before | probed)
    quality = evaluate(experiment, data, variables, t, layout)
    ledger = count_round(experiment, data, ctx, trained, asked)
    new = RoundState(
        variables=variables,
        client_selection=learnt,
        data_selection=keep_data_states(state, trained),
        aggregation=aggregation,
        correction=experiment.correction.merge(state.correction, trained.cohort, trained.updates.upload),
        change=None if state.change is None else jax.tree.map(jnp.subtract, variables, state.variables),
        alive=state.alive,
    )
    loss = jnp.sum(trained.weight * trained.updates.loss)
    return new, RoundRecord(**quality, training_loss=loss, client=cohort.client, ledger=ledger, probe=probe_ledger)


def make_context(experiment: Experiment, data: FederatedData, seed: PRNGKey, t: Int[Array, ""]) -> Context:
    """What the server knows for free in round `t`."""
    available = experiment.availability.available(key_for(seed, Purpose.AVAILABILITY, t), t, data.num_clients)
    ctx = Context(
        round=jnp.asarray(t, jnp.int32),
        rounds=jnp.asarray(experiment.rounds, jnp.int32),
        num_examples=data.num_examples,
        available=available,
        devices=data.devices,
        cohort_size=experiment.count_cohort(data.num_clients),
    )
    return replace(ctx, timing=expected_timing(experiment, data, ctx))


def select_cohort(experiment: Experiment, key: PRNGKey, state: RoundState, ctx: Context, before: dict) -> Cohort:
    """The selector's cohort, checked in shape; a client that stands in it more than once trains once."""
    selector = experiment.client_selection
    with stage("client selection", round=ctx.round):
        check_finite(before)
        cohort = selector.select(key, state.client_selection, ctx, **before)
        check_cohort(selector, cohort, ctx)
        return merge_duplicates(cohort) if selector.replacement else cohort


def aggregate(experiment: Experiment, state: RoundState, trained: Trained) -> tuple[Variables, StrategyState]:
    """The new global model and the aggregator's state; batch statistics are averaged, whatever the aggregator."""
    task = experiment.task
    with stage("aggregation"):
        (model, statistics), (delta, moved) = task.split(state.variables), task.split(trained.delta)
        model, aggregation = experiment.aggregation.step(state.aggregation, model, delta)
        whole = jnp.maximum(trained.weight.sum(), jnp.finfo(jnp.float32).tiny)
        variables = task.join(model, jax.tree.map(lambda s, d: s + d / whole, statistics, moved))
        check_finite(variables)
        return variables, aggregation


def observe_round(
    experiment: Experiment,
    data: FederatedData,
    key: PRNGKey,
    state: RoundState,
    ctx: Context,
    trained: Trained,
    variables: Variables,
    known: Values,
) -> StrategyState:
    """The client selector's state after the round.

    Args:
      experiment, data, state, ctx: of the round.
      key: for what the selector draws.
      trained: what came of the cohort's training.
      variables: the new global model.
      known: signals measured before training and by a probe.
    """
    selector = experiment.client_selection
    with stage("what the selector learns", round=ctx.round):
        change = jax.tree.map(jnp.subtract, variables, state.variables)
        args = (trained.updates, change, state.change, trained.cohort.mask)
        wanted = selector.signals().at("after")
        after = measure_after(wanted, experiment.task, variables, data, *args)
        together = (trained.updates.delta, trained.weight, ctx.round, jax.random.fold_in(key, 1))
        after |= measure_cohort(wanted, experiment.task, data, state.variables, *together)
        signals = known | trained.signals | after
        learnt = selector.observe(key, state.client_selection, ctx, trained.cohort, **signals)
        check_state(selector, state.client_selection, learnt)
        return learnt


def count_round(
    experiment: Experiment, data: FederatedData, ctx: Context, trained: Trained, asked: Bool[Array, "N"]
) -> Ledger:
    """What the round took, but for a probe; a model that a member receives anyway is not sent for signals."""
    cohort, n = trained.selected, ctx.num_clients
    members = jnp.zeros(n, bool).at[jnp.where(cohort.mask, cohort.client, n)].set(True, mode="drop")
    training = count_training(experiment, data, trained, cohort.mask.sum())
    return count_before(experiment, data, asked, members) + training


def keep_data_states(state: RoundState, trained: Trained) -> StrategyState:
    """The data selector's state of every client, with those of the members that returned."""
    n = max((leaf.shape[0] for leaf in jax.tree.leaves(state.data_selection)), default=0)
    where = jnp.where(trained.work.returned, trained.selected.client, n)
    return jax.tree.map(
        lambda old, new: old.at[where].set(new, mode="drop"), state.data_selection, trained.data_selection
    )
