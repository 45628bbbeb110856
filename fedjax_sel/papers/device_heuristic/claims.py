"""Claims of the thesis on heuristic device selection about accuracy and loss, judged."""

from __future__ import annotations

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference, difference
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED
from fedjax_sel.papers.device_heuristic.beyond import judge_beyond
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    IID,
    LINEAR,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    TENTH,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.cost_claims import judge_cost
from fedjax_sel.papers.device_heuristic.numbers import (
    COSTS,
    MARGIN,
    NOTICED,
    OURS,
    PUBLISHED,
    compare,
    compare_costs,
    compare_runs,
    compare_with_other,
    list_experiments,
)
from fedjax_sel.papers.device_heuristic.solver_claims import judge_solvers
from fedjax_sel.papers.differences import compare_with, describe_differences, describe_each, describe_factor, negate
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_not_smaller,
    judge,
    judge_each,
    judge_larger,
    judge_larger_than_each,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join

STOPS = (0.2, 0.5, 1.0)
"""Fractions of our rounds after which we compare with the thesis, which does not give its number of rounds."""

EVERYBODY = "at ε = 1 both methods select every device, so their runs are the same"
MORE_IS_DEARER = (
    "in the simulation, a round lasts as long as its slowest device, and the energy is the sum over devices"
)
EXCHANGEABLE = (
    "the properties are drawn independently of data and model, and only time and energy depend on them; two sets of "
    "equally many devices, each trained in every round, therefore learn equally well, and the true difference is 0, "
    "however the devices are selected"
)
"""Why some verdicts are fixed by construction."""


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns the claims on accuracy, then solvers, then costs, then questions that the source leaves open."""
    histories, studies = evidence.histories, evidence.studies
    return join(
        lambda: judge_table_5_1(histories),
        lambda: judge_accuracy(histories),
        lambda: judge_other_model(histories),
        lambda: judge_solvers(studies["solvers"]),
        lambda: judge_cost(histories),
        lambda: judge_beyond(studies),
    )


def judge_table_5_1(histories: Histories) -> list[Claim]:
    """Returns the verdicts on Table 5.1."""
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
    than_all = compare_with_all(histories, 0.5)
    return [
        make_claim(
            "one-method-at-all",
            "At ε = 1 every method selects every device, so the table compares a method with itself: the runs are "
            "equal, except for the order of sums",
            f"{OURS}: it follows from |S| = ⌈εN⌉ = N",
            REPRODUCED if same else NOT_REPRODUCED,
            pairs,
            rests_on=list_experiments(histories, (1.0,)),
            fixed=EVERYBODY,
        ),
        *judge_rows(histories, 1.0, EVERYBODY),
        *judge_rows(histories, 0.5, EXCHANGEABLE),
        *(
            judge_attained(histories, epsilon, metric, method)
            for method in (PROPOSED, SET)
            for epsilon in (1.0, 0.5)
            for metric in ("accuracy", "loss")
        ),
        make_claim(
            "half-better-than-all",
            "Selecting half of the devices is more accurate than training all of them ('outperforms the conventional "
            "model')",
            "Conclusion, in which 'conventional' methods train all devices (the 89.9 % that it gives belong to Table "
            "5.1's set-based method at ε = 0.5)",
            judge_larger(than_all, NOTICED),
            {"proposed at ε = 0.5 - all devices, final accuracy": describe_differences(than_all)},
            rests_on=[*list_experiments(histories, (1.0,)), *than_all],
        ),
    ]


def judge_rows(histories: Histories, epsilon: float, fixed: str) -> list[Claim]:
    """Returns the verdicts on the two methods' differences in the table, which no run can show.

    Args:
      histories: of the cells.
      epsilon: 1 or 0.5.
      fixed: why no run can show them.
    """
    out = []
    for metric in ("accuracy", "loss"):
        over = compare_with_other(histories, SET, f"final_{metric}", (epsilon,))
        mine, theirs = (PUBLISHED[epsilon, method, f"final_{metric}"] for method in (PROPOSED, SET))
        claimed = over if mine > theirs else {name: negate(d) for name, d in over.items()}
        out.append(
            make_claim(
                f"{metric}-apart-at-{name_fraction(epsilon)}",
                f"At ε = {epsilon:g}, the proposed algorithm has a {'higher' if mine > theirs else 'lower'} {metric} "
                f"than the set-based method ({mine:g} against {theirs:g})",
                "Table 5.1"
                + ("; Conclusion, which calls it 'the conventional method'" if metric == "accuracy" else ""),
                judge_larger(claimed, NOTICED),
                {
                    f"proposed - set-based, final {metric}": describe_differences(over),
                    "share of the seeds with the same devices": measure_agreements(histories, over),
                },
                rests_on=over,
                fixed=fixed,
            )
        )
    return out


def name_fraction(epsilon: float) -> str:
    """Returns the name of a fraction in the id of a claim."""
    return {1.0: "all", 0.5: "half"}[epsilon]


def judge_attained(histories: Histories, epsilon: float, metric: str, method: str) -> Claim:
    """Returns the verdict on attaining the thesis's accuracy at least, or its loss at most, also after fewer rounds."""
    experiment = name_experiment(IID, epsilon)
    published, history = PUBLISHED[epsilon, method, f"final_{metric}"], histories[experiment, method]
    curve = np.round(history[metric].astype(np.float64), 6)
    rounds = {f"round {t}": t for t in (max(1, round(share * history.rounds)) for share in STOPS)}
    after = {name: compare_with(curve[:, t - 1], published) for name, t in rounds.items()}
    if metric == "loss":
        after = {name: negate(d) for name, d in after.items()}
    found = {name: judge(ask_not_smaller(), {name: d}) for name, d in after.items()}
    last = list(found)[-1]
    who = "all devices" if epsilon == 1 else "half of the devices"
    slug, words = {PROPOSED: ("", "the proposed algorithm"), SET: ("set-based-", "the set-based method")}[method]
    what, source = f"a loss of at most {published:g}", "Table 5.1"
    if metric == "accuracy":
        what = f"an accuracy of at least {100 * published:.4g} %"
        source += "; Conclusion" + (", as 'the conventional method'" if method == SET else "")
    return make_claim(
        f"{slug}{metric}-at-{name_fraction(epsilon)}",
        f"With {who}, {words} attains {what} (IID; after our {history.rounds} rounds, as the thesis does not give its "
        "number of rounds)",
        source,
        found[last],
        {
            f"{metric} - {published:g}" if metric == "accuracy" else f"{published:g} - {metric}": describe_differences(
                after
            ),
            "verdict if training ended after that round": {name: one.verdict for name, one in found.items()},
        },
        rests_on=[experiment],
    )


