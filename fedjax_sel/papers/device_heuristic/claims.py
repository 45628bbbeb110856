"""What the thesis on heuristic device selection says, and what one should ask of it, judged."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.device_heuristic.beyond import judge_beyond
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    IID,
    LONGER,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    TENTH,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.numbers import (
    CLASSES,
    COSTS,
    OURS,
    PUBLISHED,
    TARGET,
    compare,
    compare_at_equal_cost,
    compare_costs,
    compare_runs,
    measure,
)
from fedjax_sel.papers.device_heuristic.solver_claims import judge_solvers
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_not_below,
    ask_not_smaller,
    compare_with,
    describe_difference,
    describe_differences,
    describe_each,
    judge,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

MARGIN = 0.01
"""Accuracies closer than this are called equal."""

NOTICED = 0.001
"""A smaller advantage would be noticed by nobody."""

EVERYBODY = "at ε = 1 both methods select every device, so that they are one run"
IDENTICAL = "both methods selected the same devices in every round of every seed, so that they are one run"
MORE_IS_DEARER = "in the simulation a round lasts as long as its slowest device, and the energy is the sum over devices"
"""Why some verdicts are fixed by construction."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns accuracy, then solvers, then what the source does not ask."""
    histories, studies = evidence.histories, evidence.studies
    return join(
        lambda: judge_table_5_1(histories),
        lambda: judge_accuracy(histories),
        lambda: judge_solvers(studies["solvers"]),
        lambda: judge_cost(histories),
        lambda: judge_beyond(studies),
    )


def list_experiments(histories: Histories, epsilons: Iterable[float] = (0.75, 0.5), partitions=PARTITIONS) -> list[str]:
    """Returns the experiments with these fractions."""
    wanted = [name_experiment(partition, epsilon) for partition in partitions for epsilon in epsilons]
    return [experiment for experiment in wanted if (experiment, PROPOSED) in histories]


def compare_with_other(histories: Histories, other: str, metric: str, epsilons: Iterable[float] = (0.75, 0.5)) -> dict:
    """Returns the proposed algorithm's measure minus another method's, by experiment."""
    return {
        experiment: compare(histories[experiment, PROPOSED], histories[experiment, other], metric)
        for experiment in list_experiments(histories, epsilons)
    }


def judge_table_5_1(histories: Histories) -> list[Claim]:
    """Returns the verdicts on its four rows."""
    pairs = {
        f"{experiment}, {other}": compare_runs(histories[experiment, PROPOSED], histories[experiment, other])
        for experiment in list_experiments(histories, (1.0,))
        for other in (SET, ALL)
    }
    same = all(
        pair["rounds with the same cohort"] == 1
        and pair["mean difference of accuracy"] < NOTICED
        and pair["largest difference of loss"] < 1e-4  # of sums in another order
        for pair in pairs.values()
    )
    at_all = compare_with_other(histories, SET, "final_accuracy", (1.0,))
    at_half = compare_with_other(histories, SET, "final_accuracy", (0.5,))
    than_all = {
        experiment: compare(
            histories[experiment, PROPOSED], histories[name_experiment(partition, 1.0), ALL], "final_accuracy"
        )
        for partition in PARTITIONS
        for experiment in list_experiments(histories, (0.5,), (partition,))
    }

    return [
        make_claim(
            "one-method-at-all",
            "At ε = 1 every method selects everybody, and the table compares a method with itself: the runs are equal, "
            "but for the order of sums",
            f"{OURS}: follows from |S| = ⌈εN⌉ = N",
            REPRODUCED if same else NOT_REPRODUCED,
            pairs,
            rests_on=list_experiments(histories, (1.0,)),
            fixed=EVERYBODY,
        ),
        make_claim(
            "better-at-all",
            "At ε = 1 the proposed algorithm is more accurate than the set-based method (92.33 % against 90 %)",
            "Table 5.1; Conclusion",
            judge_larger(at_all, NOTICED),
            {"proposed - set-based, final accuracy": describe_differences(at_all)},
            rests_on=at_all,
            fixed=EVERYBODY,
        ),
        judge_attained(
            histories, "accuracy-at-all", 1.0, "With all devices the proposed algorithm attains 92.33 % accuracy (IID)"
        ),
        judge_attained(
            histories,
            "accuracy-at-half",
            0.5,
            "With half of the devices the proposed algorithm attains 90 % accuracy (IID)",
        ),
        make_claim(
            "better-at-half",
            "At ε = 0.5 the proposed algorithm is more accurate than the set-based method (90 % against 89.9 %)",
            "Table 5.1",
            judge_larger(at_half, NOTICED),
            {
                "proposed - set-based, final accuracy": describe_differences(at_half),
                "share of the seeds with the same devices": {
                    experiment: measure_agreement(histories[experiment, PROPOSED], histories[experiment, SET])
                    for experiment in at_half
                },
            },
            rests_on=at_half,
            fixed=IDENTICAL if are_identical(histories, (0.5,)) else "",
        ),
        make_claim(
            "half-better-than-all",
            "Half of the devices, selected, are more accurate than training all of them",
            f"{OURS}: the Conclusion's 'conventional model' has 89.9 %, which is Table 5.1's set-based method",
            judge_larger(than_all, NOTICED),
            {"proposed at ε = 0.5 - all devices, final accuracy": describe_differences(than_all)},
            rests_on=[*list_experiments(histories, (1.0,)), *than_all],
        ),
    ]


