"""What heuristic device selection is worth if rounds cost time and energy, and what its fixed cohort costs, judged."""

from __future__ import annotations

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.device_heuristic.cells import ALL, LONGER, PARTITIONS, PROPOSED, RANDOM, TENTH, name_experiment
from fedjax_sel.papers.device_heuristic.numbers import (
    CLASSES,
    COSTS,
    MARGIN,
    NOTICED,
    OURS,
    TARGET,
    compare_at_equal_cost,
    compare_costs,
    compare_with_other,
    list_experiments,
    measure,
)
from fedjax_sel.papers.differences import describe_differences, describe_factor
from fedjax_sel.papers.judging import ask_not_below, judge, judge_larger, judge_larger_than_each, make_claim
from fedjax_sel.papers.paper import Claim, Histories

WORDS = {"seconds": "simulated time", "joules": "energy"}
"""The name of each cost."""

RIVALS = {RANDOM: ("a random cohort of the same size", "random"), ALL: ("all devices", "all")}
"""Methods with which the heuristic is compared: in words, and in the ids of claims."""


def judge_cost(histories: Histories) -> list[Claim]:
    """Returns the claims on accuracy against what is spent, and on what a fixed cohort costs."""
    out = [
        *(judge_a_round(histories, cost) for cost in COSTS),
        *(judge_to_target(histories, cost) for cost in COSTS),
        *(
            judge_at_equal_cost(histories, other, cost, own=own)
            for own in (True, False)
            for other in RIVALS
            for cost in COSTS
            if own or any(LONGER in experiment for experiment, _ in histories)
        ),
    ]
    seen = {
        experiment: float(measure(histories[experiment, PROPOSED])["coverage"].mean())
        for experiment in list_experiments(histories, (0.75, 0.5, TENTH))
    }
    for name, epsilons, words in (
        ("same-devices-cost-nothing", (0.75, 0.5), "three quarters, or the same half,"),
        ("same-few-devices-cost-nothing", (TENTH,), "tenth"),
    ):
        if behind := compare_with_other(histories, RANDOM, "final_accuracy", epsilons):
            out.append(
                make_claim(
                    name,
                    f"Training the same {words} of the devices in every round costs no accuracy (the final accuracy "
                    f"is at most {MARGIN} below that of random cohorts)",
                    f"{OURS}: f does not change, so neither does S, whatever the properties are",
                    judge(ask_not_below(MARGIN), behind),
                    {
                        "proposed - random, final accuracy": describe_differences(behind),
                        "share of the devices that ever train": {name: seen[name] for name in behind},
                    },
                    rests_on=behind,
                )
            )
    return out


def judge_a_round(histories: Histories, cost: str) -> Claim:
    """Returns the verdict on the cost of a round, including the exchange of device information.

    It rests on one partition, since the same devices are selected whatever their labels.
    """
    decades = {
        experiment: compare_costs(histories[experiment, PROPOSED], histories[experiment, RANDOM], cost, to_target=False)
        for experiment in list_experiments(histories, partitions=PARTITIONS[:1])
    }
    return make_claim(
        f"less-{cost}-a-round",
        f"The algorithm is resource-efficient: its devices need less {WORDS[cost]} per round than a random cohort of "
        "the same size (compared in decades, including the exchange of device information)",
        "1.1, contribution 2: 'a resource-efficient algorithm'",
        judge_larger(decades),
        {f"random / proposed, {cost} per round": {name: describe_factor(d) for name, d in decades.items()}},
        rests_on=decades,
    )


def judge_to_target(histories: Histories, cost: str) -> Claim:
    """Returns the verdict on the cost of reaching the target accuracy, against each rival."""
    pairs = {other: pair_with(histories, other) for other in RIVALS}
    decades = {
        other: {name: compare_costs(*pair, cost, to_target=True) for name, pair in of.items()}
        for other, of in pairs.items()
    }
    return make_claim(
        f"less-{cost}-to-{TARGET}",
        f"The algorithm strikes the balance between resources and performance: it needs less {WORDS[cost]} to reach "
        f"accuracy {TARGET} than a random cohort of the same size, and less than all devices (compared in decades)",
        "1.1, contribution 3: 'the optimal balance between resource consumption and global model performance'",
        judge_larger_than_each(decades),
        {
            f"other / proposed, {cost} to accuracy {TARGET}": {
                f"{name}, {other}": describe_factor(d) for other, of in decades.items() for name, d in of.items()
            },
            "seeds that never reach this accuracy, proposed and other": {
                f"{name}, {other}": [int(np.isinf(measure(one)[f"{cost}_to_{TARGET}"]).sum()) for one in pair]
                for other, of in pairs.items()
                for name, pair in of.items()
            },
        },
        rests_on=[*list_experiments(histories, (1.0,)), *pairs[RANDOM]],
    )


def pair_with(histories: Histories, other: str, change: str = "") -> dict[str, tuple[History, History]]:
    """Returns the proposed algorithm's runs and another method's, by experiment.

    Args:
      histories: of the cells.
      other: a random cohort, or all devices.
      change: variant of the experiments from which the proposed algorithm's runs are taken.
    """
    return {
        name_experiment(partition, epsilon): (
            histories[name_experiment(partition, epsilon, change), PROPOSED],
            histories[name_experiment(partition, 1.0 if other == ALL else epsilon), other],
        )
        for partition in PARTITIONS
        for epsilon in (0.75, 0.5)
        if (name_experiment(partition, epsilon), PROPOSED) in histories
    }


def judge_at_equal_cost(histories: Histories, other: str, cost: str, *, own: bool) -> Claim:
    """Returns the verdict on the heuristic's accuracy against that of another method that has spent as much.

    Args:
      histories: of the cells.
      other: the method.
      cost: what is spent.
      own: whether the budget is what the heuristic spends in its rounds; otherwise it is what the other spends in as
        many rounds, and the heuristic trains for longer.
    """
    who, slug = RIVALS[other]
    pairs = pair_with(histories, other, "" if own else LONGER)
    ahead, unpaid = {}, {}
    for name, pair in pairs.items():
        ahead[name], unpaid[name] = compare_at_equal_cost(*pair, cost, pair[0 if own else 1].cumulative(cost)[:, -1])
    whose = "the heuristic" if own else "the other method"
    return make_claim(
        f"ahead-of-{slug}-at-{'its' if own else 'their'}-{cost}",
        f"If both spend the {cost} that {whose} spends in its rounds, the heuristic is more accurate than {who} (a "
        f"method that cannot afford a single round counts with accuracy 1/{CLASSES})",
        f"{OURS}: the purpose of selecting by resources",
        judge_larger(ahead, NOTICED),
        {
            "proposed - other, accuracy at equal cost": describe_differences(ahead),
            "seeds in which one method cannot afford a single round": unpaid,
        },
        rests_on=[
            *pairs,
            *(() if own else [name_experiment(p, e, LONGER) for p in PARTITIONS for e in (0.75, 0.5)]),
            *(list_experiments(histories, (1.0,)) if other == ALL else ()),
        ],
    )
