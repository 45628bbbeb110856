"""One dataset on the host: training, test and validation examples, checked once, before anything compiles.

Examples keep their types: images are `uint8`, floats `float32`. Anything that cannot be trained on (a NaN, a label
outside the classes, a missing owner) raises an error here that says where it is; later code does not check again.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from fedjax_sel.data.checks import (
    check_examples,
    check_ids,
    check_owners,
    count_classes,
    warn_of_axes,
    warn_of_labels,
    warn_of_owners,
    warn_of_seen,
    warn_of_units,
)
from fedjax_sel.data.convert import check_precision
from fedjax_sel.data.split import hold_out
from fedjax_sel.pytree import is_whole, show

Pair = tuple[np.ndarray, np.ndarray]

COUNTED = {
    "classes": "classes",
    "continuous": "continuous target",
    "multilabel": "labels",
    "tokens": "tokens in the vocabulary",
}
"""What `C` counts, by the kind of targets."""

CHUNK = 1 << 22  # values read at a time, so that a memory-mapped dataset is never in memory as a whole


@dataclass(frozen=True, eq=False)
class Dataset:
    """Checked examples; make one with `dataset`.

    Attributes:
      name: its name in reports.
      x: training examples `[n, ...]`, as stored.
      y: their labels, `int32` in `0..C-1`; or targets of another kind (`types.TARGETS`).
      test_x, test_y: the server's test examples; there may be none.
      validation_x, validation_y: the server's validation examples; there may be none.
      classes: `C`; for targets that are not classes, the number of model outputs for an example (labels, numbers), or
        for each position of a sequence (tokens of the vocabulary).
      owner: the natural owner (writer, speaker) of each training example, numbered from 0; None: examples have no
        owner.
      targets: the kind of targets.
      features: the names of the columns of `x`, if it was a table.
      owners: the owners by their number, as they were given; client `i` of `partition.Natural()` is `owners[i]`.
      labels: the classes by their number, if they were given as names.
    """

    name: str
    x: Shaped[np.ndarray, "n ..."]
    y: Shaped[np.ndarray, "n ..."]
    test_x: Shaped[np.ndarray, "b ..."]
    test_y: Shaped[np.ndarray, "b ..."]
    validation_x: Shaped[np.ndarray, "v ..."]
    validation_y: Shaped[np.ndarray, "v ..."]
    classes: int
    owner: Int[np.ndarray, "n"] | None = None
    targets: str = "classes"
    features: tuple[str, ...] | None = None
    owners: tuple[Any, ...] | None = None
    labels: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.x.shape[1:]))
        owners = "" if self.owner is None else f", {self.owner.max() + 1} owners"
        return (
            f"Dataset({self.name!r}: {len(self.y)} training, {len(self.test_y)} test, {len(self.validation_y)} "
            f"validation examples of {shape} {self.x.dtype}, {self.classes} {COUNTED[self.targets]}"
            f"{'s' * (self.targets == 'continuous' and self.classes != 1)}{owners})"
        )


def dataset(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    *,
    test: Pair | float | None = None,
    validation: Pair | float | None = None,
    aside: float | None = None,
    owner: np.ndarray | None = None,
    classes: int | None = None,
    seed: int = 0,
    targets: str = "classes",
) -> Dataset:
    """Returns a checked dataset, with test and validation examples set apart.

    `float64` examples become `float32`, and `int64` examples `int32`; `uint8` examples `[n, h, w]` are taken as grey
    images and get a channel axis, `[n, h, w, 1]`. Arrays that need no change are not copied: a memory-mapped `x` stays
    one, unless a share of its examples is set apart.

    Args:
      name: its name in reports.
      x: examples `[n, ...]`, at least one axis each.
      y: labels `[n]`, integers in `0..C-1`; or targets of another kind.
      test: test examples as (examples, labels), or a share of the examples in (0, 1), drawn stratified by label; None:
        no test examples.
      validation: the same for validation examples; a share is of the examples that are left after the test examples are
        taken.
      aside: a share to discard first: the examples that `test` alone would have drawn, so that tuning never sees them.
        Test and validation examples are shares of the rest.
      owner: natural owner of each example of `x`, any integers or strings; test examples need none.
      classes: `C`; None: one more than the largest label.
      seed: seed of the random shares.
      targets: `"classes"`; `"continuous"`, one or several numbers per example; `"multilabel"`, 0 or 1 for each of `C`
        labels; or `"tokens"`, one for each position of a sequence.

    Raises:
      ValueError: the examples cannot be used; the message says which, and why.

    >>> import numpy as np
    >>> dataset("toy", np.eye(10), np.arange(10) % 2, test=0.2)
    Dataset('toy': 8 training, 2 test, 0 validation examples of 10 float32, 2 classes)
    >>> dataset("heights", np.eye(4), np.array([1.6, 1.8, 1.7, 1.9]), targets="continuous")
    Dataset('heights': 4 training, 0 test, 0 validation examples of 4 float32, 1 continuous target)
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a dataset is {show(name)}; it must be text, as in dataset('mine', x, y)")
    x, y = check_examples(f"{name}: training", x, y, targets=targets)
    given = {"test": test, "validation": validation}
    for kind, value in given.items():
        if isinstance(value, np.ndarray) or (isinstance(value, tuple | list) and len(value) != 2):
            raise ValueError(
                f"{name}: {kind} is {show(value)}; it is (examples, labels) or a share of the examples in [0, 1)"
            )
    if not is_whole(seed) or not 0 <= seed < 2**32:
        hint = "; so that each seed of a run draws its own, give a Federation a function of the seed" * (seed is None)
        raise ValueError(f"{name}: seed is {show(seed)}; it must be a whole number from 0 to 2^32 - 1{hint}")
    apart: dict[str, Pair] = {
        kind: check_examples(f"{name}: {kind}", *value, like=x, targets=targets)
        for kind, value in given.items()
        if isinstance(value, (tuple, list))
    }
    if wrong := [kind for kind, (_, labels) in apart.items() if labels.shape[1:] != y.shape[1:]]:
        raise ValueError(
            f"{name}: {wrong[0]} targets have shape {apart[wrong[0]][1].shape[1:]}, those of training {y.shape[1:]}; "
            "they must be alike"
        )
    others = np.concatenate([y[:0], *(labels for _, labels in apart.values())])
    told = [y, others]
    if targets == "tokens":  # the next of each: an id that only begins a sequence is in the vocabulary, too
        told += [check_ids(name, one, labels) for one, labels in ((x, y), *apart.values())]
    given_classes, classes = classes, count_classes(name, np.concatenate(told), classes, targets)
    for kind, pair in apart.items():
        warn_of_seen(name, kind, (x, y), pair)
        warn_of_units(name, kind, x, pair[0])
    if targets == "classes":
        warn_of_labels(name, y, others, classes, known=given_classes is not None)
    warn_of_axes(name, x)
    owner = None if owner is None else check_owners(name, owner, len(y))
    labels = y if targets == "classes" else None  # by which random shares are stratified
    left, _ = hold_out(f"{name}: test", labels, np.arange(len(y)), aside or 0.0, seed)
    for kind, value in given.items():
        if kind in apart:
            continue
        share: Any = 0.0 if value is None else value
        left, taken = hold_out(f"{name}: {kind}", labels, left, share, seed)
        apart[kind] = x[taken] if len(taken) else x[:0], y[taken]
    if len(left) < len(y):
        x, y = x[left], y[left]
        if owner is not None:
            warn_of_owners(name, owner, left)
            owner = owner[left]
    # Numbered after the split, because an owner without training examples is not a client.
    owners, number = (None, None) if owner is None else np.unique(owner, return_inverse=True)
    return Dataset(
        name=name,
        x=x,
        y=y,
        test_x=apart["test"][0],
        test_y=apart["test"][1],
        validation_x=apart["validation"][0],
        validation_y=apart["validation"][1],
        classes=classes,
        owner=None if number is None else number.astype(np.int32),
        targets=targets,
        owners=None if owners is None else tuple(owners.tolist()),
    )


