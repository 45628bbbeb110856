"""Datasets from a user's own data: arrays of each client, a table, or anything with a length and items."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedjax_sel.catalog import check_name
from fedjax_sel.data.convert import check_precision, list_values, number_labels
from fedjax_sel.data.dataset import Dataset, Pair, dataset
from fedjax_sel.pytree import is_real, show

if TYPE_CHECKING:
    import pandas as pd


class Items(Protocol):
    """Anything with a length and items that are pairs of example and label, such as PyTorch's datasets."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Any: ...


def from_arrays(
    clients: Sequence[Pair] | Mapping[str, Pair],
    *,
    name: str = "own",
    test: Pair | float | None = None,
    validation: Pair | float | None = None,
    classes: int | None = None,
    seed: int = 0,
    targets: str = "classes",
) -> Dataset:
    """Returns the dataset whose owners are these clients.

    Args:
      clients: examples and labels of each client; the clients of a mapping are ordered by name. Labels that are texts
        are numbered in sorted order, over all clients together.
      name, test, validation, classes, seed, targets: as for `dataset`; a share is of all examples together.

    Raises:
      ValueError: a client is not a pair, has no examples, or has examples of another shape than the first client's; or
        as for `dataset`.

    >>> from_arrays([(np.eye(3), np.array([0, 1, 0])), (np.ones((2, 3)), np.array([1, 1]))])
    Dataset('own': 5 training, 0 test, 0 validation examples of 3 float32, 2 classes, 2 owners)
    """
    named = sort_by_name(clients) if isinstance(clients, Mapping) else list(enumerate(clients))
    if not named:
        raise ValueError(f"{name}: there are no clients; give (examples, labels) of each")
    pairs = []
    for client, pair in named:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{name}: client {client!r} is a {type(pair).__name__}; it must be (examples, labels)")
        for what, given in zip(("examples", "labels"), pair, strict=True):
            if np.ma.is_masked(given):
                raise ValueError(f"{name}: {what} of client {client!r} are masked in places; give a number for each")
        x, y = map(np.asarray, pair)
        if not (x.ndim and y.ndim):
            what, given = ("labels", y) if x.ndim else ("examples", x)
            raise ValueError(f"{name}: {what} of client {client!r} are {given.item()!r}; they must be arrays")
        if not len(y) or len(x) != len(y):
            raise ValueError(
                f"{name}: client {client!r} has {len(x)} examples and {len(y)} labels; a client needs at least one "
                "example, and a label for each"
            )
        for what, mine, first in zip(("examples", "targets"), (x, y), pairs[0] if pairs else (x, y), strict=True):
            if mine.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"{name}: {what} of client {client!r} have shape {mine.shape[1:]}, those of client "
                    f"{named[0][0]!r} {first.shape[1:]}; {what} must be alike"
                )
        if targets == "classes":
            y = read_texts(f"{name}: labels of client {client!r}", y)
            if pairs and (y.dtype.kind == "U") != (pairs[0][1].dtype.kind == "U"):
                raise ValueError(
                    f"{name}: labels of client {client!r} are {y.dtype}, those of client {named[0][0]!r} "
                    f"{pairs[0][1].dtype}; all are texts, or all numbers"
                )
        if pairs and (x.dtype == np.uint8) != (pairs[0][0].dtype == np.uint8):  # images of 0 to 255, and of 0 to 1
            raise ValueError(
                f"{name}: examples of client {client!r} are {x.dtype}, those of client {named[0][0]!r} "
                f"{pairs[0][0].dtype}; examples must be alike"
            )
        pairs.append((x, y.astype(np.int64) if y.dtype.kind in "iu" else y))  # of several types, floats would be made
    owner = np.repeat(np.arange(len(pairs)), [len(y) for _, y in pairs])
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    labels = None
    if targets == "classes" and y.dtype.kind == "U":
        values = np.unique(y)
        y, labels = np.searchsorted(values, y), tuple(values.tolist())
        test, validation = (
            (part[0], number_labels(name, read_texts(f"{name}: labels", np.asarray(part[1])), values))
            if isinstance(part, tuple | list)
            else part
            for part in (test, validation)
        )
    given = {"classes": classes, "seed": seed, "targets": targets}
    made = dataset(name, x, y, test=test, validation=validation, owner=owner, **given)
    return replace(made, owners=tuple(named[number][0] for number in made.owners or ()), labels=labels)


