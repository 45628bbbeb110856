"""How much each scale of the FedFT-EDS reproduction runs, and on which data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedjax_sel.papers.fedft_eds.methods import CIFAR10, CIFAR100, DIGITS, LESS, SOURCES, SPEECH, STRONG, TINY, WEAK


@dataclass(frozen=True)
class Scale:
    """How much of everything is run.

    Attributes:
      num_examples, num_test_examples: of the target data; None: all.
      few, many: numbers of clients in experiments with few and with many clients.
      epochs: local epochs per round.
      batch_size: of a local step.
      rounds: of an experiment.
      every: rounds between evaluations (five with 10,000 examples, whose rounds are short).
      pretraining: examples and epochs of pretraining.
      depth: of the network.
      by_class: whether each class draws its clients, which asks for more examples than `smoke` and `small` have.
    """

    num_examples: int | None
    num_test_examples: int | None
    few: int
    many: int
    epochs: int
    batch_size: int
    rounds: int
    every: int
    pretraining: tuple[int | None, int] = (None, 30)
    depth: int = 16
    by_class: bool = True

    def describe_data(self, name: str) -> dict[str, Any]:
        """Returns the settings of a target's data; speech has few test examples, all of which are used."""
        limits = {
            "num_examples": 10_000 if name == LESS else self.num_examples,
            "num_test_examples": None if name in SPEECH.values() else self.num_test_examples,
        }
        return {"name": SOURCES[name], **{key: value for key, value in limits.items() if value is not None}}

    def describe_base(self, name: str, clients: int, alpha: float) -> dict[str, Any]:
        """Returns settings in which all clients take part and train the whole model on all their examples."""
        return {
            "data": self.describe_data(name),
            "partition": divide_by_class(clients, alpha) if self.by_class else divide_by_client(clients, alpha),
            "model": {"name": "wide_resnet", "depth": self.depth},
            "local_training": {
                "name": "sgd",
                "learning_rate": 0.1,
                "momentum": 0.5,
                "batch_size": self.batch_size,
                "epochs": self.epochs,
            },
            "aggregation": {"name": "mean", "weighting": "size"},
            "cohort_size": clients,
            "rounds": self.rounds,
            "evaluate_every": 5 if name == LESS else self.every,
            "evaluate_last": 1,
            "layout": {"clients": 1, "seeds": "scan"},
        }

    def describe_central(self, name: str, alpha: float) -> dict[str, Any]:
        """Returns settings of centralised training."""
        return {**self.describe_base(name, 1, alpha), "partition": {"name": "iid", "clients": 1}}


def divide_by_class(clients: int, alpha: float) -> dict[str, Any]:
    """Returns a partition in which each class draws its clients as in FedML's code, which the paper names."""
    return {"name": "dirichlet", "clients": clients, "alpha": alpha, "balance": True, "min_examples": 10}


def divide_by_client(clients: int, alpha: float) -> dict[str, Any]:
    """Returns a partition in which each client draws its mix of classes (Hsu, Qi and Brown, whom the paper names)."""
    return {"name": "client_dirichlet", "clients": clients, "alpha": alpha}


SCALES = {
    "smoke": Scale(
        300, 200, 5, 10, epochs=1, batch_size=16, rounds=3, every=1, pretraining=(600, 2), depth=10, by_class=False
    ),
    "small": Scale(
        500, 1000, 10, 50, epochs=1, batch_size=16, rounds=10, every=2, pretraining=(15_000, 4), by_class=False
    ),
    "medium": Scale(None, None, 10, 100, epochs=5, batch_size=32, rounds=50, every=2),
    "full": Scale(None, None, 10, 100, epochs=5, batch_size=32, rounds=50, every=2, pretraining=(None, 30)),
}


SHIPPED, SHIPPED_ACCURACY = "tiny_imagenet", 0.3572
"""The library's model, with which `medium` begins, and its accuracy on the test examples of Tiny-ImageNet.

The file's test images are sharper than the training images (`SHARPNESS`), so they are first blurred to the same
sharpness; without blur, the accuracy is 0.2665.
"""


SHARPNESS, BLUR = 14.259, 0.4832
"""Mean absolute difference of horizontally adjacent pixels in the training images (test images: 19.097), in levels of
256; and the standard deviation, in pixels, of the Gaussian blur that gives the test images the same value."""


def choose_source(scale: str) -> str:
    """Returns the data on which the model is pretrained, or the name of the library's model."""
    return {"smoke": DIGITS, "medium": SHIPPED}.get(scale, TINY)


def list_targets(scale: str) -> list[str]:
    """Returns the data sets of the close domain."""
    return {"smoke": [DIGITS], "small": [CIFAR10], "medium": [CIFAR10], "full": [CIFAR10, CIFAR100]}[scale]


def find_studied(scale: str) -> str:
    """Returns the data set whose cells are used by the studies."""
    return LESS if scale == "medium" else list_targets(scale)[0]


def list_compared(scale: str) -> list[str]:
    """Returns the data sets on which the methods are compared: the targets, and what the studies use."""
    return list(dict.fromkeys([*list_targets(scale), find_studied(scale)]))


def list_alphas(scale: str) -> tuple[float, ...]:
    """Returns the Dirichlet concentrations of a scale."""
    return (STRONG,) if scale == "smoke" else (STRONG, WEAK)
