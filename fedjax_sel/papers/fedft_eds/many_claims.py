"""Verdicts on what FedFT-EDS says of many clients: choice by entropy, halves, and stragglers (Table III, Fig. 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.differences import describe_each
from fedjax_sel.papers.fedft_eds.comparisons import (
    BEST,
    NOTICED,
    PAIRS,
    compare_in,
    judge_advantage,
    judge_pairs,
    list_many_experiments,
    name_experiments,
)
from fedjax_sel.papers.fedft_eds.convergence_claims import WHEN, judge_faster
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    EDS,
    EDS50,
    FEDAVG,
    RDS,
    RDS50,
    STRONG,
    WEAK,
    name_fedavg,
    name_many,
)
from fedjax_sel.papers.fedft_eds.scales import list_targets
from fedjax_sel.papers.judging import judge_larger_than_each, make_claim, need_rivals
from fedjax_sel.papers.paper import Claim, Histories, join, need


def judge_many(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on choice by entropy among many clients: best accuracy, the first rounds, and both."""

    def compare_there(metric: str) -> dict[str, dict[str, Difference]]:
        return need(compare_in(histories, list_many_experiments(scale), PAIRS, metric))

    def judge_accuracy() -> list[Claim]:
        there = compare_there(BEST)
        claim = make_claim(
            "entropy-beats-chance-with-many-clients",
            "With many clients, training on examples chosen by entropy (EDS) is more accurate than on as many random "
            "ones (RDS)",
            "Fig. 9: 'outperforms FedFT-RDS significantly in convergence and top test accuracy'",
            *judge_advantage("EDS - RDS", compare_there),
            rests_on=name_experiments(there),
        )
        return [need_rivals(claim, PAIRS, there)]

    def judge_convergence() -> list[Claim]:
        return [
            judge_faster(
                "entropy-converges-faster-with-many-clients",
                "With many clients, training on examples chosen by entropy (EDS) converges faster than on as many "
                "random ones (RDS)",
                "Fig. 9: 'outperforms FedFT-RDS significantly in convergence'",
                "EDS - RDS",
                PAIRS,
                compare_there("accuracy_early"),
            )
        ]

    def judge_early() -> list[Claim]:
        early, best = compare_there("accuracy_early"), compare_there(BEST)
        more = {
            rival: {name: difference(np.array(d.values), np.array(best[rival][name].values)) for name, d in by.items()}
            for rival, by in early.items()
        }
        both = {f"{rival}, in the first rounds": found for rival, found in early.items()}
        both |= {f"{rival}, minus the lead in best accuracy": found for rival, found in more.items()}
        claim = make_claim(
            "entropy-helps-most-early",
            "With many clients, EDS is ahead of RDS in the accuracy of the first rounds, and by more than in the best "
            "accuracy",
            "section IV-F, Fig. 8 and 9: 'outperforms all the other methods, especially on the first few rounds'",
            judge_larger_than_each(both, NOTICED),
            {
                f"EDS - RDS, {WHEN}": describe_each(early),
                f"EDS - RDS, {WHEN}, minus EDS - RDS, best accuracy": describe_each(more),
            },
            rests_on=name_experiments(more),
        )
        return [need_rivals(claim, PAIRS, early)]

    return join(judge_accuracy, judge_convergence, judge_early)


def judge_half(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on half of the examples against all of them, the baselines, and a tenth, with many clients."""
    many = list_many_experiments(scale)

    def judge_against(
        name: str, text: str, source: str, label: str, pairs: Mapping[str, tuple[str, str]]
    ) -> list[Claim]:
        return judge_pairs(name, text, source, label, pairs, lambda metric: compare_in(histories, many, pairs, metric))

    return join(
        lambda: judge_against(
            "half-beats-all",
            "With many clients, training on half of the examples, chosen by entropy, is more accurate than training on "
            "all of them",
            "Table III, section IV-E",
            "EDS 50 % - all examples",
            {ALL: (EDS50, ALL)},
        ),
        lambda: judge_against(
            "half-beats-the-baselines",
            "With many clients, FedFT-EDS with half of the examples is more accurate than {} with all of them, "
            "which trains the whole model",
            "abstract: 'uses only 50% user data while improving the global model performance'; Table III",
            "FedFT-EDS (50 %) - baseline",
            {FEDAVG: (EDS50, FEDAVG)},
        ),
        lambda: judge_against(
            "half-beats-a-tenth",
            "With many clients, training on half of the examples is more accurate than training on a tenth: {}",
            "section IV-E: 'about 1% on CIFAR-10'",
            "50 % - 10 %",
            {RDS: (RDS50, RDS), EDS: (EDS50, EDS)},
        ),
    )


SHARES = {"full": "all", "20 %": "a fifth", "10 %": "a tenth"}
"""Fractions of FedAvg's clients, those of `FRACTIONS`, in words."""


def judge_stragglers(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on partial training with all clients against the whole model with all or some of them."""

    def compare_with(
        method: str, shares: Iterable[str], metric: str, alphas: Sequence[float] = (STRONG, WEAK)
    ) -> dict[str, dict[str, Difference]]:
        pairs = {name_fedavg(share): (method, name_fedavg(share)) for share in shares}
        experiments = [name_many(name, alpha) for name in list_targets(scale) for alpha in alphas]
        return compare_in(histories, experiments, pairs, metric)

    some = [share for share in SHARES if share != "full"]

    def say(methods: Iterable[str]) -> str:
        return " and ".join(words for share, words in SHARES.items() if name_fedavg(share) in methods)

    return join(
        lambda: judge_pairs(
            "beats-stragglers",
            "FedFT-EDS (10 %) with all clients is more accurate than FedAvg with {} of the clients",
            "Table III, section IV-E",
            "FedFT-EDS - FedAvg",
            map(name_fedavg, SHARES),
            lambda metric: compare_with(EDS, SHARES, metric),
            say,
        ),
        lambda: judge_pairs(
            "stragglers-widen-the-gap",
            f"If clients drop out of FedAvg, it falls further behind FedFT-EDS at α = {STRONG:g}: FedAvg with all "
            "clients is more accurate than with {} of them",
            "Table III, section IV-E: 'the performance gap is much enlarger ... under strong data heterogeneity'; at "
            "α = 0.5, three of the table's eight comparisons go the other way",
            "FedAvg with all clients - with some of them",
            map(name_fedavg, some),
            lambda metric: compare_with(FEDAVG, some, metric, (STRONG,)),
            say,
        ),
    )
