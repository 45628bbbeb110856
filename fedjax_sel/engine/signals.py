"""Measurement of signals: of clients before training, of members that have trained, and of finished rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from fedjax_sel.arrays import expand, run_if, take, widen
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.averages import average_by_client, average_masked, find_shift
from fedjax_sel.engine.contract import check_flag, check_value
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import Ledger, count_passed, empty_ledger
from fedjax_sel.engine.personal import own_variables
from fedjax_sel.engine.state import RoundState, Values
from fedjax_sel.engine.timing import time_signals
from fedjax_sel.engine.unkept import measure_unkept
from fedjax_sel.protocols import (
    ClientSignal,
    CohortSignal,
    ExampleSignal,
    FeatureSignal,
    GradientSignal,
    ServerSignal,
    Signal,
    UpdateSignal,
    overrides,
)
from fedjax_sel.task import Task
from fedjax_sel.types import Batch, Context, PRNGKey, Rows, Update, Updates, Variables


def measure_before(
    experiment: Experiment, data: FederatedData, run_key: PRNGKey, state: RoundState, ctx: Context, layout: Layout
) -> tuple[Values, Bool[Array, "N"]]:
    """Returns the selector's `before` signals, zeros if it does not ask this round, and which clients were asked.

    Of clients that cannot be reached nothing is known: their values are NaN, or 0 in signals of whole numbers.
    """
    selector = experiment.client_selection
    signals = selector.signals().at("before")
    if not signals:
        return {}, jnp.zeros(ctx.num_clients, bool)
    key, holdout = key_for(run_key, Purpose.SIGNALS, ctx.round), experiment.measures_holdout

    def measure() -> Values:
        values = measure_clients(
            signals, experiment.task, state.variables, state.personal, data, ctx, layout, key=key, holdout=holdout
        )
        return {name: hide_others(value, ctx.reached) for name, value in values.items()}

    asked = ctx.available & asked_clients(ctx)
    if not overrides(selector, "asks"):
        return measure(), asked
    asks = check_flag(f"{type(selector).__name__}.asks", selector.asks(ctx.round))
    return run_if(asks, measure), asked & asks


def hide_others(value: Shaped[Array, "d ..."], reached: Bool[Array, "d"]) -> Shaped[Array, "d ..."]:
    """Returns a signal with NaN in place of what was not reached; 0 if its values are whole numbers or truth values."""
    unknown = jnp.nan if jnp.issubdtype(value.dtype, jnp.inexact) else 0
    return jnp.where(expand(reached, value), value, jnp.asarray(unknown, value.dtype))


def asked_clients(ctx: Context) -> Bool[Array, "N"]:
    """Returns which clients are candidates."""
    n = ctx.num_clients
    if ctx.candidates is None:
        return jnp.ones(n, bool)
    return jnp.zeros(n, bool).at[jnp.where(ctx.candidates >= 0, ctx.candidates, n)].set(True, mode="drop")


def count_before(
    experiment: Experiment, data: FederatedData, asked: Bool[Array, "N"], members: Bool[Array, "N"]
) -> Ledger:
    """Returns what asking these clients for the `before` signals used.

    Args:
      experiment, data: of the round.
      asked: which clients were asked.
      members: which clients train this round, and receive the model for that.
    """
    signals = experiment.client_selection.signals()
    count = data.count_examples(holdout=experiment.measures_holdout)
    seconds, joules = time_signals(experiment, data, asked)
    return replace(
        empty_ledger(signals, devices=data.devices is not None),
        asked=asked.sum(),
        models_for_signals=(asked & ~members).sum(),
        signal_examples=count_passed(signals.at("before").values(), count, asked),
        seconds=seconds,
        joules=joules,
    )


def measure_clients(
    signals: Mapping[str, Any],
    task: Task,
    variables: Variables,
    personal: Variables,
    data: FederatedData,
    ctx: Context,
    layout: Layout,
    *,
    key: PRNGKey,
    holdout: bool = False,
) -> Values:
    """Returns each signal's value for each candidate, with a leading `d`; for each client, `N`, if all are asked.

    All clients share the global model, so their example signals come from one pass over all examples and a segment
    mean, those of candidates and all gradients from blocks of examples; if clients keep personal parts, each client's
    values come from its own model.

    Args:
      signals: example and client signals by name.
      task, data: of the run.
      variables: the current global model.
      personal: parts that each client keeps for itself, with a leading `N`.
      ctx: of this round.
      layout: how examples and clients are run.
      key: key from which each client's key is derived.
      holdout: whether to measure on the hold-out examples instead of the training examples.
    """
    by_example, by_client, _ = split_signals(signals)
    values: Values = {}
    apart = by_example if jax.tree.leaves(personal) else {}
    if by_example and not apart and ctx.candidates is not None:
        values |= measure_candidates(by_example, task, variables, data, ctx.candidates, layout, holdout=holdout)
    elif by_example and not apart:
        each = measure_flat(by_example, task, variables, data, layout)
        values |= {name: average_by_client(value, data, holdout=holdout) for name, value in each.items()}
    clients = jnp.arange(ctx.num_clients) if ctx.candidates is None else ctx.candidates
    by_gradient = {name: signal for name, signal in by_client.items() if isinstance(signal, GradientSignal)}
    if by_gradient and not jax.tree.leaves(personal):
        by_client = {name: signal for name, signal in by_client.items() if name not in by_gradient}
        values |= measure_gradients(by_gradient, task, variables, data, clients, layout, holdout=holdout)
    if by_client or apart:

        def measure(i):
            read_batch, mine = partial(client_batch, data, i, holdout=holdout), own_variables(variables, personal, i)
            of_examples = average_examples(apart, task, mine, read_batch) if apart else {}
            own_key = jax.random.fold_in(key, i)
            return of_examples | measure_client_signals(by_client, task, mine, data, read_batch, own_key)

        values |= layout.over_clients(measure, clients)
    return values


def measure_gradients(
    signals: Mapping[str, GradientSignal],
    task: Task,
    variables: Variables,
    data: FederatedData,
    clients: Int[Array, "k"],
    layout: Layout,
    *,
    holdout: bool = False,
) -> Values:
    """Returns each signal's value for each of these clients, with a leading `k`, all at the model `variables`."""
    start, count = locate_examples(data, clients, holdout=holdout)

    def add_up(client: tuple[Any, Any], place: Int[Array, "b"]) -> Variables:
        start, count = client
        mask = place < count
        place = jnp.minimum(place, jnp.maximum(count, 1) - 1)  # padding: its last example
        gradient = task.gradient(variables, data.batch(take(data.order, start + place), mask))
        share = mask.sum() / jnp.maximum(count, 1)
        return jax.tree.map(lambda leaf: share * leaf, gradient)

    def measure(gradient: Variables) -> Values:
        return {name: signal.measure_gradient(gradient) for name, signal in signals.items()}

    parameters = task.split(variables)[0]
    like = jax.tree.map(jnp.zeros_like, widen(parameters))
    size = layout.size_of_blocks(data.longest, len(data.order) / data.num_clients)
    return layout.over_blocks(add_up, measure, (start, count), count, data.longest, size, like)


