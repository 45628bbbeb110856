"""What GPFL says of itself and of its baselines, and what one should ask of it, judged."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.gpfl.cells import (
    ALPHAS,
    AS_PUBLISHED,
    CIFAR,
    FEDCOR,
    GPFL,
    NETWORK,
    PARTITIONS,
    POW_D,
    RANDOM,
    RHOS,
    ROBIN,
    SENSITIVE,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.numbers import find_data, list_partitions, measure
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
from fedjax_sel.papers.paper import Claim, Evidence, Histories

NOTICED = 0.005
"""A smaller advantage in accuracy would be noticed by nobody."""

BASELINES = (RANDOM, POW_D, FEDCOR)

VISIT = "GPFL's code visits all clients once, in its first N / m rounds, before it selects anybody"
"""Why its coverage is fixed by construction."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns accuracy, exploration, parameters, cost, then what the source does not ask."""
    histories = evidence.histories
    out = [
        *judge_accuracy(histories),
        *judge_exploration(histories),
        *judge_parameters(histories),
        *judge_cost(evidence),
    ]
    if name_experiment(CIFAR, SENSITIVE) in {experiment for experiment, _ in histories}:
        out += judge_cifar(histories)
    return [*out, *judge_ours(evidence)]


def measure_cell(histories: Histories, partition: str, settings: str, method: str, metric: str) -> np.ndarray:
    """Returns one number a seed, on Fashion-MNIST (digits at `smoke`)."""
    return measure(histories[name_experiment(find_data(histories), partition, settings), method])[metric]


def list_settings(histories: Histories, *settings: str, partitions: Iterable[str] | None = None) -> list[str]:
    """Returns the experiments under these settings, on Fashion-MNIST (digits at `smoke`)."""
    partitions = list_partitions(histories) if partitions is None else partitions
    return [name_experiment(find_data(histories), partition, name) for name in settings for partition in partitions]


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


def judge_parameters(histories: Histories) -> list[Claim]:
    """Returns the verdicts on α and ρ."""

    def last(method: str) -> np.ndarray:
        return measure_cell(histories, SENSITIVE, THEIRS, method, "accuracy_last")

    best = "GPFL, ρ = 1"
    over = {method: difference(last(best), last(method)) for method in RHOS if method != best}
    fixed = {method: difference(last(best), last(method)) for method in ALPHAS}
    none = "GPFL, α = 0"
    explored = {m: difference(last(m), last(none)) for m in (*ALPHAS, *RHOS) if m != none}
    return [
        make_claim(
            "rho-1-is-best",
            "ρ = 1 gives the highest accuracy of ρ = 0.5, 1, 2, 5",
            "Fig. 7b, section VI-E",
            judge_larger(over, NOTICED),
            {"ρ = 1 minus other ρ, mean of the last 10": describe_differences(over)},
            rests_on=list_settings(histories, THEIRS, partitions=(SENSITIVE,)),
        ),
        make_claim(
            "schedule-beats-constant",
            "α growing with the round (ρ = 1) beats every fixed α",
            "section VI-E",
            judge_larger(fixed, NOTICED),
            {"ρ = 1 minus fixed α, mean of the last 10": describe_differences(fixed)},
            rests_on=list_settings(histories, THEIRS, partitions=(SENSITIVE,)),
        ),
        make_claim(
            "exploring-pays",
            "With exploration the result is better than without (α = 0), by nearly 0.1",
            "section VI-E",
            judge_larger(explored, NOTICED),
            {"minus α = 0, mean of the last 10": describe_differences(explored)},
            rests_on=list_settings(histories, THEIRS, partitions=(SENSITIVE,)),
        ),
    ]


