"""What FedFT-EDS says of itself, and what one should ask of it, judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, all_of, difference
from fedjax_sel.metrics.verdict import REPRODUCED, UNDECIDED
from fedjax_sel.papers.fedft_eds.cells import (
    ALL,
    CENTRAL,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    MARGIN,
    PARTS,
    RDS,
    RDS50,
    RHOS,
    SCRATCH,
    STRONG,
    WEAK,
    name_ablation,
    name_few,
    name_fedavg,
    name_many,
    list_targets,
)
from fedjax_sel.papers.fedft_eds.numbers import measure
from fedjax_sel.papers.paper import Claim, Evidence, Histories

NOTICED = 0.005
"""A smaller advantage in accuracy would be noticed by nobody."""

FULL_MODEL = (FEDAVG, FEDAVG_RDS, FEDPROX, FEDPROX_RDS)


def claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Rows, pretraining, parts, stragglers, efficiency, ρ, what entropy selection is; those whose cells were run."""
    histories = evidence.histories
    return [
        *on_rows(histories),
        *on_pretraining(scale, evidence),
        *on_parts(scale, histories),
        *on_efficiency(scale, evidence),
        *on_rho(histories),
        *on_margin(scale, evidence),
    ]


def best(histories: Histories, experiment: str, method: str) -> np.ndarray:
    """Best accuracy a seed, as the source reports it."""
    return measure(histories[experiment, method])["best_accuracy"]


def experiments(histories: Histories, *methods: str) -> list[str]:
    """In which all of these were run."""
    names = dict.fromkeys(experiment for experiment, _ in histories)
    return [name for name in names if all((name, method) in histories for method in methods)]


def pairs(histories: Histories, first: str, second: str) -> dict[str, Difference]:
    """First minus second, wherever both were run."""
    return {
        name: difference(best(histories, name, first), best(histories, name, second))
        for name in experiments(histories, first, second)
    }


def numbers(differences: Mapping[str, Difference]) -> dict[str, Any]:
    """Differences as a claim's statistic."""
    return {name: {**vars(d)} for name, d in differences.items()}


def judged(differences: Mapping[str, Difference], negligible: float = NOTICED) -> str:
    """Verdict on "the first is larger in all of them"; undecided where there are none."""
    return all_of([d.larger(negligible) for d in differences.values()])


def on_rows(histories: Histories) -> list[Claim]:
    """Entropy against chance, and half of the rows against all."""
    over = {f"{n}, 10 %": d for n, d in pairs(histories, EDS, RDS).items()}
    over |= {f"{n}, 50 %": d for n, d in pairs(histories, EDS50, RDS50).items()}
    pooled = np.array([d.mean for d in over.values()])
    half = pairs(histories, EDS50, ALL)
    return [
        Claim(
            "entropy-beats-chance",
            "Rows chosen by entropy (EDS) beat random ones (RDS) at equal P_ds, in every experiment",
            "Tables II to IV",
            judged(over),
            {
                "EDS - RDS, best accuracy": numbers(over),
                "mean over experiments": float(pooled.mean()) if len(pooled) else None,
            },
        ),
        Claim(
            "half-beats-all",
            "Half of the rows, chosen by entropy, beat all of them",
            "Table III, section IV-E",
            judged(half),
            {"EDS 50 % - all rows, best accuracy": numbers(half)},
        ),
    ]