def measure_candidates(
    signals: Mapping[str, ExampleSignal | FeatureSignal],
    task: Task,
    variables: Variables,
    data: FederatedData,
    candidates: Int[Array, "d"],
    layout: Layout,
    *,
    holdout: bool = False,
) -> Values:
    """Returns each signal's mean over each candidate's examples, with a leading `d`, all at the model `variables`.

    It is 0 of an empty slot. If some clients have many more examples than most, they come in blocks; otherwise in one
    flat pass.
    """
    size = layout.size_of_blocks(data.longest, len(data.order) / data.num_clients)
    if size == data.longest:
        index, mask = jax.vmap(lambda i: data.examples_of(i, holdout=holdout))(candidates)
        mask &= (candidates >= 0)[:, None]
        each = measure_flat(signals, task, variables, data, layout, index.ravel())
        return {name: average_masked(v.reshape(*mask.shape, *v.shape[1:]), mask) for name, v in each.items()}

    def add_up(client: tuple[Any, Any], place: Int[Array, "b"]) -> Values:
        start, count = client
        mask = place < count
        batch = data.batch(take(data.order, start + place), mask)
        each = measure_examples(signals, task, variables, batch.x, batch.y)
        total = {name: jnp.where(expand(mask, v), v - base[name], 0).sum(0) for name, v in widen(each).items()}
        return {name: v / jnp.maximum(count, 1) for name, v in total.items()}

    clients = locate_examples(data, candidates, holdout=holdout)
    start, count = clients
    some = data.batch(take(data.order, start), count > 0)  # one of each client: an outlier is not nearest to 0
    first = widen(measure_examples(signals, task, variables, some.x, some.y))
    base = {name: find_shift(value) for name, value in first.items()}
    like = jax.eval_shape(add_up, (start[0], count[0]), jnp.arange(size))
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    mean = layout.over_blocks(add_up, lambda mean: mean, clients, count, data.longest, size, zero)
    return {name: jnp.where(expand(count > 0, v), base[name] + v, 0) for name, v in mean.items()}


