"""Verdicts on what GPFL says about itself and its baselines, and on what else should be asked about it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.differences import (
    compare_with,
    describe_differences,
    describe_each,
    describe_runs,
    open_interval,
    pair,
    subtract,
)
from fedjax_sel.papers.gpfl.alpha_claims import judge_growth, judge_parameters
from fedjax_sel.papers.gpfl.cells import (
    AS_PUBLISHED,
    CIFAR,
    FEDCOR,
    GPFL,
    GROWING,
    LONG,
    NETWORK,
    PARTITIONS,
    POW_D,
    RANDOM,
    SENSITIVE,
    TEXT,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.comparisons import BASELINES, NOTICED, list_settings, measure_cell
from fedjax_sel.papers.gpfl.more_claims import (
    judge_cifar,
    judge_letter,
    judge_ours,
    judge_projection,
    judge_regret,
    judge_rewards,
    judge_times,
)
from fedjax_sel.papers.gpfl.numbers import find_data, list_partitions
from fedjax_sel.papers.judging import (
    ask_as_published,
    ask_not_smaller,
    judge,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

VISIT = "GPFL's code visits every client once, five per round in the first 20 rounds, before it begins to select"
"""Why its coverage is fixed by construction."""

COLLECTOR = (
    "what random cohorts cover does not depend on training: in expectation, cohorts of 5 cover 100 clients after 100 "
    "rounds"
)
"""Why the coverage of Random is fixed by construction."""

BEHIND_EARLY = ("2SPC",)
"""Partitions on which Table II itself shows GPFL behind FedCor after 15 % of the rounds."""

AS_STEADY = ("2SPC",)
"""Partitions on which Table II itself shows FedCor's largest deviation as small as GPFL's."""

FLUCTUATION, UNSTEADY = 0.04, ("Dir",)
"""GPFL's largest deviation according to section VI-B, and the partitions on which Table II shows a larger one."""

LEADS = {"1SPC": 0.1989, "2SPC": 0.0934, "Dir": 0.1011}
"""How far GPFL ends above the best baseline, according to section VI-B."""

FIGURE_4 = 5
"""Cohort size of Fig. 4, with 100 clients: with ten, random cohorts cover all clients in 50 rounds instead of 100."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims on accuracy, exploration, parameters and cost, then those beyond the source."""
    histories = evidence.histories
    on_cifar = name_experiment(CIFAR, SENSITIVE) in {experiment for experiment, _ in histories}
    cifar = join(lambda: judge_cifar(histories) if on_cifar else [])
    if not list_partitions(histories):  # CIFAR-10 alone
        return [*cifar, *judge_times(evidence)]
    long = (name_experiment(find_data(histories), SENSITIVE, LONG), GROWING) in histories
    return [
        *join(
            lambda: judge_accuracy(histories),
            lambda: judge_exploration(histories),
            lambda: judge_parameters(histories),
            lambda: judge_parameters(histories, LONG, "-for-longer", " (1500 rounds)") if long else [],
            lambda: judge_growth(histories) if long else [],
        ),
        *judge_times(evidence),
        *cifar,
        *join(
            lambda: judge_ours(histories),
            lambda: judge_regret(evidence.studies["regret"]),
            lambda: judge_rewards(histories),
            lambda: judge_projection(histories),
            lambda: judge_letter(histories),
        ),
    ]


def compare_with_baselines(
    histories: Histories,
    settings: str,
    partitions: Iterable[str],
    metric: str = "accuracy_last",
    variant: str = GPFL,
) -> dict[str, dict[str, Difference]]:
    """Returns the difference between a variant of GPFL and each of the source's baselines, by baseline, partition."""
    return {
        other: {
            partition: subtract(
                *(measure_cell(histories, partition, settings, method, metric) for method in (variant, other))
            )
            for partition in partitions
        }
        for other in BASELINES
    }


def judge_accuracy(histories: Histories) -> list[Claim]:
    """Returns the claims of Table II on Fashion-MNIST, as published and fair, and on the origin of the difference."""
    return [*judge_table(histories), *judge_early(histories), *judge_gap(histories), *judge_steadiness(histories)]


