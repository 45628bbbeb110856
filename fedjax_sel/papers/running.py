"""The cells and studies of a reproduction: what is finished in its folder is read, the rest is run and kept there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedjax_sel.config import Config, fingerprint
from fedjax_sel.config.marks import drop_marks
from fedjax_sel.engine.faults import find_faults, say_fault
from fedjax_sel.engine.history import History
from fedjax_sel.papers.measures import settle_history
from fedjax_sel.papers.paper import Cell, Histories, Paper, locate_cell
from fedjax_sel.report.environment import environment
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.execute import execute, say_on
from fedjax_sel.runs.files import read_json, to_jsonable, write_json


def find_finished(out: Path, cells: Sequence[Cell], configs: Sequence[Config]) -> list[bool]:
    """Returns whether each cell's run is finished."""
    return [layout.state(place) == "finished" for place in locate_runs(out, cells, configs).values()]


def run_cells(out: Path, cells: Sequence[Cell], configs: Sequence[Config], console: Console) -> Histories:
    """Returns the cells' histories, read if finished and run otherwise; a diverged seed's accuracy is that of guessing.

    Cells of one configuration that begin with the same model share one run.
    """
    places = locate_runs(out, cells, configs)
    begun_with = {places[cell.begins] for cell in cells if cell.begins is not None}
    known: dict[Path, History] = {}
    announced = False
    for number, (cell, config) in enumerate(zip(cells, configs, strict=True), start=1):
        place = places[cell.key]
        if place in known:
            continue
        new = layout.state(place) != "finished"
        known[place] = execute(
            f"{number}/{len(cells)} {cell.experiment}, {cell.method}",
            config,
            place,
            begin=pretrained.load(places[cell.begins]) if new and cell.begins is not None else None,
            figures=False,
            keep_checkpoints=False,  # a cell is never resumed, and SCAFFOLD's state is one model per client
            keep_variables=place in begun_with,
            announce=not announced,
            console=console,
            say=say_on(console),
            one_of=out,
        )
        announced |= new
    settled = {place: settle_history(history) for place, history in known.items()}
    return {key: settled[place] for key, place in places.items()}


def locate_runs(out: Path, cells: Sequence[Cell], configs: Sequence[Config]) -> dict[tuple[str, str], Path]:
    """Returns the folder of each cell's run, by key; cells that share a run have the first one's folder."""
    first: dict[tuple[str, ...], Path] = {}
    return {
        cell.key: first.setdefault(same, locate_cell(out, cell))
        for cell, same in zip(cells, identify_runs(cells, configs), strict=True)
    }


def identify_runs(cells: Sequence[Cell], configs: Sequence[Config]) -> list[tuple[str, ...]]:
    """Returns what identifies each cell's run: its configuration, and that of every cell that it builds on.

    Raises:
      ValueError: a cell begins with the model of a cell that does not come before it.
    """
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for cell, config in zip(cells, configs, strict=True):
        if cell.begins is not None and cell.begins not in out:
            raise ValueError(
                f"the cell {cell.key} begins with the model of {cell.begins}, which does not come before it"
            )
        out[cell.key] = (config.fingerprint, *(() if cell.begins is None else out[cell.begins]))
    return list(out.values())


def describe_cells(out: Path, cells: Sequence[Cell], configs: Sequence[Config], ran: Histories) -> list[dict[str, Any]]:
    """Returns each cell's experiment and method, its settings' fingerprint, the commit that ran it, and its faults."""
    places = locate_runs(out, cells, configs)
    return [
        {
            "experiment": cell.experiment,
            "method": cell.method,
            "settings": fingerprint_settings(config),
            "commit": layout.read_commit(places[cell.key]),
            **({"faults": faults} if (faults := [say_fault(one) for one in find_faults(ran[cell.key])]) else {}),
        }
        for cell, config in zip(cells, configs, strict=True)
    ]


def fingerprint_settings(config: Config) -> str:
    """Returns eight hexadecimal digits that differ if the settings of runs differ.

    Null parameters are left out, so that an option which is added later and not used changes nothing. Digests of the
    data are left out too, because the settings are known without the data; they are part of the cell's own
    configuration.
    """
    settings = Config(drop_marks(config)).flat()
    return fingerprint({key: value for key, value in settings.items() if value is not None})


def run_studies(
    out: Path, paper: Paper, scale: str, seeds: Sequence[int], console: Console, *, only_finished: bool = False
) -> dict[str, Any]:
    """Returns the studies' results, which are read if finished at this scale with these seeds, and computed otherwise.

    If a study that is read was made at another commit than today's, the terminal says so.

    Args:
      out: folder of the reproduction.
      paper, scale, seeds: of the reproduction.
      console: where progress is printed.
      only_finished: whether to leave out studies that are not finished.
    """
    found, today = {}, environment()["commit"]
    for name, study in paper.studies.items():
        place, asked = locate_study(out, name), {"scale": scale, "seeds": list(seeds)}
        kept = read_study(place)
        if {key: kept.get(key) for key in asked} != asked:
            if only_finished:
                continue
            with console.status(f"study: {name.replace('_', ' ')}"):
                kept = to_jsonable({**asked, "commit": today, "found": study(scale, seeds, out)})
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, kept)
            kept = read_study(place)  # so that it equals what later calls read
        elif not only_finished and kept.get("commit") != today:
            say_on(console)(
                f"The study {name} is read from {place}; it was made at {kept.get('commit') or 'an unknown commit'}. "
                "If its settings have changed since, delete that file, and it is made again."
            )
        found[name] = kept["found"]
    return found


def describe_studies(out: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Returns each study's name, and the commit that made it; None: it was not recorded."""
    return [{"name": name, "commit": read_study(locate_study(out, name)).get("commit")} for name in names]


def locate_study(out: Path, name: str) -> Path:
    """Returns the file of a study in a reproduction's folder."""
    return out / "studies" / f"{name}.json"


def read_study(place: Path) -> dict[str, Any]:
    """Returns the stored content of a study; an empty dictionary if it is not finished."""
    try:
        kept = read_json(place)
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and "found" in kept else {}
