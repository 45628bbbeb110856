"""The runs of the GPFL reproduction: the settings of two codes, fair and as published, and steps between them."""

from __future__ import annotations

from typing import Any

from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import load_settings, merge_settings

RANDOM, ROBIN, POW_D, CPOW_D, RPOW_D, ADAPOW_D, FEDCOR, AFL, GPFL, TEXT, LITERAL, COSINE, BLIND = (
    "Random",
    "Round-robin (control)",
    "Pow-d",
    "cpow-d",
    "rpow-d",
    "adapow-d",
    "FedCor",
    "AFL",
    "GPFL (its code)",
    "GPFL (its text)",
    "GPFL (its text, to the letter)",
    "GPFL (cosine)",
    "GPFL without rewards (control)",
)
METHODS: dict[str, dict[str, Any]] = {
    RANDOM: {"name": "uniform"},
    POW_D: {"name": "power_of_choice"},
    FEDCOR: {"name": "fedcor"},
    GPFL: {"name": "gpfl"},
    TEXT: {"name": "gpfl", "variant": "paper"},
    COSINE: {"name": "gpfl", "projection": "cosine"},
    ROBIN: {"name": "round_robin"},
    BLIND: {"name": "gpfl", "reward": "zero"},
    AFL: {"name": "active_fl"},
    CPOW_D: {"name": "cpow_d"},
    RPOW_D: {"name": "rpow_d"},
    ADAPOW_D: {"name": "adapow_d"},
}
CANDIDATES = {POW_D: 2, CPOW_D: 2, RPOW_D: 2, ADAPOW_D: 4}
"""Candidates as a multiple of the cohort; as published, there are 10, which leaves no choice for a cohort of 10."""

PUBLISHED = (RANDOM, POW_D, FEDCOR, GPFL)
"""The methods of the source's Table II."""

MAIN = (*PUBLISHED, ROBIN, BLIND)

TO_THE_LETTER = {"name": "gpfl", "variant": "paper", "softmax": "everyone", "reward": "printed", "mean": "rounds"}
"""GPFL as printed: softmax over all clients, rewards exactly as in equation (8), their mean over the rounds."""

PRINTED_MOMENTUM = {"local_training": {"momentum": 0.1}}
"""Momentum of local training in the text; both codes have none."""

LEAK = {**METHODS[GPFL], "signal": "test"}
"""GPFL as its code runs it: accuracy and loss are measured on the test examples."""

PARTITIONS: dict[str, tuple[dict[str, Any], int]] = {
    "1SPC": ({"name": "shards", "shards_per_client": 1}, 10),
    "2SPC": ({"name": "shards", "shards_per_client": 2}, 5),
    "Dir": ({"name": "quadratic_dirichlet", "alpha": 0.2}, 5),
}
"""How examples are divided, and the cohort size."""

FASHION, CIFAR, DIGITS = "Fashion-MNIST", "CIFAR-10", "digits"
LAST = 10
"""Number of final rounds over which the source averages; all of them are evaluated."""

THEIRS = "GPFL's settings"
"""Name of the settings of GPFL's code; settings without a name are FedCor's."""

NETWORK, EXAMPLES = "FedCor's, GPFL's network", "FedCor's, GPFL's network and rows"
AS_PUBLISHED = "as published"
SWEPT = "Fig. 7's settings"
"""GPFL's settings with the local training of its script for α, in which the learning rate is constant."""

LONG = "Fig. 7's settings, 1500 rounds"
"""The same settings with more rounds, to see what exploring is worth after round 500."""

ALPHAS = {f"GPFL, α = {value:g}": ("constant", value) for value in (0.0, 0.1, 2.0, 5.0)}
"""The fixed values of α in the code's logs."""

NEVER, GROWING = "GPFL, α = 0", "GPFL, ρ = 1"
"""GPFL without exploration, and with α = t / T as in the text's equation (7); in its code, α falls again."""

COUNTED = (NEVER, GROWING)
"""Variants whose selections are also counted under GPFL's settings."""

COMPARED = (*MAIN, TEXT, COSINE, *COUNTED)
"""Methods that have as many seeds as those beside which claims place them."""

