"""Every client a fixed number of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_count, rows_by_class


@dataclass(frozen=True)
class LabelCount:
    """Client i owns rows of `labels` classes: class `i mod C`, and others drawn without replacement.

    The rows of a class are divided as evenly as possible among the clients that own it; which, is drawn. With `N >= C`
    every class is owned by someone. "labelX" of LEFL and "#C = X" of NIID-Bench: Li et al., "Federated Learning on
    Non-IID Data Silos: An Experimental Study", ICDE 2022, https://arxiv.org/abs/2102.02079, section 4.1.

    Attributes:
      clients: `N`, at least as many as classes.
      labels: of each client, at most `C`; 1: one class a client.
    """

    clients: int = 100
    labels: int = 2

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """The client of each row. Raises `ValueError` where a class would be nobody's, or is too small to divide."""
        check_count("clients", self.clients, len(y))
        check_count("labels", self.labels, len(y))
        classes = rows_by_class(y, rng)
        count = len(classes)
        if self.labels > count or self.clients < count:
            raise ValueError(
                f"{self.clients} clients with {self.labels} labels each, but there are {count} classes; labels is at "
                f"most {count}, and clients at least {count}, so that no class is nobody's"
            )
        owns = np.zeros((count, self.clients), bool)
        for i in range(self.clients):
            others = np.delete(np.arange(count), i % count)
            owns[i % count, i] = True
            owns[rng.permutation(others)[: self.labels - 1], i] = True
        client = np.empty(len(y), np.int64)
        for c, rows in enumerate(classes):
            owners = rng.permutation(np.flatnonzero(owns[c]))
            if len(rows) < len(owners):
                raise ValueError(
                    f"a class of {len(rows)} rows was given to {len(owners)} clients; lower clients or labels"
                )
            client[rows] = owners[np.arange(len(rows)) * len(owners) // len(rows)]
        return client
