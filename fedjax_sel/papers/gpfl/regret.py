"""Regret of a run's cohorts, in a federation small enough to try every cohort in every round."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.compiled import jit
from fedjax_sel.data.federated import Examples, FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for, make_key
from fedjax_sel.types import PRNGKey


def measure_regret(
    experiment: Experiment, data: FederatedData, seed: int, selections: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the regret of each round's cohort, and the mean regret of all cohorts, on the path that the cohorts take.

    Args:
      experiment: provides trainer and task; aggregation is the plain mean, and clients train on all their examples.
      data: of the seed.
      seed: of the run.
      selections: Int[T, m], the cohorts.
    """
    # The selections already say who trains, so that one program serves all methods.
    plain = replace(experiment, client_selection=Uniform())
    mine, chance = follow_path(plain, jax.tree.map(jnp.asarray, data), make_key(seed), jnp.asarray(selections))
    return np.asarray(mine), np.asarray(chance)


@jit()
def follow_path(
    experiment: Experiment, data: FederatedData, key: PRNGKey, selections: Int[Array, "T m"]
) -> tuple[Float[Array, "T"], Float[Array, "T"]]:
    """Returns what `measure_regret` returns; compiled once for all seeds and methods."""
    task, trainer = experiment.task, experiment.local_training
    everyone = jnp.arange(data.num_clients)
    cohorts = jnp.asarray(list(itertools.combinations(range(data.num_clients), selections.shape[1])))
    index, valid = jax.vmap(data.examples_of)(everyone)

    def run_round(variables, given):
        t, chosen = given
        plan = trainer.plan(valid.sum(1), data.longest, t, jnp.asarray(experiment.rounds))

        def train(client, index, valid, plan, num_steps):
            own = key_for(key, Purpose.TRAIN, t, client)
            return trainer.train(own, task, variables, Examples(data, index, valid), plan, num_steps=num_steps).delta

        deltas = jax.vmap(train, in_axes=(0, 0, 0, 0, None))(everyone, index, valid, plan, plan.steps.max())

        def merge(cohort):
            moved = jax.tree.map(lambda w, d: w + d[cohort].mean(0), variables, deltas)
            outputs = task.logits(moved, data.validation_x)
            return moved, task.loss(outputs, data.validation_y).mean()

        losses = jax.vmap(lambda cohort: merge(cohort)[1])(cohorts)
        moved, loss = merge(chosen)
        return moved, (loss - losses.min(), losses.mean() - losses.min())

    start = task.init(key_for(key, Purpose.MODEL), data.like)
    return jax.lax.scan(run_round, start, (jnp.arange(len(selections)), selections))[1]
