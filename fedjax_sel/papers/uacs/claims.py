"""What UACS-FL says of its methods, judged."""

from __future__ import annotations

import numpy as np

from fedjax_sel.metrics import difference
from fedjax_sel.papers.judging import (
    ask_comparable,
    ask_not_smaller,
    compare_with,
    describe_differences,
    judge,
    judge_larger,
    make_claim,
)
from fedjax_sel.papers.paper import Claim, Evidence, Histories, join
from fedjax_sel.papers.uacs.cells import (
    ENTROPY,
    GRADIENT,
    GREEDY,
    LINEAR,
    LONG,
    RANDOM,
    ROBIN,
    SETTINGS,
    name_experiment,
)
from fedjax_sel.papers.uacs.numbers import (
    COMPARABLE,
    NOTICED,
    TARGET,
    compare,
    compare_at_equal_cost,
    measure,
    measure_long_run,
)


def judge_claims(scale: str, evidence: Evidence) -> list[Claim]:
    """Returns accuracy against chance and gradient norm, who is selected, accuracy at equal cost."""
    histories = evidence.histories
    return join(
        lambda: [judge_random(histories)],
        lambda: judge_gradient_norm(histories),
        lambda: [judge_exploration(histories)],
        lambda: [judge_boundary(histories)],
        lambda: [judge_at_equal_cost(histories, unit) for unit in ("bytes", "FLOPs")],
        lambda: judge_long_runs(histories),
        lambda: judge_linear(histories),
    )


def judge_random(histories: Histories) -> Claim:
    """Returns the verdict on random selection."""
    area = compare(histories, ENTROPY, RANDOM, "mean_accuracy")
    greedy = compare(histories, GREEDY, RANDOM, "mean_accuracy")
    control = compare(histories, ENTROPY, ROBIN, "mean_accuracy")
    sooner = compare(histories, RANDOM, ENTROPY, f"rounds_to_{TARGET}")
    return make_claim(
        "random-underperforms",
        "Random selection underperforms entropy selection in all three experiments (mean accuracy over the rounds)",
        "Remarks, first item",
        judge_larger(area, NOTICED),
        {
            "entropy - random, mean accuracy": describe_differences(area),
            "entropy+eps-greedy - random, mean accuracy": describe_differences(greedy),
            "entropy - round-robin, mean accuracy": describe_differences(control),
            f"random - entropy, rounds to {TARGET} (at least)": describe_differences(sooner),
        },
        rests_on=SETTINGS.values(),
    )


def judge_gradient_norm(histories: Histories) -> list[Claim]:
    """Returns the verdicts on gradient norm: its accuracy, and its rounds to the target."""
    norm = compare(histories, GRADIENT, ENTROPY, "mean_accuracy")
    faster = compare(histories, GRADIENT, ENTROPY, f"rounds_to_{TARGET}")
    ahead = compare(histories, ENTROPY, GRADIENT, "mean_accuracy")
    return [
        make_claim(
            "gradient-norm-comparable",
            f"Gradient norm-based selection is comparable to entropy (mean accuracy within ±{COMPARABLE})",
            "Remarks, second item",
            judge(ask_comparable(COMPARABLE), norm),
            {"gradient norm - entropy, mean accuracy": describe_differences(norm)},
            rests_on=SETTINGS.values(),
        ),
        make_claim(
            "entropy-faster-than-gradient-norm",
            f"Entropy converges faster than gradient norm (rounds to accuracy {TARGET})",
            "Remarks, second item",
            judge_larger(faster, 1.0),
            {
                f"gradient norm - entropy, rounds to {TARGET}": describe_differences(faster),
                "entropy - gradient norm, mean accuracy": describe_differences(ahead),
            },
            rests_on=SETTINGS.values(),
        ),
    ]


