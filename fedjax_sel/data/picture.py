"""The partition as a picture: clients by labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int


def plot_labels(counts: Int[np.ndarray, "N C"], ax: Any = None) -> Any:
    """Returns axes with the examples of each client by class, a row a client, a column a class.

    Args:
      counts: of examples.
      ax: matplotlib axes; None: new ones.

    >>> plot_labels(np.array([[3, 0], [1, 2]])).get_xlabel()
    'class'
    """
    import matplotlib.pyplot as plt  # late: it takes a second
    from matplotlib.ticker import MaxNLocator

    clients, classes = counts.shape
    if ax is None:
        width, height = np.clip([2.2 + 0.35 * classes, 1.6 + 0.16 * clients], (4.0, 3.0), (9.0, 7.0))
        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    image = ax.imshow(
        counts, aspect="auto", cmap="Blues", vmin=0, vmax=max(1, int(counts.max())), interpolation="nearest"
    )
    ax.set(xlabel="class", ylabel="client")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    ax.figure.colorbar(image, ax=ax, label="examples", pad=0.02)
    return ax
