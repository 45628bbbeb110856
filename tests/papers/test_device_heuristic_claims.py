"""The claims of heuristic device selection in planted worlds where the answer is known."""

import dataclasses

import numpy as np
import pytest

from fedjax_sel import History, papers
from fedjax_sel.client_selection._device_heuristic import cohort_size
from fedjax_sel.papers.device_heuristic import studies as solvers
from fedjax_sel.papers.device_heuristic.beyond import judge_changing, judge_weights
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    DEVICES,
    LINEAR,
    LONGER,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.changing import AGAIN, CHANCE, ONCE, WAYS
from fedjax_sel.papers.device_heuristic.numbers import compare_at_equal_cost, compare_costs
from fedjax_sel.papers.device_heuristic.weights import EQUAL
from fedjax_sel.papers.differences import describe_factor
from fedjax_sel.papers.paper import Evidence

PAPER = papers.load("device_heuristic")
T, R = 20, 5
YES, NO, OPEN = "reproduced", "not reproduced", "undecided"


def test_weights_are_judged_by_time_and_energy_together():
    def grid(**others):
        equal = {p: {"final_accuracy": [0.9] * R, "seconds": [1.0] * R, "joules": [1.0] * R} for p in PARTITIONS}
        changed = {p: {**equal[p], **{k: [v, 0.99 * v] * 2 + [v] for k, v in others.items()}} for p in PARTITIONS}
        return {"grid": {EQUAL: equal, "0.5, 0.5, 0, 0": changed}, "weights": ["alpha", "beta", "gamma", "delta"]}

    assert judge_weights(grid(seconds=0.5, joules=0.5)).verdict == NO
    assert judge_weights(grid(seconds=0.5, joules=2.0)).verdict == YES
    assert judge_weights(grid(seconds=2.0, joules=2.0)).verdict == YES


def test_weights_are_corrected_for_how_many_there_are():
    def grid(rivals):
        equal = {p: {"seconds": [1.0] * R, "joules": [1.0] * R} for p in PARTITIONS}
        dearer = {p: {"seconds": [1.1, 1.0, 1.1, 1.05, 1.1], "joules": [1.0] * R} for p in PARTITIONS}
        return {"grid": {EQUAL: equal} | {f"rival {i}": dearer for i in range(rivals)}}

    one, many = judge_weights(grid(1)), judge_weights(grid(10))
    assert (one.verdict, many.verdict) == (YES, OPEN)
    assert many.statistic["more time or more energy, after Holm's correction"] == "0 of 10"
    assert many.statistic["without the correction"] == "10 of 10"


def test_devices_that_change_are_judged_with_their_batteries_and_shown_with_others():
    def rows(last):
        return {"accuracy": [[0.5, last + 0.001 * i] for i in range(R)], "members": [[15, 10]] * R}

    def ends(last):
        return {"final_accuracy": [last + 0.001 * i for i in range(R)], "members": [12.5] * R}

    usual, other = {AGAIN: 0.95, ONCE: 0.9, CHANCE: 0.95}, {AGAIN: 0.9, ONCE: 0.95, CHANCE: 0.9}
    study = {
        "rounds": 2,
        "partitions": {p: {way: rows(usual[way]) for way in WAYS} for p in PARTITIONS},
        "other batteries": {"2": {p: {way: ends(other[way]) for way in WAYS} for p in PARTITIONS}},
    }
    found = {claim.id: claim for claim in judge_changing(study)}
    assert found["selecting-again-pays"].verdict == YES
    assert found["selecting-again-beats-chance"].verdict == NO
    assert all(claim.is_ours for claim in found.values())
    shown = found["selecting-again-pays"].statistic["the same, pooled over both partitions, if a full battery lasts"]
    assert shown["200 % of the rounds"]["mean"] == pytest.approx(-0.05)


# Planted worlds


@dataclasses.dataclass
class Method:
    """A method's runs: the round of each seed's jump from 0.8 to `high`, its costs a round, and its cohorts."""

    jump: tuple[int, ...] = (6, 6, 7, 6, 7)
    high: float | tuple[float, ...] = 0.95
    seconds: float = 1.0
    joules: float = 1.0
    shift: int = 0

    def history(self, m, rounds=T):
        after = np.arange(1, rounds + 1) >= np.array(self.jump)[:, None]
        accuracy = np.where(after, np.broadcast_to(self.high, R)[:, None], 0.8)
        chosen = (np.arange(m) + self.shift) % DEVICES * np.ones((R, rounds, 1), int)
        costs = {"seconds": np.full((R, rounds), self.seconds), "joules": np.full((R, rounds), self.joules)}
        return History(tuple(range(R)), {"accuracy": accuracy, "loss": 1 - accuracy, **costs}, chosen, DEVICES)