def measure_agreements(histories: Histories, experiments: dict[str, Difference]) -> dict[str, float]:
    """Returns the share of the seeds in which the algorithm and the set-based method select the same devices."""
    return {name: measure_agreement(histories[name, PROPOSED], histories[name, SET]) for name in experiments}


def measure_agreement(first: History, second: History) -> float:
    """Returns the share of the seeds in which two methods select the same devices in all rounds."""
    one, other = (np.sort(history.selections, axis=-1) for history in (first, second))
    return float((one == other).all((1, 2)).mean())


def compare_with_all(histories: Histories, epsilon: float) -> dict[str, Difference]:
    """Returns the proposed algorithm's final accuracy minus that of all devices, by experiment."""
    return {
        experiment: compare(
            histories[experiment, PROPOSED], histories[name_experiment(partition, 1.0), ALL], "final_accuracy"
        )
        for partition in PARTITIONS
        for experiment in list_experiments(histories, (epsilon,), (partition,))
    }


def judge_accuracy(histories: Histories) -> list[Claim]:
    """Returns the claims on how the choice and the number of devices affect accuracy."""
    than_exact = compare_with_other(histories, SET, "final_accuracy")
    more = {
        f"ε = {epsilon:g}": {name: negate(d) for name, d in compare_with_all(histories, epsilon).items()}
        for epsilon in (0.75, 0.5)
    }
    alone = {
        other: {
            experiment: compare(histories[experiment, SET], histories[experiment, other], "final_accuracy")
            for experiment in list_experiments(histories, (0.5,))
        }
        for other in ONLY
    }
    than_random = compare_with_other(histories, RANDOM, "final_accuracy")
    return [
        make_claim(
            "better-than-random",
            "The three quarters, or the half, that the algorithm selects train a more accurate model than as many "
            "random devices, drawn anew in each round",
            f"{OURS}; the thesis has no random baseline",
            judge_larger(than_random, NOTICED),
            {"proposed - random, final accuracy": describe_differences(than_random)},
            rests_on=than_random,
        ),
        make_claim(
            "more-devices-more-accuracy",
            "More participating devices improve accuracy (the thesis says 'can'): training all devices is more "
            "accurate than training the three quarters, or the half, that the algorithm selects",
            "1; 1.1 Motivation: 'increasing the fraction of participating devices', which is the thesis's ε",
            judge_larger_than_each(more, NOTICED),
            {"all - proposed, final accuracy": describe_each(more)},
            rests_on=[*list_experiments(histories, (1.0,)), *(name for by in more.values() for name in by)],
        ),
        *judge_random_part(histories),
        make_claim(
            "one-property-worse",
            "Devices that are selected by one property alone train a worse global model than devices that are "
            "selected by all four (the thesis says 'may')",
            "1.1 Motivation",
            judge_larger_than_each(alone, NOTICED),
            {"four properties - one, final accuracy": describe_each(alone)},
            rests_on=list_experiments(histories, (0.5,)),
            fixed=EXCHANGEABLE,
        ),
        make_claim(
            "greedy-as-accurate",
            f"The sets that the algorithm selects train as well as the optimal sets (final accuracy within ±{MARGIN})",
            "5.2 (implied)",
            judge(ask_comparable(MARGIN), than_exact),
            {
                "proposed - set-based, final accuracy": describe_differences(than_exact),
                "share of the seeds with the same devices": measure_agreements(histories, than_exact),
            },
            rests_on=than_exact,
            fixed=EXCHANGEABLE,
        ),
    ]


