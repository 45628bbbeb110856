"""Examples and the clients that own them.

Examples are stored once, in their original types (images stay `uint8`). Ownership is a permutation with cut points:
client `i`'s `j`-th example is `order[offset[i] + j]`. Memory is O(n + N) whatever the skew, and another seed's
partition is another `order` over the same examples. The examples are on the device or stay on the host (`HostArray`);
`batch` returns the same numbers in both cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.arrays import take
from fedjax_sel.data.host_array import HostArray
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Batch

if TYPE_CHECKING:
    from fedjax_sel.data.dataset import Dataset
    from fedjax_sel.devices.profile import DeviceProfile


class FederatedData(Pytree):
    """The examples of the clients and of the server.

    Attributes:
      x: all training examples, as stored.
      y: their labels, or targets of another kind.
      order: the example at each position; a client's positions are consecutive.
      owner: the client of each position.
      offset: client `i`'s training examples are at positions `offset[i] : offset[i] + num_examples[i]`.
      num_examples: training examples of each client.
      num_holdout: hold-out examples of each client, at the positions right after its training examples.
      test_x, test_y: the server's test examples.
      validation_x, validation_y: the server's validation examples; none by default.
      classes: `C`, as in `Dataset`.
      devices: the clients' devices; None: rounds take no simulated time, and no client is late.
      longest: `L`, the most examples of any client (training or hold-out).
      public_x: unlabelled examples that all clients may see; None: none.
      targets: the kind of targets (`types.TARGETS`).
    """

    x: Array | HostArray
    y: Shaped[Array, "n ..."] | HostArray
    order: Int[Array, "n"]
    owner: Int[Array, "n"]
    offset: Int[Array, "N"]
    num_examples: Int[Array, "N"]
    num_holdout: Int[Array, "N"]
    test_x: Array
    test_y: Shaped[Array, "b ..."]
    validation_x: Array
    validation_y: Shaped[Array, "b ..."]
    classes: int = static()
    longest: int = static()
    devices: DeviceProfile | None = None
    public_x: Array | None = None
    targets: str = static(default="classes")

    @property
    def num_clients(self) -> int:
        """`N`."""
        return self.num_examples.shape[-1]

    def count_labels(self) -> Int[np.ndarray, "N C"]:
        """Returns the number of training examples of each client in each class.

        Raises:
          ValueError: the targets are not classes.
        """
        if self.targets != "classes":
            raise ValueError(f"targets are {self.targets}: no classes whose examples could be counted")
        order, owner = np.asarray(self.order), np.minimum(np.asarray(self.owner), self.num_clients - 1)
        place = np.arange(len(order)) - np.asarray(self.offset)[owner]
        counts = (place >= 0) & (place < np.asarray(self.num_examples)[owner])
        cell = owner[counts] * self.classes + np.asarray(self.y)[order[counts]]
        return np.bincount(cell, minlength=self.num_clients * self.classes).reshape(self.num_clients, self.classes)

    def count_examples(self, *, holdout: bool | Bool[Array, ""] = False) -> Int[Array, "N"]:
        """Returns how many training examples each client has, or how many hold-out examples."""
        if isinstance(holdout, bool):
            return self.num_holdout if holdout else self.num_examples
        return jnp.where(holdout, self.num_holdout, self.num_examples)

    def locate_examples(
        self, clients: Int[Array, "*k"] | None = None, *, holdout: bool | Bool[Array, ""] = False
    ) -> tuple[Int[Array, "*k"], Int[Array, "*k"]]:
        """Returns the position at which the examples of each of these clients begin, and how many it has.

        Args:
          clients: numbers of clients, -1 the same as 0; None: all.
          holdout: whether hold-out examples are meant instead of training examples.
        """
        before, count, apart = self.offset, self.num_examples, self.count_examples(holdout=holdout)
        if clients is not None:
            before, count = take(before, clients), take(count, clients)
        if holdout is False:
            return before, count
        apart = apart if clients is None else take(apart, clients)
        return before + (count if holdout is True else jnp.where(holdout, count, 0)), apart

    def examples_of(
        self, client: Int[Array, ""], *, holdout: bool | Bool[Array, ""] = False
    ) -> tuple[Int[Array, "L"], Bool[Array, "L"]]:
        """Returns one client's examples as indices into `x`, and a mask of which of the `L` places are filled.

        The other places repeat its last example: masked or not, a NaN in another client's example would reach the
        gradient.

        Args:
          client: number of the client.
          holdout: whether to return its hold-out examples instead of its training examples.
        """
        start, count = self.locate_examples(client, holdout=holdout)
        place = jnp.arange(self.longest)
        return take(self.order, start + jnp.minimum(place, jnp.maximum(count, 1) - 1)), place < count

    def batch(self, index: Int[Array, "B"], mask: Bool[Array, "B"]) -> Batch:
        """Returns the examples at `index`."""
        x = take(self.x, index) if isinstance(self.x, jax.Array) else self.x[index]
        return Batch(x, self.read_targets(index), mask)

    def read_targets(self, index: Int[Array, "B"]) -> Shaped[Array, "B ..."]:
        """Returns the targets of the examples at `index`."""
        return take(self.y, index) if isinstance(self.y, jax.Array) else self.y[index]

    @property
    def stays_on_host(self) -> bool:
        """Whether no device holds the training examples."""
        return isinstance(self.x, HostArray)

    @property
    def like(self) -> Any:
        """An array with the shape and type of the training examples; zeros if these stay on the host."""
        return self.x.like if isinstance(self.x, HostArray) else self.x


class Examples(Pytree):
    """What one client trains on.

    Attributes:
      data: the federation that holds the examples.
      index: the client's examples, as indices into `data.x`.
      mask: which of them it trains on.
      weight: weight of each in the loss; None: 1.
    """

    data: FederatedData
    index: Int[Array, "L"]
    mask: Bool[Array, "L"]
    weight: Float[Array, "L"] | None = None

    @property
    def longest(self) -> int:
        """`L`."""
        return self.mask.shape[-1]

    def fetch(self) -> Examples:
        """Returns the same examples, with all of the client's copied to the device if they stay on the host."""
        if not self.data.stays_on_host:
            return self
        own = self.data.batch(self.index, self.mask)
        return replace(self, data=replace(self.data, x=own.x, y=own.y), index=jnp.arange(self.longest))

    def batch(self, place: Int[Array, "B"], mask: Bool[Array, "B"]) -> Batch:
        """Returns the examples at some of the `L` places; a place beyond the last must be false in `mask`."""
        weight = None if self.weight is None else take(self.weight, place)
        return replace(self.data.batch(take(self.index, place), mask), weight=weight)


