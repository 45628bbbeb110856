"""What GPFL says of itself and of its baselines, and what one should ask of it, judged."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.gpfl.cells import (
    ALIVE,
    ALPHAS,
    AS_PUBLISHED,
    CIFAR,
    FEDCOR,
    GPFL,
    NETWORK,
    RANDOM,
    RHOS,
    SENSITIVE,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.comparisons import BASELINES, NOTICED, list_settings, measure_cell
from fedjax_sel.papers.gpfl.more_claims import judge_cifar, judge_letter, judge_ours, judge_regret, judge_times
from fedjax_sel.papers.gpfl.numbers import find_data, list_partitions
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_not_smaller,
    compare_with,
    describe_difference,
    describe_differences,
    judge,
    judge_larger,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

VISIT = "GPFL's code visits all clients once, in its first N / m rounds, before it selects anybody"
"""Why its coverage is fixed by construction."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns accuracy, exploration, parameters, cost, then what the source does not ask."""
    histories = evidence.histories
    on_cifar = name_experiment(CIFAR, SENSITIVE) in {experiment for experiment, _ in histories}
    cifar = join(lambda: judge_cifar(histories) if on_cifar else [])
    if not list_partitions(histories):  # CIFAR-10 alone
        return [*cifar, *judge_times(evidence)]
    alive = (name_experiment(find_data(histories), SENSITIVE, ALIVE), "GPFL, ρ = 1") in histories
    words = "-at-constant-rate", " (constant learning rate, 1500 rounds)"
    return [
        *join(
            lambda: judge_accuracy(histories),
            lambda: judge_exploration(histories),
            lambda: judge_parameters(histories),
            lambda: judge_parameters(histories, ALIVE, *words) if alive else [],
        ),
        *judge_times(evidence),
        *cifar,
        *join(
            lambda: judge_ours(histories),
            lambda: judge_regret(evidence.studies["regret"]),
            lambda: judge_letter(histories),
        ),
    ]


def find_best(histories: Histories, partition: str, settings: str, methods: Iterable[str], metric: str) -> str:
    """Returns the method whose mean is highest."""
    return max(methods, key=lambda method: measure_cell(histories, partition, settings, method, metric).mean())


def compare_with_best(histories: Histories, settings: str, partitions: Iterable[str]) -> dict[str, Difference]:
    """Returns GPFL minus the best of the source's baselines, mean of the last 10 accuracies."""
    out = {}
    for partition in partitions:
        other = find_best(histories, partition, settings, BASELINES, "accuracy_last")
        mine, theirs = (measure_cell(histories, partition, settings, m, "accuracy_last") for m in (GPFL, other))
        out[f"{partition}, over {other}"] = difference(mine, theirs)
    return out