RHOS = {f"GPFL, ρ = {value:g}": ("linear", value) for value in (0.5, 1.0, 2.0, 5.0)}
FOR_LONGER = (*ALPHAS, *RHOS)
"""Variants that run for 1500 rounds, too."""

SENSITIVE = "2SPC"
"""The partition on which settings, α and ρ are varied."""

MORE_SEEDS, SEEDS_FOR_LONGER = 10, 5
"""Number of seeds of the Fashion-MNIST cells that claims about accuracy rest on, and of those with 1500 rounds."""

FIGURE_7 = {
    "local_training": {
        "learning_rate": 0.01,
        "batch_size": 50,
        "epochs": 5,
        "weight_decay": 3e-4,
        "schedule": {"name": "constant"},
    }
}
"""Local training in the code's script for α."""

LONGER = {"rounds": 1500, "evaluate_every": 15}
"""What `LONG` changes in addition."""

NOT_OF_SETTINGS = ("partition", "client_selection", "cohort_size")
"""Keys of a preset that vary by cell."""

OF_FEDCOR = merge_settings(
    load_settings("fashion_mnist", *NOT_OF_SETTINGS), {"data": {"validation": 1 / 60}, "evaluate_last": LAST}
)
"""Fashion-MNIST as FedCor's code runs it; the server keeps 1000 examples."""

OF_GPFL = load_settings("fashion_mnist_gpfl")
"""Fashion-MNIST as GPFL's code runs it."""

OTHER_NETWORK = {"model": {"hidden": OF_GPFL["model"]["hidden"]}}
OTHER_EXAMPLES = {"holdout": 0.0, "signal_split": "training"}
OTHER_REST = {
    "local_training": {"schedule": OF_GPFL["local_training"]["schedule"]},
    "aggregation": OF_GPFL["aggregation"],
}
"""The three steps from FedCor's settings to GPFL's."""

ON_CIFAR = merge_settings(
    load_settings("cifar10", *NOT_OF_SETTINGS), {"data": {"validation": 1 / 50}, "evaluate_last": LAST}
)
"""CIFAR-10 as FedCor's code runs it."""

CIFAR_FEDCOR = {"name": "fedcor", "warm_up": 20, "interval": 50, "history": 500, "beta": 0.9, "gamma": 0.99}
SLOWLY, SLOW_ALPHA = "GPFL, α = t / 2000", {"name": "gpfl", "schedule": "linear", "alpha": 300 / 2000}
"""GPFL with the α of its text, which grows with the round to 1 at round 2000, in a run of 300 rounds."""
CIFAR_MEDIUM = {"rounds": 300, "evaluate_every": 15}
"""All examples, and the rounds of the 15 % rows of the source's Table II."""
CIFAR_SMALL = {"data": {"num_examples": 5000}, "rounds": 60, "evaluate_every": 15}
"""What a small machine can run: a tenth of the examples, so a tenth of the local steps, and 3 % of the rounds."""

SMOKE: dict[str, Any] = {
    **OF_FEDCOR,
    "data": {"name": "digits", "validation": 0.1},
    "model": {"name": "mlp", "hidden": [16, 10], "dropout": 0.5},
    "local_training": {**OF_FEDCOR["local_training"], "learning_rate": 0.1, "batch_size": 16},
    "rounds": 30,
}
SMOKE_FEDCOR = {"name": "fedcor", "warm_up": 5, "interval": 8, "first_steps": 50, "steps": 10}


def name_experiment(data: str, partition: str, settings: str = "") -> str:
    """Returns the name of an experiment."""
    return f"{data}, {partition}" + (f" ({settings})" if settings else "")


def list_cells(scale: str) -> list[Cell]:
    """Returns all cells on Fashion-MNIST (digits at `smoke`), then those on CIFAR-10; at `medium`, CIFAR-10 alone."""
    if scale == "medium":
        return list_medium()
    out = list_main_cells(scale)
    if scale == "smoke":
        return out
    cifar = merge_settings(ON_CIFAR, CIFAR_SMALL) if scale == "small" else ON_CIFAR
    for partition in (SENSITIVE,) if scale == "small" else PARTITIONS:
        for method in PUBLISHED if scale == "small" else METHODS:
            selector = CIFAR_FEDCOR if method == FEDCOR else METHODS[method]
            out.append(make_cell(scale, CIFAR, partition, cifar, "", method, selector))
    return out


