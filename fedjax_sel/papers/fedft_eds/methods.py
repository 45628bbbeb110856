"""The methods, data and experiments of the FedFT-EDS reproduction, and their names."""

from __future__ import annotations

from typing import Any

SCRATCH, FEDAVG, FEDAVG_RDS, FEDPROX, FEDPROX_RDS, CENTRAL = (
    "FedAvg w/o pretraining",
    "FedAvg",
    "FedAvg-RDS",
    "FedProx",
    "FedProx-RDS",
    "Centralised",
)
RDS, EDS, ALL, RDS50, EDS50 = (
    "FedFT-RDS (10 %)",
    "FedFT-EDS (10 %)",
    "FedFT-ALL",
    "FedFT-RDS (50 %)",
    "FedFT-EDS (50 %)",
)
MARGIN, LOSS, BATCHES = "FedFT, margin (10 %)", "FedFT, high loss (10 %)", "FedFT, high-entropy batches (10 %)"

BACKBONE = ("stem", "group1", "group2")
"""The parts that stay as pretrained: everything below the third group."""

TEMPERATURE = 0.1
EPOCHS = 5
"""Local epochs of the source."""
LITTLE, HALF = 0.1, 0.5


def select_randomly(fraction: float) -> dict[str, Any]:
    """Returns the settings of a random fraction, drawn anew in every round."""
    return {"data_selection": {"name": "random_subset", "fraction": fraction}}


def select_by_entropy(fraction: float, temperature: float = TEMPERATURE) -> dict[str, Any]:
    """Returns the settings of the fraction with the highest hardened entropy."""
    return {"data_selection": {"name": "entropy", "fraction": fraction, "temperature": temperature}}


PROX = {"correction": {"name": "proximal", "mu": 0.01}}
PARTLY = {"model": {"frozen": list(BACKBONE)}}

METHODS: dict[str, list[dict[str, Any]]] = {
    SCRATCH: [],
    FEDAVG: [],
    FEDAVG_RDS: [select_randomly(LITTLE)],
    FEDPROX: [PROX],
    FEDPROX_RDS: [PROX, select_randomly(LITTLE)],
    RDS: [PARTLY, select_randomly(LITTLE)],
    EDS: [PARTLY, select_by_entropy(LITTLE)],
    ALL: [PARTLY],
    RDS50: [PARTLY, select_randomly(HALF)],
    EDS50: [PARTLY, select_by_entropy(HALF)],
}
"""Each method's changes to the settings; all methods except the first begin with the pretrained model."""

OTHERS: dict[str, list[dict[str, Any]]] = {
    MARGIN: [PARTLY, {"data_selection": {"name": "margin", "fraction": LITTLE}}],
    LOSS: [PARTLY, {"data_selection": {"name": "high_loss", "fraction": LITTLE}}],
    BATCHES: [PARTLY, {"data_selection": {"name": "entropy_batches", "fraction": LITTLE, "batch_size": 4}}],
}
"""Other ways to choose examples, with few clients."""

PARTS: dict[str, tuple[str, ...]] = {
    "full": (),
    "large": BACKBONE[:2],
    "moderate": BACKBONE,
    "classifier": (*BACKBONE, "group3", "norm"),
}
"""The frozen parts, by how much is trained (Fig. 10a)."""

RHOS = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
ALPHAS = (0.01, 0.05, 0.1, 0.5, 1.0)
"""Values of the ablations (Fig. 10c, b)."""

TINY, CIFAR10, CIFAR100, DIGITS = "Tiny-ImageNet", "CIFAR-10", "CIFAR-100", "digits"
LESS = "CIFAR-10 (10,000 examples)"
"""A fifth of the examples, for methods that train the whole model at `medium`."""
SPEECH = {"small": "spoken digits", "medium": "spoken digits", "full": "Speech Commands"}
SOURCES: dict[str, str] = {
    TINY: "npz:tiny_imagenet_32.npz",
    CIFAR10: "tfds:cifar10",
    CIFAR100: "tfds:cifar100",
    DIGITS: "digit_images",
    SPEECH["small"]: "npz:free_spoken_digits.npz",
    LESS: "tfds:cifar10",
    SPEECH["full"]: "tfds:speech_commands",
}

FROM_CIFAR100 = f"{FEDAVG} ({CIFAR100})"
"""FedAvg with a model that was pretrained on CIFAR-100 instead (Table I)."""

STRONG, WEAK = 0.1, 0.5
"""Dirichlet concentrations of the source's experiments."""

FRACTIONS = {"full": 1.0, "20 %": 0.2, "10 %": 0.1}
"""Fractions of FedAvg's clients that take part while the others are stragglers."""

PRETRAINING = "pretraining"
BY_CLASS, BY_CLIENT = ", drawn by class", ", drawn by client"
"""Ends of the names of experiments with the Dirichlet law that a scale does not use elsewhere."""


def name_few(name: str, alpha: float) -> str:
    """Returns the name of an experiment with few clients."""
    return f"{name}, few clients, α = {alpha:g}"


def name_many(name: str, alpha: float) -> str:
    """Returns the name of an experiment with many clients."""
    return f"{name}, many clients, α = {alpha:g}"


def name_five_epochs(name: str, alpha: float) -> str:
    """Returns the name of an experiment with few clients and the source's five local epochs."""
    return f"{name_few(name, alpha)}, E = {EPOCHS}"


def name_by_class(name: str, alpha: float) -> str:
    """Returns the name of an experiment with few clients in which each class draws its clients."""
    return name_few(name, alpha) + BY_CLASS


def name_by_client(name: str, alpha: float) -> str:
    """Returns the name of an experiment with few clients, each of which draws its mix of classes."""
    return name_few(name, alpha) + BY_CLIENT


def name_stragglers(method: str, share: str) -> str:
    """Returns the name of a method when only this share of the clients takes part.

    >>> name_stragglers("FedFT-EDS (10 %)", "20 %")
    'FedFT-EDS (10 %), 20 % of the clients'
    """
    return f"{method}, {share} of the clients"


def name_ablation(what: str, value: str) -> str:
    """Returns the name of an ablation's experiment."""
    return f"ablation, {what} {value}"


def name_fedavg(fraction: str) -> str:
    """Returns the name of FedAvg when only this fraction of its clients takes part."""
    return FEDAVG if fraction == "full" else f"{FEDAVG} ({fraction} of the clients)"
