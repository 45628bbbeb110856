"""What the FedFT-EDS reproduction runs: pretraining, ten clients, stragglers, speech, and its ablations."""

from __future__ import annotations

from typing import Any

from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings

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

RHO = 0.1
LITTLE, HALF = 0.1, 0.5


def select_randomly(fraction: float) -> dict[str, Any]:
    """A fresh random share every round."""
    return {"data_selection": {"name": "random_subset", "fraction": fraction}}


def select_by_entropy(fraction: float, rho: float = RHO) -> dict[str, Any]:
    """The share of highest hardened entropy."""
    return {"data_selection": {"name": "entropy", "fraction": fraction, "rho": rho}}


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
"""Other choices of rows, among ten clients."""

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
SPEECH = {"small": "spoken digits", "full": "Speech Commands"}
SOURCES: dict[str, str] = {
    TINY: "npz:tiny_imagenet_32.npz",
    CIFAR10: "tfds:cifar10",
    CIFAR100: "tfds:cifar100",
    DIGITS: "digit_images",
    SPEECH["small"]: "npz:free_spoken_digits.npz",
    SPEECH["full"]: "tfds:speech_commands",
}

STRONG, WEAK = 0.1, 0.5
"""Concentrations of the source's experiments."""

FRACTIONS = {"full": 1.0, "20 %": 0.2, "10 %": 0.1}
"""Who is left of FedAvg's clients when the others are stragglers."""


class Scale:
    """How much of everything is run.

    Args:
      rows, num_test_examples: of the target; None: all.
      clients: of the experiments with few and with many clients.
      epochs: of a round.
      batch_size: of a step.
      rounds: of an experiment.
      every: rounds between evaluations.
      pretrain: rows and epochs of pretraining.
      depth: of the network.
    """

    def __init__(
        self,
        rows: int | None,
        num_test_examples: int | None,
        clients: tuple[int, int],
        epochs: int,
        batch_size: int,
        rounds: int,
        every: int,
        pretrain: tuple[int | None, int],
        depth: int = 16,
    ):
        self.rows, self.num_test_examples, self.clients, self.epochs = rows, num_test_examples, clients, epochs
        self.batch_size, self.rounds, self.every = batch_size, rounds, every
        self.pretrain, self.depth = pretrain, depth

    def data(self, name: str) -> dict[str, Any]:
        """A target's rows; speech has few test rows, and all of them are used."""
        limits = {"rows": self.rows, "num_test_examples": None if name in SPEECH.values() else self.num_test_examples}
        return {"name": SOURCES[name], **{key: value for key, value in limits.items() if value is not None}}

    def base(self, name: str, clients: int, alpha: float) -> dict[str, Any]:
        """All clients take part and train the whole model on all their rows."""
        return {
            "data": self.data(name),
            "partition": {"name": "client_dirichlet", "clients": clients, "alpha": alpha},
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
            "evaluate_every": self.every,
            "evaluate_last": 1,
            "layout": {"clients": 1, "seeds": "scan"},
        }


SCALES = {
    "smoke": Scale(300, 200, (5, 10), 1, 16, 3, 1, (600, 2), 10),
    "small": Scale(500, 1000, (10, 50), 1, 16, 10, 2, (15_000, 4)),
    "full": Scale(None, None, (10, 100), 5, 32, 50, 5, (None, 30)),
}

PRETRAINING = "pretraining"


def pretrain(scale: str, source: str) -> Cell:
    """Training in one place on the source domain."""
    size = SCALES[scale]
    rows, epochs = size.pretrain
    limits = {"rows": rows, "num_test_examples": size.num_test_examples} if rows else {}
    config = {
        "data": {"name": SOURCES[source], **limits},
        "partition": {"name": "iid", "clients": 1},
        "model": {"name": "wide_resnet", "depth": size.depth},
        "local_training": {
            "name": "sgd",
            "learning_rate": 0.1,
            "batch_size": 128,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "schedule": {"name": "cosine"},
        },
        "cohort_size": 1,
        "rounds": epochs,
        "seeds": 1,
        "layout": "scan",
    }
    return Cell(PRETRAINING, source, config)


def name_few(name: str, alpha: float) -> str:
    """What an experiment with few clients is called."""
    return f"{name}, few clients, α = {alpha:g}"


def name_many(name: str, alpha: float) -> str:
    """What an experiment with many clients is called."""
    return f"{name}, many clients, α = {alpha:g}"


def name_ablation(what: str, value: str) -> str:
    """What an ablation's experiment is called."""
    return f"ablation, {what} {value}"


