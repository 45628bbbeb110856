"""The mark of a run: a digest that identifies the checkpoints that belong to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel.code import describe_lastingly
from fedjax_sel.engine.distributed import fetch
from fedjax_sel.pytree import escape

WHOLE = 2**28
"""Bytes of an array of examples up to which all of them are part of a mark."""

BLOCK = 2**20
"""Bytes of each block of a larger array that is part of a mark."""


def mark_of(*parts: Any) -> str:
    """Returns a digest of pytrees that define a run: their structure, static fields included, and all their numbers."""
    paths, tree = jax.tree_util.tree_flatten_with_path(parts)
    text = sort_sets(re.sub(r" at 0x[0-9a-f]+", "", str(tree)))  # a function's address does not matter
    text += describe_lastingly(parts)
    return digest(
        {"tree": np.frombuffer(text.encode(), np.uint8)} | {name_of(path): fetch(leaf) for path, leaf in paths}
    )


def sort_sets(text: str) -> str:
    """Returns the text with its sets in alphabetical order; each process writes a set of strings in another one.

    >>> sort_sets("frozenset({'b', 'a'})")
    "frozenset('a', 'b')"
    """
    while (sorted_text := SET.sub(lambda found: f"set({', '.join(sorted(found[1].split(', ')))})", text)) != text:
        text = sorted_text
    return text


SET = re.compile(r"set\(\{([^{}]*)\}\)")


def digest_examples(arrays: Sequence[Any]) -> np.ndarray:
    """Returns UInt8[R, 32], the SHA-256 of the examples of each run; no array is read twice.

    Args:
      arrays: one of each run, on the host or a device, or mapped from a file; or None. Of an array beyond `WHOLE`
        bytes, as many count, in blocks spread evenly over it, the first and the last example among them.
    """
    found = {}
    for array in arrays:
        if id(array) not in found:
            rows = np.asarray(() if array is None else array)
            blocks = {str(start): rows[start:end] for start, end in choose_blocks(len(rows), rows.nbytes)}
            found[id(array)] = bytes.fromhex(digest({"shape": np.asarray(rows.shape), **blocks}))
    return np.stack([np.frombuffer(found[id(array)], np.uint8) for array in arrays])


def choose_blocks(count: int, nbytes: int) -> list[tuple[int, int]]:
    """Returns first and last row, the latter exclusive, of the blocks of `count` rows that are read.

    >>> choose_blocks(5, 20), choose_blocks(10, 20 * WHOLE)
    ([(0, 5)], [(0, 1), (9, 10)])
    """
    if nbytes <= WHOLE:
        return [(0, count)]
    number = min(count, max(2, WHOLE // max(BLOCK, nbytes // count)))
    rows = max(1, BLOCK * count // nbytes)
    starts = np.linspace(0, count - rows, number).astype(int).tolist()
    return [(start, start + rows) for start in starts]


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the SHA-256 of named arrays, in hexadecimal."""
    out = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        out.update(f"{name} {array.dtype} {array.shape} ".encode())
        out.update(np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


def name_of(path: tuple) -> str:
    """Returns the dotted name of a path, as in `variables.params.Dense_0.kernel`; dots in its steps are escaped."""
    return ".".join(escape(jax.tree_util.keystr((step,), simple=True), ".") for step in path)
