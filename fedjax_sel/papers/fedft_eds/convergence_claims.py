"""Verdicts on what FedFT-EDS says about its first rounds, and about the time to its rivals' accuracy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import describe_each, pair, subtract
from fedjax_sel.papers.fedft_eds.comparisons import (
    BEST,
    NOTICED,
    PAIRS,
    TENTH,
    compare,
    compare_in,
    keep_rivals,
    list_few_experiments,
    name_experiments,
)
from fedjax_sel.papers.fedft_eds.methods import (
    EDS,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    RDS,
    SCRATCH,
    STRONG,
    WEAK,
    name_few,
    name_five_epochs,
)
from fedjax_sel.papers.fedft_eds.numbers import EARLY, FLOPS_A_SECOND, measure
from fedjax_sel.papers.fedft_eds.scales import list_compared
from fedjax_sel.papers.judging import (
    REPRODUCED,
    ask_not_below,
    judge_each,
    judge_larger_than_each,
    make_claim,
    need_rivals,
)
from fedjax_sel.papers.measures import find_best
from fedjax_sel.papers.paper import Claim, Histories, NotRun, StoredCell, join, need

WHEN = f"mean accuracy in the first {EARLY:.0%} of the rounds".replace("%", " %")
SLIGHT = 0.001
"""What is negligible where the source claims a slight advantage."""

BASELINES = (FEDAVG, FEDPROX, FEDAVG_RDS, FEDPROX_RDS)
"""The methods that the source compares FedFT with; all of them train the whole model."""


def judge_early(scale: str, histories: Histories) -> Claim:
    """Returns the claim on entropy's advantage in the first rounds with few clients; `judge_many` has many."""
    few = list_few_experiments(scale, histories)
    early = need(compare_in(histories, few, {TENTH: PAIRS[TENTH]}, "accuracy_early"))
    return judge_faster(
        "entropy-converges-faster",
        "With few clients, training on a tenth of the examples, chosen by entropy (EDS), converges faster than on a "
        "random tenth (RDS)",
        "section IV-C, Fig. 5: 'slightly better'",
        "EDS - RDS",
        [TENTH],
        early,
        SLIGHT,
    )


def judge_faster(
    name: str,
    text: str,
    source: str,
    label: str,
    rivals: Iterable[str],
    early: Mapping[str, Mapping[str, Difference]],
    negligible: float = NOTICED,
) -> Claim:
    """Returns the claim that the first of each rival's pair is more accurate in the first rounds.

    Args:
      name, text, source: of the claim.
      label: what is subtracted from what.
      rivals: that the sentence is about.
      early: differences of the mean accuracy of these rounds, by rival and experiment.
      negligible: a lead of at most this is none.
    """
    claim = make_claim(
        name,
        f"{text}: {WHEN}",
        source,
        judge_larger_than_each(early, negligible),
        {f"{label}, {WHEN}": describe_each(early)},
        rests_on=name_experiments(early),
    )
    return need_rivals(claim, rivals, early)


def judge_convergence(scale: str, histories: Histories) -> list[Claim]:
    """Returns the claims of Fig. 5 on the first rounds: partial training against the whole model, and from scratch."""
    few = list_few_experiments(scale, histories)

    def judge_lead(name: str, text: str, source: str, pairs: dict[str, tuple[str, str]]) -> list[Claim]:
        found = {rival: compare(histories, *pair, "accuracy_early") for rival, pair in pairs.items()}
        over = keep_rivals({rival: {n: d for n, d in by.items() if n in few} for rival, by in found.items()})
        return [judge_faster(name, text.format(" and ".join(over)), source, "first - second", pairs, over)]

    def judge_part(method: str, kind: str) -> list[Claim]:
        return judge_lead(
            f"{kind}partial-training-converges-faster",
            f"{method} converges faster than {{}}, which train the whole model",
            "Fig. 5, section IV-C: 'faster convergence than the baseline models even when using 10%'",
            {rival: (method, rival) for rival in BASELINES},
        )

    return join(
        lambda: judge_part(EDS, ""),
        lambda: judge_part(RDS, "random-"),
        lambda: judge_lead(
            "scratch-converges-slowest",
            "FedAvg from scratch converges slower than {}",
            "Fig. 5, section IV-C: 'the worst convergence rate'",
            {rival: (rival, SCRATCH) for rival in (*BASELINES, RDS, EDS)},
        ),
    )


