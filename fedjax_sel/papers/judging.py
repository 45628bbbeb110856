"""How verdicts are reached, for all papers alike: see `docs/understand/verdicts.md`."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedjax_sel.catalog import check_name
from fedjax_sel.metrics import Difference, adjust_holm
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from fedjax_sel.papers.differences import (
    Differences,
    describe_difference,
    pool,
    predict_run,
    read_difference,
    record_difference,
)
from fedjax_sel.papers.paper import Claim, NotRun
from fedjax_sel.papers.regime import Conditions, FairRegime, describe_shortfalls

LEVEL = 0.025
"""One-sided level: the probability beyond one end of a 95 % interval."""

DUST = 1e-9
"""A mean closer to a bound than this counts as equal to it: sums in another order differ by as much."""

VERDICTS = (REPRODUCED, NOT_REPRODUCED, UNDECIDED)
"""Verdicts that a claim can be found with."""

NOT_JUDGED, BY_CONSTRUCTION = "not judged at this scale", "by construction"
"""Verdicts that a settled claim can have besides reproduced, not reproduced and undecided."""

SIDE, ALONE, REFUTING = "on the claim's side", "supporting by their own interval", "refuting, after Holm"
AGAINST = "over"
"""Keys of a claim's effect: counts of comparisons, and the rival that it is measured against."""


@dataclass(frozen=True)
class Question:
    """A question about a difference.

    Attributes:
      name: of the question, in `QUESTIONS`.
      bound: the number in it; None: there is none.
      judge: gives the verdict of one interval.
      refute: gives the one-sided p-value of the opposite.
      points: whether a mean lies on the claim's side.
      holds: by how much the worst end of a difference's interval is on the claim's side; below 0: on the other side.
      each: whether every experiment has to show it by its own interval, because effects of opposite signs, or a large
        one among small ones, would vanish in the pooled one.
      sees: gives the difference that is judged, from the difference over seeds.
    """

    name: str
    bound: float | None
    judge: Callable[[Difference], str]
    refute: Callable[[Difference], float]
    points: Callable[[float], bool]
    holds: Callable[[Difference], float] = lambda d: d.low
    each: bool = False
    sees: Callable[[Difference], Difference] = lambda d: d


@dataclass(frozen=True)
class Judgement:
    """A verdict, and the effect that it rests on.

    Attributes:
      verdict: reproduced, not reproduced or undecided.
      effect: pooled difference with its interval, number of comparisons, and how many are on the claim's side, support
        it by their own interval, or refute it.
      asked: the question and the difference of every seed, as in `record`, from which `judge_recorded` gives the same.
    """

    verdict: str
    effect: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)


def ask_larger(negligible: float = 0.0) -> Question:
    """Returns the question "the first is larger", refuted if the advantage is at most `negligible`.

    A certain advantage, however small, does not refute it.
    """
    return Question(
        "larger",
        negligible,
        lambda d: d.larger(negligible),
        lambda d: 1.0 if d.low > 0 else d.p_below(negligible, or_at=True),
        lambda mean: mean > DUST,
    )


def ask_not_smaller() -> Question:
    """Returns the question "the first is at least as large as the second"."""
    return Question("not smaller", None, Difference.not_smaller, Difference.p_below, lambda mean: mean >= -DUST)


def ask_comparable(margin: float) -> Question:
    """Returns the question "they are about equal"."""
    return Question(
        "comparable",
        margin,
        lambda d: d.comparable(margin),
        lambda d: min(1.0, 2 * min(d.p_above(margin), d.p_below(-margin))),  # either end refutes it
        lambda mean: abs(mean) < margin,
        lambda d: margin - max(-d.low, d.high),
        each=True,
    )


def ask_not_below(margin: float) -> Question:
    """Returns the question "the first is at most `margin` below the second"."""
    return Question(
        "not below",
        margin,
        lambda d: d.not_below(margin),
        lambda d: d.p_below(-margin),
        lambda mean: mean > -margin,
        each=True,
    )


def ask_as_published(margin: float) -> Question:
    """Returns the question "they are about equal" where the second is a published number, taken as of one run.

    That run would have come out differently with another seed, too, so the interval is that of one more run. Where such
    runs spread wider than the margin, it cannot be shown, whatever was published.
    """
    return replace(ask_comparable(margin), name="as published", sees=predict_run)


