"""Data selection in a round: the members of a cohort choose their examples and report to the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.arrays import run_if
from fedjax_sel.data.federated import Examples, FederatedData
from fedjax_sel.engine.contract import check_array, check_example_weights, check_flag, check_state
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.faults import Faults, count_deadline_faults, count_example_faults, refuse_faults
from fedjax_sel.engine.keys import OF_OBSERVE, OF_SIGNALS, Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.personal import own_variables
from fedjax_sel.engine.signals import measure_client_signals, measure_examples, measure_server, split_signals
from fedjax_sel.engine.state import RoundState, Values
from fedjax_sel.engine.timing import count_affordable
from fedjax_sel.engine.undeclared import hide_rounds
from fedjax_sel.protocols import DataSelector, Signal, overrides
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Batch, Cohort, Context, PRNGKey, StrategyState, Turn, Variables


class Chosen(Pytree):
    """What the members of a cohort chose, with a leading `m`.

    Attributes:
      examples: what each member trains on.
      counts: number of examples by which an aggregator weights each member.
      screened: number of examples on which each member measured signals.
      state: the data selector's state after the choice.
      report: what each member reports to the server.
      faults: counts of invalid weights.
    """

    examples: Examples
    counts: Int[Array, "m"]
    screened: Int[Array, "m"]
    state: StrategyState
    report: Any
    faults: Faults


def select_examples(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    ctx: Context,
    cohort: Cohort,
    has_model: Bool[Array, "N"],
    layout: Layout,
) -> Chosen:
    """Selects what each member trains on.

    Args:
      experiment: with the deadline of this round.
      data, run_key, state, ctx, cohort: of the round.
      has_model: which clients already received the global model when they were asked for signals.
      layout: how clients are run.
    """
    selector = experiment.data_selection
    signals = selector.signals()

    def select(client, measured=None):
        index, valid = data.examples_of(client)
        own = jax.tree.map(lambda leaf: leaf[client], state.data_selection)
        key = key_for(run_key, Purpose.DATA, ctx.round, client)
        if measured is None:
            mine = own_variables(state.variables, state.personal, client)
            read_batch, key_signals = partial(data.batch, index, valid), jax.random.fold_in(key, OF_SIGNALS)
            measured = measure_own(experiment, signals, ctx, own, mine, read_batch, key_signals, layout)
        asks, values = measured
        known: dict[str, Any] = dict(values)
        if selector.uses_turn:
            turn = make_turn(
                experiment, data, ctx, state, client, data.read_targets(index), validation, has_model[client]
            )
            known["turn"] = hide_rounds(selector, "select", turn)
        weight = selector.select(key, own, valid, **known)
        check_example_weights(selector, weight, data.longest)
        weight = jnp.where(valid, weight, jnp.zeros((), weight.dtype))
        after = selector.observe(jax.random.fold_in(key, OF_OBSERVE), own, weight, **known)
        check_state(selector, own, after)
        report = selector.report(own, valid, weight, **known) if overrides(selector, "report") else ()
        return index, weight, after, report, jnp.where(asks, valid.sum(), 0)

    with stage("data selection", round=ctx.round):  # without signals there is no work to divide
        wanted = selector.validation_signals()
        validation = measure_server(wanted, experiment.task, state.variables, data, layout)
        if together := measure_together(experiment, signals, data, state, ctx, cohort, layout):
            each = layout.over_clients(lambda member: select(*member), (cohort.client, together))
        else:
            each = layout.over_clients(select, cohort.client) if signals else jax.vmap(select)(cohort.client)
        index, weight, after, report, screened = each
        faults = refuse_faults(experiment, count_example_faults(weight, cohort.mask, weighted=selector.weighted))
        mask = (weight != 0) & cohort.mask[:, None]
        weight = jnp.where(mask, weight, 0).astype(jnp.float32) if selector.weighted else None
        examples = Examples(data, index, mask, weight)
        chosen = mask.sum(1)
        whole = jnp.where(chosen > 0, data.num_examples[cohort.client], 0)
        counts = whole.astype(chosen.dtype) if selector.represents_all else chosen
        return Chosen(examples, counts, jnp.where(cohort.mask, screened, 0), after, report, faults)


def measure_together(
    experiment: Experiment,
    signals: Mapping[str, Signal],
    data: FederatedData,
    state: RoundState,
    ctx: Context,
    cohort: Cohort,
    layout: Layout,
) -> tuple[Bool[Array, "m"], Values] | None:
    """Returns which members measure their signals this round, and the values of all, from passes over their examples.

    It returns None if each member is to measure its own: clients have about as many examples each, so that no pass
    would be spared, or models of their own, or a signal is of the whole client or several numbers an example.
    """
    selector, task = experiment.data_selection, experiment.task
    by_example, by_client, _ = split_signals(signals)
    mean = len(data.order) / data.num_clients
    if not by_example or by_client or jax.tree.leaves(state.personal) or data.longest <= UNEVEN * mean:
        return None

    def measure(index: Int[Array, "b"]) -> Values:
        batch = data.batch(index, jnp.ones(index.shape, bool))
        return measure_examples(by_example, task, state.variables, batch.x, batch.y)

    if any(value.ndim > 1 for value in jax.eval_shape(measure, jnp.zeros(8, jnp.int32)).values()):
        return None
    own = jax.tree.map(lambda leaf: leaf[cohort.client], state.data_selection)
    asks = jnp.ones(ctx.m, bool)
    if overrides(selector, "asks"):
        asks = jax.vmap(lambda own: find_asks(selector, own, ctx), axis_size=ctx.m)(own)
    index, mask = jax.vmap(data.examples_of)(cohort.client)
    count = jnp.where(cohort.mask & asks, mask.sum(1), 0)
    return asks, layout.over_filled(measure, index, count, mean)


UNEVEN = 1.25
"""How many times the average a client must have at most, for members to measure their signals one by one."""


def measure_own(
    experiment: Experiment,
    signals: Mapping[str, Signal],
    ctx: Context,
    client_state: StrategyState,
    variables: Variables,
    read_batch: Callable[[], Batch],
    key: PRNGKey,
    layout: Layout,
) -> tuple[Bool[Array, ""] | bool, Values]:
    """Returns whether a client measures its signals this round, and their values, zeros if it does not.

    Args:
      experiment, signals, ctx, layout: of the round.
      client_state: the client's state.
      variables: the model that it received.
      read_batch: returns its examples.
      key: for signals that draw.
    """
    selector, task = experiment.data_selection, experiment.task
    by_example, by_client, _ = split_signals(signals)

    def measure() -> Values:
        if not signals:
            return {}
        batch = read_batch()
        values = layout.over_own_examples(partial(measure_examples, by_example, task, variables), batch.x, batch.y)
        return values | measure_client_signals(by_client, task, variables, None, lambda: batch, key)

    if not overrides(selector, "asks"):
        return True, measure()
    asks = find_asks(selector, client_state, ctx)
    return asks, run_if(asks, measure)


def find_asks(selector: DataSelector, client_state: StrategyState, ctx: Context) -> Bool[Array, ""]:
    """Returns whether a client with this state measures its signals this round."""
    return check_flag(f"{type(selector).__name__}.asks", selector.asks(client_state, ctx.round))


def make_turn(
    experiment: Experiment,
    data: FederatedData,
    ctx: Context,
    state: RoundState,
    client: Int[Array, ""],
    y: Int[Array, "L"],
    validation: Values,
    has_model: Bool[Array, ""],
) -> Turn:
    """Returns what a member knows when it chooses its examples."""
    return Turn(
        round=ctx.round,
        rounds=ctx.rounds,
        y=y,
        server=state.data_server,
        affordable=count_affordable(experiment, data, ctx, client, has_model),
        validation=validation,
        classes=data.classes,
    )


def set_deadline(
    experiment: Experiment, data: FederatedData, state: RoundState, ctx: Context, cohort: Cohort
) -> tuple[Experiment, Faults]:
    """Returns the experiment with the deadline of a round, which the data selector may choose, and faults.

    One that is not above 0 is a fault, and 0.
    """
    selector = experiment.data_selection
    if data.devices is None or not overrides(selector, "choose_deadline"):
        return experiment, {}
    told = hide_rounds(selector, "choose_deadline", ctx)
    seconds = selector.choose_deadline(state.data_server, told, cohort, experiment.deadline.seconds)
    check_array(f"{type(selector).__name__}.choose_deadline", seconds, (), jnp.floating, "a number of seconds")
    faults = refuse_faults(experiment, count_deadline_faults(seconds), seconds)
    seconds = jnp.where(jnp.greater(seconds, 0), seconds, 0.0)
    return replace(experiment, deadline=replace(experiment.deadline, seconds=seconds)), faults


def merge_reports(
    experiment: Experiment, key: PRNGKey, state: RoundState, ctx: Context, back: Cohort, report: Any
) -> StrategyState:
    """Returns the data selector's server state after a round, from the reports of the members that returned.

    Args:
      experiment, state, ctx: of the round.
      key: for the merge.
      back: the cohort, its mask that of the members that returned.
      report: of each member, with a leading `m`.
    """
    selector = experiment.data_selection
    if not overrides(selector, "merge"):
        return state.data_server
    merged = selector.merge(key, state.data_server, hide_rounds(selector, "merge", ctx), back, report)
    check_state(selector, state.data_server, merged, "merge")
    return merged
