"""Custom partitions: lists of positions, a function of the labels, a partitioner of Flower."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from fedjax_sel.data.partition._ops import NO_CLIENT
from fedjax_sel.mistakes import check_accepts


@dataclass(frozen=True, eq=False)
class Indices:
    """Client i owns the examples at `places[i]`; no client owns an example that is in none of them.

    Attributes:
      places: positions of each client's examples, as integers.

    >>> Indices([[0, 3], [1]]).assign(np.zeros(4), np.random.default_rng(0))
    array([ 0,  1, -1,  0])
    """

    places: Sequence[Sequence[int] | Int[np.ndarray, "k"]]

    @property
    def clients(self) -> int:
        """`N`."""
        return len(self.places)

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` for positions that do not exist, or that occur more than once.
        """
        out = np.full(len(y), NO_CLIENT)
        for client, given in enumerate(self.places):
            places = np.asarray(given)
            if not places.size:
                continue
            if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer):
                raise ValueError(
                    f"the places of client {client} are {places.dtype} of shape {places.shape}; "
                    "they must be a list of whole numbers"
                )
            if places.min() < 0 or places.max() >= len(y):
                wrong = places[(places < 0) | (places >= len(y))][0]
                raise ValueError(f"client {client} has place {wrong}, but places are 0 to {len(y) - 1}")
            values, times = np.unique(places, return_counts=True)
            if len(twice := values[(times > 1) | (out[values] != NO_CLIENT)]):
                raise ValueError(f"client {client} has an example twice, or one of another client's (place {twice[0]})")
            out[places] = client
        return out

    def __repr__(self) -> str:
        return f"Indices({len(self.places)} clients)"


@dataclass(frozen=True)
class Function:
    """The partition that a function of the labels returns.

    Attributes:
      function: from labels and a random generator to the client of each example, from 0; -1 for an example that no
        client owns. All random numbers must come from the generator, which is the same for the same seed.
      clients: `N`; None: as many as the function returns.

    >>> Function(lambda y, rng: y // 2).assign(np.array([0, 1, 2, 3]), np.random.default_rng(0))
    array([0, 0, 1, 1])
    """

    function: Callable[[Int[np.ndarray, "n"], np.random.Generator], Any]
    clients: int | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` if the function does not take labels and a generator."""
        check_accepts("partition Function: function", self.function, ("labels", "rng"))

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example; raises `ValueError` if the function returns something else."""
        found = self.function(np.array(y), rng)  # a copy, in which a rule may write
        try:
            client = np.asarray(found)
        except ValueError:  # lists of several lengths
            client = np.empty(len(found), object)
        if client.shape != np.shape(y)[:1] or not np.issubdtype(client.dtype, np.integer):
            raise ValueError(
                f"the partition function returned {client.dtype} of shape {client.shape}; it must return a whole "
                f"number for each of the {len(y)} examples, its client (partition.Indices takes each client's examples)"
            )
        if len(client) and (client < 0).all():
            raise ValueError("the partition function returned -1 (nobody) for all examples; clients count from 0")
        return client


@dataclass(frozen=True, eq=False)
class Flower:
    """The partition that a partitioner of `flwr-datasets` makes from the labels.

    A copy of the partitioner receives a table of the labels, the owners if there are any, and the positions of all
    examples. It draws from its own seed, so every seed of a run has the same partition.

    Attributes:
      partitioner: any partitioner that has no dataset yet.
      label: the column in which it looks for labels (its `partition_by`).
      owner: the column in which it looks for owners.

    Source: https://flower.ai/docs/datasets (needs the package `datasets`: the extra `hf`).
    """

    partitioner: Any
    label: str = "label"
    owner: str = "owner"

    @property
    def clients(self) -> None:
        """`N`: as many as the partitioner makes."""

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example; raises `ValueError` with the partitioner's error if it fails."""
        from datasets import Dataset as Table  # late: an optional dependency

        columns = {self.label: np.asarray(y), "place": np.arange(len(y))}
        if owner is not None:
            columns[self.owner] = np.asarray(owner)
        one = copy.deepcopy(self.partitioner)
        try:
            one.dataset = Table.from_dict(columns)
            places = [np.asarray(one.load_partition(i)["place"], int) for i in range(one.num_partitions)]
        except Exception as error:
            raise ValueError(f"{type(one).__name__}: {type(error).__name__}: {error}") from error
        return Indices(places).assign(y, rng)

    def __repr__(self) -> str:
        return f"Flower({type(self.partitioner).__name__})"