def judge_attained(histories: Histories, name: str, epsilon: float, text: str) -> Claim:
    """Returns the verdict on an accuracy that the thesis gives, at least."""
    published = PUBLISHED[epsilon, PROPOSED, "final_accuracy"]
    found = compare_with(measure(histories[name_experiment(IID, epsilon), PROPOSED])["final_accuracy"], published)
    statistic = {f"final accuracy - {published:g}": describe_difference(found)}
    return make_claim(
        name,
        text,
        "Table 5.1; Conclusion",
        judge(ask_not_smaller(), {name: found}),
        statistic,
        rests_on=[name_experiment(IID, epsilon)],
    )


def are_identical(histories: Histories, epsilons: Iterable[float]) -> bool:
    """Whether the proposed algorithm and the set-based method select the same devices in every seed and experiment."""
    return all(
        measure_agreement(histories[experiment, PROPOSED], histories[experiment, SET]) == 1
        for experiment in list_experiments(histories, epsilons)
    )


def measure_agreement(first: History, second: History) -> float:
    """Returns the share of the seeds in which two methods select the same devices in all rounds."""
    one, other = (np.sort(history.selections, axis=-1) for history in (first, second))
    return float((one == other).all((1, 2)).mean())


def judge_accuracy(histories: Histories) -> list[Claim]:
    """Returns what whom one selects does to accuracy."""
    than_random = compare_with_other(histories, RANDOM, "final_accuracy")
    than_exact = compare_with_other(histories, SET, "final_accuracy")
    more = {
        partition: compare(
            histories[name_experiment(partition, 1.0), ALL],
            histories[name_experiment(partition, 0.5), RANDOM],
            "final_accuracy",
        )
        for partition in PARTITIONS
    }
    dearer = {
        f"{partition}, {cost} a round": compare_costs(
            histories[name_experiment(partition, 0.5), RANDOM],
            histories[name_experiment(partition, 1.0), ALL],
            cost,
            to_target=False,
        )
        for partition in PARTITIONS
        for cost in COSTS
    }
    alone = {
        other: {
            experiment: compare(histories[experiment, SET], histories[experiment, other], "final_accuracy")
            for experiment in list_experiments(histories, (0.5,))
        }
        for other in ONLY
    }
    return [
        make_claim(
            "better-than-random",
            "Selecting at random hurts the global model ('can', in the thesis): the heuristic's devices reach a higher "
            "final accuracy",
            "1.1 Motivation",
            judge_larger(than_random, NOTICED),
            {"proposed - random, final accuracy": describe_differences(than_random)},
            rests_on=than_random,
        ),
        make_claim(
            "more-devices-more-accuracy",
            "More participating devices improve accuracy ('can', in the thesis): all against a random half",
            "1; 1.1 Motivation",
            judge_larger(more, NOTICED),
            {"all - random half, final accuracy": describe_differences(more)},
            rests_on=list_experiments(histories, (1.0, 0.5)),
        ),
        make_claim(
            "more-devices-more-cost",
            "More participating devices cost more time and energy a round: all against a random half",
            "1; 1.1 Motivation",
            REPRODUCED if all(one["low"] > 1 for one in dearer.values()) else NOT_REPRODUCED,
            {"times as much": dearer},
            rests_on=list_experiments(histories, (1.0, 0.5)),
            fixed=MORE_IS_DEARER,
        ),
        make_claim(
            "one-property-worse",
            "Devices selected by one property alone make a worse global model ('may', in the thesis) than those of all "
            "four",
            "1.1 Motivation",
            judge_larger_than_each(alone, NOTICED),
            {"four properties - one, final accuracy": describe_each(alone)},
            rests_on=list_experiments(histories, (0.5,)),
        ),
        make_claim(
            "greedy-as-accurate",
            f"The algorithm's sets train as well as the optimal ones (final accuracy within ±{MARGIN})",
            "5.2 (implied)",
            judge(ask_comparable(MARGIN), than_exact),
            {"proposed - set-based, final accuracy": describe_differences(than_exact)},
            rests_on=than_exact,
            fixed=IDENTICAL if are_identical(histories, (0.75, 0.5)) else "",
        ),
    ]


