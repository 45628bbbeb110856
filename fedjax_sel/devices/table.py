"""Devices and availability from tables: one line per client, or one line per round."""

from __future__ import annotations

import csv
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.catalog import check_name
from fedjax_sel.devices.availability import Trace
from fedjax_sel.devices.profile import UNITS, DeviceProfile

OPTIONAL = ("radio",)
"""Columns that may be left out; `DeviceProfile.of` has their defaults."""


def from_csv(path: str | Path) -> DeviceProfile:
    r"""Returns the devices of `N` clients; the device of client `i` is the `i`-th line below the header.

    The header names the columns `compute, efficiency, memory, up, down` and, optionally, `radio`, in any order; units
    are those of `DeviceProfile`.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a column is missing, unknown or repeated, a cell is not a number, or a number is not allowed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "phones.csv"
    >>> _ = file.write_text("compute,efficiency,memory,up,down\n1e9,1e9,2e9,1e6,4e6\n4e9,1e9,2e9,1e6,4e6\n")
    >>> from_csv(file).num_clients
    2
    """
    lines = cells(path)
    if len(lines) < 2:
        raise ValueError(f"{path}: {len(lines)} lines that are not empty; a header and one line a client are needed")
    (_, header), *lines = lines
    for name in header:
        check_name(f"column in {path}:", name, UNITS)
    missing = [name for name in UNITS if name not in header and name not in OPTIONAL]
    if missing or len(set(header)) < len(header):
        raise ValueError(
            f"{path}: the columns are {', '.join(header)}; needed, once each, are "
            f"{', '.join(n for n in UNITS if n not in OPTIONAL)}"
            + (f" (missing: {', '.join(missing)})" if missing else "")
        )
    columns: dict[str, Any] = {name: [] for name in header}
    for number, line in lines:
        if len(line) != len(header):
            raise ValueError(f"{path}, line {number}: {len(line)} cells, but the header names {len(header)} columns")
        for name, cell in zip(header, line, strict=True):
            try:
                columns[name].append(float(cell))
            except ValueError:
                raise ValueError(
                    f"{path}, line {number}: {name} is {cell!r}; it must be a number ({UNITS[name]})"
                ) from None
    try:
        return DeviceProfile.of(**columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def trace_from_csv(path: str | Path) -> Trace:
    r"""Returns which clients were available in which round.

    The table has one line per round, with `0` or `1` for each of the `N` clients, and no header.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is empty, its lines differ in length, or a cell is neither 0 nor 1.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "trace.csv"
    >>> _ = file.write_text("1,0,1\n1,1,0\n")
    >>> trace_from_csv(file).present.tolist()
    [[True, False, True], [True, True, False]]
    """
    lines = cells(path)
    if not lines:
        raise ValueError(f"{path} is empty; one line a round, 0 or 1 for each client, is needed")
    clients = len(lines[0][1])
    for number, line in lines:
        wrong = [cell for cell in line if cell not in ("0", "1")]
        if wrong or len(line) != clients:
            what = f"a cell is {wrong[0]!r}" if wrong else f"{len(line)} cells, but {clients} in the lines above"
            raise ValueError(f"{path}, line {number}: {what}; one 0 or 1 for each client is needed")
    return Trace(np.array([[cell == "1" for cell in line] for _, line in lines]))


def trace_from_file(path: str | Path) -> Trace:
    r"""Returns which clients were available in which round, from `.csv` (`trace_from_csv`), `.npy` or `.npz`.

    The array is `[rounds, N]`, of true and false or of 0 and 1; an `.npz` file holds no other array.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it has another suffix, or holds something else.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "trace.npz"
    >>> np.savez(file, np.array([[1, 0], [1, 1]]))
    >>> trace_from_file(file).present.tolist()
    [[True, False], [True, True]]
    """
    path = Path(path).expanduser()
    if path.suffix == ".csv":
        return trace_from_csv(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    if path.suffix not in (".npy", ".npz"):
        raise ValueError(f"{path}: a trace is a file .csv, .npy or .npz, not {path.suffix or 'one without a suffix'}")
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy's arrays ({error})") from error
    if len(arrays) != 1:
        raise ValueError(f"{path} holds {', '.join(arrays) or 'no array'}; one array [rounds, N] is needed")
    (table,) = arrays.values()
    wanted = "one array [rounds, N] of 0 and 1, or of true and false, is needed"
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {table.dtype} of shape {table.shape}; {wanted}")
    if (other := table[~np.isin(table, (0, 1))]).size:
        raise ValueError(f"{path} holds {other[0]}; {wanted}")
    return Trace(table.astype(bool))


def cells(path: str | Path) -> list[tuple[int, list[str]]]:
    """Returns the lines of a table, each with its number; lines without a comma or text are left out.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not text.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte-order mark
            lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a table of comma-separated values ({error})") from error
    return [(number, line) for number, line in enumerate(lines, 1) if len(line) > 1 or any(line)]
