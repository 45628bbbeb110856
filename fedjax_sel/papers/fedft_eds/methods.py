"""The methods, data and experiments of the FedFT-EDS reproduction, and what they are called."""

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
"""What stays as it was pretrained: all below the third group."""

TEMPERATURE = 0.1
EPOCHS = 5
"""Of the source's local training."""
LITTLE, HALF = 0.1, 0.5


def select_randomly(fraction: float) -> dict[str, Any]:
    """Returns a fresh random share every round."""
    return {"data_selection": {"name": "random_subset", "fraction": fraction}}


def select_by_entropy(fraction: float, temperature: float = TEMPERATURE) -> dict[str, Any]:
    """Returns the share of highest hardened entropy."""
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
"""What each method changes; all but the first begin with the pretrained model."""

OTHERS: dict[str, list[dict[str, Any]]] = {
    MARGIN: [PARTLY, {"data_selection": {"name": "margin", "fraction": LITTLE}}],
    LOSS: [PARTLY, {"data_selection": {"name": "high_loss", "fraction": LITTLE}}],
    BATCHES: [PARTLY, {"data_selection": {"name": "entropy_batches", "fraction": LITTLE, "batch_size": 4}}],
}
"""Other choices of examples, among ten clients."""

PARTS: dict[str, tuple[str, ...]] = {
    "full": (),
    "large": BACKBONE[:2],
    "moderate": BACKBONE,
    "classifier": (*BACKBONE, "group3", "norm"),
}
"""What is fixed, by how much is trained (Fig. 10a)."""

RHOS = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
ALPHAS = (0.01, 0.05, 0.1, 0.5, 1.0)
"""Of the ablations (Fig. 10c, b)."""

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

STRONG, WEAK = 0.1, 0.5
"""Concentrations of the source's experiments."""

FRACTIONS = {"full": 1.0, "20 %": 0.2, "10 %": 0.1}
"""Who is left of FedAvg's clients when the others are stragglers."""

PRETRAINING = "pretraining"


def name_few(name: str, alpha: float) -> str:
    """Returns what an experiment with few clients is called."""
    return f"{name}, few clients, α = {alpha:g}"


def name_many(name: str, alpha: float) -> str:
    """Returns what an experiment with many clients is called."""
    return f"{name}, many clients, α = {alpha:g}"


def name_five_epochs(name: str, alpha: float) -> str:
    """Returns what an experiment with few clients and the source's five local epochs is called."""
    return f"{name_few(name, alpha)}, E = {EPOCHS}"


def name_by_class(name: str, alpha: float) -> str:
    """Returns what an experiment with few clients is called where each class draws its clients."""
    return f"{name_few(name, alpha)}, drawn by class"


def name_stragglers(method: str, share: str) -> str:
    """Returns what a method is called when so many of the clients take part.

    >>> name_stragglers("FedFT-EDS (10 %)", "20 %")
    'FedFT-EDS (10 %), 20 % of the clients'
    """
    return f"{method}, {share} of the clients"


def name_ablation(what: str, value: str) -> str:
    """Returns what an ablation's experiment is called."""
    return f"ablation, {what} {value}"


def name_fedavg(fraction: str) -> str:
    """Returns what FedAvg is called when so many of its clients take part."""
    return FEDAVG if fraction == "full" else f"{FEDAVG} ({fraction} of the clients)"
