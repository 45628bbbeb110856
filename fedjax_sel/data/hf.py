"""Datasets of the Hugging Face `datasets` library, from the hub or from a folder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.data.convert import check_precision, number_labels
from fedjax_sel.data.dataset import Dataset, dataset
from fedjax_sel.pytree import show

LABELS = ("label", "labels", "target", "y", "fine_label")
"""Columns that may hold the labels, in order of preference, unless exactly one column is a `ClassLabel`."""

OWNERS = ("client", "client_id", "user", "user_id", "writer", "writer_id", "speaker", "speaker_id", "owner")
"""Columns that may hold the owners, in order of preference."""


INDEX = re.compile(r"__index_level_\d+__")
"""What `datasets` calls the index of a table of pandas."""

ARRAYS, NUMBERS = ("Image", "Sequence", "List", "LargeList"), ("int", "uint", "float", "bool")
"""Kinds of columns that hold arrays, and the prefixes of numeric types."""


def hf_dataset(
    name: str,
    *,
    seed: int = 0,
    validation: float = 0.0,
    test: float = 0.2,
    own_test: bool = True,
    targets: str = "classes",
) -> Dataset:
    """Returns the splits `train` and `test` of a dataset of the library `datasets`.

    The labels are the only column of kind `ClassLabel` that does not name owners, else one called `label`, `labels`,
    `target`, `y` or `fine_label`; the owners are one called `client`, `user_id`, `writer_id`, `speaker_id` or similar;
    the examples are the one remaining column of images or arrays, or else all columns of numbers together. The index
    of a table of pandas, which `datasets` keeps as a column, is left out. If the examples are columns of numbers, a
    further column whose name could mean labels or owners is refused.

    Args:
      name: a folder written by `save_to_disk`, or a dataset of the hub, `user/name` or `user/name:configuration`.
      seed: decides which examples become test and validation examples if shares are drawn.
      validation: share of the training examples that the server keeps for validation.
      test: share of the examples that becomes test examples if there is no split `test` or `own_test` is false.
      own_test: whether the split `test`, if there is one, gives the test examples. If false and there is no such split,
        the examples that would have been drawn for testing are discarded before the share `test` is drawn.
      targets: their kind, as for `dataset`.

    Raises:
      ValueError: the package is not installed, or there are no usable columns of examples or labels.
      FileNotFoundError: the dataset does not exist.
    """
    splits = open_splits(name)
    columns = splits["train"].features
    label, owner, examples = find_columns(name, columns)
    has_own = "test" in splits
    read = ("train", "test") if own_test and has_own else ("train",)
    if empty := [split for split in read if not len(splits[split])]:
        raise ValueError(f"hf:{name}: the split {empty[0]!r} has no examples")
    if own_test and has_own and (lacking := [c for c in (label, *examples) if c not in splits["test"].features]):
        raise ValueError(f"hf:{name}: the split 'test' has no column {lacking[0]!r}, which the split 'train' has")
    if own_test and has_own:
        mine, theirs = (getattr(splits[split].features[label], "names", None) for split in ("train", "test"))
        if mine is not None and theirs is not None and list(mine) != list(theirs):
            raise ValueError(
                f"hf:{name}: the classes of {label!r} are {show(mine)} in the split 'train', but {show(theirs)} in "
                "'test', so that their numbers mean others; save both with the same names in the same order"
            )
    known = np.asarray(splits["train"][label])
    words = np.unique(known) if known.dtype.kind in "US" and targets == "classes" else None
    x, y, kept = read_split(name, splits["train"], label, examples, words, targets)
    made = dataset(
        name,
        x,
        y,
        test=read_split(name, splits["test"], label, examples, words, targets)[:2] if own_test and has_own else test,
        validation=validation,
        aside=None if own_test or has_own else test,
        owner=None if owner is None else np.asarray(splits["train"][owner])[kept],
        classes=getattr(columns[label], "num_classes", None) if targets == "classes" else None,
        seed=seed,
        targets=targets,
    )
    names = getattr(columns[label], "names", None) if words is None else words.tolist()
    return replace(made, labels=None if names is None or targets != "classes" else tuple(names))


def open_splits(name: str) -> dict[str, Any]:
    """Returns the splits of a dataset by name; a dataset without splits becomes `train`."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"hf:{name} needs the package `datasets`: pip install 'fedjax-sel[hf]'") from error
    place = Path(name).expanduser()
    try:
        if place.is_dir():
            found = datasets.load_from_disk(str(place))
        else:
            path, _, configuration = name.partition(":")
            found = datasets.load_dataset(path, configuration or None)
    except (OSError, ValueError) as error:
        if place.is_dir():
            raise FileNotFoundError(
                f"hf:{name} is a folder that save_to_disk did not write ({error}); "
                "datasets.load_dataset(...).save_to_disk(FOLDER) writes one"
            ) from error
        raise FileNotFoundError(f"hf:{name} is neither a folder here nor to be had from the hub: {error}") from error
    except IndexError as error:  # of a split without shards
        raise ValueError(f"hf:{name} cannot be read ({error}); has a split no examples?") from error
    splits: dict[str, Any] = {str(k): v for k, v in found.items()} if isinstance(found, dict) else {"train": found}
    if "train" not in splits:
        raise ValueError(f"hf:{name} has no split 'train'; it has {', '.join(splits)}")
    return splits


