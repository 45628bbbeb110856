"""Verdicts on what LEFL says about itself, and on what else should be asked about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.judging import (
    compare_with,
    describe_differences,
    describe_each,
    judge_larger,
    judge_larger_than_each,
    make_claim,
    open_interval,
)
from fedjax_sel.papers.lefl.cells import (
    AS_PUBLISHED,
    BASELINES,
    BY_CODE,
    EXPERIMENTS,
    FEDAVG,
    FEDNOVA,
    FEDPROX,
    HIGH,
    LEFL,
    LOW,
    PROPORTIONAL,
    SCAFFOLD,
    TUNED,
    is_short,
    name_experiment,
)
from fedjax_sel.papers.lefl.cluster_claims import judge_clusters, judge_groups
from fedjax_sel.papers.lefl.numbers import find_target, measure
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

NOTICED = 0.005
"""An advantage in accuracy of at most this is negligible."""

SPEED_UP = 3.0
"""In Table I, LEFL needs 3.7, 5.3 and 7.7 times fewer rounds than FedAvg."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims on rounds and accuracy, bytes, cohorts' labels, clusters, the ablation and combinations."""
    names = [name for name in EXPERIMENTS[scale] if not is_short(name)]
    histories, studies = evidence.histories, evidence.studies
    medium = scale == "medium"
    parts = (judge_medium,) if medium else (judge_rounds, judge_accuracy, judge_bytes)
    return join(
        *(lambda part=part: part(names, histories) for part in parts),
        lambda: judge_clusters(studies["clusters"], studies["ablation"]),
        lambda: judge_groups(studies["ablation"]),
        lambda: [] if medium else judge_combinations(names, histories),
    )


def list_settings(names: Iterable[str], *settings: str) -> list[str]:
    """Returns the names of these experiments under each of these settings."""
    return [name_experiment(name, one) for one in settings for name in names]


def measure_cell(histories: Histories, name: str, settings: str, method: str, metric: str) -> np.ndarray:
    """Returns one number per seed; after a miss, `rounds` is the run's + 1, and `bytes` its total."""
    value = measure(name, histories[name_experiment(name, settings), method])
    if metric == "bytes":
        paid = value[f"bytes_to_{find_target(name):g}"]
        return np.where(np.isfinite(paid), paid, value["bytes"])
    return value[f"rounds_to_{find_target(name):g}" if metric == "rounds" else metric]


def compare(
    histories: Histories, names: Iterable[str], metric: str, first: tuple[str, str], second: tuple[str, str]
) -> dict[str, Difference]:
    """Returns first minus second by experiment; each is a (settings, method)."""
    return {
        name: difference(measure_cell(histories, name, *first, metric), measure_cell(histories, name, *second, metric))
        for name in names
    }


def compare_ratio(
    histories: Histories, names: Iterable[str], slow: tuple[str, str], fast: tuple[str, str], times: float
) -> dict[str, Difference]:
    """Returns the slow one's rounds to the target divided by the fast one's, minus `times`, by experiment."""
    out = {}
    for name in names:
        ratio = measure_cell(histories, name, *slow, "rounds") / measure_cell(histories, name, *fast, "rounds")
        missed = {"first_missed": misses(histories, name, slow), "second_missed": misses(histories, name, fast)}
        out[name] = open_interval(compare_with(ratio, times), **missed)
    return out


def misses(histories: Histories, name: str, cell: tuple[str, str]) -> bool:
    """Returns whether any seed of a cell misses the target."""
    settings, method = cell
    rounds = histories[name_experiment(name, settings), method].rounds
    return bool((measure_cell(histories, name, settings, method, "rounds") > rounds).any())


def compare_costs(
    histories: Histories, names: Iterable[str], metric: str, slow: tuple[str, str], fast: tuple[str, str]
):
    """Returns the slow one's cost to the target minus the fast one's, by experiment."""
    found = compare(histories, names, metric, slow, fast)
    return {
        name: open_interval(d, first_missed=misses(histories, name, slow), second_missed=misses(histories, name, fast))
        for name, d in found.items()
    }


