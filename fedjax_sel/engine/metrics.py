"""How good the global model is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.state import Values
from fedjax_sel.types import Variables


def evaluate(
    experiment: Experiment, data: FederatedData, variables: Variables, t: Int[Array, ""], layout: Layout
) -> Values:
    """Accuracy and loss (nats) on the test examples after round `t`, where they are due; NaN elsewhere."""
    task = experiment.task

    def measure_batch(x, y):
        logits = task.logits(variables, x)
        return logits.argmax(-1) == y, task.example_loss(logits, y)

    def measure():
        correct, loss = layout.over_examples(measure_batch, data.test_x, data.test_y)
        return {"accuracy": correct.mean(), "loss": loss.mean()}

    def skip():
        return {"accuracy": jnp.full((), jnp.nan), "loss": jnp.full((), jnp.nan)}

    return jax.lax.cond(is_due(experiment, t), measure, skip)


def is_due(experiment: Experiment, t: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the model is evaluated after round `t`."""
    return ((t + 1) % experiment.evaluate_every == 0) | (t + experiment.evaluate_last >= experiment.rounds)
