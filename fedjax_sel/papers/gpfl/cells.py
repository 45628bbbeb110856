"""What the GPFL reproduction runs: two codes' settings, fair and as published, and what lies between them."""

from __future__ import annotations

from typing import Any

from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings

RANDOM, ROBIN, POW_D, CPOW_D, RPOW_D, ADAPOW_D, FEDCOR, AFL, GPFL, TEXT, COSINE = (
    "Random",
    "Round-robin (control)",
    "Pow-d",
    "cpow-d",
    "rpow-d",
    "adapow-d",
    "FedCor",
    "AFL",
    "GPFL (its code)",
    "GPFL (its text)",
    "GPFL (cosine)",
)
METHODS: dict[str, dict[str, Any]] = {
    RANDOM: {"name": "uniform"},
    POW_D: {"name": "power_of_choice"},
    FEDCOR: {"name": "fedcor"},
    GPFL: {"name": "gpfl"},
    TEXT: {"name": "gpfl", "variant": "paper"},
    COSINE: {"name": "gpfl", "projection": "cosine"},
    ROBIN: {"name": "round_robin"},
    AFL: {"name": "active_fl"},
    CPOW_D: {"name": "cpow_d"},
    RPOW_D: {"name": "rpow_d"},
    ADAPOW_D: {"name": "adapow_d"},
}
CANDIDATES = {POW_D: 2, CPOW_D: 2, RPOW_D: 2, ADAPOW_D: 4}
"""Candidates as a multiple of the cohort; 10 as published, which for a cohort of 10 is no choice at all."""

PUBLISHED = (RANDOM, POW_D, FEDCOR, GPFL)
"""The methods of the source's Table II."""

MAIN = (*PUBLISHED, ROBIN)
CONTROLS = (RANDOM, GPFL, ROBIN)

LEAK = {**METHODS[GPFL], "signal": "test"}
"""GPFL as its code runs it: accuracy and loss are those of the test rows."""

PARTITIONS: dict[str, tuple[dict[str, Any], int]] = {
    "1SPC": ({"name": "shards", "shards_per_client": 1}, 10),
    "2SPC": ({"name": "shards", "shards_per_client": 2}, 5),
    "Dir": ({"name": "quadratic_dirichlet", "alpha": 0.2}, 5),
}
"""How rows are divided, and the cohort."""

FASHION, CIFAR, DIGITS = "Fashion-MNIST", "CIFAR-10", "digits"
LAST = 10
"""Rounds at the end over which the source averages; all are evaluated."""

THEIRS = "GPFL's settings"
"""What the settings of GPFL's code are called; those without a name are FedCor's."""

NETWORK, ROWS = "FedCor's, GPFL's network", "FedCor's, GPFL's network and rows"
AS_PUBLISHED = "as published"

ALPHAS = {f"GPFL, α = {value:g}": ("constant", value) for value in (0.0, 0.1, 1.0)}
RHOS = {f"GPFL, ρ = {value:g}": ("linear", value) for value in (0.5, 1.0, 2.0, 5.0)}
SENSITIVE = "2SPC"
"""The partition on which settings, α and ρ are varied."""

# Fashion-MNIST, as FedCor's code and as GPFL's code run it. Data are the same: 1000 rows are the server's.
OF_FEDCOR: dict[str, Any] = {
    "data": {"name": "tfds:fashion_mnist", "validation": 1 / 60},
    "holdout": 0.2,
    "signal_split": "holdout",
    "model": {"name": "mlp", "hidden": [64, 30], "dropout": 0.5, "initial": "torch"},
    "local_training": {
        "name": "sgd",
        "learning_rate": 0.005,
        "batch_size": 64,
        "epochs": 3,
        "weight_decay": 1e-4,
        "schedule": {"name": "steps", "at": [150, 300], "factor": 0.5},
    },
    "aggregation": {"name": "mean", "weighting": "client"},
    "rounds": 500,
    "evaluate_every": 5,
    "evaluate_last": LAST,
}
OTHER_NETWORK = {"model": {"hidden": [64]}}
OTHER_ROWS = {"holdout": 0.0, "signal_split": "training"}
OTHER_REST = {
    "local_training": {"schedule": {"name": "steps", "at": [162, 244], "factor": 0.1}},
    "aggregation": {"weighting": "size"},
}

