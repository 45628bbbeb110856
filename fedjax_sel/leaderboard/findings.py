"""Predictions that were written down in advance, judged by the leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from rich.console import Console

from fedjax_sel.leaderboard.scales import KINDS, PRIMARY, Budget
from fedjax_sel.leaderboard.scores import Block, select, take_block
from fedjax_sel.leaderboard.selectors import BASELINE
from fedjax_sel.leaderboard.statistics import (
    estimate_agreement,
    mean_agreement,
    mean_ranks,
    rank_within_federations,
)
from fedjax_sel.leaderboard.tuning import TUNED
from fedjax_sel.leaderboard.volatile import COHORT, study_volatile
from fedjax_sel.metrics import difference
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.differences import compare_with
from fedjax_sel.runs.files import read_json, write_json

HELD, FAILED, UNDECIDED, NOT_JUDGED = "held", "did not hold", "undecided", "not judged"
"""The verdicts on a prediction."""

FEWEST_FEDERATIONS, FEWEST_SELECTORS, FEWEST_SEEDS = 5, 5, 10
"""Predictions about rankings are not judged below these numbers."""


@dataclass(frozen=True)
class Finding:
    """A judged prediction.

    Attributes:
      id: the prediction's id.
      text, because: the prediction and its reason, as they were written down.
      verdict: held, did not hold, undecided or not judged.
      statistic: the numbers that the verdict rests on.
      reason: why it is not judged.
    """

    id: str
    text: str
    because: str
    verdict: str
    statistic: dict[str, Any]
    reason: str = ""


class NotJudged(Exception):
    """Raised if the leaderboard is too small to judge a prediction, or lacks what the prediction is about."""


Judge = Callable[[pd.DataFrame, Mapping[str, Any]], tuple[str, dict[str, Any]]]


@cache
def read_predictions() -> dict[str, dict[str, str]]:
    """Returns the predictions by id."""
    text = resources.files("fedjax_sel.leaderboard").joinpath("predictions.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def find_studies(out: Path, console: Console) -> dict[str, Any]:
    """Returns the results of the studies that need no cells; they are read if they are stored, else computed."""
    place = out / "studies" / "volatile.json"
    if not place.exists():
        with console.status("study: volatile clients"):
            found = study_volatile()
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, found)
    return {"volatile": read_json(place)}


def judge_predictions(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> list[Finding]:
    """Judges all predictions by the leaderboard's table and its studies."""
    out = []
    for name, said in read_predictions().items():
        try:
            verdict, statistic = JUDGES[name](tidy, studies)
            out.append(Finding(name, said["text"], said["because"], verdict, statistic))
        except NotJudged as why:
            out.append(Finding(name, said["text"], said["because"], NOT_JUDGED, {}, str(why)))
    return out


def take_fair_block(tidy: pd.DataFrame, budget: Budget, *, tuned: bool = False) -> Block:
    """Returns the complete cells under a budget, of either the tuned or the untuned selectors.

    Raises:
      NotJudged: there are too few.
    """
    kind = tidy["selector"].str.endswith(TUNED)
    mine = tidy.loc[kind if tuned else ~kind]
    if mine.empty:
        raise NotJudged("no selector was tuned" if tuned else "nothing is finished")
    try:
        block = take_block(mine, budget)
    except ValueError as error:
        raise NotJudged(str(error)) from error
    had = (len(block.selectors), len(block.federations), block.values.shape[2])
    fewest = (FEWEST_SELECTORS, FEWEST_FEDERATIONS, FEWEST_SEEDS)
    if any(have < least for have, least in zip(had, fewest, strict=True)):
        shown = "{} selectors on {} federations with {} seeds"
        raise NotJudged(f"{shown.format(*had)} are complete; at least {shown.format(*fewest)} are needed")
    return block


