"""What UACS-FL says of its methods, judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.data.uacs import Shape
from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import compare_with, describe_differences, describe_each
from fedjax_sel.papers.judging import (
    Judgement,
    ask_comparable,
    ask_not_below,
    ask_not_smaller,
    judge,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join
from fedjax_sel.papers.uacs.cells import (
    ALONE,
    ENTROPY,
    EVERYBODY,
    GRADIENT,
    GREEDY,
    LINEAR,
    LINES,
    LONG,
    OTHERS,
    RANDOM,
    ROBIN,
    SETTINGS,
    STRAIGHTER,
    name_experiment,
)
from fedjax_sel.papers.uacs.geometry import measure_best_line
from fedjax_sel.papers.uacs.numbers import (
    BOUNDS,
    BROADCAST,
    COMPARABLE,
    NOTICED,
    TARGET,
    compare,
    compare_at_equal_cost,
    compare_paid,
    compare_parts,
    measure,
)

COSTS = "ours: implied by 'reducing computational costs' (Introduction), which names neither accuracy nor a rival"
SOURCES = {
    "bytes": "ours: implied by the comparison per round",
    BROADCAST: "ours: implied by the comparison per round, with the algorithm's last step: 'broadcasts ... to all "
    "clients'",
    "FLOPs": COSTS,
}
READ = {
    "bytes": "bytes (if only those clients receive a model that train it or report on it)",
    BROADCAST: "bytes, if the server broadcasts every new model to all clients",
}
"""Units of cost in words, where they are not plain."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns accuracy against chance and gradient norm, who is selected, accuracy at equal cost."""
    histories = evidence.histories
    more = (
        lambda: [judge_long_runs(histories, unit) for unit in ("bytes", "FLOPs")],
        lambda: [judge_everybody(histories)],
        lambda: judge_fraction(histories),
        lambda: [judge_linear(histories)],
    )
    return join(
        lambda: [judge_random(histories)],
        lambda: judge_gradient_norm(histories),
        lambda: [judge_superior(histories)],
        lambda: [judge_exploration(histories)],
        lambda: [judge_boundary(histories)],
        lambda: [judge_at_equal_cost(histories, unit) for unit in ("bytes", BROADCAST, "FLOPs")],
        *(more if scale == "full" else ()),
    )


def judge_random(histories: Histories) -> Claim:
    """Returns the verdict on random selection."""
    area = compare(histories, ENTROPY, RANDOM, "mean_accuracy")
    control = compare(histories, ENTROPY, ROBIN, "mean_accuracy")
    sooner = compare(histories, RANDOM, ENTROPY, f"rounds_to_{TARGET}")
    return make_claim(
        "random-underperforms",
        "Random selection is less accurate than entropy selection in all three experiments (mean accuracy over the "
        "rounds)",
        "Remarks, first item",
        judge_larger(area, NOTICED),
        {
            "entropy - random, mean accuracy": describe_differences(area),
            **show_exploring(
                "entropy+eps-greedy - random, mean accuracy",
                lambda found: judge_larger(found, NOTICED),
                compare(histories, GREEDY, RANDOM, "mean_accuracy"),
            ),
            "entropy - round-robin, mean accuracy": describe_differences(control),
            f"random - entropy, rounds to {TARGET} (at least)": describe_differences(sooner),
        },
        rests_on=SETTINGS.values(),
    )


