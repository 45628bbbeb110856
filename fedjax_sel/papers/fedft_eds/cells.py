"""The runs of the FedFT-EDS reproduction: pretraining, ten clients, stragglers, speech, and its ablations."""

from __future__ import annotations

from fedjax_sel.papers.fedft_eds.making import make_cell, make_method_cell, vary
from fedjax_sel.papers.fedft_eds.medium import list_medium
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    CENTRAL,
    CIFAR10,
    CIFAR100,
    EDS,
    EDS50,
    EPOCHS,
    FEDAVG,
    FEDPROX,
    FRACTIONS,
    FROM_CIFAR100,
    HALF,
    LITTLE,
    METHODS,
    OTHERS,
    PRETRAINING,
    RDS,
    RDS50,
    SCRATCH,
    SOURCES,
    SPEECH,
    STRONG,
    WEAK,
    name_by_class,
    name_fedavg,
    name_few,
    name_five_epochs,
    name_many,
)
from fedjax_sel.papers.fedft_eds.scales import SCALES, choose_source, find_studied, list_alphas, list_targets
from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings

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
                out.append(make_cell(name_few(name, alpha), FROM_CIFAR100, base, [], CIFAR100))
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
