"""Verdicts on what GPFL says about time and CIFAR-10, and on what else should be asked about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.papers.differences import (
    compare_factor,
    compare_with,
    describe_difference,
    describe_differences,
    describe_each,
    describe_factor,
    subtract,
)
from fedjax_sel.papers.gpfl.cells import (
    AS_PUBLISHED,
    BLIND,
    CIFAR,
    COSINE,
    FEDCOR,
    GPFL,
    LITERAL,
    PARTITIONS,
    POW_D,
    RANDOM,
    ROBIN,
    SENSITIVE,
    SLOWLY,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.comparisons import BASELINES, NOTICED, list_settings, measure_cell
from fedjax_sel.papers.gpfl.numbers import CIFAR_ROUNDS, find_data, find_published, list_partitions, measure
from fedjax_sel.papers.judging import (
    NOT_REPRODUCED,
    REPRODUCED,
    Judgement,
    ask_comparable,
    ask_not_smaller,
    judge,
    judge_larger,
    judge_larger_than_each,
    make_claim,
    need_rivals,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories


def judge_times(evidence: Evidence) -> list[Claim]:
    """Returns the claims on time for the data sets on which times were measured."""
    known = (("time", "", "Fig. 6"), ("time_cifar", "-on-cifar", "Fig. 6b"))
    costs = [
        claim
        for name, slug, figure in known
        if evidence.studies.get(name, {}).get("methods")
        for claim in judge_cost(evidence.studies[name], slug, figure)
    ]
    growth = judge_growth_with_cohort(study) if (study := evidence.studies.get("choice")) else []
    candidates = judge_candidates(study) if (study := evidence.studies.get("time", {})).get("methods") else []
    return [*costs, *candidates, *growth]


LONGER = 1.5
"""How many times as long "much more time" takes at least."""

TENTH = 0.1
"""What "about as long" means at most, as a fraction."""


def judge_cost(study: Mapping[str, Any], slug: str, figure: str) -> list[Claim]:
    """Returns the claims on measured time; the intervals are over repeats of one seed.

    Args:
      study: of one data set.
      slug: what the claims' ids say about it.
      figure: of the source.
    """
    where = f" on {CIFAR}" if slug else ""
    rests_on = [name_experiment(CIFAR, SENSITIVE)] if slug else []
    times = {method: np.array(row["measured_seconds"]) for method, row in study["methods"].items()}

    def slower(method: str) -> Difference:
        return compare_factor(times[method], times[RANDOM])

    mine, pow_d = slower(GPFL), compare_factor(times[POW_D], times[GPFL])
    longer = {method: compare_factor(times[FEDCOR], times[method], LONGER) for method in (RANDOM, POW_D, GPFL)}
    shown = {method: float(np.median(t / times[RANDOM])) for method, t in times.items()}
    return [
        make_claim(
            f"cost-just-above-random{slug}",
            f"{study['rounds']} rounds of GPFL take about as long as those of Random{where} (within a tenth, "
            "compared in decades)",
            f"{figure}, section VI-D",
            count_repeats(judge(ask_comparable(float(np.log10(1 + TENTH))), {GPFL: mine})),
            {
                "measured time / Random's time, median": shown,
                "GPFL's time / Random's time": describe_factor(mine),
            },
            rests_on=rests_on,
            lacks=describe_noise(times, TENTH, "the margin of a tenth"),
        ),
        make_claim(
            f"pow-d-is-slower{slug}",
            f"{study['rounds']} rounds of Pow-d take longer than those of GPFL{where} (compared in decades; the "
            "paper's Pow-d trains its candidates, ours asks for their losses alone, which takes less time)",
            f"{figure}, section VI-D: 'slightly slower'",
            count_repeats(judge_larger({POW_D: pow_d})),
            {"Pow-d's time / GPFL's time": describe_factor(pow_d)},
            rests_on=rests_on,
            lacks=describe_noise(times, 10 ** abs(pow_d.mean) - 1, "this difference"),
        ),
        make_claim(
            f"fedcor-is-slowest{slug}",
            f"{study['rounds']} rounds of FedCor take much longer than those of each other method{where} (at least "
            f"{LONGER:g} times as long, compared in decades)",
            f"{figure}, section VI-D: 'much more time'",
            count_repeats(judge_larger_than_each({m: {"": d} for m, d in longer.items()})),
            {f"FedCor's time / {m}'s time": describe_factor(d, LONGER) for m, d in longer.items()},
            rests_on=rests_on,
            lacks="in Fig. 6, Pow-d trains all of its candidates, which ours asks for their losses"
            + ("" if slug else ", and FedCor has the longer fits of CIFAR-10"),
        ),
    ]


ASKS_MORE = (
    "in every round, Pow-d sends the model to more clients than the cohort has, and asks them for their losses; GPFL "
    "asks its cohort alone"
)


def judge_candidates(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claim on what Pow-d's candidates cost the clients, on their bill."""
    pow_d, gpfl = (study["methods"][method] for method in (POW_D, GPFL))
    times = {unit: pow_d[unit] / gpfl[unit] for unit in ("flops", "bytes")}
    return [
        make_claim(
            "pow-d-costs-clients-more",
            f"The clients of Pow-d compute more, and send and receive more, than GPFL's in {study['rounds']} rounds",
            "section VI-D: 'additional clients as candidates'; section I: 'minimizing the computational burden on "
            "clients and reducing communication costs'",
            REPRODUCED if min(times.values()) > 1 else NOT_REPRODUCED,
            {f"Pow-d's {unit.replace('flops', 'FLOPs')} / GPFL's": ratio for unit, ratio in times.items()},
            fixed=ASKS_MORE,
        )
    ]


