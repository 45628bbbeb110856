"""The folder of a run: its configuration, its results, and the clients that it selected.

`config.yaml` reproduces the run; `metrics.parquet` is in long format (round, seed, metric, value); `clients.parquet`,
if the run evaluates every client, has their metrics (round, seed, client, one column per metric); `selections.npz`
holds every cohort; `summary.json` the numbers a reader looks for first, and `report.md`, `report.html` and `figures/`
present them; `checkpoints/` is what an interrupted run resumes from. Every file is written atomically. `config.yaml` is
written first and `summary.json` last: a folder with the former but not the latter holds an interrupted run.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedjax_sel.catalog import see
from fedjax_sel.config import Config, dump, is_same, load_file, rename, resolve
from fedjax_sel.config.build import build_parts
from fedjax_sel.config.marks import drop_marks, has_mark
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.disk import find_obstacle
from fedjax_sel.engine.experiment import check_more_rounds
from fedjax_sel.engine.history import History
from fedjax_sel.report.curves import CURVES
from fedjax_sel.report.environment import environment
from fedjax_sel.report.summary import render_page, summarize
from fedjax_sel.runs import files, formats, pretrained
from fedjax_sel.runs.files import CHECKPOINTS as CHECKPOINTS

CONFIG, METRICS, SELECTIONS, SUMMARY = "config.yaml", "metrics.parquet", "selections.npz", "summary.json"
CLIENTS = "clients.parquet"
SWEEP = "sweep.yaml"
"""The file that says what a sweep is, in its folder."""

FIGURES, REPORT, HTML, LOCK = "figures", "report.md", "report.html", ".lock"
DRAWN = (*(curve.name(of) for of in ("accuracy", "loss") for curve in CURVES), "clients")
"""The figures that a run can have."""

ENVIRONMENTS = "environments.json"
"""Versions, device and commit of each process that took part in a run that is not finished."""

EXPORTED = "model-seed-"
"""Prefix of exported models in the run's folder."""

MODELS = pretrained.MODELS
"""The final models of all seeds, each array with a leading axis `R`; written on request."""


class FolderError(ValueError):
    """Raised for a folder that cannot be used; nothing in it was changed."""


@see("docs/how-to/saved-runs.md")
def state(folder: str | Path) -> str:
    """Returns `"new"` (missing or empty), `"interrupted"` or `"finished"`.

    Raises:
      FolderError: it is not a folder of a run.
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
            f"{folder} is not a run's folder: it has no {CONFIG}, but other files ({', '.join(inside[:3])}"
            f"{', ...' if len(inside) > 3 else ''}); give a run's folder, or a new one"
        )
    return "finished" if SUMMARY in inside else "interrupted"


def contents(folder: Path) -> list[str]:
    """Returns the sorted names in a folder, without the lock and files that are being written."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.suffix != files.PART and path.name != LOCK)


@see("docs/how-to/saved-runs.md")
def check(folder: str | Path, config: Config, *, extend: bool = True, checkpoints: Path | None = None) -> str:
    """Returns the state of a folder in which `config` is to be run, or `"extended"`; changes nothing.

    Args:
      folder: the folder of the run.
      config: the configuration to run. The source of its callbacks may have changed if the run is not finished.
      extend: if true, a finished run that differs only in having fewer rounds, and can be continued, is `"extended"`;
        if false, it raises an error.
      checkpoints: the folder of the checkpoints to resume from; None: in the run's folder.

    Raises:
      FolderError: it holds something else or a run of another configuration, or cannot be written.
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
            now = "extended"  # the run was finished, and was stopped just as it was being extended
        elif now == "finished" or not differ_in_callbacks(config, written):
            check_same(folder, config, written)
    if now == "finished":  # nothing is written
        return now
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise FolderError(f"{folder} cannot be written: {place} is {'read-only' if place.is_dir() else 'a file'}")
    if reason := find_obstacle(folder):
        raise FolderError(f"{folder} cannot be written ({reason}); give another folder")
    return now


def read_config(folder: Path, config: Config) -> Config | None:
    """Returns a folder's complete configuration, or None if it equals `config`; `FolderError` if it cannot be read."""
    theirs = read_file(folder / CONFIG, load_file)
    if is_same(theirs, config.to_dict()):
        return None
    # It is from an earlier version, written by hand, or names a user's component whose source has changed since.
    return read_file(folder / CONFIG, lambda _: complete_written(theirs))


def complete_written(written: Mapping[str, Any]) -> Config:
    """Returns a written configuration, completed, with its marks; raises `ValueError` if it cannot be completed."""
    known = resolve(drop_marks(written))
    return Config({**known, **{key: part for key, part in written.items() if key in known and has_mark(part)}})


