"""How good the global model is: on the server's test examples, and on every client's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.signals import sum_by_client
from fedjax_sel.task import Accuracy, Task
from fedjax_sel.types import Variables


def evaluate(
    experiment: Experiment, data: FederatedData, variables: Variables, t: Int[Array, ""], layout: Layout
) -> dict[str, Any]:
    """Accuracy, loss (nats) and the task's other metrics after round `t`; NaN where not due.

    They are of the test examples; `clients`, where the experiment wants them, are of every client's own, Float["N"].
    Where targets are no classes, there is no accuracy.
    """
    task = complete_metrics(experiment.task, data)

    def measure() -> dict[str, Any]:
        return measure_whole(task, data, variables, layout)

    measured = measure_if(is_due(experiment, t), measure)
    quality = {"accuracy": measured.pop("accuracy", None), "loss": measured.pop("loss"), "metrics": measured}
    if experiment.evaluate_clients_every is None:
        return quality
    due = ((t + 1) % experiment.evaluate_clients_every == 0) | (t + 1 >= experiment.rounds)
    return {**quality, "clients": measure_if(due, lambda: measure_clients(task, data, variables, layout))}


def complete_metrics(task: Task, data: FederatedData) -> Task:
    """Returns the task with accuracy among its metrics where targets are classes."""
    return task.replace(metrics={"accuracy": Accuracy(), **task.metrics}) if data.targets == "classes" else task


def measure_if(due: Bool[Array, ""], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns what `measure` does where it is due, else NaN in its place."""
    like = jax.eval_shape(measure)
    return jax.lax.cond(due, measure, lambda: jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan), like))


def measure_whole(task: Task, data: FederatedData, variables: Variables, layout: Layout) -> dict[str, Any]:
    """Returns every metric on the test examples; a loss that is NaN is infinite, as NaN says that none was measured."""
    each = layout.over_examples(
        lambda x, y: task.example_metrics(task.logits(variables, x), y), data.test_x, data.test_y
    )
    sums = jax.tree.map(lambda value: jnp.sum(value, axis=0, dtype=jnp.float32), each)
    found = task.compute_metrics(sums, float(len(data.test_y)))
    return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()} | {"loss": hide_nan(found["loss"])}


def hide_nan(loss: Any) -> Any:
    """Returns infinity for NaN."""
    return jnp.where(jnp.isnan(loss), jnp.inf, loss)


def measure_clients(task: Task, data: FederatedData, variables: Variables, layout: Layout) -> dict[str, Any]:
    """Returns every metric of each client's own examples, with a leading `N`: of hold-out examples where all have some.

    The global model is one model, so all clients' examples pass it together, in passes of `layout.examples`, and each
    client's are added up: memory grows with `n` and `N`, and not with `N` models.
    """
    each = layout.over_examples(lambda x, y: task.example_metrics(task.logits(variables, x), y), data.x, data.y)
    holdout = (data.num_holdout > 0).all()
    sums = jax.tree.map(lambda value: sum_by_client(value.astype(jnp.float32), data, holdout=holdout), each)
    count = jnp.where(holdout, data.num_holdout, data.num_examples).astype(jnp.float32)
    return jax.vmap(task.compute_metrics)(sums, count)


def is_due(experiment: Experiment, t: Int[Array, "*t"] | Int[np.ndarray, "*t"]) -> Any:
    """Bool["*t"]: whether the model is evaluated on the test examples after round `t`."""
    return ((t + 1) % experiment.evaluate_every == 0) | (t + experiment.evaluate_last >= experiment.rounds)