def list_medians(histories: Histories, names: Iterable[str], cells: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the median over seeds of the rounds to the target."""
    return {
        f"{name}, to accuracy {find_target(name):g}": {
            f"{method} ({settings})": float(np.median(measure_cell(histories, name, settings, method, "rounds")))
            for settings, method in cells
        }
        for name in names
    }


def judge_rounds(names: list[str], histories: Histories) -> list[Claim]:
    """Returns the claims of Table I, as published and under equal settings."""
    published = compare_ratio(histories, names, (AS_PUBLISHED, FEDAVG), (AS_PUBLISHED, LEFL), SPEED_UP)
    rate = compare_ratio(histories, names, (LOW, FEDAVG), (HIGH, FEDAVG), SPEED_UP)
    faster = {
        settings: {
            other: compare_costs(histories, names, "rounds", (settings, other), (settings, LEFL)) for other in BASELINES
        }
        for settings in (HIGH, LOW)
    }
    thrice = {s: compare_ratio(histories, names, (s, FEDAVG), (s, LEFL), SPEED_UP) for s in (HIGH, LOW)}
    scaffold = compare_costs(histories, names, "rounds", (AS_PUBLISHED, FEDAVG), (AS_PUBLISHED, SCAFFOLD))
    prox = compare_costs(histories, names, "rounds", (AS_PUBLISHED, FEDPROX), (AS_PUBLISHED, FEDAVG))
    equal = [
        claim
        for settings, slug in ((HIGH, "its-rate"), (LOW, "their-rate"))
        for claim in (
            make_claim(
                f"three-times-fewer-rounds-at-{slug}",
                f"LEFL needs at least {SPEED_UP:g} times fewer rounds than FedAvg if both use {settings} and cohorts "
                "of the same size",
                "Table I, read as the advantage of a sampling method",
                judge_larger(thrice[settings]),
                {
                    f"FedAvg's rounds / LEFL's rounds, minus {SPEED_UP:g}": describe_differences(thrice[settings]),
                    "median rounds": list_medians(histories, names, [(settings, m) for m in (*BASELINES, LEFL)]),
                },
                rests_on=list_settings(names, settings),
            ),
            make_claim(
                f"fewer-rounds-at-{slug}",
                f"LEFL needs fewer rounds than each of the other methods if all use {settings} and cohorts of the "
                "same size",
                "section IV-B: 'significantly fewer number of rounds'",
                judge_larger_than_each(faster[settings]),
                {"the other method's rounds - LEFL's rounds": describe_each(faster[settings])},
                rests_on=list_settings(names, settings),
            ),
        )
    ]
    return [
        make_claim(
            "three-times-fewer-rounds-as-published",
            f"LEFL with learning rate 0.1 needs at least {SPEED_UP:g} times fewer rounds than FedAvg with 0.01",
            "Table I",
            judge_larger(published),
            {
                f"FedAvg's rounds / LEFL's rounds, minus {SPEED_UP:g}": describe_differences(published),
                "median rounds": list_medians(histories, names, [(AS_PUBLISHED, m) for m in (*BASELINES, LEFL)]),
            },
            rests_on=list_settings(names, AS_PUBLISHED),
        ),
        *equal,
        make_claim(
            "rate-makes-the-speed-up",
            f"FedAvg at LEFL's rate needs at least {SPEED_UP:g} times fewer rounds than at the baselines' rate",
            "ours: the rates of the code's two trainers are 0.1 and 0.01",
            judge_larger(rate),
            {f"rounds at 0.01 / rounds at 0.1, minus {SPEED_UP:g}": describe_differences(rate)},
            rests_on=list_settings(names, LOW, HIGH),
        ),
        make_claim(
            "fedprox-is-slower",
            "FedProx needs more rounds than FedAvg (as published, μ = 1)",
            "Table I",
            judge_larger(prox),
            {"FedProx's rounds - FedAvg's rounds": describe_differences(prox)},
            rests_on=list_settings(names, AS_PUBLISHED),
        ),
        make_claim(
            "scaffold-is-faster",
            "SCAFFOLD needs fewer rounds than FedAvg (as published)",
            "Table I",
            judge_larger(scaffold),
            {"FedAvg's rounds - SCAFFOLD's rounds": describe_differences(scaffold)},
            rests_on=list_settings(names, AS_PUBLISHED),
        ),
    ]


def judge_accuracy(names: list[str], histories: Histories) -> list[Claim]:
    """Returns the claims of Fig. 5 on final accuracy."""
    out, text = [], "LEFL ends at a higher accuracy than each of the other methods"
    for settings, slug, how, source in (
        (AS_PUBLISHED, "as-published", "as published", "5 % and 6 % over SCAFFOLD on EMNIST"),
        (HIGH, "fair", f"all with {HIGH} and cohorts of the same size", "with the rate of LEFL's code"),
        (LOW, "at-their-rate", f"all with {LOW} and cohorts of the same size", "each client's 'learning rate of 0.01'"),
    ):
        over = {
            method: compare(histories, names, "accuracy_last", (settings, LEFL), (settings, method))
            for method in BASELINES
        }
        out.append(
            make_claim(
                f"more-accurate-{slug}",
                f"{text} ({how}; mean of the last 10 rounds)",
                f"Fig. 5, section IV-B: {source}",
                judge_larger_than_each(over, NOTICED),
                {"LEFL - the other method": describe_each(over)},
                rests_on=list_settings(names, settings),
            )
        )
    for settings, slug, how, source in (
        (AS_PUBLISHED, "", f"as published, both at {LOW}", "Fig. 5, section IV-B"),
        (HIGH, "-at-its-rate", f"both at {HIGH}", "ours; SCAFFOLD's own paper"),
    ):
        ahead = compare(histories, names, "accuracy_last", (settings, SCAFFOLD), (settings, FEDAVG))
        out.append(
            make_claim(
                f"scaffold-beats-fedavg{slug}",
                f"SCAFFOLD ends at a higher accuracy than FedAvg ({how}; mean of the last 10 rounds)",
                source,
                judge_larger(ahead, NOTICED),
                {"SCAFFOLD - FedAvg": describe_differences(ahead)},
                rests_on=list_settings(names, settings),
            )
        )
    return out


def judge_bytes(names: list[str], histories: Histories) -> list[Claim]:
    """Returns the claims on Table I's cost, including the pre-phase."""
    what = "LEFL's bytes - FedAvg's bytes; a run that never reaches the target counts with all its bytes, a lower bound"
    out = []
    for settings, slug, source in (
        (AS_PUBLISHED, "as-published", "section IV-B, on EMNIST, for which these data stand in: '0.02GB additional'"),
        (HIGH, "fair", "ours: at equal rates"),
    ):
        more = compare_costs(histories, names, "bytes", (settings, LEFL), (settings, FEDAVG))
        out.append(
            make_claim(
                f"more-bytes-{slug}",
                f"LEFL, including its pre-phase, needs more bytes than FedAvg to reach the target ({settings})",
                source,
                judge_larger(more),
                {what: describe_differences(more)},
                rests_on=list_settings(names, settings),
            )
        )
    return out


def judge_combinations(names: list[str], histories: Histories) -> list[Claim]:
    """Returns the claims on LEFL with other methods or proportional quotas, and on tuned FedProx, if those were run."""
    pairs = {f"LEFL + {method}": method for method in (FEDPROX, SCAFFOLD, FEDNOVA)} | {PROPORTIONAL: FEDAVG}
    there = [name for name in names if (name_experiment(name, HIGH), PROPORTIONAL) in histories]
    if not there:
        return []
    over = {
        theirs: compare(histories, there, "accuracy_last", (HIGH, mine), (HIGH, theirs))
        for mine, theirs in pairs.items()
    }
    tuned = {}
    for name in there:
        best = max((FEDPROX, *TUNED), key=lambda m, n=name: measure_cell(histories, n, HIGH, m, "accuracy_last").mean())
        tuned |= {
            f"{name}, against {best}": d
            for d in compare(histories, [name], "accuracy_last", (HIGH, LEFL), (HIGH, best)).values()
        }
    return [
        make_claim(
            "adds-to-the-other-methods",
            "LEFL's cohorts raise the accuracy of FedAvg (with proportional quotas), FedProx, SCAFFOLD and FedNova, "
            "all at LEFL's rate (mean of the last 10 rounds)",
            "ours; section II says that LEFL 'can easily be augmented' with them",
            judge_larger_than_each(over, NOTICED),
            {"with LEFL - without LEFL": describe_each(over)},
            rests_on=list_settings(there, HIGH),
        ),
        make_claim(
            "more-accurate-than-tuned-fedprox",
            "LEFL ends at a higher accuracy than FedProx with the μ, out of 0.001, 0.01, 0.1 and 1, that is best in "
            "hindsight",
            "ours: with the default μ, FedProx is nearly FedAvg",
            judge_larger(tuned, NOTICED),
            {"LEFL - FedProx": describe_differences(tuned)},
            rests_on=list_settings(there, HIGH),
        ),
    ]


def judge_medium(names: list[str], histories: Histories) -> list[Claim]:
    """Returns the claim on LEFL against FedAvg at each rate, with both kinds of quotas."""
    kinds = (PROPORTIONAL, BY_CODE)
    over = {
        f"{mine}, {settings}": d
        for settings in (HIGH, LOW)
        for mine in kinds
        for d in compare(histories, names, "accuracy_last", (settings, mine), (settings, FEDAVG)).values()
    }
    return [
        make_claim(
            "more-accurate-than-fedavg",
            "LEFL ends at a higher accuracy than FedAvg at the same rate (mean of the last 10 rounds)",
            "Table I, Fig. 5",
            judge_larger(over, NOTICED),
            {"LEFL - FedAvg": describe_differences(over)},
            rests_on=list_settings(names, HIGH, LOW),
        )
    ]