def check_extension(folder: Path, done: int, config: Config, checkpoints: Path) -> None:
    """Raises `FolderError` if a folder's finished run, of `done` rounds, cannot be continued to those of `config`."""
    had = read_file(folder / SUMMARY, lambda path: files.read_json(path)["rounds"])
    if had < done <= config["rounds"]:
        raise FolderError(f"{folder} holds a run that a callback ended after {had} of {done} rounds; give another one")
    check_strategies(folder, done, config)
    if done not in Checkpoints(checkpoints).rounds():
        raise FolderError(
            f"{folder} holds a run of {done} rounds that kept no checkpoint of its end, so it cannot go on to "
            f"{config['rounds']}; run it anew in another folder"
        )


def check_strategies(folder: Path, done: int, config: Config) -> None:
    """Raises `FolderError` if a strategy of the run in a folder depends on the total number of rounds."""
    try:
        check_more_rounds(build_parts(config), done, config["rounds"])
    except ValueError as error:
        raise FolderError(f"{folder}: {error}") from error


def check_same(folder: Path, config: Config, written: Config | None) -> None:
    """Raises `FolderError` if a folder's configuration, as `read_config` returns it, differs from `config`."""
    if written is not None and (differing := config.differences(written)):
        shown, cure = show_differences(config, written, differing), ""
        if differing == ["seeds"] and (more := [seed for seed in config.seeds if seed not in written.seeds]):
            others = ",".join(map(str, more if len(more) < 5 else [*more[:2], "...", more[-1]]))
            cure = f'; to add seeds to it, run the others alone ("seeds=[{others}]"), and `fedjax-sel join` both'
        raise FolderError(f"{folder} holds a run of another configuration ({shown}); give another folder{cure}")


def differ_in_callbacks(config: Config, written: Config | None) -> bool:
    """Returns whether only the source of the user's callbacks has changed, which leaves what was computed as it is."""
    if written is None or not (differing := config.differences(written)):
        return False
    both = config.flat().keys() & written.flat().keys()
    return all(key in both and key.startswith("callbacks.") and config.name_marked(key) for key in differing)


def show_differences(config: Config, other: Config, keys: Sequence[str]) -> str:
    """Returns what a message says of the keys in which a configuration differs from another one, which is "there"."""
    there, here = other.flat(), config.flat()
    both = [key for key in keys if key in there and key in here]
    shown = "; ".join(f"{key}: {there.get(key, 'absent')} there, {here.get(key, 'absent')} here" for key in keys)
    return shown + "".join(f"; {what} has changed since" for what in map(config.name_marked, both) if what)


def create(folder: str | Path, config: Config, *, checkpoints: Path | None = None) -> str:
    """Returns the state of a folder, as `check` does, and creates a new folder with its configuration.

    A finished run that is extended counts as interrupted from then on. The environment of this process is noted if it
    differs from that of the process before.
    """
    folder, now = Path(folder), check(folder, config, checkpoints=checkpoints)
    if now != "finished":
        if now != "extended":  # an interrupted run may go on with a callback that was mended
            folder.mkdir(parents=True, exist_ok=True)
            files.write_text(folder / CONFIG, config.dump())
        environments = [] if now == "new" else read_environments(folder)
        if environments[-1:] != (today := [environment()]):
            environments += today
        files.write_json(folder / ENVIRONMENTS, environments)
    if now == "extended":
        (folder / SUMMARY).unlink(missing_ok=True)  # first, or the new configuration would look like a finished run
        drawn = (folder / FIGURES / f"{name}.png" for name in DRAWN)
        written = (folder / name for name in (MODELS, pretrained.FILE, REPORT, HTML))
        for path in (*written, *drawn, *list_exported(folder, config)):
            if path.is_dir() and not path.is_symlink():  # it belongs to the shorter run
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        files.write_text(folder / CONFIG, config.dump())
    return now


def list_exported(folder: Path, config: Config) -> list[Path]:
    """Returns the exported models in the folder of a run, in every format."""
    paths = (folder / f"{EXPORTED}{seed}{end}" for seed in config.seeds for end in formats.ENDINGS.values())
    return [path for path in paths if path.exists() or path.is_symlink()]


