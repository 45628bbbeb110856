"""Examples that stay on the host: a device gets those that it asks for, when it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, Shaped

from fedjax_sel.pytree import Pytree, static


class Stored:
    """Arrays on the host, in memory or mapped from a file; equal to another where it holds the same objects.

    A compiled program reads the arrays that it was compiled for, so it is looked up by them.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = tuple(arrays)
        self._identity = tuple(map(id, self.arrays))

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same objects."""
        return isinstance(other, Stored) and self._identity == other._identity

    def __hash__(self) -> int:
        """As of the objects."""
        return hash(self._identity)

    def read(self, which: Int[np.ndarray, "..."], index: Int[np.ndarray, "..."]) -> np.ndarray:
        """Returns what stands at `index`, of the array that `which` names; both broadcast from the left."""
        first = self.arrays[0]
        index = np.asarray(index)
        if len(self.arrays) == 1:
            return np.take(first, index, axis=0, mode="clip")
        which = np.asarray(which)
        which = which.reshape(*which.shape, *(1,) * (index.ndim - which.ndim))
        which, index = np.broadcast_arrays(which, index)
        out = np.empty((*index.shape, *first.shape[1:]), first.dtype)
        for i, array in enumerate(self.arrays):
            out[which == i] = np.take(array, index[which == i], axis=0, mode="clip")
        return out


class HostArray(Pytree):
    """An array that no device holds; indexed in compiled code, it is a callback that reads on the host.

    Only `which` is a leaf, so that seeds with arrays of their own can be mapped over; `shape`, `dtype` and `len` are
    those of one array.

    Attributes:
      which: number of the array among those that are stored.
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
        """Of one array."""
        return self.stored.arrays[0].shape

    @property
    def ndim(self) -> int:
        """Of one array."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Of its elements, as a device has them."""
        return jax.dtypes.canonicalize_dtype(self.stored.arrays[0].dtype)

    @property
    def like(self) -> np.ndarray:
        """Zeros of this shape and type that take no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Int[Array, "..."]) -> Shaped[Array, "..."]:
        """Returns what stands at `index`, in one visit to the host, also where clients and seeds are mapped over."""
        like = jax.ShapeDtypeStruct((*index.shape, *self.shape[1:]), self.dtype)

        def read(which: Any, index: Any) -> np.ndarray:
            return self.stored.read(which, index).astype(like.dtype, copy=False)

        return jax.pure_callback(read, like, self.which, index, vmap_method="expand_dims")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the array itself, or with a leading `R` where there is one for each seed."""
        chosen = [self.stored.arrays[i] for i in np.ravel(self.which)]
        return np.asarray(np.stack(chosen) if np.ndim(self.which) else chosen[0], dtype)


def keep_on_host(arrays: Sequence[Any]) -> list[HostArray]:
    """Returns each array as one that stays on the host; what is the same object before is the same object after."""
    own = list({id(array): array for array in arrays}.values())
    stored = Stored(own)
    kept = {id(array): HostArray(np.asarray(i, np.int32), stored) for i, array in enumerate(own)}
    return [kept[id(array)] for array in arrays]
