"""What leaves the scan: how good the model is, and the whole numbers the bill is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.bill import count_name, sharing
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.types import Cohort, Context, Update, Variables

if TYPE_CHECKING:
    from fedjax_sel.engine.timing import Turns

Values = dict[str, Array]


def evaluate(
    experiment: Experiment, data: FederatedData, variables: Variables, t: Int[Array, ""], layout: Layout
) -> Values:
    """Accuracy and loss (nats) on the test rows after round `t`, where it is due; NaN elsewhere."""
    task = experiment.task

    def of_rows(x, y):
        logits = task.logits(variables, x)
        return logits.argmax(-1) == y, task.example_loss(logits, y)

    def measure():
        correct, loss = layout.over_examples(of_rows, data.test_x, data.test_y)
        return {"accuracy": correct.mean(), "loss": loss.mean()}

    due = is_due(experiment, t)
    return jax.lax.cond(due, measure, lambda: {"accuracy": jnp.full((), jnp.nan), "loss": jnp.full((), jnp.nan)})


def is_due(experiment: Experiment, t: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the model is evaluated after round `t`."""
    return ((t + 1) % experiment.evaluate_every == 0) | (t + experiment.evaluate_last >= experiment.rounds)


def polled(ctx: Context, asked: Bool[Array, ""]) -> Bool[Array, "N"]:
    """Who was asked for signals this round."""
    everyone, n = ctx.available & asked, ctx.num_clients
    if ctx.candidates is None:
        return everyone
    return everyone & jnp.zeros(n, bool).at[jnp.where(ctx.candidates >= 0, ctx.candidates, n)].set(True, mode="drop")


def counts(
    experiment: Experiment,
    data: FederatedData,
    polled: Bool[Array, "N"],
    cohort: Cohort,
    turns: Turns,
    updates: Update,
) -> Values:
    """Whole numbers of one round from which the host writes the bill.

    `cohort`: clients that were to train; `returned`: those whose update came back; `left_out`: those of them whose
    update was not finite; `trained_examples`: rows passed forward
    and backward, with repetition; `screened_examples`: rows among which the cohort chose; `asked`: clients asked for
    signals; `asked_outside`: those of them that did not train; `asked_examples`: the rows they were asked about, and
    `asked_rows_K` those that a signal passes which looks at `K` rows a client at most.
    """
    n = data.num_clients
    training = jnp.zeros(n, bool).at[jnp.where(cohort.mask, cohort.client, n)].set(True, mode="drop")
    rows = data.num_holdout if experiment.signal_split == "holdout" else data.num_examples
    return {
        "cohort": cohort.mask.sum(),
        "returned": turns.returned.sum(),
        "left_out": (turns.returned & ~updates.finite).sum(),
        "trained_examples": updates.examples_seen.sum() + turns.wasted.sum(),
        "screened_examples": jnp.where(cohort.mask, data.num_examples[cohort.client], 0).sum(),
        "asked": polled.sum(),
        "asked_outside": (polled & ~training).sum(),
        **{
            count_name(limit): jnp.where(polled, rows if limit is None else jnp.minimum(rows, limit), 0).sum()
            for limit in {None, *sharing(experiment.client_selection.before)}
        },
    }
