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
from fedjax_sel.papers.uacs.geometry import measure_least_distance
from fedjax_sel.papers.uacs.numbers import TARGET, measure

SHAPED = (ENTROPY, GRADIENT, RANDOM)
KEPT = ("mean_accuracy", "final_accuracy", f"rounds_to_{TARGET}", "boundary_clients_after_first_fifth")

CHANGED: dict[str, tuple[float, ...]] = {
    "amplitude": (0.0, 0.125, 0.25, 0.375, 0.75),
    "strip": (0.075, 0.3),
    "margin": (0.1, 0.4),
    "box": (0.05, 0.2),
}
"""Each of the generator's numbers, and what it is changed to; the others keep their defaults."""

SHAPES: dict[str, Shape] = {
    f"{name} {value:g}": replace(SHAPE, **{name: value}) for name, values in CHANGED.items() for value in values
}
"""The default shape with one of its numbers changed."""

VARIED = {"smoke": ("amplitude 0.25",), "small": (), "full": tuple(SHAPES)}
"""What is varied at each scale."""


def study_generator(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns measures a seed of entropy, gradient norm and chance, by shape, experiment and method.

    Boxes are of setting 3 alone, so that the others are left out where they change.
    """
    return {
        name: {
            title: {method: measure_shape(SHAPES[name], setting, method, scale, seeds) for method in SHAPED}
            for setting, title in SETTINGS.items()
            if setting == 3 or replace(SHAPES[name], box=SHAPE.box) != SHAPE
        }
        for name in VARIED[scale]
    }


def study_distances(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns how near the others' examples come to the boundary, by shape and experiment."""
    shapes = {"default": SHAPE, **{name: SHAPES[name] for name in VARIED[scale]}}
    return {
        name: {title: measure_least_distance(shape, setting, seeds) for setting, title in SETTINGS.items()}
        for name, shape in shapes.items()
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
