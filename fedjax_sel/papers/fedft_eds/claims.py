"""Verdicts on the accuracies of FedFT-EDS: Tables I to IV, and the curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.metrics.verdict import REPRODUCED, UNDECIDED
from fedjax_sel.papers.differences import describe_differences, pair, subtract
from fedjax_sel.papers.fedft_eds.ablation_claims import (
    judge_alpha,
    judge_batches,
    judge_hard,
    judge_margin,
    judge_order,
    judge_parts,
    judge_sharpness,
    judge_soft,
)
from fedjax_sel.papers.fedft_eds.comparisons import (
    NOTICED,
    PAIRS,
    compare,
    compare_all,
    compare_in,
    compare_with_random,
    find_accuracy,
    judge_advantage,
    judge_pairs,
    list_few_experiments,
    name_experiments,
)
from fedjax_sel.papers.fedft_eds.convergence_claims import judge_convergence, judge_early, judge_time
from fedjax_sel.papers.fedft_eds.efficiency_claims import judge_efficiency, judge_other_efficiency
from fedjax_sel.papers.fedft_eds.many_claims import judge_half, judge_many, judge_stragglers
from fedjax_sel.papers.fedft_eds.methods import (
    CENTRAL,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    FROM_CIFAR100,
    LESS,
    RDS,
    SCRATCH,
    SPEECH,
    STRONG,
    WEAK,
    name_few,
    name_many,
)
from fedjax_sel.papers.fedft_eds.part_claims import judge_part_alone, judge_partial_training
from fedjax_sel.papers.fedft_eds.scales import find_studied, list_alphas, list_compared
from fedjax_sel.papers.judging import judge_larger, make_claim, need_rivals
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims on examples, pretraining, parts, efficiency, ρ and the margin whose cells were run."""
    histories, studies = evidence.histories, evidence.studies
    claims = join(
        lambda: [judge_entropy(scale, histories)],
        lambda: [judge_early(scale, histories)],
        lambda: judge_many(scale, histories),
        lambda: judge_half(scale, histories),
        lambda: [judge_pretraining(histories)],
        lambda: judge_sources(histories),
        lambda: judge_speech(scale, histories),
        lambda: judge_alikeness(scale, studies["alike"]),
        lambda: [judge_skew(scale, histories)],
        lambda: judge_partial_training(scale, histories),
        lambda: judge_convergence(scale, histories),
        lambda: [judge_part_alone(histories)],
        lambda: judge_stragglers(scale, histories),
        lambda: judge_bounds(scale, histories),
        lambda: [judge_gap(scale, histories)],
        lambda: judge_parts(histories),
        lambda: [judge_efficiency(scale, histories, studies["time"]["seconds"])],
        lambda: judge_other_efficiency(scale, histories),
        lambda: [judge_time(scale, histories)],
        lambda: judge_alpha(histories),
        lambda: judge_soft(histories),
        lambda: judge_hard(histories),
        lambda: judge_sharpness(histories),
        lambda: [judge_order(scale, studies["entropies"]["rho"])],
        lambda: [judge_margin(histories)],
        lambda: [judge_batches(histories)],
    )
    return [replace(one, lacks=FEW_EXAMPLES[one.id]) if lacks_examples(scale, one) else one for one in claims]


BY_ENTROPY: tuple[str, ...] = (
    "partial-training-beats-whole",
    "partial-training-beats-whole-on-a-tenth",
    "partial-training-converges-faster",
    "three-times-the-efficiency",
    "as-accurate-in-a-third-of-the-time",
    "entropy-beats-chance-whatever-is-trained",
    "entropy-helps-most-with-most-trained",
    "entropy-beats-chance-under-any-skew",
    "entropy-helps-most-under-skew",
    "soft-is-worse-than-chance",
    "hard-is-better-than-chance",
    "sharp-is-better-than-soft",
    "examples-beat-batches",
    "margin-is-as-good",
    "fedavg-rds-is-as-efficient",
    "more-efficient-with-many-clients",
    "scratch-is-the-lower-bound",
    "scratch-converges-slowest",
    "centralised-is-the-upper-bound",
)
"""Claims about choice by entropy whose runs have a part of the examples at `medium`."""

BY_PART: tuple[str, ...] = (
    "random-partial-training-beats-whole",
    "random-partial-training-converges-faster",
    "random-partial-training-beats-whole-on-a-tenth",
    "partial-training-alone-pays",
    "classifier-alone-is-best",
    "closes-the-gap",
)
"""Claims about partial training on random examples whose runs have a part of the examples at `medium`."""

BY_PRETRAINING: tuple[str, ...] = ("pretraining-raises-accuracy", "pretraining-helps-most-under-skew")
"""Claims about the accuracy gained by pretraining, whose runs have a part of the examples at `medium`."""