def judge_cost(histories: Histories) -> list[Claim]:
    """Returns whether the heuristic is worth anything: accuracy against what is spent; and what its constancy costs."""
    out = [
        judge_at_equal_cost(histories, other, cost, own=own)
        for own in (True, False)
        for other in (RANDOM, ALL)
        for cost in COSTS
        if own or any(LONGER in experiment for experiment, _ in histories)
    ]
    seen = {
        experiment: float(measure(histories[experiment, PROPOSED])["coverage"].mean())
        for experiment in list_experiments(histories, (0.75, 0.5, TENTH))
    }
    for name, epsilons, words in (
        ("same-devices-cost-nothing", (0.75, 0.5), "three quarters, or half,"),
        ("same-few-devices-cost-nothing", (TENTH,), "tenth"),
    ):
        if behind := compare_with_other(histories, RANDOM, "final_accuracy", epsilons):
            out.append(
                make_claim(
                    name,
                    f"Training the same {words} of the devices in every round costs no accuracy (final, at most "
                    f"{MARGIN} below a random cohort's)",
                    f"{OURS}: f does not change, so neither does S",
                    judge(ask_not_below(MARGIN), behind),
                    {
                        "proposed - random, final accuracy": describe_differences(behind),
                        "share of the devices ever seen": {name: seen[name] for name in behind},
                    },
                    rests_on=behind,
                )
            )
    return out


def judge_at_equal_cost(histories: Histories, other: str, cost: str, *, own: bool) -> Claim:
    """Returns the verdict on the heuristic's accuracy beside another method's that has spent as much.

    Args:
      histories: of the cells.
      other: the method.
      cost: what is spent.
      own: the budget is what the heuristic spends in its rounds; else what the other spends in as many, for which the
        heuristic trains on.
    """
    who, slug = {RANDOM: ("a random cohort of the same size", "random"), ALL: ("all devices", "all")}[other]
    pairs = {
        name_experiment(partition, epsilon): (
            histories[name_experiment(partition, epsilon, "" if own else LONGER), PROPOSED],
            histories[name_experiment(partition, 1.0 if other == ALL else epsilon), other],
        )
        for partition in PARTITIONS
        for epsilon in (0.75, 0.5)
        if (name_experiment(partition, epsilon), PROPOSED) in histories
    }
    ahead, unpaid = {}, {}
    for name, pair in pairs.items():
        ahead[name], unpaid[name] = compare_at_equal_cost(*pair, cost, pair[0 if own else 1].cumulative(cost)[:, -1])
    whose = "the heuristic" if own else "the other"
    return make_claim(
        f"ahead-of-{slug}-at-{'its' if own else 'their'}-{cost}",
        f"At equal {cost}, those that {whose} spends in its rounds, the heuristic is more accurate than {who} "
        f"(a method that cannot afford one round counts with accuracy 1/{CLASSES})",
        f"{OURS}: what selecting by resources is for",
        judge_larger(ahead, NOTICED),
        {
            "proposed - other, accuracy at equal cost": describe_differences(ahead),
            "seeds in which one of them cannot pay a round": unpaid,
            f"times the {cost} to accuracy {TARGET}": {
                name: compare_costs(*pair, cost, to_target=True) for name, pair in pairs.items()
            },
        },
        rests_on=[
            *pairs,
            *(() if own else [name_experiment(p, e, LONGER) for p in PARTITIONS for e in (0.75, 0.5)]),
            *(list_experiments(histories, (1.0,)) if other == ALL else ()),
        ],
    )