def judge_exploration(histories: Histories) -> Claim:
    """Returns the verdict on exploring beside entropy."""
    more = compare(histories, GREEDY, ENTROPY, "mean_accuracy")
    return make_claim(
        "exploring-pays",
        "Exploring (ε = 0.1) is better than pure exploitation (mean accuracy over the rounds)",
        "Algorithm, exploration step (implied)",
        judge_larger(more, NOTICED),
        {"entropy+eps-greedy - entropy, mean accuracy": describe_differences(more)},
        rests_on=SETTINGS.values(),
    )


def judge_boundary(histories: Histories) -> Claim:
    """Returns the verdict on whom entropy selects."""
    near = {
        title: measure(title, histories[title, ENTROPY])["boundary_clients_after_first_fifth"]
        for title in SETTINGS.values()
    }
    enough = {title: compare_with(value, 5.0) for title, value in near.items()}
    return make_claim(
        "top-m-are-boundary",
        "The clients of highest entropy are the boundary clients (at least 5 of 6 after a fifth of the rounds)",
        "Experimental Objectives and Experiment 1 (implied)",
        judge(ask_not_smaller(), enough),
        {title: {"mean": float(np.mean(v)), "least seed": float(np.min(v))} for title, v in near.items()},
        rests_on=SETTINGS.values(),
    )


def judge_at_equal_cost(histories: Histories, unit: str) -> Claim:
    """Returns the verdict on entropy selection where it may spend only what random selection does."""
    paid = compare_at_equal_cost(histories, unit.lower())
    return make_claim(
        f"ahead-at-equal-{unit.lower()}",
        f"Entropy selection is ahead of random selection also at equal {unit}, selection counted "
        "(accuracy when it has spent what random spends in the whole run)",
        "ours: implied by comparing per round",
        judge_larger(paid, NOTICED),
        {f"entropy - random at equal {unit}": describe_differences(paid)},
        rests_on=SETTINGS.values(),
    )


def judge_long_runs(histories: Histories) -> list[Claim]:
    """Returns the verdict where random selection may spend what entropy selection does; none where that was not run."""
    if (name_experiment(1, LONG), RANDOM) not in histories:
        return []
    over, saved = {}, {}
    for setting, title in SETTINGS.items():
        long, entropy = name_experiment(setting, LONG), measure(title, histories[title, ENTROPY])
        over[title] = difference(entropy["final_accuracy"], measure_long_run(histories, setting))
        needed = measure(long, histories[long, RANDOM])[f"bytes_to_{TARGET}"], entropy[f"bytes_to_{TARGET}"]
        saved[title] = {one: float(np.median(x) / 1e6) for one, x in zip(("random", "entropy"), needed, strict=True)}
    return [
        make_claim(
            "ahead-at-entropys-bytes",
            "Entropy selection is ahead of random selection also where random selection goes on until it has sent as "
            "many bytes as entropy selection in the whole run (final accuracy)",
            "ours: implied by comparing per round",
            judge_larger(over, NOTICED),
            {
                "entropy - random at entropy's bytes": describe_differences(over),
                f"median MB to {TARGET}": saved,
            },
            rests_on=[*SETTINGS.values(), *(name_experiment(setting, LONG) for setting in SETTINGS)],
        )
    ]


def judge_linear(histories: Histories) -> list[Claim]:
    """Returns the verdict on random selection where the model is linear; none where that was not run."""
    experiments = [name_experiment(setting, LINEAR) for setting in SETTINGS]
    if (experiments[0], ENTROPY) not in histories:
        return []
    over = {other: compare(histories, ENTROPY, other, "mean_accuracy", LINEAR) for other in (RANDOM, GRADIENT)}
    return [
        make_claim(
            "random-underperforms-linear",
            "Random selection underperforms entropy selection in all three experiments also with logistic regression, "
            "which cannot follow a curved boundary (mean accuracy over the rounds)",
            "ours: the source names no model",
            judge_larger(over[RANDOM], NOTICED),
            {f"entropy - {other.lower()}, mean accuracy": describe_differences(d) for other, d in over.items()},
            rests_on=experiments,
        )
    ]