REASONS = {
    BY_ENTROPY: "training on the hardest is known to be worse (Sorscher et al., 2022)",
    BY_PART: "fewer trained parameters may be an advantage that they are not on all examples",
    BY_PRETRAINING: "a pretrained model may be an advantage that it is not on all examples",
}
FEW_EXAMPLES = {
    one: f"these runs have 10,000 of CIFAR-10's 50,000 examples: where examples are scarce, {why}"
    for names, why in REASONS.items()
    for one in names
}
"""Why claims are not judged by runs with a part of the examples: they may favour one side, whichever it is."""


def lacks_examples(scale: str, claim: Claim) -> bool:
    """Returns whether a claim that few examples may decide rests on runs with a part of them, all of `medium`."""
    return scale == "medium" and claim.id in FEW_EXAMPLES and any(is_part(name) for name in claim.rests_on)


def is_part(experiment: str) -> bool:
    """Returns whether an experiment of `medium` has a part of CIFAR-10's examples."""
    return experiment.startswith((LESS, "ablation"))


def judge_entropy(scale: str, histories: Histories) -> Claim:
    """Returns the claim on entropy selection against random selection."""
    there = compare_with_random(scale, histories)
    claim = make_claim(
        "entropy-beats-chance",
        "Training on examples chosen by entropy (EDS) is more accurate than on as many random ones (RDS), in every "
        "experiment",
        "Tables II and III",
        *judge_advantage("EDS - RDS", lambda metric: compare_with_random(scale, histories, metric)),
        rests_on=name_experiments(there),
    )
    return need_rivals(claim, PAIRS, there)


def judge_pretraining(histories: Histories) -> Claim:
    """Returns the claim on the accuracy gained by pretraining."""
    return make_claim(
        "pretraining-raises-accuracy",
        "FedAvg is more accurate with a pretrained model than from scratch, in every experiment",
        "Tables I to III",
        *judge_advantage("pretrained - from scratch", lambda metric: compare(histories, FEDAVG, SCRATCH, metric)),
        rests_on=compare(histories, FEDAVG, SCRATCH),
    )


def judge_sources(histories: Histories) -> list[Claim]:
    """Returns the claims on the data that the model is pretrained on; none if only one source was run."""
    asked = (
        (
            "pretraining-on-cifar-100-raises-accuracy",
            "FedAvg is more accurate with a model that was pretrained on CIFAR-100 than from scratch",
            "Table I, section IV-B",
            "pretrained on CIFAR-100 - from scratch",
            (FROM_CIFAR100, SCRATCH),
        ),
        (
            "tiny-imagenet-is-the-better-source",
            "FedAvg is more accurate with a model that was pretrained on Tiny-ImageNet (in the source: Small ImageNet) "
            "than with one that was pretrained on CIFAR-100",
            "Table I, section IV-B: 'yields better results'",
            "pretrained on Tiny-ImageNet - on CIFAR-100",
            (FEDAVG, FROM_CIFAR100),
        ),
    )

    def judge_pair(name: str, text: str, source: str, label: str, methods: tuple[str, str]) -> Claim:
        return make_claim(
            name,
            text,
            source,
            *judge_advantage(label, lambda metric: compare(histories, *methods, metric)),
            rests_on=compare(histories, *methods),
        )

    return [judge_pair(*claim) for claim in asked if compare(histories, *claim[-1])]