def locate_examples(
    data: FederatedData, clients: Int[Array, "k"], *, holdout: bool = False
) -> tuple[Int[Array, "k"], Int[Array, "k"]]:
    """Returns where the examples of these clients begin in `data.order`, and how many there are; 0 of an empty slot."""
    start, count = data.locate_examples(clients, holdout=holdout)
    return start, jnp.where(clients >= 0, count, 0)


def measure_flat(
    signals: Mapping[str, ExampleSignal | FeatureSignal],
    task: Task,
    variables: Variables,
    data: FederatedData,
    layout: Layout,
    index: Int[Array, "b"] | None = None,
) -> Values:
    """Returns each signal's value for each example at `index` (None: for all examples) from one flat forward pass."""
    return layout.over_examples_of(partial(measure_examples, signals, task, variables), data, index)


def of_task(signals: Mapping[str, Signal], task: Task) -> dict[str, Any]:
    """Returns the signals as they are measured for `task`."""
    return {name: signal.of_task(task) for name, signal in signals.items()}


def client_batch(data: FederatedData, client: Int[Array, ""], *, holdout: bool = False) -> Batch:
    """Returns all of a client's examples, its training or its hold-out examples."""
    return data.batch(*data.examples_of(client, holdout=holdout))


def public_batch(data: FederatedData | None) -> Batch:
    """Returns the public examples, which have no labels."""
    assert data is not None
    x = data.public_x
    assert x is not None
    return Batch(x, jnp.zeros(len(x), jnp.int32), jnp.ones(len(x), bool))


def measure_client_signals(
    signals: Mapping[str, ClientSignal],
    task: Task,
    variables: Variables,
    data: FederatedData | None,
    read_batch: Callable[[], Batch],
    key: PRNGKey,
) -> Values:
    """Returns each signal's value for one client; `read_batch` returns its examples, and `data` has the public ones.

    All signals get the same key, so two signals that draw make the same draw.
    """
    kinds = {signal.public for signal in signals.values()}
    batches = {public: public_batch(data) if public else read_batch() for public in kinds}
    return {name: s.measure(task, variables, batches[s.public], key) for name, s in signals.items()}


def measure_examples(
    signals: Mapping[str, ExampleSignal | FeatureSignal],
    task: Task,
    variables: Variables,
    x: Rows,
    y: Shaped[Array, "L ..."],
) -> dict[str, Shaped[Array, "L ..."]]:
    """Returns the value of each example or feature signal for one client's examples, from one forward pass."""
    if not signals:
        return {}
    signals = of_task(signals, task)
    by_features = {name: s for name, s in signals.items() if isinstance(s, FeatureSignal)}
    by_logits = {name: s for name, s in signals.items() if isinstance(s, ExampleSignal)}
    values: Values = {}
    if by_features:
        logits, features, has_bias = task.logits_and_features(variables, x)
        of_layer = {name: signal.of_layer(has_bias) for name, signal in by_features.items()}
        values = {name: signal.measure(logits, y, features) for name, signal in of_layer.items()}
    else:
        logits = task.logits(variables, x)
    values |= {name: signal.measure(logits, y) for name, signal in by_logits.items()}
    for name, value in values.items():
        check_value(name, value, len(y))
    return values


def split_signals(
    signals: Mapping[str, Signal],
) -> tuple[dict[str, ExampleSignal | FeatureSignal], dict[str, ClientSignal], dict[str, UpdateSignal]]:
    """Splits signals into those of examples, of clients and of updates."""
    by_example = {name: s for name, s in signals.items() if isinstance(s, ExampleSignal | FeatureSignal)}
    by_client = {name: s for name, s in signals.items() if isinstance(s, ClientSignal)}
    return by_example, by_client, {name: s for name, s in signals.items() if isinstance(s, UpdateSignal)}


def average_examples(
    signals: Mapping[str, ExampleSignal | FeatureSignal],
    task: Task,
    variables: Variables,
    read_batch: Callable[[], Batch],
) -> Values:
    """Returns each signal's mean over one client's examples, which `read_batch` returns."""
    batch = read_batch()
    each = measure_examples(signals, task, variables, batch.x, batch.y)
    return {name: average_masked(v[None], batch.mask[None])[0] for name, v in each.items()}


