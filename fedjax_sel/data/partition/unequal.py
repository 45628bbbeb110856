"""Gives clients similar labels but different numbers of examples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.arrays import divide_in_proportion
from fedjax_sel.data.partition._ops import check_count
from fedjax_sel.pytree import is_real

__all__ = ["Unequal"]


@dataclass(frozen=True)
class Unequal:
    """Deals examples at random: `min_examples` to each client, the rest by `exp(spread z)`, z standard normal.

    Every client has the label mix of the whole, up to chance; only sizes differ. This is the "quantity skew" of
    NIID-Bench with a lognormal law instead of a Dirichlet law, so that the skew does not depend on `N`.

    Attributes:
      clients: `N`.
      spread: standard deviation of the logarithm of the sizes, apart from `min_examples`; at 1, the last decile of
        those parts is 13 times the first.
      min_examples: what every client has before the rest is divided in proportion.

    Source: quantity skew, Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", 2022,
    https://arxiv.org/abs/2102.02079, section 4.3.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(Unequal(3, spread=0.0).assign(y, rng))
    array([4, 4, 4])
    """

    clients: int = 100
    spread: float = 1.0
    min_examples: int = 1

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` for too many clients for the examples, or a negative spread.
        """
        check_count("clients", self.clients, len(y))
        check_count("min_examples", self.min_examples, len(y))
        if not (is_real(self.spread) and math.isfinite(self.spread) and self.spread >= 0):
            raise ValueError(f"spread is {self.spread!r}; it is a standard deviation, 0 or above")
        if self.clients * self.min_examples > len(y):
            raise ValueError(
                f"{self.clients} clients with {self.min_examples} examples each need more than the {len(y)} examples "
                "there are; lower clients or min_examples"
            )
        exponent = self.spread * rng.standard_normal(self.clients)
        if not np.isfinite(exponent).all():
            raise ValueError(f"spread is {self.spread!r}; clients' sizes are beyond floating point: lower it")
        weight = np.exp(exponent - max(0.0, exponent.max() - 600))  # avoids overflow, also of sums and products
        count = divide_in_proportion(weight, len(y), least=self.min_examples)
        client = np.empty(len(y), np.int64)
        client[rng.permutation(len(y))] = np.repeat(np.arange(self.clients), count)
        return client
