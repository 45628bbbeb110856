"""Signals, measured: on clients before they train, on rows a client chooses from, on finished rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.metrics import Values
from fedjax_sel.protocols import ClientSignal, ExampleSignal, ServerSignal, UpdateSignal
from fedjax_sel.task import Task
from fedjax_sel.types import Batch, Context, PRNGKey, Update, Variables


def measure_before(
    experiment: Experiment, data: FederatedData, seed: PRNGKey, variables: Variables, ctx: Context, layout: Layout
) -> tuple[Values, Bool[Array, ""]]:
    """The selector's `before` signals (`measure_clients`), zeros where it does not ask this round, and whether it asks."""
    selector = experiment.client_selection
    if not selector.before:
        return {}, jnp.zeros((), bool)
    held = experiment.signal_split == "holdout"
    own = key_for(seed, Purpose.ASK, ctx.round)
    measure = partial(
        measure_clients, selector.before, experiment.task, variables, data, ctx, layout, key=own, held=held
    )
    asks = getattr(selector, "asks", None)
    if asks is None:
        return measure(), jnp.ones((), bool)
    asked = asks(ctx.round)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(measure))
    return jax.lax.cond(asked, measure, lambda: nothing), asked


def example_values(
    signals: Sequence[ExampleSignal], task: Task, variables: Variables, x: Array, y: Int[Array, "b"], layout: Layout
) -> Values:
    """Each signal's value of each row, from one flat forward pass."""

    def values(x, y):
        logits = task.logits(variables, x)
        return {signal.name: signal.measure(logits, y) for signal in signals}

    return layout.over_examples(values, x, y)


def measure_clients(
    signals: Sequence[ExampleSignal | ClientSignal],
    task: Task,
    variables: Variables,
    data: FederatedData,
    ctx: Context,
    layout: Layout,
    *,
    key: PRNGKey,
    held: bool = False,
) -> Values:
    """Each signal's value of each candidate, Float["d"]; of each client, Float["N"], where everyone is asked.

    The global model is one model, so the row signals of all clients come from one pass over all rows and a segment
    mean.

    Args:
      signals: what is asked.
      task, variables, data: on the current global model.
      ctx: of this round.
      layout: how.
      key: from which each client draws its own.
      held: ask about the hold-out rows instead of the training rows.
    """
    by_row = [signal for signal in signals if isinstance(signal, ExampleSignal)]
    by_client = [signal for signal in signals if isinstance(signal, ClientSignal)]
    values: Values = {}
    if by_row and ctx.candidates is None:
        of_row = example_values(by_row, task, variables, data.x, data.y, layout)
        values |= {name: client_means(v, data, held=held) for name, v in of_row.items()}
    elif by_row:
        index, mask = jax.vmap(lambda i: data.examples_of(i, held=held))(ctx.candidates)
        of_row = example_values(by_row, task, variables, data.x[index.ravel()], data.y[index.ravel()], layout)
        count = jnp.maximum(mask.sum(1), 1)
        values |= {name: jnp.where(mask, v.reshape(mask.shape), 0).sum(1) / count for name, v in of_row.items()}
    if by_client:
        clients = jnp.arange(ctx.num_clients) if ctx.candidates is None else ctx.candidates

        def ask(i):
            batch = data.batch(*data.examples_of(i, held=held))
            own = jax.random.fold_in(key, i)
            return {signal.name: signal.measure(task, variables, batch, own) for signal in by_client}

        values |= layout.over_clients(ask, clients)
    return values


def client_means(value: Float[Array, "n"], data: FederatedData, *, held: bool = False) -> Float[Array, "N"]:
    """Mean of a number a row over each client's rows."""
    count = data.num_holdout if held else data.num_examples
    first = (data.offset + data.num_examples if held else data.offset)[jnp.minimum(data.owner, data.num_clients - 1)]
    within = jnp.arange(data.order.shape[0]) - first
    mine = (within >= 0) & (within < count[jnp.minimum(data.owner, data.num_clients - 1)])
    total = jax.ops.segment_sum(
        jnp.where(mine, value[data.order], 0), data.owner, data.num_clients, indices_are_sorted=True, mode="drop"
    )
    return total / jnp.maximum(count, 1)


def measure_examples(
    signals: Sequence[ExampleSignal], task: Task, variables: Variables, batch: Batch
) -> dict[str, Float[Array, "L"]]:
    """Each signal's value of each of one client's rows."""
    if not signals:
        return {}
    logits = task.logits(variables, batch.x)
    return {signal.name: signal.measure(logits, batch.y) for signal in signals}


def measure_after(
    signals: Sequence[UpdateSignal | ServerSignal],
    task: Task,
    variables: Variables,
    data: FederatedData,
    updates: Update,
    aggregate: Variables,
    previous: Variables | None,
    mask: Bool[Array, "m"],
) -> Values:
    """Each signal's value of the finished round: Float["m"] for updates (0 in empty slots), Float[""] for the server's.

    Args:
      signals: what is asked.
      task: what is learnt.
      variables: the new global model.
      data: with the server's validation rows.
      updates: of the cohort.
      aggregate: change of the global model.
      previous: its change in the round before; None where no signal looks at it.
      mask: filled slots.
    """
    values: Values = {}
    for signal in signals:
        if isinstance(signal, UpdateSignal):
            shown = previous if looks_back(signal) else aggregate
            value = jax.vmap(signal.measure, in_axes=(0, None))(updates, shown)
            values[signal.name] = jnp.where(mask, value, 0)
    rows = {"validation": (data.validation_x, data.validation_y), "test": (data.test_x, data.test_y)}
    for on, (x, y) in rows.items():
        server = [signal for signal in signals if isinstance(signal, ServerSignal) and examples_of(signal) == on]
        if server:
            logits = task.logits(variables, x)
            values |= {signal.name: signal.measure(logits, y) for signal in server}
    return values


def examples_of(signal: ServerSignal) -> str:
    """On which of the server's rows a signal is measured: `"validation"` or `"test"`."""
    return getattr(signal, "on", "validation")


def looks_back(signal: Any) -> bool:
    """Whether a signal is shown the change of the global model in the round before."""
    return getattr(signal, "against", "aggregate") == "previous"


def wants_previous(signals: Sequence[UpdateSignal | ServerSignal]) -> bool:
    """Whether any of these looks at the change of the global model in the round before."""
    return any(map(looks_back, signals))
