"""Every client draws its own mix of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fedjax_sel.data.partition._ops import NO_CLIENT, check_alpha, check_count, group_by_class

__all__ = ["ClientDirichlet"]


@dataclass(frozen=True)
class ClientDirichlet:
    """Client i draws q_i ~ Dir(alpha * prior) over the classes, then its examples from q_i, without replacement.

    Every client owns floor(n / N) examples; no client owns the remaining n mod N. `prior` is the share of each class
    among all examples. When a class runs out, the rest of q_i is rescaled to sum to 1. Clients draw in random order, so
    that it is not always the same clients that draw late and find classes exhausted.

    Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    2019, https://arxiv.org/abs/1909.06335. Not to be confused with `Dirichlet`, where each *class* is divided among the
    clients. There, the same alpha gives far less skew: with ten clients and ten classes of 1000 examples, alpha = 0.1
    there is about as skewed as alpha = 1 here (2.8 and 2.6 classes per client, as the exponential of the entropy of its
    labels; 2.4 with `balance=True` there; 1.3 for 0.1 here).

    Attributes:
      clients: `N`.
      alpha: concentration; near 0: one class per client, large: every client has the mix of the whole.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(ClientDirichlet(3, alpha=1.0).assign(y, rng))
    array([4, 4, 4])
    """

    clients: int = 100
    alpha: float = 0.5

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example. Raises `ValueError` for more clients than examples."""
        check_count("clients", self.clients, len(y))
        check_alpha(self.alpha)
        classes = group_by_class(y, rng)
        left = np.array([len(examples) for examples in classes])
        used = np.zeros_like(left)
        prior = left / left.sum()
        client = np.full(len(y), NO_CLIENT, np.int64)
        for i in rng.permutation(self.clients):
            take = self._take(len(y) // self.clients, prior, left, rng)
            for c in np.flatnonzero(take):
                client[classes[c][used[c] : used[c] + take[c]]] = i
            used += take
            left -= take
        return client

    def _take(
        self, examples: int, prior: Float[np.ndarray, "C"], left: Int[np.ndarray, "C"], rng: np.random.Generator
    ) -> Int[np.ndarray, "C"]:
        """Returns how many examples of each class a client takes, `examples` in all and never more than are `left`.

        Drawing one example at a time would reject a draw from an exhausted class and draw again. Drawing all at once
        follows the same law: draw as many as are missing, drop those beyond what is left, repeat. Every repetition but
        the last exhausts a class, so there are at most `C`.
        """
        mix = rng.dirichlet(self.alpha * prior)
        take = np.zeros_like(left)
        while (missing := examples - take.sum()) > 0:
            open_classes = np.flatnonzero(left > take)
            weight = mix[open_classes]
            if weight.sum() < 1e-9:
                # Nearly all mass of q_i was on exhausted classes. The rest of a Dirichlet vector is again Dirichlet and
                # independent of the removed part, so a fresh draw follows the same law and avoids 0 / 0 by rounding.
                weight = rng.dirichlet(self.alpha * prior[open_classes])
                mix[open_classes] = weight
            drawn = rng.multinomial(missing, weight / weight.sum())
            take[open_classes] += np.minimum(drawn, left[open_classes] - take[open_classes])
        return take
