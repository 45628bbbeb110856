"""How verdicts are reached, for all papers alike: see `docs/understand/verdicts.md`; and how claims show numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedjax_sel.catalog import check_name
from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference, adjust_holm, difference
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from fedjax_sel.papers.paper import Claim, Histories, NotRun, Result
from fedjax_sel.papers.regime import Conditions, FairRegime, describe_shortfalls
from fedjax_sel.pytree import show

Differences = Mapping[str, Difference]
"""Paired differences between two methods, by experiment."""

ALONG = (0.1, 0.2, 0.5, 1.0)
"""Fractions of the rounds after which accuracy is listed."""


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
      holds: by how much a difference, as far as its interval reaches, is on the claim's side; below 0: on the other.
      each: whether every experiment has to show it by its own interval, because effects of opposite signs, or a large
        one among small ones, would vanish in the pooled one.
      sees: the difference that is judged, from that over seeds.
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
        lambda d: min(d.p_above(margin), d.p_below(-margin)),
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
    runs spread wider than the margin, either end refutes about as often, so the test is two-sided.
    """
    question = ask_comparable(margin)
    return replace(question, name="as published", sees=predict_run, refute=lambda d: min(1.0, 2 * question.refute(d)))


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


def record_difference(d: Difference) -> dict[str, Any]:
    """Returns a difference by its seeds and open ends, or by its interval where that is all there is."""
    if not d.values:
        return describe_difference(d)
    return {"values": list(d.values), "open": [end for end in ("low", "high") if np.isinf(getattr(d, end))]}


def read_difference(recorded: Mapping[str, Any]) -> Difference:
    """Returns a recorded difference; an end that JSON cannot hold is open."""
    ends = {"low": -np.inf, "high": np.inf}
    if "values" not in recorded:
        known: dict[str, Any] = {k: ends.get(k, np.nan) if v is None else v for k, v in recorded.items()}
        return Difference(**known)
    d = difference(np.array(recorded["values"], np.float64), np.zeros(len(recorded["values"])))
    return replace(d, **{end: ends[end] for end in recorded["open"]})


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


def pool(differences: Differences) -> Difference:
    """Returns the mean difference over experiments, with its interval over seeds.

    A seed's value is its mean over the experiments: one seed draws the data, model and cohorts of all experiments, so
    they are not independent. If experiments have different numbers of seeds, only those that all of them have count. An
    end of the interval is open if it is open in any experiment; both are open if an experiment has no values.
    """
    several = list(differences.values())
    if len(several) == 1:
        return several[0]
    seeds = min(len(d.values) for d in several)
    if not seeds:
        return Difference(float(np.mean([d.mean for d in several])), -np.inf, np.inf, 1.0, 0)
    values = np.mean([d.values[:seeds] for d in several], axis=0)
    together = difference(values, np.zeros(seeds))
    return replace(
        together,
        low=-np.inf if any(d.low == -np.inf for d in several) else together.low,
        high=np.inf if any(d.high == np.inf for d in several) else together.high,
    )


def predict_run(d: Difference) -> Difference:
    """Returns a mean difference with the 95 % interval in which the difference of one more seed would lie.

    Where every seed has the same value and it is only a bound, as if none reaches a target, nothing is known of how
    widely seeds spread, and both ends are open.

    >>> never = difference(np.full(3, 501.0), np.full(3, 100.0))
    >>> alone = predict_run(open_interval(never, first_missed=True, second_missed=False))
    >>> alone.mean, alone.low, alone.high
    (401.0, -inf, inf)
    """
    if np.isinf(d.low) != np.isinf(d.high) and d.mean in (d.low, d.high):
        return replace(d, low=-np.inf, high=np.inf)
    wider = np.sqrt(d.seeds + 1)  # the square root of 1 + 1/n deviations, instead of that of 1/n
    return replace(d, low=d.mean - wider * (d.mean - d.low), high=d.mean + wider * (d.high - d.mean))


def open_interval(d: Difference, *, first_missed: bool, second_missed: bool) -> Difference:
    """Returns a difference of costs to a target, open on each side where a cost is only known as a lower bound.

    A run that misses the target counts as if it had reached it right after its last round.

    Args:
      d: cost of the first minus that of the second.
      first_missed, second_missed: whether any of their runs missed the target.
    """
    return replace(d, high=np.inf if first_missed else d.high, low=-np.inf if second_missed else d.low)


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


