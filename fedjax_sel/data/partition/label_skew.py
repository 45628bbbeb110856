"""Gives every client one main class, and a few examples of all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import NO_CLIENT, check_count, group_by_class
from fedjax_sel.pytree import is_real

__all__ = ["LabelSkew"]


@dataclass(frozen=True)
class LabelSkew:
    """A share of client i's examples is from its main class, `i mod C`; the others are drawn from all other classes.

    Every client owns `floor(n / N)` examples. A class that is too small for its share at all clients with this main
    class is divided evenly among them. A client's other examples are drawn uniformly, without replacement, from the
    examples that no client has taken yet, and from its main class only if no others are left.

    Attributes:
      clients: `N`.
      share: of the main class, in [0, 1]; 0.8 is the "σ = 0.8" of the source.

    Source: Wang et al., "Optimizing Federated Learning on Non-IID Data with Reinforcement Learning", 2020,
    https://doi.org/10.1109/INFOCOM41043.2020.9155494, section II-B.

    >>> y, rng = np.arange(20) % 2, np.random.default_rng(0)
    >>> [int((y[LabelSkew(2, share=0.8).assign(y, rng) == i] == i).sum()) for i in range(2)]
    [8, 8]
    """

    clients: int = 100
    share: float = 0.8

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` for more clients than examples, or a share outside [0, 1].
        """
        check_count("clients", self.clients, len(y))
        if not (is_real(self.share) and 0 <= self.share <= 1):
            raise ValueError(f"share is {self.share!r}; it is the main class's share of a client's examples, in [0, 1]")
        each = len(y) // self.clients
        classes = group_by_class(y, rng)
        main = np.arange(self.clients) % len(classes)
        client = np.full(len(y), NO_CLIENT, np.int64)
        for c, examples in enumerate(classes):
            members = np.flatnonzero(main == c)
            if len(members):
                take = min(round(self.share * each), len(examples) // len(members))
                client[examples[: take * len(members)]] = np.repeat(members, take)
        kind = np.empty(len(y), np.int64)
        for c, examples in enumerate(classes):
            kind[examples] = c
        for i in rng.permutation(self.clients):
            missing = each - int((client == i).sum())
            free = rng.permutation(np.flatnonzero(client == NO_CLIENT))
            free = free[np.argsort(kind[free] == main[i], kind="stable")]  # its main class last
            client[free[:missing]] = i
        return client
