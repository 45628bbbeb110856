"""What the LEFL reproduction runs: its rate and its baselines' rate for everybody, and both as published."""

from __future__ import annotations

import math
from typing import Any

from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings

FEDAVG, FEDPROX, SCAFFOLD, FEDNOVA, LEFL = "FedAvg", "FedProx", "SCAFFOLD", "FedNova", "LEFL"
METHODS: dict[str, dict[str, Any]] = {
    FEDAVG: {},
    FEDPROX: {"correction": {"name": "proximal", "mu": 0.001}},
    SCAFFOLD: {"correction": "scaffold"},
    FEDNOVA: {"aggregation": "fednova"},
    LEFL: {"client_selection": "lefl"},
}
"""The methods of the source's Table I; all but the last draw their cohorts uniformly."""

OTHERS: dict[str, dict[str, Any]] = {
    "FedAvgM": {"aggregation": {"name": "fedavgm", "momentum": 0.9, "weighting": "size"}},
    "FedAdagrad": {"aggregation": {"name": "fedopt", "optimiser": "adagrad", "weighting": "size"}},
    "FedAdam": {"aggregation": {"name": "fedopt", "optimiser": "adam", "weighting": "size"}},
    "FedYogi": {"aggregation": {"name": "fedopt", "optimiser": "yogi", "weighting": "size"}},
}
"""Other servers, at LEFL's rate, on one experiment."""

BASELINES = tuple(method for method in METHODS if method != LEFL)

HIGH, LOW, AS_PUBLISHED = "LEFL's rate", "the baselines' rate", "as published"
"""Settings: the rate is the same for all methods in the first two."""

RATES: dict[str, dict[str, Any]] = {
    HIGH: {"local_training": {"learning_rate": 0.1, "epoch_decay": 0.99}},
    LOW: {"local_training": {"learning_rate": 0.01, "epoch_decay": None}},
}
PUBLISHED_FEDPROX = {"correction": {"name": "proximal", "mu": 1.0}}
"""With the default of the authors' code."""


def count_slots(m: int, clients: int) -> int:
    """Slots that LEFL as its code draws it needs at most: each of ⌈log₂ N⌉ clusters gives less than one client more."""
    return min(clients, m + math.ceil(math.log2(clients)))


BASE: dict[str, Any] = {
    "local_training": {"name": "sgd", "batch_size": 64, "epochs": 10},
    "aggregation": {"name": "mean", "weighting": "size"},
    "rounds": 500,
    "evaluate_every": 2,
    "evaluate_last": 10,
}
LAST = 10
"""Rounds at the end over which accuracy is averaged; all are evaluated."""

ROWS = 1000
"""Public rows."""

MNIST = {"name": "tfds:mnist"}
FASHION = {"name": "tfds:fashion_mnist"}
EMNIST = {"name": "tfds:emnist/byclass"}
CIFAR10 = {"name": "tfds:cifar10"}
CIFAR100 = {"name": "tfds:cifar100"}
TINY = {"name": "npz:tiny_imagenet_32.npz", "rows": ROWS}
DIGITS = {"name": "digits"}


def label_dirichlet(clients: int) -> dict[str, Any]:
    """The source's labeldir."""
    return {"name": "dirichlet", "clients": clients, "alpha": 0.5, "min_examples": 10, "balance": True}


def label_count(clients: int, labels: int) -> dict[str, Any]:
    """The source's labelX."""
    return {"name": "label_count", "clients": clients, "labels": labels}


DENSE = {
    "model": {"name": "mlp", "hidden": [128], "initial": "torch"},
    "cohort_size": 10,
    "layout": {"clients": 1, "seeds": "scan"},  # measured: half the time of the whole cohort side by side
}
"""The 784-128-C network, a hundredth of 1000 clients a round."""

STAND_IN: dict[str, dict[str, Any]] = {
    "Fashion-MNIST, labeldir": {
        **DENSE,
        "data": FASHION,
        "partition": label_dirichlet(1000),
        "public": {**MNIST, "rows": ROWS},
    },
    "MNIST, label2": {
        **DENSE,
        "data": MNIST,
        "partition": label_count(1000, 2),
        "public": {**FASHION, "rows": ROWS},
    },
}
"""In the place of EMNIST with its two partitions: two other datasets; 15 of 62 labels are 2 of 10."""

RESNET = {"data": CIFAR10, "public": TINY, "model": {"name": "resnet"}, "layout": {"clients": 1, "seeds": "scan"}}

CIFAR = "CIFAR-10 (500 rows), ResNet-20, 20 clients"
SMALL_CIFAR: dict[str, dict[str, Any]] = {
    CIFAR: {
        **RESNET,
        "data": {**CIFAR10, "rows": 500, "num_test_examples": 1000},
        "public": {**TINY, "rows": 100},
        "partition": {**label_dirichlet(20), "min_examples": 2},
        "local_training": {"epochs": 2, "batch_size": 16},
        "cohort_size": 5,
        "rounds": 6,
        "evaluate_every": 3,
        "evaluate_last": 1,
    }
}
"""What fits on a small machine of the CIFAR-10 experiment."""

