"""What the generator's numbers come to: how near the others' examples are to the boundary, how good a line can be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from fedjax_sel.data.uacs import Shape, curve, draw_clients
from fedjax_sel.papers.uacs.cells import BOUNDARY


def measure_least_distance(shape: Shape, setting: int, seeds: Sequence[int]) -> float:
    """Returns the least Euclidean distance from the curve of an example of a client away from the boundary.

    Margin and strip are vertical distances, so that they are narrower than they look where the curve is steep.

    Args:
      shape: of the generator.
      setting: 1, 2 or 3.
      seeds: all of which are looked at.
    """
    x1 = np.linspace(-1, 1, 4001)
    boundary = scipy.spatial.KDTree(np.stack([x1, curve(x1, shape)], axis=1))
    drawn = [draw_clients(shape, setting, seed, BOUNDARY) for seed in seeds]
    others = [data.x[np.asarray(data.owner) >= BOUNDARY] for data in drawn]
    return min(float(boundary.query(x)[0].min()) for x in others)


def measure_best_line(shape: Shape) -> float:
    """Returns the share of the square that the best straight line classifies as the curve does.

    Searched over slopes and heights at x₁ = 0. The line and the curve disagree on what lies between them.
    """
    x1 = (np.arange(1000) + 0.5) / 500 - 1
    height = curve(x1, shape)
    slopes, heights = np.linspace(-10, 10, 801), np.linspace(-0.5, 0.5, 21)
    lines = np.clip(slopes[:, None, None] * x1 + heights[:, None], -1, 1)
    return 1 - float(np.abs(lines - height).mean(-1).min()) / 2
