"""What no single run of the GPFL reproduction gives: times of all methods side by side, regret, partitions as drawn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel import config as configuration
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.papers.gpfl.cells import (
    GPFL,
    METHODS,
    OF_FEDCOR,
    PARTITIONS,
    RANDOM,
    ROBIN,
    SENSITIVE,
    SMOKE,
    TEXT,
    cells,
    name_experiment,
)
from fedjax_sel.papers.gpfl.numbers import DIGITS, FASHION
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.pytree import jit
from fedjax_sel.types import PRNGKey

TIMED_ROUNDS = 200
REPEATS = 3


def time(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Measured seconds of the rounds of each method, and simulated seconds, joules, bytes and FLOPs.

    One seed, all methods in turn, compiled beforehand, then `REPEATS` times round; no evaluation but the last. Devices
    for the simulated cost are drawn by the law `lognormal`.
    """
    rounds = 10 if scale == "smoke" else TIMED_ROUNDS
    wanted = {"rounds": rounds, "evaluate_every": rounds, "evaluate_last": 1, "seeds": [seeds[0]], "chunk": rounds}
    title = name_experiment(DIGITS if scale == "smoke" else FASHION, SENSITIVE)
    timed = {
        cell.method: configuration.build({**cell.config, **wanted, "devices": "lognormal"})
        for cell in cells(scale)
        if cell.experiment == title
    }
    runs: dict[str, list[Any]] = {method: [run.simulate()] for method, run in timed.items()}
    for _turn in range(REPEATS):
        for method, run in timed.items():
            runs[method].append(run.simulate())
    found = {}
    for method, (_, *again) in runs.items():
        history = again[0]
        costs = {name: float(history[name].sum()) for name in ("seconds", "joules", "bytes", "flops")}
        found[method] = {"measured_seconds": [float(h.about["seconds"]) for h in again], **costs}
    return {"rounds": rounds, "seed": seeds[0], "device": history.about["device"], "methods": found}


