"""A run's folder: what was asked, what came out, who was selected.

`config.yaml` reruns the run; `metrics.parquet` is long (round, seed, metric, value); `selections.npz` holds every
cohort; `summary.json` the numbers a reader looks for first, `report.md` and `figures/` the same for the eye;
`checkpoints/` what an interrupted run goes on from. Every file is written whole or not at all. `config.yaml` comes
first and `summary.json` last: with the one but not the other, the run was interrupted.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from fedjax_sel import config as configuration
from fedjax_sel.engine.disk import room
from fedjax_sel.engine.distributed import is_first
from fedjax_sel.engine.history import History
from fedjax_sel.report.environment import environment as environment
from fedjax_sel.report.summary import page, results

CONFIG, METRICS, SELECTIONS, SUMMARY = "config.yaml", "metrics.parquet", "selections.npz", "summary.json"
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
PART = ".part"  # ending of a file that is being written; a killed process may leave one


class FolderError(ValueError):
    """A folder that cannot be used; nothing in it was touched."""


def state(folder: str | Path) -> str:
    """`"new"` (missing or empty), `"interrupted"` or `"finished"`.

    Raises:
      FolderError: it is no run's folder.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; a folder is needed")
    try:
        inside = (
            sorted(path.name for path in folder.iterdir() if path.suffix != PART and path.name != LOCK)
            if folder.is_dir()
            else []
        )
    except OSError as error:
        raise FolderError(f"{folder} cannot be read: {error}") from error
    if not inside:
        return "new"
    if CONFIG not in inside:
        raise FolderError(
            f"{folder} is no run's folder: it has no {CONFIG}, but other files ({', '.join(inside[:3])}"
            f"{', ...' if len(inside) > 3 else ''}); give a run's folder, or a new one"
        )
    return "finished" if SUMMARY in inside else "interrupted"


def check(folder: str | Path, config: dict) -> str:
    """The state of a folder in which `config` is to be run; touches nothing.

    Raises:
      FolderError: it holds something else, a run of another configuration, or cannot be written.
    """
    folder, now = Path(folder), state(folder)
    if now != "new":
        theirs, mine = _config_in(folder), configuration.resolve(config)
        if differing := configuration.differences(theirs, mine):
            one, other = configuration.flat(theirs), configuration.flat(mine)
            shown = "; ".join(f"{k}: {one.get(k, 'absent')} there, {other.get(k, 'absent')} here" for k in differing)
            raise FolderError(f"{folder} holds a run of another configuration ({shown}); give another folder")
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise FolderError(f"{folder} cannot be written: {place} is {'read-only' if place.is_dir() else 'a file'}")
    return now


def begin(folder: str | Path, config: dict) -> str:
    """As `check`; a new folder is made, with its configuration."""
    folder, now = Path(folder), check(folder, config)
    if now == "new":
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / CONFIG, configuration.dump(configuration.resolve(config)))
    return now