def judge_speech(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on speech, whose domain is far from that of pretraining; none if it was not run."""
    if scale not in SPEECH or (name_many(SPEECH[scale], STRONG), EDS50) not in histories:
        return []
    name = name_many(SPEECH[scale], STRONG)

    def subtract_from(first: str, second: str, metric: str) -> dict[str, Difference]:
        return {name: subtract(*(find_accuracy(histories, name, method, metric) for method in (first, second)))}

    def judge_gain() -> list[Claim]:
        return [
            make_claim(
                "pretraining-raises-accuracy-on-speech",
                "On speech, FedAvg is more accurate with a model that was pretrained on images than from scratch",
                "Table IV, section IV-G: 'over 14%'",
                *judge_advantage("pretrained - from scratch", lambda metric: subtract_from(FEDAVG, SCRATCH, metric)),
                rests_on=[name],
            )
        ]

    def judge_choice() -> list[Claim]:
        return [
            make_claim(
                "entropy-beats-chance-on-speech",
                "On speech, training on examples chosen by entropy (EDS) is more accurate than training on as many "
                "random ones (RDS)",
                "Table IV, section IV-G: by 4 points at 50 %",
                *judge_advantage(
                    "EDS - RDS",
                    lambda metric: {rival: subtract_from(*pair, metric) for rival, pair in PAIRS.items()},
                ),
                rests_on=[name],
            )
        ]

    return join(judge_gain, judge_choice)


def judge_alikeness(scale: str, study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims on how similar pretraining makes clients' models, and under which skew most."""

    def compare_levels(alpha: float) -> dict[str, Difference]:
        mine, theirs = (np.array(study["cells"][f"{m}, α = {alpha:g}"]["mean"]) for m in (FEDAVG, SCRATCH))
        return {level: difference(mine[:, i], theirs[:, i]) for i, level in enumerate(study["levels"])}

    alphas = list_alphas(scale)
    gaps = {alpha: compare_levels(alpha) for alpha in alphas}
    cka = {f"α = {alpha:g}, {level}": gap for alpha, by_level in gaps.items() for level, gap in by_level.items()}
    rests_on = [name_few(find_studied(scale), alpha) for alpha in alphas]
    claims = [
        make_claim(
            "pretraining-raises-alikeness",
            "After a round of local training, clients' models are more similar (CKA) if training begins with a "
            "pretrained model",
            "Fig. 2 to 4",
            judge_larger(cka),
            {"pretrained - from scratch, mean CKA over pairs": describe_differences(cka)},
            rests_on=rests_on,
        )
    ]
    if {STRONG, WEAK} <= set(alphas):
        strong, weak = gaps[STRONG], gaps[WEAK]
        more = {level: subtract(np.array(d.values), np.array(weak[level].values)) for level, d in strong.items()}
        claims.append(
            make_claim(
                "alikeness-gains-most-under-skew",
                "The gain in similarity (CKA) by pretraining is larger under strong skew (α = 0.1) than under weak "
                "skew (α = 0.5)",
                "section IV-B, Fig. 4: 'more severe'",
                judge_larger(more),
                {"gap at α = 0.1 - gap at α = 0.5, mean CKA over pairs": describe_differences(more)},
                rests_on=rests_on,
            )
        )
    return claims


def judge_skew(scale: str, histories: Histories) -> Claim:
    """Returns the claim on the gain by pretraining under strong skew, compared with weak skew."""
    gain, more = compare(histories, FEDAVG, SCRATCH), {}
    for name in list_compared(scale):
        if name_few(name, STRONG) in gain and name_few(name, WEAK) in gain:
            more[name] = subtract(*(np.array(gain[name_few(name, alpha)].values) for alpha in (STRONG, WEAK)))
    return make_claim(
        "pretraining-helps-most-under-skew",
        "Pretraining gains more accuracy under strong skew (α = 0.1) than under weak skew (α = 0.5)",
        "Table I, section IV-B: 8 against 2 points",
        judge_larger(more, NOTICED),
        {"gain at α = 0.1 - gain at α = 0.5": describe_differences(more)},
        rests_on=[name_few(name, alpha) for name in more for alpha in (STRONG, WEAK)],
    )


def judge_bounds(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims that FedAvg from scratch and centralised training are the bounds of what the methods reach."""
    few = list_few_experiments(scale, histories)
    between = (FEDAVG, FEDPROX, FEDAVG_RDS, FEDPROX_RDS, RDS, EDS)

    def judge_bound(name: str, text: str, pairs: Mapping[str, tuple[str, str]], label: str) -> list[Claim]:
        source = "section IV-C: 'the lower and the upper bound of performance'"
        return judge_pairs(
            name, text, source, label, pairs, lambda metric: compare_in(histories, few, pairs, metric), ", ".join
        )

    return join(
        lambda: judge_bound(
            "scratch-is-the-lower-bound",
            "FedAvg without pretraining is less accurate than every other method ({})",
            {method: (method, SCRATCH) for method in between},
            "the other method - FedAvg without pretraining",
        ),
        lambda: judge_bound(
            "centralised-is-the-upper-bound",
            "Centralised training is more accurate than every other method ({})",
            {method: (CENTRAL, method) for method in (SCRATCH, *between)},
            "centralised training - the other method",
        ),
    )


def judge_gap(scale: str, histories: Histories) -> Claim:
    """Returns the claim on how much of the gap to centralised training is closed."""
    closed, gaps = compare_with_gap(scale, histories), compare_all(histories, CENTRAL, SCRATCH)
    there = judge_larger({name: gaps[name] for name in closed}).verdict == REPRODUCED
    return make_claim(
        "closes-the-gap",
        "Pretraining and partial training (on a random tenth of the examples) together close at least 30 % of the gap "
        "between FedAvg without either and centralised training (undecided unless there is such a gap)",
        "section IV-C: '30% to 75%'; the paper's own Table II gives 64 % to 75 %",
        judge_larger(closed) if there else UNDECIDED,
        {
            "gain - 0.3 of the gap": describe_differences(closed),
            "gap": describe_differences({name: gaps[name] for name in closed}),
        },
        rests_on=closed,
    )


def compare_with_gap(scale: str, histories: Histories) -> dict[str, Difference]:
    """Returns FedFT-RDS's gain over FedAvg from scratch minus 0.3 of the gain of centralised training over it."""
    out = {}
    for name in list_compared(scale):
        for alpha in (STRONG, WEAK):
            at = name_few(name, alpha)
            if (at, CENTRAL) in histories:
                base = find_accuracy(histories, at, SCRATCH)
                ours, best = (find_accuracy(histories, at, method) for method in (RDS, CENTRAL))
                out[at] = subtract(np.subtract(*pair(ours, base)), 0.3 * np.subtract(*pair(best, base)))
    return out
