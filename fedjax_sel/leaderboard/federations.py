"""The federations of the leaderboard: examples, partitions, and how clients come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedjax_sel.config.resolve import KEYS
from fedjax_sel.leaderboard.selectors import BATCH

VALIDATION = 0.05
"""Share of the training examples that the server keeps, for selectors that use its validation examples."""

VALIDATED = 300
"""Validation examples if clients have only part of the training examples, so that the server has fewer than they do."""


@dataclass(frozen=True)
class Entry:
    """A federation of the leaderboard.

    Attributes:
      name: its name on the command line and in tables.
      title: a one-line description.
      family: name of a family of federations whose arrays have the same shapes, and which share compiled programs.
      config: the keys that it fixes in the configuration of a run.
      public: a source of unlabelled examples, for selectors that need some; None: there is none.
    """

    name: str
    title: str
    family: str
    config: Mapping[str, Any] = field(repr=False)
    public: Mapping[str, Any] | None = field(default=None, repr=False)

    def find_missing_keys(self) -> list[str]:
        """Returns the keys of its configuration that this version of the library does not have."""
        return [key for key in self.config if key not in KEYS]


def find_group(name: str) -> str:
    """Returns the group of federations with the same examples, or of those with natural owners.

    >>> [find_group(name) for name in ("fashion-one-shard", "digits-diurnal", "mnist-writers")]
    ['fashion', 'digits', 'owners']
    """
    first = name.split("-")[0]
    return first if first in ("synthetic", "digits", "fashion") else "owners"


def train(rate: float) -> dict[str, Any]:
    """Returns local training with the same number of steps for all clients, whatever their number of examples."""
    return {"name": "sgd", "learning_rate": rate, "batch_size": BATCH, "steps": 5}


SYNTHETIC: dict[str, Any] = {
    "partition": {"name": "natural"},
    "model": {"name": "logistic"},
    "local_training": train(0.05),
    "cohort_size": 10,
}

DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "validation": VALIDATION},
    "partition": {"name": "dirichlet", "clients": 100, "alpha": 0.3},
    "model": {"name": "mlp", "hidden": [32]},
    "local_training": train(0.1),
    "cohort_size": 10,
}

IMAGES: dict[str, Any] = {
    "model": {"name": "logistic"},
    "local_training": train(0.05),
    "cohort_size": 10,
}

FASHION: dict[str, Any] = {
    "name": "tfds:fashion_mnist",
    "num_examples": 6000,
    "num_test_examples": 1000,
    "validation": VALIDATION,
    "num_validation_examples": VALIDATED,
}


def list_synthetic() -> list[Entry]:
    """Returns FedProx's synthetic federations."""
    out = []
    for level in (0.0, 0.5, 1.0):
        data = {
            "name": "synthetic",
            "alpha": level,
            "beta": level,
            "clients": 100,
            "num_examples": 6000,
            "num_test_examples": 1000,
            "num_validation_examples": 300,
        }
        name = f"synthetic-{level:g}"
        out.append(
            Entry(name, f"synthetic({level:g}, {level:g}), 100 clients", "synthetic", {"data": data, **SYNTHETIC})
        )
    return out


def list_digits() -> list[Entry]:
    """Returns federations of scikit-learn's digits: skewed labels, unequal sizes, and clients that come and go."""
    public = {**DIGITS["data"], "num_examples": 200}  # of the training examples: the seed draws the same split
    unequal = {"partition": {"name": "unequal", "clients": 100, "spread": 1.0}}
    slow = {"devices": {"name": "lognormal", "spread": 1.5}, "deadline": {"seconds": 0.03}}
    diurnal = {"availability": {"name": "diurnal", "period": 24, "mean": 0.5, "depth": 1.0}}
    volatile = {"volatility": {"name": "classes", "p": [0.1, 0.3, 0.6, 0.9]}}
    skewed = "digits, each class by Dir(0.3)"
    return [
        Entry("digits", skewed, "digits", DIGITS, public),
        Entry(
            "digits-unequal",
            "digits, labels alike, one example each and the rest lognormal(1)",
            "digits",
            DIGITS | unequal,
            public,
        ),
        Entry(
            "digits-deadline",
            f"{skewed}; devices lognormal(1.5), a deadline of 0.03 s",
            "digits",
            DIGITS | slow,
            public,
        ),
        Entry("digits-diurnal", f"{skewed}; clients by day and night", "digits-diurnal", DIGITS | diurnal, public),
        Entry("digits-volatile", f"{skewed}; four classes of volatility", "digits-volatile", DIGITS | volatile, public),
    ]


def list_images() -> list[Entry]:
    """Returns federations of Fashion-MNIST under seven partitions, MNIST by writer, and spoken digits by speaker."""
    partitions = {
        "one-shard": ("one shard per client", {"name": "shards", "shards_per_client": 1}),
        "two-shards": ("two shards per client", {"name": "shards", "shards_per_client": 2}),
        "class-0.1": ("each class by Dir(0.1)", {"name": "dirichlet", "alpha": 0.1}),
        "class-0.5": ("each class by Dir(0.5)", {"name": "dirichlet", "alpha": 0.5}),
        "client-0.1": ("each client by Dir(0.1 prior)", {"name": "client_dirichlet", "alpha": 0.1}),
        "client-0.5": ("each client by Dir(0.5 prior)", {"name": "client_dirichlet", "alpha": 0.5}),
        "skew-80": ("80 % of each client's examples with one label", {"name": "label_skew", "share": 0.8}),
    }
    public = {"name": FASHION["name"], "num_examples": 500, "num_test_examples": 10, "seed": 1}
    out = [
        Entry(
            f"fashion-{name}",
            f"Fashion-MNIST, {text}",
            "fashion",
            {"data": FASHION, "partition": {**law, "clients": 100}, **IMAGES},
            public,
        )
        for name, (text, law) in partitions.items()
    ]
    kept = {"validation": VALIDATION, "num_validation_examples": VALIDATED}
    writers = {"name": "npz:mnist_writers.npz", "num_test_examples": 1000, **kept}
    speech = {"name": "npz:spoken_digits.npz", "validation": VALIDATION, "test": 0.2}
    by_owner = {"partition": {"name": "natural"}, **IMAGES}
    return [
        *out,
        Entry(
            "mnist-writers",
            "MNIST, one writer per client, 100 writers",
            "writers",
            {"data": writers, **by_owner, "partition": {"name": "natural", "clients": 100}},
            {"name": writers["name"], "num_examples": 500, "num_test_examples": 10, "seed": 1},
        ),
        Entry(
            "spoken-digits",
            "spoken digits, six speakers, ten clients each",
            "speech",
            {"data": speech, **by_owner, "cohort_size": 6},
            {**speech, "num_examples": 500},
        ),
    ]


COMMON: dict[str, Any] = {"devices": {"name": "lognormal", "spread": 0.6}, "evaluate_every": 1}
"""The defaults of all federations; they include devices, so that every run has seconds and joules."""

FEDERATIONS: dict[str, Entry] = {one.name: one for one in (*list_synthetic(), *list_digits(), *list_images())}
"""All federations by name, in the order of tables."""
