"""Verdicts on what FedFT-EDS says about efficiency and ρ, and on what its entropy ranks by."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.fedft_eds.cells import find_studied, list_compared
from fedjax_sel.papers.fedft_eds.comparisons import (
    NOTICED,
    compare,
    find_best_accuracy,
    keep_seeded,
    list_few_experiments,
)
from fedjax_sel.papers.fedft_eds.methods import (
    ALPHAS,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    MARGIN,
    RDS,
    RDS50,
    RHOS,
    STRONG,
    WEAK,
    name_ablation,
    name_fedavg,
    name_few,
    name_five_epochs,
    name_many,
)
from fedjax_sel.papers.fedft_eds.numbers import EARLY, measure
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_larger,
    ask_not_below,
    compare_with,
    describe_differences,
    describe_each,
    judge,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Histories


def judge_efficiency(scale: str, histories: Histories, seconds: Mapping[str, Any]) -> Claim:
    """Returns the claim on learning efficiency: best accuracy divided by client training seconds.

    Args:
      scale, histories: of the reproduction.
      seconds: measured seconds of the simulator's rounds, by method.
    """
    simulated: dict[str, dict[str, Difference]] = {FEDAVG: {}, FEDPROX: {}}
    measured = {}
    names = []
    for n, a in itertools.product(list_compared(scale), (STRONG, WEAK)):
        longer = name_five_epochs(n, a)
        name = longer if (longer, EDS) in histories else name_few(n, a)
        for method in (FEDAVG, FEDPROX):
            if (name, method) not in histories:
                continue
            names.append(name)
            mine, theirs = (measure(histories[name, m])["efficiency"] for m in (EDS, method))
            simulated[method][name] = compare_with(mine / theirs, 3.0)
    for method in (FEDAVG, FEDPROX):
        if method in seconds:
            name = name_few(find_studied(scale), STRONG)
            gained = float(
                np.mean(find_best_accuracy(histories, name, EDS)) / np.mean(find_best_accuracy(histories, name, method))
            )
            measured[method] = gained * float(np.median(seconds[method]) / np.median(seconds[EDS]))
    return make_claim(
        "three-times-the-efficiency",
        "FedFT-EDS (10 %) has at least three times the learning efficiency of FedAvg and FedProx (simulated, with "
        "five local epochs if these were run)",
        "Fig. 6, section IV-D",
        judge_larger_than_each(simulated),
        {
            "efficiency of FedFT-EDS / of the other method, minus 3": describe_each(simulated),
            "ratio by measured seconds of the simulator": measured,
        },
        rests_on=dict.fromkeys(names),
    )


def judge_other_efficiency(scale: str, histories: Histories) -> list[Claim]:
    """Returns the source's claims on learning efficiency beyond those on FedAvg and FedProx."""

    def relate(first: str, second: str, names: Iterable[str]) -> dict[str, Difference]:
        there = [name for name in names if {(name, first), (name, second)} <= histories.keys()]
        values = {
            name: [measure(histories[name, method])["efficiency"] for method in (first, second)] for name in there
        }
        return {name: compare_with(mine / theirs, 1.0) for name, (mine, theirs) in values.items()}

    every = list_compared(scale)
    few = [name_few(n, a) for n, a in itertools.product(every, (STRONG, WEAK))]
    many = [name_many(n, a) for n, a in itertools.product(every, (STRONG, WEAK))]
    random, chance, stragglers = (
        relate(FEDAVG_RDS, EDS, few),
        relate(EDS, RDS, many),
        relate(name_fedavg("10 %"), EDS, many),
    )
    asked = (
        (
            "fedavg-rds-is-as-efficient",
            "FedAvg-RDS has about the same learning efficiency as FedFT-EDS (10 %; within a quarter)",
            "section IV-D: 'a close learning efficiency'",
            ask_comparable(0.25),
            random,
        ),
        (
            "entropy-costs-little-efficiency",
            "With many clients, FedFT-EDS has at most a fifth less learning efficiency than FedFT-RDS",
            "section IV-E: 'slightly lower'",
            ask_not_below(0.2),
            chance,
        ),
        (
            "few-clients-are-most-efficient",
            "With many clients, FedAvg with a tenth of them has a higher learning efficiency than FedFT-EDS",
            "Fig. 7: 'FedAvg achieves the best learning efficiency with 10% client participation'",
            ask_larger(),
            stragglers,
        ),
    )
    return [
        make_claim(
            name,
            text,
            source,
            judge(question, found),
            {"efficiency of the first method / of the second, minus 1": describe_differences(found)},
            rests_on=found,
        )
        for name, text, source, question, found in asked
        if found
    ]


