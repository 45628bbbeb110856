"""Conversion of examples and targets to the types that training takes, and what that would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

EXAMPLES_AT_A_TIME = 4096
"""Examples in each of the pieces in which a memory-mapped array is checked."""

NUMBERS_AT_A_TIME = 2**22
"""Most numbers that are converted to check what they lose."""


def convert_targets(what: str, y: np.ndarray, targets: str) -> np.ndarray:
    """Returns targets in the type of their kind; raises `ValueError` if they cannot be converted.

    >>> convert_targets("toy", np.array([1, 2]), "continuous").dtype
    dtype('float32')
    """
    if targets == "continuous":
        if y.dtype.kind not in "iubf" or not np.isfinite(y).all():
            raise ValueError(f"{what} targets are {y.dtype}; continuous ones are finite numbers, without NaN")
        with np.errstate(over="ignore"):
            kept = y.astype(np.float32, copy=False)
        if not np.isfinite(kept).all():
            raise ValueError(f"{what} targets reach {np.abs(y).max():g}, beyond 32-bit floats; choose another unit")
        return kept
    if targets == "multilabel" and y.size and not np.isin(y, (0, 1)).all():
        raise ValueError(f"{what} targets are multilabel, but hold {y.min()} to {y.max()}; each must be 0 or 1")
    if y.dtype.kind == "f" and np.isnan(y).any():
        first = int(np.argmax(np.isnan(y).reshape(len(y), -1).any(1)))
        raise ValueError(
            f"{what} labels hold {np.isnan(y).sum()} NaN, the first in example {first}; leave such examples out"
        )
    if targets == "tokens" and y.dtype.kind not in "iub":
        raise ValueError(f"{what} tokens are {y.dtype}; ids of tokens are whole numbers")
    if targets != "multilabel" and y.dtype.kind not in "iub":
        floats = "; targets='continuous' says that they are numbers to be learnt" if y.dtype.kind == "f" else ""
        raise ValueError(
            f"{what} labels are {y.dtype}, not integers; "
            "names or numbers of any kind become 0..C-1 with np.unique(y, return_inverse=True)[1], of all examples "
            f"of all clients together{floats}"
        )
    return to_int32(what + " labels", y)


def number_labels(
    name: str, labels: Any, values: Shaped[np.ndarray, "C"], where: str = "test or validation"
) -> Int[np.ndarray, "n"]:
    """Returns the number of each label among the sorted values of the training examples.

    Raises:
      ValueError: one is not among them.

    >>> number_labels("toy", ["dog", "cat"], np.array(["cat", "dog", "fox"]))
    array([1, 0])
    """
    labels = np.asarray(labels)
    if unknown := set(labels.tolist()) - set(values.tolist()):
        raise ValueError(f"{name}: the label {min(unknown)!r} is in the {where} examples only")
    return np.searchsorted(values, labels)


def list_values(what: str, column: np.ndarray) -> np.ndarray:
    """Returns the different values of a column, sorted; raises `ValueError` if they cannot be."""
    try:
        return np.unique(column)
    except TypeError as error:
        kinds = ", ".join(sorted({type(one).__name__ for one in column}))
        raise ValueError(f"{what} holds values of several types ({kinds}); astype(str) makes them one") from error


def to_array(what: str, x: np.ndarray) -> np.ndarray:
    """Returns examples as one array of numbers; raises `ValueError` if they cannot be."""
    try:
        x = np.asanyarray(x)  # keeps subclasses, so that a memory map stays one
    except ValueError as error:
        raise ValueError(f"{what} examples cannot be one array ({error}); all examples need the same shape") from error
    if x.dtype.kind not in "iubf":
        raise ValueError(f"{what} examples are {x.dtype}; they must be numbers (uint8, integers, floats)")
    return to_native(np.ma.getdata(refuse_masked(f"{what} examples", x)))


def refuse_masked(what: str, given: Any) -> np.ndarray:
    """Returns an array; raises `ValueError` if parts of it are masked, which training would see."""
    if np.ma.is_masked(given):
        raise ValueError(f"{what} are masked in {np.ma.count_masked(given)} places; give a number for each")
    return np.asanyarray(given) if isinstance(given, np.memmap) else np.asarray(given)


def to_native(array: np.ndarray) -> np.ndarray:
    """Returns an array in the byte order of this machine, in which alone JAX takes it."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def convert_new(x: Any, stored: np.ndarray, features: Sequence[str] | None = None) -> np.ndarray:
    """Returns new examples, to predict, in the type and with the axes in which those of a dataset are stored.

    Args:
      x: examples, one after the other along the first axis; a table's columns are found by their names.
      stored: the dataset's examples.
      features: the names of their columns, if they were a table.

    Raises:
      ValueError: they have another shape or range, lack a column, are not numbers, or hold NaN or infinity.
    """
    shape = stored.shape[1:]
    x = to_array("new", order_columns(x, features))
    if not x.ndim or not len(x):
        raise ValueError("there are no examples; x must have at least one, along its first axis")
    x = convert_examples("new", x)
    if x.shape[1:] != shape:
        alone = "; give a single one as x[None]" if x.shape == shape else ""
        raise ValueError(f"new examples have the shape {x.shape[1:]}, and those of the run {shape}{alone}")
    types, high, usual = (x.dtype, stored.dtype), float(x.max()), float(stored[:EXAMPLES_AT_A_TIME].max())
    mixed = np.uint8 in types and any(one.kind in "bf" for one in types)  # images from 0 to 255, and from 0 to 1
    if mixed and x.any() and min(high, usual) <= 1 and max(high, usual) > BYTES_FROM:
        raise ValueError(
            f"new examples are {x.dtype} up to {high:g}, and those of the run {stored.dtype} up to {usual:g}; give "
            "them in the same unit"
        )
    return x