def partitions(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Clients' sizes and classes in each partition, over the seeds."""
    base = SMOKE if scale == "smoke" else OF_FEDCOR
    clients, out = (20 if scale == "smoke" else 100), {}
    for name, (law, m) in PARTITIONS.items():
        config = {
            **base,
            "partition": {**law, "clients": clients},
            "cohort_size": min(m, clients),
            "client_selection": "uniform",
        }
        federation = configuration.build(config).data
        drawn = [federation.draw(seed) for seed in seeds]
        sizes = np.stack([d.size + d.num_holdout for d in drawn])
        held = [count_classes(d) for d in drawn]
        out[name] = {
            "mean": float(sizes.mean()),
            "std": float(sizes.std(1).mean()),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
            "classes above 5 %": float(np.mean([(h > 0.05).sum(1).mean() for h in held])),
        }
    return out


def count_classes(data: FederatedData) -> np.ndarray:
    """Share of each class among each client's rows, Float[N, C]."""
    count = np.zeros((data.num_clients, data.classes))
    np.add.at(count, (np.asarray(data.owner), np.asarray(data.y)[np.asarray(data.order)]), 1)
    return count / count.sum(1, keepdims=True)


SMALL_CASE = {
    "data": {"name": "digits", "validation": 0.2},
    "partition": {"name": "shards", "clients": 10, "shards_per_client": 1},
    "model": {"name": "mlp", "hidden": [32]},
    "local_training": {"name": "sgd", "learning_rate": 0.1, "batch_size": 16, "epochs": 2},
    "cohort_size": 3,
}
"""Ten clients of one or two classes: 120 cohorts of three."""

BANDITS: dict[str, dict[str, Any]] = {
    RANDOM: METHODS[RANDOM],
    ROBIN: METHODS[ROBIN],
    GPFL: {**METHODS[GPFL], "warm_up": 4},
    TEXT: METHODS[TEXT],
    "GPFL, α = 0": {**METHODS[GPFL], "warm_up": 4, "alpha": 0.0},
    "GPFL, α = 1": {**METHODS[GPFL], "warm_up": 4, "schedule": "constant"},
}


def regret(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Regret of each method in a federation so small that every cohort can be tried in every round.

    The value of a cohort is how much the mean of its updates lowers the validation loss of the model as it is. Regret
    of a round: the best cohort's value minus the chosen one's, along the method's own path. Its sum is given as a share
    of what choosing uniformly would lose on that path in expectation: 0 is the oracle, 1 no better than chance.
    """
    rounds = 12 if scale == "smoke" else 100
    seeds = seeds if scale == "smoke" else range(10)
    found = {}
    for method, selector in BANDITS.items():
        run = configuration.build(
            merge_settings(SMALL_CASE, {"client_selection": selector, "rounds": rounds, "seeds": list(seeds)})
        )
        history = run.simulate()
        lost, by_chance = [], []
        for i, data in enumerate(run.data.draws(run.seeds)):
            mine, chance = measure_regret(run.experiment, data, run.seeds[i], history.selections[i])
            lost.append(mine)
            by_chance.append(chance)
        total, chance = np.sum(lost, axis=1), np.sum(by_chance, axis=1)
        found[method] = {
            "share": (total / chance).tolist(),
            "running_share": (np.cumsum(lost, axis=1) / np.cumsum(by_chance, axis=1)).mean(0).tolist(),
            "final_accuracy": history["accuracy"][:, -1].tolist(),
        }
    return {"rounds": rounds, "seeds": list(seeds), "clients": 10, "cohort_size": 3, "methods": found}


def measure_regret(
    experiment: Experiment, data: FederatedData, seed: int, selections: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Regret of each round's cohort, and the mean regret of all cohorts, on the path that the cohorts take.

    Args:
      experiment: whose trainer and task; its aggregation is the plain mean, its clients train on all their rows.
      data: of the seed.
      seed: of the run.
      selections: Int[T, m], the cohorts.
    """
    plain = replace(
        experiment, client_selection=Uniform()
    )  # who chose is in the selections, so that one program serves all
    mine, chance = path(plain, jax.tree.map(jnp.asarray, data), jax.random.key(seed), jnp.asarray(selections))
    return np.asarray(mine), np.asarray(chance)


@jit()
def path(
    experiment: Experiment, data: FederatedData, key: PRNGKey, selections: Int[Array, "T m"]
) -> tuple[Float[Array, "T"], Float[Array, "T"]]:
    """As `regret_along`; compiled once for all seeds and methods."""
    task, trainer = experiment.task, experiment.local_training
    everyone = jnp.arange(data.num_clients)
    cohorts = jnp.asarray(list(itertools.combinations(range(data.num_clients), selections.shape[1])))
    index, valid = jax.vmap(data.examples_of)(everyone)
    steps = trainer.local_steps(valid.sum(1), data.longest)

    def round_of(variables, given):
        t, chosen = given
        factor = trainer.schedule(t, jnp.asarray(experiment.rounds))

        def train(client, index, valid, own_steps):
            own = key_for(key, Purpose.TRAIN, t, client)
            return trainer.train(task, variables, data, index, valid, own, factor, own_steps, steps.max()).delta

        deltas = jax.vmap(train)(everyone, index, valid, steps)

        def after(cohort):
            moved = jax.tree.map(lambda w, d: w + d[cohort].mean(0), variables, deltas)
            return moved, task.example_loss(task.logits(moved, data.validation_x), data.validation_y).mean()

        losses = jax.vmap(lambda cohort: after(cohort)[1])(cohorts)
        moved, loss = after(chosen)
        return moved, (loss - losses.min(), losses.mean() - losses.min())

    start = task.init(key_for(key, Purpose.MODEL), data.x)
    return jax.lax.scan(round_of, start, (jnp.arange(len(selections)), selections))[1]
