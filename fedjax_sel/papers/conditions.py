"""The conditions of an experiment's runs, read from their histories and configurations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.engine.history import History
from fedjax_sel.papers.paper import Cell, Histories
from fedjax_sel.papers.regime import Conditions


def observe_conditions(cells: Sequence[Cell], configs: Sequence[Config], histories: Histories) -> dict[str, Conditions]:
    """Returns the conditions of the runs of every experiment, from their histories and configurations."""
    by_experiment: dict[str, list[tuple[Cell, Config]]] = {}
    for cell, config in zip(cells, configs, strict=True):
        by_experiment.setdefault(cell.experiment, []).append((cell, config))
    out = {}
    for experiment, runs in by_experiment.items():
        there = [histories[cell.key] for cell, _ in runs]
        begun = [measure_best(histories[cell.begins]) for cell, _ in runs if cell.begins is not None]
        begun += [cell.pretrained_accuracy for cell, _ in runs if cell.pretrained_accuracy is not None]
        classes = {history.about.get("classes") for history in there}
        federated = [history for history in there if history.num_clients > 1] or there  # not centralised training
        best = max((measure_best(history) for history in federated), default=math.nan)
        (of_chance,) = classes if len(classes) == 1 else (None,)
        chance = None if of_chance is None else 1 / of_chance
        out[experiment] = Conditions(
            examples_per_client=find_least(history.about.get("examples_per_client") for history in there),
            local_epochs=find_least(
                count_epochs(config, history) for (_, config), history in zip(runs, there, strict=True)
            ),
            rounds=min(history.rounds for history in there),
            seeds=min(len(history.seeds) for history in there),
            above_chance=None if chance is None else (best - chance) / (1 - chance),
            pretrained_accuracy=min(begun) if begun else None,
        )
    return out


def measure_best(history: History) -> float:
    """Returns the best accuracy over the rounds, averaged over seeds; a seed without any accuracy counts as -inf."""
    accuracy = history["accuracy"]
    return float(np.where(np.isnan(accuracy), -np.inf, accuracy).max(1).mean())


def count_epochs(config: Config, history: History) -> float | None:
    """Returns a client's passes over its examples per round; if steps are given, those of the average client."""
    trainer = config["local_training"]
    if trainer.get("steps") is None:
        return float(trainer.get("epochs") or 1)
    examples = history.about.get("examples_per_client")
    return None if examples is None else trainer["steps"] * trainer["batch_size"] / examples


def find_least(values: Iterable[float | None]) -> float | None:
    """Returns the smallest value; None if any value is unknown."""
    known = list(values)
    sure = [value for value in known if value is not None]
    return min(sure) if sure and len(sure) == len(known) else None
