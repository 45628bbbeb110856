"""The runs of the FedFT-EDS reproduction: pretraining, ten clients, stragglers, speech, and its ablations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    ALPHAS,
    BATCHES,
    CENTRAL,
    CIFAR10,
    CIFAR100,
    DIGITS,
    EDS,
    EDS50,
    EPOCHS,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    FRACTIONS,
    HALF,
    LESS,
    LITTLE,
    LOSS,
    MARGIN,
    METHODS,
    OTHERS,
    PARTLY,
    PARTS,
    PRETRAINING,
    RDS,
    RDS50,
    RHOS,
    SCRATCH,
    SOURCES,
    SPEECH,
    STRONG,
    TINY,
    WEAK,
    name_ablation,
    name_by_class,
    name_by_client,
    name_fedavg,
    name_few,
    name_five_epochs,
    name_many,
    name_stragglers,
    select_by_entropy,
    select_randomly,
)
from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings


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

AT_SMOKE = (SCRATCH, FEDAVG, RDS, EDS, ALL, EDS50)
"""The methods that are run at `smoke`."""


def list_cells(scale: str) -> list[Cell]:
    """Returns all cells: pretraining first, then few clients, many clients, speech, ablations."""
    if scale == "medium":
        return list_medium()
    out = [pretrain(scale, choose_source(scale))]
    if scale == "full":
        out.append(pretrain(scale, CIFAR100))
    out += list_few(scale)
    if scale == "smoke":
        return out
    out += [*list_many(scale), *list_speech(scale), *list_ablations(scale)]
    return [*out, *list_settings(scale)] if scale == "small" else out


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


def pretrain(scale: str, source: str) -> Cell:
    """Returns the cell of centralised training on the source domain."""
    size = SCALES[scale]
    num_examples, epochs = size.pretraining
    limits = {"num_examples": num_examples, "num_test_examples": size.num_test_examples} if num_examples else {}
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
    if scale == "full":
        held_out = {"test_from": "training", "test": 0.1}  # the file's own test images are sharper than its others
        config = merge_settings(config, {"data": held_out, "local_training": {"augment": "crop_flip"}})
    return Cell(PRETRAINING, source, config)


def make_cell(
    experiment: str, method: str, base: dict[str, Any], changes: Iterable[dict[str, Any]], begins: str | None
) -> Cell:
    """Returns one run; `begins` names its initial model as `choose_source` does, None for a fresh one."""
    config = merge_settings(base, *changes)
    if begins is None:
        return Cell(experiment, method, config)
    if begins == SHIPPED:
        config = merge_settings(config, {"model": {"pretrained": SHIPPED}})
        return Cell(experiment, method, config, pretrained_accuracy=SHIPPED_ACCURACY)
    config = merge_settings(config, {"model": {"pretrained": f"the cell {PRETRAINING}, {begins}"}})
    return Cell(experiment, method, config, (PRETRAINING, begins))


def make_method_cell(scale: str, experiment: str, method: str, base: dict[str, Any]) -> Cell:
    """Returns one run of one of the methods; all except the one from scratch begin with the pretrained model."""
    begins = None if method == SCRATCH else choose_source(scale)
    return make_cell(experiment, method, base, {**METHODS, **OTHERS}[method], begins)


def list_few(scale: str) -> list[Cell]:
    """Returns all methods with few clients (some at `smoke`), and centralised training beside them."""
    size, out = SCALES[scale], []
    methods = AT_SMOKE if scale == "smoke" else (*METHODS, *OTHERS)
    for name in list_targets(scale):
        for alpha in list_alphas(scale):
            base = size.describe_base(name, size.few, alpha)
            out += [
                make_method_cell(scale, name_few(name, alpha), m, base) for m in (*METHODS, *OTHERS) if m in methods
            ]
            if scale == "full" and name == CIFAR10:
                out.append(make_cell(name_few(name, alpha), f"{FEDAVG} ({CIFAR100})", base, [], CIFAR100))
        if scale != "smoke":
            base = size.describe_central(name, WEAK)
            for alpha in list_alphas(scale):  # the same run, listed in both
                out.append(make_cell(name_few(name, alpha), CENTRAL, base, [], choose_source(scale)))
    return out


def list_many(scale: str) -> list[Cell]:
    """Returns FedAvg with stragglers, and partial training, with many clients."""
    size, source, out = SCALES[scale], choose_source(scale), []
    shown = (RDS, EDS, ALL, RDS50, EDS50) if scale == "small" else (SCRATCH, RDS, EDS, ALL, RDS50, EDS50)
    for name in list_targets(scale):
        for alpha in (STRONG,) if scale == "small" else (STRONG, WEAK):
            base, experiment = size.describe_base(name, size.many, alpha), name_many(name, alpha)
            for fraction, share in FRACTIONS.items():
                change = {"cohort_size": round(share * size.many)}
                out.append(make_cell(experiment, name_fedavg(fraction), base, [change], source))
            out += [make_method_cell(scale, experiment, method, base) for method in shown]
    return out


def list_speech(scale: str) -> list[Cell]:
    """Returns the far domain, with many clients."""
    size, speech = SCALES[scale], SPEECH[scale]
    base, experiment = size.describe_base(speech, 20 if scale == "small" else 100, STRONG), name_many(speech, STRONG)
    shown = (SCRATCH, FEDAVG, RDS, EDS, RDS50, EDS50)
    out = [make_method_cell(scale, experiment, method, base) for method in shown]
    if scale == "full":
        central = size.describe_central(speech, STRONG)
        out.append(make_cell(experiment, CENTRAL, central, [], choose_source(scale)))
    return out


def list_ablations(scale: str) -> list[Cell]:
    """Returns ablations of the trained part, α and ρ, one varied at a time."""
    size = SCALES[scale]
    clients, fraction = (size.few, LITTLE) if scale == "small" else (size.many, HALF)
    return vary(size.describe_base(list_targets(scale)[-1], clients, STRONG), fraction, choose_source(scale))


def vary(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns the ablations of some settings, in the order of Fig. 10.

    Args:
      base: settings in which the whole model is trained.
      fraction: of the examples to select.
      source: data on which the model is pretrained.
    """
    return [way for change in (vary_part, vary_alpha, vary_rho) for way in change(base, fraction, source)]