def measure_trained(
    signals: Mapping[str, Signal],
    task: Task,
    data: FederatedData,
    *,
    received: Variables,
    begun: Variables,
    update: Update,
    sent: Update,
    client: Int[Array, ""],
    previous: Variables | None,
    key: PRNGKey,
    holdout: bool = False,
) -> Values:
    """Returns each signal's value for one member of the cohort that has just trained.

    Args:
      signals: the selector's `trained` signals.
      task, data: of the run.
      received: the model from which it trained: the global one, with its own personal parts.
      begun: the global model, with its personal parts as they are after training.
      update: its update.
      sent: the update as the server receives it.
      client: number of the client.
      previous: change of the global model in the previous round; None if no signal refers to it.
      key: for random draws.
      holdout: whether to measure on its hold-out examples instead of its training examples.
    """
    by_example, by_client, updates = split_signals(signals)
    seen, before = strip_statistics(task, sent), None if previous is None else task.split(previous)[0]
    values: Values = {n: s.measure(seen, before if s.reference == "previous" else None) for n, s in updates.items()}
    variables = jax.tree.map(jnp.add, begun, update.delta)
    read_batch = partial(client_batch, data, client, holdout=holdout)
    if by_example:
        values |= average_examples(by_example, task, variables, read_batch)
    for model, at_received in ((variables, False), (received, True)):
        some = {name: signal for name, signal in by_client.items() if signal.received == at_received}
        values |= measure_client_signals(some, task, model, data, read_batch, key)
    return values


def measure_after(
    signals: Mapping[str, Any],
    task: Task,
    variables: Variables,
    data: FederatedData,
    updates: Update,
    aggregate: Variables,
    previous: Variables | None,
    mask: Bool[Array, "m"],
    layout: Layout,
) -> Values:
    """Returns each signal's value for a finished round: one per update, `m` (0 in empty slots), or one for the server.

    Args:
      signals: the selector's `after` signals.
      task: what is learnt.
      variables: the new global model.
      data: with the server's examples.
      updates: updates of the cohort.
      aggregate: change of the global model.
      previous: its change in the previous round; None if no signal refers to it.
      mask: which slots' updates were merged.
      layout: how examples are run.
    """
    values: Values = {}
    changes = {"aggregate": aggregate, "previous": previous, "none": None}
    references = {name: None if change is None else task.split(change)[0] for name, change in changes.items()}
    seen = strip_statistics(task, updates)
    for name, signal in signals.items():
        if isinstance(signal, UpdateSignal):
            measure = signal.measure if updates.delta is not None else measure_unkept(name, signal)
            value = jax.vmap(measure, in_axes=(0, None))(seen, references[signal.reference])
            values[name] = jnp.where(expand(mask, value), value, 0)
    server = {name: signal for name, signal in signals.items() if isinstance(signal, ServerSignal)}
    return values | measure_server(server, task, variables, data, layout)


def measure_server(
    signals: Mapping[str, ServerSignal], task: Task, variables: Variables, data: FederatedData, layout: Layout
) -> Values:
    """Returns each signal's value for the global model on the server's validation or test examples, one pass each."""
    splits = {"validation": (data.validation_x, data.validation_y), "test": (data.test_x, data.test_y)}
    values: Values = {}
    for split, (x, y) in splits.items():
        own = {name: signal for name, signal in signals.items() if signal.split == split}
        if own:
            logits = layout.over_examples(partial(task.logits, variables), x)
            values |= {name: signal.measure(logits, y) for name, signal in of_task(own, task).items()}
    return values


def strip_statistics(task: Task, update: Update) -> Update:
    """Returns an update, or a cohort's updates, without batch statistics, which are moments of the examples."""
    return replace(update, delta=task.split(update.delta)[0])


def measure_cohort(
    signals: Mapping[str, Signal],
    task: Task,
    data: FederatedData,
    run_key: PRNGKey,
    round: Int[Array, ""],
    updates: Updates,
) -> Values:
    """Returns each cohort signal's values, computed from all updates together; with a leading `m`.

    Args:
      signals: signals of one moment, of which only the cohort signals are measured.
      task, data, run_key: of the run.
      round: number of the round.
      updates: the cohort's updates, and the model that they started from.
    """
    wanted = {name: signal for name, signal in signals.items() if isinstance(signal, CohortSignal)}
    if not wanted:
        return {}
    batch = Batch(
        jnp.asarray(data.validation_x), jnp.asarray(data.validation_y), jnp.ones(len(data.validation_y), bool)
    )
    key = key_for(run_key, Purpose.COHORT_SIGNALS, round)
    values = {}
    for name, signal in wanted.items():
        own = jax.random.fold_in(key, crc32(name.encode()))
        values[name] = signal.measure(own, round, task, updates, batch)
    return values


def refers_to_previous(signals: Mapping[str, Signal]) -> bool:
    """Returns whether any of these refers to the change of the global model in the previous round."""
    return any(isinstance(s, UpdateSignal) and s.reference == "previous" for s in signals.values())
