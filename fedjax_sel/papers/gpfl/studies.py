"""Studies that no single run of the GPFL reproduction gives: times of all methods, regret, partitions as drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.config import build, resolve
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.choice_time import time_choice
from fedjax_sel.engine.distributed import describe_device
from fedjax_sel.papers.gpfl.cells import (
    BLIND,
    CIFAR,
    DIGITS,
    FASHION,
    FEDCOR,
    GPFL,
    METHODS,
    OF_FEDCOR,
    PARTITIONS,
    PUBLISHED,
    RANDOM,
    ROBIN,
    SENSITIVE,
    SMOKE,
    TEXT,
    list_cells,
    name_experiment,
)
from fedjax_sel.papers.gpfl.regret import measure_regret
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.protocols import ClientSelector, ServerSignal

TIMED_ROUNDS = 200
TIMED_ON_CIFAR = 60
"""Number of rounds: in 60, FedCor warms up for 20 and then fits its model twice."""
REPEATS = 3
COHORTS = (5, 10, 20, 40)
"""Sizes of the cohorts for which FedCor's choice is timed, of 100 clients."""
SHORTEST = 1e-9
"""Least seconds of a choice; noise could make them negative."""
UNFITTED = {"warm_up": 1, "first_steps": 1, "interval": TIMED_ROUNDS + 1}
"""Settings of FedCor with which nothing but the choice is left: one step of one fit."""


def study_time(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns measured seconds of each method's rounds, and simulated seconds, joules, bytes and FLOPs.

    All methods run in turn with one seed: once to compile, then `REPEATS` times. Devices for the simulated cost are
    drawn from the law `lognormal`. Both codes evaluate the global model in every round, whichever method selects, and
    GPFL's rewards are read off that evaluation. So here, too, every method evaluates once per round, on the same number
    of examples: GPFL on the server's, every other method on test examples.
    """
    title = name_experiment(DIGITS if scale == "smoke" else FASHION, SENSITIVE)
    return time_methods(scale, title, 10 if scale == "smoke" else TIMED_ROUNDS, seeds[0])


def study_time_on_cifar(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns the same on CIFAR-10, of the source's methods and of GPFL without rewards, whose work is GPFL's.

    Returns no method if CIFAR-10 is not run.
    """
    methods = (*PUBLISHED, BLIND)
    return time_methods(scale, name_experiment(CIFAR, SENSITIVE), TIMED_ON_CIFAR, seeds[0], methods)


def time_methods(
    scale: str, title: str, rounds: int, seed: int, methods: Sequence[str] | None = None
) -> dict[str, Any]:
    """Returns measured and simulated costs of the methods of one experiment, or of some of them."""
    wanted = {"rounds": rounds, "evaluate_last": 1, "seeds": [seed], "chunk": rounds, "devices": "lognormal"}
    timed = {}
    for cell in list_cells(scale):
        if cell.experiment == title and (methods is None or cell.method in methods):
            run = build(resolve({**cell.config, **wanted}))
            every = rounds if evaluates_itself(run.experiment.client_selection) else 1
            as_many = {"data": {"num_test_examples": len(run.data.draw(seed).validation_y)}, "evaluate_every": every}
            timed[cell.method] = build(resolve(merge_settings({**cell.config, **wanted}, as_many)))
    runs: dict[str, list[Any]] = {method: [run.simulate()] for method, run in timed.items()}
    for _turn in range(REPEATS):
        for method, run in timed.items():
            runs[method].append(run.simulate())
    found, device = {}, ""
    for method, (_, *again) in runs.items():
        history, device = again[0], again[0].about["device"]
        costs = {name: float(history[name].sum()) for name in ("seconds", "joules", "bytes", "flops")}
        found[method] = {"measured_seconds": [float(h.about["seconds"]) for h in again], **costs}
    return {"rounds": rounds, "seed": seed, "device": device, "methods": found}


def study_choice(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns seconds per round of FedCor on the server by cohort size, with its fits and without.

    No client computes anything: the losses are drawn at random. What uniform selection takes is subtracted, as it is
    not FedCor's: the context of a round, random keys, the loop.
    """
    if scale == "medium":  # the choice is the same on all data
        return {}
    rounds, sizes = (20, (2, 4)) if scale == "smoke" else (TIMED_ROUNDS, COHORTS)
    title = name_experiment(DIGITS if scale == "smoke" else FASHION, SENSITIVE)
    cell = next(c for c in list_cells(scale) if c.key == (title, FEDCOR))
    federation = build(resolve(cell.config)).data.draw(seeds[0])

    def time_selector(m: int, own: dict[str, Any]) -> np.ndarray:
        config = resolve(merge_settings(cell.config, {"cohort_size": m, "client_selection": own}))
        return time_choice(build(config).experiment, federation, rounds, REPEATS)

    rest = {m: np.median(time_selector(m, {"name": "uniform"})) for m in sizes}
    found: dict[str, Any] = {
        kind: {str(m): np.maximum(time_selector(m, own) - rest[m], SHORTEST).tolist() for m in sizes}
        for kind, own in (("fitted", {}), ("chosen", UNFITTED))
    }
    return {"rounds": rounds, "clients": federation.num_clients, "device": describe_device(), **found}


def evaluates_itself(selector: ClientSelector) -> bool:
    """Returns whether a selector evaluates the new global model in every round."""
    return any(isinstance(signal, ServerSignal) for signal in selector.signals().at("after").values())


def study_partitions(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns the sizes and classes of clients in each partition, over the seeds."""
    if scale == "medium":  # CIFAR-10 alone
        return {}
    base = SMOKE if scale == "smoke" else OF_FEDCOR
    clients, out = (20 if scale == "smoke" else 100), {}
    for name, (law, m) in PARTITIONS.items():
        config = {
            **base,
            "partition": {**law, "clients": clients},
            "cohort_size": min(m, clients),
            "client_selection": "uniform",
        }
        federation = build(resolve(config)).data
        drawn = [federation.draw(seed) for seed in seeds]
        sizes = np.stack([d.num_examples + d.num_holdout for d in drawn])
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
    """Returns the fraction of each class among each client's examples, Float[N, C]."""
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
"""Ten clients with one or two classes each, which have 120 cohorts of three."""

BANDITS: dict[str, dict[str, Any]] = {
    RANDOM: METHODS[RANDOM],
    ROBIN: METHODS[ROBIN],
    GPFL: {**METHODS[GPFL], "warm_up": 4},
    TEXT: METHODS[TEXT],
    "GPFL, α = 0": {**METHODS[GPFL], "warm_up": 4, "alpha": 0.0},
    "GPFL, α = 1": {**METHODS[GPFL], "warm_up": 4, "schedule": "constant"},
}


def study_regret(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns the regret of each method in a federation small enough to try every cohort in every round.

    The value of a cohort is how much the mean of its updates lowers the validation loss of the current model. The
    regret of a round is the best cohort's value minus the chosen one's, along the method's own path. Its sum is given
    as a fraction of the expected regret of uniform selection on that path: 0 is the oracle, 1 is no better than chance.
    """
    if scale == "medium":  # it is on digits, as at every other scale
        return {}
    rounds = 12 if scale == "smoke" else 100
    seeds = seeds if scale == "smoke" else range(10)
    found = {}
    for method, selector in BANDITS.items():
        own = {"client_selection": selector, "rounds": rounds, "seeds": list(seeds)}
        run = build(resolve(merge_settings(SMALL_CASE, own)))
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
    return {"rounds": rounds, "seeds": list(seeds), "clients": 10, "m": 3, "methods": found}
