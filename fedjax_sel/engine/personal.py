"""Personal parts, which each client keeps for itself, and clients' own models."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.data.federated import Examples, FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.undeclared import hide_round_count
from fedjax_sel.task import Task
from fedjax_sel.task.freezing import merge_trees
from fedjax_sel.types import PRNGKey, Variables


def init_personal(task: Task, variables: Variables, num_clients: int) -> Variables:
    """Returns every client's initial personal parts (the initial model's), with a leading `N`; `()` without any."""
    if not task.personal:
        return ()
    _, personal = task.split_personal(variables)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (num_clients, *leaf.shape)), personal)


def own_variables(variables: Variables, personal: Variables, client: Int[Array, ""]) -> Variables:
    """Returns a client's model: the global model with the client's personal parts.

    Args:
      variables: the global model; its personal parts keep their initial values.
      personal: personal parts of every client, with a leading `N`; `()` if all parts are shared.
      client: number of the client.
    """
    if not jax.tree.leaves(personal):
        return variables
    return merge_trees(variables, jax.tree.map(lambda leaf: leaf[client], personal))


def own_model(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    variables: Variables,
    personal: Variables,
    t: Int[Array, ""],
    client: Int[Array, ""],
) -> Variables:
    """Returns the model with which a client is evaluated: `own_variables`, trained further if there is `fine_tuning`.

    Args:
      experiment, data, run_key: of the run.
      variables: the new global model.
      personal: as for `own_variables`.
      t: the round.
      client: number of the client.
    """
    mine = own_variables(variables, personal, client)
    return mine if experiment.fine_tuning is None else fine_tune(experiment, data, run_key, mine, client, t)


def fine_tune(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    variables: Variables,
    client: Int[Array, ""],
    t: Int[Array, ""],
) -> Variables:
    """Returns a client's model after training on its own training examples with `fine_tuning`."""
    trainer: Any = experiment.fine_tuning
    examples = Examples(data, *data.examples_of(client)).fetch()
    rounds = hide_round_count(trainer, "plan", jnp.asarray(experiment.rounds))
    plan = partial(trainer.plan, longest=data.longest, round=t, rounds=rounds)
    key = key_for(run_key, Purpose.FINE_TUNE, t, client)
    most = plan(data.num_examples).steps.max()  # one bound for all clients, so that they stay side by side
    mine = plan(data.num_examples[client])
    update = trainer.train(key, experiment.task, variables, examples, mine, num_steps=most)
    return jax.tree.map(jnp.add, variables, update.delta)