def read_texts(what: str, y: np.ndarray) -> np.ndarray:
    """Returns labels, which have one type of texts if they are texts.

    Raises:
      ValueError: some are texts, and some are not.

    >>> read_texts("toy", np.array(["cat", "dog"], object)), read_texts("toy", np.array([b"cat"]))
    (array(['cat', 'dog'], dtype='<U3'), array(['cat'], dtype='<U3'))
    """
    if y.dtype.kind == "S":
        return np.char.decode(y)
    kinds = {type(one).__name__ for one in y.ravel()} if y.dtype == object else set()
    if "str" in kinds and len(kinds) > 1:
        raise ValueError(f"{what} are of several types ({', '.join(sorted(kinds))}); all must be texts, or none")
    return y.astype(str) if kinds == {"str"} else y


def sort_by_name(clients: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Returns clients in the order of their names; names of several types in the order of their texts.

    >>> sort_by_name({10: "b", 9: "a"}), sort_by_name({10: "a", "9": "b"})
    ([(9, 'a'), (10, 'b')], [(10, 'a'), ('9', 'b')])
    """
    try:
        return sorted(clients.items(), key=lambda item: item[0])
    except TypeError:
        return sorted(clients.items(), key=lambda item: str(item[0]))


def is_real_column(column: Any) -> bool:
    """Returns whether a column holds real numbers."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)


def from_frame(
    frame: pd.DataFrame,
    *,
    label: str,
    client: str | None = None,
    features: Iterable[str] | None = None,
    name: str = "table",
    test: pd.DataFrame | float | None = None,
    validation: pd.DataFrame | float | None = None,
    classes: int | None = None,
    seed: int = 0,
    targets: str = "classes",
) -> Dataset:
    """Returns the dataset in a table with one example per row.

    Args:
      frame: the table.
      label: column of the labels; values that are not all integers of at least 0 are numbered in sorted order.
      client: column of the owners, any values; None: examples have no owner.
      features: columns of numbers; None: all others.
      name, classes, seed: as for `dataset`.
      targets: `"classes"`, or `"continuous"` if the label is a number to be learnt.
      test, validation: a table of the same columns, or a share.

    Raises:
      ValueError: a column is missing, empty in some row, or not numeric; a label that is not a whole number is in the
        test or validation table only (of whole numbers this is a warning); or as for `dataset`.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [3.0, 4.0, 9.0], "sex": ["f", "m", "f"], "ward": ["b", "a", "b"]})
    >>> from_frame(frame, label="sex", client="ward")
    Dataset('table': 3 training, 0 test, 0 validation examples of 1 float32, 2 classes, 2 owners)
    """
    import pandas as pd  # imported here because it takes half a second

    check_tables(name, {"frame": frame, "test": test, "validation": validation})
    if isinstance(features, str) or isinstance(label, list | tuple):
        given = f"features is {features!r}" if isinstance(features, str) else f"label is {label!r}"
        raise ValueError(f"{name}: {given}; features is a list of columns, label is one (several: from_arrays)")
    features = None if features is None else list(features)
    if told := [column for column in (label, client) if features is not None and column in features]:
        raise ValueError(f"{name}: column {told[0]!r} is the label or the client, so it cannot be a feature")
    for column in (label, *([client] if client is not None else []), *(features or [])):
        check_column(name, column, list(frame.columns))
    chosen = [c for c in frame.columns if c not in (label, client)] if features is None else list(features)
    if not chosen:
        raise ValueError(f"{name}: there are no columns of numbers beside {label!r}")
    for kind, part in (("", frame), ("test: ", test), ("validation: ", validation)):
        if isinstance(part, pd.DataFrame):
            if missing := [column for column in (label, *chosen) if column not in part.columns]:
                raise ValueError(f"{name}: {kind}there is no column {missing[0]!r}, which the other table has")
            if bad := [column for column in chosen if not is_real_column(part[column])]:
                raise ValueError(
                    f"{name}: {kind}column {bad[0]!r} holds {part[bad[0]].dtype}, not numbers; encode it "
                    "(pandas.get_dummies), or name the columns in features="
                )
            for column in chosen:
                if pd.api.types.is_integer_dtype(part[column]) and not bool(part[column].isna().to_numpy().any()):
                    check_precision(f"{name}{f': {kind[:-2]}' if kind else ''}", part[[column]].to_numpy(int), [column])
            check_complete(f"{name}: {kind}", part, [label] if client is None else [label, client])
    values = list_values(f"{name}: column {label!r}", frame[label].to_numpy())
    if targets == "classes" and values.dtype.kind == "f" and len(odd := values[values != np.floor(values)]):
        raise ValueError(
            f"{name}: column {label!r} holds numbers that are not whole, such as {odd[0]:g}; targets='continuous' says "
            "that they are numbers to be learnt"
        )
    if targets == "classes" and len(frame) >= MANY and len(values) > len(frame) / 2:
        numbers = values.dtype.kind in "iuf"
        remedy = "; targets='continuous' says that they are numbers to be learnt" if numbers else ""
        warnings.warn(
            f"{name}: column {label!r} holds {len(values)} different {'numbers' if numbers else 'values'} in "
            f"{len(frame)} rows, each of which is a class{remedy}",
            stacklevel=2,
        )
    numbered = targets == "continuous" or (np.issubdtype(values.dtype, np.integer) and values.min() >= 0)

    def read(part: pd.DataFrame) -> Pair:
        x = np.stack([part[c].to_numpy(np.float64) for c in chosen], axis=1)
        y = part[label].to_numpy()
        if numbered:
            return x, y
        return x, number_labels(name, y, values)

    apart: Any = {"test": test, "validation": validation}
    apart = {kind: read(part) if isinstance(part, pd.DataFrame) else part for kind, part in apart.items()}
    owner = None
    if client is not None:
        owner = frame[client].to_numpy()
        list_values(f"{name}: column {client!r}", owner)  # an error that names the column
        warn_of_categories(name, frame[client])
    made = dataset(name, *read(frame), owner=owner, classes=classes, seed=seed, targets=targets, **apart)
    return replace(made, features=tuple(chosen), labels=None if numbered else tuple(values.tolist()))


def check_column(name: str, column: Any, columns: Sequence[Any]) -> None:
    """Raises `ValueError` if a table has no such column; the message gives the nearest.

    >>> check_column("table", "1", [0, 1])
    Traceback (most recent call last):
    ValueError: table: there is no column '1', but there is 1 (int); give its name as the table has it
    """
    if column in columns:
        return
    named = {str(one): one for one in columns}
    check_name(f"column of {name}:", str(column), named)
    other = named[str(column)]
    raise ValueError(
        f"{name}: there is no column {column!r}, but there is {other!r} ({type(other).__name__}); give its name as the "
        "table has it"
    )


def warn_of_categories(name: str, client: Any) -> None:
    """Warns if a column of clients knows of more clients than have rows."""
    known, present = getattr(client.dtype, "categories", ()), set(client.unique())
    if len(without := [one for one in known if one not in present]):
        shown = ", ".join(map(str, without[:3])) + ", ..." * (len(without) > 3)
        warnings.warn(
            f"{name}: {len(without)} of {len(known)} categories of column {client.name!r} have no rows ({shown}); they "
            "are not clients",
            stacklevel=3,
        )


MANY = 20
"""The least number of rows of which it is said that most have a class of their own."""


def check_tables(name: str, tables: dict[str, Any]) -> None:
    """Raises `ValueError` for a non-table, no rows, or a duplicate column; `test` and `validation` may be shares."""
    import pandas as pd

    for kind, table in tables.items():
        if not isinstance(table, pd.DataFrame):
            if kind == "frame" or isinstance(table, str | Path):
                raise ValueError(f"{name}: {kind} is {show(table)}; it must be a DataFrame, as pandas.read_csv makes")
            continue
        if not len(table):
            raise ValueError(f"{name}: {kind} has no rows")
        if len(twice := table.columns[table.columns.duplicated()]):
            raise ValueError(f"{name}: {kind} has two columns {twice[0]!r}")


def check_complete(name: str, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raises `ValueError` if one of these columns has a missing value; a column that does not exist has none."""
    for column in columns:
        missing = np.flatnonzero(table[column].isna()) if column in table.columns else np.zeros(0, int)
        if len(missing):
            raise ValueError(
                f"{name}column {column!r} is empty in {len(missing)} rows, first in row {missing[0]}; leave them "
                "out or fill them"
            )


def from_items(
    items: Items,
    *,
    name: str = "items",
    test: Items | float | None = None,
    validation: Items | float | None = None,
    owner: np.ndarray | None = None,
    classes: int | None = None,
    seed: int = 0,
    targets: str = "classes",
) -> Dataset:
    """Returns the dataset of an object with a length and items `(example, label)`, which are read once.

    Args:
      items: the training examples.
      name, owner, classes, seed, targets: as for `dataset`.
      test, validation: such items, or a share.

    Raises:
      ValueError: an item is not a pair, or examples differ in shape; or as for `dataset`.

    >>> from_items([(np.zeros(2), 0), (np.ones(2), 1)])
    Dataset('items': 2 training, 0 test, 0 validation examples of 2 float32, 2 classes)
    """
    apart: Any = {"test": test, "validation": validation}
    for kind, given in apart.items():
        if given is not None and not is_real(given):
            apart[kind] = read_items(f"{name}: {kind}", given, targets)
    given = {"owner": owner, "classes": classes, "seed": seed, "targets": targets}
    return dataset(name, *read_items(name, items, targets), **given, **apart)


def read_items(name: str, items: Items, targets: str) -> Pair:
    """Returns the examples and targets of all items."""
    x, y = [], []
    for i in range(len(items)):
        item = items[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"{name}: item {i} is a {type(item).__name__}; it must be (example, label)")
        example = np.asarray(item[0])
        if x and example.shape != x[0].shape:
            raise ValueError(
                f"{name}: item {i} has shape {example.shape}, item 0 has {x[0].shape}; examples must be alike"
            )
        x.append(example)
        if targets == "classes" and not is_class(item[1]):
            raise ValueError(
                f"{name}: item {i} has the label {item[1]!r}; labels must be whole numbers, or targets others"
            )
        y.append(int(item[1]) if targets == "classes" else np.asarray(item[1]))
    if not x:
        raise ValueError(f"{name}: there are no items")
    return np.stack(x), np.asarray(y)


def is_class(label: Any) -> bool:
    """Returns whether a label is a whole number, of any type.

    >>> is_class(np.float32(2.0)), is_class(1.7), is_class("a"), is_class(float("nan"))
    (True, False, False, False)
    """
    value = np.asarray(label)
    return value.shape == () and value.dtype.kind in "iubf" and bool(np.isfinite(value) and value == np.floor(value))


def shift_tokens(sequences: Iterable[Sequence[int]], length: int, pad: int = 0) -> Pair:
    """Returns sequences of tokens as examples, and the token after each position as targets, both Int["n length"].

    A sequence is cut to its first `length + 1` tokens; a shorter one is padded with `pad`.

    Args:
      sequences: sequences of integers.
      length: positions of an example.
      pad: the padding token, which `task.NextToken` does not count.

    >>> shift_tokens([[5, 6, 7], [8, 9]], length=3)[0].tolist()
    [[5, 6, 0], [8, 0, 0]]
    >>> shift_tokens([[5, 6, 7], [8, 9]], length=3)[1].tolist()
    [[6, 7, 0], [9, 0, 0]]
    """
    cut = [list(one)[: length + 1] for one in sequences]
    x = np.array([[*one[:-1], *[pad] * (length + 1 - len(one))][:length] for one in cut], np.int32)
    y = np.array([[*one[1:], *[pad] * (length + 1 - len(one))][:length] for one in cut], np.int32)
    return x.reshape(-1, length), y.reshape(-1, length)