def judge_cost(evidence: Evidence) -> list[Claim]:
    """Returns the measured time of 200 rounds."""
    study = evidence.studies["time"]
    times = {method: np.array(row["measured_seconds"]) for method, row in study["methods"].items()}

    def slower(method: str) -> Difference:
        return compare_with(times[method] / times[RANDOM], 1.0)

    mine, fedcor = slower(GPFL), slower(FEDCOR)
    shown = {method: float(np.median(t / times[RANDOM])) for method, t in times.items()}
    return [
        make_claim(
            "cost-just-above-random",
            f"{study['rounds']} rounds of GPFL take about as long as of Random (within a tenth)",
            "Fig. 6, section VI-D",
            judge(ask_comparable(0.1), {GPFL: mine}),
            {"measured time over Random's, median": shown, "GPFL, excess": describe_difference(mine)},
        ),
        make_claim(
            "fedcor-is-slowest",
            "FedCor takes much longer than Random (at least half as long again)",
            "Fig. 6, section VI-D",
            judge_larger({FEDCOR: compare_with(times[FEDCOR] / times[RANDOM], 1.5)}),
            {"FedCor, excess": describe_difference(fedcor)},
        ),
    ]


def judge_cifar(histories: Histories) -> list[Claim]:
    """Returns Table II on CIFAR-10."""
    there = [p for p in PARTITIONS if (name_experiment(CIFAR, p), FEDCOR) in histories]

    def last(partition: str, method: str) -> np.ndarray:
        return measure(histories[name_experiment(CIFAR, partition), method])["accuracy_last"]

    worse = {p: difference(last(p, RANDOM), last(p, FEDCOR)) for p in there}
    over = {f"{p}, over {m}": difference(last(p, GPFL), last(p, m)) for p in there for m in BASELINES}
    counted = {name: d for name, d in over.items() if name != f"1SPC, over {POW_D}"}
    return [
        make_claim(
            "fedcor-worse-than-random",
            "FedCor is worse than Random on CIFAR-10",
            "Table II, section VI-B",
            judge_larger(worse, NOTICED),
            {"Random - FedCor, mean of the last 10": describe_differences(worse)},
            rests_on=[name_experiment(CIFAR, p) for p in there],
        ),
        make_claim(
            "beats-all-on-cifar",
            "GPFL beats Random, Pow-d and FedCor on CIFAR-10 (all but Pow-d on 1SPC), under equal settings",
            "Table II, section VI-B",
            judge_larger(counted, NOTICED),
            {"GPFL - baseline, mean of the last 10": describe_differences(over)},
            rests_on=[name_experiment(CIFAR, p) for p in there],
        ),
    ]


def judge_ours(evidence: Evidence) -> list[Claim]:
    """Returns what one should ask."""
    histories = evidence.histories
    robin = {
        partition: difference(*(measure_cell(histories, partition, "", m, "accuracy_last") for m in (GPFL, ROBIN)))
        for partition in list_partitions(histories)
    }
    leak = {
        partition: difference(
            measure_cell(histories, partition, AS_PUBLISHED, GPFL, "accuracy_last"),
            measure_cell(histories, partition, THEIRS, GPFL, "accuracy_last"),
        )
        for partition in list_partitions(histories)
    }
    regret = {method: np.array(row["share"]) for method, row in evidence.studies["regret"]["methods"].items()}
    lower = difference(regret[RANDOM], regret[GPFL])
    return [
        make_claim(
            "better-than-round-robin",
            "GPFL is better than visiting the clients in turn (equal settings, mean of the last 10)",
            "ours: its bonus alone would be round-robin",
            judge_larger(robin, NOTICED),
            {"GPFL - round-robin": describe_differences(robin)},
            rests_on=list_settings(histories, ""),
        ),
        make_claim(
            "leak-is-harmless",
            "Rewarding by test accuracy instead of validation accuracy changes the result by less than 0.01",
            "ours: the code's rewards look at the test set",
            judge(ask_comparable(0.01), leak),
            {"test - validation, mean of the last 10": describe_differences(leak)},
            rests_on=list_settings(histories, AS_PUBLISHED, THEIRS),
        ),
        make_claim(
            "regret-below-random",
            "In a federation small enough to try all cohorts, GPFL's regret is lower than Random's",
            "ours; the bound of its theorem is negative for every t",
            judge_larger({GPFL: lower}),
            {
                "regret as a share of a random cohort's": {m: float(v.mean()) for m, v in regret.items()},
                "Random's - GPFL's": describe_difference(lower),
            },
        ),
    ]
