"""The runs of the LEFL reproduction: all methods at LEFL's rate, at its baselines' rate, and as published."""

from __future__ import annotations

import math
from typing import Any

from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import load_settings, merge_settings

FEDAVG, FEDPROX, SCAFFOLD, FEDNOVA, LEFL = "FedAvg", "FedProx", "SCAFFOLD", "FedNova", "LEFL"
METHODS: dict[str, dict[str, Any]] = {
    FEDAVG: {},
    FEDPROX: {"correction": {"name": "proximal", "mu": 0.001}},
    SCAFFOLD: {"correction": "scaffold"},
    FEDNOVA: {"aggregation": "fednova"},
    LEFL: {"client_selection": "lefl"},
}
"""The methods of the source's Table I; all except the last draw cohorts uniformly."""

OTHERS: dict[str, dict[str, Any]] = {
    "FedAvgM": {"aggregation": {"name": "fedavgm", "momentum": 0.9, "weighting": "size"}},
    "FedAdagrad": {"aggregation": {"name": "fedopt", "optimizer": "adagrad", "weighting": "size"}},
    "FedAdam": {"aggregation": {"name": "fedopt", "optimizer": "adam", "weighting": "size"}},
    "FedYogi": {"aggregation": {"name": "fedopt", "optimizer": "yogi", "weighting": "size"}},
}
"""Other server optimisers, at LEFL's rate, on one experiment."""

PROPORTIONAL = "LEFL (proportional)"
COMBINED: dict[str, dict[str, Any]] = {
    PROPORTIONAL: {"client_selection": {"name": "lefl", "allocation": "proportional"}},
    f"LEFL + {FEDPROX}": {**METHODS[FEDPROX], **METHODS[LEFL]},
    f"LEFL + {SCAFFOLD}": {**METHODS[SCAFFOLD], **METHODS[LEFL]},
    f"LEFL + {FEDNOVA}": {**METHODS[FEDNOVA], **METHODS[LEFL]},
}
"""LEFL with its text's quotas, and combined with the other methods, at LEFL's rate."""

MUS = (0.01, 0.1, 1.0)
TUNED: dict[str, dict[str, Any]] = {
    f"{FEDPROX}, μ = {mu:g}": {"correction": {"name": "proximal", "mu": mu}} for mu in MUS
}
"""FedProx at LEFL's rate with μ that have an effect, besides the 0.001 of `METHODS`; the best is compared."""

BY_CODE = "LEFL (its code's quotas)"
"""LEFL as its code draws cohorts, where it is listed beside proportional quotas."""

BASELINES = tuple(method for method in METHODS if method != LEFL)

SHOWN = (*METHODS, *OTHERS, *COMBINED, *TUNED, BY_CODE)
"""All methods, in the order of the tables."""

HIGH, LOW, AS_PUBLISHED = "LEFL's rate", "the baselines' rate", "as published"
"""The settings; in the first two, the rate is the same for all methods."""

RATES: dict[str, dict[str, Any]] = {
    HIGH: {},
    LOW: {"local_training": {"learning_rate": 0.01, "epoch_decay": None}},
}
"""Changes to the experiments' settings, whose rate is LEFL's."""

PUBLISHED_FEDPROX = {"correction": {"name": "proximal", "mu": 1.0}}
"""FedProx with the default μ of the authors' code."""

LAST = 10
"""Number of final rounds over which accuracy is averaged; all of them are evaluated."""