def describe_noise(times: Mapping[str, np.ndarray], size: float, what: str) -> str:
    """Returns why times cannot show a difference of a size, a fraction, or its absence; "" if they can.

    GPFL and GPFL without rewards do the same work, so by how much they differ in one repeat is noise, as far as that
    was measured. What is shown has to be at least twice as large.

    Args:
      times: seconds by method, of each repeat.
      size: of the difference.
      what: the difference in words.
    """
    if BLIND not in times:
        return "it was not measured by how much the times of programs differ that do the same work"
    noise = float(np.abs(times[BLIND] / times[GPFL] - 1).max())
    if size > 2 * noise:
        return ""
    return (
        f"programs that do the same work differ by up to {100 * noise:.1f} % in this study's repeats, which is too "
        f"near {what}"
    )


def judge_growth_with_cohort(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims on how FedCor's time on the server grows with the cohort; intervals are over repeats.

    The source's sentence can be read in two ways, which are both judged: of all that FedCor does in a round, or of its
    choice alone, which takes K steps.
    """
    rounds, clients = study["rounds"], study["clients"]
    out = []
    for kind, slug, words, source in (
        ("fitted", "", "", "section VI-D: 'proportional to the number of required clients K'"),
        ("chosen", "-without-fits", ", without the fits of its process,", "section VI-D, read as its choice alone"),
    ):
        found = compare_with(fit_exponents(study[kind]), 1.0)
        sizes = ", ".join(study[kind])
        out.append(
            make_claim(
                f"fedcor-is-proportional-to-k{slug}",
                f"FedCor's time on the server per round{words} is proportional to the size of the cohort (exponent 1 "
                f"± 0.2; cohorts of {sizes} of {clients} clients, {rounds} rounds)",
                source,
                count_repeats(judge(ask_comparable(0.2), {FEDCOR: found})),
                {
                    "exponent, minus 1": describe_repeats(found),
                    "time per round in microseconds, median": {
                        f"K = {m}": float(1e6 * np.median(spent)) for m, spent in study[kind].items()
                    },
                },
                lacks="these are times of our program, whose fits and loops cost otherwise than the paper's",
            )
        )
    return out


def fit_exponents(seconds: Mapping[str, Sequence[float]]) -> np.ndarray:
    """Returns the slope of the logarithm of time over the logarithm of size, by least squares, for each repeat.

    >>> fit_exponents({"5": [1.0, 3.0], "10": [2.0, 3.0], "20": [4.0, 3.0]})
    array([1., 0.])
    """
    sizes = np.log([float(m) for m in seconds])
    slopes = np.polyfit(sizes, np.log(np.array(list(seconds.values()))), 1)[0]
    return slopes.round(12) + 0.0


def describe_repeats(d: Difference) -> dict[str, float]:
    """Returns a difference over repeated measurements of one seed as a claim's statistic."""
    return name_repeats(describe_difference(d))


def count_repeats(found: Judgement) -> Judgement:
    """Returns a verdict on repeated measurements of one seed; the fair regime does not count these as seeds."""
    return replace(found, effect={**found.effect, "pooled": name_repeats(found.effect["pooled"])})


def name_repeats(described: Mapping[str, float]) -> dict[str, float]:
    """Returns a described difference whose values are repeats."""
    return {"repeats" if name == "seeds" else name: value for name, value in described.items()}


def judge_cifar(histories: Histories) -> list[Claim]:
    """Returns the claims of Table II on CIFAR-10, where Table II itself shows the difference.

    Shorter runs than the source's are judged by its first rows, accuracy after 15 % of 2000 rounds.
    """
    rounds = {history.rounds for (experiment, _), history in histories.items() if experiment.startswith(CIFAR)}
    is_short = max(rounds) < CIFAR_ROUNDS
    column, when = ("at_15", f"After {max(rounds)} of {CIFAR_ROUNDS} rounds, ") if is_short else ("last", "")
    source = "Table II, 15 %" if is_short else "Table II, section VI-B"

    def list_ahead(first: str, second: str) -> list[str]:
        """Returns the partitions on which the source has the first ahead of the second, or lacks one of them."""
        published = {p: [find_published(CIFAR, p, method, column) for method in (first, second)] for p in PARTITIONS}
        return [p for p in PARTITIONS if is_ahead(*published[p])]

    def compare(first: str, second: str) -> dict[str, Difference]:
        """Compares two methods wherever both were run and the source has the first ahead."""
        ahead = list_ahead(first, second)
        keys = {p: [(name_experiment(CIFAR, p), method) for method in (first, second)] for p in ahead}
        return {
            p: subtract(*(measure(histories[key])["accuracy_last"] for key in both))
            for p, both in keys.items()
            if all(key in histories for key in both)
        }

    def judge_ahead(name: str, text: str, pairs: Mapping[str, tuple[str, str]]) -> list[Claim]:
        wanted = {rival: compare(*pair) for rival, pair in pairs.items() if list_ahead(*pair)}
        by_rival = {rival: found for rival, found in wanted.items() if found}
        if not by_rival:
            return []
        partitions = [p for p in PARTITIONS if any(p in found for found in by_rival.values())]
        rivals = " and ".join(f"{rival} ({', '.join(found)})" for rival, found in by_rival.items())
        claim = make_claim(
            name,
            f"{when}{text.format(rivals)} on CIFAR-10, if all run with FedCor's settings",
            source,
            judge_larger_than_each(by_rival, NOTICED),
            {"difference of the mean of the last 10 rounds": describe_each(by_rival)},
            rests_on=[name_experiment(CIFAR, p) for p in partitions],
        )
        return [need_rivals(claim, wanted, by_rival)]

    return [
        *judge_ahead("fedcor-worse-than-random", "FedCor is less accurate than {}", {RANDOM: (RANDOM, FEDCOR)}),
        *judge_ahead("falls-short-of-pow-d-on-cifar", "GPFL is less accurate than {}", {POW_D: (POW_D, GPFL)}),
        *judge_ahead("beats-all-on-cifar", "GPFL is more accurate than {}", {m: (GPFL, m) for m in BASELINES}),
        *judge_ahead(
            "beats-all-on-cifar-as-in-its-text",
            "GPFL with its text's α = t / 2000 is more accurate than {}",
            {m: (SLOWLY, m) for m in BASELINES},
        ),
    ]


def is_ahead(first: float | None, second: float | None) -> bool:
    """Returns whether a published number is above another; true if one of them was not published."""
    return first is None or second is None or first > second


def judge_ours(histories: Histories) -> list[Claim]:
    """Returns the claims that are ours."""
    leak = {
        partition: difference(
            measure_cell(histories, partition, AS_PUBLISHED, GPFL, "accuracy_last"),
            measure_cell(histories, partition, THEIRS, GPFL, "accuracy_last"),
        )
        for partition in list_partitions(histories)
    }
    return [
        *judge_against(
            histories,
            ROBIN,
            "better-than-round-robin",
            "GPFL is more accurate than visiting the clients in turn",
            "ours: its bonus alone would be round-robin",
            "GPFL - round-robin",
        ),
        make_claim(
            "leak-is-harmless",
            "Rewarding by test accuracy instead of validation accuracy changes the result by less than 0.01",
            "ours: the code computes rewards on the test set",
            judge(ask_comparable(0.01), leak),
            {"test rewards - validation rewards, mean of the last 10 rounds": describe_differences(leak)},
            rests_on=list_settings(histories, AS_PUBLISHED, THEIRS),
        ),
    ]


def judge_regret(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the verdict on regret, in the federation in which all cohorts were tried."""
    regret = {method: np.array(row["share"]) for method, row in study["methods"].items()}
    lower = difference(regret[RANDOM], regret[GPFL])
    return [
        make_claim(
            "regret-below-random",
            "In a federation small enough to try all cohorts, GPFL has a lower regret than Random (in the validation "
            "loss after a round; GPFL as in its code, with 4 rounds to visit all clients)",
            "ours; the bound of its theorem is negative for every t",
            judge_larger({GPFL: lower}),
            {
                "regret, as a share of a random cohort's regret": {m: float(v.mean()) for m, v in regret.items()},
                "Random's regret - GPFL's regret": describe_difference(lower),
            },
            lacks="this federation of digits has some 115 examples per client, 2 local epochs and "
            f"{study['rounds']} rounds",
        ),
    ]


def judge_rewards(histories: Histories) -> list[Claim]:
    """Returns whether GPFL's rewards have any effect, under both settings; no claims if that was not run."""
    return judge_against(
        histories,
        BLIND,
        "rewards-pay",
        "GPFL is more accurate than GPFL with all rewards 0, which selects the clients that were selected least",
        "ours: the reward is what the source proposes",
        "GPFL - GPFL without rewards",
    )


def judge_projection(histories: Histories) -> list[Claim]:
    """Returns whether projections are better than cosine similarity; no claim if that was not run."""
    return judge_against(
        histories,
        COSINE,
        "projection-beats-cosine",
        "GPFL is more accurate than GPFL with the cosine similarity instead of the gradient projection",
        "section III-A: 'Using gradient magnitude in client selection boosts diversity ... which can improve outcomes'",
        "GPFL - GPFL with cosine similarity",
    )


def judge_against(histories: Histories, control: str, name: str, text: str, source: str, statistic: str) -> list[Claim]:
    """Returns whether GPFL ends above a control: one claim under FedCor's settings and one under its own.

    There are two claims because under its own settings, all methods end within a point of each other, with equally
    small deviations.

    Args:
      histories: of the cells.
      control: the method.
      name, text, source: of the claim, without the settings.
      statistic: name of the differences.
    """
    out, data = [], find_data(histories)
    for settings, slug, words in (("", "", "FedCor's settings"), (THEIRS, "-in-its-own-settings", "its own settings")):
        there = [p for p in list_partitions(histories) if (name_experiment(data, p, settings), control) in histories]
        over = {
            p: subtract(*(measure_cell(histories, p, settings, m, "accuracy_last") for m in (GPFL, control)))
            for p in there
        }
        if there:
            claim = make_claim(
                f"{name}{slug}",
                f"{text} ({words}, mean of the last 10 rounds)",
                source,
                judge_larger(over, NOTICED),
                {statistic: describe_differences(over)},
                rests_on=[name_experiment(data, p, settings) for p in there],
            )
            out.append(claim)
    return out


def judge_letter(histories: Histories) -> list[Claim]:
    """Returns the claim on the text to the letter; none if it was not run."""
    there = [p for p in list_partitions(histories) if (name_experiment(find_data(histories), p), LITERAL) in histories]
    if not there:
        return []
    jain = {p: measure_cell(histories, p, "", LITERAL, "jain") for p in there}
    ahead = {
        p: subtract(*(measure_cell(histories, p, "", method, "accuracy_last") for method in (LITERAL, ROBIN)))
        for p in there
    }
    return [
        make_claim(
            "letter-is-round-robin",
            "With its equations (5) to (8) exactly as printed, GPFL selects every client equally often (Jain's index "
            "at least 0.99), as round-robin does",
            "ours: equations (5) to (8) as printed",
            judge(ask_not_smaller(), {p: compare_with(v, 0.99) for p, v in jain.items()}),
            {
                "Jain's index": {p: float(v.mean()) for p, v in jain.items()},
                "GPFL as printed, with its momentum of 0.1 - round-robin, mean of the last 10 "
                "rounds": describe_differences(ahead),
            },
            rests_on=[name_experiment(find_data(histories), p) for p in there],
        )
    ]