# CIFAR-10, as FedCor's code runs it.
ON_CIFAR: dict[str, Any] = {
    **OF_FEDCOR,
    "data": {"name": "tfds:cifar10", "validation": 1 / 50},
    "model": {"name": "cnn", "initial": "torch"},
    "local_training": {"name": "sgd", "learning_rate": 0.01, "batch_size": 50, "epochs": 5, "weight_decay": 3e-4},
    "rounds": 2000,
    "evaluate_every": 10,
}
CIFAR_FEDCOR = {"name": "fedcor", "warm_up": 20, "interval": 50, "history": 500, "beta": 0.9, "gamma": 0.99}
CIFAR_SMALL = {"data": {"rows": 5000}, "rounds": 60, "evaluate_every": 15}
"""What fits on a small machine: a tenth of the rows, so a tenth of the local steps, and 3 % of the rounds."""

SMOKE: dict[str, Any] = {
    **OF_FEDCOR,
    "data": {"name": "digits", "validation": 0.1},
    "model": {"name": "mlp", "hidden": [16, 10], "dropout": 0.5},
    "local_training": {**OF_FEDCOR["local_training"], "learning_rate": 0.1, "batch_size": 16},
    "rounds": 30,
}
SMOKE_FEDCOR = {"name": "fedcor", "warm_up": 5, "interval": 8, "first_steps": 50, "steps": 10}


def name_experiment(data: str, partition: str, settings: str = "") -> str:
    """What an experiment is called."""
    return f"{data}, {partition}" + (f" ({settings})" if settings else "")


def cells(scale: str) -> list[Cell]:
    """Fashion-MNIST (digits at `smoke`) in full, then CIFAR-10; at `small` a part of it."""
    data, base = (DIGITS, SMOKE) if scale == "smoke" else (FASHION, OF_FEDCOR)
    clients = 20 if scale == "smoke" else 100
    fedcor = SMOKE_FEDCOR if scale == "smoke" else METHODS[FEDCOR]
    methods = {**METHODS, FEDCOR: fedcor}
    network = merge_settings(base, {"model": {"hidden": [16]}} if scale == "smoke" else OTHER_NETWORK)
    rows = merge_settings(network, OTHER_ROWS)
    theirs = merge_settings(rows, OTHER_REST)

    def on(partition: str, settings: dict[str, Any], name: str, method: str, selector: dict[str, Any]) -> Cell:
        law, m = PARTITIONS[partition]
        config = {**settings, "partition": {**law, "clients": clients}, "client_selection": selector}
        config["cohort_size"] = m if clients == 100 else 4
        if method in CANDIDATES:
            d = 10 if name == AS_PUBLISHED else CANDIDATES[method] * config["cohort_size"]
            config["client_selection"] = {**selector, "d": d}
        return Cell(name_experiment(config_name(settings), partition, name), method, config)

    def config_name(settings: dict[str, Any]) -> str:
        return CIFAR if settings["data"]["name"] == ON_CIFAR["data"]["name"] else data

    out, partitions = [], (SENSITIVE,) if scale == "smoke" else tuple(PARTITIONS)
    for partition in partitions:
        out += [on(partition, base, "", method, methods[method]) for method in PUBLISHED]
        out += [on(partition, base, AS_PUBLISHED, method, methods[method]) for method in PUBLISHED if method != GPFL]
        out += [on(partition, theirs, AS_PUBLISHED, GPFL, LEAK)]
        others = MAIN if partition == SENSITIVE else CONTROLS
        out += [on(partition, theirs, THEIRS, method, methods[method]) for method in others]
        if partition == SENSITIVE:
            out += [on(partition, network, NETWORK, RANDOM, methods[RANDOM])]
            out += [on(partition, rows, ROWS, RANDOM, methods[RANDOM])]
    for partition in partitions:
        out += [on(partition, base, "", method, methods[method]) for method in METHODS if method not in PUBLISHED]
    for method, (schedule, alpha) in {**ALPHAS, **RHOS}.items():
        selector = {"name": "gpfl", "schedule": schedule, "alpha": alpha}
        out.append(on(SENSITIVE, theirs, THEIRS, method, selector))
    if scale == "smoke":
        return out
    cifar = merge_settings(ON_CIFAR, CIFAR_SMALL) if scale == "small" else ON_CIFAR
    for partition in (SENSITIVE,) if scale == "small" else PARTITIONS:
        for method in PUBLISHED if scale == "small" else METHODS:
            selector = CIFAR_FEDCOR if method == FEDCOR else methods[method]
            out.append(on(partition, cifar, "", method, selector))
    return out
