"""The claims of UACS-FL judged in planted worlds, where what must come out is known."""

import dataclasses

import numpy as np
import pytest

from fedjax_sel import History, papers
from fedjax_sel.data.uacs import SHAPE
from fedjax_sel.papers.paper import Evidence
from fedjax_sel.papers.uacs.cells import ENTROPY, GRADIENT, GREEDY, LINEAR, LONG, RANDOM, ROBIN, name_experiment
from fedjax_sel.papers.uacs.numbers import measure
from fedjax_sel.papers.uacs.studies import SHAPES
from fedjax_sel.papers.uacs.tables import tabulate_generator

T, R, N, M = 20, 5, 100, 6
LOW, HIGH = 0.80, 0.97  # accuracy before and after a run finds the boundary; the target 0.95 lies between
TITLES = ("Experiment 1", "Experiment 2", "Experiment 3")
YES, NO, OPEN = "reproduced", "not reproduced", "undecided"


@dataclasses.dataclass
class Method:
    """A method's runs: when each seed's accuracy jumps, from where to where, what a round costs, whom it selects."""

    jump: tuple[int, ...] = (6, 6, 7, 6, 7)
    low: float = LOW
    high: float = HIGH
    cost: float = 1.0
    near: tuple[int, ...] = (6, 6, 6, 6, 6)

    def history(self):
        after = np.arange(1, T + 1) >= np.array(self.jump)[:, None]
        selections = np.arange(50, 50 + M) * np.ones((R, T, 1), int)
        for seed, near in enumerate(self.near):
            selections[seed, T // 5 :, :near] = np.arange(near)  # nobody of the boundary in the first fifth
        ones = np.ones((R, T))
        costs = dict.fromkeys(("bytes_down", "bytes_up", "client_flops"), ones)
        costs |= dict.fromkeys(
            ("selection_bytes_down", "selection_bytes_up", "selection_flops"), (self.cost - 1) * ones
        )
        return History(tuple(range(R)), {"accuracy": np.where(after, self.high, self.low), **costs}, selections, N)


LATE = Method(jump=(15, 14, 15, 16, 15))
MIXED = Method(jump=(2, 12, 3, 10, 5))
NEVER = Method(jump=(T + 1,) * R)


def judged(changes=(), only_in=TITLES, long=None, **methods):
    """Verdict by claim, in a world where all methods are alike but those given, and random selection's longer run."""
    world = {name: Method() for name in (ENTROPY, GREEDY, GRADIENT, RANDOM, ROBIN)}
    histories = {}
    for title in TITLES:
        here = {**world, **(methods if title in only_in else {})}
        histories |= {(title, name): method.history() for name, method in here.items()}
        histories[f"{title}, {LONG}", RANDOM] = (long or here[RANDOM]).history()
    return {claim.id: claim for claim in papers.load("uacs").claims("small", Evidence(histories))}


def verdict(claim, only_in=TITLES, **methods):
    return judged(only_in=only_in, **methods)[claim].verdict


@pytest.mark.parametrize(
    ("random", "expected"),
    [(LATE, YES), (Method(), NO), (Method(jump=(3, 3, 4, 3, 4)), NO), (MIXED, OPEN)],
    ids=["later", "alike", "sooner", "sometimes later"],
)
def test_random_underperforms_where_it_learns_later_in_every_seed(random, expected):
    assert verdict("random-underperforms", **{RANDOM: random}) == expected


def test_random_must_underperform_in_all_three_experiments():
    assert verdict("random-underperforms", only_in=TITLES[:2], **{RANDOM: LATE}) == NO
    claim = judged(only_in=TITLES[:2], **{RANDOM: LATE})["random-underperforms"]
    found = claim.statistic["entropy - random, mean accuracy"]
    rounds = np.array(LATE.jump) - np.array(Method().jump)
    assert found["Experiment 1"]["mean"] == pytest.approx(rounds.mean() * (HIGH - LOW) / T)
    assert found["Experiment 3"]["mean"] == 0
    later = claim.statistic["random - entropy, rounds to 0.95 (at least)"]
    assert later["Experiment 2"]["mean"] == rounds.mean()


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        (Method(), YES),
        (Method(jump=(7, 7, 8, 7, 8)), YES),  # a round of twenty later: 0.0085 of mean accuracy
        (Method(jump=(8, 8, 9, 8, 9)), NO),
        (Method(jump=(4, 4, 5, 4, 5)), NO),
        (MIXED, OPEN),
    ],
    ids=["alike", "within the margin", "worse", "better", "sometimes either"],
)
def test_gradient_norm_is_comparable_within_a_hundredth(gradient, expected):
    assert verdict("gradient-norm-comparable", **{GRADIENT: gradient}) == expected


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        (LATE, YES),
        (NEVER, YES),  # counts as the round after the last
        (Method(), NO),
        (Method(jump=(6, 6, 7, 6, 8)), NO),  # 0.2 rounds, and for certain less than one: nobody would notice
        (Method(jump=(6, 6, 7, 6, 13)), OPEN),
        (Method(jump=(7, 7, 8, 7, 8)), YES),
        (Method(jump=(3, 3, 4, 3, 4)), NO),
        (MIXED, OPEN),
    ],
    ids=["later", "never", "alike", "a round in one seed", "many in one seed", "a round in each", "sooner", "either"],
)
def test_entropy_is_faster_where_gradient_norm_reaches_the_target_later(gradient, expected):
    assert verdict("entropy-faster-than-gradient-norm", **{GRADIENT: gradient}) == expected


