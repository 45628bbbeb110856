"""Evaluation of models: the global model on the server's test examples, and clients' models on their own examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from fedjax_sel.arrays import expand, run_if, take
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.averages import find_shift, sum_by_client
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.personal import own_model
from fedjax_sel.task import Accuracy, Task
from fedjax_sel.types import PRNGKey, Variables

SORTED_TOGETHER = 32
"""Clients whose examples, padded to the most that a client has, are sorted side by side for metrics by ranks."""


def evaluate(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    variables: Variables,
    personal: Variables,
    t: Int[Array, ""],
    layout: Layout,
) -> dict[str, Any]:
    """Returns accuracy, loss (nats) and the task's other metrics after round `t`; NaN if no evaluation is due.

    They are measured on the test examples. `clients`, if the experiment asks for it, has the metrics on every client's
    own examples, Float["N"], with the client's own model if it has one. If targets are not classes, accuracy is None.

    Args:
      experiment, data, run_key: of the run.
      variables: the new global model.
      personal: parts that each client keeps for itself, with a leading `N`.
      t: the round.
      layout: how examples and clients are run.
    """
    task = complete_metrics(experiment.task, data)

    def measure() -> dict[str, Any]:
        return evaluate_whole(task, variables, data, layout)

    def measure_each() -> dict[str, Any]:
        if not experiment.has_own_models:
            return evaluate_clients(task, variables, data, layout)
        model_of = partial(own_model, experiment, data, run_key, variables, personal, t)
        return evaluate_own_models(task, data, model_of, layout)

    measured = run_if(is_due(experiment, t), measure, jnp.nan)
    quality = {"accuracy": measured.pop("accuracy", None), "loss": measured.pop("loss"), "metrics": measured}
    if experiment.evaluate_clients_every is None:
        return quality
    return {**quality, "clients": run_if(are_clients_due(experiment, t), measure_each, jnp.nan)}


def complete_metrics(task: Task, data: FederatedData) -> Task:
    """Returns the task, with accuracy added to its metrics if targets are classes."""
    return task.replace(metrics={"accuracy": Accuracy(), **task.metrics}) if data.targets == "classes" else task


def evaluate_whole(task: Task, variables: Variables, data: FederatedData, layout: Layout) -> dict[str, Any]:
    """Returns every metric on the test examples; a NaN loss becomes infinite, as NaN means that none was measured."""
    each = layout.over_examples(
        lambda x, y: task.example_metrics(task.logits(variables, x), y), data.test_x, data.test_y
    )
    found = task.reduce_metrics(each)
    return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()} | {"loss": hide_nan(found["loss"])}


def hide_nan(loss: Any) -> Any:
    """Replaces NaN with infinity."""
    return jnp.where(jnp.isnan(loss), jnp.inf, loss)


def evaluate_clients(task: Task, variables: Variables, data: FederatedData, layout: Layout) -> dict[str, Any]:
    """Returns every metric on each client's own examples, with a leading `N`; NaN for a client that has none.

    A NaN loss becomes infinite, as NaN means that none was measured. The examples are the hold-out ones if the
    federation keeps some; otherwise those that the client trains on.

    All clients share the global model, so their examples pass through it together, in passes of `layout.examples`, and
    are then summed by client: memory grows with `n` and `N`, but not with `N` models. Metrics that need all values of a
    client, and not their sums alone, are computed client by client.
    """
    each = layout.over_examples_of(lambda x, y: task.example_metrics(task.logits(variables, x), y), data)
    holdout = (data.num_holdout > 0).any()
    count = data.count_examples(holdout=holdout).astype(jnp.float32)

    def add_up(value):
        value = value.astype(jnp.float32)
        base = find_shift(value)
        total = sum_by_client(value - base, data, holdout=holdout)
        return expand(count, total) * base + total

    names, whole = [*each], {name: each.pop(name) for name, metric in task.metrics.items() if metric.needs_all}

    def reduce(client: Int[Array, ""]) -> dict[str, Any]:
        index, mask = data.examples_of(client, holdout=holdout)
        return task.reduce_metrics(jax.tree.map(lambda value: take(value, index), whole), mask)

    sums = jax.tree.map(add_up, each)
    found = jax.vmap(task.compute_metrics)(sums, jnp.maximum(count, 1))
    if whole:
        in_blocks = layout if layout.clients else replace(layout, clients=SORTED_TOGETHER)
        found |= in_blocks.over_clients(reduce, jnp.arange(data.num_clients))
    found["loss"] = hide_nan(found["loss"])
    return {name: jnp.where(expand(count > 0, found[name]), found[name], jnp.nan) for name in names}


def evaluate_own_models(
    task: Task, data: FederatedData, model_of: Callable[[Int[Array, ""]], Variables], layout: Layout
) -> dict[str, Any]:
    """Returns every metric of each client's own model on its hold-out examples, with a leading `N`; NaN without any.

    Args:
      task, data: of the run.
      model_of: returns a client's model.
      layout: how many clients run side by side.
    """

    def measure(client: Int[Array, ""]) -> dict[str, Any]:
        batch = data.batch(*data.examples_of(client, holdout=True))
        each = task.example_metrics(task.logits(model_of(client), batch.x), batch.y)
        found = task.reduce_metrics(each, batch.mask)
        found["loss"] = hide_nan(found["loss"])
        return {name: jnp.where(batch.mask.any(), value, jnp.nan) for name, value in found.items()}

    return layout.over_clients(measure, jnp.arange(data.num_clients))


def is_due(experiment: Experiment, t: Int[Array, "*t"] | Int[np.ndarray, "*t"]) -> Any:
    """Returns whether the model is evaluated on the test examples after round `t`, Bool["*t"]."""
    return ((t + 1) % experiment.evaluate_every == 0) | (t >= experiment.rounds - experiment.evaluate_last)


def are_clients_due(experiment: Experiment, t: Int[Array, "*t"] | Int[np.ndarray, "*t"]) -> Any:
    """Returns whether every client is evaluated after round `t`, Bool["*t"]."""
    if experiment.evaluate_clients_every is None:
        return np.zeros(np.shape(t), bool)
    return ((t + 1) % experiment.evaluate_clients_every == 0) | (t + 1 >= experiment.rounds)