def show_exploring(label: str, judge: Callable[[Any], Judgement], found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the effect with exploration, which the paper's algorithm has (ε = 0.1), and the verdict it would give.

    Args:
      label: what is subtracted from what.
      judge: returns the verdict.
      found: the differences by experiment, or by rival and experiment.
    """
    is_by_rival = any(isinstance(one, Mapping) for one in found.values())
    shown = describe_each(found) if is_by_rival else describe_differences(found)
    return {f"{label}, by which the verdict would be {judge(found).verdict}": shown}


def judge_gradient_norm(histories: Histories) -> list[Claim]:
    """Returns the verdicts on gradient norm: its accuracy at the end, and its rounds to the target."""
    end = compare(histories, GRADIENT, ENTROPY, "final_accuracy")
    mean = compare(histories, GRADIENT, ENTROPY, "mean_accuracy")
    other = judge(ask_comparable(COMPARABLE), mean).verdict
    faster = compare(histories, GRADIENT, ENTROPY, f"rounds_to_{TARGET}")
    return [
        make_claim(
            "gradient-norm-comparable",
            "Gradient norm-based selection is about as accurate as entropy selection (final accuracy within "
            f"±{COMPARABLE})",
            "Remarks, second item",
            judge(ask_comparable(COMPARABLE), end),
            {
                "gradient norm - entropy, final accuracy": describe_differences(end),
                "by mean accuracy over the rounds, in which speed counts, the verdict "
                f"would be {other}": describe_differences(mean),
                **show_exploring(
                    "gradient norm - entropy+eps-greedy, final accuracy",
                    lambda found: judge(ask_comparable(COMPARABLE), found),
                    compare(histories, GRADIENT, GREEDY, "final_accuracy"),
                ),
            },
            rests_on=SETTINGS.values(),
        ),
        make_claim(
            "entropy-faster-than-gradient-norm",
            f"Entropy selection converges faster than gradient norm-based selection (rounds to accuracy {TARGET})",
            "Remarks, second item",
            judge_larger(faster, 1.0),
            {
                f"gradient norm - entropy, rounds to {TARGET}": describe_differences(faster),
                **show_exploring(
                    f"gradient norm - entropy+eps-greedy, rounds to {TARGET}",
                    lambda found: judge_larger(found, 1.0),
                    compare(histories, GRADIENT, GREEDY, f"rounds_to_{TARGET}"),
                ),
            },
            rests_on=SETTINGS.values(),
        ),
    ]


def judge_superior(histories: Histories) -> Claim:
    """Returns the verdict on entropy against each of the paper's rivals."""

    def compare_each(method: str, metric: str) -> dict[str, dict[str, Difference]]:
        return {rival: compare(histories, method, rival, metric) for rival in (RANDOM, GRADIENT)}

    mean = compare_each(ENTROPY, "mean_accuracy")
    return make_claim(
        "superior-to-each",
        "Entropy selection is more accurate than random selection and than gradient norm-based selection (mean "
        "accuracy over the rounds)",
        "Remarks, second item",
        judge_larger_than_each(mean, NOTICED),
        {
            "entropy, mean accuracy": describe_each(mean),
            "entropy, final accuracy": describe_each(compare_each(ENTROPY, "final_accuracy")),
            **show_exploring(
                "entropy+eps-greedy, mean accuracy",
                lambda found: judge_larger_than_each(found, NOTICED),
                compare_each(GREEDY, "mean_accuracy"),
            ),
        },
        rests_on=SETTINGS.values(),
    )


def judge_exploration(histories: Histories) -> Claim:
    """Returns the verdict on exploring beside entropy."""
    more = compare(histories, GREEDY, ENTROPY, "mean_accuracy")
    return make_claim(
        "exploring-pays",
        "Entropy selection with exploration (ε = 0.1) is more accurate than without (mean accuracy over the rounds)",
        "ours: the source does not rank its two variants",
        judge_larger(more, NOTICED),
        {"entropy+eps-greedy - entropy, mean accuracy": describe_differences(more)},
        rests_on=SETTINGS.values(),
    )


def judge_boundary(histories: Histories) -> Claim:
    """Returns the verdict on whom entropy selects."""
    near = {
        title: measure(title, histories[title, ENTROPY])["boundary_clients_after_first_fifth"]
        for title in SETTINGS.values()
    }
    by_bound = {
        bound: judge(ask_not_smaller(), {title: compare_with(value, bound) for title, value in near.items()})
        for bound in BOUNDS
    }
    return make_claim(
        "top-m-are-boundary",
        "The clients with the highest entropy are the boundary clients (at least 5 of 6 selected clients, averaged "
        "over the rounds after the first fifth; the bound is ours)",
        "Introduction and Experiment 1 (implied): uncertain clients are those near the boundary",
        by_bound[max(BOUNDS)],
        {
            **{title: {"mean": float(np.mean(v)), "lowest seed": float(np.min(v))} for title, v in near.items()},
            "verdict with other bounds": {
                f"{bound:g} of 6 ({found.verdict})": found.effect["pooled"] for bound, found in by_bound.items()
            },
        },
        rests_on=SETTINGS.values(),
    )


def judge_at_equal_cost(histories: Histories, unit: str) -> Claim:
    """Returns the verdict on entropy selection where it may spend only what random selection does."""
    paid = compare_at_equal_cost(histories, unit.lower())
    return make_claim(
        f"ahead-at-equal-{unit.lower().replace(' ', '-')}",
        f"Entropy selection is also ahead of random selection at equal {READ.get(unit, unit)}, including the cost of "
        "selection (its accuracy when it has spent what random selection spends in the whole run)",
        SOURCES[unit],
        judge_larger(paid, NOTICED),
        {f"entropy - random at equal {unit}": describe_differences(paid)},
        rests_on=SETTINGS.values(),
    )


def judge_long_runs(histories: Histories, unit: str) -> Claim:
    """Returns the verdict where random selection may spend what entropy selection does."""
    over = compare_paid(histories, ENTROPY, RANDOM, unit.lower(), payer=ENTROPY)
    metric, saved = f"{unit.lower()}_to_{TARGET}", {}
    for setting, title in SETTINGS.items():
        keys = {"random": (name_experiment(setting, LONG), RANDOM), "entropy": (title, ENTROPY)}
        needed = {name: measure(key[0], histories[key])[metric] for name, key in keys.items()}
        saved[title] = {name: float(np.median(value) / 1e6) for name, value in needed.items()}
    return make_claim(
        f"ahead-at-entropys-{unit.lower()}",
        "Entropy selection is also ahead of random selection if random selection continues until it has spent as many "
        f"{READ.get(unit, unit)} as entropy selection spends in the whole run (final accuracy)",
        SOURCES[unit],
        judge_larger(over, NOTICED),
        {
            f"entropy - random at entropy's {unit}": describe_differences(over),
            f"median millions of {unit} to {TARGET}": saved,
        },
        rests_on=[*SETTINGS.values(), *(name_experiment(setting, LONG) for setting in SETTINGS)],
    )


def judge_everybody(histories: Histories) -> Claim:
    """Returns the verdict on entropy selection against all clients."""
    paid = compare_paid(histories, ENTROPY, EVERYBODY, "flops", payer=ENTROPY)
    rounds = compare(histories, ENTROPY, EVERYBODY, "final_accuracy")
    return make_claim(
        "ahead-of-all-clients-at-equal-flops",
        "Entropy selection is ahead of training all clients at equal FLOPs (its final accuracy against that of all "
        "clients when they have spent as many)",
        COSTS,
        judge_larger(paid, NOTICED),
        {
            "entropy - all clients at entropy's FLOPs": describe_differences(paid),
            "entropy - all clients after equally many rounds": describe_differences(rounds),
        },
        rests_on=SETTINGS.values(),
    )


def judge_fraction(histories: Histories) -> list[Claim]:
    """Returns the verdicts on what the boundary clients contribute: without the others, and the others without them."""
    measures = {"final_accuracy": "final accuracy", "mean_accuracy": "mean accuracy over the rounds"}
    alone = {metric: compare_parts(histories, ALONE, "", metric) for metric in measures}
    more = {metric: compare_parts(histories, "", OTHERS, metric) for metric in measures}
    rests_on = [name_experiment(setting, part) for setting in SETTINGS for part in ("", ALONE, OTHERS)]

    def show(label: str, found: Mapping[str, Mapping[str, Difference]]) -> dict[str, Any]:
        return {f"{label}, {words}": describe_differences(found[metric]) for metric, words in measures.items()}

    return [
        make_claim(
            "boundary-clients-suffice",
            "Trained on the boundary clients alone, the model is at least as accurate as trained on all clients for as "
            f"many rounds (final accuracy, at most {NOTICED} lower)",
            "Introduction: 'only a fraction of clients ... contribute significantly to the learning of decision "
            "boundary'",
            judge(ask_not_below(NOTICED), alone["final_accuracy"]),
            show("boundary clients alone - all clients", alone),
            rests_on=rests_on,
        ),
        make_claim(
            "boundary-clients-contribute",
            "Trained on all clients but those at the boundary, the model is less accurate than trained on all clients "
            "for as many rounds (final accuracy)",
            "Introduction: 'contribute significantly'",
            judge_larger(more["final_accuracy"], NOTICED),
            show("all clients - all but those at the boundary", more),
            rests_on=rests_on,
        ),
    ]


def judge_linear(histories: Histories) -> Claim:
    """Returns the verdict on random selection where the model is linear, and can learn the boundary or nearly."""

    def compare_all(other: str, variations: Iterable[str]) -> dict[str, Difference]:
        return {
            f"{title}, {name}": d
            for name in variations
            for title, d in compare(histories, ENTROPY, other, "mean_accuracy", name).items()
        }

    def average(method: str, variation: str) -> float:
        names = [name_experiment(setting, variation) for setting in SETTINGS]
        return float(np.mean([measure(name, histories[name, method])["final_accuracy"] for name in names]))

    found = compare_all(RANDOM, STRAIGHTER)
    return make_claim(
        "random-underperforms-linear",
        "With logistic regression, too, random selection is less accurate than entropy selection in all three "
        "experiments if the boundary is a straight line (amplitude 0) or nearly one (0.125; mean accuracy over the "
        "rounds)",
        "ours: the source names no model",
        judge_larger(found, NOTICED),
        {
            "entropy - random, mean accuracy": describe_differences(found),
            "entropy - gradient norm, mean accuracy": describe_differences(compare_all(GRADIENT, STRAIGHTER)),
            "not judged: entropy - random, mean accuracy": describe_differences(compare_all(RANDOM, [LINEAR])),
            **{
                f"final accuracy at amplitude {a:g}": {
                    "best straight line": measure_best_line(Shape(amplitude=a)),
                    "entropy": average(ENTROPY, name),
                    "random": average(RANDOM, name),
                }
                for name, a in LINES.items()
            },
        },
        rests_on=found,
    )