SPREAD = (0.98, 0.90, 0.99, 0.91, 0.97)
LATE = Method(jump=(15, 14, 15, 16, 15))


def study(share=None, gap=0.0, seconds=None, apart=0.0):
    """What the solver study would find."""
    share = {solvers.EVERY: 1.0, solvers.BEST: 0.6, solvers.LETTER: 0.5, **(share or {})}
    wobble = np.array([0.0, 0.001, -0.001, 0.0, 0.0])
    optimality = [
        {
            "N": n,
            "epsilon": epsilon,
            "solver": name,
            "share_optimal": list(value + wobble * (value < 1)),
            "mean_gap": [gap] * R,
            "worst_gap": [gap] * R,
        }
        for n in solvers.SIZES["small"].devices
        for epsilon in (1.0, 0.75, 0.5)
        for name, value in share.items()
    ]
    seconds = {solvers.EVERY: 1e-3, solvers.EXACT: 1e-4, solvers.EXHAUSTIVE: 1.0, **(seconds or {})}
    times = [
        {"solver": name, "wanted": wanted, "s": 4, "N": n, "seconds": value, "gap": 0.0}
        for name, value in seconds.items()
        for wanted in ("half", "few")
        for n in (8, 16)
    ]
    enumeration = [{"N": 8, "epsilon": 0.5, "instances": 5, "largest_difference": apart}]
    return {"optimality": optimality, "times": times, "enumeration": enumeration, "instances a seed": 100}


def judged(found=None, only_in=PARTITIONS, at=(1.0, 0.75, 0.5, 0.1), **methods):
    """Claims in a world where all methods are alike but those given."""
    histories = {}
    for partition in PARTITIONS:
        for epsilon in (1.0, 0.75, 0.5, 0.1):
            for method in (PROPOSED, SET, ALL if epsilon == 1 else RANDOM, *ONLY):
                own = methods.get(method) if partition in only_in and epsilon in at else None
                histories[name_experiment(partition, epsilon), method] = (own or Method()).history(
                    cohort_size(epsilon, DEVICES)
                )
        for epsilon, method in ((1.0, ALL), (0.5, PROPOSED), (0.5, RANDOM)):
            linear = methods.get(f"{method}, linear") if partition in only_in else None
            histories[name_experiment(partition, epsilon, LINEAR), method] = (linear or Method()).history(
                cohort_size(epsilon, DEVICES)
            )
        for epsilon in (0.75, 0.5):
            longer = methods.get(f"{PROPOSED}, longer") or methods.get(PROPOSED) or Method()
            histories[name_experiment(partition, epsilon, LONGER), PROPOSED] = longer.history(
                cohort_size(epsilon, DEVICES), rounds=10 * T
            )
    claims = PAPER.claims("small", Evidence(histories, {"solvers": found or study()}))
    return {claim.id: claim for claim in claims}


def verdict(claim, *arguments, **named_arguments):
    return judged(*arguments, **named_arguments)[claim].verdict


def test_alike_methods_are_one_method_and_none_is_better():
    found = {name: claim.verdict for name, claim in judged().items()}
    alike = ("one-method-at-all", "greedy-as-accurate", "same-devices-cost-nothing", "another-model-alike")
    assert {found[name] for name in alike} == {YES}
    apart = {f"{metric}-apart-at-{where}" for metric in ("accuracy", "loss") for where in ("all", "half")}
    less = {f"less-{cost}-{to}" for cost in ("joules", "seconds") for to in ("a-round", "to-0.9")}
    ahead = {
        f"ahead-of-{who}-at-{whose}-{cost}"
        for who in ("random", "all")
        for whose in ("its", "their")
        for cost in ("joules", "seconds")
    }
    for names, prefix in ((less, "less-"), (ahead, "ahead-of")):
        assert {name for name in found if name.startswith(prefix)} == names
    others = {"half-better-than-all", "one-property-worse", "more-devices-more-cost"}
    others |= {"more-devices-more-accuracy", "random-limits-hurt", "random-tenths-hurt", "better-than-random"}
    assert {found[name] for name in apart | less | ahead | others} == {NO}


FIXED = {
    "one-method-at-all",
    "accuracy-apart-at-all",
    "accuracy-apart-at-half",
    "loss-apart-at-all",
    "loss-apart-at-half",
    "every-start-better",
    "one-property-worse",
    "greedy-as-accurate",
    "more-devices-more-cost",
}


