"""Verdicts on what FedFT-EDS says about itself, and on what else should be asked about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.metrics.verdict import REPRODUCED, UNDECIDED
from fedjax_sel.papers.fedft_eds.cells import list_compared, list_targets
from fedjax_sel.papers.fedft_eds.comparisons import (
    NOTICED,
    compare,
    find_best_accuracy,
    keep_seeded,
    list_few_experiments,
)
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    CENTRAL,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    FRACTIONS,
    PARTS,
    RDS,
    RDS50,
    SCRATCH,
    STRONG,
    WEAK,
    name_ablation,
    name_fedavg,
    name_few,
    name_many,
)
from fedjax_sel.papers.fedft_eds.more_claims import (
    judge_alpha,
    judge_early,
    judge_efficiency,
    judge_margin,
    judge_order,
    judge_other_efficiency,
    judge_rho,
)
from fedjax_sel.papers.judging import (
    describe_differences,
    describe_each,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

FULL_MODEL = (FEDAVG, FEDAVG_RDS, FEDPROX, FEDPROX_RDS)


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims on examples, pretraining, parts, efficiency, ρ and the margin whose cells were run."""
    histories, studies = evidence.histories, evidence.studies
    return join(
        lambda: [judge_entropy(histories)],
        lambda: judge_early(histories),
        lambda: [judge_half(histories)],
        lambda: [judge_pretraining(histories)],
        lambda: [judge_alikeness(scale, histories, studies["alike"])],
        lambda: [judge_skew(scale, histories)],
        lambda: [judge_partial_training(scale, histories)],
        lambda: [judge_part_alone(histories)],
        lambda: [judge_stragglers(scale, histories)],
        lambda: [judge_gap(scale, histories)],
        lambda: [judge_classifier(histories)],
        lambda: [judge_efficiency(scale, histories, studies["time"]["seconds"])],
        lambda: judge_other_efficiency(scale, histories),
        lambda: judge_alpha(histories),
        lambda: judge_rho(histories),
        lambda: [judge_order(scale, histories, studies["entropies"]["rho"])],
        lambda: [judge_margin(histories)],
    )


def judge_entropy(histories: Histories) -> Claim:
    """Returns the claim on entropy selection against random selection."""
    over = {f"{n}, 10 %": d for n, d in compare(histories, EDS, RDS).items()}
    over |= {f"{n}, 50 %": d for n, d in compare(histories, EDS50, RDS50).items()}
    over = keep_seeded(over)
    return make_claim(
        "entropy-beats-chance",
        "Training on examples chosen by entropy (EDS) is more accurate than on random ones (RDS) at equal P_ds, in "
        "every experiment",
        "Tables II to IV",
        judge_larger(over, NOTICED),
        {
            "EDS - RDS, best accuracy": describe_differences(over),
            "mean over experiments": float(np.mean([d.mean for d in over.values()])),
        },
        rests_on=dict.fromkeys(name.rpartition(", ")[0] for name in over),
    )


def judge_half(histories: Histories) -> Claim:
    """Returns the claim on half of the examples against all of them."""
    half = compare(histories, EDS50, ALL)
    return make_claim(
        "half-beats-all",
        "Training on half of the examples, chosen by entropy, is more accurate than training on all of them",
        "Table III, section IV-E",
        judge_larger(half, NOTICED),
        {"EDS 50 % - all examples, best accuracy": describe_differences(half)},
        rests_on=half,
    )


def judge_pretraining(histories: Histories) -> Claim:
    """Returns the claim on the accuracy gained by pretraining."""
    gain = compare(histories, FEDAVG, SCRATCH)
    return make_claim(
        "pretraining-raises-accuracy",
        "FedAvg is more accurate with a pretrained model than from scratch, in every experiment",
        "Tables I to IV",
        judge_larger(gain, NOTICED),
        {"pretrained - from scratch, best accuracy": describe_differences(gain)},
        rests_on=gain,
    )


def judge_alikeness(scale: str, histories: Histories, study: Mapping[str, Any]) -> Claim:
    """Returns the claim on how similar pretraining makes clients' models."""
    cka = {}
    for name, row in study["cells"].items():
        if name.startswith(f"{FEDAVG}, "):
            scratch = study["cells"][name.replace(FEDAVG, SCRATCH, 1)]
            for i, level in enumerate(study["levels"]):
                mine, theirs = (np.array(r["mean"])[:, i] for r in (row, scratch))
                cka[f"{name.removeprefix(f'{FEDAVG}, ')}, {level}"] = difference(mine, theirs)
    return make_claim(
        "pretraining-raises-alikeness",
        "After a round of local training, clients' models are more similar (CKA) if training begins with a pretrained "
        "model",
        "Fig. 2 to 4",
        judge_larger(cka),
        {"pretrained - from scratch, mean CKA over pairs": describe_differences(cka)},
        rests_on=list_few_experiments(scale, histories),
    )