def settle_claims(
    claims: Sequence[Claim], regime: FairRegime, conditions: Mapping[str, Conditions], *, finished: bool = True
) -> list[Claim]:
    """Returns the claims under the policy: by construction, not judged if below the fair regime, otherwise as found.

    If a claim compares seeds, the number of compared seeds counts, not that of its experiments. A claim that rests on
    no experiment is judged if at least one experiment of the run meets the regime. None is judged that `lacks`
    something.

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


def describe_difference(d: Difference) -> dict[str, float]:
    """Returns a difference as a claim's statistic."""
    return {name: value for name, value in vars(d).items() if name != "values"}


def describe_differences(differences: Differences) -> dict[str, Any]:
    """Returns the differences of all experiments as a claim's statistic."""
    return {name: describe_difference(d) for name, d in differences.items()}


def describe_runs(differences: Differences) -> dict[str, Any]:
    """Returns the differences of all experiments, with the intervals of one more run that `ask_as_published` judges."""
    return describe_differences({name: predict_run(d) for name, d in differences.items()})


def describe_each(by_rival: Mapping[str, Differences]) -> dict[str, Any]:
    """Returns the differences against each of several rivals as a claim's statistic."""
    return {
        f"{name}, against {rival}": describe_difference(d)
        for rival, differences in by_rival.items()
        for name, d in differences.items()
    }


def pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns two measures for the seeds that both have.

    >>> pair(np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6]))
    (array([0.1, 0.2]), array([0.5, 0.6]))
    """
    seeds = min(len(first), len(second))
    return first[:seeds], second[:seeds]


def subtract(first: np.ndarray, second: np.ndarray) -> Difference:
    """Returns first minus second over the seeds that both have."""
    return difference(*pair(first, second))


def compare_with(values: np.ndarray, bound: float) -> Difference:
    """Returns the difference between each seed's value and one number."""
    return difference(values, np.full(len(values), bound))


def compare_factor(first: np.ndarray, second: np.ndarray, times: float = 1.0) -> Difference:
    """Returns by how many decades the ratio of two positive measures, seed by seed, is above a number.

    In decades a ratio and its inverse give the same verdict.
    """
    return compare_with(np.log10(first / second), float(np.log10(times)))


def describe_factor(decades: Difference, times: float = 1.0) -> dict[str, float]:
    """Returns what `compare_factor` compared as a claim's statistic: the geometric mean ratio with its interval."""
    found = {"factor": decades.mean, "low": decades.low, "high": decades.high}
    return {name: times * 10**value if np.isfinite(value) else value for name, value in found.items()}


def format_mean_std(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    """Returns mean ± standard deviation over seeds, which is 0 for one seed.

    >>> format_mean_std([0.25, 0.75])
    '0.500 ± 0.354'
    """
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def to_floats(values: Iterable[Any]) -> tuple[float, ...]:
    """Returns plain numbers, one per seed."""
    return tuple(map(float, values))


def list_results(
    histories: Histories,
    measure: Callable[[str, History], Mapping[str, np.ndarray]],
    find_published: Callable[[str, str, str], float | None] = lambda *_: None,
    along: Sequence[float] = (),
) -> list[Result]:
    """Returns every measure of every cell, beside the published number.

    Args:
      histories: of the cells.
      measure: gives one number per seed for each metric, from an experiment's name and a cell's history.
      find_published: the paper's number for an experiment, a method and a metric; None if it gives none.
      along: fractions of the rounds after which accuracy is listed too.

    Raises:
      ValueError: a measure is not one number per seed.
    """
    out = []
    for (experiment, method), history in histories.items():
        for share in along:
            t = max(1, round(share * history.rounds))
            out.append(Result(experiment, method, "accuracy", t, to_floats(history["accuracy"][:, t - 1])))
        for metric, value in measure(experiment, history).items():
            if np.ndim(value) != 1:
                raise ValueError(f"{metric} of {experiment}, {method}, is {show(value)}; it must be one number a seed")
            published = find_published(experiment, method, metric)
            out.append(Result(experiment, method, metric, None, to_floats(value), published))
    return out
