"""Plots of partitions: clients by labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

MOST_LINES = 1000
"""The largest number of lines in a picture of clients, which has no more pixels."""


def count_together(clients: int) -> int:
    """Returns the number of clients that share a line of a picture."""
    return -(-clients // MOST_LINES)


def merge_lines(values: Shaped[np.ndarray, "N C"]) -> Shaped[np.ndarray, "k C"]:
    """Returns the mean over the clients of each line; the values themselves if a line is one client.

    >>> merge_lines(np.repeat([[1, 2], [3, 4]], 1000, axis=0)).shape
    (1000, 2)
    """
    together = count_together(len(values))
    if together == 1:
        return values
    begin = np.arange(0, len(values), together)
    return np.add.reduceat(values, begin, axis=0) / np.minimum(together, len(values) - begin)[:, None]


SKEWED = 10
"""If the largest count is more than this multiple of the median, the colour scale is logarithmic."""


def plot_sizes(sizes: Int[np.ndarray, "N"], ax: Any = None) -> Any:
    """Plots the number of examples of each client, for targets that are not classes, and returns the axes.

    >>> plot_sizes(np.array([3, 1])).get_ylabel()
    'examples'
    """
    import matplotlib.pyplot as plt

    if ax is None:
        ax = plt.subplots(figsize=(6.0, 3.0), layout="constrained")[1]
    lines = merge_lines(np.asarray(sizes)[:, None])[:, 0]
    together = count_together(len(sizes))
    ax.bar(together * np.arange(len(lines)), lines, width=0.9 * together)
    ax.set(xlabel="client", ylabel="examples")
    return ax


def plot_clients(data: Any, ax: Any = None) -> Any:
    """Plots the training examples of each client of a federation's draw, by class if targets are classes."""
    if data.targets == "classes":
        return plot_labels(data.count_labels(), ax)
    return plot_sizes(np.asarray(data.num_examples), ax)


def plot_labels(counts: Int[np.ndarray, "N C"], ax: Any = None) -> Any:
    """Plots the examples of each client (a line) in each class (a column) and returns the axes.

    More than `MOST_LINES` clients are drawn as means over neighbours. If the largest number is more than `SKEWED` times
    the median, the colours' scale is logarithmic, and white stands for none.

    Args:
      counts: numbers of examples.
      ax: matplotlib axes; None: new ones.

    >>> plot_labels(np.array([[3, 0], [1, 2]])).get_xlabel()
    'class'
    """
    import matplotlib.pyplot as plt  # imported here because it takes a second
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import MaxNLocator

    clients, classes = counts.shape
    if ax is None:
        width, height = np.clip([2.2 + 0.35 * classes, 1.6 + 0.16 * clients], (4.0, 3.0), (9.0, 7.0))
        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    lines, extent = merge_lines(counts), (-0.5, classes - 0.5, clients - 0.5, -0.5)
    high, some = max(1, int(lines.max())), lines[lines > 0]
    skewed = some.size > 0 and high > SKEWED * np.median(some)
    norm = LogNorm(some.min() / 2, high) if skewed else Normalize(0, high)  # half: one example is not white
    shown = np.ma.masked_equal(lines, 0) if skewed else lines
    image = ax.imshow(shown, aspect="auto", cmap="Blues", norm=norm, extent=extent, interpolation="nearest")
    ax.set(xlabel="class", ylabel="client")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    ax.figure.colorbar(image, ax=ax, label="examples", pad=0.02)
    return ax