def judge_table(histories: Histories) -> list[Claim]:
    """Returns the claims on the accuracy at the end, in each of the settings."""
    leads = {p: compare_with(find_lead(histories, p), LEADS[p]) for p in list_partitions(histories)}
    source, text = "Table II, section VI-B", "section VI-B: 'consistently surpasses other methods'"
    own, all_fair = "each method runs as in its own code", "all run with FedCor's settings"
    return [
        judge_lead(histories, "beats-all-as-published", "GPFL", own, source, AS_PUBLISHED),
        make_claim(
            "leads-by-as-much",
            "GPFL ends 19.89, 9.34 and 10.11 points above the best of Random, Pow-d and FedCor if each method runs as "
            "in its own code (1SPC, 2SPC and Dir; ± 2 points; the published leads are of one run each)",
            "section VI-B: 'outperforms the highest baseline by'",
            judge(ask_as_published(0.02), leads),
            {"GPFL - the best baseline, minus the published lead (intervals of one more run)": describe_runs(leads)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        judge_lead(histories, "beats-all-fair", "GPFL", all_fair, f"{source}: 'to ensure a fair comparison'", ""),
        *(
            [judge_lead(histories, "beats-all-fair-as-in-its-text", "GPFL as in its text", all_fair, text, "", TEXT)]
            if all((experiment, TEXT) in histories for experiment in list_settings(histories, ""))
            else []
        ),
        judge_lead(
            histories,
            "beats-all-in-its-own-settings",
            "GPFL",
            "all run with the settings of GPFL's code",
            source,
            THEIRS,
        ),
    ]


def judge_lead(
    histories: Histories, name: str, who: str, where: str, source: str, settings: str, variant: str = GPFL
) -> Claim:
    """Returns the claim that a variant of GPFL ends above each of the source's baselines, in one of the settings."""
    ahead = compare_with_baselines(histories, settings, list_partitions(histories), variant=variant)
    return make_claim(
        name,
        f"{who} beats Random, Pow-d and FedCor on Fashion-MNIST if {where} (mean of the last 10 rounds)",
        source,
        judge_larger_than_each(ahead, NOTICED),
        {f"{who} - baseline": describe_each(ahead)},
        rests_on=list_settings(histories, settings),
    )


def judge_early(histories: Histories) -> list[Claim]:
    """Returns the claims on the accuracy after 15 % and half of the rounds, as published."""
    partitions = list_partitions(histories)
    soon, halfway = (
        compare_with_baselines(histories, AS_PUBLISHED, partitions, metric)
        for metric in ("accuracy_at_15", "accuracy_at_50")
    )
    soon[FEDCOR] = {p: d for p, d in soon[FEDCOR].items() if p not in BEHIND_EARLY}
    soon = {other: found for other, found in soon.items() if found}
    early = {
        p: subtract(
            *(measure_cell(histories, p, AS_PUBLISHED, method, "accuracy_at_15") for method in (FEDCOR, RANDOM))
        )
        for p in partitions
    }
    return [
        make_claim(
            "ahead-early",
            "After 15 % of the rounds, GPFL is ahead of Random, Pow-d and (except on 2SPC) FedCor on Fashion-MNIST if "
            "each method runs as in its own code",
            "Table II, which has FedCor ahead on 2SPC; section VI-B: 'quickly achieves high test accuracy'",
            judge_larger_than_each(soon, NOTICED),
            {"GPFL - baseline": describe_each(soon)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        make_claim(
            "fedcor-is-good-early",
            "After 15 % of the rounds, FedCor is ahead of Random on Fashion-MNIST if each method runs as in its own "
            "code",
            "section VI-B: 'impressive performance in the early rounds'",
            judge_larger(early, NOTICED),
            {"FedCor - Random": describe_differences(early)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        make_claim(
            "ahead-halfway",
            "After half of the rounds, GPFL is ahead of Random, Pow-d and FedCor on Fashion-MNIST if each method runs "
            "as in its own code",
            "Table II",
            judge_larger_than_each(halfway, NOTICED),
            {"GPFL - baseline": describe_each(halfway)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
    ]


def judge_gap(histories: Histories) -> list[Claim]:
    """Returns the claims on the origin of the difference between the accuracies as published and in fair settings."""
    partitions = list_partitions(histories)
    closed = compare_with_gap(histories, THEIRS, partitions)
    by_network = compare_with_gap(histories, NETWORK, (SENSITIVE,))
    return [
        make_claim(
            "settings-make-the-gap",
            "With GPFL's settings instead of FedCor's, Random closes most (over half) of the gap to GPFL as published",
            "ours: the two codes differ in network, examples, schedule and weights",
            judge_larger(closed),
            {
                "share of the gap closed": compute_shares(histories, THEIRS, partitions),
                "gain - half of the gap": describe_differences(closed),
            },
            rests_on=list_settings(histories, "", THEIRS, AS_PUBLISHED),
        ),
        make_claim(
            "network-makes-the-gap",
            "With GPFL's network alone (784-64-10) instead of FedCor's, Random closes most (over half) of the gap to "
            f"GPFL as published ({SENSITIVE})",
            "ours: a prediction made before it was run",
            judge_larger(by_network),
            {
                "share of the gap closed": compute_shares(histories, NETWORK, (SENSITIVE,)),
                "gain - half of the gap": describe_differences(by_network),
            },
            rests_on=list_settings(histories, "", NETWORK, AS_PUBLISHED, partitions=(SENSITIVE,)),
        ),
    ]


def judge_steadiness(histories: Histories) -> list[Claim]:
    """Returns the claims on the largest deviation over the last rounds, as published."""
    partitions = list_partitions(histories)
    steady = {
        other: {
            partition: subtract(
                *(measure_cell(histories, partition, AS_PUBLISHED, m, "deviation_last") for m in (other, GPFL))
            )
            for partition in partitions
            if other != FEDCOR or partition not in AS_STEADY
        }
        for other in BASELINES
    }
    steady = {other: found for other, found in steady.items() if found}
    deviation = {
        p: measure_cell(histories, p, AS_PUBLISHED, GPFL, "deviation_last") for p in partitions if p not in UNSTEADY
    }
    little = {p: difference(np.full(len(value), FLUCTUATION), value) for p, value in deviation.items()}
    return [
        make_claim(
            "steadiest",
            "GPFL fluctuates less over the last 10 rounds than Random, Pow-d and (except on 2SPC) FedCor if each "
            "method runs as in its own code (largest deviation)",
            "section VI-B: 'no more than 4%'; Table II, which has 5 % for GPFL on Dir, and as small a deviation for "
            "FedCor on 2SPC",
            judge_larger_than_each(steady),
            {"baseline's deviation - GPFL's deviation": describe_each(steady)},
            rests_on=list_settings(histories, AS_PUBLISHED),
        ),
        make_claim(
            "fluctuates-little",
            "GPFL fluctuates by no more than 4 points over the last 10 rounds on 1SPC and 2SPC (largest deviation)",
            "section VI-B: 'no more than 4%'; Table II, which has 5 % on Dir",
            judge(ask_not_smaller(), little),
            {"4 points - GPFL's deviation": describe_differences(little)},
            rests_on=list_settings(histories, AS_PUBLISHED, partitions=little),
        ),
    ]


def compare_with_gap(histories: Histories, settings: str, partitions: Iterable[str]) -> dict[str, Difference]:
    """Returns what settings gain for Random, minus half of the gap from FedCor's settings to GPFL as published."""
    return {p: subtract(gain, 0.5 * gap) for p, (gain, gap) in measure_gap(histories, settings, partitions).items()}


def compute_shares(histories: Histories, settings: str, partitions: Iterable[str]) -> dict[str, float | None]:
    """Returns the share of that gap that settings close for Random, by means over seeds; None if there is no gap."""
    found = measure_gap(histories, settings, partitions)
    return {p: float(np.mean(gain) / np.mean(gap)) if np.mean(gap) else None for p, (gain, gap) in found.items()}


def measure_gap(
    histories: Histories, settings: str, partitions: Iterable[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns what settings gain for Random, and the gap from FedCor's settings to GPFL as published, by partition."""
    out = {}
    for p in partitions:
        first, then, last = (
            measure_cell(histories, p, name, method, "accuracy_last")
            for name, method in (("", RANDOM), (settings, RANDOM), (AS_PUBLISHED, GPFL))
        )
        out[p] = np.subtract(*pair(then, first)), np.subtract(*pair(last, first))
    return out


def find_lead(histories: Histories, partition: str) -> np.ndarray:
    """Returns how far GPFL ends above the baseline that is best in the same seed, as published."""
    last = [measure_cell(histories, partition, AS_PUBLISHED, m, "accuracy_last") for m in (GPFL, *BASELINES)]
    seeds = min(map(len, last))
    mine, *theirs = (values[:seeds] for values in last)
    return mine - np.max(theirs, axis=0)


def compare_coverage(histories: Histories, method: str, told: float) -> dict[str, Difference]:
    """Returns rounds to full coverage as published, minus a given number, where cohorts have the size of Fig. 4.

    A run that does not reach full coverage counts as one round more than it has, and the interval is open above.
    """
    out = {}
    for partition in list_partitions(histories):
        if PARTITIONS[partition][1] == FIGURE_4:
            rounds = measure_cell(histories, partition, AS_PUBLISHED, method, "coverage_round")
            cell = histories[name_experiment(find_data(histories), partition, AS_PUBLISHED), method]
            missed = bool((rounds > cell.rounds).any())
            out[partition] = open_interval(compare_with(rounds, told), first_missed=missed, second_missed=False)
    return out


def describe_rounds(rounds: np.ndarray, last: int) -> dict[str, float]:
    """Returns the mean rounds to full coverage over the seeds that reach it, and how many do not.

    >>> describe_rounds(np.array([40, 60, 501]), 500)
    {'mean over seeds that reach it': 50.0, 'seeds that never reach it': 1}
    """
    there = rounds[rounds <= last]
    mean = {"mean over seeds that reach it": float(there.mean())} if there.size else {}
    return {**mean, "seeds that never reach it": int((rounds > last).sum())}


def judge_exploration(histories: Histories) -> list[Claim]:
    """Returns the claims on coverage and selection counts, as published."""
    return [*judge_coverage(histories), *judge_counts(histories)]


def judge_coverage(histories: Histories) -> list[Claim]:
    """Returns the claims on the rounds until every client was selected."""
    covered = {
        method: {
            partition: measure_cell(histories, partition, AS_PUBLISHED, method, "coverage_round")
            for partition in list_partitions(histories)
        }
        for method in (GPFL, FEDCOR, RANDOM, POW_D)
    }
    soon = {p: difference(np.full(len(v), 50.0), v) for p, v in covered[GPFL].items()}
    last = {p: histories[name_experiment(find_data(histories), p, AS_PUBLISHED), GPFL].rounds for p in covered[GPFL]}
    when = {m: {p: describe_rounds(v, last[p]) for p, v in by.items()} for m, by in covered.items()}
    late = compare_coverage(histories, FEDCOR, 200)
    return [
        make_claim(
            "coverage-within-50",
            "GPFL selects every client at least once within the first 50 rounds",
            "Fig. 4",
            judge(ask_not_smaller(), soon),
            {"round of full coverage": when[GPFL]},
            rests_on=list_settings(histories, AS_PUBLISHED),
            fixed=VISIT,
        ),
        *(
            make_claim(
                name,
                f"{method} takes about {told} rounds to select every client at least once (± {told // 4} rounds; "
                f"cohorts of {FIGURE_4}; the figure shows one run)",
                "Fig. 4, section VI-C",
                judge(ask_as_published(told / 4), found),
                {
                    f"round of full coverage, minus {told} (intervals of one more run)": describe_runs(found),
                    "round of full coverage": when[method],
                },
                rests_on=list_settings(histories, AS_PUBLISHED, partitions=found),
                fixed=COLLECTOR if method == RANDOM else "",
            )
            for name, method, told, found in (
                ("fedcor-covers-late", FEDCOR, 200, late),
                ("random-covers-in-100", RANDOM, 100, compare_coverage(histories, RANDOM, 100)),
                ("pow-d-covers-in-100", POW_D, 100, compare_coverage(histories, POW_D, 100)),
            )
        ),
        make_claim(
            "fedcor-overlooks-some",
            f"FedCor takes more than 200 rounds to select every client at least once (cohorts of {FIGURE_4})",
            "section VI-C: 'surpassing 200 rounds before including all clients'",
            judge_larger(late),
            {"round of full coverage, minus 200": describe_differences(late), "round of full coverage": when[FEDCOR]},
            rests_on=list_settings(histories, AS_PUBLISHED, partitions=late),
        ),
    ]


def judge_counts(histories: Histories) -> list[Claim]:
    """Returns the claims on how often the client that is selected most often is selected."""
    there = [p for p in list_partitions(histories) if PARTITIONS[p][1] == FIGURE_4]
    most, tail = (
        {p: measure_cell(histories, p, AS_PUBLISHED, method, "most_selected") for p in there}
        for method in (GPFL, FEDCOR)
    )
    longer = {p: difference(most[p], tail[p]) for p in there}
    even, flat = (
        {p: measure_cell(histories, p, AS_PUBLISHED, method, "jain") for p in there} for method in (RANDOM, POW_D)
    )
    flatter = {p: difference(even[p], flat[p]) for p in there}
    linear = {SENSITIVE: measure_cell(histories, SENSITIVE, THEIRS, GROWING, "most_selected")}
    return [
        make_claim(
            "fedcor-has-a-tail",
            "FedCor selects the client that it selects most often in about 120 of the 500 rounds (± 30 rounds; "
            f"cohorts of {FIGURE_4}; the figure shows one run)",
            "Fig. 5b, section VI-C",
            judge(ask_as_published(30.0), {p: compare_with(v, 120.0) for p, v in tail.items()}),
            {"largest number of rounds with the same client": {p: float(v.mean()) for p, v in tail.items()}},
            rests_on=list_settings(histories, AS_PUBLISHED, partitions=tail),
        ),
        make_claim(
            "longer-tail-than-fedcor",
            f"GPFL selects its most selected client more often than FedCor selects its own (cohorts of {FIGURE_4})",
            "Fig. 5, section VI-C",
            judge_larger(longer),
            {"GPFL's largest count - FedCor's largest count": describe_differences(longer)},
            rests_on=list_settings(histories, AS_PUBLISHED, partitions=longer),
        ),
        make_claim(
            "pow-d-is-flatter",
            "How often clients are selected differs more with Pow-d than with Random "
            f"(cohorts of {FIGURE_4}; Jain's index is lower)",
            "Fig. 5, section VI-C: 'Pow-d showing a flatter curve'",
            judge_larger(flatter),
            {"Random's index - Pow-d's index": describe_differences(flatter)},
            rests_on=list_settings(histories, AS_PUBLISHED, partitions=flatter),
        ),
        *(
            make_claim(
                name,
                f"GPFL{words} selects its most selected client in nearly all of the 500 rounds (at least 400)",
                "Fig. 5a, section VI-C: 'a distinctive long tail reaching up to around 500' (the bound of 400 is ours)",
                judge(ask_not_smaller(), {p: compare_with(v, 400.0) for p, v in counts.items()}),
                {"largest number of rounds with the same client": {p: float(v.mean()) for p, v in counts.items()}},
                rests_on=list_settings(histories, settings, partitions=counts),
            )
            for name, words, settings, counts in (
                ("long-tail", "", AS_PUBLISHED, most),
                ("long-tail-rho-1", " with ρ = 1", THEIRS, linear),
            )
        ),
    ]
