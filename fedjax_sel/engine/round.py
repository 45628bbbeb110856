"""One round of federated learning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import types
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.debug import finite, stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.metrics import Values, counts, evaluate, is_due, polled
from fedjax_sel.engine.nonfinite import frozen, only_finite, reweighted, still_finite
from fedjax_sel.engine.probe import run_probe
from fedjax_sel.engine.signals import measure_after, measure_before, measure_examples, wants_previous
from fedjax_sel.engine.timing import Turns, expected, only_those, simulated, take_turns
from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Cohort, Context, PRNGKey, Update, Variables


class State(Pytree):
    """What goes round.

    Attributes:
      variables: the global model.
      client_selection: of the client selector.
      aggregation: of the aggregator.
      alive: until the seed ends (`diverging`); from then on nothing changes.
      correction: of the correction.
      change: of the global model in the round before; None where no signal looks at it.
    """

    variables: Variables
    client_selection: types.State
    aggregation: types.State
    alive: Bool[Array, ""]
    correction: types.State = ()
    change: Variables | None = None


class Trained(Pytree):
    """What came of a cohort's local training.

    Attributes:
      back: the cohort in which those count who returned an update that is finite.
      delta: the aggregator's weighted sum of the updates.
      updates: of the cohort, with a leading `m`.
      weight: of each update in the sum.
      turns: the cohort's work on its devices.
    """

    back: Cohort
    delta: Variables
    updates: Update
    weight: Float[Array, "m"]
    turns: Turns


def context(experiment: Experiment, data: FederatedData, seed: PRNGKey, t: Int[Array, ""]) -> Context:
    """What the server knows for free in round `t`."""
    return Context(
        round=jnp.asarray(t, jnp.int32),
        rounds=jnp.asarray(experiment.rounds, jnp.int32),
        num_examples=data.num_examples,
        available=experiment.availability.available(key_for(seed, Purpose.AVAILABLE, t), t, data.num_clients),
        devices=data.devices,
        timing=expected(experiment, data),
        cohort_size=experiment.cohort(data.num_clients),
    )


def round_step(
    experiment: Experiment, data: FederatedData, seed: PRNGKey, state: State, t: Int[Array, ""], layout: Layout
) -> tuple[State, Values]:
    """Round `t`: from the state before it to the state after it, and what was measured."""
    task, selector = experiment.task, experiment.client_selection
    key = partial(key_for, seed, round=t)
    ctx = context(experiment, data, seed, t)

    with stage("client selection", round=t):  # who trains
        ctx = replace(ctx, candidates=selector.candidates(key(Purpose.CANDIDATES), state.client_selection, ctx))
        before, asked = measure_before(experiment, data, seed, state.variables, ctx, layout)
        finite(before)
        cohort = selector.select(key(Purpose.SELECT), state.client_selection, ctx, **before)
        asked = polled(ctx, asked)
        training = only_those(cohort, cohort.mask & state.alive)

    trained = train_cohort(experiment, data, seed, state, ctx, training, asked, layout)
    probed, tried = run_probe(train_cohort, merge, experiment, data, seed, state, ctx, asked, layout)

    with stage("aggregation", round=t):  # and how it is merged
        variables, aggregator = merge(experiment, state, trained)
        finite(variables)

    with stage("what the selector learns", round=t):
        change = jax.tree.map(jnp.subtract, variables, state.variables)
        after = measure_after(
            selector.after, task, variables, data, trained.updates, change, state.change, trained.back.mask
        )
        observe = key(Purpose.OBSERVE)
        memory = selector.observe(observe, state.client_selection, ctx, trained.back, **before, **probed, **after)

    quality = evaluate(experiment, data, variables, t, layout)
    previous = change if wants_previous(selector.after) else None
    returned, updates = trained.turns.returned, trained.updates
    alive = still_finite(variables, quality["loss"], is_due(experiment, t), returned, updates.finite)
    back = only_those(trained.back, trained.back.mask & alive)
    correction = experiment.correction.merge(state.correction, back, updates.upload)
    after = State(variables, memory, aggregator, alive, correction, previous)
    measured = {
        **quality,
        **counts(experiment, data, asked, training, trained.turns, updates),
        **simulated(experiment, data, training, asked, trained.turns),
        "training_loss": jnp.sum(trained.weight * updates.loss),
        "client": training.client,
    }
    for name, value in tried.items():  # of a probe: counts apart, seconds and joules on top
        measured[name] = measured[name] + value if name in measured else value
    return frozen(state, after, measured)


def merge(experiment: Experiment, state: State, trained: Trained) -> tuple[Variables, types.State]:
    """The new global model and the aggregator's state; statistics of batches are averaged, whatever the aggregator."""
    task = experiment.task
    (model, statistics), (delta, moved) = task.split(state.variables), task.split(trained.delta)
    model, aggregator = experiment.aggregation.step(state.aggregation, model, delta)
    whole = jnp.maximum(trained.weight.sum(), jnp.finfo(jnp.float32).tiny)
    return task.join(model, jax.tree.map(lambda s, d: s + d / whole, statistics, moved)), aggregator


def train_cohort(
    experiment: Experiment,
    data: FederatedData,
    seed: PRNGKey,
    state: State,
    ctx: Context,
    cohort: Cohort,
    asked: Bool[Array, "N"],
    layout: Layout,
) -> Trained:
    """The cohort chooses its rows and trains on them, from the global model."""
    task, trainer, correction, variables = (
        experiment.task,
        experiment.local_training,
        experiment.correction,
        state.variables,
    )
    t = ctx.round
    key = partial(key_for, seed, round=t)

    with stage("data selection", round=t):  # on what

        def choose(client):
            index, valid = data.examples_of(client)
            values = measure_examples(experiment.data_selection.needs, task, variables, data.batch(index, valid))
            return index, experiment.data_selection.keep(key(Purpose.KEEP, client=client), valid, **values)

        asks = bool(experiment.data_selection.needs)  # where it asks nothing there is no work to divide
        index, keep = layout.over_clients(choose, cohort.client) if asks else jax.vmap(choose)(cohort.client)
        keep &= cohort.mask[:, None]

    with stage("local training", round=t):  # how
        rows = keep.sum(1)
        holds_model = asked & any(signal.cost.model for signal in experiment.client_selection.before)
        turns = take_turns(experiment, data, cohort, rows, trainer.local_steps(rows, data.longest), holds_model)
        back = only_those(cohort, turns.returned)
        weight = experiment.aggregation.weights(back, rows, turns.steps)
        factor = trainer.schedule(ctx.round, ctx.rounds)

        def train(member, bound):
            client, index, keep, steps = member
            with stage("local training", client=client):
                key_train = key(Purpose.TRAIN, client=client)
                held = correction.held(state.correction, client)
                correct = partial(correction.gradient, held, received=task.split(variables)[0])
                update = trainer.train(task, variables, data, index, keep, key_train, factor, steps, bound, correct)
                finite(update.delta)
                changed, _ = task.split(update.delta)
                upload = correction.upload(held, changed, trainer.way(keep.sum(), steps, data.longest, factor))
            return only_finite(replace(update, upload=upload))

        stacked = any(isinstance(s, UpdateSignal) and s.stacked for s in experiment.client_selection.after)
        delta, updates = layout.train(
            train, (cohort.client, index, keep, turns.steps), turns.steps, weight, variables, stacked=stacked
        )
        kept = only_those(back, turns.returned & updates.finite)  # the rest share the weight of those left out
        among = experiment.aggregation.weights(kept, rows, turns.steps)
        delta = reweighted(delta, weight, among, updates.finite)
    return Trained(kept, delta, updates, among, turns)
