"""Verdicts on what LEFL says about itself, and on what else should be asked about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from fedjax_sel.papers.differences import (
    compare_with,
    describe_differences,
    describe_each,
    describe_factor,
    describe_runs,
)
from fedjax_sel.papers.judging import ask_as_published, judge, judge_larger, judge_larger_than_each, make_claim
from fedjax_sel.papers.lefl.cells import (
    AS_PUBLISHED,
    BASELINES,
    EXPERIMENTS,
    FEDAVG,
    FEDNOVA,
    FEDPROX,
    HIGH,
    LEFL,
    LOW,
    SCAFFOLD,
    TUNED,
)
from fedjax_sel.papers.lefl.cluster_claims import judge_clusters, judge_groups
from fedjax_sel.papers.lefl.comparisons import (
    NOTICED,
    SPEED_UP,
    compare,
    compare_costs,
    compare_ratio,
    has_all,
    list_medians,
    list_settings,
    measure_cell,
)
from fedjax_sel.papers.lefl.numbers import find_data, find_target, list_own, list_table_1
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

Judge = Callable[[str, Histories, str], list[Claim]]
"""Returns claims of a scale about runs under the same settings, which the last argument names."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims whose runs the scale has; each rests on experiments under one of the settings.

    The exception is the claim on the rate, which compares two of the settings.
    """
    histories, studies = evidence.histories, evidence.studies

    def judge_under(judge: Judge, *settings: str) -> list[Callable[[], Iterable[Claim]]]:
        return [lambda one=one: judge(scale, histories, one) for one in settings]

    return join(
        *judge_under(judge_speed_up, AS_PUBLISHED, HIGH, LOW),
        *judge_under(judge_rounds, AS_PUBLISHED, HIGH, LOW),
        lambda: judge_rate(scale, histories),
        *judge_under(judge_slow_baselines, AS_PUBLISHED),
        *judge_under(judge_fast_scaffold, AS_PUBLISHED),
        *judge_under(judge_accuracy, AS_PUBLISHED, HIGH, LOW),
        *judge_under(judge_lead, AS_PUBLISHED),
        *judge_under(judge_against_fedavg, AS_PUBLISHED, HIGH, LOW),
        *judge_under(judge_scaffold, AS_PUBLISHED, HIGH),
        *judge_under(judge_noise, AS_PUBLISHED, HIGH, LOW),
        *judge_under(judge_more_bytes, AS_PUBLISHED, HIGH),
        *judge_under(judge_fewer_bytes, AS_PUBLISHED, HIGH),
        lambda: judge_bytes_of_scaffold(scale, histories),
        *judge_under(judge_computation, AS_PUBLISHED, HIGH, LOW),
        lambda: judge_clusters(studies["clusters"], studies["ablation"]),
        lambda: judge_groups(studies["ablation"]),
        *judge_under(judge_combinations, HIGH),
        *judge_under(judge_tuned, HIGH),
    )


ROUNDS = {AS_PUBLISHED: "as-published", HIGH: "at-its-rate", LOW: "at-their-rate"}
SLUGS = {AS_PUBLISHED: "as-published", HIGH: "fair", LOW: "at-their-rate"}
"""Ends of claims' names, of those on rounds and of the others."""

HOW = {
    AS_PUBLISHED: "as published",
    HIGH: f"all with {HIGH} and cohorts of the same size",
    LOW: f"all with {LOW} and cohorts of the same size",
}
"""Settings in words."""

WHY = {HIGH: "with the rate of LEFL's code", LOW: "each client's 'learning rate of 0.01'"}
"""Why the source's sentence is asked about these settings."""

SAID_OF_CIFAR = "'an accuracy boost of 6%' on CIFAR-10, over whom it does not say"
"""The source's sentence about accuracy as published, for a claim on FedAvg alone."""

