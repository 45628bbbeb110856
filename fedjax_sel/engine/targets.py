"""Checks, before anything compiles, that a task and the strategies fit the data's kind of targets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.compiled import jit
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.mistakes import is_built_in
from fedjax_sel.protocols import MOMENTS, ClientSelector, DataSelector
from fedjax_sel.pytree import show
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
    check_each_alone(task, data)
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
        from_one = outputs == (1, data.classes - 1) and np.min(data.y, initial=1) == 1
        cure = (
            "subtract 1 from the labels, of which none is 0"
            if from_one
            else f"build the model with classes={data.classes}"
        )
        raise ValueError(
            f"the model gives {outputs[-1]} logits an example, but the data has {data.classes} classes; {cure}"
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
        if name == "accuracy" and value.shape:
            raise ValueError(
                f"the task's metric {name!r} is of shape {value.shape}; a metric of this name must be one number"
            )
        of_classes = [f"{name}_{c}" for c in range(value.shape[0])] if value.shape else []
        if taken := [one for one in of_classes if one in found]:
            raise ValueError(f"the task has a metric {taken[0]!r}, as a history calls a class of {name!r}; rename one")


def check_each_alone(task: Task, data: FederatedData) -> None:
    """Raises `ValueError` if the user's loss or metric of an example depends on other examples of the batch.

    So does `outputs - targets` of shapes `(b, 1)` and `(b,)`, which is `(b, b)`: its mean has one number an example,
    and they are wrong.
    """
    own = [name for name, part in {**task.metrics, "loss": task.loss}.items() if is_own(part)]
    if not own or not len(data.test_y):  # the lack of which is an error of its own
        return
    rng, targets = np.random.default_rng(0), np.asarray(data.test_y)[:1000]
    outputs = rng.normal(size=(3, *task.outputs(data.like)[1:])).astype(np.float32)
    changed = np.concatenate([outputs[:2], rng.normal(size=outputs[2:].shape).astype(np.float32)])
    others = np.flatnonzero((targets != targets[0]).reshape(len(targets), -1).any(1))
    same, other = np.zeros(3, int), np.array([0, 0, others[0] if others.size else 0])
    before, after = (measure_examples(task, x, targets[rows]) for x, rows in ((outputs, same), (changed, other)))
    for name in own:
        what = name if name == "loss" else f"metric {name!r}"
        for a, b in zip(jax.tree.leaves(before[name]), jax.tree.leaves(after[name]), strict=True):
            if not np.allclose(a[:2], b[:2], rtol=1e-4, atol=1e-6, equal_nan=True):
                raise ValueError(
                    f"the task's {what} of an example changes with the other examples of its batch; it must follow "
                    f"from the example's own outputs and targets, which are of shapes "
                    f"{say_shape(outputs)} and {say_shape(targets)}"
                    + ("; write outputs[:, 0]" if outputs.shape[1:] == (1,) and targets.ndim == 1 else "")
                )


def say_shape(batch: np.ndarray) -> str:
    """Returns the shape of a batch of any size, as text.

    >>> say_shape(np.zeros((3, 2))), say_shape(np.zeros(3))
    ('(b, 2)', '(b,)')
    """
    return str(("b", *batch.shape[1:])).replace("'b'", "b")


def is_own(part: Any) -> bool:
    """Returns whether a loss or a metric is the user's."""
    whose = part.function if isinstance(part, OwnLoss | MeanOf) else type(part)
    return not is_built_in(whose)


@jit()
def measure_examples(task: Task, outputs: Any, targets: Any) -> dict[str, Any]:
    """Returns what each example adds to every metric, and its loss."""
    return task.example_metrics(outputs, targets)


@jit()
def compute_metrics(task: Task, outputs: Any, targets: Any) -> dict[str, Any]:
    """Returns the loss and every metric; it is traced once for all seeds, and never run."""
    return task.reduce_metrics(task.example_metrics(outputs, targets))


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