@pytest.mark.parametrize(
    ("greedy", "expected"), [(Method(jump=(4, 4, 5, 4, 5)), YES), (Method(), NO), (LATE, NO), (MIXED, OPEN)]
)
def test_exploring_pays_where_it_learns_sooner_than_pure_exploitation(greedy, expected):
    assert verdict("exploring-pays", **{GREEDY: greedy}) == expected


def test_nobody_is_faster_where_nobody_reaches_the_target():
    assert verdict("entropy-faster-than-gradient-norm", **{GRADIENT: NEVER, ENTROPY: NEVER}) == OPEN


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        ((6, 6, 6, 6, 6), YES),
        ((5, 6, 6, 6, 6), YES),
        ((5, 5, 5, 5, 5), YES),  # "at least"
        ((4, 4, 4, 4, 4), NO),
        ((4, 5, 4, 5, 4), OPEN),
        ((6, 3, 6, 6, 6), OPEN),
        ((0, 1, 0, 1, 2), NO),
    ],
    ids=str,
)
def test_the_cohort_is_at_the_boundary_where_five_of_six_are_after_the_first_fifth(near, expected):
    assert verdict("top-m-are-boundary", **{ENTROPY: Method(near=near)}) == expected


def test_whom_the_other_methods_select_decides_nothing_about_entropy():
    assert verdict("top-m-are-boundary", **{RANDOM: Method(near=(0,) * R), GRADIENT: Method(near=(1,) * R)}) == YES


@pytest.mark.parametrize("unit", ["bytes", "flops"])
@pytest.mark.parametrize(
    ("entropy", "random", "expected"),
    [
        (Method(cost=2.0), NEVER, YES),  # ten rounds for the cost of twenty, and the jump is within them
        (Method(cost=2.0), Method(), NO),
        (Method(cost=4.0), NEVER, NO),  # five rounds, in which nothing happens yet
        (Method(cost=4.0), Method(), NO),
        (Method(cost=2.0, jump=(4, 30, 5, 30, 4)), Method(high=0.9), OPEN),
    ],
    ids=["ahead", "caught up with", "out of money before", "behind", "ahead in some seeds"],
)
def test_at_equal_cost_entropy_has_only_the_rounds_that_random_could_pay(unit, entropy, random, expected):
    # With cost c a round of entropy costs 2 + 2(c - 1) bytes and 1 + (c - 1) FLOPs, against 2 and 1 of random.
    assert verdict(f"ahead-at-equal-{unit}", **{ENTROPY: entropy, RANDOM: random}) == expected


@pytest.mark.parametrize(
    ("entropy", "long", "expected"),
    [
        (Method(), NEVER, YES),
        (Method(), Method(), NO),
        (Method(cost=0.5), LATE, YES),  # what entropy spends pays ten rounds of the longer run, which jumps later
        (Method(jump=(4, 30, 5, 30, 4)), Method(high=0.9), OPEN),
    ],
    ids=["ahead", "caught up with", "before it is caught up with", "ahead in some seeds"],
)
def test_the_longer_run_of_random_selection_is_looked_at_where_it_has_spent_as_much(entropy, long, expected):
    assert verdict("ahead-at-entropys-bytes", long=long, **{ENTROPY: entropy, RANDOM: LATE}) == expected