def save(
    folder: str | Path,
    history: History,
    config: Config,
    *,
    figures: bool = True,
    models: bool = False,
    environments: Sequence[dict[str, Any]] = (),
) -> None:
    """Writes a finished run.

    Args:
      folder: a new folder, or that of an interrupted run of this configuration.
      history: the history of all its rounds.
      config: the configuration that it was built from.
      figures: whether to draw figures and write the report, too; if not, `fedjax-sel show` does so later.
      models: whether to write the final models, too.
      environments: those of the processes that ran it, as `read_environments` returns them; none: this process, after
        those that the folder has noted.

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
    *earlier, last = environments or read_environments(folder)
    summary = {
        "title": title(config, history.rounds),
        "rounds": history.rounds,
        "seeds": list(history.seeds),
        "clients": history.num_clients,
        "results": found,
        "seconds": history.about.get("seconds"),
        "environment": last,
        "about": history.about,
    }
    if earlier := [one for one, after in pairwise([*earlier, last]) if one != after]:
        summary["earlier_environments"] = earlier
    files.write_json(folder / SUMMARY, summary)
    (folder / ENVIRONMENTS).unlink(missing_ok=True)


def write_report(folder: Path, history: History, config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Writes a run's figures and its pages, `report.html` last."""
    from fedjax_sel.report.figures import plot_run  # imported here because matplotlib takes a second
    from fedjax_sel.report.page import Page

    (folder / FIGURES).mkdir(exist_ok=True)
    for name, figure in plot_run(history):
        files.write_figure(folder / FIGURES / f"{name}.png", figure)
    shown = dump(config)
    files.write_text(folder / REPORT, render_page(title(config, history.rounds), found, shown, history.about))
    page = Page(history, title(config, history.rounds), shown, (f"folder: {folder}",))
    files.write_text(folder / HTML, page.to_html())


def read_environments(folder: Path) -> list[dict[str, Any]]:
    """Returns the environments (versions, device, commit) of the processes that ran a run, in the order of its rounds.

    Consecutive ones differ. Earlier versions noted only the last.
    """
    if (folder / SUMMARY).exists():
        summary = read_file(folder / SUMMARY, files.read_json)
        return [*summary.get("earlier_environments", []), summary["environment"]]
    if not (folder / ENVIRONMENTS).exists():
        return []
    return read_file(folder / ENVIRONMENTS, files.read_json)


def read_commit(folder: Path) -> str | None:
    """Returns the commit that ran a finished run, or several joined by "then"; None: it was not run from a checkout."""
    commits = [one.get("commit") for one in read_environments(folder)]
    several = list(dict.fromkeys(commits))
    return several[0] if len(several) == 1 else " then ".join(commit or UNKNOWN for commit in several)


UNKNOWN = "an unknown commit"
"""The commit of a part of a run that was not run from a checkout."""


@see("docs/how-to/saved-runs.md")
def read(folder: str | Path) -> tuple[History, dict]:
    """Returns a finished run as it was saved (without the models), and its configuration under the current key names.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: it is not a folder of a run, the run is not finished, or a file cannot be read.
    """
    folder = Path(folder)
    now = state(folder)
    if now == "new":
        raise FileNotFoundError(
            f"no run in {folder}: {'the folder is empty' if folder.is_dir() else 'no such folder'}; "
            "`fedjax-sel run PRESET --out FOLDER` makes one"
        )
    # Not resolved, since its strategies need not be installed.
    config = read_file(folder / CONFIG, lambda path: rename(load_file(path))[0])
    if now == "interrupted":
        raise FolderError(f"the run in {folder} is not finished; run it again with the same configuration to go on")
    about = read_file(folder / SUMMARY, lambda path: files.read_json(path)["about"])
    selections, seeds, clients, labels = read_file(folder / SELECTIONS, files.read_selections)
    metrics = read_file(folder / METRICS, lambda path: files.read_metrics(path, seeds, selections.shape[1]))
    own: tuple[dict, tuple] = ({}, ())
    if (folder / CLIENTS).is_file():
        own = read_file(folder / CLIENTS, lambda path: files.read_clients(path, seeds, clients))
    history = History(seeds, metrics, selections, clients, about, labels=labels)
    return replace(history, client_metrics=own[0], client_rounds=own[1]), config


def read_file(path: Path, reader: Callable[[Path], Any]) -> Any:
    """Returns what `reader` returns for a file, or raises an error that names the file."""
    try:
        return reader(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "it is missing" if missing else f"{type(error).__name__}: {error}"
        cure = f"remove {path.parent} and run it again"
        if path.name != CONFIG and Checkpoints(path.parent / CHECKPOINTS).rounds():
            name = path.name if path.name == ENVIRONMENTS else SUMMARY
            cure = f"remove {path.parent / name} and give the run's command again, which goes on from its checkpoint"
        elif path.name == CONFIG and contents(path.parent / CHECKPOINTS):
            cure = f"copy one there that the run's command writes into another folder, or {cure}"
        elif path.name != SWEEP and (path.parent / SWEEP).exists():
            cure = f"remove {path.parent / SUMMARY} and give the sweep's command again, which writes it anew"
        raise FolderError(f"{path} cannot be read ({reason}); {cure}") from error


def title(config: Config | Mapping[str, Any], rounds: int) -> str:
    """Returns a one-line title: data, client selection, cohort, rounds (of how many, if a callback ended the run)."""
    data, selection = config["data"]["name"], config["client_selection"]["name"]
    count = f"{rounds}" if rounds == config["rounds"] else f"{rounds} of {config['rounds']}"
    return f"{data}, {selection}, m = {config['cohort_size']}, {count} rounds"
