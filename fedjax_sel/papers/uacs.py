"""UACS-FL: the clients whose data the model is least sure of."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.metrics import all_of, difference
from fedjax_sel.papers import _uacs_figures as figures_of
from fedjax_sel.papers._paper import Cell, Claim, Evidence, Figure, Paper, Table, merged
from fedjax_sel.papers._uacs_numbers import (
    BOUNDARY,
    ENTROPY,
    GRADIENT,
    GREEDY,
    MORE,
    MORE_BOUNDARY,
    RANDOM,
    ROBIN,
    SETTINGS,
    SLOTS,
    TARGET,
    at_random_budget,
    compared,
    main_tables,
    measures,
    results,
    sensitivity,
)

__all__ = ["PAPER"]

METHODS: dict[str, dict[str, Any]] = {
    ENTROPY: {"name": "entropy", "epsilon": 0.0},
    GREEDY: {"name": "entropy", "epsilon": 0.1},
    GRADIENT: {"name": "gradient_norm"},
    RANDOM: {"name": "uniform"},
    ROBIN: {"name": "round_robin"},
}
MARGIN = 0.01
"""Mean accuracies closer than this are called comparable."""

VARIATIONS: dict[str, dict[str, Any]] = {
    "m = 3": {"cohort_size": 3},
    "m = 12": {"cohort_size": 12},
    "learning rate 0.03": {"local_training": {"learning_rate": 0.03}},
    "learning rate 0.3": {"local_training": {"learning_rate": 0.3}},
    "1 local epoch": {"local_training": {"epochs": 1}},
    "logistic regression": {"model": {"name": "logistic"}},
    MORE: {"data": {"boundary": MORE_BOUNDARY}, "cohort_size": MORE_BOUNDARY},
}
"""What `full` varies, one thing at a time."""

OPEN = """
The paper gives ε ∈ {0, 0.1}, 100 clients, two classes, 6 boundary clients (elsewhere "6-10"), three settings as
pictures, and results as curves without numbers. It leaves open the cohort, model, learning rate, epochs, batch, rounds,
seeds and the law of the data.

Ours: rows in [-1, 1]², boundary x₂ = 0.5 sin(π x₁), 50 rows a client; boundary clients draw within 0.15 of the curve's
height, the others beyond 0.25, half of them of each class (`fedjax_sel.data.uacs`). MLP 2-32-2, m = 6, 150 rounds (15
at scale `smoke`), 5 local epochs of SGD with batch 10 and learning rate 0.1, rows normalised to deviation 1,
aggregation 1/m, accuracy on 2000 rows uniform on the square. A seed draws data, initial model and cohorts. Every method
sees the same data and initial model, and a client shuffles its rows in the same way under all of them.

Entropy and gradient norm are measured on the global model by every client in every round. The paper does not count
this; we do: the model goes to all 100 clients instead of 6, and all rows are passed through it.