def judge_accuracy(histories: Histories) -> list[Claim]:
    """Returns Table II on Fashion-MNIST, as published and fairly, and where the difference comes from."""
    published, fair, theirs = (
        compare_with_best(histories, AS_PUBLISHED, list_partitions(histories)),
        compare_with_best(histories, "", list_partitions(histories)),
        compare_with_best(histories, THEIRS, (SENSITIVE,)),
    )
    last = {
        name: measure_cell(histories, SENSITIVE, settings, method, "accuracy_last")
        for name, settings, method in (
            ("random", "", RANDOM),
            ("network", NETWORK, RANDOM),
            ("all", THEIRS, RANDOM),
            ("published", AS_PUBLISHED, GPFL),
        )
    }
    gap = last["published"] - last["random"]
    closed = {name: difference(last[name] - last["random"], 0.5 * gap) for name in ("network", "all")}
    shares = {
        name: float(np.mean(last[name] - last["random"]) / np.mean(gap)) if np.mean(gap) else None for name in closed
    }
    steady = {
        f"{partition}, under {other}": difference(
            measure_cell(histories, partition, AS_PUBLISHED, other, "deviation_last"),
            measure_cell(histories, partition, AS_PUBLISHED, GPFL, "deviation_last"),
        )
        for partition in list_partitions(histories)
        for other in BASELINES
    }
    return [
        make_claim(
            "beats-all-as-published",
            "GPFL beats Random, Pow-d and FedCor on Fashion-MNIST, each run as its own code does (mean of the last 10)",
            "Table II, section VI-B",
            judge_larger(published, NOTICED),
            {"GPFL - best baseline": describe_differences(published)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        make_claim(
            "beats-all-fair",
            "GPFL beats Random, Pow-d and FedCor on Fashion-MNIST under equal settings (FedCor's; mean of the last 10)",
            "Table II, section VI-B: 'to ensure a fair comparison'",
            judge_larger(fair, NOTICED),
            {"GPFL - best baseline": describe_differences(fair)},
            rests_on=list_settings(histories, ""),
        ),
        make_claim(
            "beats-all-in-its-own-settings",
            f"GPFL beats Random, Pow-d and FedCor under equal settings (its own code's; {SENSITIVE})",
            "Table II, section VI-B",
            judge_larger(theirs, NOTICED),
            {"GPFL - best baseline": describe_differences(theirs)},
            rests_on=list_settings(histories, THEIRS, partitions=(SENSITIVE,)),
        ),
        make_claim(
            "settings-make-the-gap",
            f"Random selection with GPFL's settings closes most of the gap to GPFL as published ({SENSITIVE})",
            "ours: the two codes differ in network, examples, schedule and weights",
            judge_larger({"all": closed["all"]}),
            {"share of the gap closed": shares["all"], "gain - half of the gap": describe_difference(closed["all"])},
            rests_on=list_settings(histories, "", THEIRS, AS_PUBLISHED, partitions=(SENSITIVE,)),
        ),
        make_claim(
            "network-makes-the-gap",
            f"The network alone (784-64-10) closes most of that gap ({SENSITIVE})",
            "ours: a prediction made before it was run",
            judge_larger({"network": closed["network"]}),
            {
                "share of the gap closed": shares["network"],
                "gain - half of the gap": describe_difference(closed["network"]),
            },
            rests_on=list_settings(histories, "", NETWORK, AS_PUBLISHED, partitions=(SENSITIVE,)),
        ),
        make_claim(
            "steadiest",
            "GPFL has the smallest fluctuation over the last 10 rounds (largest deviation, as published)",
            "Table II, section VI-B",
            judge_larger(steady),
            {"baseline's - GPFL's": describe_differences(steady)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
    ]


def judge_exploration(histories: Histories) -> list[Claim]:
    """Returns coverage and counts, as published."""
    covered = {
        method: {
            partition: measure_cell(histories, partition, AS_PUBLISHED, method, "coverage_round")
            for partition in list_partitions(histories)
        }
        for method in (GPFL, FEDCOR, RANDOM)
    }
    soon = {p: difference(np.full(len(v), 50.0), v) for p, v in covered[GPFL].items()}
    late = {p: compare_with(v, 200.0) for p, v in covered[FEDCOR].items()}
    means = {m: {p: float(v.mean()) for p, v in by.items()} for m, by in covered.items()}
    rho = {"ρ = 1": measure_cell(histories, SENSITIVE, THEIRS, "GPFL, ρ = 1", "most_selected")}
    most = {
        p: measure_cell(histories, p, AS_PUBLISHED, GPFL, "most_selected") for p in list_partitions(histories)
    } | rho
    tail = {name: compare_with(v, 400.0) for name, v in most.items()}
    return [
        make_claim(
            "coverage-within-50",
            "GPFL has selected every client within 50 rounds",
            "Fig. 4",
            judge(ask_not_smaller(), soon),
            {"mean round of full coverage": means[GPFL]},
            rests_on=list_settings(histories, AS_PUBLISHED),
            fixed=VISIT,
        ),
        make_claim(
            "fedcor-covers-late",
            "FedCor takes about 200 rounds for it (± 50), Random about 100",
            "Fig. 4",
            judge(ask_comparable(50.0), late),
            {"FedCor, mean round": means[FEDCOR], "Random, mean round": means[RANDOM]},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        make_claim(
            "long-tail",
            "GPFL selects a few clients in nearly all of the 500 rounds (400 times at least)",
            "Fig. 5a",
            judge(ask_not_smaller(), tail),
            {"largest count of a client": {name: float(v.mean()) for name, v in most.items()}},
            rests_on=[
                *list_settings(histories, AS_PUBLISHED),
                *list_settings(histories, THEIRS, partitions=(SENSITIVE,)),
            ],
        ),
    ]


DECAYING = " (500 rounds, decaying learning rate)"
"""What the claims on α and ρ say of GPFL's own settings."""


def judge_parameters(
    histories: Histories, settings: str = THEIRS, slug: str = "", words: str = DECAYING
) -> list[Claim]:
    """Returns the verdicts on α and ρ.

    Args:
      histories: of the cells.
      settings: under which they were varied.
      slug, words: what the claims' names and sentences say of these settings.
    """

    def last(method: str) -> np.ndarray:
        return measure_cell(histories, SENSITIVE, settings, method, "accuracy_last")

    best, none = "GPFL, ρ = 1", "GPFL, α = 0"
    over = {method: difference(last(best), last(method)) for method in RHOS if method != best}
    fixed = {method: difference(last(best), last(method)) for method in ALPHAS}
    explored = {m: difference(last(m), last(none)) for m in (*ALPHAS, *RHOS) if m != none}
    return [
        make_claim(
            f"{name}{slug}",
            f"{text}{words}",
            source,
            judge_larger(found, NOTICED),
            {f"{what}, mean of the last 10": describe_differences(found)},
            rests_on=list_settings(histories, settings, partitions=(SENSITIVE,)),
        )
        for name, text, source, found, what in (
            (
                "rho-1-is-best",
                "ρ = 1 gives the highest accuracy of ρ = 0.5, 1, 2, 5",
                "Fig. 7b, section VI-E",
                over,
                "ρ = 1 minus other ρ",
            ),
            (
                "schedule-beats-constant",
                "α growing with the round (ρ = 1) beats every fixed α",
                "section VI-E",
                fixed,
                "ρ = 1 minus fixed α",
            ),
            (
                "exploring-pays",
                "With exploration the result is better than without (α = 0)",
                "section VI-E, of the rounds after 500: 'nearly 10% higher'",
                explored,
                "minus α = 0",
            ),
        )
    ]
