"""Counts of a client's training examples by class."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.protocols import Host, UpfrontSignal
from fedjax_sel.types import PRNGKey

__all__ = ["LabelCounts"]


class LabelCounts(UpfrontSignal):
    """Each client's training examples by class; `C` numbers, sent once, before round 0.

    Federated learning keeps labels on the clients; a method that asks for their counts gives up some of that privacy.

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
        return jnp.asarray(host.data.count_labels(), jnp.int32)