def find_columns(name: str, columns: Any) -> tuple[str, str | None, list[str]]:
    """Returns the column of the labels, that of the owners (None if there is none), and those of the examples."""
    kinds = {column: type(feature).__name__ for column, feature in columns.items()}
    classes = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    mine = [column for column in classes if column not in OWNERS]
    labels = mine if len(mine) == 1 else [column for column in LABELS if column in kinds]
    if not labels:
        known = ", ".join(LABELS)
        raise ValueError(f"hf:{name} has no column of labels ({known}, or a ClassLabel); it has {', '.join(kinds)}")
    owner = next((column for column in OWNERS if column in kinds), None)
    left = {
        column: kind
        for column, kind in kinds.items()
        if column not in (labels[0], owner, *classes) and not INDEX.fullmatch(column)
    }
    arrays = [column for column, kind in left.items() if kind in ARRAYS or kind.startswith("Array")]
    numbers = [column for column, kind in left.items() if kind == "Value" and columns[column].dtype.startswith(NUMBERS)]
    if len(arrays) > 1 or not (arrays or numbers) or (not arrays and len(numbers) < len(left)):
        shown = ", ".join(f"{column} ({kind})" for column, kind in left.items()) or "nothing"
        raise ValueError(
            f"hf:{name} has {shown} beside its labels; one column of images or arrays is needed, or numbers alone; "
            "make a Dataset of it in code (fs.dataset), or name a function of your own that does"
        )
    if not arrays and (odd := [column for column in numbers if column in (*LABELS, *OWNERS)]):
        raise ValueError(
            f"hf:{name}: {odd[0]} would be one of the numbers of an example, as {labels[0]} has the labels"
            f"{f' and {owner} the owners' if owner else ''}; remove it (remove_columns), or call it otherwise "
            "(rename_column)"
        )
    return labels[0], owner, arrays or numbers


def holds_doubles(feature: Any) -> bool:
    """Returns whether the numbers of a column, or of its lists, have 64 bits."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    return getattr(feature, "dtype", None) == "float64"


MODES = ("1", "L", "I", "F", "RGB", "RGBA")
"""Kinds of images whose numbers are brightness: of one channel, of colours, and of colours and opacity."""


def check_modes(name: str, split: Any, column: str) -> None:
    """Raises `ValueError` if a column has images whose numbers are none of `MODES`, such as places in a palette."""
    if type(split.features[column]).__name__ != "Image":
        return
    modes = {one.mode: i for i, one in reversed(list(enumerate(split[column])))}
    if odd := [mode for mode in modes if mode not in MODES and not mode.startswith("I;16")]:
        raise ValueError(
            f"hf:{name}: image {modes[odd[0]]} of {column!r} has mode {odd[0]!r}, whose numbers are not brightness "
            "(in 'P', places in the image's own palette); convert all of them, as with "
            f"cast_column({column!r}, datasets.Image(mode='RGB'))"
        )


def read_split(
    name: str, split: Any, label: str, examples: list[str], words: np.ndarray | None, targets: str = "classes"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the examples and labels of a split, and the indices of their rows; unlabelled rows (-1) are left out.

    Labels that are strings are numbered in the order of `words`. Targets of another kind than classes are as they are.

    Raises:
      ValueError: a label is missing, unknown, below -1, or all are -1; or examples differ in shape.
    """
    y = np.asarray(split[label])
    if y.dtype == object and (empty := [i for i, one in enumerate(y) if one is None]):
        raise ValueError(
            f"hf:{name}: the label is empty in {len(empty)} rows, the first of them {empty[0]}; give it one"
            + (", or -1 to leave the row out" if targets == "classes" else ", or leave the row out (filter)")
        )
    if words is not None:
        y = number_labels(f"hf:{name}", y, words, "test")
    wide = {"dtype": np.float64} if any(holds_doubles(split.features[column]) for column in examples) else {}
    check_modes(name, split, examples[0])
    for column in examples:
        kind = split.features[column]
        if type(kind).__name__ == "Value" and kind.dtype.startswith(("int", "uint")):
            values = np.asarray([one for one in split[column] if one is not None])
            check_precision(f"hf:{name}", values[:, None], [column])
    table = split.select_columns(examples).with_format("numpy", **wide)[:]  # by default as float32
    columns = [np.asarray(table[column]) for column in examples]
    if columns[0].dtype == object:
        shapes = sorted({np.shape(one) for one in columns[0]}, key=str)
        raise ValueError(f"hf:{name}: examples differ in shape ({shapes[0]}, {shapes[-1]}); examples must be alike")
    x = columns[0] if len(examples) == 1 and columns[0].ndim > 1 else np.stack(columns, axis=1).astype(np.float64)
    if targets != "classes":
        return x, y, np.arange(len(y))
    if y.dtype.kind in "if" and y.size and (y < -1).any():
        raise ValueError(f"hf:{name}: a label is {y.min()}; labels must be numbers from 0, or -1 where there is none")
    kept = np.flatnonzero(y >= 0)
    if not len(kept):
        raise ValueError(
            f"hf:{name} has a split of {len(y)} examples without any label (-1); if it is the test split, set "
            "test_from=training, which sets training examples apart"
        )
    return (x, y, kept) if len(kept) == len(y) else (x[kept], y[kept], kept)
