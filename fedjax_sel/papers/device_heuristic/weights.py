"""The effect of the heuristic's weights: a grid over α, β, γ, δ that sum to 1, with half of the devices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.config import build, resolve
from fedjax_sel.papers.device_heuristic.cells import PARTITIONS, PROPOSED, WEIGHTS, list_cells, name_experiment
from fedjax_sel.papers.settings import merge_settings

EQUAL = "0.25, 0.25, 0.25, 0.25"
"""The source's weights."""


def list_weights(steps: int) -> list[tuple[float, ...]]:
    """Returns all weights in steps of `1 / steps` that sum to 1, and the source's.

    >>> len(list_weights(1)), len(list_weights(4))
    (5, 35)
    """
    whole = [w for w in itertools.product(range(steps + 1), repeat=4) if sum(w) == steps]
    grid = [tuple(number / steps for number in w) for w in whole]
    return list(dict.fromkeys([*grid, (0.25,) * 4]))


GRIDS = {"smoke": list_weights(1)[-2:], "small": list_weights(4), "full": list_weights(4)}
"""The weights of each scale."""


def name_weights(weights: Sequence[float]) -> str:
    """Returns the name of a set of weights.

    >>> name_weights((0.25, 0.75, 0.0, 0.0))
    '0.25, 0.75, 0, 0'
    """
    return ", ".join(f"{weight:g}" for weight in weights)


def study_weights(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns final accuracy, seconds and joules per round for each seed, by weights and partition."""
    found: dict[str, dict[str, Any]] = {}
    for partition in PARTITIONS:
        (cell,) = [c for c in list_cells(scale) if c.key == (name_experiment(partition, 0.5), PROPOSED)]
        for weights in GRIDS[scale]:
            own = {"client_selection": {"solver": "exact", **dict(zip(WEIGHTS, weights, strict=True))}}
            history = build(resolve({"seeds": list(seeds), **merge_settings(cell.config, own)})).simulate()
            found.setdefault(name_weights(weights), {})[partition] = {
                "final_accuracy": history["accuracy"][:, -1],
                **{cost: history.cumulative(cost)[:, -1] / history.rounds for cost in ("seconds", "joules")},
            }
    return {"weights": WEIGHTS, "grid": found}