def normalisation(data: Dataset) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
    """Returns the shift and scale that give `(x - shift) * scale` mean 0 and deviation 1 over the training examples.

    Here `x` is first converted to `float32`. There is one number for each index of the last axis: for each channel of
    images `[n, h, w, c]`, or each feature of flat examples `[n, c]`. For `uint8` images they equal the usual mean and
    deviation of `x / 255`, written for `x` as stored. Features that are constant but for rounding, or whose deviation
    float32 cannot hold, keep scale 1.
    """
    width = data.x.shape[-1]
    # Moments are taken about the first value, not about 0, so that a feature far from 0 loses no digits and a constant
    # one has a variance of exactly 0.
    centre = np.asarray(data.x[0], np.float64).reshape(-1, width)[0]
    total, square, count = np.zeros(width), np.zeros(width), 0
    step = max(1, CHUNK // max(1, int(np.prod(data.x.shape[1:]))))
    for start in range(0, len(data.x), step):
        examples = np.asarray(data.x[start : start + step], np.float64).reshape(-1, width) - centre
        total += examples.sum(0)
        square += np.einsum("nc,nc->c", examples, examples)
        count += len(examples)
    mean = centre + total / count
    deviation = np.sqrt(np.maximum(square / count - (total / count) ** 2, 0))
    float32 = np.finfo(np.float32)
    scale = 1 / np.where(deviation > np.maximum(float32.tiny, float32.eps * np.abs(mean)), deviation, 1)
    return mean.astype(np.float32), scale.astype(np.float32)


def warn_before_learning(data: Dataset) -> None:
    """Warns if all labels are the same, or if integers that may be token ids are about to be normalised.

    Raises:
      ValueError: a column of integers loses what it varies in as 32-bit floats.
    """
    if data.x.dtype.kind in "iu" and data.x.dtype.itemsize >= 4:
        check_precision(f"{data.name}: training examples", data.x)
    if (data.y == data.y[0]).all():
        warnings.warn(
            f"{data.name}: all training examples have label {data.y[0]}; there is nothing to tell apart: give labels "
            "of at least two classes",
            stacklevel=3,
        )
    if data.x.dtype.kind in "iu" and data.x.dtype != np.uint8 and data.x.ndim == 2:
        warnings.warn(
            f"{data.name}: examples are {data.x.dtype} and will be normalised as measurements; token ids or categories "
            "are left as they are by normalise=False (model.normalise=false), and x.astype(float) says that they "
            "are measurements",
            stacklevel=3,
        )
