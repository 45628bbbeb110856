"""Loads real datasets by name."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.catalog import suggest
from fedjax_sel.data.checks import warn_of_owners
from fedjax_sel.data.dataset import Dataset, dataset
from fedjax_sel.data.files import list_places, npz_dataset
from fedjax_sel.data.hf import hf_dataset
from fedjax_sel.data.split import hold_out
from fedjax_sel.data.tfds import tfds_dataset
from fedjax_sel.pytree import show

BUILT_IN = {
    "breast_cancer": "load_breast_cancer",
    "diabetes": "load_diabetes",
    "digit_images": "load_digits",
    "digits": "load_digits",
    "iris": "load_iris",
    "wine": "load_wine",
}
"""Functions of `sklearn.datasets`, by the names of their datasets."""


def available() -> list[str]:
    """Returns the names that `load` knows without any file: the datasets that come with scikit-learn."""
    return sorted(BUILT_IN)


def load(
    name: str,
    *,
    seed: int = 0,
    validation: float = 0.0,
    test: float = 0.2,
    test_from: str | None = None,
    num_examples: int | None = None,
    num_test_examples: int | None = None,
    num_validation_examples: int | None = None,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    targets: str | None = None,
) -> Dataset:
    """Returns a dataset by name.

    - `iris`, `digits`, `wine`, `breast_cancer`, `digit_images`, `diabetes`: scikit-learn's datasets, flat `float32`
      examples with scikit-learn's values (digits are 0..16, not 0..1). `digit_images` has the same digits as 8x8 images
      of one channel. The targets of `diabetes` are continuous.
    - `npz:PATH`: arrays in a file, here or in the folder of datasets, see `files.npz_dataset`.
    - `tfds:NAME`: a prepared dataset of TensorFlow Datasets (`tfds:fashion_mnist`, `tfds:emnist/byclass`), read without
      TensorFlow, see `tfds.tfds_dataset`.
    - `hf:NAME`: a dataset of the library `datasets`, from the hub or a folder, see `hf.hf_dataset`.

    Args:
      name: name of the dataset.
      seed: decides which examples become test and validation examples if shares are drawn.
      validation: share of the training examples that the server keeps for validation.
      test: share of the examples that becomes test examples, for a dataset without test examples.
      test_from: `"training"`: the share `test` is drawn from the training examples, and the dataset's test examples, or
        those that would have been drawn, are not used (to tune without touching them, or if they were made
        differently); None: the dataset's own.
      num_examples: number of training examples to take, drawn stratified by label; None: all.
      num_test_examples: number of test examples, likewise.
      num_validation_examples: number of the examples set apart by `validation`, likewise; the others are not used.
      data_dir: the folder of tfds datasets and files; None: `$TFDS_DATA_DIR`, else `~/tensorflow_datasets`.
      cache_dir: the folder of decoded arrays; None: `datasets` in `$FEDJAX_SEL_CACHE`, else in `~/.cache/fedjax_sel`.
      targets: the kind of targets of `npz:PATH` and `hf:NAME`, as for `dataset`; None: classes.

    Raises:
      ValueError: the name is unknown, or the data cannot be used.
      FileNotFoundError: the file does not exist, or the tfds dataset is not prepared.

    >>> load("iris")
    Dataset('iris': 120 training, 30 test, 0 validation examples of 4 float32, 3 classes)
    """
    if not isinstance(name, str):
        hint = ""
        if isinstance(name, Path):
            hint = f"; an .npz file is load('npz:{name}')"
        elif isinstance(name, np.ndarray):
            hint = "; arrays become one by dataset(name, x, y)"
        raise ValueError(f"the name of a dataset is {show(name)} ({type(name).__name__}); it must be text{hint}")
    kind, _, rest = name.partition(":")
    if targets is not None and kind not in ("npz", "hf"):
        raise ValueError(f"{name}: targets is {show(targets)}; npz:PATH and hf:NAME take it, other data says it itself")
    if test_from not in (None, "training"):
        raise ValueError(f"{name}: test_from is {show(test_from)}; it must be 'training' or None")
    own_test = test_from is None
    shares: dict[str, Any] = {"seed": seed, "validation": validation, "test": test}
    if kind == "npz" and rest:
        whole = npz_dataset(Path(rest), **shares, own_test=own_test, data_dir=data_dir, targets=targets or "classes")
    elif kind == "hf" and rest:
        whole = hf_dataset(rest, **shares, own_test=own_test, targets=targets or "classes")
    elif kind == "tfds" and rest:
        whole = tfds_dataset(rest, **shares, own_test=own_test, data_dir=data_dir, cache_dir=cache_dir)
    else:
        whole = load_built_in(name, **shares, aside=None if own_test else test)
    return take_fewer(whole, num_examples, num_test_examples, num_validation_examples, seed)


def list_files(name: str, data_dir: str | Path | None = None) -> list[Path]:
    """Returns the file that `load` reads for a name, as a list; empty if it reads no single file.

    >>> list_files("iris")
    []
    """
    kind, _, rest = name.partition(":")
    return [place for place in list_places(Path(rest), data_dir) if place.is_file()][:1] if kind == "npz" else []


def take_fewer(data: Dataset, training: int | None, test: int | None, validation: int | None, seed: int) -> Dataset:
    """Returns a dataset with the given numbers of examples of each part, stratified by class; None: all."""
    classes = data.targets == "classes"
    if (kept := draw_some(data.name, "num_examples", "training", data.y, training, seed, classes)) is not None:
        if data.owner is not None:
            warn_of_owners(data.name, data.owner, kept, "left out by num_examples", "ask for more examples")
            left, owner = np.unique(data.owner[kept], return_inverse=True)
            owners = None if data.owners is None else tuple(data.owners[number] for number in left)
            data = replace(data, owner=owner.astype(np.int32), owners=owners)
        data = replace(data, x=data.x[kept], y=data.y[kept])
    if (kept := draw_some(data.name, "num_test_examples", "test", data.test_y, test, seed, classes)) is not None:
        data = replace(data, test_x=data.test_x[kept], test_y=data.test_y[kept])
    given = ("validation", data.validation_y, validation, seed, classes)
    if (kept := draw_some(data.name, "num_validation_examples", *given)) is not None:
        data = replace(data, validation_x=data.validation_x[kept], validation_y=data.validation_y[kept])
    return data


def draw_some(
    name: str, key: str, kind: str, y: np.ndarray, count: int | None, seed: int, classes: bool
) -> np.ndarray | None:
    """Returns the indices of `count` examples, stratified if targets are classes; None: all.

    Raises:
      ValueError: `count` is less than 1 or more than there are examples.
    """
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 < count <= len(y):
        raise ValueError(f"{name}: {key} is {count!r}; there are {len(y)} {kind} examples, and at least 1 is needed")
    if count == len(y):
        return None
    return hold_out(f"{name}: {key}", y if classes else None, np.arange(len(y)), count / len(y), seed)[1]


@functools.cache
def read_built_in(function: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns examples and targets of a function of `sklearn.datasets`, read once; nobody can change them."""
    from sklearn import datasets  # imported here because it takes a second, which commands without data save

    x, y = map(np.asarray, getattr(datasets, function)(return_X_y=True))
    x.flags.writeable = y.flags.writeable = False
    return x, y


def load_built_in(name: str, *, seed: int, validation: float, test: float, aside: float | None = None) -> Dataset:
    """Returns one of the datasets of scikit-learn; shares as for `dataset`."""
    if name in ("synthetic", "uacs"):
        raise ValueError(
            f"{name!r} is drawn anew for each seed: give a Federation the function that draws it, as in "
            f"Federation(lambda seed: {name}(seed=seed), partition.Natural()), with {name} of fedjax_sel.data.{name}"
        )
    if name not in BUILT_IN:
        raise ValueError(
            f"unknown dataset {name!r}; known: {', '.join(available())}, npz:PATH (arrays in a file), tfds:NAME "
            "(TensorFlow Datasets, e.g. tfds:fashion_mnist), hf:NAME (the library datasets); a table: "
            "Federation.from_frame, on the command line mine.py:make, a function that returns a Dataset"
            + suggest(name, available())
        )
    x, y = read_built_in(BUILT_IN[name])
    if name == "digit_images":
        x = x.reshape(-1, 8, 8, 1)
    targets = "continuous" if y.dtype.kind == "f" else "classes"
    return dataset(name, x, y, test=test, validation=validation, aside=aside, seed=seed, targets=targets)