def list_medium() -> list[Cell]:
    """Returns runs of 300 rounds on all of CIFAR-10, one partition after another, what settles most claims first."""
    medium, selectors = merge_settings(ON_CIFAR, CIFAR_MEDIUM), {**METHODS, FEDCOR: CIFAR_FEDCOR, SLOWLY: SLOW_ALPHA}
    controls = [method for method in MAIN if method not in PUBLISHED]
    methods = (RANDOM, GPFL, POW_D, FEDCOR, *controls)
    order = [*((SENSITIVE, method) for method in (*methods, SLOWLY)), *(("Dir", method) for method in methods)]
    order += [("1SPC", method) for method in MAIN]
    return [make_cell("medium", CIFAR, p, medium, "", method, selectors[method]) for p, method in order]


def list_main_cells(scale: str) -> list[Cell]:
    """Returns the cells on Fashion-MNIST, on digits at `smoke`."""
    smoke = scale == "smoke"
    data, base = (DIGITS, SMOKE) if smoke else (FASHION, OF_FEDCOR)
    methods = {**METHODS, FEDCOR: SMOKE_FEDCOR} if smoke else METHODS
    network = merge_settings(base, {"model": {"hidden": [16]}} if smoke else OTHER_NETWORK)
    examples = merge_settings(network, OTHER_EXAMPLES)
    theirs = merge_settings(examples, OTHER_REST)
    swept = theirs if smoke else merge_settings(theirs, FIGURE_7)
    partitions = (SENSITIVE,) if smoke else tuple(PARTITIONS)

    def cell(
        partition: str, settings: dict[str, Any], name: str, method: str, selector: dict[str, Any] | None = None
    ) -> Cell:
        if not smoke and name == LONG:
            settings = {**settings, "seeds": SEEDS_FOR_LONGER}
        elif not smoke and (name not in ("", THEIRS) or method in COMPARED):
            settings = {**settings, "seeds": MORE_SEEDS}
        return make_cell(scale, data, partition, settings, name, method, selector or methods[method])

    out = []
    for partition in partitions:
        out += [cell(partition, base, "", method) for method in PUBLISHED]
        out += [cell(partition, base, AS_PUBLISHED, method) for method in PUBLISHED if method != GPFL]
        out += [cell(partition, theirs, AS_PUBLISHED, GPFL, LEAK)]
        out += [cell(partition, theirs, THEIRS, method) for method in MAIN]
        if partition == SENSITIVE:
            out += [cell(partition, network, NETWORK, RANDOM), cell(partition, examples, EXAMPLES, RANDOM)]
    for partition in partitions:
        out += [cell(partition, base, "", method) for method in METHODS if method not in PUBLISHED]
        out.append(cell(partition, merge_settings(base, PRINTED_MOMENTUM), "", LITERAL, TO_THE_LETTER))
    varied = [(THEIRS, theirs, COUNTED), (SWEPT, swept, (*ALPHAS, *RHOS))]
    varied += [] if smoke else [(LONG, merge_settings(swept, LONGER), FOR_LONGER)]
    for name, settings, methods in varied:
        for method in methods:
            schedule, alpha = {**ALPHAS, **RHOS}[method]
            selector = {"name": "gpfl", "schedule": schedule, "alpha": alpha}
            out.append(cell(SENSITIVE, settings, name, method, selector))
    return out


def make_cell(
    scale: str,
    data: str,
    partition: str,
    settings: dict[str, Any],
    name: str,
    method: str,
    selector: dict[str, Any],
) -> Cell:
    """Returns one run.

    Args:
      scale: of the reproduction.
      data, partition: of the experiment.
      settings: all settings except the partition, the selector and the cohort.
      name: of the settings.
      method: name of the selector.
      selector: settings of the selector.
    """
    law, cohort_size = PARTITIONS[partition]
    clients, cohort_size = (20, 4) if scale == "smoke" else (100, cohort_size)
    if method in CANDIDATES:
        selector = {**selector, "d": 10 if name == AS_PUBLISHED else CANDIDATES[method] * cohort_size}
    own = {"partition": {**law, "clients": clients}, "client_selection": selector, "cohort_size": cohort_size}
    return Cell(name_experiment(data, partition, name), method, {**settings, **own})