def judge_time(scale: str, histories: Histories) -> Claim:
    """Returns the claim that a third of a baseline's training time suffices for its accuracy."""

    def relate(rival: str, names: Iterable[str]) -> dict[str, Difference]:
        found = {}
        for name in names:
            if {(name, EDS), (name, rival)} <= histories.keys():
                theirs = measure(histories[name, rival])
                mine = find_best_within(histories[name, EDS], theirs["client_seconds"] / 3)
                found[name] = subtract(mine, theirs[BEST])
        return found

    names = []
    for name, alpha in itertools.product(list_compared(scale), (STRONG, WEAK)):
        longer = name_five_epochs(name, alpha)
        names.append(longer if (longer, EDS) in histories else name_few(name, alpha))
    over = keep_rivals({rival: relate(rival, names) for rival in (FEDAVG, FEDPROX)})
    found = judge_each(ask_not_below(NOTICED), over)
    early = any(
        ends_before(histories[name, EDS], histories[name, rival]) for rival, some in over.items() for name in some
    )
    claim = make_claim(
        "as-accurate-in-a-third-of-the-time",
        f"In a third of the client seconds of {' and '.join(over)}, FedFT-EDS (10 %) is at most {NOTICED:g} less "
        "accurate than they are in all (best accuracy; simulated, with five local epochs if these were run)",
        "abstract: 'using one third of training time on clients to achieve an equivalent performance to the baselines'",
        found,
        {"FedFT-EDS in a third of the time - the other method, best accuracy": describe_each(over)},
        rests_on=name_experiments(over),
        lacks="" if found.verdict == REPRODUCED or not early else ENDS_EARLY,
    )
    return need_rivals(claim, (FEDAVG, FEDPROX), over)


ENDS_EARLY = "runs of FedFT-EDS end before a third of the time is spent: they can support the claim, but not refute it"


def ends_before(history: History, rival: History) -> bool:
    """Returns whether a run of a cell ends before it has spent a third of what the same seed of another cell spends."""
    mine, theirs = pair(measure(history)["client_seconds"], measure(rival)["client_seconds"])
    return bool((mine < theirs / 3).any())


def find_best_within(history: History, seconds: np.ndarray) -> np.ndarray:
    """Returns the best accuracy of each seed that is reached within these client seconds; 0 if none is.

    A seed that diverged, within them or later, counts with at most `find_best`, as it does in the whole run.

    Args:
      history: of one cell.
      seconds: by seed; if runs have different numbers of seeds, those that both have count.

    Raises:
      NotRun: the cell's rounds are not stored, and the whole run takes longer.
    """
    if isinstance(history, StoredCell):
        whole = measure(history)
        seeds = min(len(seconds), len(whole[BEST]))
        if (whole["client_seconds"][:seeds] > seconds[:seeds]).any():
            raise NotRun("the rounds of a run that takes more than a third of the time")
        return whole[BEST][:seeds]
    spent, accuracy = history.cumulative("flops") / FLOPS_A_SECOND, history["accuracy"]
    seeds = min(len(seconds), len(spent))
    there = (spent[:seeds] <= seconds[:seeds, None]) & ~np.isnan(accuracy[:seeds])
    best = np.where(there, accuracy[:seeds], 0.0).max(axis=1)
    return np.where(history.diverged[:seeds] > 0, np.minimum(best, find_best(history)[:seeds]), best)