def judge_beaten(baseline: str) -> Judge:
    """Returns the judge of "fewer than half of the selectors beat this one"."""

    def judge(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        block = take_fair_block(tidy, PRIMARY)
        if baseline not in block.selectors:
            raise NotJudged(f"{baseline} did not finish on every federation")
        theirs = block.values[block.selectors.index(baseline)].mean(axis=0)
        rest = [i for i, name in enumerate(block.selectors) if name != baseline]
        apart = {block.selectors[i]: difference(block.values[i].mean(axis=0), theirs) for i in rest}
        above = [name for name, d in apart.items() if d.low > 0]
        open_ones = [name for name, d in apart.items() if d.low <= 0 <= d.high]
        half = len(rest) / 2
        verdict = FAILED if len(above) >= half else HELD if len(above) + len(open_ones) < half else UNDECIDED
        return verdict, {"of": len(rest), "beat it": len(above), "undecided": len(open_ones), "which": sorted(above)}

    return judge


def judge_tuned(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Judges "no tuned selector beats tuned uniform at equal FLOPs on more than half of the federations"."""
    block = take_fair_block(tidy, Budget("flops", 0.5), tuned=True)
    name = BASELINE + TUNED
    if name not in block.selectors:
        raise NotJudged("tuned uniform did not finish on every federation")
    theirs, half = block.values[block.selectors.index(name)], len(block.federations) / 2
    apart = {
        one: [difference(mine, its) for mine, its in zip(values, theirs, strict=True)]
        for one, values in zip(block.selectors, block.values, strict=True)
        if one != name
    }
    wins = {one: sum(d.low > 0 for d in found) for one, found in apart.items()}
    most, possible = max(wins.values()), max(sum(d.high > 0 for d in found) for found in apart.values())
    best = sorted(one for one, count in wins.items() if count == most)
    statistic = {"federations": len(block.federations), "most wins": most, "by": best, "most not excluded": possible}
    return FAILED if most > half else HELD if possible <= half else UNDECIDED, statistic


def judge_budgets(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Judges "the rankings under equal rounds and equal bytes agree"."""
    first = take_fair_block(tidy, Budget("rounds", PRIMARY.share))
    there = set(tidy["budget"])
    budgets = {kind: Budget(kind, PRIMARY.share) for kind in KINDS[1:]}
    blocks = {kind: take_fair_block(tidy, budget) for kind, budget in budgets.items() if budget.name in there}
    tau = {
        kind: estimate_agreement(
            lambda both: mean_agreement([mean_ranks(half) for half in np.split(both, 2)]),
            np.concatenate([first.values, block.values]),
        )
        for kind, block in blocks.items()
        if (block.selectors, block.federations) == (first.selectors, first.federations)
    }
    if "bytes" not in tau:
        raise NotJudged("other selectors or federations are finished under equal bytes than under equal rounds")
    found = tau["bytes"]
    verdict = HELD if found.low >= 0.6 else FAILED if found.high < 0.6 else UNDECIDED
    return verdict, {
        "Kendall's tau with equal rounds": {kind: one.value for kind, one in tau.items()},
        "interval for bytes": [found.low, found.high],
    }


def judge_federations(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Judges "the rankings on two federations agree little"."""
    block = take_fair_block(tidy, PRIMARY)
    tau = estimate_agreement(lambda scores: mean_agreement(list(rank_within_federations(scores).T)), block.values)
    verdict = HELD if tau.high <= 0.4 else FAILED if tau.low > 0.4 else UNDECIDED
    return verdict, {
        "federations": len(block.federations),
        "mean Kendall's tau": tau.value,
        "interval": [tau.low, tau.high],
    }


def judge_oort(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Judges "Oort covers more than 10 % of the clients"."""
    wide = select(tidy, "coverage")
    if "oort" not in wide.index.get_level_values("selector"):
        raise NotJudged("Oort did not run")
    mine = wide.loc["oort"]
    found = {str(name): compare_with(row.to_numpy(), 0.1) for name, row in mine.iterrows()}
    verdict = HELD if all(d.low > 0 for d in found.values()) else UNDECIDED
    if any(d.high < 0 for d in found.values()):
        verdict = FAILED
    return verdict, {"coverage": {name: d.mean + 0.1 for name, d in found.items()}}


def judge_volatile(tidy: pd.DataFrame, studies: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Judges "23,750 of 50,000 turns succeed under uniform selection, 45,000 under an oracle", within a hundredth."""
    found = studies["volatile"]
    expected = {"uniform": 0.475 * found["rounds"] * COHORT, "oracle": 0.9 * found["rounds"] * COHORT}
    apart = {
        name: compare_with(np.asarray(found["methods"][name]["successes"], float), value)
        for name, value in expected.items()
    }
    found_near = {d.comparable(value / 100) for d, value in zip(apart.values(), expected.values(), strict=True)}
    verdict = FAILED if NOT_REPRODUCED in found_near else HELD if found_near == {REPRODUCED} else UNDECIDED
    means = {name: float(np.mean(one["successes"])) for name, one in found["methods"].items()}
    return verdict, {"turns": found["turns"], "expected": expected, "mean successes": means}


JUDGES: dict[str, Judge] = {
    "controls": judge_beaten(BASELINE),
    "round-robin": judge_beaten("round_robin"),
    "tuned-random": judge_tuned,
    "stable-budgets": judge_budgets,
    "stable-federations": judge_federations,
    "oort-coverage": judge_oort,
    "volatile-expectations": judge_volatile,
}
"""The judge of each prediction."""
