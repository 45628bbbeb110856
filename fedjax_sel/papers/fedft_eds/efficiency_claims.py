"""Verdicts on what FedFT-EDS says about learning efficiency."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import compare_factor, describe_each, describe_factor, pair
from fedjax_sel.papers.fedft_eds.comparisons import (
    find_accuracy,
    keep_rivals,
    keep_seeded,
    keep_whole,
    name_experiments,
)
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    RDS,
    RDS50,
    STRONG,
    WEAK,
    name_fedavg,
    name_few,
    name_five_epochs,
    name_many,
)
from fedjax_sel.papers.fedft_eds.numbers import measure
from fedjax_sel.papers.fedft_eds.scales import find_studied, list_compared
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_not_below,
    judge,
    judge_larger_than_each,
    make_claim,
    need_rivals,
)
from fedjax_sel.papers.paper import Claim, Histories

THRICE = 3.0
"""How many times the learning efficiency of FedAvg and of FedProx FedFT-EDS has in the source, at least."""

QUARTER_MORE, QUARTER_LESS = 1.25, 0.75
"""A quarter more, and a quarter less, as ratios."""


def judge_efficiency(scale: str, histories: Histories, seconds: Mapping[str, Any]) -> Claim:
    """Returns the claim on learning efficiency: best accuracy divided by client training seconds.

    Args:
      scale, histories: of the reproduction.
      seconds: measured seconds of the simulator's rounds, by method.
    """
    simulated: dict[str, dict[str, Difference]] = {FEDAVG: {}, FEDPROX: {}}
    measured = {}
    for n, a in itertools.product(list_compared(scale), (STRONG, WEAK)):
        longer = name_five_epochs(n, a)
        name = longer if (longer, EDS) in histories else name_few(n, a)
        for method in (FEDAVG, FEDPROX):
            if (name, method) not in histories:
                continue
            mine, theirs = pair(*(measure(histories[name, m])["efficiency"] for m in (EDS, method)))
            simulated[method][name] = compare_factor(mine, theirs, THRICE)
    compared = keep_rivals(simulated)
    name = name_few(find_studied(scale), STRONG)
    for method in (FEDAVG, FEDPROX):
        if method in seconds and (name, method) in histories:
            gained = float(
                np.mean(find_accuracy(histories, name, EDS)) / np.mean(find_accuracy(histories, name, method))
            )
            measured[method] = gained * float(np.median(seconds[method]) / np.median(seconds[EDS]))
    claim = make_claim(
        "three-times-the-efficiency",
        f"FedFT-EDS (10 %) has at least three times the learning efficiency of {' and '.join(compared)} (simulated, "
        "with five local epochs if these were run; compared in decades)",
        "Fig. 6, section IV-D",
        judge_larger_than_each(compared),
        {
            "efficiency of FedFT-EDS / of the other method": describe_each(
                compared, partial(describe_factor, times=THRICE)
            ),
            "ratio by measured seconds of the simulator": measured,
        },
        rests_on=name_experiments(compared),
    )
    return need_rivals(claim, simulated, compared)


def judge_other_efficiency(scale: str, histories: Histories) -> list[Claim]:
    """Returns the source's claims on learning efficiency beyond those on FedAvg and FedProx."""

    def relate(first: str, second: str, names: Iterable[str]) -> dict[str, Difference]:
        there = [name for name in names if {(name, first), (name, second)} <= histories.keys()]
        values = {
            name: pair(*(measure(histories[name, method])["efficiency"] for method in (first, second)))
            for name in there
        }
        found = {name: compare_factor(mine, theirs) for name, (mine, theirs) in values.items()}
        return keep_whole(keep_seeded(found))

    every = list_compared(scale)
    few = [name_few(n, a) for n, a in itertools.product(every, (STRONG, WEAK))]
    many = [name_many(n, a) for n, a in itertools.product(every, (STRONG, WEAK))]
    random, chance = relate(FEDAVG_RDS, EDS, few), relate(EDS50, RDS50, many)
    all_there, tenth, lighter = (FEDAVG, ALL), name_fedavg("10 %"), (EDS, RDS, ALL)
    whole = {rival: found for rival in all_there if (found := relate(EDS, rival, many))}
    others = {rival: found for rival in lighter if (found := relate(tenth, rival, many))}
    asked = (
        (
            "fedavg-rds-is-as-efficient",
            "FedAvg-RDS has about the same learning efficiency as FedFT-EDS (10 %; within a quarter, compared in "
            "decades)",
            "section IV-D: 'a close learning efficiency'",
            ask_comparable(float(np.log10(QUARTER_MORE))),
            random,
        ),
        (
            "entropy-costs-little-efficiency",
            "With many clients, FedFT-EDS (50 %) has at most a quarter less learning efficiency than FedFT-RDS (50 %; "
            "compared in decades)",
            "section IV-E: 'slightly lower'; Fig. 7: 'FedFT-EDS (50%) trades a small amount'",
            ask_not_below(float(-np.log10(QUARTER_LESS))),
            chance,
        ),
    )
    claims = [
        make_claim(
            name,
            text,
            source,
            judge(question, found),
            {"efficiency of the first method / of the second": {n: describe_factor(d) for n, d in found.items()}},
            rests_on=found,
        )
        for name, text, source, question, found in asked
        if found
    ]
    among = (
        (
            "few-clients-are-most-efficient",
            f"With many clients, FedAvg with a tenth of them has a higher learning efficiency than {', '.join(others)} "
            "with all of them (compared in decades)",
            "Fig. 7: 'FedAvg achieves the best learning efficiency with 10% client participation'",
            lighter,
            others,
        ),
        (
            "more-efficient-with-many-clients",
            f"With many clients, FedFT-EDS (10 %) has a higher learning efficiency than {' and '.join(whole)} with "
            "all clients and all of their examples (compared in decades)",
            "section IV-E, Fig. 7: 'consistently exhibits better learning efficiency'",
            all_there,
            whole,
        ),
    )
    return claims + [
        need_rivals(
            make_claim(
                name,
                text,
                source,
                judge_larger_than_each(rivals),
                {"efficiency of the first method / of the other": describe_each(rivals, describe_factor)},
                rests_on=name_experiments(rivals),
            ),
            wanted,
            rivals,
        )
        for name, text, source, wanted, rivals in among
        if rivals
    ]