def judge_early(histories: Histories) -> list[Claim]:
    """Returns the claims on entropy's advantage in the first rounds, alone and compared with that in best accuracy."""
    pairs = {"10 %": (EDS, RDS), "50 %": (EDS50, RDS50)}
    early, more = {}, {}
    for fraction, pair in pairs.items():
        soon = compare(histories, *pair, "accuracy_early")
        best = compare(histories, *pair)
        early |= {f"{name}, {fraction}": d for name, d in soon.items()}
        more |= {
            f"{name}, {fraction}": difference(np.array(d.values), np.array(best[name].values))
            for name, d in soon.items()
        }
    early, more = keep_seeded(early), keep_seeded(more)
    rests_on = list(dict.fromkeys(name.rpartition(", ")[0] for name in early))
    when = f"mean accuracy in the first {EARLY:.0%} of the rounds".replace("%", " %")
    return [
        make_claim(
            "entropy-converges-faster",
            f"Training on examples chosen by entropy (EDS) converges faster than on random ones (RDS): {when}",
            "section IV-F; Fig. 8 and 9",
            judge_larger(early, NOTICED),
            {f"EDS - RDS, {when}": describe_differences(early)},
            rests_on=rests_on,
        ),
        make_claim(
            "entropy-helps-most-early",
            "The advantage of EDS over RDS is larger in the accuracy of the first rounds than in the best accuracy",
            "section IV-F: 'especially on the first few rounds'",
            judge_larger(more, NOTICED),
            {f"EDS - RDS, {when}, minus EDS - RDS, best accuracy": describe_differences(more)},
            rests_on=rests_on,
        ),
    ]


def judge_alpha(histories: Histories) -> list[Claim]:
    """Returns whether entropy's advantage shrinks as the skew decreases; no claims if α was not varied."""
    at = {alpha: name_ablation("α =", f"{alpha:g}") for alpha in ALPHAS}
    if not all((experiment, "EDS") in histories for experiment in at.values()):
        return []
    gains = {
        alpha: find_best_accuracy(histories, experiment, "EDS") - find_best_accuracy(histories, experiment, "RDS")
        for alpha, experiment in at.items()
    }
    strong = np.mean([gain for alpha, gain in gains.items() if alpha <= STRONG], axis=0)
    weak = np.mean([gain for alpha, gain in gains.items() if alpha > STRONG], axis=0)
    shrinks = {"α up to 0.1 minus α from 0.5": difference(strong, weak)}
    return [
        make_claim(
            "entropy-helps-most-under-skew",
            "The advantage of EDS over RDS is larger under strong skew (α up to 0.1) than under weak skew (α from 0.5)",
            "Fig. 10b, section IV-H",
            judge_larger(shrinks, NOTICED),
            {
                "advantage under strong skew - under weak skew, best accuracy": describe_differences(shrinks),
                "EDS - RDS": {at[alpha]: float(gain.mean()) for alpha, gain in gains.items()},
            },
            rests_on=list(at.values()),
        )
    ]


def judge_rho(histories: Histories) -> list[Claim]:
    """Returns the verdicts on ρ."""
    chance = (name_ablation("α =", f"{STRONG:g}"), "RDS")
    above = [name_ablation("ρ =", f"{rho:g}") for rho in RHOS if rho > 1]
    below = [name_ablation("ρ =", f"{rho:g}") for rho in RHOS if rho < 1]
    if chance not in histories:
        return []
    worse = {
        n: difference(find_best_accuracy(histories, *chance), find_best_accuracy(histories, n, "EDS")) for n in above
    }
    better = {
        n: difference(find_best_accuracy(histories, n, "EDS"), find_best_accuracy(histories, *chance)) for n in below
    }
    return [
        make_claim(
            "soft-is-worse-than-chance",
            "With ρ > 1, entropy selection is less accurate than random selection",
            "Fig. 10c, section IV-H",
            judge_larger(worse, NOTICED),
            {"RDS - EDS, best accuracy": describe_differences(worse)},
            rests_on=[chance[0], *above],
        ),
        make_claim(
            "hard-is-better-than-chance",
            "With ρ < 1, entropy selection is more accurate than random selection",
            "Fig. 10c, section IV-H",
            judge_larger(better, NOTICED),
            {"EDS - RDS, best accuracy": describe_differences(better)},
            rests_on=[chance[0], *below],
        ),
    ]


def judge_order(scale: str, histories: Histories, by_rho: Mapping[str, Any]) -> Claim:
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
        judge_larger(same),
        {
            "value - bound": describe_differences(same),
            "rank correlation by ρ": {k: v["correlation"] for k, v in by_rho.items()},
        },
        rests_on=list_few_experiments(scale, histories),
    )


def judge_margin(histories: Histories) -> Claim:
    """Returns our claim on whether selection by margin is as good."""
    accuracy = compare(histories, EDS, MARGIN)
    return make_claim(
        "margin-is-as-good",
        "Choosing examples by margin is as accurate as choosing them by hardened entropy (within 0.02)",
        "ours",
        judge(ask_comparable(0.02), accuracy),
        {"EDS - margin, best accuracy": describe_differences(accuracy)},
        rests_on=accuracy,
    )
