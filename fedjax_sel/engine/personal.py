"""Parts of the model that each client keeps for itself: where they are kept, and how clients' own models are judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.data.federated import Examples, FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.task import Task
from fedjax_sel.task.freezing import merge_trees
from fedjax_sel.task.task import accuracy
from fedjax_sel.types import PRNGKey, Variables

PREFIX = "personal_"
"""Begins the names of the means, over clients, of what their own models reach on their own hold-out examples."""


def init_personal(task: Task, variables: Variables, num_clients: int) -> Variables:
    """Returns every client's personal parts, with a leading `N`, as the initial model has them; `()` without any."""
    if not task.personal:
        return ()
    _, personal = task.split_personal(variables)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (num_clients, *leaf.shape)), personal)


def own_variables(variables: Variables, personal: Variables, client: Int[Array, ""]) -> Variables:
    """Returns a client's model: the global model with the client's personal parts.

    Args:
      variables: the global model; its personal parts are as they were drawn.
      personal: of every client, with a leading `N`; `()` where all is shared.
      client: which one.
    """
    if not jax.tree.leaves(personal):
        return variables
    return merge_trees(variables, jax.tree.map(lambda leaf: leaf[client], personal))


def keep_personal(
    personal: Variables, client: Int[Array, "m"], returned: Bool[Array, "m"], trained: Variables
) -> Variables:
    """Returns every client's personal parts, with those that the members which returned have trained.

    Args:
      personal: before the round, with a leading `N`.
      client: the cohort.
      returned: who trained to the end.
      trained: of each member, with a leading `m`.
    """

    def put(old: Array, new: Array) -> Array:
        return old.at[jnp.where(returned, client, old.shape[0])].set(new, mode="drop")

    return jax.tree.map(put, personal, trained)


def evaluates_clients(experiment: Experiment) -> bool:
    """Whether clients have models of their own to be judged."""
    return bool(experiment.task.personal) or experiment.fine_tuning is not None


def personal_metrics(experiment: Experiment) -> tuple[str, ...]:
    """Returns the names of the metrics of clients' own models."""
    if not evaluates_clients(experiment):
        return ()
    return tuple(PREFIX + name for name in dict.fromkeys(("accuracy", "loss", *experiment.task.metrics)))


def evaluate_personal(
    experiment: Experiment,
    data: FederatedData,
    seed: PRNGKey,
    variables: Variables,
    personal: Variables,
    t: Int[Array, ""],
    layout: Layout,
) -> dict[str, Float[Array, ""]]:
    """Returns the mean over the clients that have hold-out examples of every metric of their own models on those.

    A client's model is the global model with its personal parts, trained on its training examples first where the
    experiment has `fine_tuning`; what comes of that is thrown away.

    Args:
      experiment, data, seed: of the run.
      variables: the new global model.
      personal: as `own_variables` takes it.
      t: the round.
      layout: how many clients side by side.
    """

    def variables_of(client: Int[Array, ""]) -> Variables:
        mine = own_variables(variables, personal, client)
        return mine if experiment.fine_tuning is None else fine_tune(experiment, data, seed, mine, client, t)

    each = evaluate_clients(experiment.task, data, variables_of, layout)
    some = data.num_holdout > 0
    count = jnp.maximum(some.sum(), 1)
    return {PREFIX + name: jnp.where(some, value, 0.0).sum() / count for name, value in each.items()}


def evaluate_clients(
    task: Task, data: FederatedData, variables_of: Callable[[Int[Array, ""]], Variables], layout: Layout
) -> dict[str, Float[Array, "N"]]:
    """Returns every client's mean of each metric on its hold-out examples, by a model of its own; 0 where it has none.

    Args:
      task, data: of the run.
      variables_of: from a client to its model.
      layout: how many clients side by side.
    """

    def measure(client: Int[Array, ""]) -> dict[str, Float[Array, ""]]:
        batch = data.batch(*data.examples_of(client, holdout=True))
        outputs = task.logits(variables_of(client), batch.x)
        values = {"accuracy": accuracy(outputs, batch.y), **task.example_metrics(outputs, batch.y)}
        count = jnp.maximum(batch.mask.sum(), 1)
        return {name: jnp.where(batch.mask, value, 0).sum() / count for name, value in values.items()}

    return layout.over_clients(measure, jnp.arange(data.num_clients))


def fine_tune(
    experiment: Experiment,
    data: FederatedData,
    seed: PRNGKey,
    variables: Variables,
    client: Int[Array, ""],
    t: Int[Array, ""],
) -> Variables:
    """Returns a client's model after it has trained on its own training examples as `fine_tuning` says."""
    trainer: Any = experiment.fine_tuning
    examples = Examples(data, *data.examples_of(client))
    plan = partial(trainer.plan, longest=data.longest, round=t, rounds=jnp.asarray(experiment.rounds))
    key = key_for(seed, Purpose.FINE_TUNE, t, client)
    most = plan(data.num_examples).steps.max()  # one bound for all clients, so that they stay side by side
    mine = plan(data.num_examples[client])
    update = trainer.train(key, experiment.task, variables, examples, mine, num_steps=most)
    return jax.tree.map(jnp.add, variables, update.delta)
