"""The partitions of Flower's `niid_bench`, exactly as its seed draws them.

Source: https://github.com/adap/flower, baselines/niid_bench, file dataset_preparation.py. Its laws are those of
NIID-Bench (Li et al., "Federated Learning on Non-IID Data Silos", ICDE 2022, https://arxiv.org/abs/2102.02079), which
the library has as `partition.Iid`, `partition.Dirichlet(balance=True, min_examples=10)` and `partition.LabelCount`;
here random numbers are drawn in that benchmark's order, so that client `i` has the same number of examples of each
class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

__all__ = ["PublicDraw"]

LAWS = ("iid", "dirichlet", "labels")
FEWEST = 10
"""The fewest examples of any client; otherwise the Dirichlet shares are drawn again."""


@dataclass(frozen=True)
class PublicDraw:
    """The partition that `niid_bench` draws from its seed; the seed of a run has no effect.

    The number of examples of a class that a client has depends only on the sizes of the classes; which examples they
    are depends also on the order of the dataset, in which copies of it may differ.

    Attributes:
      law: `"iid"`: a shuffle, cut into equal parts; `"dirichlet"`: shares of each class from Dir(alpha), skipping
        clients that already have an equal part of all examples; `"labels"`: client `i` has class `i mod C` and others
        drawn at random, and each class is cut into equal parts.
      clients: `N`.
      alpha: concentration of the Dirichlet law.
      labels: number of labels of each client, for the law `"labels"`.
      seed: seed of the draw.

    >>> y = np.arange(40) % 4
    >>> draw = PublicDraw("labels", clients=4, seed=0).assign(y, np.random.default_rng(0))
    >>> [len(set(y[draw == i])) for i in range(4)]
    [2, 2, 2, 2]
    """

    law: str = "iid"
    clients: int = 10
    alpha: float = 0.5
    labels: int = 2
    seed: int = 42

    def __post_init__(self):
        """Raises `ValueError` for an unknown law."""
        if self.law not in LAWS:
            raise ValueError(f"law is {self.law!r}; it must be one of {', '.join(LAWS)}")

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example."""
        drawn = np.random.default_rng(self.seed)
        y = np.asarray(y)
        if self.law == "iid":
            return self._assign_iid(len(y), drawn)
        return self._assign_shares(y, drawn) if self.law == "dirichlet" else self._assign_labels(y, drawn)

    def _assign_iid(self, examples: int, drawn: np.random.Generator) -> Int[np.ndarray, "n"]:
        """Returns the client of each example, irrespective of its class."""
        client = np.empty(examples, np.int64)
        order = drawn.choice(examples, examples, replace=False)
        client[order] = cut_evenly(examples, self.clients)
        return client

    def _assign_shares(self, y: Int[np.ndarray, "n"], drawn: np.random.Generator) -> Int[np.ndarray, "n"]:
        """Returns the client of each example, with each class divided by Dirichlet shares."""
        full = len(y) / self.clients
        client, count = np.empty(len(y), np.int64), np.zeros(self.clients, np.int64)
        while count.min() < FEWEST:
            count[:] = 0
            for label in range(len(np.unique(y))):
                examples = np.flatnonzero(y == label)
                drawn.shuffle(examples)
                share = drawn.dirichlet(np.full(self.clients, self.alpha)) * (count < full)
                ends = (np.cumsum(share / share.sum()) * len(examples)).astype(np.int64)
                ends[-1] = len(examples)
                mine = np.diff(ends, prepend=0)
                client[examples] = np.repeat(np.arange(self.clients), mine)
                count += mine
        return client

    def _assign_labels(self, y: Int[np.ndarray, "n"], drawn: np.random.Generator) -> Int[np.ndarray, "n"]:
        """Returns the client of each example, with a fixed number of classes per client."""
        classes = len(np.unique(y))
        owns = np.zeros((classes, self.clients), bool)
        for i in range(self.clients):
            owns[i % classes, i] = True
            while owns[:, i].sum() < self.labels:
                owns[drawn.choice(classes, 1)[0], i] = True
        client = np.empty(len(y), np.int64)
        for label in range(classes):
            examples, owners = np.flatnonzero(y == label), np.flatnonzero(owns[label])
            drawn.shuffle(examples)
            client[examples] = owners[cut_evenly(len(examples), len(owners))]
        return client


def cut_evenly(length: int, parts: int) -> Int[np.ndarray, "n"]:
    """Returns the part of each position, with parts in order; the first are longer by one if they are not all equal.

    >>> cut_evenly(5, 3)
    array([0, 0, 1, 1, 2])
    """
    size, more = divmod(length, parts)
    return np.repeat(np.arange(parts), size + (np.arange(parts) < more))


def count_labels(client: Int[np.ndarray, "n"], y: Int[np.ndarray, "n"], clients: int) -> Int[np.ndarray, "N C"]:
    """Returns the number of examples of each class for each client."""
    out = np.zeros((clients, int(np.max(y)) + 1), np.int64)
    np.add.at(out, (client, y), 1)
    return out