A verdict compares two methods over the same seeds: the mean difference with its 95 % interval (Student's t). "Larger"
is reproduced where the interval lies above zero in every experiment, not reproduced where it lies below a negligible
size in one (0.001 of accuracy, 1 round). A run that never reaches the target counts as reaching it in the round after
the last.
"""


def cells(scale: str) -> list[Cell]:
    """Three settings, all methods; at `full` also the variations."""
    base = {
        "data": {"name": "uacs", "boundary": BOUNDARY},
        "partition": {"name": "natural"},
        "model": {"name": "mlp", "hidden": [32]},
        "local_training": {"name": "sgd", "learning_rate": 0.1, "batch_size": 10, "epochs": 5},
        "aggregation": {"name": "mean", "weighting": "client"},
        "cohort_size": 6,
        "rounds": 15 if scale == "smoke" else 150,
    }
    out = [
        Cell(title, method, merged(base, {"data": {"setting": setting}, "client_selection": selector}))
        for setting, title in SETTINGS.items()
        for method, selector in METHODS.items()
    ]
    if scale == "full":
        slots = {"client_selection": {"name": "entropy", "epsilon": 0.1, "per_slot": True}}
        out += [
            Cell(title, SLOTS, merged(base, {"data": {"setting": setting}, **slots}))
            for setting, title in SETTINGS.items()
        ]
        out += [
            Cell(
                f"{title}, {name}",
                method,
                merged(merged(base, {"data": {"setting": setting}, "client_selection": selector}), change),
            )
            for name, change in VARIATIONS.items()
            for setting, title in SETTINGS.items()
            for method, selector in METHODS.items()
        ]
    return out


def claims(scale: str, evidence: Evidence) -> list[Claim]:
    """What the paper says of its methods, judged."""
    histories = evidence.histories
    area = compared(histories, ENTROPY, RANDOM, "mean_accuracy")
    greedy = compared(histories, GREEDY, RANDOM, "mean_accuracy")
    control = compared(histories, ENTROPY, ROBIN, "mean_accuracy")
    sooner = compared(histories, RANDOM, ENTROPY, f"rounds_to_{TARGET}")
    norm = compared(histories, GRADIENT, ENTROPY, "mean_accuracy")
    faster = compared(histories, GRADIENT, ENTROPY, f"rounds_to_{TARGET}")
    near = {
        title: measures(histories, (title, ENTROPY))["boundary_clients_after_first_fifth"]
        for title in SETTINGS.values()
    }
    enough = {title: difference(value, np.full_like(value, 5.0)) for title, value in near.items()}

    paid = {"bytes": at_random_budget(histories, "bytes"), "FLOPs": at_random_budget(histories, "flops")}

    def verdicts(differences, judge):
        return all_of([judge(d) for d in differences.values()])

    def numbers(differences):
        return {title: {**vars(d)} for title, d in differences.items()}

    return [
        Claim(
            "random-underperforms",
            "Random selection underperforms entropy selection in all three experiments (mean accuracy over the rounds)",
            "Remarks, first item",
            verdicts(area, lambda d: d.larger(0.001)),
            {
                "entropy - random, mean accuracy": numbers(area),
                "entropy+eps-greedy - random, mean accuracy": numbers(greedy),
                "entropy - round-robin, mean accuracy": numbers(control),
                f"random - entropy, rounds to {TARGET} (at least)": numbers(sooner),
            },
        ),
        Claim(
            "gradient-norm-comparable",
            f"Gradient norm-based selection is comparable to entropy (mean accuracy within ±{MARGIN})",
            "Remarks, second item",
            verdicts(norm, lambda d: d.comparable(MARGIN)),
            {"gradient norm - entropy, mean accuracy": numbers(norm)},
        ),
        Claim(
            "entropy-faster-than-gradient-norm",
            f"Entropy converges faster than gradient norm (rounds to accuracy {TARGET})",
            "Remarks, second item",
            verdicts(faster, lambda d: d.larger(1.0)),
            {
                f"gradient norm - entropy, rounds to {TARGET}": numbers(faster),
                "entropy - gradient norm, mean accuracy": numbers(
                    compared(histories, ENTROPY, GRADIENT, "mean_accuracy")
                ),
            },
        ),
        Claim(
            "top-m-are-boundary",
            "The clients of highest entropy are the boundary clients (at least 5 of 6 after a fifth of the rounds)",
            "Experimental Objectives and Experiment 1 (implied)",
            verdicts(enough, lambda d: d.not_smaller()),
            {title: {"mean": float(v.mean()), "least seed": float(v.min())} for title, v in near.items()},
        ),
        *(
            Claim(
                f"ahead-at-equal-{unit.lower()}",
                f"Entropy selection is ahead of random selection also at equal {unit}, selection counted "
                "(accuracy when it has spent what random spends in the whole run)",
                "ours: implied by comparing per round",
                verdicts(differences, lambda d: d.larger(0.001)),
                {f"entropy - random at equal {unit}": numbers(differences)},
            )
            for unit, differences in paid.items()
        ),
    ]


def tables(scale: str, evidence: Evidence) -> list[Table]:
    """Accuracy and what it cost; at `full` also how the conclusion moves."""
    out = main_tables(evidence.histories)
    return [*out, sensitivity(evidence.histories, VARIATIONS)] if scale == "full" else out


def figures(scale: str, evidence: Evidence) -> list[Figure]:
    """As in the paper, and beyond it."""
    histories = evidence.histories
    panels = {title: {method: histories[title, method] for method in METHODS} for title in SETTINGS.values()}
    out = figures_of.shared(panels, BOUNDARY, SETTINGS)
    if scale == "full":
        rows = [
            (
                f"{change or 'as above'}, {title}",
                other,
                compared(histories, ENTROPY, other, "mean_accuracy", change)[title],
            )
            for change in ("", *VARIATIONS)
            for title in SETTINGS.values()
            for other in (RANDOM, GRADIENT)
        ]
        out.append(figures_of.sensitivity(rows))
    return out


PAPER = Paper(
    name="uacs",
    title="UACS-FL",
    reference='"Active Client Selection for Federated Learning" (Uncertainty-based Active Client Selection, UACS-FL).',
    seeds={"smoke": 2, "small": 20, "full": 20},
    settings=OPEN,
    cells=cells,
    results=results,
    claims=claims,
    tables=tables,
    figures=figures,
)
