"""How the verdicts on UACS-FL hang on what the source leaves open: tables of the claims under other settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.data.uacs import SHAPE
from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import compare_with
from fedjax_sel.papers.judging import (
    Judgement,
    ask_comparable,
    ask_not_smaller,
    judge,
    judge_larger,
    judge_larger_than_each,
)
from fedjax_sel.papers.paper import Histories, Table
from fedjax_sel.papers.uacs.cells import (
    BOUNDARY,
    ENTROPY,
    GRADIENT,
    GREEDY,
    MORE,
    MORE_BOUNDARY,
    RANDOM,
    SETTINGS,
    VARIATIONS,
    name_experiment,
)
from fedjax_sel.papers.uacs.geometry import measure_best_line
from fedjax_sel.papers.uacs.numbers import (
    COMPARABLE,
    NOTICED,
    TARGET,
    compare,
    compare_at_equal_cost,
    measure,
    subtract,
)
from fedjax_sel.report.markdown import format_number

HEADS = (
    "random is less accurate (entropy - random)",
    "gradient norm is about as accurate (final accuracy, gradient norm - entropy)",
    "the same, by mean accuracy over the rounds",
    f"entropy is faster (rounds to {TARGET}, gradient norm - entropy)",
    "entropy is superior to each (mean accuracy over the rounds, against the stronger of random and gradient norm)",
)
"""What is judged in every row."""


def tabulate_generator(
    histories: Histories, study: Mapping[str, Any], distances: Mapping[str, Mapping[str, float]]
) -> list[Table]:
    """Returns the verdicts on federations of other shapes; no table where no shape was varied.

    Args:
      histories: of the cells.
      study, distances: what `studies` found.
    """
    if not study:
        return []
    methods = (ENTROPY, GRADIENT, RANDOM)
    default = {title: {m: measure(title, histories[title, m]) for m in methods} for title in SETTINGS.values()}
    shapes, rounds = {"default": default, **study}, next(iter(histories.values())).rounds
    return [
        Table(
            "How the verdicts depend on the generator: one of its numbers is changed at a time; verdict and pooled "
            "effect",
            (
                "generator",
                *HEADS,
                f"the top m are boundary clients (number of {BOUNDARY}, minus 5)",
                "least distance of other clients' examples from the boundary, experiments 1 to 3",
            ),
            tuple(
                (shape, *judge_shape({**default, **found}, rounds), show_distances(distances[shape]))
                for shape, found in shapes.items()
            ),
            f"The default is amplitude {SHAPE.amplitude:g}, strip {SHAPE.strip:g}, margin {SHAPE.margin:g}, and box "
            f"{SHAPE.box:g} (in setting 3 only). Verdicts are reached as for the claims above. Strip and margin are "
            "measured along x₂, so a larger amplitude, which makes the curve steeper, also brings the other clients' "
            "examples nearer to it; the last column is their least Euclidean distance over all seeds.",
        )
    ]


def tabulate_variations(histories: Histories) -> Table:
    """Returns the verdicts under every variation."""
    methods = (ENTROPY, GRADIENT, RANDOM, GREEDY)
    rows = []
    for change in ("", *VARIATIONS):
        of = {title: name_experiment(setting, change) for setting, title in SETTINGS.items()}
        found = {title: {m: measure(name, histories[name, m]) for m in methods} for title, name in of.items()}
        rounds = histories[of[SETTINGS[1]], ENTROPY].rounds
        exploring = judge_larger(compare(histories, GREEDY, ENTROPY, "mean_accuracy", change), NOTICED)
        paid = (judge_larger(compare_at_equal_cost(histories, unit, change), NOTICED) for unit in ("bytes", "flops"))
        verdicts = judge_shape(found, rounds, LEAST.get(change, 5.0))
        rows.append((change or "as above", *verdicts, *map(show_judgement, (exploring, *paid))))
    return Table(
        "How the verdicts depend on the other settings that the source leaves open: one is changed at a time; verdict "
        "and pooled effect",
        (
            "variation",
            *HEADS,
            "the top m are boundary clients (number, minus five sixths of the possible number)",
            "exploration is more accurate (ε = 0.1 - ε = 0)",
            "entropy is ahead at random's bytes (entropy - random)",
            "entropy is ahead at random's FLOPs (entropy - random)",
        ),
        tuple(rows),
        "Verdicts are reached as for the claims above. The possible number of boundary clients is 6, but 3 with m = "
        f"3, and 10 with 10 boundary clients. With a boundary of amplitude {SHAPE.amplitude:g}, the best straight "
        f"line has an accuracy of {measure_best_line(SHAPE):.4f}: logistic regression cannot reach {TARGET} there, "
        "and random selection is about as accurate as that line. The cost of selection does not depend on the epochs "
        "and hardly on m; the cost of training does, and so do the verdicts at equal cost.",
    )


LEAST = {"m = 3": 2.5, MORE: MORE_BOUNDARY * 5 / 6}
"""Boundary clients in a cohort, at least, for the highest entropies to be theirs; elsewhere 5 of 6."""


def judge_shape(found: Mapping[str, Any], rounds: int, least: float = 5.0) -> tuple[str, ...]:
    """Returns the verdicts of `HEADS`, and that on the boundary, with their pooled effects, of runs of so many rounds.

    Args:
      found: measures a seed by experiment and method.
      rounds: of the runs.
      least: boundary clients in a cohort.
    """

    def take(method: str, metric: str) -> dict[str, np.ndarray]:
        return {title: np.array(by[method][metric], np.float64) for title, by in found.items()}

    def compare_all(first: str, second: str, metric: str) -> dict[str, Difference]:
        one, other = take(first, metric), take(second, metric)
        return {title: subtract(one[title], other[title], metric, rounds) for title in one}

    to_target, near = f"rounds_to_{TARGET}", take(ENTROPY, "boundary_clients_after_first_fifth")
    reached = any((value <= rounds).any() for m in (ENTROPY, GRADIENT) for value in take(m, to_target).values())
    return (
        show_judgement(judge_larger(compare_all(ENTROPY, RANDOM, "mean_accuracy"), NOTICED)),
        *(
            show_judgement(judge(ask_comparable(COMPARABLE), compare_all(GRADIENT, ENTROPY, metric)))
            for metric in ("final_accuracy", "mean_accuracy")
        ),
        show_judgement(judge_larger(compare_all(GRADIENT, ENTROPY, to_target), 1.0)) if reached else UNREACHED,
        show_judgement(
            judge_larger_than_each(
                {rival: compare_all(ENTROPY, rival, "mean_accuracy") for rival in (RANDOM, GRADIENT)}, NOTICED
            )
        ),
        show_judgement(judge(ask_not_smaller(), {title: compare_with(value, least) for title, value in near.items()})),
    )


UNREACHED = "not judged: no run reaches the target"


def show_distances(distances: Mapping[str, float]) -> str:
    """Returns the distances of all experiments."""
    return ", ".join(f"{value:.3f}" for value in distances.values())


def show_judgement(judgement: Judgement) -> str:
    """Returns a verdict and its pooled effect."""
    return f"{judgement.verdict}: {format_number(judgement.effect['pooled'])}"
