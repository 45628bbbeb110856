"""One policy for all papers: pooled effects, Holm's correction, the fair regime, what is fixed by construction."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from fedjax_sel import History, papers
from fedjax_sel.config import resolve
from fedjax_sel.metrics import adjust_holm, difference
from fedjax_sel.papers.conditions import observe_conditions
from fedjax_sel.papers.differences import compare_factor, describe_difference, describe_factor, pool, predict_run
from fedjax_sel.papers.judging import (
    AGAINST,
    BY_CONSTRUCTION,
    NOT_JUDGED,
    ask_as_published,
    ask_comparable,
    ask_larger,
    ask_not_below,
    ask_not_smaller,
    judge,
    judge_each,
    judge_recorded,
    make_claim,
    settle_claims,
)
from fedjax_sel.papers.measures import list_results
from fedjax_sel.papers.paper import Cell, NotRun
from fedjax_sel.papers.regime import Conditions, FairRegime, describe_shortfalls
from fedjax_sel.papers.report import show_claims
from fedjax_sel.runs.files import to_jsonable

YES, NO, OPEN = "reproduced", "not reproduced", "undecided"
SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def around(mean, spread=0.1):
    """A difference over five seeds."""
    return difference(mean + spread * SPREAD, np.zeros(5))


def test_holms_correction_is_that_of_a_table_made_by_hand():
    # Sorted: .005 * 4, .01 * 3, .03 * 2, and .04 * 1, which is raised to its predecessor's .06.
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # Holm (1979) is at least as strong as Bonferroni, and no p-value passes 1.
    assert adjust_holm([0.02, 0.02, 0.9]) == pytest.approx([0.06, 0.06, 0.9])
    assert adjust_holm([0.5, 0.6, 0.7]) == [1.0, 1.0, 1.0]
    assert adjust_holm([0.02]) == [0.02]
    assert adjust_holm([]) == []


def test_p_values_are_those_of_students_test_and_agree_with_the_interval():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.normal(0.5, 1.0, 7)
        d = difference(values, np.zeros(7))
        above, below = (stats.ttest_1samp(values, 0.2, alternative=side)[1] for side in ("greater", "less"))
        assert (d.p_above(0.2), d.p_below(0.2)) == (pytest.approx(above), pytest.approx(below))
        assert (d.p_above() < 0.025) == (d.low > 0)
        assert (d.p_below() < 0.025) == (d.high < 0)


def test_without_spread_or_without_knowledge_p_is_nought_or_one():
    point = around(0.5, 0.0)
    assert (point.p_above(0.4), point.p_above(0.5), point.p_above(0.5, or_at=True), point.p_below(0.4)) == (0, 1, 0, 1)
    for unknown in (
        difference(np.array([0.5]), np.array([0.0])),
        difference(np.array([0.5, np.nan]), np.zeros(2)),
        dataclasses.replace(point, low=-math.inf, high=math.inf),
    ):
        assert (unknown.p_above(), unknown.p_below()) == (1, 1)
    assert dataclasses.replace(around(0.5), high=math.inf).p_above() == around(0.5).p_above()


def test_one_of_nine_uncorrected_intervals_refutes_nothing():
    against = around(-0.12)  # alone: refuted
    assert -0.025 < against.high < 0
    nine = {f"experiment {i}": around(0.05) for i in range(8)} | {"the ninth": against}
    assert judge(ask_larger(), {"alone": against}).verdict == NO
    found = judge(ask_larger(), nine)
    assert found.verdict == OPEN
    assert found.effect["comparisons"] == 9
    assert found.effect["on the claim's side"] == 8
    assert found.effect["supporting by their own interval"] == 0
    assert found.effect["refuting, after Holm"] == 0


def test_one_of_nine_refutes_where_it_is_left_after_the_correction():
    nine = {f"experiment {i}": around(0.05) for i in range(8)} | {"the ninth": around(-0.12, 0.01)}
    found = judge(ask_larger(), nine)
    assert (found.verdict, found.effect["refuting, after Holm"]) == (NO, 1)


def test_a_true_claim_is_refuted_in_one_of_forty_runs_at_most():
    """The pooled test and those of each experiment are one family: apart, they refuted 4.5 % of these."""
    rng, runs = np.random.default_rng(0), 600
    false = 0
    for _ in range(runs):
        alike = {f"{i}": difference(rng.standard_normal(5), np.zeros(5)) for i in range(3)}
        false += judge(ask_not_smaller(), alike).verdict == NO
    assert 0 < false <= 0.025 * runs


def test_many_small_effects_make_one_that_is_certain():
    rng = np.random.default_rng(1)
    several = {f"{i}": difference(0.1 + 0.1 * rng.standard_normal(5), np.zeros(5)) for i in range(6)}
    assert all(d.mean > 0 for d in several.values())
    assert any(d.larger() == OPEN for d in several.values())
    assert judge(ask_larger(), several).verdict == YES


def test_an_experiment_on_the_other_side_leaves_a_claim_about_all_of_them_undecided():
    most = {"a": around(0.3, 0.01), "b": around(0.3, 0.01), "c": around(-0.01, 0.1)}
    assert pool(most).larger() == YES
    assert judge(ask_larger(), most).verdict == OPEN


def test_many_small_effects_the_other_way_refute_together():
    several = {f"{i}": around(-0.05, 0.07 * sign) for i, sign in enumerate([1, -1, 1, -1])}
    assert all(d.larger() == OPEN for d in several.values())
    found = judge(ask_larger(), several)
    assert (found.verdict, found.effect["refuting, after Holm"]) == (NO, 0)


def test_the_pooled_effect_is_over_seeds_and_not_over_experiments():
    # One experiment twice is no more evidence than once.
    once, twice = pool({"a": around(0.1)}), pool({"a": around(0.1), "b": around(0.1)})
    assert (twice.mean, twice.low, twice.high, twice.seeds) == pytest.approx((once.mean, once.low, once.high, 5))
    more = pool({"a": around(0.1), "b": difference(np.array([0.1, 0.2, 0.3]), np.zeros(3))})
    assert more.seeds == 3, "the seeds that both have"
    assert more.mean == pytest.approx(np.mean([(0.0 + 0.1) / 2, (0.05 + 0.2) / 2, (0.1 + 0.3) / 2]))


def test_an_open_end_stays_open_in_the_pool():
    late = dataclasses.replace(around(0.5), high=math.inf)
    assert pool({"a": late, "b": around(0.5)}).high == math.inf
    assert pool({"a": late, "b": around(0.5)}).low > 0
    unknown = dataclasses.replace(around(0.5), values=())
    assert judge(ask_larger(), {"a": unknown, "b": around(0.5)}).verdict == OPEN


@pytest.mark.parametrize(
    ("question", "mean", "expected"),
    [
        (ask_larger(0.01), 0.3, YES),
        (ask_larger(0.01), 0.01, OPEN),
        (ask_larger(0.5), 0.3, YES),  # certain, if small
        (ask_larger(0.5), 0.05, NO),
        (ask_not_smaller(), 0.3, YES),
        (ask_not_smaller(), -0.3, NO),
        (ask_comparable(0.2), 0.0, YES),
        (ask_comparable(0.2), 0.15, OPEN),
        (ask_comparable(0.2), 0.5, NO),
        (ask_comparable(0.2), -0.5, NO),
        (ask_as_published(0.3), 0.0, YES),
        (ask_as_published(0.2), 0.0, OPEN),
        (ask_as_published(0.2), 0.9, NO),
        (ask_as_published(0.2), 0.35, OPEN),
        (ask_not_below(0.2), 0.0, YES),
        (ask_not_below(0.2), -0.2, OPEN),
        (ask_not_below(0.2), -0.5, NO),
    ],
)
@pytest.mark.parametrize("several", [1, 3])
def test_each_question_has_its_three_answers(question, mean, expected, several):
    assert judge(question, {f"{i}": around(mean) for i in range(several)}).verdict == expected


@pytest.mark.parametrize(
    ("question", "sign"), [(ask_comparable(0.2), -1), (ask_comparable(0.2), 1), (ask_not_below(0.2), -1)]
)
def test_that_a_difference_is_small_has_to_hold_in_every_experiment(question, sign):
    """Pooled, .15 ± .1 and -.15 ± .1 are 0, and .15 ± .1 among four of 0 ± .1 is .03 ± .1."""
    opposite = {"a": around(0.15 * sign), "b": around(-0.15 * sign)}
    few = {"a": around(0.15 * sign)} | {f"{i}": around(0.0) for i in range(4)}
    assert question.judge(pool(opposite)) == question.judge(pool(few)) == YES
    assert judge(question, opposite).verdict == judge(question, few).verdict == OPEN
    assert judge(ask_larger(), {"a": around(0.05), "b": around(0.5)}).verdict == YES, "a direction holds on average"


def test_of_rivals_to_be_equal_to_the_one_that_is_farthest_off_is_shown():
    """Above as well as below: 0 ± .1 is within .2, and .15 ± .1 and -.15 ± .1 may not be."""
    for mean in (0.15, -0.15):
        found = judge_each(ask_comparable(0.2), {"near": {"here": around(0.0)}, "far": {"here": around(mean)}})
        assert found.verdict == OPEN
        assert found.effect[AGAINST] == "far"


@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_interval_of_one_more_run_holds_it_as_often_as_it_says(n):
    """Of one run, whose own seed is unknown: 95 % of such runs, with deviations that are known only from n others."""
    drawn = np.random.default_rng(n).normal(size=(4000, n + 1))
    found = [predict_run(difference(row[1:], np.zeros(n))) for row in drawn]
    assert np.mean([d.low < row[0] < d.high for d, row in zip(found, drawn, strict=True)]) == pytest.approx(
        0.95, abs=0.015
    )
    spread = stats.t.ppf(0.975, n - 1) * np.std(drawn[0, 1:], ddof=1) * np.sqrt(1 + 1 / n)
    assert found[0].high - found[0].mean == pytest.approx(spread)


def test_a_published_number_is_of_one_run():
    """.42 ± .1 is not within .2 as a mean; one more run may be, and so may the published one."""
    for experiments in ({"a": around(0.42)}, {"a": around(0.42), "b": around(0.42)}):
        assert judge(ask_comparable(0.2), experiments).verdict == NO
        found = judge(ask_as_published(0.2), experiments)
        assert found.verdict == OPEN
        assert found.effect["pooled"] == pytest.approx(describe_difference(predict_run(pool(experiments))), nan_ok=True)


def test_disagreement_with_a_published_number_is_tested_on_both_sides():
    """One end refutes at 2.5 %, but either can: .9 ± .22 refutes a margin of .667 by one, not by two."""
    apart = {"a": around(0.91)}
    margin = 0.667
    question = ask_as_published(margin)
    assert question.judge(predict_run(apart["a"])) == NO
    assert judge(question, apart).verdict == OPEN
    assert judge(ask_as_published(margin - 0.1), apart).verdict == NO


def test_ratios_are_compared_in_decades():
    """Ratios of 8 and 1/8 cancel, as do their inverses; their mean would be 4."""
    first, second = np.array([8.0, 1.0, 4.0]), np.array([1.0, 8.0, 4.0])
    assert compare_factor(first, second).mean == pytest.approx(0.0)
    thrice = compare_factor(first, second, 3.0)
    assert thrice.mean == pytest.approx(-np.log10(3))
    shown = describe_factor(thrice, 3.0)
    assert shown["factor"] == pytest.approx(stats.gmean(first / second))
    t = stats.ttest_1samp(np.log(first / second), 0.0).confidence_interval(0.95)
    assert (shown["low"], shown["high"]) == pytest.approx((np.exp(t.low), np.exp(t.high)))
    assert describe_factor(dataclasses.replace(thrice, high=math.inf), 3.0)["high"] == math.inf


@pytest.mark.parametrize(
    "question",
    [ask_larger(0.01), ask_not_smaller(), ask_comparable(0.2), ask_not_below(0.1), ask_as_published(0.2)],
)
def test_a_judgement_follows_from_what_it_recorded(question):
    """Through JSON, too, and with open ends and differences of which only the interval is known."""
    known = {"a": around(0.05), "late": dataclasses.replace(around(0.3), high=math.inf)}
    for by_rival in (
        {"": known},
        {"one": known, "other": {"a": around(-0.3, 0.01)}},
        {"": {"a": dataclasses.replace(around(0.2), values=())}},
        {"": {"a": dataclasses.replace(around(0.2), values=(), high=math.inf)}},
    ):
        found = judge_each(question, by_rival)
        assert judge_recorded(json.loads(json.dumps(to_jsonable(found.asked)))) == found


def test_nothing_to_compare_is_no_verdict():
    with pytest.raises(NotRun):
        judge(ask_larger(), {})


def test_a_claim_on_what_was_not_run_is_a_mistake_or_left_out():
    claims = [make_claim(name, "", "", YES, {}, rests_on=[name]) for name in ("here", "elsewhere")]
    with pytest.raises(ValueError, match=r"the claim 'elsewhere' rests on \['elsewhere'\]; run were \['here'\]"):
        settle_claims(claims, REGIME, {"here": ENOUGH})
    (left,) = settle_claims(claims, REGIME, {"here": ENOUGH}, finished=False)
    assert left.id == "here"


REGIME = FairRegime(50, 5, 100, 5, 0.3, "made up", 0.3)
ENOUGH = Conditions(50.0, 5.0, 100, 5, 0.3, 0.3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"examples_per_client": 49.0}, "49 of at least 50 training examples per client (here)"),
        ({"local_epochs": 1.0}, "1 of at least 5 local epochs (here)"),
        ({"rounds": 99}, "99 of at least 100 rounds (here)"),
        ({"seeds": 4}, "4 of at least 5 seeds (here)"),
        ({"rounds": 99.9999}, "99.9999 of at least 100 rounds (here)"),
        ({"above_chance": 0.2996}, "29.96 % of at least 30 % of the way from chance to accuracy 1 (here)"),
        ({"above_chance": 0.29}, "29 % of at least 30 % of the way from chance to accuracy 1 (here)"),
        ({"pretrained_accuracy": 0.07}, "7 % of at least 30 % accuracy of the pretrained model on its own data (here)"),
        ({"examples_per_client": None}, "an unknown number of at least 50 training examples per client (here)"),
        ({"above_chance": math.nan}, "nan % of at least 30 % of the way from chance to accuracy 1 (here)"),
        ({"pretrained_accuracy": None}, ""),  # of runs that begin with a fresh model nothing is asked
        ({}, ""),
    ],
    ids=str,
)
def test_what_a_run_missed_is_said_with_how_much_there_was(change, said):
    assert describe_shortfalls(REGIME, {"here": dataclasses.replace(ENOUGH, **change)}) == said


def test_of_several_experiments_the_worst_is_named():
    some, least = dataclasses.replace(ENOUGH, rounds=60), dataclasses.replace(ENOUGH, rounds=15, seeds=2)
    assert describe_shortfalls(REGIME, {"a": some, "b": least, "c": ENOUGH}) == (
        "15 of at least 100 rounds (b); 2 of at least 5 seeds (b)"
    )


@pytest.mark.parametrize(("name", "value"), [("seeds", 1), ("above_chance", 30), ("rounds", 0)])
def test_a_requirement_that_cannot_be_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"a fair regime's {name} is from .* not {value}"):
        dataclasses.replace(REGIME, **{name: value})


def claims_on(*experiments, **others):
    found = judge(ask_larger(), {"all": around(0.3)})
    return [make_claim("it-is-so", "It is so", "p. 1", found, {"x": 1.0}, rests_on=experiments, **others)]


def test_a_claim_is_judged_where_all_that_it_rests_on_meets_the_regime():
    conditions = {"good": ENOUGH, "short": dataclasses.replace(ENOUGH, rounds=10)}

    def verdict(*experiments, **given):
        (claim,) = settle_claims(claims_on(*experiments, **given), REGIME, conditions)
        assert claim.effect["pooled"]["mean"] == pytest.approx(0.3), "the numbers are shown all the same"
        return claim.verdict

    assert verdict("good") == YES
    assert verdict("short") == verdict("good", "short") == NOT_JUDGED
    assert verdict() == YES, "a study of a run in which something is fair"
    assert verdict("good", fixed="N of N") == verdict("short", fixed="N of N") == BY_CONSTRUCTION
    (short,) = settle_claims(claims_on(lacks="ten digits a client"), REGIME, {"good": ENOUGH})
    assert (short.verdict, short.reason) == (NOT_JUDGED, "ten digits a client")
    (alone,) = settle_claims(claims_on(), REGIME, {"short": conditions["short"]})
    assert (alone.verdict, alone.reason) == (NOT_JUDGED, "10 of at least 100 rounds (short)")
    with pytest.raises(ValueError, match=r"'it-is-so' rests on \['elsewhere'\]"):
        verdict("elsewhere")


def test_verdicts_by_construction_are_counted_nowhere():
    fixed = (dataclasses.replace(claim, id="by-design") for claim in claims_on("good", fixed="N of N"))
    claims = settle_claims([*claims_on("good"), *fixed], REGIME, {"good": ENOUGH})
    text = "\n".join(show_claims(claims, REGIME))
    assert "| It is so | p. 1 | [**reproduced**](#it-is-so) | +0.3 [0.2018, 0.3982], 5 seeds | 1 of 1 (1) | 0 |" in text
    assert "#### by-design\nIt is so: **by construction** (N of N).\n- " in text
    assert "Verdicts on the paper's claims: 1 reproduced; not counted: 1 by construction." in text
    ours = [
        dataclasses.replace(claims[0], source="ours: a control"),
        dataclasses.replace(claims[0], verdict=NO, source="ours"),
    ]
    assert "Verdicts on the paper's claims: 1 reproduced; on ours: 1 not reproduced, 1 reproduced" in "\n".join(
        show_claims([*claims, *ours], REGIME)
    )


def test_conditions_are_what_the_runs_had():
    plain = {"data": "iris", "partition": {"name": "iid", "clients": 5}, "cohort_size": 2, "rounds": 4, "seeds": 2}

    def history(accuracy, rounds=4, examples=24.0):
        curve = np.full((2, rounds), np.nan)
        curve[:, -1] = curve[:, 0] = accuracy
        about = {"examples_per_client": examples, "classes": 4}
        return History((0, 1), {"accuracy": curve}, np.zeros((2, rounds, 2), int), 5, about)

    cells = [
        Cell("before", "it", {**plain, "local_training": {"steps": 12, "batch_size": 4}}),
        Cell("after", "A", {**plain, "local_training": {"epochs": 3}}, begins=("before", "it")),
        Cell("after", "B", plain, begins=("before", "it")),
    ]
    configs = [resolve(cell.config) for cell in cells]
    histories = {
        ("before", "it"): history(0.4),
        ("after", "A"): history(np.array([0.6, 0.8])),
        ("after", "B"): history(0.5, examples=12.0),
    }
    found = observe_conditions(cells, configs, histories)
    assert dataclasses.astuple(found["before"])[:4] == (24.0, 2.0, 4, 2)
    assert dataclasses.astuple(found["after"])[:4] == (12.0, 1.0, 4, 2)
    assert found["before"].above_chance == pytest.approx((0.4 - 0.25) / 0.75)
    assert found["after"].above_chance == pytest.approx((0.7 - 0.25) / 0.75)
    assert found["before"].pretrained_accuracy is None
    assert found["after"].pretrained_accuracy == pytest.approx(0.4)
    histories["after", "B"].about.pop("examples_per_client")
    assert observe_conditions(cells, configs, histories)["after"].examples_per_client is None


@pytest.mark.parametrize("name", papers.available())
def test_every_paper_declares_a_regime_that_its_smallest_scale_misses(name):
    paper = papers.load(name)
    smallest, *_, largest = paper.seeds
    assert paper.seeds[largest] >= paper.regime.seeds > paper.seeds[smallest]
    assert paper.regime.reason


def test_an_experiment_has_as_many_seeds_as_the_claim_compares():
    """One of its methods has two seeds; a claim about the others is judged by theirs."""
    few = {"here": dataclasses.replace(ENOUGH, seeds=2)}

    def settle(seeds):
        found = judge(ask_larger(), {"here": difference(0.3 + 0.01 * np.arange(seeds), np.zeros(seeds))})
        return settle_claims([make_claim("it", "It is so", "p. 1", found, {}, rests_on=["here"])], REGIME, few)[0]

    assert settle(5).verdict == YES
    assert settle(2).verdict == NOT_JUDGED
    assert settle(4).reason == "4 of at least 5 seeds compared"


def test_the_rival_with_fewest_seeds_counts_whichever_is_shown():
    def lead(by, seeds):
        return {"here": difference(by + 0.01 * np.arange(seeds), np.zeros(seeds))}

    found = judge_each(ask_larger(), {"many": lead(0.1, 5), "few": lead(0.3, 3)})
    assert found.effect["pooled"]["seeds"] == 5, "it holds least against the one with many"
    (claim,) = settle_claims(
        [make_claim("it", "It is so", "p. 1", found, {}, rests_on=["here"])], REGIME, {"here": ENOUGH}
    )
    assert (claim.verdict, claim.reason) == (NOT_JUDGED, "3 of at least 5 seeds compared")


def test_a_claim_on_fewer_seeds_than_its_experiments_have_or_on_a_study_with_few_is_not_judged():
    enough = {"here": ENOUGH}
    found = judge(ask_larger(), {"here": difference(0.3 + 0.01 * np.arange(2), np.zeros(2))})
    for rests_on in (["here"], []):
        (claim,) = settle_claims([make_claim("it", "It is so", "p. 1", found, {}, rests_on=rests_on)], REGIME, enough)
        assert (claim.verdict, claim.reason) == (NOT_JUDGED, "2 of at least 5 seeds compared")


def test_verdicts_that_are_none_claims_of_one_name_and_measures_that_are_no_row_of_seeds_are_refused():
    with pytest.raises(ValueError, match="unknown verdict on a: 'supported'"):
        make_claim("a", "text", "source", "supported", {})
    twice = [make_claim("a", "text", "source", YES, {})] * 2
    with pytest.raises(ValueError, match="two claims are called 'a'"):
        settle_claims(twice, REGIME, {})
    history = History((0,), {"accuracy": np.ones((1, 2))}, np.zeros((1, 2, 1), int), 5, {})
    with pytest.raises(ValueError, match=r"best of e, m, is 0\.5; it must be one number a seed"):
        list_results({("e", "m"): history}, lambda *_: {"best": 0.5})