def vary_part(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs that train more or less of the model (Fig. 10a); see `vary`."""
    return [
        make_cell(name_ablation("trained:", part), way, base, [{"model": {"frozen": list(frozen)}}, selection], source)
        for part, frozen in PARTS.items()
        for way, selection in list_selections(fraction).items()
    ]


def vary_alpha(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs with other Dirichlet concentrations (Fig. 10b); see `vary`."""
    return [
        make_cell(
            name_ablation("α =", f"{alpha:g}"), way, base, [PARTLY, {"partition": {"alpha": alpha}}, selection], source
        )
        for alpha in ALPHAS
        for way, selection in list_selections(fraction).items()
    ]


def vary_rho(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs with other temperatures (Fig. 10c); see `vary`."""
    return [
        make_cell(name_ablation("ρ =", f"{rho:g}"), "EDS", base, [PARTLY, select_by_entropy(fraction, rho)], source)
        for rho in RHOS
    ]


def list_selections(fraction: float) -> dict[str, dict[str, Any]]:
    """Returns the settings of random and of entropy selection, by their names in the ablations."""
    return {"RDS": select_randomly(fraction), "EDS": select_by_entropy(fraction)}


def list_settings(scale: str) -> list[Cell]:
    """Returns runs with the source's five local epochs, and with the other Dirichlet law."""
    size, name, out = SCALES[scale], find_studied(scale), []
    for alpha in list_alphas(scale):
        base = size.describe_base(name, size.few, alpha)
        longer = merge_settings(base, {"local_training": {"epochs": EPOCHS}})
        by_class = merge_settings(base, {"partition": {"name": "dirichlet", "clients": size.few, "alpha": alpha}})
        out += [
            make_method_cell(scale, name_five_epochs(name, alpha), method, longer)
            for method in (FEDAVG, FEDPROX, RDS, EDS)
        ]
        out += [
            make_method_cell(scale, name_by_class(name, alpha), method, by_class)
            for method in (SCRATCH, FEDAVG, RDS, EDS)
        ]
    return out


def list_medium() -> list[Cell]:
    """Returns runs on all examples and on 10,000, those that settle most claims an hour first."""
    scale, out = "medium", []
    size, source = SCALES[scale], choose_source(scale)

    def add(data: str, methods: Iterable[str], seeds: int, law: Callable[..., str] = name_few) -> None:
        for alpha in list_alphas(scale):
            base = {**size.describe_base(data, size.few, alpha), "seeds": seeds}
            if law is name_by_client:
                base["partition"] = divide_by_client(size.few, alpha)
            out.extend(make_method_cell(scale, law(data, alpha), method, base) for method in methods)

    add(CIFAR10, (RDS, EDS), 5)
    add(LESS, (RDS, EDS), 5)
    add(LESS, (RDS, EDS), 3, name_by_client)
    add(LESS, (ALL,), 1, name_by_client)
    add(LESS, (FEDAVG_RDS, FEDPROX_RDS), 5)
    add(LESS, (MARGIN, BATCHES), 3)
    out += list_medium_many((RDS, EDS), list_alphas(scale))
    out += vary({**size.describe_base(LESS, size.few, STRONG), "seeds": 3}, HALF, source)
    out += list_medium_many((EDS50, RDS50, ALL), (STRONG,))
    out += list_medium_stragglers((FEDAVG,), 3, "10 %")
    add(LESS, (FEDAVG, SCRATCH), 3)
    for alpha in list_alphas(scale):  # the same run, listed in both
        central = {**size.describe_central(LESS, WEAK), "seeds": 3}
        out.append(make_cell(name_few(LESS, alpha), CENTRAL, central, [], source))
    add(CIFAR10, (EDS50, RDS50, ALL, FEDAVG_RDS), 3)
    base = {**size.describe_base(SPEECH[scale], SPEAKING, STRONG), "seeds": 3}
    shown = (SCRATCH, FEDAVG, RDS, EDS, RDS50, EDS50)
    out += [make_method_cell(scale, name_many(SPEECH[scale], STRONG), method, base) for method in shown]
    add(CIFAR10, (MARGIN, LOSS, BATCHES), 5)
    out += list_medium_stragglers((EDS, RDS), 2, "20 %", "10 %")
    add(LESS, (FEDPROX,), 1)
    return out


SPEAKING = 8
"""Clients that share the spoken digits at `medium`, so that each has 300 examples."""


def list_medium_many(methods: Iterable[str], alphas: Iterable[float]) -> list[Cell]:
    """Returns methods with many clients on all examples, three seeds."""
    size, out = SCALES["medium"], []
    for alpha in alphas:
        base = {**size.describe_base(CIFAR10, size.many, alpha), "seeds": 3}
        out += [make_method_cell("medium", name_many(CIFAR10, alpha), method, base) for method in methods]
    return out


def list_medium_stragglers(methods: Iterable[str], seeds: int, *fractions: str) -> list[Cell]:
    """Returns methods with many clients of which only these fractions take part."""
    size, out = SCALES["medium"], []
    for alpha in list_alphas("medium"):
        base = {**size.describe_base(CIFAR10, size.many, alpha), "seeds": seeds}
        for fraction in fractions:
            changes = {"cohort_size": round(FRACTIONS[fraction] * size.many)}
            for method in methods:
                name = name_fedavg(fraction) if method == FEDAVG else name_stragglers(method, fraction)
                settings = [*METHODS[method], changes]
                out.append(make_cell(name_many(CIFAR10, alpha), name, base, settings, choose_source("medium")))
    return out