def load_experiment(preset: str, *changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of one of LEFL's presets, without the selector and with changes."""
    return merge_settings(load_settings(preset, "client_selection"), *changes)


HALF_OF_THEM = {"partition": {"clients": 50}, "cohort_size": 35}
"""The source's "50 @ 70 %"."""

STAND_IN: dict[str, dict[str, Any]] = {
    "Fashion-MNIST, labeldir": load_experiment("fashion_mnist_lefl"),
    "MNIST, label2": load_experiment(
        "emnist_label15_lefl", {"data": {"name": "tfds:mnist"}, "partition": {"labels": 2}}
    ),
}
"""Two other datasets in place of EMNIST with its two partitions; 2 of 10 labels replace 15 of 62."""

CIFAR = "CIFAR-10 (500 rows), ResNet-20, 20 clients"
SMALL_CIFAR: dict[str, dict[str, Any]] = {
    CIFAR: load_experiment(
        "cifar10_lefl",
        {
            "data": {"num_examples": 500, "num_test_examples": 1000},
            "public": {"num_examples": 100},
            "partition": {"clients": 20, "min_examples": 2},
            "local_training": {"epochs": 2, "batch_size": 16, "augment": None},
            "cohort_size": 5,
            "rounds": 6,
            "evaluate_every": 3,
            "evaluate_last": 1,
        },
    )
}
"""The part of the CIFAR-10 experiment that a small machine can run."""

FULL: dict[str, dict[str, Any]] = {
    "CIFAR-10, ResNet-20, 100 @ 10 %": load_experiment("cifar10_lefl"),
    "CIFAR-10, ResNet-20, 50 @ 70 %": load_experiment("cifar10_lefl", HALF_OF_THEM),
    "CIFAR-100, ResNet-20, 100 @ 10 %": load_experiment("cifar100_lefl"),
    "CIFAR-100, ResNet-20, 50 @ 70 %": load_experiment("cifar100_lefl", HALF_OF_THEM),
    "EMNIST, labeldir": load_experiment("emnist_lefl"),
    "EMNIST, label15": load_experiment("emnist_label15_lefl"),
    "CIFAR-10, MobileNetV3, 30 @ 10 %": load_experiment("cifar10_mobilenet_lefl"),
    "CIFAR-10, EfficientNet, 30 @ 10 %": load_experiment("cifar10_efficientnet_lefl"),
}
"""The source's own experiments."""

ON_DIGITS: dict[str, Any] = {
    "data": {"name": "digits"},
    "public": {"name": "digits", "num_examples": 100},
    "partition": {"clients": 40},
    "model": {"hidden": [32]},
    "local_training": {"epochs": 5, "batch_size": 16},
    "cohort_size": 6,
    "rounds": 20,
    "evaluate_every": 1,
    "layout": "auto",
}
SMOKE: dict[str, dict[str, Any]] = {
    "digits, labeldir": load_experiment("fashion_mnist_lefl", ON_DIGITS, {"partition": {"min_examples": 4}}),
    "digits, label2": load_experiment("emnist_label15_lefl", ON_DIGITS, {"partition": {"labels": 2}}),
}
"""The two partitions on scikit-learn's digits, which are their own public examples."""

MEDIUM_CIFAR = "CIFAR-10 (10,000 examples), ResNet-20, 100 @ 10 %"
MEDIUM: dict[str, dict[str, Any]] = {
    MEDIUM_CIFAR: load_experiment(
        "cifar10_lefl", {"data": {"num_examples": 10_000}, "rounds": 60, "evaluate_every": 2, "seeds": 2}
    )
}
"""A fifth of the examples and 60 rounds of the source's first experiment; two seeds."""

STUDIED_FULL = {"CIFAR-10, ResNet-18, 20 clients": load_experiment("cifar10_resnet18_lefl")}
"""The network of the source's Fig. 2; its clusters are examined, and it is not trained further."""

EXPERIMENTS = {"smoke": SMOKE, "small": {**STAND_IN, **SMALL_CIFAR}, "medium": MEDIUM, "full": {**STAND_IN, **FULL}}
"""Settings by scale, at LEFL's rate, without a selector."""

TARGETS = {
    "digits": (0.7, 0.9),
    "MNIST": (0.8, 0.9, 0.95),
    "Fashion-MNIST": (0.7, 0.75, 0.8),
    "EMNIST": (0.7,),
    "CIFAR-10": (0.7,),
    "CIFAR-100": (0.4,),
}
"""Target accuracies by data set; the source's if it has one."""


def name_experiment(name: str, settings: str) -> str:
    """Returns the name of an experiment under some settings."""
    return f"{name} ({settings})"


def is_short(name: str) -> bool:
    """Returns whether an experiment is too short to be judged."""
    return name == CIFAR


def describe_lefl(name: str) -> dict[str, Any]:
    """Returns the settings of LEFL, with a shorter pre-phase in an experiment that is too short to be judged."""
    return {"client_selection": {"name": "lefl", "epochs": 2}} if is_short(name) else METHODS[LEFL]


def count_slots(m: int, clients: int) -> int:
    """Returns the largest number of slots that LEFL needs with its code's quotas.

    Each of ⌈log₂ N⌉ clusters contributes less than one client more than its share.
    """
    return min(clients, m + math.ceil(math.log2(clients)))


def list_medium() -> list[Cell]:
    """Returns FedAvg and LEFL (with both kinds of quotas) at both rates, and the other methods at LEFL's rate."""
    (name, config), m = next(iter(MEDIUM.items())), MEDIUM[MEDIUM_CIFAR]["cohort_size"]
    clients = config["partition"]["clients"]
    code = {"name": "lefl", "allocation": "code", "kl_direction": "code", "fraction": m / clients}
    own = {"client_selection": code, "cohort_size": count_slots(m, clients)}
    both = {FEDAVG: {}, PROPORTIONAL: COMBINED[PROPORTIONAL], BY_CODE: own}
    out = [make_cell(name, s, method, config, RATES[s], change) for s in (HIGH, LOW) for method, change in both.items()]
    others = (FEDPROX, SCAFFOLD, FEDNOVA)
    return [*out, *(make_cell(name, HIGH, method, config, RATES[HIGH], METHODS[method]) for method in others)]


def list_cells(scale: str) -> list[Cell]:
    """Returns all methods at LEFL's rate, at the baselines' rate, and as published."""
    if scale == "medium":
        return list_medium()
    out = []
    for number, (name, config) in enumerate(EXPERIMENTS[scale].items()):
        for settings in (HIGH,) if is_short(name) else (HIGH, LOW):
            for method, change in METHODS.items():
                own = describe_lefl(name) if method == LEFL else change
                out.append(make_cell(name, settings, method, config, RATES[settings], own))
        if is_short(name):
            continue
        out += list_as_published(name, config)
        if number == 0:
            out += [make_cell(name, HIGH, method, config, RATES[HIGH], change) for method, change in OTHERS.items()]
        if scale != "smoke":
            more = {**COMBINED, **TUNED}
            out += [make_cell(name, HIGH, method, config, RATES[HIGH], change) for method, change in more.items()]
    return out


def list_as_published(name: str, config: dict[str, Any]) -> list[Cell]:
    """Returns the baselines at their rate, and LEFL as its code runs it."""
    out = []
    for method in BASELINES:
        change = PUBLISHED_FEDPROX if method == FEDPROX else METHODS[method]
        out.append(make_cell(name, AS_PUBLISHED, method, config, RATES[LOW], change))
    m, clients = config["cohort_size"], config["partition"]["clients"]
    code = {"name": "lefl", "allocation": "code", "kl_direction": "code", "fraction": m / clients}
    own = {"client_selection": code, "cohort_size": count_slots(m, clients)}
    return [*out, make_cell(name, AS_PUBLISHED, LEFL, config, RATES[HIGH], own)]


def make_cell(name: str, settings: str, method: str, config: dict[str, Any], *changes: dict[str, Any]) -> Cell:
    """Returns one run."""
    return Cell(name_experiment(name, settings), method, merge_settings(config, *changes))
