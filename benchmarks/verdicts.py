"""How often a small true advantage is refuted, and how often a true claim is if more seeds are run after a look.

`python -m benchmarks.verdicts` takes seconds, and prints both.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import scipy.stats

from fedjax_sel.metrics import difference
from fedjax_sel.papers.judging import judge_larger

EXPERIMENTS, DEVIATION, NEGLIGIBLE, ADVANTAGE = 3, 0.006, 0.005, 0.0025
"""Number of experiments, standard deviation over seeds, ν, and the true advantage in every experiment."""

SEEDS = (5, 10, 20, 50, 100, 400)
LOOKS = ((20, 100), (3, 10), (3, 5))
"""Numbers of seeds at a first and a second look, the first ones among the second."""

REFUTED = 0.025
"""One-sided level at which a look refutes a claim."""


def count_verdicts(seeds: int, repeats: int = 600) -> Counter[str]:
    """Returns how often each verdict is reached on the claim that the advantage is larger than none."""
    rng = np.random.default_rng(0)

    def draw() -> dict[str, np.ndarray]:
        return {str(i): rng.normal(ADVANTAGE, DEVIATION, seeds) for i in range(EXPERIMENTS)}

    none = np.zeros(seeds)
    return Counter(
        judge_larger({name: difference(values, none) for name, values in draw().items()}, NEGLIGIBLE).verdict
        for _ in range(repeats)
    )


def measure_refuted(first: int, second: int, repeats: int = 200_000) -> float:
    """Returns how often a claim whose true effect is 0 is refuted at one of two looks."""
    values = np.random.default_rng(0).normal(size=(repeats, second))

    def is_refuted(seeds: int) -> np.ndarray:
        seen = values[:, :seeds]
        t = seen.mean(1) / (seen.std(1, ddof=1) / np.sqrt(seeds))
        return t < scipy.stats.t.ppf(REFUTED, seeds - 1)

    return float((is_refuted(first) | is_refuted(second)).mean())


def main() -> None:
    """Prints both."""
    for seeds in SEEDS:
        found = count_verdicts(seeds)
        shares = (f"{count / found.total():.0%} {name}" for name, count in found.most_common())
        print(f"{seeds} seeds:", ", ".join(shares))
    for first, second in LOOKS:
        print(f"{first} seeds, then {second}: {measure_refuted(first, second):.1%} refuted")


if __name__ == "__main__":
    main()
