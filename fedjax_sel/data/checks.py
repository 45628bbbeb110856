"""Checks of examples and labels, each with an error that says what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_sel.catalog import check_name, see
from fedjax_sel.data.convert import (
    BYTES_FROM,
    check_precision,
    convert_examples,
    convert_targets,
    list_values,
    refuse_masked,
    to_array,
    to_native,
)
from fedjax_sel.pytree import is_whole
from fedjax_sel.types import TARGETS


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
    x, y = to_array(what, x), to_native(refuse_masked(f"{what} labels", y))
    if x.ndim < 2:
        raise ValueError(
            f"{what} examples have shape {x.shape}; examples need at least one axis each: [n, ...], e.g. x[:, None]"
        )
    if 0 in x.shape[1:]:
        raise ValueError(f"{what} examples have shape {x.shape}; an example needs at least one number")
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


def check_ids(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the token ids that the inputs of sequences hold, in the shape of `y`; none if the inputs are not tokens.

    Inputs are taken for tokens if they are whole numbers and each target is the next input.

    Raises:
      ValueError: there are ids, and some are negative.
    """
    if x.shape != y.shape or x.dtype.kind not in "iu" or not np.array_equal(x[:, 1:], y[:, :-1]):
        return y[:0]
    if (negative := np.unique(x[x < 0])).size:
        raise ValueError(f"{name}: ids of tokens are whole numbers from 0, but there are also: {negative[:5].tolist()}")
    return x


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

    An owner of -1 is refused, too, because elsewhere -1 means that an example has no owner.
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


MOST_SEEN, FEWEST, COMPARED = 0.5, 50, 1000
"""A warning is given if at least the share `MOST_SEEN` of the test examples are training examples, too. At most
`COMPARED` of them are compared; none, if there are fewer than `FEWEST`, as in a page's example or in a test."""


def warn_of_seen(name: str, kind: str, training: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> None:
    """Warns of test or validation examples of which most are training examples, with the same labels."""
    if isinstance(training[0], np.memmap) or len(given[0]) < FEWEST:  # reading it all would take long
        return
    wanted = [x.tobytes() + y.tobytes() for x, y in zip(given[0][:COMPARED], given[1], strict=False)]
    some = set(wanted)
    met = {one for x, y in zip(*training, strict=True) if (one := x.tobytes() + y.tobytes()) in some}
    if (seen := sum(one in met for one in wanted)) >= MOST_SEEN * len(wanted):
        of = f"{seen} of {len(wanted)}" + (" that were compared" if len(wanted) < len(given[0]) else "")
        warnings.warn(
            f"{name}: {of} {kind} examples are training examples, too, so that they say nothing about others; give "
            f"examples of their own, or a share, as in {kind}=0.2",
            stacklevel=4,
        )


def warn_of_units(name: str, kind: str, x: np.ndarray, other: np.ndarray) -> None:
    """Warns of float examples in 0..255 beside others in 0..1."""
    if x.dtype.kind != "f" or not (x.size and other.size) or isinstance(x, np.memmap):
        return
    highs = {"training": float(np.abs(x).max()), kind: float(np.abs(other).max())}
    low, high = sorted(highs, key=highs.__getitem__)
    if 0 < highs[low] <= 1 and highs[high] > BYTES_FROM:
        warnings.warn(
            f"{name}: {low} examples reach {highs[low]:.4g}, {kind if high == kind else high} ones {highs[high]:.4g}; "
            "they seem to have other units: divide bytes by 255 in both or in neither",
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


def check_wholes(name: str, **counts: Any) -> None:
    """Raises `ValueError` if one of these numbers is not a whole number."""
    for what, value in counts.items():
        if not is_whole(value):
            raise ValueError(f"{name}: {what} is {value!r}; it must be a whole number")