def name_fedavg(fraction: str) -> str:
    """FedAvg when so many of its clients take part."""
    return FEDAVG if fraction == "full" else f"{FEDAVG} ({fraction} of the clients)"


def choose_source(scale: str) -> str:
    """On what the model is pretrained."""
    return DIGITS if scale == "smoke" else TINY


def list_targets(scale: str) -> list[str]:
    """The close domain's data."""
    return {"smoke": [DIGITS], "small": [CIFAR10], "full": [CIFAR10, CIFAR100]}[scale]


def cells(scale: str) -> list[Cell]:
    """Pretraining first; then ten clients, many clients, speech, ablations."""
    size, source, out = SCALES[scale], choose_source(scale), []
    out.append(pretrain(scale, source))
    if scale == "full":
        out.append(pretrain(scale, CIFAR100))

    def cell(experiment: str, method: str, base: dict[str, Any], changes: list[dict[str, Any]], begin: str | None):
        config = base
        for change in changes:
            config = merge_settings(config, change)
        if begin is None:
            return Cell(experiment, method, config)
        config = merge_settings(config, {"model": {"pretrained": f"the cell {PRETRAINING}, {begin}"}})
        return Cell(experiment, method, config, (PRETRAINING, begin))

    def begins(method: str) -> str | None:
        return None if method == SCRATCH else source

    alphas = (STRONG,) if scale == "smoke" else (STRONG, WEAK)
    for name in list_targets(scale):
        for alpha in alphas:
            base = size.base(name, size.clients[0], alpha)
            chosen = {
                m: c for m, c in METHODS.items() if scale != "smoke" or m in (SCRATCH, FEDAVG, RDS, EDS, ALL, EDS50)
            }
            for method, changes in {**chosen, **({} if scale == "smoke" else OTHERS)}.items():
                out.append(cell(name_few(name, alpha), method, base, changes, begins(method)))
            if scale == "full" and name == CIFAR10:
                out.append(cell(name_few(name, alpha), f"{FEDAVG} ({CIFAR100})", base, [], CIFAR100))
        if scale == "smoke":
            continue
        base = {**size.base(name, 1, WEAK), "partition": {"name": "iid", "clients": 1}}
        for alpha in alphas:  # the same run, beside both
            out.append(cell(name_few(name, alpha), CENTRAL, base, [], source))
    if scale == "smoke":
        return out
    for name in list_targets(scale):
        for alpha in (STRONG,) if scale == "small" else alphas:
            base = size.base(name, size.clients[1], alpha)
            for fraction, share in FRACTIONS.items():
                changed = {"cohort_size": round(share * size.clients[1])}
                out.append(cell(name_many(name, alpha), name_fedavg(fraction), base, [changed], source))
            shown = (RDS, EDS, ALL, RDS50, EDS50) if scale == "small" else (SCRATCH, RDS, EDS, ALL, RDS50, EDS50)
            out += [cell(name_many(name, alpha), method, base, METHODS[method], begins(method)) for method in shown]
    speech = SPEECH[scale]
    base = size.base(speech, 20 if scale == "small" else 100, STRONG)
    out += [
        cell(name_many(speech, STRONG), method, base, METHODS[method], begins(method))
        for method in (SCRATCH, FEDAVG, RDS, EDS, RDS50, EDS50)
    ]
    if scale == "full":
        one = {**size.base(speech, 1, STRONG), "partition": {"name": "iid", "clients": 1}}
        out.append(cell(name_many(speech, STRONG), CENTRAL, one, [], source))
    name = list_targets(scale)[-1]
    clients, fraction = (size.clients[0], LITTLE) if scale == "small" else (size.clients[1], HALF)
    ways = {"RDS": select_randomly(fraction), "EDS": select_by_entropy(fraction)}
    base = size.base(name, clients, STRONG)
    for part, frozen in PARTS.items():
        for way, change in ways.items():
            out.append(
                cell(name_ablation("trained:", part), way, base, [{"model": {"frozen": list(frozen)}}, change], source)
            )
    for alpha in ALPHAS:
        for way, change in ways.items():
            drawn = {"partition": {"alpha": alpha}}
            out.append(cell(name_ablation("α =", f"{alpha:g}"), way, base, [PARTLY, drawn, change], source))
    for rho in RHOS:
        out.append(
            cell(name_ablation("ρ =", f"{rho:g}"), "EDS", base, [PARTLY, select_by_entropy(fraction, rho)], source)
        )
    return out
