"""Examples that stay on the host; a device fetches those that it needs, on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, Shaped

from fedjax_sel.arrays import expand
from fedjax_sel.pytree import Pytree, static


class Stored:
    """Arrays on the host, in memory or mapped from a file; two are equal if they hold the same objects.

    A compiled program reads the arrays that it was compiled for, so they are part of its cache key.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = tuple(arrays)
        self._identity = tuple(map(id, self.arrays))

    def __eq__(self, other: object) -> bool:
        """Returns whether both hold the same objects."""
        return isinstance(other, Stored) and self._identity == other._identity

    def __hash__(self) -> int:
        """Returns the hash of the objects' identities."""
        return hash(self._identity)

    def read(self, which: Int[np.ndarray, "..."], index: Int[np.ndarray, "..."]) -> np.ndarray:
        """Returns the elements at `index` of array number `which`; the two broadcast from the left."""
        first = self.arrays[0]
        index = np.asarray(index)
        if len(self.arrays) == 1:
            return np.take(first, index, axis=0, mode="clip")
        which, index = np.broadcast_arrays(expand(np.asarray(which), index), index)
        out = np.empty((*index.shape, *first.shape[1:]), first.dtype)
        for i, array in enumerate(self.arrays):
            out[which == i] = np.take(array, index[which == i], axis=0, mode="clip")
        return out


class HostArray(Pytree):
    """An array that no device holds; indexing it in compiled code calls back to the host.

    Only `which` is a leaf, so that seeds with different arrays can be mapped over; `shape`, `dtype` and `len` are those
    of one array.

    Attributes:
      which: index of the array among the stored ones.
      stored: the arrays of all seeds, alike in shape and type.

    >>> kept = HostArray(np.array(0), Stored([np.arange(6).reshape(3, 2)]))
    >>> jax.jit(lambda index: kept[index])(np.array([2, 0]))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """

    which: Int[Array, "..."] | Int[np.ndarray, "..."]
    stored: Stored = static()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one array."""
        return self.stored.arrays[0].shape

    @property
    def ndim(self) -> int:
        """The number of axes of one array."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements on a device."""
        return jax.dtypes.canonicalize_dtype(self.stored.arrays[0].dtype)

    @property
    def like(self) -> np.ndarray:
        """Zeros of this shape and type that take no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Int[Array, "..."]) -> Shaped[Array, "..."]:
        """Returns the elements at `index` in one callback, even if clients and seeds are mapped over."""
        like = jax.ShapeDtypeStruct((*index.shape, *self.shape[1:]), self.dtype)

        def read(which: Any, index: Any) -> np.ndarray:
            return self.stored.read(which, index).astype(like.dtype, copy=False)

        return jax.pure_callback(read, like, self.which, index, vmap_method="expand_dims")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the array itself, with a leading axis `R` if there is one for each seed."""
        chosen = [self.stored.arrays[i] for i in np.ravel(self.which)]
        return np.asarray(np.stack(chosen) if np.ndim(self.which) else chosen[0], dtype)


def keep_on_host(arrays: Sequence[Any]) -> list[HostArray]:
    """Returns each array as one that stays on the host; arrays that were one object remain one object."""
    own = list({id(array): array for array in arrays}.values())
    stored = Stored(own)
    kept = {id(array): HostArray(np.asarray(i, np.int32), stored) for i, array in enumerate(own)}
    return [kept[id(array)] for array in arrays]
