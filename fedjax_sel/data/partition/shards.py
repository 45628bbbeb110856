"""Sorts examples by label, cuts them into shards, and deals each client a few shards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import check_count, group_by_class

__all__ = ["Shards"]


@dataclass(frozen=True)
class Shards:
    """Deals `clients * shards_per_client` contiguous shards of label-sorted examples at random, without replacement.

    Examples of one label are in random order. If the examples do not divide evenly, shards differ by at most one
    example and no example is left over (the papers' datasets divide evenly, so this changes nothing there). With one
    shard per client ("1SPC"), nearly every client has one class; with two ("2SPC"), both may be of the same class.

    The "pathological non-IID" setting of McMahan et al., "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017, https://arxiv.org/abs/1602.05629, section 3; 1SPC and 2SPC: Tang et al.,
    "FedCor", CVPR 2022, https://arxiv.org/abs/2103.13822.

    Attributes:
      clients: `N`.
      shards_per_client: number of shards of each client.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(Shards(3, shards_per_client=2).assign(y, rng))
    array([4, 4, 4])
    """

    clients: int = 100
    shards_per_client: int = 2

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example. Raises `ValueError` for more shards than examples."""
        examples = len(y)
        check_count("clients", self.clients, examples)
        check_count("shards_per_client", self.shards_per_client, examples)
        shards = self.clients * self.shards_per_client
        if shards > examples:
            raise ValueError(
                f"{self.clients} clients with {self.shards_per_client} shards each need {shards} shards, but there are "
                f"only {examples} examples; lower clients or shards_per_client"
            )
        shard = np.arange(examples) * shards // examples  # of each position in the sorted order
        dealt_to = rng.permutation(shards) // self.shards_per_client
        client = np.empty(examples, np.int64)
        client[np.concatenate(group_by_class(y, rng))] = dealt_to[shard]
        return client
