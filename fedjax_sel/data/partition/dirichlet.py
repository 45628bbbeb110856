"""Divides every class among the clients by a Dirichlet draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_alpha, check_count, group_by_class

__all__ = ["Dirichlet"]

DRAWS = 100
"""Number of draws before giving up on `min_examples`."""


@dataclass(frozen=True)
class Dirichlet:
    """For each class, p ~ Dir(alpha * 1_N): client i owns the share p_i of the examples of that class.

    Both sizes and label mixes vary. Flower's `DirichletPartitioner` follows the same law, by default with
    `min_examples=10`. Not to be confused with `ClientDirichlet`, where each *client* draws its mix of classes.

    The cuts between clients are rounded down, as in the authors' code: of each class, the first client has half an
    example less than its share on average, and the last half an example more.

    With `balance`, a client that already has `n / N` examples gets none of the later classes, as in the authors' code,
    in FedLab's `hetero_dir` and in NIID-Bench (Li et al., "Federated Learning on Non-IID Data Silos", ICDE 2022,
    https://arxiv.org/abs/2102.02079; with `min_examples=10`, it is the "label-dir" of LEFL). The text has no such rule.

    Attributes:
      clients: `N`.
      alpha: concentration; small: few clients share a class, large: nearly equal shares.
      min_examples: shares are redrawn until every client has this many examples, at most 100 times.
      balance: whether to skip full clients.

    Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019,
    https://arxiv.org/abs/1905.12022, "heterogeneous".

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(Dirichlet(3, alpha=1.0).assign(y, rng)).sum()
    np.int64(12)
    """

    clients: int = 100
    alpha: float = 0.5
    min_examples: int = 1
    balance: bool = False

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` if 100 draws all leave a client below `min_examples`.
        """
        check_count("clients", self.clients, len(y))
        check_count("min_examples", self.min_examples, len(y))
        check_alpha(self.alpha)
        if self.clients * self.min_examples > len(y):
            raise ValueError(
                f"{self.clients} clients with min_examples {self.min_examples} need "
                f"{self.clients * self.min_examples} examples, but there are only {len(y)}; lower clients or "
                "min_examples"
            )
        classes = group_by_class(y, rng)
        sizes = [len(examples) for examples in classes]
        best = 0
        for _ in range(DRAWS):
            count = self._counts(sizes, rng)
            smallest = count.sum(0).min()
            if smallest >= self.min_examples:
                break
            best = max(best, smallest)
        else:
            advice = "raise alpha, or lower clients or min_examples" + ("" if self.balance else ", or set balance=True")
            raise ValueError(
                f"{DRAWS} draws of Dir(alpha={self.alpha}) over {self.clients} clients and {len(y)} examples of "
                f"{len(classes)} classes never gave every client min_examples={self.min_examples} examples (the "
                f"smallest client had at most {best}); {advice}"
            )
        client = np.empty(len(y), np.int64)
        for examples, of_class in zip(classes, count, strict=True):
            client[examples] = np.repeat(np.arange(self.clients), of_class)
        return client

    def _counts(self, sizes: list[int], rng: np.random.Generator) -> Int[np.ndarray, "C N"]:
        """Returns the number of examples of each class at each client."""
        count = np.zeros((len(sizes), self.clients), np.int64)
        full = sum(sizes) / self.clients
        for c, size in enumerate(sizes):
            # A Dirichlet vector without some of its entries, rescaled, is a Dirichlet vector over the others: drawing
            # only those follows the same law, and never divides by a sum that underflowed to 0.
            open_to = np.flatnonzero(count.sum(0) < full) if self.balance else np.arange(self.clients)
            share = rng.dirichlet(np.full(len(open_to), self.alpha))
            cut = np.floor(np.cumsum(share)[:-1] * size).astype(np.int64)
            count[c, open_to] = np.diff(cut, prepend=0, append=size)
        return count
