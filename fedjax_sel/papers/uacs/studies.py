"""How the verdicts on UACS-FL hang on the generator's numbers, which are ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedjax_sel.config import build, resolve
from fedjax_sel.config.build import build_problem
from fedjax_sel.data.uacs import SHAPE, Shape, draw_clients
from fedjax_sel.papers.uacs.cells import BOUNDARY, ENTROPY, GRADIENT, METHODS, RANDOM, SETTINGS, list_cells
from fedjax_sel.papers.uacs.numbers import TARGET, measure

COMPARED = (ENTROPY, GRADIENT, RANDOM)
KEPT = ("mean_accuracy", "final_accuracy", f"rounds_to_{TARGET}", "boundary_clients_after_first_fifth")

SHAPES: dict[str, Shape] = {
    "amplitude 0": replace(SHAPE, amplitude=0.0),
    "amplitude 0.25": replace(SHAPE, amplitude=0.25),
}
"""Shapes besides the default one; strip, margin and box can be added here."""

VARIED = {"smoke": ("amplitude 0.25",), "small": (), "full": tuple(SHAPES)}
"""What is varied at each scale."""


def study_generator(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns measures a seed of entropy, gradient norm and chance, by shape, experiment and method."""
    return {
        name: {
            title: {method: measure_shape(SHAPES[name], setting, method, scale, seeds) for method in COMPARED}
            for setting, title in SETTINGS.items()
        }
        for name in VARIED[scale]
    }


def measure_shape(shape: Shape, setting: int, method: str, scale: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Returns the measures of one method on federations of another shape, Float[R] by name."""
    (cell,) = [cell for cell in list_cells(scale) if cell.key == (SETTINGS[setting], method)]
    assert METHODS[method] == cell.config["client_selection"]
    config = resolve({"seeds": list(seeds), **cell.config})
    draw = partial(draw_clients, shape, setting, boundary=BOUNDARY)
    run = build(config, problem=build_problem(config, source=lambda seed: draw(seed=seed)))
    found = measure(cell.experiment, run.simulate())
    return {name: found[name] for name in KEPT}
