"""Counts of a client's training examples by class."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from fedjax_sel.protocols import Host, UpfrontSignal
from fedjax_sel.types import PRNGKey

__all__ = ["LabelCounts"]


class LabelCounts(UpfrontSignal):
    """Each client's training examples by class; `C` numbers, sent once, before round 0.

    Labels are what federated learning keeps on the clients; a method that asks for their counts gives up some of that.

    >>> LabelCounts().name
    'label_counts'
    """

    name: ClassVar[str] = "label_counts"
    needs_classes: ClassVar[bool] = True

    def count_up(self, classes: int) -> float:
        """Returns `C`."""
        return float(classes)

    def measure(self, key: PRNGKey, host: Host) -> Int[Array, "N C"]:
        """Returns the counts."""
        data = host.data
        first, size, classes = np.asarray(data.offset), np.asarray(data.num_examples), data.classes
        labels = np.asarray(data.y)[np.asarray(data.order)]
        own = [labels[start : start + count] for start, count in zip(first, size, strict=True)]
        return jnp.asarray(np.stack([np.bincount(y, minlength=classes) for y in own]), jnp.int32)
