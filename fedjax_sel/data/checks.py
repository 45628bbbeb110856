"""Checks of examples and labels, each with an error that says what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from fedjax_sel.catalog import check_name, see
from fedjax_sel.pytree import is_whole
from fedjax_sel.types import TARGETS

EXAMPLES_AT_A_TIME = 4096  # a memory-mapped array is checked in pieces of this many examples
NUMBERS_AT_A_TIME = 2**22  # and of this many numbers where they are converted


@see("docs/how-to/data.md")
def check_examples(
    what: str, x: np.ndarray, y: np.ndarray, *, like: np.ndarray | None = None, targets: str = "classes"
) -> tuple[np.ndarray, np.ndarray]:
    """Returns examples and targets in the types that training takes.

    >>> x, y = check_examples("iris: training", np.zeros((2, 4)), np.array([0, 1]))
    >>> x.dtype, y.dtype
    (dtype('float32'), dtype('int32'))

    Args:
      what: name of the examples in errors ("iris: training").
      x: examples.
      y: labels, or targets of another kind.
      like: examples whose shape and type these must share.
      targets: the kind of targets.

    Raises:
      ValueError: the examples or targets cannot be used.
    """
    x, y = _as_array(what, x), to_native(refuse_masked(f"{what} labels", y))
    if x.ndim < 2:
        raise ValueError(
            f"{what} examples have shape {x.shape}; examples need at least one axis each: [n, ...], e.g. x[:, None]"
        )
    check_shape(what, y, len(x), targets)
    if len(x) != len(y):
        raise ValueError(f"{what}: {len(x)} examples but {len(y)} labels; they must be equally many")
    if like is None and len(x) == 0:
        raise ValueError(f"{what} set is empty; at least one example is needed")
    told, y = y, convert_targets(what, y, targets)
    if like is None and targets == "continuous":
        check_precision(f"{what} targets", told.reshape(len(told), -1))
    given, x = x, convert_examples(what, x)
    if like is None and given.dtype.kind == "f" and given.dtype.itemsize > 4:
        check_precision(f"{what} examples", given)
    if like is not None and x.dtype != like.dtype:  # first, as images of 8 bits without an axis of channels get one
        raise ValueError(f"{what} examples are {x.dtype}, training examples {like.dtype}; they must be alike")
    if like is not None and x.shape[1:] != like.shape[1:]:
        raise ValueError(
            f"{what} examples have shape {x.shape[1:]}, training examples {like.shape[1:]}; they must be alike"
        )
    return x, y


def check_shape(what: str, y: np.ndarray, count: int, targets: str) -> None:
    """Raises `ValueError` if targets do not have the shape of their kind for `count` examples."""
    check_name(f"targets of {what.partition(':')[0]}:", targets, TARGETS)
    if targets == "classes" and y.ndim != 1:
        hint = "; one-hot labels become integers with y.argmax(1)" if y.ndim == 2 and y.shape[1] > 1 else ""
        if hint:
            hint += ", targets='multilabel' says that an example has several"
        raise ValueError(f"{what} labels have shape {y.shape}; one label an example is needed, shape [{count}]{hint}")
    if targets == "continuous" and (y.ndim not in (1, 2) or 0 in y.shape[1:]):
        raise ValueError(f"{what} targets have shape {y.shape}; continuous ones have [{count}], or [{count}, k]")
    if targets in ("multilabel", "tokens") and (y.ndim != 2 or 0 in y.shape[1:]):
        axis = "labels" if targets == "multilabel" else "places of a sequence"
        raise ValueError(f"{what} targets have shape {y.shape}; {targets} have [{count}, {axis}]")


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
    return _int32(what + " labels", y)


def count_classes(name: str, y: np.ndarray, classes: int | None, targets: str) -> int:
    """Returns `C`, the number of model outputs for an example, or for each position of a sequence.

    Raises:
      ValueError: labels are out of range, or `classes` does not match the shape of the targets.

    >>> count_classes("toy", np.zeros((5, 3)), None, "multilabel")
    3
    """
    if targets == "tokens" and (negative := np.unique(y[y < 0])).size:
        raise ValueError(f"{name}: ids of tokens are whole numbers from 0, but there are also: {negative[:5].tolist()}")
    if targets in ("classes", "tokens"):
        return check_labels(name, y, classes)
    width = 1 if y.ndim == 1 else y.shape[1]
    if classes not in (None, width):
        raise ValueError(f"{name}: classes is {classes!r}, but {targets} targets of shape {y.shape} have {width}")
    return width


def check_labels(name: str, y: np.ndarray, classes: int | None) -> int:
    """Returns `C`; raises `ValueError` unless every label is in `0..C-1`.

    >>> check_labels("iris", np.array([0, 2, 1]), None)
    3
    """
    if classes is None:
        classes = int(y.max()) + 1
    if not is_whole(classes) or classes < 1:
        raise ValueError(f"{name}: classes is {classes!r}; at least 1 is needed, a whole number")
    outside = np.unique(y[(y < 0) | (y >= classes)])
    if outside.size:
        shown = ", ".join(map(str, outside[:5])) + (", ..." if outside.size > 5 else "")
        raise ValueError(
            f"{name}: labels must be in 0..{classes - 1} ({classes} classes), but there are also: {shown}; "
            "np.unique(y, return_inverse=True)[1] renumbers them"
        )
    return classes


def warn_of_labels(name: str, y: np.ndarray, others: np.ndarray, classes: int, *, known: bool) -> None:
    """Warns of labels from which little can be learnt, and suggests a remedy for each problem.

    Args:
      name: name of the dataset.
      y: training labels.
      others: labels of the test and validation examples.
      classes: `C`.
      known: whether `C` was given, which means that classes without examples are intended.

    Raises:
      ValueError: most classes would have no example.
    """
    seen = np.union1d(y, others)
    absent = classes - len(seen)
    renumber = "np.unique(y, return_inverse=True)[1] renumbers labels without gaps"
    if not known and absent > MOST_ABSENT * len(seen):
        raise ValueError(
            f"{name}: labels reach from 0 to {classes - 1}, but only {len(seen)} of these {classes} classes have an "
            f"example; {renumber}, and classes={classes} (in an .npz file: num_classes) says that it is meant"
        )
    if not known and absent:
        gaps = np.setdiff1d(np.arange(classes), seen)[:5]
        warnings.warn(
            f"{name}: {absent} of {classes} classes have no example ({', '.join(map(str, gaps))}"
            f"{', ...' if absent > 5 else ''}); {renumber}, and classes={classes} says that they are meant",
            stacklevel=3,
        )
    if len(unknown := np.setdiff1d(others, y)):
        shown = ", ".join(map(str, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        warnings.warn(
            f"{name}: only test or validation examples have labels {shown}, so that no client can learn them; "
            "draw the test examples from all (test=0.2), or leave those out",
            stacklevel=3,
        )


def warn_of_axes(name: str, x: np.ndarray) -> None:
    """Warns of images that look channels-first, although they are read as channels-last, or have no channel axis."""
    if x.ndim == 3 and x.shape[1] == x.shape[2] >= 8:
        warnings.warn(
            f"{name}: examples have shape {x.shape[1:]} and are read as sequences of {x.shape[1]} places with "
            f"{x.shape[2]} features; if they are images of one channel, x[..., None] gives them the axis of channels "
            "(uint8 gets it without)",
            stacklevel=3,
        )
    if x.ndim != 4:
        return
    channels, height, width = x.shape[1:]
    if channels in (1, 3, 4) and min(height, width) >= 8 and width not in (1, 3, 4):
        warnings.warn(
            f"{name}: examples have shape {x.shape[1:]}, which looks like channels first; here the last axis holds the "
            "channels: np.moveaxis(x, 1, -1) moves them there",
            stacklevel=3,
        )


def check_owners(name: str, owner: np.ndarray, count: int) -> np.ndarray:
    """Returns the owners of `count` examples as an array; raises `ValueError` if there is not one for each.

    -1 is refused, too, as it stands for nobody elsewhere.
    """
    owner = refuse_masked(f"{name}: owners", owner)
    listed = owner.ravel().tolist() if owner.dtype.kind in "fOmM" else []
    if (lost := next((i for i, one in enumerate(listed) if is_missing(one)), None)) is not None:
        what = "NaN" if isinstance(listed[lost], float) else listed[lost]
        raise ValueError(f"{name}: owner {lost} is {what}; every example needs an owner")
    if owner.shape != (count,):
        raise ValueError(
            f"{name}: {count} training examples, but owner has shape {owner.shape}; one owner an example is needed"
        )
    if owner.dtype.kind == "O":
        list_values(f"{name}: owner", owner)
    if owner.dtype.kind in "ifO" and (nobody := np.flatnonzero(owner == -1)).size:
        raise ValueError(
            f"{name}: owner {nobody[0]} is -1, which stands for nobody in a partition's rule; here every example has "
            "an owner: leave these examples out, or give the owner another number"
        )
    return owner


def warn_of_shared(name: str, public: np.ndarray, test: np.ndarray) -> None:
    """Warns of public examples that are test examples: what selects by them has seen what it is measured on."""
    given = [example.tobytes() for example in public]
    wanted = set(given)  # of the test examples, which may be many, only those that are met are kept
    met = {kept for example in test if (kept := example.tobytes()) in wanted}
    if shared := sum(one in met for one in given):
        warnings.warn(
            f"{name}: {shared} of {len(public)} public examples are test examples, too; take them from training "
            "examples (of a source that draws its test examples, with the same seed and share), or from other data",
            stacklevel=4,
        )


def is_missing(value: object) -> bool:
    """Returns whether a value stands for none: None, NaN, or what pandas has for them.

    >>> is_missing(float("nan")), is_missing("nan")
    (True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


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


def warn_of_owners(
    name: str,
    owner: np.ndarray,
    left: np.ndarray,
    how: str = "in the test or validation share",
    advice: str = "give the test examples apart, as test=(x, y), or a smaller share",
) -> None:
    """Warns of owners who are not clients because all their examples were set apart or left out.

    Args:
      name: name of the dataset.
      owner: owner of each example.
      left: which of the examples are training examples.
      how: where the others are.
      advice: how to keep the owners.
    """
    if len(lost := np.setdiff1d(owner, owner[left])):
        shown = ", ".join(repr(one) for one in lost[:5].tolist()) + (", ..." if len(lost) > 5 else "")
        warnings.warn(
            f"{name}: {len(lost)} of {len(np.unique(owner))} owners ({shown}) have all their examples {how}, so that "
            f"they are not clients, and those after them are numbered without them; {advice}",
            stacklevel=3,
        )


MOST_ABSENT = 9
"""Largest ratio of classes without examples to classes with some, unless `classes` is given."""


def _as_array(what: str, x: np.ndarray) -> np.ndarray:
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
    x = _as_array("new", order_columns(x, features))
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
"""The largest number of examples above which `uint8` means pixels, and not counts."""


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
        bad = np.concatenate([~_finite(x[i : i + EXAMPLES_AT_A_TIME]) for i in starts])
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
    return _int32(what + " examples", x) if x.dtype.itemsize >= 4 else x


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


def _finite(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(x).all(axis=tuple(range(1, x.ndim))))


def _int32(what: str, x: np.ndarray) -> np.ndarray:
    """Returns integers in JAX's default 32 bits."""
    limit = np.iinfo(np.int32)
    if x.size and (x.min() < limit.min or x.max() > limit.max):
        raise ValueError(f"{what} hold integers beyond 32 bits (from {x.min()} to {x.max()}); renumber or rescale them")
    return x.astype(np.int32, copy=False)


def check_wholes(name: str, **counts: Any) -> None:
    """Raises `ValueError` if one of these numbers is not a whole number."""
    for what, value in counts.items():
        if not is_whole(value):
            raise ValueError(f"{name}: {what} is {value!r}; it must be a whole number")