def judge_skew(scale: str, histories: Histories) -> Claim:
    """Returns the claim on the gain by pretraining under strong skew, compared with weak skew."""
    gain, more = compare(histories, FEDAVG, SCRATCH), {}
    for name in list_compared(scale):
        if name_few(name, STRONG) in gain and name_few(name, WEAK) in gain:
            by_alpha = [
                find_best_accuracy(histories, name_few(name, alpha), FEDAVG)
                - find_best_accuracy(histories, name_few(name, alpha), SCRATCH)
                for alpha in (STRONG, WEAK)
            ]
            more[name] = difference(*by_alpha)
    return make_claim(
        "pretraining-helps-most-under-skew",
        "Pretraining gains more accuracy under strong skew (α = 0.1) than under weak skew (α = 0.5)",
        "Table I, section IV-B: 8 against 2 points",
        judge_larger(more, NOTICED),
        {"gain at α = 0.1 - gain at α = 0.5": describe_differences(more)},
        rests_on=list_few_experiments(scale, histories),
    )


def judge_partial_training(scale: str, histories: Histories) -> Claim:
    """Returns the claim on partial training against the whole model."""
    over = {
        method: {
            name: d
            for name, d in compare(histories, EDS, method).items()
            if name in {name_few(n, a) for n in list_compared(scale) for a in (STRONG, WEAK)}
        }
        for method in FULL_MODEL
    }
    return make_claim(
        "partial-training-beats-whole",
        "FedFT-EDS with 10 % of the examples is more accurate than FedAvg and FedProx, which train the whole model on "
        "all examples or on 10 % of them",
        "Table II, section IV-C",
        judge_larger_than_each(over, NOTICED),
        {"FedFT-EDS - baseline, best accuracy": describe_each(over)},
        rests_on=list_few_experiments(scale, histories),
    )


def judge_part_alone(histories: Histories) -> Claim:
    """Returns the claim on partial training against the whole model, both with a random tenth."""
    over = compare(histories, RDS, FEDAVG_RDS)
    return make_claim(
        "partial-training-alone-pays",
        "With a random tenth of the examples, training a part of the model (FedFT-RDS) is more accurate than training "
        "all of it (FedAvg-RDS)",
        "Table II",
        judge_larger(over, NOTICED),
        {"FedFT-RDS - FedAvg-RDS, best accuracy": describe_differences(over)},
        rests_on=over,
    )


def judge_stragglers(scale: str, histories: Histories) -> Claim:
    """Returns the claim on partial training with all clients against the whole model with some of them."""
    short = {
        name_fedavg(fraction): {
            name_many(name, alpha): difference(
                find_best_accuracy(histories, name_many(name, alpha), EDS),
                find_best_accuracy(histories, name_many(name, alpha), name_fedavg(fraction)),
            )
            for name in list_targets(scale)
            for alpha in (STRONG, WEAK)
            if (name_many(name, alpha), name_fedavg(fraction)) in histories
        }
        for fraction in FRACTIONS
    }
    return make_claim(
        "beats-stragglers",
        "FedFT-EDS (10 %) with all clients is more accurate than FedAvg with all, a fifth, and a tenth of the clients",
        "Table III, section IV-E",
        judge_larger_than_each(short, NOTICED),
        {"FedFT-EDS - FedAvg, best accuracy": describe_each(short)},
        rests_on=[
            n
            for n in (name_many(name, alpha) for name in list_targets(scale) for alpha in (STRONG, WEAK))
            if (n, EDS) in histories
        ],
    )


def judge_gap(scale: str, histories: Histories) -> Claim:
    """Returns the claim on how much of the gap to centralised training is closed."""
    closed, gaps = compare_with_gap(scale, histories), compare(histories, CENTRAL, SCRATCH)
    there = judge_larger({name: gaps[name] for name in closed}).verdict == REPRODUCED
    return make_claim(
        "closes-the-gap",
        "Pretraining and partial training (on a random tenth of the examples) together close at least 30 % of the gap "
        "between FedAvg without either and centralised training",
        "section IV-C: '30% to 75%'; the paper's own Table II gives 64 % to 75 %",
        judge_larger(closed) if there else UNDECIDED,
        {
            "gain - 0.3 of the gap": describe_differences(closed),
            "gap": describe_differences({name: gaps[name] for name in closed}),
        },
        rests_on=closed,
    )


def judge_classifier(histories: Histories) -> Claim:
    """Returns the claim on training the classifier alone against larger parts."""
    there = {experiment for experiment, _ in histories}
    parts = {
        part: {
            way: difference(
                find_best_accuracy(histories, name_ablation("trained:", "classifier"), way),
                find_best_accuracy(histories, name_ablation("trained:", part), way),
            )
            for way in ("EDS", "RDS")
            if (name_ablation("trained:", part), way) in histories
        }
        for part in PARTS
        if part != "classifier"
    }
    return make_claim(
        "classifier-alone-is-best",
        "Training the classifier alone is more accurate than training any larger part",
        "Fig. 10a, section IV-H",
        judge_larger_than_each(parts, NOTICED),
        {"classifier - larger part, best accuracy": describe_each(parts)},
        rests_on=[name_ablation("trained:", part) for part in PARTS if name_ablation("trained:", part) in there],
    )


def compare_with_gap(scale: str, histories: Histories) -> dict[str, Difference]:
    """Returns FedFT-RDS's gain over FedAvg from scratch minus 0.3 of the gain of centralised training over it."""
    out = {}
    for name in list_compared(scale):
        for alpha in (STRONG, WEAK):
            at = name_few(name, alpha)
            if (at, CENTRAL) in histories:
                base = find_best_accuracy(histories, at, SCRATCH)
                out[at] = difference(
                    find_best_accuracy(histories, at, RDS)[: len(base)] - base,
                    0.3 * (find_best_accuracy(histories, at, CENTRAL)[: len(base)] - base),
                )
    return out
