"""Groups of clients, each group with its own labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_count, group_by_class

__all__ = ["LabelGroups"]


@dataclass(frozen=True)
class LabelGroups:
    """Consecutive classes, `labels` at a time, each divided at random among a group of consecutive clients.

    The clients are divided into groups as evenly as possible, larger groups first: 24 clients and 10 classes in pairs
    make groups of 5, 5, 5, 5, 4. Within a group, examples are dealt at random, and the clients' numbers of examples
    differ by at most one. A clustering of clients should find these groups.

    The "quantity-based label skew (manual)" of LEFL: Abebe, Munoz and Jannesari, "LEFL: Low Entropy Client Sampling in
    Federated Learning", 2023, https://arxiv.org/abs/2312.17430, section V.

    Attributes:
      clients: `N`, at least the number of groups.
      labels: number of classes per group; the last group may have fewer.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> LabelGroups(4, labels=2).groups(3)
    array([0, 0, 1, 1])
    """

    clients: int = 24
    labels: int = 2

    def groups(self, classes: int) -> Int[np.ndarray, "N"]:
        """Returns the group of each client, for this number of classes."""
        groups = -(-classes // self.labels)
        return np.repeat(np.arange(groups), [len(part) for part in np.array_split(np.arange(self.clients), groups)])

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example. Raises `ValueError` for fewer clients than groups."""
        check_count("clients", self.clients, len(y))
        check_count("labels", self.labels, len(y))
        classes = group_by_class(y, rng)
        group_of = self.groups(len(classes))
        if self.clients < (groups := -(-len(classes) // self.labels)):
            raise ValueError(
                f"{len(classes)} classes, {self.labels} a group, make {groups} groups, but there are only "
                f"{self.clients} clients; raise clients or labels"
            )
        client = np.empty(len(y), np.int64)
        for group in range(groups):
            examples = rng.permutation(np.concatenate(classes[group * self.labels : (group + 1) * self.labels]))
            members = np.flatnonzero(group_of == group)
            if len(examples) < len(members):
                raise ValueError(f"a group of {len(members)} clients has only {len(examples)} examples; lower clients")
            client[examples] = members[np.arange(len(examples)) % len(members)]
        return client