QUESTIONS: Mapping[str, Callable[..., Question]] = {
    "as published": ask_as_published,
    "larger": ask_larger,
    "not smaller": ask_not_smaller,
    "comparable": ask_comparable,
    "not below": ask_not_below,
}
"""The questions that a claim can ask."""


def judge(question: Question, differences: Differences) -> Judgement:
    """Returns the verdict on a claim about several experiments, from their pooled effect and from each of them.

    Reproduced if the pooled interval says so, the mean of every experiment lies on the claim's side, and no experiment
    refutes it; that a difference is at most some margin has to be shown by every experiment's own interval. Not
    reproduced if the pooled effect or an experiment refutes it, after Holm's correction for the number of these tests
    together. Undecided otherwise.

    Args:
      question: the question about each difference.
      differences: of each experiment, over the same seeds.

    Raises:
      NotRun: there are no differences.
    """
    return judge_each(question, {"": differences})


def judge_each(question: Question, by_rival: Mapping[str, Differences]) -> Judgement:
    """Returns the verdict on a claim about each of several rivals, in several experiments.

    Experiments are pooled, rivals are not: in a mean over rivals, a weak one would compensate for a strong one.
    Reproduced if the claim is reproduced against each rival alone; not reproduced if the pooled effect against a rival,
    or a single comparison, refutes it, after Holm's correction for the number of all these tests. The effect shown is
    the one against the rival that the claim holds against least.

    Args:
      question: the question about each difference.
      by_rival: for each rival, the difference of each experiment, over the same seeds.

    Raises:
      NotRun: there is nothing to compare.
    """
    by_rival = {rival: differences for rival, differences in by_rival.items() if differences}
    if not by_rival:
        raise NotRun("nothing to compare")
    pooled = {rival: question.sees(pool(differences)) for rival, differences in by_rival.items()}
    alone = {rival: [question.sees(d) for d in differences.values()] for rival, differences in by_rival.items()}
    single = [d for some in alone.values() for d in some]
    pointing = [question.points(d.mean) for d in single]
    tests = {rival: some + [pooled[rival]] * (len(some) > 1) for rival, some in alone.items()}
    found = iter(find_refuting(question, [d for some in tests.values() for d in some]))
    refuted = {rival: [next(found) for _ in some] for rival, some in tests.items()}  # of each rival, pooled is the last
    shown = [*pooled.values(), *(single if question.each else [])]
    refuting = [one for rival, some in alone.items() for one in refuted[rival][: len(some)]]
    if any(map(any, refuted.values())):
        verdict = NOT_REPRODUCED
    elif all(pointing) and all(question.judge(d) == REPRODUCED for d in shown):
        verdict = REPRODUCED
    else:
        verdict = UNDECIDED
    least = min(pooled, key=lambda rival: (not refuted[rival][-1], question.holds(pooled[rival]), pooled[rival].mean))
    effect = {
        "pooled": describe_difference(pooled[least]),
        "comparisons": len(single),
        SIDE: sum(pointing),
        ALONE: sum(question.judge(d) == REPRODUCED for d in single),
        REFUTING: sum(refuting),
    }
    asked = record(question, by_rival)
    return Judgement(verdict, {AGAINST: least, **effect} if len(pooled) > 1 else effect, asked)


def record(question: Question, by_rival: Mapping[str, Differences]) -> dict[str, Any]:
    """Returns what was asked, as JSON holds it: the question, its number, and the differences that answer it."""
    differences = {
        rival: {name: record_difference(d) for name, d in found.items()} for rival, found in by_rival.items()
    }
    return {"question": question.name, "bound": question.bound, "differences": differences}


def judge_recorded(asked: Mapping[str, Any]) -> Judgement:
    """Returns today's verdict on what a claim recorded; see `record`."""
    given = () if asked["bound"] is None else (asked["bound"],)
    by_rival = {
        rival: {name: read_difference(d) for name, d in found.items()} for rival, found in asked["differences"].items()
    }
    return judge_each(QUESTIONS[asked["question"]](*given), by_rival)


def find_refuting(question: Question, differences: Iterable[Difference]) -> list[bool]:
    """Returns which differences refute the claim, after Holm's correction for their number."""
    return [p <= LEVEL for p in adjust_holm([question.refute(d) for d in differences])]


