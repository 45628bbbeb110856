"""How often verdicts are wrong: of small advantages, of claims that fail in one experiment, and after a second look.

`python -m benchmarks.verdicts` takes seconds, and prints all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import scipy.stats

from fedjax_sel.metrics import difference
from fedjax_sel.papers.judging import judge_larger

SMALL, DEVIATION, NEGLIGIBLE = (0.0025, 0.0025, 0.0025), 0.006, 0.005
"""True advantages in three experiments, their standard deviation over seeds, and ν."""

FAILING, FAILING_DEVIATION, FAILING_SEEDS = (0.03, 0.03, -0.0005), 0.0073, 20
"""The same for a claim that fails in one of three experiments, and the number of seeds."""

SEEDS = (5, 10, 20, 50, 100, 400)
LOOKS = ((20, 100), (3, 10), (3, 5))
"""Numbers of seeds at a first and a second look, the first ones among the second."""

REFUTED = 0.025
"""One-sided level at which a look refutes a claim."""


def count_verdicts(
    advantages: Sequence[float], deviation: float, seeds: int, negligible: float, repeats: int = 600
) -> Counter[str]:
    """Returns how often each verdict is reached on the claim that the advantage is larger than none.

    Args:
      advantages: the true one in each experiment.
      deviation: their standard deviation over seeds.
      seeds: the number of seeds.
      negligible: ν of the claim.
      repeats: how often the experiments are drawn.
    """
    rng, none = np.random.default_rng(0), np.zeros(seeds)

    def draw() -> dict[str, np.ndarray]:
        return {str(i): rng.normal(advantage, deviation, seeds) for i, advantage in enumerate(advantages)}

    return Counter(
        judge_larger({name: difference(values, none) for name, values in draw().items()}, negligible).verdict
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


def describe(found: Counter[str]) -> str:
    """Returns the share of each verdict."""
    return ", ".join(f"{count / found.total():.0%} {name}" for name, count in found.most_common())


def main() -> None:
    """Prints all three."""
    for seeds in SEEDS:
        print(f"{seeds} seeds:", describe(count_verdicts(SMALL, DEVIATION, seeds, NEGLIGIBLE)))
    for negligible in (0.0, NEGLIGIBLE):
        found = count_verdicts(FAILING, FAILING_DEVIATION, FAILING_SEEDS, negligible, repeats=2000)
        print(f"fails in one of three experiments, ν = {negligible:g}:", describe(found))
    for first, second in LOOKS:
        print(f"{first} seeds, then {second}: {measure_refuted(first, second):.1%} refuted")


if __name__ == "__main__":
    main()
