"""Verdicts on FedFT-EDS's ablations, and on other ways to choose examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.differences import compare_with, describe_differences, negate, subtract
from fedjax_sel.papers.fedft_eds.comparisons import compare, find_accuracy, judge_accuracy, judge_advantage
from fedjax_sel.papers.fedft_eds.methods import (
    ALPHAS,
    BATCHES,
    EDS,
    MARGIN,
    PARTS,
    RHOS,
    STRONG,
    name_ablation,
    name_few,
)
from fedjax_sel.papers.fedft_eds.scales import find_studied
from fedjax_sel.papers.judging import ask_comparable, judge, judge_larger_than_each, make_claim
from fedjax_sel.papers.paper import Claim, Histories


def judge_parts(histories: Histories) -> list[Claim]:
    """Returns the claims on how much of the model is trained; none if that was not varied."""
    at = {part: name_ablation("trained:", part) for part in PARTS}
    if not all((name, way) in histories for name in at.values() for way in ("EDS", "RDS")):
        return []

    def subtract_at(first: tuple[str, str], second: tuple[str, str], metric: str) -> Difference:
        return subtract(*(find_accuracy(histories, at[part], way, metric) for part, way in (first, second)))

    def compare_parts(metric: str) -> dict[str, dict[str, Difference]]:
        larger = [part for part in PARTS if part != "classifier"]
        return {
            part: {way: subtract_at(("classifier", way), (part, way), metric) for way in ("EDS", "RDS")}
            for part in larger
        }

    def find_gains(metric: str) -> dict[str, Difference]:
        return {name: subtract_at((part, "EDS"), (part, "RDS"), metric) for part, name in at.items()}

    def compare_gains(metric: str) -> dict[str, Difference]:
        gains = find_gains(metric)
        large, little = (
            np.mean([gains[at[part]].values for part in some], axis=0)
            for some in (("full", "large"), ("moderate", "classifier"))
        )
        return {"full and large - moderate and classifier": difference(large, little)}

    return [
        make_claim(
            "classifier-alone-is-best",
            "Training the classifier alone is more accurate than training any larger part",
            "Fig. 10a, section IV-H, of pretraining in 'very similar' domains",
            *judge_advantage("classifier - larger part", compare_parts),
            rests_on=at.values(),
        ),
        make_claim(
            "entropy-beats-chance-whatever-is-trained",
            "EDS is more accurate than RDS whatever part of the model is trained",
            "Fig. 10a, section IV-H: 'In all scenarios'",
            *judge_advantage("EDS - RDS", find_gains),
            rests_on=at.values(),
        ),
        make_claim(
            "entropy-helps-most-with-most-trained",
            "The advantage of EDS over RDS is larger if all or a large part of the model is trained than if less is",
            "section IV-H: 'the gap increases with more trainable layers'",
            *judge_advantage("difference of the advantages", compare_gains),
            rests_on=at.values(),
        ),
    ]


def judge_alpha(histories: Histories) -> list[Claim]:
    """Returns the claims on entropy's advantage from α = 0.05 on; none if α was not varied.

    At α = 0.01, where a client has about one class, no method is in the fair regime.
    """
    at = {alpha: name_ablation("α =", f"{alpha:g}") for alpha in ALPHAS if alpha > ALPHAS[0]}
    if not all((name, way) in histories for name in at.values() for way in ("EDS", "RDS")):
        return []

    def find_gains(metric: str) -> dict[str, Difference]:
        return {
            name: subtract(*(find_accuracy(histories, name, way, metric) for way in ("EDS", "RDS")))
            for name in at.values()
        }

    def compare_gains(metric: str) -> dict[str, Difference]:
        gains = find_gains(metric)
        strong, weak = (
            np.mean([gains[name].values for alpha, name in at.items() if (alpha <= STRONG) == is_strong], axis=0)
            for is_strong in (True, False)
        )
        return {"α of 0.05 and 0.1 - α of 0.5 and 1": difference(strong, weak)}

    return [
        make_claim(
            "entropy-beats-chance-under-any-skew",
            "EDS is more accurate than RDS at every α from 0.05 to 1",
            "Fig. 10b, section IV-H: 'across all scenarios'",
            *judge_advantage("EDS - RDS", find_gains),
            rests_on=at.values(),
        ),
        make_claim(
            "entropy-helps-most-under-skew",
            "The advantage of EDS over RDS is larger under strong skew (α = 0.05 and 0.1) than under weak skew "
            "(α = 0.5 and 1)",
            "Fig. 10b, section IV-H",
            *judge_advantage("advantage under strong skew - under weak skew", compare_gains),
            rests_on=at.values(),
        ),
    ]


def judge_soft(histories: Histories) -> list[Claim]:
    """Returns the claim on ρ above 1; none if ρ was not varied."""
    names = list_rhos(histories, lambda rho: rho > 1)
    if not names:
        return []

    def compare_by(metric: str) -> dict[str, Difference]:
        found = compare_with_chance(histories, names, metric)
        return {name: negate(d) for name, d in found.items()}

    return [
        make_claim(
            "soft-is-worse-than-chance",
            "With ρ > 1, entropy selection is less accurate than random selection",
            "Fig. 10c, section IV-H",
            *judge_advantage("RDS - EDS", compare_by),
            rests_on=[CHANCE[0], *names],
        )
    ]


def judge_hard(histories: Histories) -> list[Claim]:
    """Returns the claim on ρ below 1; none if ρ was not varied."""
    names = list_rhos(histories, lambda rho: rho < 1)
    if not names:
        return []
    return [
        make_claim(
            "hard-is-better-than-chance",
            "With ρ < 1, entropy selection is more accurate than random selection",
            "Fig. 10c, section IV-H",
            *judge_advantage("EDS - RDS", lambda metric: compare_with_chance(histories, names, metric)),
            rests_on=[CHANCE[0], *names],
        )
    ]


def judge_sharpness(histories: Histories) -> list[Claim]:
    """Returns the claim on ρ below 1 against ρ above 1; none if ρ was not varied to both sides."""
    sharp, soft = list_rhos(histories, lambda rho: rho < 1), list_rhos(histories, lambda rho: rho > 1)
    if not sharp or not soft:
        return []

    def compare_by(metric: str) -> dict[str, Difference]:
        below, above = (
            np.mean([find_accuracy(histories, name, "EDS", metric) for name in names], axis=0)
            for names in (sharp, soft)
        )
        return {"ρ < 1 - ρ > 1, both on average": difference(below, above)}

    return [
        make_claim(
            "sharp-is-better-than-soft",
            "Entropy selection with ρ < 1 is more accurate than with ρ > 1",
            "Fig. 10c, section IV-H",
            *judge_advantage("mean over ρ < 1 - mean over ρ > 1", compare_by),
            rests_on=[*sharp, *soft],
        )
    ]


CHANCE = name_ablation("α =", f"{STRONG:g}"), "RDS"
"""The cell of random selection with which each ρ is compared."""


def list_rhos(histories: Histories, accept: Callable[[float], bool]) -> list[str]:
    """Returns the experiments with such a ρ; none if random selection was not run."""
    return [name_ablation("ρ =", f"{rho:g}") for rho in RHOS if accept(rho)] if CHANCE in histories else []


def compare_with_chance(histories: Histories, names: Iterable[str], metric: str) -> dict[str, Difference]:
    """Returns entropy selection in each experiment minus random selection."""
    random = find_accuracy(histories, *CHANCE, metric)
    return {name: subtract(find_accuracy(histories, name, "EDS", metric), random) for name in names}


def judge_order(scale: str, by_rho: Mapping[str, Any]) -> Claim:
    """Returns our claim on what the hardened entropy ranks by."""
    row = by_rho["0.1"]
    correlation, overlap = np.array(row["correlation"]), np.array(row["overlap"])
    same = {
        "rank correlation above 0.99": compare_with(correlation, 0.99),
        "overlap of the chosen tenth above 0.9": compare_with(overlap, 0.9),
    }
    return make_claim(
        "hardened-entropy-is-the-margin",
        "At ρ = 0.1, examples have the same order by entropy as by margin (rank correlation above 0.99, overlap of "
        "the chosen tenth above 0.9)",
        "ours: it holds in the limit of ρ to 0",
        judge_larger_than_each({what: {what: d} for what, d in same.items()}),
        {
            "value - bound": describe_differences(same),
            "rank correlation by ρ": {k: v["correlation"] for k, v in by_rho.items()},
        },
        rests_on=[name_few(find_studied(scale), STRONG)],
    )


def judge_margin(histories: Histories) -> Claim:
    """Returns our claim on whether selection by margin is as good."""
    return make_claim(
        "margin-is-as-good",
        "Choosing examples by margin is as accurate as choosing them by hardened entropy (within 0.02)",
        "ours",
        *judge_accuracy(
            "EDS - margin",
            lambda found: judge(ask_comparable(0.02), found),
            lambda metric: compare(histories, EDS, MARGIN, metric),
        ),
        rests_on=compare(histories, EDS, MARGIN),
    )


def judge_batches(histories: Histories) -> Claim:
    """Returns the claim on choosing single examples against choosing batches."""
    return make_claim(
        "examples-beat-batches",
        "Choosing single examples by entropy is more accurate than choosing batches of high entropy, as FedAvg-BE does",
        "section II: 'batch level entropy masks the utility of individual samples'",
        *judge_advantage("EDS - high-entropy batches", lambda metric: compare(histories, EDS, BATCHES, metric)),
        rests_on=compare(histories, EDS, BATCHES),
    )
