"""Gives every client a random share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_count

__all__ = ["Iid"]


@dataclass(frozen=True)
class Iid:
    """Deals examples at random, one after another: sizes differ by at most one.

    The "IID" setting of McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017, https://arxiv.org/abs/1602.05629, section 3.

    Attributes:
      clients: `N`.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(Iid(4).assign(y, rng))
    array([3, 3, 3, 3])
    """

    clients: int = 100

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example. Raises `ValueError` for more clients than examples."""
        check_count("clients", self.clients, len(y))
        return rng.permutation(np.arange(len(y)) % self.clients)