def judge_larger(differences: Differences, negligible: float = 0.0) -> Judgement:
    """Returns the verdict on "the first is larger in every experiment"; see `ask_larger`."""
    return judge(ask_larger(negligible), differences)


def judge_larger_than_each(by_rival: Mapping[str, Differences], negligible: float = 0.0) -> Judgement:
    """Returns the verdict on "the first is larger than each of several rivals"; see `judge_each`."""
    return judge_each(ask_larger(negligible), by_rival)


def make_claim(
    name: str,
    text: str,
    source: str,
    found: Judgement | str,
    statistic: dict[str, Any],
    *,
    rests_on: Iterable[str] = (),
    fixed: str = "",
    lacks: str = "",
) -> Claim:
    """Returns a claim that is not settled yet; see `Claim`.

    Args:
      name: its id.
      text, source, statistic, fixed, lacks: as in `Claim`.
      found: the verdict, with its effect if it rests on comparisons over seeds.
      rests_on: the experiments it rests on.

    Raises:
      ValueError: there is no such verdict.
    """
    found = Judgement(found) if isinstance(found, str) else found
    check_name(f"verdict on {name}:", found.verdict, VERDICTS)
    return Claim(
        name, text, source, found.verdict, statistic, found.effect, tuple(rests_on), fixed, lacks, asked=found.asked
    )


def need_rivals(claim: Claim, wanted: Iterable[str], run: Container[str]) -> Claim:
    """Returns a claim about all rivals, which is not reproduced before all of them were run; one may refute it."""
    missing = [rival for rival in wanted if rival not in run]
    if not missing or claim.verdict != REPRODUCED:
        return claim
    return replace(claim, lacks=f"the sentence is also about {' and '.join(missing)}, not run in these experiments")


def settle_claims(
    claims: Sequence[Claim], regime: FairRegime, conditions: Mapping[str, Conditions], *, finished: bool = True
) -> list[Claim]:
    """Returns the claims under the policy: by construction, not judged if below the fair regime, otherwise as found.

    If a claim compares seeds, the number of compared seeds counts, not that of its experiments. A claim that rests on
    no experiment is judged if at least one experiment of the run meets the regime. A claim that `lacks` something is
    not judged.

    Args:
      claims: as found.
      regime: of the paper.
      conditions: of the runs of every experiment.
      finished: whether all experiments were run; if not, claims that rest on a missing experiment are left out.

    Raises:
      ValueError: a claim rests on an experiment that was not run, although `finished` is true; or two have one id.
    """
    ids = [claim.id for claim in claims]
    if twice := [one for one in ids if ids.count(one) > 1]:
        raise ValueError(f"two claims are called {twice[0]!r}; each needs an id of its own")
    out = []
    for claim in claims:
        if unknown := set(claim.rests_on) - set(conditions):
            if not finished:
                continue
            raise ValueError(f"the claim {claim.id!r} rests on {sorted(unknown)}; run were {sorted(conditions)}")
        if claim.fixed:
            out.append(replace(claim, verdict=BY_CONSTRUCTION, reason=claim.fixed))
        elif reason := find_reason_against(claim, regime, conditions):
            out.append(replace(claim, verdict=NOT_JUDGED, reason=reason))
        else:
            out.append(claim)
    return out


def find_reason_against(claim: Claim, regime: FairRegime, conditions: Mapping[str, Conditions]) -> str:
    """Returns why the runs cannot judge a claim; "" if they can."""
    compared = count_compared(claim)
    had = {name: conditions[name] for name in claim.rests_on or conditions}
    reasons = [claim.lacks]
    if compared:
        had = {name: replace(one, seeds=regime.seeds) for name, one in had.items()}
        if compared < regime.seeds:
            reasons.append(f"{compared} of at least {regime.seeds} seeds compared")
    if claim.rests_on or all(describe_shortfalls(regime, {name: one}) for name, one in had.items()):
        reasons.append(describe_shortfalls(regime, had))
    return "; ".join(filter(None, reasons))


def count_compared(claim: Claim) -> int | None:
    """Returns the fewest seeds that any comparison of a claim has; None if it compares none."""
    shown = claim.effect.get("pooled", {}).get("seeds")
    asked = claim.asked["differences"].values() if claim.asked else ()
    several = [len(d["values"]) for found in asked for d in found.values() if "values" in d]
    return None if shown is None else min([shown, *several])
