"""A run's folder: what was asked, what came out, who was selected.

`config.yaml` reruns the run; `metrics.parquet` is long (round, seed, metric, value); `clients.parquet`, where the run
evaluates every client, has their metrics (round, seed, client, a column each); `selections.npz` holds every cohort;
`summary.json` the numbers a reader looks for first, `report.md`, `report.html` and `figures/` the same for the eye;
`checkpoints/` what an interrupted run goes on from. Every file is written whole or not at all. `config.yaml` comes
first and `summary.json` last: with the one but not the other, the run was interrupted.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedjax_sel.catalog import see
from fedjax_sel.config import Config, load_file, rename, resolve
from fedjax_sel.config.build import build_parts
from fedjax_sel.config.marks import drop_marks, has_mark
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.experiment import check_more_rounds
from fedjax_sel.engine.history import History
from fedjax_sel.report.environment import environment
from fedjax_sel.report.summary import render_page, summarize
from fedjax_sel.runs import files, formats, pretrained
from fedjax_sel.runs.files import CHECKPOINTS as CHECKPOINTS

CONFIG, METRICS, SELECTIONS, SUMMARY = "config.yaml", "metrics.parquet", "selections.npz", "summary.json"
CLIENTS = "clients.parquet"
FIGURES, REPORT, HTML, LOCK = "figures", "report.md", "report.html", ".lock"
MODELS = "models.npz"
"""The final models of all seeds, each array with a leading `R`, where they were asked for."""


class FolderError(ValueError):
    """A folder that cannot be used; nothing in it was touched."""


@see("docs/how-to/saved-runs.md")
def state(folder: str | Path) -> str:
    """Returns `"new"` (missing or empty), `"interrupted"` or `"finished"`.

    Raises:
      FolderError: it is not a run's folder.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; a folder is needed")
    try:
        inside = contents(folder)
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


def contents(folder: Path) -> list[str]:
    """Returns the names in a folder, in order, without the lock and what is being written."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.suffix != files.PART and path.name != LOCK)


@see("docs/how-to/saved-runs.md")
def check(folder: str | Path, config: Config, *, extend: bool = True, checkpoints: Path | None = None) -> str:
    """Returns the state of a folder in which `config` is to be run, or `"extended"`; touches nothing.

    Args:
      folder: of the run.
      config: what is to be run.
      extend: a finished run which only has fewer rounds, and can go on, is `"extended"`; False: it is refused.
      checkpoints: where those of a run that goes on are; None: in its folder.

    Raises:
      FolderError: it holds something else, a run of another configuration, or cannot be written.
    """
    folder, now = Path(folder), state(folder)
    if now != "new":
        written = read_config(folder, config)
        points = checkpoints or folder / CHECKPOINTS
        more = extend and written is not None and config.differences(written) == ["rounds"]
        done = written["rounds"] if more and written is not None else config["rounds"]
        if more and now == "finished":
            check_extension(folder, done, config, points)
            now = "extended"
        elif done < config["rounds"] and done in Checkpoints(points).rounds():
            check_strategies(folder, done, config)
            now = "extended"  # it was finished, and was stopped as it was about to be extended
        else:
            check_same(folder, config, written)
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise FolderError(f"{folder} cannot be written: {place} is {'read-only' if place.is_dir() else 'a file'}")
    return now


def read_config(folder: Path, config: Config) -> Config | None:
    """Returns a folder's configuration, complete; None: it is `config`. Raises `FolderError` if it cannot be read."""
    theirs = read_file(folder / CONFIG, load_file)
    if theirs == config.to_dict():
        return None
    # Of an earlier version, written by hand, or with a part of the user's whose source has changed since.
    known = read_file(folder / CONFIG, lambda _: resolve(drop_marks(theirs)))
    return Config({**known, **{key: part for key, part in theirs.items() if key in known and has_mark(part)}})


def check_extension(folder: Path, done: int, config: Config, checkpoints: Path) -> None:
    """Raises `FolderError` where the finished run in a folder, of `done` rounds, cannot go on to those of `config`."""
    had = read_file(folder / SUMMARY, lambda path: json.loads(path.read_text(encoding="utf-8"))["rounds"])
    if had < done <= config["rounds"]:
        raise FolderError(f"{folder} holds a run that a callback ended after {had} of {done} rounds; give another one")
    check_strategies(folder, done, config)
    if done not in Checkpoints(checkpoints).rounds():
        raise FolderError(
            f"{folder} holds a run of {done} rounds that kept no checkpoint of its end, so it cannot go on to "
            f"{config['rounds']}; run it anew in another folder"
        )


def check_strategies(folder: Path, done: int, config: Config) -> None:
    """Raises `FolderError` where a strategy of the run in a folder depends on how many rounds there are."""
    try:
        check_more_rounds(build_parts(config), done, config["rounds"])
    except ValueError as error:
        raise FolderError(f"{folder}: {error}") from error


def check_same(folder: Path, config: Config, written: Config | None) -> None:
    """Raises `FolderError` if a folder's configuration, as `read_config` gives it, is another one."""
    if written is not None and (differing := config.differences(written)):
        one, other = written.flat(), config.flat()
        shown = "; ".join(f"{k}: {one.get(k, 'absent')} there, {other.get(k, 'absent')} here" for k in differing)
        raise FolderError(f"{folder} holds a run of another configuration ({shown}); give another folder")