IMPLIED_OF_SCAFFOLD = (
    "Fig. 5 (implied, on EMNIST, by section IV-B's comparison of LEFL with SCAFFOLD, which 'diverged' in two other "
    "experiments)"
)
"""Where the source has SCAFFOLD above FedAvg, without a sentence that says so."""


def say_target(scale: str) -> str:
    """Returns, at `medium`, to which accuracy and within how many rounds; "" at other scales."""
    if scale != "medium":
        return ""
    ((name, config),) = EXPERIMENTS[scale].items()
    return f" to reach accuracy {find_target(name):g}, within {config['rounds']} rounds"


def say_ends(scale: str, method: str) -> str:
    """Returns the beginning of a sentence on a method's final accuracy."""
    if scale != "medium":
        return f"{method} ends at a higher accuracy than"
    (config,) = EXPERIMENTS[scale].values()
    return f"After {config['rounds']} rounds, {method} is more accurate than"


def judge_speed_up(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim of Table I on LEFL against FedAvg."""
    names = list_table_1(scale)
    thrice = compare_ratio(histories, names, (settings, FEDAVG), (settings, LEFL), SPEED_UP)
    if settings == AS_PUBLISHED:
        source = "Table I"
        text = f"LEFL with learning rate 0.1 needs at least {SPEED_UP:g} times fewer rounds than FedAvg with 0.01"
        text += f"{say_target(scale)} (compared in decades)"
    else:
        source = "Table I, read as the advantage of a sampling method"
        text = (
            f"LEFL needs at least {SPEED_UP:g} times fewer rounds than FedAvg{say_target(scale)} if both use "
            f"{settings} and cohorts of the same size (compared in decades)"
        )
    return [
        make_claim(
            f"three-times-fewer-rounds-{ROUNDS[settings]}",
            text,
            source,
            judge_larger(thrice),
            {
                "FedAvg's rounds / LEFL's rounds": {n: describe_factor(d, SPEED_UP) for n, d in thrice.items()},
                "median rounds": list_medians(histories, names, settings, (*BASELINES, LEFL)),
            },
            rests_on=list_settings(names, settings),
        )
    ]


def judge_rounds(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on rounds against each of the other methods, if all are run."""
    if not has_all(scale, settings, BASELINES):
        return []
    names = list_table_1(scale)
    faster = {
        other: compare_costs(histories, names, "rounds", (settings, other), (settings, LEFL)) for other in BASELINES
    }
    return [
        make_claim(
            f"fewer-rounds-{ROUNDS[settings]}",
            f"LEFL needs fewer rounds than each of the other methods{say_target(scale)} ({HOW[settings]})",
            f"section IV-B: 'significantly fewer number of rounds'{f'; {WHY[settings]}' if settings in WHY else ''}",
            judge_larger_than_each(faster),
            {"the other method's rounds - LEFL's rounds": describe_each(faster)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_rate(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claim on FedAvg's rounds at one rate and at the other."""
    names = list_table_1(scale)
    rate = compare_ratio(histories, names, (LOW, FEDAVG), (HIGH, FEDAVG), SPEED_UP)
    return [
        make_claim(
            "rate-makes-the-speed-up",
            f"FedAvg at LEFL's rate needs at least {SPEED_UP:g} times fewer rounds than with {LOW}{say_target(scale)} "
            "(compared in decades)",
            "ours: the rates of the code's two trainers are 0.1 and 0.01",
            judge_larger(rate),
            {f"rounds with {LOW} / rounds at LEFL's rate": {n: describe_factor(d, SPEED_UP) for n, d in rate.items()}},
            rests_on=list_settings(names, LOW, HIGH),
        )
    ]


def judge_slow_baselines(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claims of Table I on FedProx and, on EMNIST or what replaces it, FedNova, if they are run."""
    out = []
    every = list_table_1(scale)
    for method, how, source, names in (
        (FEDPROX, "as published, μ = 1", "Table I", every),
        (FEDNOVA, "as published", "Table I, on EMNIST", [name for name in every if not is_cifar(name)]),
    ):
        if names and has_all(scale, settings, (FEDAVG, method)):
            slower = compare_costs(histories, names, "rounds", (settings, method), (settings, FEDAVG))
            out.append(
                make_claim(
                    f"{method.lower()}-is-slower",
                    f"{method} needs more rounds than FedAvg ({how})",
                    source,
                    judge_larger(slower),
                    {f"{method}'s rounds - FedAvg's rounds": describe_differences(slower)},
                    rests_on=list_settings(names, settings),
                )
            )
    return out


def judge_fast_scaffold(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim of Table I on SCAFFOLD."""
    names = list_table_1(scale)
    scaffold = compare_costs(histories, names, "rounds", (settings, FEDAVG), (settings, SCAFFOLD))
    return [
        make_claim(
            "scaffold-is-faster",
            f"SCAFFOLD needs fewer rounds than FedAvg{say_target(scale)} (as published)",
            "Table I",
            judge_larger(scaffold),
            {"FedAvg's rounds - SCAFFOLD's rounds": describe_differences(scaffold)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_accuracy(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim of Fig. 5 on final accuracy against each of the other methods, if all are run."""
    if not has_all(scale, settings, BASELINES):
        return []
    names = list_own(scale)
    over = {m: compare(histories, names, "accuracy_last", (settings, LEFL), (settings, m)) for m in BASELINES}
    return [
        make_claim(
            f"more-accurate-{SLUGS[settings]}",
            f"{say_ends(scale, LEFL)} each of the other methods ({HOW[settings]}; mean of the last 10 rounds)",
            f"Fig. 5, section IV-B: {WHY.get(settings, '5 % and 6 % over SCAFFOLD on EMNIST')}",
            judge_larger_than_each(over, NOTICED),
            {"LEFL - the other method": describe_each(over)},
            rests_on=list_settings(names, settings),
        )
    ]


LEADS = {"labeldir": 0.05, "label15": 0.06, "label2": 0.06}
"""By how much LEFL is more accurate than SCAFFOLD in the source, by partition of EMNIST or of what replaces it."""


def judge_lead(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on LEFL's lead over SCAFFOLD on EMNIST or the data that replace it; none on CIFAR alone."""
    published = {name: lead for name in list_own(scale) for end, lead in LEADS.items() if name.endswith(f", {end}")}
    if not published or not has_all(scale, settings, (SCAFFOLD, LEFL)):
        return []
    over = compare(histories, published, "accuracy_last", (settings, LEFL), (settings, SCAFFOLD))
    leads = "; ".join(f"{name}: {100 * lead:g}" for name, lead in published.items())
    beyond = {name: compare_with(np.array(d.values), published[name]) for name, d in over.items()}
    return [
        make_claim(
            "leads-scaffold-by-as-much",
            f"LEFL ends above SCAFFOLD by as much as published, ± 2 points ({leads}; {HOW[settings]}; mean of the last "
            "10 rounds; the published leads are taken as of one run each)",
            "section IV-B: 'an increase of 5% and 6%' on EMNIST",
            judge(ask_as_published(0.02), beyond),
            {"LEFL - SCAFFOLD, minus the published lead (intervals of one more run)": describe_runs(beyond)},
            rests_on=list_settings(published, settings),
        )
    ]


def judge_against_fedavg(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim of Fig. 5 on final accuracy against FedAvg alone, at `medium`."""
    if scale != "medium":
        return []
    names = list(EXPERIMENTS[scale])
    over = compare(histories, names, "accuracy_last", (settings, LEFL), (settings, FEDAVG))
    return [
        make_claim(
            f"more-accurate-than-fedavg-{SLUGS[settings]}",
            f"{say_ends(scale, LEFL)} FedAvg ({HOW[settings]}; mean of the last 10 rounds)",
            f"Fig. 5, section IV-B: {WHY.get(settings, SAID_OF_CIFAR)}",
            judge_larger(over, NOTICED),
            {"LEFL - FedAvg": describe_differences(over)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_scaffold(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on SCAFFOLD's final accuracy against FedAvg's."""
    names = [name for name in list_own(scale) if scale != "full" or not is_cifar(name)]
    ahead = compare(histories, names, "accuracy_last", (settings, SCAFFOLD), (settings, FEDAVG))
    slug, how, source = {
        AS_PUBLISHED: ("", f"as published, both with {LOW}", IMPLIED_OF_SCAFFOLD),
        HIGH: ("-at-its-rate", f"both at {HIGH}", "ours; SCAFFOLD's own paper"),
    }[settings]
    return [
        make_claim(
            f"scaffold-beats-fedavg{slug}",
            f"{say_ends(scale, SCAFFOLD)} FedAvg ({how}; mean of the last 10 rounds)",
            source,
            judge_larger(ahead, NOTICED),
            {"SCAFFOLD - FedAvg": describe_differences(ahead)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_noise(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on how much accuracy fluctuates from round to round at the end."""
    names = list_own(scale)
    calmer = compare(histories, names, "noise_last", (settings, FEDAVG), (settings, LEFL))
    return [
        make_claim(
            f"less-noisy-{SLUGS[settings]}",
            f"LEFL's accuracy fluctuates less than FedAvg's over the last 10 rounds ({HOW[settings]}; standard "
            "deviation)",
            "abstract: 'the FL training becomes less noisy'" + (f"; {WHY[settings]}" if settings in WHY else ""),
            judge_larger(calmer),
            {"FedAvg's deviation - LEFL's deviation": describe_differences(calmer)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_more_bytes(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on Table I's cost with EMNIST or the data that replace it; none on CIFAR alone."""
    names = [name for name in list_table_1(scale) if not is_cifar(name)]
    if not names:
        return []
    more = compare_costs(histories, names, "bytes", (settings, LEFL), (settings, FEDAVG))
    return [
        make_claim(
            f"more-bytes-{SLUGS[settings]}",
            f"LEFL, including its pre-phase, needs more bytes than FedAvg to reach the target ({settings})",
            "ours: at equal rates" if settings == HIGH else "section IV-B, on EMNIST: '0.02GB additional'",
            judge_larger(more),
            {f"LEFL's bytes - FedAvg's bytes; {LEAST}": describe_differences(more)},
            rests_on=list_settings(names, settings),
            lacks=FEW_CLIENTS if settings == AS_PUBLISHED and scale == "small" else "",
        )
    ]


FEW_CLIENTS = (
    "the paper explains its 0.02 GB by 'the large number of clients and a relatively smaller model size', and by the "
    "public examples that each client downloads: it has 1000 clients, these runs have 200"
)


def judge_fewer_bytes(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on Table I's cost on CIFAR; none without CIFAR."""
    names = [name for name in list_table_1(scale) if is_cifar(name)]
    if not names:
        return []
    fewer = compare_costs(histories, names, "bytes", (settings, FEDAVG), (settings, LEFL))
    return [
        make_claim(
            f"fewer-bytes-{SLUGS[settings]}",
            "On CIFAR, LEFL, including its pre-phase, needs fewer bytes than FedAvg"
            f"{say_target(scale) or ' to reach the target'} ({settings})",
            "ours: at equal rates"
            if settings == HIGH
            else "Table I, section IV-B: 'saved an extra 3.78GB and a 6.9GB'",
            judge_larger(fewer),
            {f"FedAvg's bytes - LEFL's bytes; {LEAST}": describe_differences(fewer)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_bytes_of_scaffold(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claim that SCAFFOLD's fewer rounds cost more bytes, as each of them sends twice a model."""
    names = list_table_1(scale)
    more = compare_costs(histories, names, "bytes", (AS_PUBLISHED, SCAFFOLD), (AS_PUBLISHED, FEDAVG))
    return [
        make_claim(
            "scaffold-costs-more-bytes",
            f"SCAFFOLD needs more bytes than FedAvg{say_target(scale) or ' to reach the target'} ({AS_PUBLISHED})",
            "Table I: '+4.6GB', '+3.7GB' and '+0.52GB'",
            judge_larger(more),
            {f"SCAFFOLD's bytes - FedAvg's bytes; {LEAST}": describe_differences(more)},
            rests_on=list_settings(names, AS_PUBLISHED),
        )
    ]


def judge_computation(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on what clients compute until the target; the server's clustering is on nobody's bill."""
    names = list_table_1(scale)
    less = compare_costs(histories, names, "flops", (settings, FEDAVG), (settings, LEFL))
    said = "'significantly decreasing the communication overhead and overall computational expense'"
    return [
        make_claim(
            f"less-computation-{SLUGS[settings]}",
            "The clients of LEFL, including its pre-phase, compute less than FedAvg's"
            f"{say_target(scale) or ' to reach the target'} ({HOW[settings]}; FLOPs)",
            f"section VII: {said}{f'; {WHY[settings]}' if settings in WHY else ''}",
            judge_larger(less),
            {f"FedAvg's FLOPs - LEFL's FLOPs; {LEAST}": describe_differences(less)},
            rests_on=list_settings(names, settings),
        )
    ]


LEAST = "a run that never reaches the target counts with all that it spent, a lower bound"


def is_cifar(name: str) -> bool:
    """Returns whether an experiment is on CIFAR, where Table I has LEFL cheaper than FedAvg."""
    return find_data(name).startswith("CIFAR")


def judge_combinations(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on LEFL's cohorts with each of the other methods, if those are run."""
    mine = {FEDAVG: LEFL} | {theirs: f"LEFL + {theirs}" for theirs in (FEDPROX, SCAFFOLD, FEDNOVA)}
    if not has_all(scale, settings, mine.values()):
        return []
    names = list_own(scale)
    over = {
        theirs: compare(histories, names, "accuracy_last", (settings, method), (settings, theirs))
        for theirs, method in mine.items()
    }
    return [
        make_claim(
            "adds-to-the-other-methods",
            "LEFL's cohorts raise the accuracy of FedAvg, FedProx, SCAFFOLD and FedNova, all at LEFL's rate (mean of "
            "the last 10 rounds)",
            "ours; section II-A: 'it is quite simple to adapt it for any of the above aggregation schemes'",
            judge_larger_than_each(over, NOTICED),
            {"with LEFL - without LEFL": describe_each(over)},
            rests_on=list_settings(names, settings),
        )
    ]


def judge_tuned(scale: str, histories: Histories, settings: str) -> list[Claim]:
    """Returns the claim on LEFL against FedProx with the best μ, if several are run."""
    if not has_all(scale, settings, TUNED):
        return []
    tuned = {}
    for name in list_own(scale):
        ends = {m: measure_cell(histories, name, settings, m, "accuracy_last") for m in (FEDPROX, *TUNED)}
        seeds = min(map(len, ends.values()))
        best = max(ends, key=lambda m, ends=ends, seeds=seeds: ends[m][:seeds].mean())
        (tuned[f"{name}, against {best}"],) = compare(
            histories, [name], "accuracy_last", (settings, LEFL), (settings, best)
        ).values()
    return [
        make_claim(
            "more-accurate-than-tuned-fedprox",
            "LEFL ends at a higher accuracy than FedProx with the μ, out of 0.001, 0.1 and 1, that is best in "
            "hindsight",
            "ours: with the default μ, FedProx is nearly FedAvg",
            judge_larger(tuned, NOTICED),
            {"LEFL - FedProx": describe_differences(tuned)},
            rests_on=list_settings(list_own(scale), settings),
        )
    ]