def on_pretraining(scale: str, evidence: Evidence) -> list[Claim]:
    """Accuracy and alikeness of clients' models."""
    histories, study = evidence.histories, evidence.studies["alike"]
    gain = pairs(histories, FEDAVG, SCRATCH)
    cka = {}
    for name, row in study["cells"].items():
        if name.startswith(f"{FEDAVG}, "):
            scratch = study["cells"][name.replace(FEDAVG, SCRATCH, 1)]
            for i, level in enumerate(study["levels"]):
                mine, theirs = (np.array(r["mean"])[:, i] for r in (row, scratch))
                cka[f"{name.removeprefix(f'{FEDAVG}, ')}, {level}"] = difference(mine, theirs)
    out = [
        Claim(
            "pretraining-raises-accuracy",
            "FedAvg that begins pretrained beats FedAvg from scratch, in every experiment",
            "Tables I to IV",
            judged(gain),
            {"pretrained - scratch, best accuracy": numbers(gain)},
        ),
        Claim(
            "pretraining-raises-alikeness",
            "After a round of local training, clients' models are more alike (CKA) where they began pretrained",
            "Fig. 2 to 4",
            judged(cka, 0.0),
            {"pretrained - scratch, mean CKA over pairs": numbers(cka)},
        ),
    ]
    more = {}
    for name in list_targets(scale):
        if name_few(name, STRONG) in gain and name_few(name, WEAK) in gain:
            by_alpha = [
                best(histories, name_few(name, alpha), FEDAVG) - best(histories, name_few(name, alpha), SCRATCH)
                for alpha in (STRONG, WEAK)
            ]
            more[name] = difference(*by_alpha)
    if more:
        out.append(
            Claim(
                "pretraining-helps-most-under-skew",
                "Pretraining gains more under strong skew (α = 0.1) than under weak (α = 0.5)",
                "Table I, section IV-B: 8 against 2 points",
                judged(more),
                {"gain at α = 0.1 - gain at α = 0.5": numbers(more)},
            )
        )
    return out


def on_parts(scale: str, histories: Histories) -> list[Claim]:
    """Partial training against the whole model."""
    over = {
        f"{name}, over {method}": d
        for method in FULL_MODEL
        for name, d in pairs(histories, EDS, method).items()
        if name in {name_few(n, a) for n in list_targets(scale) for a in (STRONG, WEAK)}
    }
    out = [
        Claim(
            "partial-training-beats-whole",
            "FedFT-EDS with 10 % of the rows beats FedAvg and FedProx on the whole model, with all rows or 10 %",
            "Table II, section IV-C",
            judged(over),
            {"FedFT-EDS - baseline, best accuracy": numbers(over)},
        )
    ]
    short = {
        f"{many(name, alpha)}, {fraction} of FedAvg's clients": difference(
            best(histories, name_many(name, alpha), EDS), best(histories, name_many(name, alpha), name_fedavg(fraction))
        )
        for name in list_targets(scale)
        for alpha in (STRONG, WEAK)
        for fraction in ("full", "20 %", "10 %")
        if (name_many(name, alpha), name_fedavg(fraction)) in histories
    }
    if short:
        out.append(
            Claim(
                "beats-stragglers",
                "FedFT-EDS (10 %) with all clients beats FedAvg with all, a fifth, and a tenth of them",
                "Table III, section IV-E",
                judged(short),
                {"FedFT-EDS - FedAvg, best accuracy": numbers(short)},
            )
        )
    closed = closing(scale, histories)
    if closed:
        gaps = pairs(histories, CENTRAL, FEDAVG)
        there = all(gaps[name].larger() == REPRODUCED for name in closed)
        out.append(
            Claim(
                "closes-the-gap",
                "Partial training and entropy close 30 % or more of the gap from FedAvg to training in one place",
                "section IV-C: '30 % to 75 %'; its own table gives 38 % to 79 %",
                judged(closed, 0.0) if there else UNDECIDED,
                {"gain - 0.3 of the gap": numbers(closed), "gap": numbers({name: gaps[name] for name in closed})},
            )
        )
    parts = {
        f"classifier - {part}, {way}": difference(
            best(histories, name_ablation("trained:", "classifier"), way),
            best(histories, name_ablation("trained:", part), way),
        )
        for part in PARTS
        for way in ("EDS", "RDS")
        if part != "classifier" and (name_ablation("trained:", part), way) in histories
    }
    if parts:
        out.append(
            Claim(
                "classifier-alone-is-best",
                "Training the classifier alone is better than training any larger part",
                "Fig. 10a, section IV-H",
                judged(parts),
                {"best accuracy": numbers(parts)},
            )
        )
    return out


def closing(scale: str, histories: Histories) -> dict[str, Difference]:
    """What FedFT-EDS gains on FedAvg, minus 0.3 of what training in one place does."""
    out = {}
    for name in list_targets(scale):
        for alpha in (STRONG, WEAK):
            at = name_few(name, alpha)
            if (at, CENTRAL) in histories:
                base = best(histories, at, FEDAVG)
                out[at] = difference(
                    best(histories, at, EDS) - base, 0.3 * (best(histories, at, CENTRAL)[: len(base)] - base)
                )
    return out