@contextmanager
def held(folder: str | Path) -> Iterator[None]:
    """A folder, made where it is missing, for this process alone; however the process ends, it is free again.

    What killed processes left half-written in it is removed.

    Raises:
      FolderError: another process uses it.
    """
    folder = Path(folder)
    with room(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, blocking=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise FolderError(f"{folder} is used by another process; wait for it, or give another folder") from error
    try:
        for left in (*folder.glob(f".*{PART}"), *folder.glob(f"figures/.*{PART}")):
            left.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


class Hold:
    """A run's folder while this process uses it; another one is refused.

    A context, and a callback: a folder that is not there yet is made when the run begins, after everything was checked.
    Of several processes that run one program the first holds it.

    Args:
      folder: new, or of an interrupted run of this configuration.
      config: of the run.

    Raises:
      FolderError: another process uses it.
    """

    def __init__(self, folder: str | Path, config: dict):
        self.folder, self.config = Path(folder), config
        self._stack, self._has = ExitStack(), False

    def __enter__(self) -> Hold:
        if self.folder.is_dir() and is_first():
            self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def on_train_begin(self, history: History) -> None:
        """Make the folder."""
        check(self.folder, self.config)
        self._take()
        begin(self.folder, self.config)

    def _take(self) -> None:
        if not self._has:
            self._stack.enter_context(held(self.folder))
            self._has = True


def save(folder: str | Path, history: History, config: dict, *, figures: bool = True) -> None:
    """Write a finished run.

    Args:
      folder: new, or of an interrupted run of this configuration.
      history: all its rounds.
      config: that it was built from.
      figures: draw and write the report, too.

    Raises:
      FolderError: the folder holds something else, or a finished run.
    """
    folder = Path(folder)
    if begin(folder, config) == "finished":
        raise FolderError(f"{folder} holds a finished run, which is kept as it is; give another folder")
    config, found = configuration.resolve(config), results(history)
    with written(folder / METRICS) as new:
        _write_metrics(new, history)
    with written(folder / SELECTIONS) as new, open(new, "wb") as file:
        arrays = {"selections": history.selections, "seeds": np.asarray(history.seeds), "clients": history.num_clients}
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    if figures:
        _draw(folder / "figures", history)
        write_text(folder / "report.md", page(title(config), found, configuration.dump(config), history.about))
    summary = {
        "title": title(config),
        "rounds": history.rounds,
        "seeds": list(history.seeds),
        "clients": history.num_clients,
        "results": found,
        "seconds": history.about.get("seconds"),
        "environment": environment(),
        "about": history.about,
    }
    write_text(folder / SUMMARY, json.dumps(jsonable(summary), indent=1, allow_nan=False) + "\n")


def read(folder: str | Path) -> tuple[History, dict]:
    """A finished run as it was saved (without the models), and its configuration.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: it is no run's, or the run is not finished, or a file cannot be read.
    """
    folder = Path(folder)
    now = state(folder)
    if now == "new":
        raise FileNotFoundError(f"no run in {folder}: {'the folder is empty' if folder.is_dir() else 'no such folder'}")
    config = _readable(folder / CONFIG, configuration.load_file)  # as it was; its strategies need not be installed
    if now == "interrupted":
        raise FolderError(f"the run in {folder} is not finished; run it again with the same configuration to go on")
    about = _readable(folder / SUMMARY, lambda path: json.loads(path.read_text(encoding="utf-8"))["about"])
    selections, seeds, clients = _readable(folder / SELECTIONS, _read_selections)
    metrics = _readable(folder / METRICS, lambda path: _read_metrics(path, seeds, selections.shape[1]))
    return History(seeds, metrics, selections, clients, about), config


def title(config: dict) -> str:
    """A run in one line: data, selector, cohort, rounds."""
    return (
        f"{config['data']['name']}, {config['client_selection']['name']}, m = {config['m']}, {config['rounds']} rounds"
    )


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with written(path) as new:
        new.write_text(text, encoding="utf-8")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; what is there becomes `path` when all went well, and is removed when not.

    Raises:
      DiskFull: there is no room for it.
    """
    with room(path.parent):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
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


def jsonable(value: Any) -> Any:
    """The same for JSON: numbers it has no word for become null, arrays and their numbers plain."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _config_in(folder: Path) -> dict:
    return _readable(folder / CONFIG, lambda path: configuration.resolve(configuration.load_file(path)))


def _readable(path: Path, reader: Callable[[Path], Any]) -> Any:
    """What `reader` finds in a file, or an error that names the file."""
    try:
        return reader(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "it is missing" if missing else f"{type(error).__name__}: {error}"
        raise FolderError(f"{path} cannot be read ({reason}); remove {path.parent} and run it again") from error


def _write_metrics(path: Path, history: History) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(history.to_pandas(), preserve_index=False)
    kept = {"rounds": history.rounds, "metrics": {name: str(a.dtype) for name, a in history.metrics.items()}}
    pq.write_table(
        table.replace_schema_metadata({"fedjax_sel": json.dumps(kept), **(table.schema.metadata or {})}), path
    )


def _read_metrics(path: Path, seeds: tuple[int, ...], rounds: int) -> dict[str, np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    kept = json.loads((table.schema.metadata or {})[b"fedjax_sel"])
    if kept["rounds"] != rounds:
        raise ValueError(f"it has {kept['rounds']} rounds, but {SELECTIONS} {rounds}")
    long, place, metrics = table.to_pandas(), {seed: i for i, seed in enumerate(seeds)}, {}
    groups: dict[Any, pd.DataFrame] = dict(iter(long.groupby("metric")))
    for name, dtype in kept["metrics"].items():
        whole = np.full((len(seeds), rounds), np.nan)
        if name in groups:
            rows = groups[name]
            whole[[place[seed] for seed in rows["seed"]], rows["round"].to_numpy() - 1] = rows["value"]
        metrics[name] = whole.astype(dtype)
    return metrics


def _read_selections(path: Path) -> tuple[np.ndarray, tuple[int, ...], int]:
    with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        return file["selections"], tuple(file["seeds"].tolist()), int(file["clients"])


def _draw(folder: Path, history: History) -> None:
    from matplotlib import pyplot as plt  # late, as in `History.plot`

    folder.mkdir(exist_ok=True)
    drawn = [("accuracy", "round", "round"), ("accuracy_by_bytes", "bytes", "bytes, both ways")]
    if "seconds" in history.metrics:
        drawn += [("accuracy_by_seconds", "seconds", "simulated seconds"), ("accuracy_by_joules", "joules", "joules")]
    for name, x, xlabel in drawn:
        ax: Any = history.plot(x=x)
        ax.set_xlabel(xlabel)
        ax.grid(alpha=0.25)
        with written(folder / f"{name}.png") as new:
            ax.figure.savefig(new, dpi=110, format="png")
        plt.close(ax.figure)
