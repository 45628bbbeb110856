"""The runs of the LEFL reproduction: all methods at LEFL's rate, with the text's settings, and as published."""

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
    LEFL: {"client_selection": {"name": "lefl", "allocation": "proportional"}},
}
"""The methods of the source's Table I; all except the last draw cohorts uniformly.

LEFL has its text's quotas, "a proportional number of clients from each cluster".
"""

COMBINED: dict[str, dict[str, Any]] = {
    f"LEFL + {FEDPROX}": {**METHODS[FEDPROX], **METHODS[LEFL]},
    f"LEFL + {SCAFFOLD}": {**METHODS[SCAFFOLD], **METHODS[LEFL]},
    f"LEFL + {FEDNOVA}": {**METHODS[FEDNOVA], **METHODS[LEFL]},
}
"""LEFL combined with the other methods, at LEFL's rate."""

MUS = (0.1, 1.0)
TUNED: dict[str, dict[str, Any]] = {
    f"{FEDPROX}, μ = {mu:g}": {"correction": {"name": "proximal", "mu": mu}} for mu in MUS
}
"""FedProx at LEFL's rate with μ that have an effect, besides the 0.001 of `METHODS`; the best is compared."""

BASELINES = tuple(method for method in METHODS if method != LEFL)

AT_ITS_RATE: dict[str, dict[str, Any]] = {**METHODS, **COMBINED, **TUNED}
"""The methods that run at LEFL's rate."""

CODED = "LEFL, its code's quotas"
"""LEFL with its code's quotas and direction, as published, at the text's rate: what they do without its rate."""

SHOWN = (*AT_ITS_RATE, CODED)
"""All methods, in the order of the tables."""

HIGH, LOW, AS_PUBLISHED = "LEFL's rate", "the text's settings", "as published"
"""The settings; in the first two, the rate is the same for all methods."""

PUBLISHED_FEDPROX = {"correction": {"name": "proximal", "mu": 1.0}}
"""FedProx with the default μ of the authors' code, wherever it has the text's settings."""

GAMMA = 0.99
"""The text's "decay rate", which the code applies after every local epoch."""


def compute_round_decay(config: dict[str, Any], gamma: float = GAMMA) -> float:
    """Returns the factor on the learning rate from one round to the next, as the source's baselines have it on average.

    In the code of FedAvg, a client's rate is multiplied by gamma after every epoch that the client has trained since
    the run began. If every client is selected with probability m / N, a client was selected k ~ Binomial(t, m / N)
    times before round t, and E[gamma^(epochs k)] = (1 - m / N (1 - gamma^epochs))^t.

    >>> config = {"cohort_size": 10, "partition": {"clients": 100}, "local_training": {"epochs": 1}}
    >>> compute_round_decay(config, gamma=0.5)
    0.95
    """
    share = config["cohort_size"] / config["partition"]["clients"]
    return 1 - share * (1 - gamma ** config["local_training"]["epochs"])


def describe_text_rate(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the changes that give an experiment the text's learning rate of 0.01 and its decay of 0.99.

    The decay applies within a round, and persists over rounds; see `compute_round_decay`.
    """
    schedule = {"name": "exponential", "rate": compute_round_decay(config)}
    return {"local_training": {"learning_rate": 0.01, "epoch_decay": GAMMA, "schedule": schedule}}


def describe_code_quotas(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the changes that give LEFL its code's quotas and direction of the divergence; the rate is LEFL's."""
    m, clients = config["cohort_size"], config["partition"]["clients"]
    code = {"name": "lefl", "allocation": "code", "kl_direction": "code", "fraction": m / clients}
    return {"client_selection": code, "cohort_size": count_slots(m, clients)}


LAST = 10
"""Number of final rounds over which accuracy is averaged; all of them are evaluated."""


def load_experiment(preset: str, *changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of one of LEFL's presets, without the selector and with changes."""
    return merge_settings(load_settings(preset, "client_selection"), *changes)


HALF_OF_THEM = {"partition": {"clients": 50}, "cohort_size": 35}
"""The source's "50 @ 70 %"."""

FEWER: dict[str, Any] = {"partition": {"clients": 200}, "rounds": 200, "evaluate_every": 1}
"""A fifth of EMNIST's clients, so that each has several batches of a smaller dataset, and two fifths of its rounds."""
STAND_IN: dict[str, dict[str, Any]] = {
    "Fashion-MNIST, labeldir": load_experiment("fashion_mnist_lefl"),
    "MNIST, label2": load_experiment(
        "emnist_label15_lefl", FEWER, {"data": {"name": "tfds:mnist"}, "partition": {"labels": 2}}
    ),
}
"""Two other datasets in place of EMNIST with its two partitions; 2 of 10 labels replace 15 of 62."""

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
    "model": {"hidden": [32], "normalise": True},
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
    MEDIUM_CIFAR: load_experiment("cifar10_lefl", {"data": {"num_examples": 10_000}, "rounds": 60, "evaluate_every": 2})
}
"""A fifth of the examples and 60 rounds of the source's first experiment."""

FEW_AT_MEDIUM: dict[str, dict[str, Any]] = {
    "CIFAR-10 (10,000 examples), ResNet-20, 20 clients": load_experiment(
        "cifar10_lefl", {"data": {"num_examples": 10_000}, "partition": {"clients": 20}, "cohort_size": 5}
    )
}
"""As many clients as in the source's Fig. 2, whose models are compared layer by layer."""

RESNET_18 = {"CIFAR-10, ResNet-18, 20 clients": load_experiment("cifar10_resnet18_lefl")}
"""The network of the source's Fig. 2."""

LESS_OF_RESNET_18 = {
    "CIFAR-10 (2,000 examples), ResNet-18, 20 clients": load_experiment(
        "cifar10_resnet18_lefl", {"data": {"num_examples": 2000}}
    )
}
"""The same with a twenty-fifth of the examples."""

EXPERIMENTS = {"smoke": SMOKE, "small": STAND_IN, "medium": MEDIUM, "full": {**STAND_IN, **FULL}}
"""Settings by scale, at LEFL's rate, without a selector."""

BY_TEXT = {f"{name}, {LOW}": merge_settings(config, describe_text_rate(config)) for name, config in STAND_IN.items()}

STUDIED: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {},
    "small": BY_TEXT,
    "medium": {**FEW_AT_MEDIUM, **LESS_OF_RESNET_18},
    "full": {**BY_TEXT, **RESNET_18},
}
"""Settings whose clusters are examined by scale, besides those of `EXPERIMENTS`."""

