"""Verdicts on what FedFT-EDS says about training a part of the model: Table II."""

from __future__ import annotations

from collections.abc import Sequence

from fedjax_sel.papers.fedft_eds.comparisons import (
    compare,
    compare_in,
    judge_advantage,
    judge_pairs,
    list_few_experiments,
)
from fedjax_sel.papers.fedft_eds.methods import EDS, FEDAVG, FEDAVG_RDS, FEDPROX, FEDPROX_RDS, RDS
from fedjax_sel.papers.judging import make_claim
from fedjax_sel.papers.paper import Claim, Histories, join


def judge_partial_training(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims on partial training against the whole model, with all examples or with a tenth of them."""
    few = list_few_experiments(scale, histories)

    def judge_against(name: str, text: str, method: str, rivals: Sequence[str]) -> list[Claim]:
        pairs = {rival: (method, rival) for rival in rivals}
        return judge_pairs(
            name,
            text,
            "Table II, section IV-C",
            f"{method} - baseline",
            rivals,
            lambda metric: compare_in(histories, few, pairs, metric),
        )

    return join(
        lambda: judge_against(
            "partial-training-beats-whole",
            "FedFT-EDS with 10 % of the examples is more accurate than {} on all examples, which train the whole model",
            EDS,
            (FEDAVG, FEDPROX),
        ),
        lambda: judge_against(
            "random-partial-training-beats-whole",
            "FedFT-RDS with 10 % of the examples is more accurate than {} on all examples, which train the whole model",
            RDS,
            (FEDAVG, FEDPROX),
        ),
        lambda: judge_against(
            "partial-training-beats-whole-on-a-tenth",
            "FedFT-EDS with 10 % of the examples is more accurate than {}, which train the whole model on as many "
            "random ones",
            EDS,
            (FEDAVG_RDS, FEDPROX_RDS),
        ),
        lambda: judge_against(
            "random-partial-training-beats-whole-on-a-tenth",
            "FedFT-RDS with 10 % of the examples is more accurate than {}, which train the whole model on as many",
            RDS,
            (FEDAVG_RDS, FEDPROX_RDS),
        ),
    )


def judge_part_alone(histories: Histories) -> Claim:
    """Returns the claim on partial training against the whole model, both with a random tenth."""
    return make_claim(
        "partial-training-alone-pays",
        "With a random tenth of the examples, training a part of the model (FedFT-RDS) is more accurate than training "
        "all of it (FedAvg-RDS)",
        "Table II",
        *judge_advantage("FedFT-RDS - FedAvg-RDS", lambda metric: compare(histories, RDS, FEDAVG_RDS, metric)),
        rests_on=compare(histories, RDS, FEDAVG_RDS),
    )
