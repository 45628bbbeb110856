"""Checks, before anything compiles, that a task and the strategies fit the data's kind of targets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.protocols import MOMENTS, ClientSelector, DataSelector
from fedjax_sel.pytree import jit, show
from fedjax_sel.task import Task
from fedjax_sel.task.losses import LOSSES, OwnLoss
from fedjax_sel.task.metrics import METRICS, MeanOf


def check_targets(
    task: Task, client_selection: ClientSelector, data_selection: DataSelector, data: FederatedData
) -> None:
    """Raises `ValueError` if the model, the loss, a metric or a signal does not fit the targets."""
    check_outputs(task, data)
    for what, part, known in (
        ("loss", task.loss, LOSSES),
        *((f"metric {name!r}", metric, METRICS) for name, metric in task.metrics.items()),
    ):
        if part.targets and data.targets not in part.targets:
            fit = ", ".join(cls.__name__ for cls in known.values() if data.targets in cls.targets)
            raise ValueError(
                f"the task's {what} is {type(part).__name__}, which is of {' or '.join(part.targets)}, but the targets "
                f"are {data.targets}; of those: {fit}, or a function of your own"
            )
    measure_once(task, data)
    if data.targets != "classes":
        check_strategies(client_selection, data_selection, data.targets)


def check_outputs(task: Task, data: FederatedData) -> None:
    """Raises `ValueError` if the model's outputs do not have the shape that the targets need."""
    outputs = task.outputs(data.like)
    if len(outputs) < 2 or outputs[0] != 1:
        raise ValueError(
            f"{type(task.model).__name__} returns outputs of shape {outputs} for a batch of one example; it must be "
            f"(1, {data.classes}), a row for each example of the batch"
        )
    if data.targets == "classes" and outputs != (1, data.classes):
        raise ValueError(
            f"the model gives {outputs[-1]} logits an example, but the data has {data.classes} classes; "
            f"build the model with classes={data.classes}"
        )
    wanted = (1, *(data.y.shape[1:] if data.targets == "tokens" else ()), data.classes)
    if outputs != wanted:
        raise ValueError(
            f"the model gives outputs of shape {outputs[1:]} an example, but its targets are {data.targets}, which "
            f"need {wanted[1:]}; "
            + (
                f"build the model with classes={data.classes}"
                if len(outputs) == len(wanted)
                else "give a model with an output for each position (the library's have one for the whole example)"
            )
        )


def measure_once(task: Task, data: FederatedData) -> None:
    """Raises `ValueError` if the loss or a metric cannot be computed from the outputs and the targets."""
    outputs = jax.ShapeDtypeStruct((2, *task.outputs(data.like)[1:]), jnp.float32)
    targets = jax.ShapeDtypeStruct((2, *data.y.shape[1:]), data.y.dtype)
    try:
        found = compute_metrics.trace(task, outputs, targets).out_info
    except Exception:
        refuse_part(task, outputs, targets)
        raise
    for name, value in found.items():
        if len(value.shape) > 1:
            raise ValueError(
                f"the task's metric {name!r} is of shape {value.shape}; it must be a number, or one for each class"
            )
        of_classes = [f"{name}_{c}" for c in range(value.shape[0])] if value.shape else []
        if taken := [one for one in of_classes if one in found]:
            raise ValueError(f"the task has a metric {taken[0]!r}, as a history calls a class of {name!r}; rename one")


@jit()
def compute_metrics(task: Task, outputs: Any, targets: Any) -> dict[str, Any]:
    """Returns the loss and every metric; it is traced once for all seeds, and never run."""
    each = task.example_metrics(outputs, targets)
    return task.compute_metrics(jax.tree.map(lambda value: jnp.sum(value, axis=0, dtype=jnp.float32), each), 2.0)


def refuse_part(task: Task, outputs: Any, targets: Any) -> None:
    """Raises `ValueError` for the first of loss and metrics that cannot be computed, alone."""
    for what, part, measure in (
        ("loss", task.loss, task.loss),
        *((f"metric {name!r}", metric, metric.measure) for name, metric in task.metrics.items()),
    ):
        try:
            jax.eval_shape(measure, outputs, targets)
        except Exception as error:
            name = show(part.function) if isinstance(part, OwnLoss | MeanOf) else type(part).__name__
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"the task's {what}, {name}, cannot be computed of outputs of shape {outputs.shape} and targets "
                f"{targets.dtype} of shape {targets.shape}: {reason}"
            ) from error


def check_strategies(client_selection: ClientSelector, data_selection: DataSelector, targets: str) -> None:
    """Raises `ValueError` if a strategy needs classes, for targets of another kind."""
    declared = client_selection.signals()
    wanted = {name: signal for moment in MOMENTS for name, signal in declared.at(moment).items()}
    chosen = {**data_selection.signals(), **data_selection.validation_signals()}
    for strategy, signals in ((client_selection, wanted), (data_selection, chosen)):
        needs = [name for name, signal in signals.items() if signal.needs_classes]
        if needs or (strategy is client_selection and client_selection.needs_classes):
            why = f", by the signal {needs[0]!r}" if needs else ""
            of_clients = strategy is client_selection
            others = "PowerOfChoice, Oort or GradientNorm" if of_clients else "HighLoss or FedBalancer"
            raise ValueError(
                f"{type(strategy).__name__} needs classes{why}, but the targets are {targets}; choose by loss or by "
                f"updates, as {others} do"
            )