def pair_with_random(histories: Histories, epsilon: float) -> dict[str, tuple[History, History]]:
    """Returns the runs of all devices, and of a random part of them, by partition."""
    experiments = {partition: name_experiment(partition, epsilon) for partition in PARTITIONS}
    return {
        partition: (histories[name_experiment(partition, 1.0), ALL], histories[experiment, RANDOM])
        for partition, experiment in experiments.items()
        if (experiment, RANDOM) in histories
    }


def compare_all_with_random(histories: Histories, epsilon: float) -> dict[str, Difference]:
    """Returns the final accuracy of all devices minus that of a random part of them, by partition."""
    ends = pair_with_random(histories, epsilon)
    return {partition: compare(everybody, part, "final_accuracy") for partition, (everybody, part) in ends.items()}


def judge_random_part(histories: Histories) -> list[Claim]:
    """Returns the claims on how training a random part of the devices affects accuracy and costs."""
    ends = pair_with_random(histories, 0.5)
    dearer = {
        f"{partition}, {cost} per round": compare_costs(half, everybody, cost, to_target=False)
        for partition, (everybody, half) in ends.items()
        for cost in COSTS
    }
    return [
        *(
            make_claim(
                f"random-{slug}-hurt",
                "Randomly limiting participation hurts the global model (the thesis says 'can'): training all devices "
                f"is more accurate than training a random {part}",
                "1.1 Motivation",
                judge_larger(more, NOTICED),
                {f"all - random {part}, final accuracy": describe_differences(more)},
                rests_on=list_experiments(histories, (1.0, epsilon)),
            )
            for epsilon, slug, part in ((0.5, "limits", "half"), (TENTH, "tenths", "tenth"))
            if (more := compare_all_with_random(histories, epsilon))
        ),
        make_claim(
            "more-devices-more-cost",
            "More participating devices cost more time and energy per round: training all devices costs more than "
            "training a random half",
            "1; 1.1 Motivation",
            REPRODUCED if all(one.low > 0 for one in dearer.values()) else NOT_REPRODUCED,
            {"all devices / random half": {name: describe_factor(one) for name, one in dearer.items()}},
            rests_on=list_experiments(histories, (1.0, 0.5)),
            fixed=MORE_IS_DEARER,
        ),
    ]


def judge_other_model(histories: Histories) -> list[Claim]:
    """Returns the claim that methods are as far apart with logistic regression as with the source's network."""
    partitions = [p for p in PARTITIONS if (name_experiment(p, 0.5, LINEAR), PROPOSED) in histories]
    if not partitions:  # at `smoke`
        return []

    def find(partition: str, method: str, change: str) -> History:
        return histories[name_experiment(partition, 1.0 if method == ALL else 0.5, change), method]

    apart, shown, higher = {RANDOM: {}, ALL: {}}, {}, {}
    for partition in partitions:
        for other, found in apart.items():
            network, linear = (
                compare(find(partition, PROPOSED, change), find(partition, other, change), "final_accuracy")
                for change in ("", LINEAR)
            )
            found[partition] = difference(np.array(linear.values), np.array(network.values))
            shown |= {f"{partition}, {other}, MLP": network, f"{partition}, {other}, {LINEAR}": linear}
        for method in (ALL, RANDOM, PROPOSED):
            higher[f"{partition}, {method}"] = compare(
                find(partition, method, LINEAR), find(partition, method, ""), "final_accuracy"
            )
    return [
        make_claim(
            "another-model-alike",
            f"With another model ({LINEAR}), relative performance is the same: the final accuracy of the algorithm's "
            "half of the devices is as far from that of a random half, and from that of all devices, as with the MLP "
            f"(within ±{MARGIN})",
            "5.1: 'alternative machine learning models ..., their relative performance remains consistent'",
            judge_each(ask_comparable(MARGIN), apart),
            {
                f"proposed - other, final accuracy, with {LINEAR} minus with the MLP": describe_each(apart),
                "proposed - other, final accuracy": describe_differences(shown),
                f"{LINEAR} - MLP, final accuracy": describe_differences(higher),
            },
            rests_on=[name_experiment(p, e, change) for p in partitions for e in (1.0, 0.5) for change in ("", LINEAR)],
        )
    ]
