"""Datasets in `.npz` files."""

from __future__ import annotations

import difflib
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from fedjax_sel.data import speech
from fedjax_sel.data.dataset import Dataset, dataset
from fedjax_sel.pytree import show

ROWS = {f"{kind}{suffix}" for kind in "xy" for suffix in ("", "_train", "_test")}
ROWS |= {"owner", "owner_train", "num_classes"}
BROKEN = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


def find_data_folder(data_dir: str | Path | None = None) -> Path:
    """Returns the folder of datasets: `data_dir`, else `$TFDS_DATA_DIR`, else `~/tensorflow_datasets`."""
    return Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def list_places(path: Path, data_dir: str | Path | None = None) -> list[Path]:
    """Returns where a data file is looked for: at `path`, and, if that is relative, also in the folder of datasets."""
    path = path.expanduser()
    return [path] if path.is_absolute() else [path, find_data_folder(data_dir) / path]


def npz_dataset(
    path: Path,
    *,
    seed: int = 0,
    validation: float = 0.0,
    test: float = 0.2,
    own_test: bool = True,
    data_dir: str | Path | None = None,
    targets: str = "classes",
) -> Dataset:
    """Returns the dataset in one `.npz` file, written for example with `np.savez_compressed(path, x=x, y=y)`.

    The file has arrays `x` and `y`, or `x_train` and `y_train`, and optionally `x_test` and `y_test`. Without these,
    a share `test` of the other examples becomes test examples. If `own_test` is false, the test examples that would be
    used (the file's, or that share) are discarded, and a share `test` of the rest becomes test examples.
    `owner` or `owner_train` optionally gives the natural owner of each example, and `num_classes`, an integer, the
    number of classes, if that is
    more than the largest label says. Or the file has recordings: `audio`, `offset`, `label`,
    `sample_rate` and optionally `speaker`; they become log-mel spectrograms with the speaker as natural owner, see
    `speech.read_recordings`. Other arrays are ignored. A relative path that does not exist is looked for in
    `find_data_folder(data_dir)`. `y` has targets of the kind that `targets` names.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not an `.npz` file, or its arrays are missing or cannot be used.
    """
    path, places = path.expanduser(), list_places(path, data_dir)
    there = [place for place in places if place.is_file()]
    if not there:
        beside = [p for place in places if place.parent.is_dir() for p in place.parent.glob("*.npz")]
        near = difflib.get_close_matches(path.name, [p.name for p in beside], n=1)
        hint = f"; did you mean {next(p for p in beside if p.name == near[0])}?" if near else ""
        raise FileNotFoundError(f"no file {' or '.join(map(str, places))}{hint}")
    path = there[0]
    arrays = _read(path)
    if speech.has_audio(arrays):
        if unread := sorted({"x_train", "x_test", "y_test"} & arrays.keys()):
            raise ValueError(f"{path} holds recordings and {unread[0]}; test recordings are drawn from all (data.test)")
        x, y, owner = speech.read_recordings(str(path), arrays)
        return dataset(
            path.stem,
            x,
            y,
            test=test,
            validation=validation,
            aside=None if own_test else test,
            owner=owner,
            classes=read_count(path, arrays, targets),
            seed=seed,
            targets=targets,
        )
    if {"x", "x_train"} <= arrays.keys():
        raise ValueError(f"{path} holds both x and x_train; give all examples (x, y), or those of two sides apart")
    suffix = "" if {"x", "y"} <= arrays.keys() else "_train"
    missing = [key for key in (f"x{suffix}", f"y{suffix}") if key not in arrays]
    if missing:
        raise ValueError(
            f"{path} holds the arrays {', '.join(sorted(arrays)) or '(none)'}; needed are x, y, "
            "or x_train, y_train (and perhaps x_test, y_test), or audio, offset, label, sample_rate (recordings)"
        )
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise ValueError(f"{path} holds only one of x_test and y_test; needed are both, or neither")
    has_own = "x_test" in arrays
    return dataset(
        path.stem,
        arrays[f"x{suffix}"],
        arrays[f"y{suffix}"],
        test=(arrays["x_test"], arrays["y_test"]) if own_test and has_own else test,
        validation=validation,
        aside=None if own_test or has_own else test,
        owner=next((arrays[key] for key in (f"owner{suffix}", "owner", "owner_train") if key in arrays), None),
        classes=read_count(path, arrays, targets),
        seed=seed,
        targets=targets,
    )


def read_count(path: Path, arrays: dict[str, np.ndarray], targets: str) -> int | None:
    """Returns the number of classes that a file gives beside its examples; None: it gives none.

    Raises:
      ValueError: it gives one that is not a whole number.
    """
    if targets not in ("classes", "tokens") or "num_classes" not in arrays:
        return None
    count = arrays["num_classes"]
    if count.dtype.kind not in "iu" or count.size != 1:
        raise ValueError(f"{path}: num_classes is {show(count)}; it must be one integer, as np.int64(10)")
    return count.item()


def _read(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays that may belong to the dataset; all others are replaced by empty arrays."""
    name = None
    try:
        # Opened here because np.load does not close a file that it cannot read.
        with path.open("rb") as stream:
            start = stream.read(6)
            stream.seek(0)
            if not start.startswith(b"PK"):
                raise ValueError("it holds a single array" if start == b"\x93NUMPY" else "it is not an .npz archive")
            file = np.load(stream, allow_pickle=False)
            wanted = speech.ARRAYS | {"num_classes"} if speech.has_audio(file.files) else ROWS
            arrays = {}
            for name in file.files:
                arrays[name] = file[name] if name in wanted else np.empty(0)
            return arrays
    except BROKEN as error:
        where = f"array {name!r} of {path}" if name else str(path)
        raise ValueError(
            f"{where} cannot be read ({error}); an .npz archive without pickled objects is needed, "
            "and a file whose writing was cut short must be written again"
        ) from error
