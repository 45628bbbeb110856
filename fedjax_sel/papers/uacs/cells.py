"""What the UACS-FL reproduction runs: three settings under five methods; `full`: all clients, and variations."""

from __future__ import annotations

from typing import Any

from fedjax_sel.data.uacs import SHAPE
from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings

ENTROPY, GREEDY, GRADIENT, RANDOM, ROBIN, SLOTS, EVERYBODY = (
    "Entropy Based",
    "Entropy+Eps-Greedy",
    "Gradient Norm-Based",
    "Random Selection",
    "Round-Robin (control)",
    "Entropy+Eps-Greedy, a coin a slot",
    "All clients (control)",
)
SETTINGS = {1: "Experiment 1", 2: "Experiment 2", 3: "Experiment 3"}
CLIENTS, BOUNDARY, MORE_BOUNDARY = 100, 6, 10
MORE = f"{MORE_BOUNDARY} boundary clients, m = {MORE_BOUNDARY}"
"""The variation with more clients at the boundary."""
LONG, TIMES = "as many bytes as entropy selection", 9
"""The longer runs of random selection, and by how much: 106 models and 100 scores against 12 models a round."""
ALONE, OTHERS = "the boundary clients alone", "the others alone"
"""The runs in which only these clients' examples are there, and all of them train."""
LINEAR = "logistic regression"
"""The variation with a model that cannot follow the curve."""
STRAIGHTER = {f"{LINEAR}, amplitude {amplitude:g}": amplitude for amplitude in (0.0, 0.125)}
"""The variations with that model where the boundary is straight, or nearly: its amplitude by the variation's name."""
LINES = {**STRAIGHTER, LINEAR: SHAPE.amplitude}
"""All variations with that model, likewise."""

METHODS: dict[str, dict[str, Any]] = {
    ENTROPY: {"name": "entropy", "epsilon": 0.0},
    GREEDY: {"name": "entropy", "epsilon": 0.1},
    GRADIENT: {"name": "gradient_norm"},
    RANDOM: {"name": "uniform"},
    ROBIN: {"name": "round_robin"},
}
COMPARED = (ENTROPY, GREEDY, GRADIENT, RANDOM)
"""The paper's methods, which are run under every variation."""

VARIATIONS: dict[str, dict[str, Any]] = {
    "m = 3": {"cohort_size": 3},
    "m = 12": {"cohort_size": 12},
    "learning rate 0.03": {"local_training": {"learning_rate": 0.03}},
    "learning rate 0.3": {"local_training": {"learning_rate": 0.3}},
    "1 local epoch": {"local_training": {"epochs": 1}},
    LINEAR: {"model": {"name": "logistic"}},
    **{name: {"model": {"name": "logistic"}, "data": {"amplitude": a}} for name, a in STRAIGHTER.items()},
    MORE: {"data": {"boundary": MORE_BOUNDARY}, "cohort_size": MORE_BOUNDARY},
}
"""What `full` varies, one thing at a time; the linear model on straighter boundaries besides."""

BASE: dict[str, Any] = {
    "data": {"name": "uacs", "boundary": BOUNDARY},
    "partition": {"name": "natural"},
    "model": {"name": "mlp", "hidden": [32]},
    "local_training": {"name": "sgd", "learning_rate": 0.1, "batch_size": 10, "epochs": 5},
    "aggregation": {"name": "mean", "weighting": "client"},
    "cohort_size": 6,
}


def list_cells(scale: str) -> list[Cell]:
    """Returns three settings, all methods; at `full` also longer runs of random selection, all clients, variations."""
    base = {**BASE, "rounds": 15 if scale == "smoke" else 150}

    def cell(setting: int, method: str, selector: dict[str, Any], name: str = "") -> Cell:
        own = {"data": {"setting": setting}, "client_selection": selector}
        return Cell(name_experiment(setting, name), method, merge_settings(base, own, VARIATIONS[name] if name else {}))

    out = [cell(setting, method, selector) for setting in SETTINGS for method, selector in METHODS.items()]
    if scale == "full":
        longer = {"rounds": TIMES * base["rounds"]}
        for setting in SETTINGS:
            usual = cell(setting, RANDOM, METHODS[RANDOM]).config
            out.append(Cell(name_experiment(setting, LONG), RANDOM, merge_settings(usual, longer)))
            everybody = merge_settings(usual, {"cohort_size": CLIENTS})
            out.append(Cell(SETTINGS[setting], EVERYBODY, everybody))
            for name, kept, count in ((ALONE, "at the boundary", BOUNDARY), (OTHERS, "others", CLIENTS - BOUNDARY)):
                some = merge_settings(everybody, {"data": {"keep": kept}, "cohort_size": count})
                out.append(Cell(name_experiment(setting, name), EVERYBODY, some))
        out += [cell(setting, SLOTS, {**METHODS[GREEDY], "per_slot": True}) for setting in SETTINGS]
        out += [
            cell(setting, method, METHODS[method], name)
            for name in VARIATIONS
            for setting in SETTINGS
            for method in COMPARED
        ]
    return out


def name_experiment(setting: int, variation: str = "") -> str:
    """Returns what an experiment is called."""
    return SETTINGS[setting] + (f", {variation}" if variation else "")
