"""How good the global model is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.personal import evaluate_personal, evaluates_clients, personal_metrics
from fedjax_sel.task.task import accuracy
from fedjax_sel.types import PRNGKey, Variables


def evaluate(
    experiment: Experiment,
    data: FederatedData,
    seed: PRNGKey,
    variables: Variables,
    personal: Variables,
    t: Int[Array, ""],
    layout: Layout,
) -> dict[str, Any]:
    """Accuracy, loss (nats) and the task's other metrics on the test examples after round `t`; NaN where not due.

    Those of clients' own models are among the other metrics.

    Args:
      experiment, data, seed: of the run.
      variables: the new global model.
      personal: parts that each client keeps for itself, with a leading `N`.
      t: the round.
      layout: how.
    """
    task = experiment.task

    def measure_batch(x, y):
        outputs = task.logits(variables, x)
        measured = {"accuracy": accuracy(outputs, y), **task.example_metrics(outputs, y)}
        for name, value in measured.items():
            if jnp.shape(value) != y.shape[:1]:
                raise ValueError(
                    f"the task's metric {name!r} is of shape {jnp.shape(value)}; it must be a number for each example, "
                    f"of shape {y.shape[:1]}"
                )
        return measured

    def measure():
        values = layout.over_examples(measure_batch, data.test_x, data.test_y)
        means = {name: jnp.asarray(value.mean(), jnp.float32) for name, value in values.items()}
        if not evaluates_clients(experiment):
            return means
        return means | evaluate_personal(experiment, data, seed, variables, personal, t, layout)

    def skip():
        names = ("accuracy", "loss", *task.metrics, *personal_metrics(experiment))
        return {name: jnp.full((), jnp.nan) for name in names}

    measured = jax.lax.cond(is_due(experiment, t), measure, skip)
    return {"accuracy": measured.pop("accuracy"), "loss": measured.pop("loss"), "metrics": measured}


def is_due(experiment: Experiment, t: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the model is evaluated after round `t`."""
    return ((t + 1) % experiment.evaluate_every == 0) | (t + experiment.evaluate_last >= experiment.rounds)