@pytest.mark.parametrize("other", [None, Method(shift=1, high=0.96), Method(high=0.96)], ids=["alike", "sets", "runs"])
def test_what_is_fixed_is_fixed_before_any_run(other):
    assert {name for name, claim in judged(**{SET: other}).items() if claim.fixed} == FIXED


def test_runs_that_differ_are_not_one_method():
    other = Method(shift=1, high=0.96)
    shares = judged(**{SET: other})["accuracy-apart-at-half"].statistic["share of the seeds with the same devices"]
    assert set(shares.values()) == {0.0}
    for method in (SET, ALL):
        assert verdict("one-method-at-all", **{method: other}) == NO
    assert verdict("one-method-at-all", only_in=PARTITIONS[:1], **{SET: other}) == NO


def test_whose_a_claim_is():
    found = judged()
    ours = {"one-method-at-all", "no-heuristic-needed", "rates-as-first-computed", "better-than-random"}
    ours |= {name for name in found if name.startswith(("ahead-of", "same-"))}
    assert {name for name, claim in found.items() if claim.is_ours} == ours


@pytest.mark.parametrize(("high", "expected"), [(0.95, YES), (0.9233, YES), (0.91, NO), (SPREAD, OPEN)], ids=str)
def test_the_accuracy_with_all_devices_is_compared_with_the_published_one(high, expected):
    assert verdict("accuracy-at-all", **{PROPOSED: Method(high=high)}) == expected


def test_the_accuracy_with_half_of_them_is_judged_by_itself():
    low = {PROPOSED: Method(high=0.85)}
    assert verdict("accuracy-at-half", at=(0.5,), **low) == NO
    assert verdict("accuracy-at-all", at=(0.5,), **low) == YES
    assert verdict("accuracy-at-half", at=(1.0,), **low) == YES


def test_a_loss_is_attained_where_it_is_no_higher():
    high = {PROPOSED: Method(high=0.8)}  # a loss of 0.2
    assert (verdict("loss-at-all", **high), verdict("loss-at-half", **high)) == (NO, YES)
    assert (verdict("loss-at-all"), verdict("loss-at-half", **{PROPOSED: Method(high=0.7)})) == (YES, NO)


def test_what_the_set_based_method_attains_is_judged_by_its_own_runs():
    low = {SET: Method(high=0.78)}  # a loss of 0.22
    names = ("accuracy-at-half", "loss-at-half", "accuracy-at-all", "loss-at-all")
    assert [verdict(f"set-based-{name}", at=(0.5,), **low) for name in names] == [NO, NO, YES, YES]
    assert [verdict(name, at=(0.5,), **low) for name in names] == [YES] * 4
    assert [verdict(f"set-based-{name}", **{SET: Method(high=0.899)}) for name in names] == [YES, YES, NO, YES]


def test_what_is_attained_is_shown_after_fewer_rounds_too():
    found = judged()["accuracy-at-half"]
    assert found.verdict == YES
    assert found.statistic["verdict if training ended after that round"] == {
        "round 4": NO,
        "round 10": YES,
        "round 20": YES,
    }


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        ("accuracy-apart-at-all", SET),
        ("accuracy-apart-at-half", SET),
        ("loss-apart-at-all", SET),
        ("half-better-than-all", ALL),
    ],
)
def test_better_means_better_in_every_experiment(claim, other):
    assert verdict(claim, **{other: Method(high=0.9)}) == YES
    assert verdict(claim, only_in=PARTITIONS[:1], **{other: Method(high=0.9)}) == NO
    assert verdict(claim, **{other: Method(high=SPREAD)}) == OPEN


def test_at_half_the_table_has_the_higher_loss_with_the_higher_accuracy():
    assert verdict("loss-apart-at-half", **{SET: Method(high=0.9)}) == NO
    assert verdict("loss-apart-at-half", **{SET: Method(high=0.99)}) == YES


def test_more_devices_are_more_accurate_where_all_beat_each_fraction_that_the_algorithm_selects():
    claim, worse = "more-devices-more-accuracy", {PROPOSED: Method(high=0.9)}
    assert verdict(claim, at=(0.75, 0.5), **worse) == YES
    assert verdict(claim, at=(0.5,), **worse) == NO, "three quarters are as accurate as all"
    assert verdict(claim, at=(0.75, 0.5), only_in=PARTITIONS[:1], **worse) == NO
    assert verdict(claim, **{RANDOM: Method(high=0.9)}) == NO
    assert verdict("random-limits-hurt", at=(0.5,), **{RANDOM: Method(high=0.9)}) == YES
    assert verdict("random-limits-hurt", at=(0.5,), **worse) == NO