FULL: dict[str, dict[str, Any]] = {
    "CIFAR-10, ResNet-20, 100 @ 10 %": {**RESNET, "partition": label_dirichlet(100), "cohort_size": 10},
    "CIFAR-10, ResNet-20, 50 @ 70 %": {**RESNET, "partition": label_dirichlet(50), "cohort_size": 35},
    "CIFAR-100, ResNet-20, 100 @ 10 %": {
        **RESNET,
        "data": CIFAR100,
        "partition": label_dirichlet(100),
        "cohort_size": 10,
    },
    "CIFAR-100, ResNet-20, 50 @ 70 %": {
        **RESNET,
        "data": CIFAR100,
        "partition": label_dirichlet(50),
        "cohort_size": 35,
    },
    "EMNIST, labeldir": {
        **DENSE,
        "data": EMNIST,
        "partition": label_dirichlet(1000),
        "public": {**FASHION, "rows": ROWS},
    },
    "EMNIST, label15": {
        **DENSE,
        "data": EMNIST,
        "partition": label_count(1000, 15),
        "public": {**FASHION, "rows": ROWS},
    },
    "CIFAR-10, MobileNetV3, 30 @ 10 %": {
        **RESNET,
        "model": {"name": "mobilenet", "momentum": 0.9},
        "partition": label_dirichlet(30),
        "cohort_size": 3,
    },
    "CIFAR-10, EfficientNet, 30 @ 10 %": {
        **RESNET,
        "model": {"name": "efficientnet", "momentum": 0.9},
        "partition": label_dirichlet(30),
        "cohort_size": 3,
    },
}
"""The source's own experiments."""

SMOKE: dict[str, dict[str, Any]] = {
    f"digits, {name}": {
        "data": DIGITS,
        "public": {**DIGITS, "rows": 100},
        "partition": partition,
        "model": {"name": "mlp", "hidden": [32], "initial": "torch"},
        "local_training": {"epochs": 5, "batch_size": 16},
        "cohort_size": 6,
        "rounds": 20,
        "evaluate_every": 1,
    }
    for name, partition in (
        ("labeldir", {**label_dirichlet(40), "min_examples": 4}),
        ("label2", label_count(40, 2)),
    )
}
"""The two partitions on scikit-learn's digits, which are their own public rows."""

EXPERIMENTS = {"smoke": SMOKE, "small": {**STAND_IN, **SMALL_CIFAR}, "full": {**STAND_IN, **FULL}}

TARGETS = {
    "digits": (0.7, 0.9),
    "MNIST": (0.8, 0.9, 0.95),
    "Fashion-MNIST": (0.7, 0.75, 0.8),
    "EMNIST": (0.7,),
    "CIFAR-10": (0.7,),
    "CIFAR-100": (0.4,),
}
"""Accuracies to be reached, by data; the source's where it has one."""


def name_experiment(name: str, settings: str) -> str:
    """What an experiment is called under some settings."""
    return f"{name} ({settings})"


def is_short(name: str) -> bool:
    """Whether an experiment is too short to be judged."""
    return name == CIFAR


def shorten_pre_phase(name: str) -> dict[str, Any]:
    """LEFL, with a pre-phase no longer than an experiment that is too short anyway."""
    return {"client_selection": {"name": "lefl", "epochs": 2}} if is_short(name) else METHODS[LEFL]


def cells(scale: str) -> list[Cell]:
    """All methods at LEFL's rate, at the baselines' rate, and as published."""
    out = []
    for number, (name, config) in enumerate(EXPERIMENTS[scale].items()):

        def cell(settings: str, method: str, *changes: dict[str, Any], config=config, name=name) -> Cell:
            whole = merge_settings(BASE, config)
            for change in changes:
                whole = merge_settings(whole, change)
            return Cell(name_experiment(name, settings), method, whole)

        for settings in (HIGH,) if is_short(name) else (HIGH, LOW):
            for method, change in METHODS.items():
                out.append(
                    cell(settings, method, RATES[settings], shorten_pre_phase(name) if method == LEFL else change)
                )
        if is_short(name):
            continue
        for method in BASELINES:
            change = PUBLISHED_FEDPROX if method == FEDPROX else METHODS[method]
            out.append(cell(AS_PUBLISHED, method, RATES[LOW], change))
        m, clients = config["cohort_size"], config["partition"]["clients"]
        code = {"name": "lefl", "allocation": "code", "kl_direction": "code", "rate": m / clients}
        out.append(
            cell(AS_PUBLISHED, LEFL, RATES[HIGH], {"client_selection": code, "cohort_size": count_slots(m, clients)})
        )
        if number == 0:
            out += [cell(HIGH, method, RATES[HIGH], change) for method, change in OTHERS.items()]
    return out
