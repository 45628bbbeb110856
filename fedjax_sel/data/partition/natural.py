"""Makes every natural owner (writer, speaker, phone) a client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import NO_CLIENT, check_count

__all__ = ["Natural"]


@dataclass(frozen=True)
class Natural:
    """Client i is the i-th owner in the sorted order of owners.

    As in LEAF (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097).

    Attributes:
      clients: `N`; None: all owners; fewer than there are owners: that many, drawn at random, and no client owns the
        other owners' examples.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> Natural().assign(y, rng, owner=np.repeat([7, 9], 6))
    array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    """

    clients: int | None = None

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` for examples without owners, or fewer owners than clients.
        """
        if owner is None:
            raise ValueError(
                "these examples have no natural owner; pass dataset(..., owner=...), save an array 'owner' in the .npz "
                "file, or use another partition (Iid, Shards, Dirichlet, ClientDirichlet)"
            )
        owners, client = np.unique(owner, return_inverse=True)
        if self.clients is None:
            return client
        check_count("clients", self.clients, len(y))
        if self.clients > len(owners):
            raise ValueError(
                f"clients is {self.clients}, but the examples have only {len(owners)} owners; None takes them all"
            )
        chosen = np.sort(rng.permutation(len(owners))[: self.clients])
        number = np.full(len(owners), NO_CLIENT)
        number[chosen] = np.arange(self.clients)
        return number[client]