@pytest.mark.parametrize(("at", "half", "tenth"), [((0.5,), YES, NO), ((0.1,), NO, YES), ((0.75,), NO, NO)], ids=str)
def test_limits_at_random_hurt_where_all_devices_beat_a_random_part_of_that_size(at, half, tenth):
    found = judged(at=at, **{RANDOM: Method(high=0.9)})
    assert (found["random-limits-hurt"].verdict, found["random-tenths-hurt"].verdict) == (half, tenth)
    assert not found["random-tenths-hurt"].is_ours


def test_the_selected_devices_beat_chance_where_they_do_in_both_partitions_and_fractions():
    claim, better = "better-than-random", {RANDOM: Method(high=0.9)}
    assert verdict(claim, **better) == YES
    assert verdict(claim) == NO, "as accurate is not better"
    assert verdict(claim, **{PROPOSED: Method(high=0.9)}) == NO
    assert verdict(claim, at=(0.5,), **better) == NO
    assert verdict(claim, only_in=PARTITIONS[:1], **better) == NO
    assert verdict(claim, at=(0.1,), **better) == NO, "a tenth is not asked"


def test_another_model_is_alike_where_the_methods_are_as_far_apart():
    claim, low = "another-model-alike", Method(high=0.9)
    everybody = {f"{method}, linear": low for method in (PROPOSED, RANDOM, ALL)}
    assert verdict(claim, **everybody) == YES
    for method in (PROPOSED, RANDOM, ALL):
        assert verdict(claim, **{f"{method}, linear": low}) == NO
        assert verdict(claim, only_in=PARTITIONS[:1], **{f"{method}, linear": low}) == NO
    assert verdict(claim, **{f"{PROPOSED}, linear": Method(high=SPREAD)}) == OPEN


def test_one_property_is_worse_where_each_of_the_four_is():
    worse = {method: Method(high=0.9) for method in ONLY}
    assert verdict("one-property-worse", **worse) == YES
    assert verdict("one-property-worse", **{**worse, "Network Only": Method()}) == NO


@pytest.mark.parametrize(
    ("high", "expected"), [(0.95, YES), (0.945, YES), (0.92, NO), (0.99, YES), (SPREAD, OPEN)], ids=str
)
def test_training_the_same_devices_costs_nothing_down_to_a_hundredth(high, expected):
    assert verdict("same-devices-cost-nothing", **{PROPOSED: Method(high=high)}) == expected
    assert verdict("same-few-devices-cost-nothing", at=(0.75, 0.5), **{PROPOSED: Method(high=high)}) == YES
    assert verdict("same-few-devices-cost-nothing", at=(0.1,), **{PROPOSED: Method(high=high)}) == expected


@pytest.mark.parametrize("unit", ["joule", "second"])
@pytest.mark.parametrize(("who", "other"), [("random", RANDOM), ("all", ALL)])
def test_ahead_at_equal_cost_where_the_other_cannot_pay_the_rounds_it_needs(unit, who, other):
    claim, cost = f"ahead-of-{who}-at-its-{unit}s", f"{unit}s"
    assert verdict(claim, **{other: Method(**{cost: 4.0})}) == YES  # five rounds, and the jump comes in the sixth
    assert verdict(claim, **{other: Method(**{cost: 2.0})}) == NO  # ten rounds are enough
    assert verdict(claim, only_in=PARTITIONS[:1], **{other: Method(**{cost: 4.0})}) == NO
    assert verdict(claim, **{other: Method(**{cost: 100.0})}) == YES  # not even one round
    unpaid = judged(**{other: Method(**{cost: 100.0})})[claim].statistic[
        "seeds in which one method cannot afford a single round"
    ]
    assert set(unpaid.values()) == {R}


@pytest.mark.parametrize("unit", ["joule", "second"])
@pytest.mark.parametrize(("who", "other"), [("random", RANDOM), ("all", ALL)])
def test_at_the_others_budget_the_heuristic_trains_on(unit, who, other):
    claim, cost = f"ahead-of-{who}-at-their-{unit}s", f"{unit}s"
    dear = Method(**{cost: 4.0})
    assert verdict(claim, **{other: dear}) == NO, "it had arrived before, and so had the other in its own rounds"
    assert verdict(claim, **{other: dear, PROPOSED: Method(high=0.99)}) == YES
    assert verdict(claim, **{other: dear, f"{PROPOSED}, longer": Method(high=0.99)}) == YES, "by the longer run"


