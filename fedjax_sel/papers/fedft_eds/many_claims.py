"""Verdicts on what FedFT-EDS says of many clients: Fig. 9."""

from __future__ import annotations

from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import describe_each
from fedjax_sel.papers.fedft_eds.comparisons import BEST, NOTICED, PAIRS, compare_in, judge_advantage, name_experiments
from fedjax_sel.papers.fedft_eds.convergence_claims import WHEN
from fedjax_sel.papers.fedft_eds.methods import STRONG, WEAK, name_many
from fedjax_sel.papers.fedft_eds.scales import list_targets
from fedjax_sel.papers.judging import judge_larger_than_each, make_claim
from fedjax_sel.papers.paper import Claim, Histories, join, need


def judge_many(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on choice by entropy among many clients: best accuracy, and the first rounds."""
    experiments = [name_many(name, alpha) for name in list_targets(scale) for alpha in (STRONG, WEAK)]

    def compare_there(metric: str) -> dict[str, dict[str, Difference]]:
        return need(compare_in(histories, experiments, PAIRS, metric))

    def judge_accuracy() -> list[Claim]:
        return [
            make_claim(
                "entropy-beats-chance-with-many-clients",
                "With many clients, training on examples chosen by entropy (EDS) is more accurate than on as many "
                "random ones (RDS)",
                "Fig. 9: 'outperforms FedFT-RDS significantly in convergence and top test accuracy'",
                *judge_advantage("EDS - RDS", compare_there),
                rests_on=name_experiments(compare_there(BEST)),
            )
        ]

    def judge_convergence() -> list[Claim]:
        early = compare_there("accuracy_early")
        return [
            make_claim(
                "entropy-converges-faster-with-many-clients",
                "With many clients, training on examples chosen by entropy (EDS) converges faster than on as many "
                f"random ones (RDS): {WHEN}",
                "Fig. 9: 'outperforms FedFT-RDS significantly in convergence'",
                judge_larger_than_each(early, NOTICED),
                {f"EDS - RDS, {WHEN}": describe_each(early)},
                rests_on=name_experiments(early),
            )
        ]

    return join(judge_accuracy, judge_convergence)