def create(folder: str | Path, config: Config, *, checkpoints: Path | None = None) -> str:
    """Returns the state of a folder, as `check` does; a new one is made, with its configuration.

    A finished run that is extended is one that was interrupted from now on.
    """
    folder, now = Path(folder), check(folder, config, checkpoints=checkpoints)
    if now == "extended":
        (folder / SUMMARY).unlink(missing_ok=True)  # first: with another configuration it would be a finished run's
        for name in (MODELS, pretrained.FILE):
            (folder / name).unlink(missing_ok=True)  # of the shorter run
    if now in ("new", "extended"):
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / CONFIG, config.dump())
    return now


def save(folder: str | Path, history: History, config: Config, *, figures: bool = True, models: bool = False) -> None:
    """Writes a finished run.

    Args:
      folder: new, or of an interrupted run of this configuration.
      history: all its rounds.
      config: that it was built from.
      figures: draw and write the report, too.
      models: write the final models, too.

    Raises:
      FolderError: the folder holds something else, or a finished run.
    """
    folder = Path(folder)
    if check(folder, config) in ("finished", "extended"):
        raise FolderError(f"{folder} holds a finished run, which is kept as it is; give another folder")
    create(folder, config)
    found = summarize(history)
    files.write_metrics(folder / METRICS, history)
    files.write_selections(folder / SELECTIONS, history)
    if history.client_metrics:
        files.write_clients(folder / CLIENTS, history)
    if models:
        formats.save_variables(folder / MODELS, history.variables)
    if figures:
        write_report(folder, history, config, found)
    summary = {
        "title": title(config, history.rounds),
        "rounds": history.rounds,
        "seeds": list(history.seeds),
        "clients": history.num_clients,
        "results": found,
        "seconds": history.about.get("seconds"),
        "environment": environment(),
        "about": history.about,
    }
    files.write_json(folder / SUMMARY, summary)


def write_report(folder: Path, history: History, config: Config, found: dict[str, Any]) -> None:
    """Writes a run's figures and its page."""
    from fedjax_sel.report.figures import plot_run  # late: matplotlib takes a second

    (folder / FIGURES).mkdir(exist_ok=True)
    for name, figure in plot_run(history):
        files.write_figure(folder / FIGURES / f"{name}.png", figure)
    files.write_text(folder / REPORT, render_page(title(config, history.rounds), found, config.dump(), history.about))
    write_html(folder, history, config.dump(), title(config, history.rounds))


def write_html(folder: Path, history: History, config: str, name: str) -> None:
    """Writes a run's overview, one file that needs no other."""
    from fedjax_sel.report.page import Page  # late, as above

    files.write_text(folder / HTML, Page(history, name, config, (f"folder: {folder}",)).to_html())


def read_environment(folder: Path) -> dict[str, Any]:
    """Returns where a finished run was computed: versions, device, commit."""
    return read_file(folder / SUMMARY, lambda path: json.loads(path.read_text(encoding="utf-8"))["environment"])


@see("docs/how-to/saved-runs.md")
def read(folder: str | Path) -> tuple[History, dict]:
    """Returns a finished run as it was saved (without the models), and its configuration, its keys by today's names.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: it is not a run's, or the run is not finished, or a file cannot be read.
    """
    folder = Path(folder)
    now = state(folder)
    if now == "new":
        raise FileNotFoundError(
            f"no run in {folder}: {'the folder is empty' if folder.is_dir() else 'no such folder'}; "
            "`fedjax-sel run PRESET --out FOLDER` makes one"
        )
    # Not resolved: its strategies need not be installed.
    config = read_file(folder / CONFIG, lambda path: rename(load_file(path))[0])
    if now == "interrupted":
        raise FolderError(f"the run in {folder} is not finished; run it again with the same configuration to go on")
    about = read_file(folder / SUMMARY, lambda path: json.loads(path.read_text(encoding="utf-8"))["about"])
    selections, seeds, clients, labels = read_file(folder / SELECTIONS, files.read_selections)
    metrics = read_file(folder / METRICS, lambda path: files.read_metrics(path, seeds, selections.shape[1]))
    own: tuple[dict, tuple] = ({}, ())
    if (folder / CLIENTS).is_file():
        own = read_file(folder / CLIENTS, lambda path: files.read_clients(path, seeds, clients))
    history = History(seeds, metrics, selections, clients, about, labels=labels)
    return replace(history, client_metrics=own[0], client_rounds=own[1]), config


def read_file(path: Path, reader: Callable[[Path], Any]) -> Any:
    """Returns what `reader` finds in a file, or raises an error that names the file."""
    try:
        return reader(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "it is missing" if missing else f"{type(error).__name__}: {error}"
        cure = f"remove {path.parent} and run it again"
        if path.name in (METRICS, SELECTIONS, CLIENTS) and Checkpoints(path.parent / CHECKPOINTS).rounds():
            cure = f"remove {path.parent / SUMMARY} and give the run's command again, which restores it"
        raise FolderError(f"{path} cannot be read ({reason}); {cure}") from error


def title(config: Config, rounds: int) -> str:
    """Returns a run in one line: data, client selection, cohort, rounds (of how many, where a callback ended it)."""
    data, selection = config["data"]["name"], config["client_selection"]["name"]
    count = f"{rounds}" if rounds == config["rounds"] else f"{rounds} of {config['rounds']}"
    return f"{data}, {selection}, m = {config['cohort_size']}, {count} rounds"