@pytest.mark.parametrize("unit", ["joule", "second"])
def test_a_round_takes_less_where_a_random_cohorts_takes_more(unit):
    claim, cost = f"less-{unit}s-a-round", f"{unit}s"
    dear = {RANDOM: Method(**{cost: 2.0})}
    assert verdict(claim, **dear) == YES
    assert verdict(claim, at=(0.5,), **dear) == NO
    assert verdict(claim, **{PROPOSED: Method(**{cost: 2.0})}) == NO
    effect = judged(**dear)[claim].effect
    assert effect["pooled"]["mean"] == pytest.approx(np.log10(2))
    assert effect["comparisons"] == 2, "the same devices on both partitions are one run"


@pytest.mark.parametrize("unit", ["joule", "second"])
def test_less_to_the_target_than_each_rival_and_open_where_a_run_misses_it(unit):
    claim, dear = f"less-{unit}s-to-0.9", Method(**{f"{unit}s": 2.0})
    assert verdict(claim, **{RANDOM: dear, ALL: dear}) == YES
    assert verdict(claim, **{RANDOM: dear}) == verdict(claim, **{ALL: dear}) == NO
    never = Method(high=(0.95, 0.95, 0.85, 0.95, 0.95))
    found = judged(**{RANDOM: dear, ALL: dear, PROPOSED: never})[claim]
    assert found.verdict == OPEN
    assert found.effect["pooled"]["low"] == -np.inf
    found = judged(**{RANDOM: dataclasses.replace(dear, high=never.high), ALL: dear})[claim]
    assert found.verdict == YES, "the rival's cost is at least so much"
    assert found.statistic["seeds that never reach this accuracy, proposed and other"][
        "IID, epsilon=0.5, " + RANDOM
    ] == [0, 1]


def test_more_devices_cost_more_where_a_round_does():
    assert verdict("more-devices-more-cost", **{ALL: Method(seconds=2.0, joules=2.0)}) == YES
    assert verdict("more-devices-more-cost", **{ALL: Method(seconds=2.0)}) == NO


def test_costs_are_counted_by_hand():
    cheap, dear, late = Method().history(3), Method(joules=4.0).history(3), dataclasses.replace(LATE, joules=2.0)
    budget = cheap.cumulative("joules")[:, -1]
    ahead, unpaid = compare_at_equal_cost(cheap, dear, "joules", budget)
    assert (ahead.mean, unpaid) == (pytest.approx(0.95 - 0.8), 0)
    ahead, unpaid = compare_at_equal_cost(cheap, Method(joules=30.0).history(3), "joules", budget)
    assert (ahead.mean, unpaid) == (pytest.approx(0.95 - 1 / 3), R)
    ahead, _ = compare_at_equal_cost(cheap, dear, "joules", np.full(R, 3.0))
    assert ahead.mean == pytest.approx(0.8 - 1 / 3), "three rounds of one, not even one of the other"
    for to_target in (False, True):
        found = compare_costs(cheap, dear, "joules", to_target=to_target)
        assert describe_factor(found)["factor"] == pytest.approx(4)
    jumps = np.array(LATE.jump) * 2 / np.array(Method().jump)
    spent = describe_factor(compare_costs(cheap, late.history(3), "joules", to_target=True))
    assert spent["factor"] == pytest.approx(np.exp(np.log(jumps).mean()))
    assert spent["low"] < spent["factor"] < spent["high"]
    short = Method(high=0.85).history(3)
    never = describe_factor(compare_costs(cheap, short, "joules", to_target=True))
    assert never["factor"] == pytest.approx(np.exp(np.log(21 / np.array(Method().jump)).mean()))
    assert (never["low"] > 1, never["high"]) == (True, np.inf)
    assert describe_factor(compare_costs(short, cheap, "joules", to_target=True))["low"] == -np.inf


def test_the_solvers_claims_follow_the_study():
    found = {name: claim.verdict for name, claim in judged().items()}
    for name in ("every-start-better", "greedy-as-good", "no-heuristic-needed"):
        assert found[name] == YES
    assert found["rates-as-first-computed"] == YES
    assert verdict("every-start-better", study({solvers.EVERY: 0.6})) == NO
    assert verdict("greedy-as-good", study(gap=0.01)) == NO
    assert verdict("no-heuristic-needed", study(seconds={solvers.EXACT: 2e-3})) == NO
    assert verdict("no-heuristic-needed", study(apart=0.01)) == NO
    assert verdict("rates-as-first-computed", study({solvers.LETTER: 0.03})) == NO
    assert verdict("rates-as-first-computed", study(gap=0.03)) == NO


def test_every_claim_has_a_sentence_a_source_and_numbers():
    for claim in judged().values():
        assert claim.text
        assert claim.source
        assert claim.statistic