def test_every_claim_has_a_sentence_a_source_and_numbers_for_each_experiment():
    claims = judged()
    assert len(claims) == 8
    for claim in claims.values():
        assert claim.text
        assert claim.source
        for numbers in claim.statistic.values():
            assert set(numbers) == set(TITLES) or {"mean", "least seed"} == set(numbers)


def test_measures_of_a_cell_are_what_was_planted():
    method = Method(jump=(3, 21, 3, 3, 3), cost=3.0, near=(6, 0, 3, 6, 6))
    found = measure("Experiment 1", method.history())
    learnt = (2 * LOW + 18 * HIGH) / T
    np.testing.assert_allclose(found["final_accuracy"], [HIGH, LOW, HIGH, HIGH, HIGH])
    np.testing.assert_allclose(found["mean_accuracy"], [learnt, LOW, learnt, learnt, learnt])
    np.testing.assert_array_equal(found["rounds_to_0.95"], [3, 21, 3, 3, 3])
    np.testing.assert_allclose(found["bytes_to_0.95"], [18, np.inf, 18, 18, 18])
    np.testing.assert_allclose(found["flops_to_0.95"], [9, np.inf, 9, 9, 9])
    np.testing.assert_allclose(found["bytes"], 6 * T)
    np.testing.assert_allclose(found["flops"], 3 * T)
    np.testing.assert_array_equal(found["boundary_clients_after_first_fifth"], [6, 0, 3, 6, 6])
    np.testing.assert_allclose(found["coverage"], np.array([12, 6, 9, 12, 12]) / N)
    np.testing.assert_allclose(found["jain"][1], M / N)


def test_results_are_accuracies_on_the_way_and_every_measure_of_every_cell():
    histories = {("Experiment 1", RANDOM): Method().history()}
    found = {(r.metric, r.round): r for r in papers.load("uacs").results("small", Evidence(histories))}
    assert found["accuracy", 2].per_seed == (LOW,) * R
    assert found["accuracy", 4].mean == pytest.approx(LOW)
    assert found["accuracy", 20].per_seed == (HIGH,) * R
    assert found["rounds_to_0.95", None].mean == pytest.approx(6.4)
    assert found["rounds_to_0.95", None].std == pytest.approx(np.std([6, 6, 7, 6, 7], ddof=1))
    assert all(result.published is None for result in found.values())


def test_the_linear_model_is_judged_where_it_was_run():
    assert "random-underperforms-linear" not in judged()
    world = {name: Method() for name in (ENTROPY, GREEDY, GRADIENT, RANDOM, ROBIN)}
    behind = {**world, ENTROPY: LATE}
    histories = {
        (name_experiment(setting, change), name): method.history()
        for setting in (1, 2, 3)
        for change in ("", LONG, LINEAR)
        for name, method in (behind if (setting, change) == (3, LINEAR) else world).items()
    }
    claims = {claim.id: claim for claim in papers.load("uacs").claims("full", Evidence(histories))}
    claim = claims["random-underperforms-linear"]
    assert claim.verdict == NO
    assert claim.rests_on == tuple(f"{title}, logistic regression" for title in TITLES)
    found = claim.statistic["entropy - random selection, mean accuracy"]
    assert found["Experiment 3"]["mean"] < 0 == found["Experiment 1"]["mean"]


def test_a_shape_changes_one_number_and_is_judged_beside_the_default():
    for name, shape in SHAPES.items():
        (changed,) = [key for key, value in vars(shape).items() if value != vars(SHAPE)[key]]
        assert name == f"{changed} {vars(shape)[changed]:g}"
    assert {name.split()[0] for name in SHAPES} == set(vars(SHAPE))
    world = {ENTROPY: Method(), GRADIENT: Method(), RANDOM: LATE}
    histories = {(title, name): method.history() for title in TITLES for name, method in world.items()}
    alike = {name: measure("Experiment 3", Method().history()) for name in world}
    (table,) = tabulate_generator(histories, {"box 0.05": {"Experiment 3": alike}})
    assert [row[0] for row in table.rows] == ["default", "box 0.05"]
    assert table.rows[0][1].startswith("reproduced: ")
    assert table.rows[1][1].startswith("not reproduced: ")  # alike in experiment 3 alone
    assert not tabulate_generator(histories, {})