BYTES_FROM = 16
"""If the largest value among the examples is above this, `uint8` is taken to mean pixels, not counts."""


def order_columns(x: Any, features: Sequence[str] | None) -> Any:
    """Returns new examples without names of columns; a table's columns in the order of these features.

    Raises:
      ValueError: a table lacks a column, or its columns cannot be told apart as the features have no names.
    """
    if (columns := getattr(x, "columns", None)) is None:
        return x
    if features is None:
        raise ValueError(
            "new examples are a table, but those of the run have no names of columns; give an array "
            "(x[columns].to_numpy()), with the columns in the order of the run's examples"
        )
    if missing := [name for name in features if name not in columns]:
        known = ", ".join(map(str, features))
        raise ValueError(f"new examples lack the column {missing[0]!r}; those of the run have {known}")
    return np.stack([np.asarray(x[name], np.float64) for name in features], axis=1)


def convert_examples(what: str, x: np.ndarray) -> np.ndarray:
    """Returns examples in the type and with the axes in which they are stored.

    Raises:
      ValueError: some values are NaN, infinite, or beyond float32, or integers beyond 32 bits.
    """
    if x.dtype.kind == "f":
        given = x
        if x.dtype.itemsize > 4:
            with np.errstate(over="ignore"):  # values that overflow float32 become inf, which is rejected below
                x = x.astype(np.float32)
        starts = range(0, max(1, len(x)), EXAMPLES_AT_A_TIME)
        bad = np.concatenate([~are_finite(x[i : i + EXAMPLES_AT_A_TIME]) for i in starts])
        if bad.any():
            if np.isfinite(given[bad]).all():
                raise ValueError(
                    f"{what}: {bad.sum()} of {len(x)} examples hold numbers beyond those of float32 (up to "
                    f"{np.abs(given[bad]).max():.3g}; the first is number {bad.argmax()}); rescale them first"
                )
            raise ValueError(
                f"{what}: {bad.sum()} of {len(x)} examples hold NaN or infinity (the first is number "
                f"{bad.argmax()}); "
                "drop or fill them first"
            )
        return x
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[..., None]  # adds the channel axis of grey images
    return to_int32(what + " examples", x) if x.dtype.itemsize >= 4 else x


def check_precision(what: str, given: np.ndarray, names: Sequence[Any] | None = None) -> None:
    """Raises `ValueError` if a column loses what it varies in as 32-bit floats, as times in milliseconds do.

    Args:
      what: name of the numbers in errors.
      given: the numbers before they are converted, one example a row; integers must not be converted to floats either,
        since a column of floats may vary by rounding.
      names: of the columns; None: their numbers.
    """
    if not given.size:
        return
    width = given.shape[-1]
    step = max(1, -(-len(given) // EXAMPLES_AT_A_TIME), given.size // NUMBERS_AT_A_TIME)
    before = np.asarray(given[::step], np.float64).reshape(-1, width)
    lost, spread = np.abs(before - before.astype(np.float32)).max(0), (before - before[0]).std(0)
    rounded = ROUNDING * np.abs(before).max(0) if given.dtype.kind == "f" else 0.0
    spread = np.where(spread > np.maximum(rounded, np.finfo(np.float32).tiny), spread, 0)
    if (bad := np.flatnonzero((spread > 0) & (lost > LOST * spread))).size:
        column = bad[0] if names is None else repr(names[bad[0]])
        raise ValueError(
            f"{what}: column {column} (from {before[:, bad[0]].min():g} to {before[:, bad[0]].max():g}) loses digits "
            "in which it varies as 32-bit floats; subtract its mean, or choose another unit"
        )


ROUNDING = 1e-9
"""The standard deviation, as a fraction of the largest value, up to which a column is constant but for rounding."""


LOST = 0.01
"""The rounding, as a fraction of a column's standard deviation, from which it is an error."""


def are_finite(x: np.ndarray) -> np.ndarray:
    """Returns which examples have only finite numbers."""
    return np.asarray(np.isfinite(x).all(axis=tuple(range(1, x.ndim))))


def to_int32(what: str, x: np.ndarray) -> np.ndarray:
    """Returns integers in JAX's default 32 bits."""
    limit = np.iinfo(np.int32)
    if x.size and (x.min() < limit.min or x.max() > limit.max):
        raise ValueError(f"{what} hold integers beyond 32 bits (from {x.min()} to {x.max()}); renumber or rescale them")
    return x.astype(np.int32, copy=False)
