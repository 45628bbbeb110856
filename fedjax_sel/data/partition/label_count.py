"""Gives every client a fixed number of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_count, group_by_class

__all__ = ["LabelCount"]


@dataclass(frozen=True)
class LabelCount:
    """Client i owns examples of `labels` classes: class `i mod C`, and others drawn without replacement.

    The examples of a class are divided at random, as evenly as possible, among the clients that own it.
    With `N >= C`, every class has an owner. This is "labelX" of LEFL.

    Attributes:
      clients: `N`, at least the number of classes.
      labels: number of classes of each client, at most `C`; 1: one class per client.

    Source: Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022,
    https://arxiv.org/abs/2102.02079, section 4.1, "#C = X".

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> [len(set(y[LabelCount(4, labels=2).assign(y, rng) == i])) for i in range(4)]
    [2, 2, 2, 2]
    """

    clients: int = 100
    labels: int = 2

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` if a class has no owner, or is too small to divide.
        """
        check_count("clients", self.clients, len(y))
        check_count("labels", self.labels, len(y))
        classes = group_by_class(y, rng)
        count = len(classes)
        if self.labels > count or self.clients < count:
            raise ValueError(
                f"{self.clients} clients with {self.labels} labels each, but there are {count} classes; labels is at "
                f"most {count}, and clients at least {count}, so that every class has an owner"
            )
        owns = np.zeros((count, self.clients), bool)
        for i in range(self.clients):
            others = np.delete(np.arange(count), i % count)
            owns[i % count, i] = True
            owns[rng.permutation(others)[: self.labels - 1], i] = True
        client = np.empty(len(y), np.int64)
        for c, examples in enumerate(classes):
            owners = rng.permutation(np.flatnonzero(owns[c]))
            if len(examples) < len(owners):
                raise ValueError(
                    f"a class of {len(examples)} examples was given to {len(owners)} clients; lower clients or labels"
                )
            client[examples] = owners[np.arange(len(examples)) * len(owners) // len(examples)]
        return client
