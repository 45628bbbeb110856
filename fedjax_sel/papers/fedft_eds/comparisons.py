"""What the claims of the FedFT-EDS report share: accuracies, experiments by name, comparisons of two methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import describe_differences, describe_each, subtract
from fedjax_sel.papers.fedft_eds.methods import (
    BY_CLASS,
    BY_CLIENT,
    EDS,
    EDS50,
    LESS,
    RDS,
    RDS50,
    SPEECH,
    STRONG,
    WEAK,
    name_few,
    name_many,
)
from fedjax_sel.papers.fedft_eds.numbers import measure
from fedjax_sel.papers.fedft_eds.scales import list_compared, list_targets
from fedjax_sel.papers.judging import Judgement, judge_larger, judge_larger_than_each, make_claim, need_rivals
from fedjax_sel.papers.paper import Claim, Histories

NOTICED = 0.005
"""An advantage in accuracy of at most this is negligible."""

ENOUGH = 3
"""Number of seeds that a comparison needs to be judged, if any comparison has as many."""


BEST, LAST = "best_accuracy", "accuracy_last"
"""The measure that the source reports, and that of the last evaluation."""


def find_accuracy(histories: Histories, experiment: str, method: str, metric: str = BEST) -> np.ndarray:
    """Returns a measure of each seed."""
    return measure(histories[experiment, method])[metric]


def judge_accuracy(
    label: str, judge: Callable[[Any], Judgement], compare_by: Callable[[str], Mapping[str, Any]]
) -> tuple[Judgement, dict[str, Any]]:
    """Returns the verdict by best accuracy, and the effects by both measures with the verdict that the last would give.

    Args:
      label: what is subtracted from what.
      judge: returns the verdict on what `compare_by` returns.
      compare_by: returns the differences of a measure, by experiment, or by rival and experiment.
    """

    def describe(found: Mapping[str, Any]) -> dict[str, Any]:
        return describe_each(found) if isinstance(next(iter(found.values())), Mapping) else describe_differences(found)

    best, last = compare_by(BEST), compare_by(LAST)
    verdict = judge(best)
    return verdict, {
        f"{label}, best accuracy": describe(best),
        f"{label}, last evaluation, by which the verdict would be: {judge(last).verdict}": describe(last),
    }


def judge_advantage(label: str, compare_by: Callable[[str], Mapping[str, Any]]) -> tuple[Judgement, dict[str, Any]]:
    """Returns the same for "the first is more accurate", in every experiment and than each rival."""

    def judge(found: Mapping[str, Any]) -> Judgement:
        is_by_rival = any(isinstance(one, Mapping) for one in found.values())
        return judge_larger_than_each(found, NOTICED) if is_by_rival else judge_larger(found, NOTICED)

    return judge_accuracy(label, judge, compare_by)


def list_experiments(histories: Histories, *methods: str) -> list[str]:
    """Returns the experiments on images in which all of these methods were run, with the scale's own Dirichlet law."""
    names = dict.fromkeys(experiment for experiment, _ in histories)
    return [
        name
        for name in names
        if all((name, method) in histories for method in methods)
        and not name.endswith((BY_CLASS, BY_CLIENT))
        and not name.startswith(tuple(SPEECH.values()))
    ]


def list_few_experiments(scale: str, histories: Histories) -> list[str]:
    """Returns the experiments with few clients that were run."""
    named = [name_few(name, alpha) for name in list_compared(scale) for alpha in (STRONG, WEAK)]
    return [name for name in named if (name, EDS) in histories]


def list_many_experiments(scale: str) -> list[str]:
    """Returns the names of the experiments with many clients, whether they were run or not."""
    return [name_many(name, alpha) for name in list_targets(scale) for alpha in (STRONG, WEAK)]


def compare(histories: Histories, first: str, second: str, metric: str = BEST) -> dict[str, Difference]:
    """Returns first minus second of a measure on images, wherever `keep_seeded` and `keep_whole` keep it."""
    return keep_whole(keep_seeded(compare_all(histories, first, second, metric)))


def compare_all(histories: Histories, first: str, second: str, metric: str = BEST) -> dict[str, Difference]:
    """Returns first minus second of a measure, in all experiments of `list_experiments`."""
    return {
        name: subtract(*(measure(histories[name, method])[metric] for method in (first, second)))
        for name in list_experiments(histories, first, second)
    }


def compare_in(
    histories: Histories, experiments: Iterable[str], pairs: Mapping[str, tuple[str, str]], metric: str
) -> dict[str, dict[str, Difference]]:
    """Returns first minus second of each rival's pair, wherever it was run among these experiments, as `compare`."""
    every = {rival: compare_all(histories, *pair, metric) for rival, pair in pairs.items()}
    found = {rival: {n: d for n, d in by.items() if n in experiments} for rival, by in every.items()}
    return keep_rivals({rival: keep_whole(keep_seeded(by)) for rival, by in found.items()})


def keep_seeded(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Returns the comparisons with at least three seeds or, if none has three, with the most; tables show all."""
    least = min(ENOUGH, max((d.seeds for d in found.values()), default=0))
    return {name: d for name, d in found.items() if d.seeds >= least}


def keep_whole(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Returns the comparisons on all examples or, if there are none, those on 10,000; tables show all."""
    whole = {name: d for name, d in found.items() if not name.startswith(LESS)}
    return whole or dict(found)


def keep_rivals(by_rival: Mapping[str, Mapping[str, Difference]]) -> dict[str, dict[str, Difference]]:
    """Returns the rivals that were run, without those that `keep_seeded` leaves out beside the others."""
    every = keep_seeded({f"{rival}, {name}": d for rival, found in by_rival.items() for name, d in found.items()})
    kept = {r: {name: d for name, d in found.items() if f"{r}, {name}" in every} for r, found in by_rival.items()}
    return {rival: found for rival, found in kept.items() if found}


def name_experiments(by_rival: Mapping[str, Mapping[str, Difference]]) -> list[str]:
    """Returns the experiments of all comparisons, each once."""
    return list(dict.fromkeys(name for found in by_rival.values() for name in found))


TENTH, HALF_OF_THEM = "a random tenth", "a random half"
PAIRS = {TENTH: (EDS, RDS), HALF_OF_THEM: (EDS50, RDS50)}
"""Entropy selection and its rival, random selection of as many examples."""


def compare_with_random(scale: str, histories: Histories, metric: str = BEST) -> dict[str, dict[str, Difference]]:
    """Returns entropy selection minus random selection of as many examples, by rival and experiment.

    Half of the examples count with many clients alone, as in the source's tables.
    """
    halves = {HALF_OF_THEM: PAIRS[HALF_OF_THEM]}
    found = compare_in(histories, list_many_experiments(scale), halves, metric)
    return keep_rivals({TENTH: compare(histories, *PAIRS[TENTH], metric), **found})


def judge_pairs(
    name: str,
    text: str,
    source: str,
    label: str,
    rivals: Iterable[str],
    compare_by: Callable[[str], dict[str, dict[str, Difference]]],
    say: Callable[[Iterable[str]], str] = " and ".join,
) -> list[Claim]:
    """Returns the claim that the first of each rival's pair is more accurate.

    Args:
      name, source: of the claim.
      text: of the claim, with a place for the rivals that were run.
      label: what is subtracted from what.
      rivals: that the sentence is about.
      compare_by: returns the differences of a measure, by rival and experiment.
      say: puts rivals into words.
    """
    there = compare_by(BEST)
    found = judge_advantage(label, compare_by)
    claim = make_claim(name, text.format(say(there)), source, *found, rests_on=name_experiments(there))
    return [need_rivals(claim, rivals, there)]