TARGETS = {
    "digits": (0.7, 0.9),
    "MNIST": (0.8, 0.9, 0.95),
    "Fashion-MNIST": (0.7, 0.75, 0.8),
    "EMNIST": (0.7,),
    "CIFAR-10": (0.7,),
    "CIFAR-100": (0.4,),
    MEDIUM_CIFAR: (0.3, 0.4, 0.5),
}
"""Target accuracies by experiment or data set; the source's if it has one."""


def name_experiment(name: str, settings: str) -> str:
    """Returns the name of an experiment under some settings."""
    return f"{name} ({settings})"


def find_experiment(studied: str) -> str | None:
    """Returns the experiment whose cells have the settings of a study's entry; None if no cell has them.

    >>> find_experiment("MNIST, label2"), find_experiment("MNIST, label2, the text's settings")
    ("MNIST, label2 (LEFL's rate)", "MNIST, label2 (the text's settings)")
    """
    name = studied.removesuffix(f", {LOW}")
    there = any(name in experiments for experiments in EXPERIMENTS.values())
    return name_experiment(name, HIGH if name == studied else LOW) if there else None


def count_slots(m: int, clients: int) -> int:
    """Returns the largest number of slots that LEFL needs with its code's quotas.

    Each of ⌈log₂ N⌉ clusters contributes less than one client more than its share.
    """
    return min(clients, m + math.ceil(math.log2(clients)))


MEDIUM_RUNS = (
    (HIGH, FEDAVG),
    (HIGH, LEFL),
    (LOW, FEDAVG),
    (AS_PUBLISHED, FEDAVG),
    (AS_PUBLISHED, LEFL),
    (LOW, LEFL),
    (LOW, SCAFFOLD),
    (AS_PUBLISHED, SCAFFOLD),
    (HIGH, FEDPROX),
    (HIGH, SCAFFOLD),
    (HIGH, FEDNOVA),
    (LOW, CODED),
)
"""What is run at `medium`, what settles most claims an hour first; as published, baselines share LOW's runs."""


def list_runs(scale: str) -> list[tuple[str, str]]:
    """Returns the settings and the method of each run of an experiment."""
    if scale == "medium":
        return list(MEDIUM_RUNS)
    every = [(settings, method) for settings in (HIGH, LOW, AS_PUBLISHED) for method in METHODS]
    if scale == "smoke":
        return every
    return [*every, *((HIGH, method) for method in (*COMBINED, *TUNED)), (LOW, CODED)]


def list_cells(scale: str) -> list[Cell]:
    """Returns all methods at LEFL's rate, with the text's settings, and as published."""
    return [
        Cell(name_experiment(name, settings), method, merge_settings(config, describe_run(settings, method, config)))
        for name, config in EXPERIMENTS[scale].items()
        for settings, method in list_runs(scale)
    ]


def describe_run(settings: str, method: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the changes that a run makes to its experiment; as published, baselines have the text's settings."""
    if settings == HIGH:
        return AT_ITS_RATE[method]
    if (settings, method) == (AS_PUBLISHED, LEFL):
        return describe_code_quotas(config)
    if method == CODED:
        return merge_settings(describe_text_rate(config), describe_code_quotas(config))
    return {**describe_text_rate(config), **(PUBLISHED_FEDPROX if method == FEDPROX else METHODS[method])}