def federate(
    dataset: Dataset,
    client: np.ndarray,
    clients: int,
    *,
    holdout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> FederatedData:
    """Returns the federation in which each training example of `dataset` belongs to the given client.

    Args:
      dataset: checked examples.
      client: Int[n], the client of each training example; -1: no client's.
      clients: `N`.
      holdout: share of each client's examples, taken from the end, that it keeps out of training (rounded down; in
        [0, 1)).
      rng: shuffles the examples of each client, which makes the hold-out a random share; None: they stay in their
        stored order.

    The arrays of `dataset` are not copied: the federations of several seeds share them, and memory maps stay memory
    maps until a device needs them.

    Raises:
      ValueError: `client` does not fit the examples, or a client is left without training examples.

    >>> from fedjax_sel.data.dataset import dataset
    >>> few = dataset("few", np.zeros((5, 2)), np.array([0, 1, 0, 1, 0]), test=0.2)
    >>> federate(few, np.array([0, 1, 1, -1]), clients=2).num_examples
    array([1, 2], dtype=int32)
    """
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout is {holdout}; it is a share of each client's examples, in [0, 1)")
    if clients < 1:
        raise ValueError(f"clients is {clients}; at least one is needed")
    client = np.asarray(client)
    if client.shape != dataset.y.shape[:1] or client.dtype.kind not in "iu":
        raise ValueError(
            f"client is {client.dtype} of shape {client.shape}; needed: one integer for each of {len(dataset.y)} "
            "examples"
        )
    if client.min() < -1 or client.max() >= clients:
        raise ValueError(
            f"client holds {client.min()} to {client.max()}; allowed are 0..{clients - 1}, and -1 for nobody's examples"
        )
    order = np.arange(len(client)) if rng is None else rng.permutation(len(client))
    order = order[np.argsort(client[order], kind="stable")]
    order = order[np.searchsorted(client[order], 0) :]
    count = np.bincount(client[order], minlength=clients)
    held = np.floor(count * holdout + 1e-9).astype(np.int64)
    size = count - held
    if (size == 0).any():
        empty = np.flatnonzero(size == 0)
        raise ValueError(
            f"{empty.size} of {clients} clients have no training examples (the first is client {empty[0]}); "
            f"lower the number of clients, or partition {len(dataset.y)} examples less unevenly"
        )
    offset = np.concatenate([[0], np.cumsum(count)[:-1]])

    def ints(a) -> Any:
        return np.asarray(a, np.int32)

    def targets(y) -> Any:
        return np.asarray(y, np.float32 if dataset.targets == "continuous" else np.int32)

    def keep(a) -> Any:  # the fields' annotations are what compiled code sees; on the host they are NumPy arrays
        return a

    return FederatedData(
        x=keep(dataset.x),
        y=targets(dataset.y),
        order=ints(order),
        owner=ints(np.repeat(np.arange(clients), count)),
        offset=ints(offset),
        num_examples=ints(size),
        num_holdout=ints(held),
        test_x=keep(dataset.test_x),
        test_y=targets(dataset.test_y),
        validation_x=keep(dataset.validation_x),
        validation_y=targets(dataset.validation_y),
        classes=dataset.classes,
        longest=int(max(size.max(), held.max())),
        targets=dataset.targets,
    )
