"""Reads and writes the files of a run; each is written atomically and read back to the same arrays."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedjax_sel.engine.disk import room
from fedjax_sel.engine.history import History

CHECKPOINTS = "checkpoints"
"""The subfolder of a run's folder that an interrupted run resumes from."""

PART = ".part"
"""Suffix of a file that is being written; a killed process may leave one behind."""

OF_NUMBERS = re.compile(r"\[\n([^\[\]{}\"]*)\]")
"""What is in an array of numbers of indented JSON; a line's end within a string is written as `\\n`."""


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` to write to; it is renamed to `path` on success, and removed on failure.

    Raises:
      DiskFull: the disk has no room for the file.
    """
    with room(path.parent):
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        except OSError as error:
            error.filename = str(path)  # which the user knows
            raise
        os.close(handle)
        new = Path(name)
        try:
            yield new
            with open(new, "rb+") as file:
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            new.chmod(0o666 & ~mask)  # mkstemp's files are private
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file."""
    with write_atomic(path) as new:
        new.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON, each array of numbers on one line; numbers that JSON cannot represent become null."""
    text = json.dumps(to_jsonable(value), indent=1, allow_nan=False)
    write_text(path, OF_NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


def to_jsonable(value: Any) -> Any:
    """Returns a value that JSON can represent: arrays become lists, keys strings, and non-finite numbers None."""
    if isinstance(value, dict):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_jsonable(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_figure(path: Path, figure: Any) -> None:
    """Writes a matplotlib figure in the format of the path's suffix, and closes it."""
    from matplotlib import pyplot as plt  # imported here, as in `History.plot`

    with write_atomic(path) as new:
        figure.savefig(new, dpi=110, format=path.suffix[1:].lower())
    plt.close(figure)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Writes a table, without its index, as Parquet; Arrow gets a file, as it knows no path that is not UTF-8."""
    with write_atomic(path) as new, new.open("wb") as file:
        table.to_parquet(file, index=False)


def read_parquet(path: Path) -> pd.DataFrame:
    """Returns a table that `write_parquet` wrote."""
    with path.open("rb") as file:
        return pd.read_parquet(file)


def write_metrics(path: Path, history: History) -> None:
    """Writes every metric as Parquet in long format: round, seed, metric, value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(history.to_pandas(), preserve_index=False)
    kept = {"rounds": history.rounds, "metrics": {name: str(a.dtype) for name, a in history.metrics.items()}}
    described = table.replace_schema_metadata({"fedjax_sel": json.dumps(kept), **(table.schema.metadata or {})})
    with write_atomic(path) as new, new.open("wb") as file:
        pq.write_table(described, file)


def read_metrics(path: Path, seeds: tuple[int, ...], rounds: int) -> dict[str, np.ndarray]:
    """Returns the metrics that `write_metrics` wrote, each [R, T].

    Raises:
      ValueError: the file is for another number of rounds.
    """
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        table = pq.read_table(file)
    kept = json.loads((table.schema.metadata or {})[b"fedjax_sel"])
    if kept["rounds"] != rounds:
        raise ValueError(f"it has {kept['rounds']} rounds, but the selections have {rounds}")
    long, place, metrics = table.to_pandas(), {seed: i for i, seed in enumerate(seeds)}, {}
    groups: dict[Any, pd.DataFrame] = dict(iter(long.groupby("metric")))
    for name, dtype in kept["metrics"].items():
        whole = np.full((len(seeds), rounds), np.nan)
        if name in groups:
            rows = groups[name]
            whole[[place[seed] for seed in rows["seed"]], rows["round"].to_numpy() - 1] = rows["value"]
        metrics[name] = whole.astype(dtype)
    return metrics


def write_clients(path: Path, history: History) -> None:
    """Writes every client's metrics as Parquet: round, seed, client, and one column per metric."""
    write_parquet(path, history.clients_to_pandas())


def read_clients(path: Path, seeds: tuple[int, ...], clients: int) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Returns every client's metrics [R, E, N] that `write_clients` wrote, and the `E` rounds, counted from 1.

    Raises:
      ValueError: the file is for other seeds or clients.
    """
    table = read_parquet(path)
    rounds = tuple(int(t) for t in table["round"].unique())
    shape = (len(seeds), len(rounds), clients)
    if len(table) != np.prod(shape):
        raise ValueError(f"it has {len(table)} rows, not those of {len(seeds)} seeds and {clients} clients")
    names = [name for name in table.columns if name not in ("round", "seed", "client")]
    return {name: table[name].to_numpy().reshape(shape) for name in names}, rounds


def write_selections(path: Path, history: History) -> None:
    """Writes every cohort, and the label distribution if it is known."""
    arrays: dict[str, Any] = {
        "selections": history.selections,
        "seeds": np.asarray(history.seeds),
        "clients": history.num_clients,
    }
    if history.labels is not None:
        arrays["labels"] = history.labels
    with write_atomic(path) as new, open(new, "wb") as file:
        np.savez_compressed(file, **arrays)


def read_selections(path: Path) -> tuple[np.ndarray, tuple[int, ...], int, np.ndarray | None]:
    """Returns the cohorts [R, T, m] of `write_selections`, seeds, number of clients, and labels [N, C] or None."""
    with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        labels = file["labels"] if "labels" in file.files else None
        return file["selections"], tuple(file["seeds"].tolist()), int(file["clients"]), labels