def on_efficiency(scale: str, evidence: Evidence) -> list[Claim]:
    """Best accuracy over client training seconds."""
    histories, seconds = evidence.histories, evidence.studies["time"]["seconds"]
    simulated, measured = {}, {}
    for name in [name_few(n, a) for n in list_targets(scale) for a in (STRONG, WEAK)]:
        for method in (FEDAVG, FEDPROX):
            if (name, method) not in histories:
                continue
            mine, theirs = (measure(histories[name, m])["efficiency"] for m in (EDS, method))
            simulated[f"{name}, over {method}"] = difference(mine / theirs, np.full_like(mine, 3.0))
    for method in (FEDAVG, FEDPROX):
        if method in seconds:
            name = name_few(list_targets(scale)[0], STRONG)
            gained = float(np.mean(best(histories, name, EDS)) / np.mean(best(histories, name, method)))
            measured[method] = gained * float(np.median(seconds[method]) / np.median(seconds[EDS]))
    return [
        Claim(
            "three-times-the-efficiency",
            "FedFT-EDS (10 %) has at least three times the learning efficiency of FedAvg and FedProx (simulated)",
            "Fig. 6, section IV-D",
            judged(simulated, 0.0),
            {"ratio - 3": numbers(simulated), "ratio by measured seconds of the simulator": measured},
        )
    ]


def on_rho(histories: Histories) -> list[Claim]:
    """The ablation of ρ."""
    chance = (name_ablation("α =", f"{STRONG:g}"), "RDS")
    above = [name_ablation("ρ =", f"{rho:g}") for rho in RHOS if rho > 1]
    below = [name_ablation("ρ =", f"{rho:g}") for rho in RHOS if rho < 1]
    if chance not in histories:
        return []
    worse = {n: difference(best(histories, *chance), best(histories, n, "EDS")) for n in above}
    better = {n: difference(best(histories, n, "EDS"), best(histories, *chance)) for n in below}
    return [
        Claim(
            "soft-is-worse-than-chance",
            "With ρ > 1 entropy selection is worse than random selection",
            "Fig. 10c, section IV-H",
            judged(worse),
            {"RDS - EDS, best accuracy": numbers(worse)},
        ),
        Claim(
            "hard-is-better-than-chance",
            "With ρ < 1 entropy selection is better than random selection",
            "Fig. 10c, section IV-H",
            judged(better),
            {"EDS - RDS, best accuracy": numbers(better)},
        ),
    ]


def on_margin(scale: str, evidence: Evidence) -> list[Claim]:
    """Ours: what the hardened entropy ranks by."""
    row = evidence.studies["entropies"]["rho"]["0.1"]
    correlation, overlap = np.array(row["correlation"]), np.array(row["overlap"])
    same = {
        "rank correlation above 0.99": difference(correlation, np.full_like(correlation, 0.99)),
        "overlap of the chosen tenth above 0.9": difference(overlap, np.full_like(overlap, 0.9)),
    }
    accuracy = pairs(evidence.histories, EDS, MARGIN)
    out = [
        Claim(
            "hardened-entropy-is-the-margin",
            "At ρ = 0.1 the order of rows by entropy is that by margin (rank correlation above 0.99, overlap of the "
            "chosen tenth above 0.9)",
            "ours: the limit of ρ to 0",
            judged(same, 0.0),
            {"minus the bound": numbers(same), "by ρ": {k: v["correlation"] for k, v in examples_of(evidence).items()}},
        )
    ]
    if accuracy:
        out.append(
            Claim(
                "margin-is-as-good",
                "Choosing by margin is as accurate as by hardened entropy (within 0.02)",
                "ours",
                all_of([d.comparable(0.02) for d in accuracy.values()]),
                {"EDS - margin, best accuracy": numbers(accuracy)},
            )
        )
    return out


def examples_of(evidence: Evidence) -> Mapping[str, Any]:
    """What the study of entropies found, by ρ."""
    return evidence.studies["entropies"]["rho"]
