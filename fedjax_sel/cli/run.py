"""Commands that run configurations: `run`, `sweep`, `pretrain`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from fedjax_sel.cli.app import LayoutName, Memory, Mesh, NoCache, Preset, command, parse_mesh, print_notes

if TYPE_CHECKING:
    from rich.table import Table

    from fedjax_sel.config import Config
    from fedjax_sel.engine.history import History

Distributed = Annotated[
    bool, typer.Option("--distributed", help="One of several processes; JAX finds the others (Slurm, TPU, Kubernetes).")
]
Coordinator = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address of the first of several processes.")
]
Processes = Annotated[int | None, typer.Option(help="How many processes there are.")]
ProcessNumber = Annotated[int | None, typer.Option(help="Number of this process, from 0.")]
NOTHING = "Nothing was run: the finished {} is in "


@command
def run(
    preset: Preset,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="As in client_selection=entropy client_selection.epsilon=0.2 cohort_size=5."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, side by side.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/NAME-HASH.")] = None,
    layout: LayoutName = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run without compilation, one client at a time; show tracebacks of errors.")
    ] = False,
    no_cache: NoCache = False,
    mesh: Mesh = None,
    memory: Memory = None,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process: ProcessNumber = None,
) -> None:
    """Run a configuration, resume an interrupted run, or give a finished run more rounds.

    Examples: `fedjax-sel run digits`, `fedjax-sel run digits selector=entropy m=5 --seeds 3`,
    `fedjax-sel run digits rounds=200 --out runs/mine`.
    """
    from fedjax_sel import config as configuration

    name, given = configuration.load(preset)
    config = resolve(given, overrides, {"seeds": seeds, "layout": layout, "mesh": parse_mesh(mesh)})
    start_distributed(distributed, coordinator, processes, process)
    place = out or Path("runs") / f"{name}-{config.fingerprint}{'-debug' if debug else ''}"
    run_and_show(name, config, place, no_cache=no_cache, debug=debug, memory=memory)


@command
def sweep(
    preset: Preset,
    axes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE,VALUE...",
            help="As in lr=0.01,0.1 client_selection=entropy,uniform; a single value holds for all.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds of every combination.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/sweep-NAME-HASH.")] = None,
    layout: LayoutName = None,
    mesh: Mesh = None,
    memory: Memory = None,
    no_cache: NoCache = False,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the final model of every run.")] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep checkpoints, so that the sweep can go on to more rounds.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw every run's figures now; otherwise, `show RUN` draws a run's.")
    ] = False,
) -> None:
    """Run or resume all combinations of some values; those that differ only in floats share one program.

    Example: `fedjax-sel sweep digits lr=0.01,0.1 selector=entropy,uniform --seeds 3`. With `--keep-checkpoints` and
    `--out FOLDER`, the same command with a larger `rounds=` gives a finished sweep more rounds.
    """
    from fedjax_sel import config as configuration
    from fedjax_sel.report import sweeps
    from fedjax_sel.runs.prepare import prepare_jax
    from fedjax_sel.runs.sweep import layout as of_sweep
    from fedjax_sel.runs.sweep.execute import execute_sweep
    from fedjax_sel.runs.sweep.grid import combinations

    name, given = configuration.load(preset)
    print_notes(given, axes)
    options = {"seeds": seeds, "layout": layout, "mesh": parse_mesh(mesh)}
    grid = combinations(given, axes or [], options)
    place = out or Path("runs") / f"sweep-{name}-{of_sweep.fingerprint(grid)}"
    of_sweep.check(place, grid)
    finished = of_sweep.is_complete(place, grid)
    prepare_jax(mesh=grid[0].config["mesh"], cache=not no_cache)
    table = execute_sweep(
        name, grid, place, memory=memory, keep_models=keep_models, keep_checkpoints=keep_checkpoints, figures=figures
    )
    said = NOTHING.format("sweep") if finished else "The sweep is in "
    print_end(Console(), sweeps.build_table(name, table, list(grid[0].values)), said, place)


@command
def pretrain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="See `list`.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="As in local_training.batch_size=64 data.num_examples=20000."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Examples to train on, all in one place (default: digits).")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the examples (default: 10).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/pretrain-MODEL-HASH.")] = None,
    no_cache: NoCache = False,
) -> None:
    """Train a model on examples in one place, and keep its variables for other runs to start from."""
    from fedjax_sel.runs.sweep.grid import ODD

    given = {**CENTRAL, "data": {"name": "digits"}, "rounds": 10}
    config = resolve(given, overrides, {"data": data, "model": model, "rounds": epochs}, {"rounds": "epochs"})
    place = out or Path("runs") / f"pretrain-{ODD.sub('-', model)}-{config.fingerprint}"
    run_and_show(f"pretrain {model}", config, place, no_cache=no_cache, keep_variables=True)
    shown = " ".join([f"model={model}", *(one for one in overrides or () if one.startswith("model."))])
    Console().print(
        f"Other runs begin with it by [bold]{escape(shown)} model.pretrained={place}[/], and keep parts of it as they "
        "are by model.frozen=\\[NAME, ...]",
        soft_wrap=True,
        highlight=False,
    )


CENTRAL: dict[str, Any] = {
    "partition": {"name": "iid", "clients": 1},
    "cohort_size": 1,
    "seeds": 1,
    "local_training": {
        "name": "sgd",
        "learning_rate": 0.1,
        "batch_size": 128,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "schedule": {"name": "cosine"},
    },
}
"""Central training: a federation of one client, whose rounds are epochs."""


def resolve(
    given: dict, overrides: list[str] | None, options: dict[str, Any], flags: Mapping[str, str] = MappingProxyType({})
) -> Config:
    """Returns the complete configuration with the command line's changes, and prints keys that have other names.

    Args:
      given: the configuration before.
      overrides, options: as for `config.override`.
      flags: by key, the names of the options that are named differently from their keys.
    """
    from fedjax_sel import config as configuration

    print_notes(given, overrides)
    return configuration.resolve(configuration.override(given, overrides or [], options, flags))


def start_distributed(distributed: bool, coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Makes this one of several processes if the options ask for it."""
    if distributed or not (coordinator is processes is process is None):
        from fedjax_sel.engine.distributed import init_distributed

        if coordinator and processes:
            said = f"waiting for {processes} processes at {coordinator}, for five minutes at most"
            Console(stderr=True).print(said, highlight=False, soft_wrap=True)
        init_distributed(coordinator, processes, process)


def run_and_show(name: str, config: Config, place: Path, *, no_cache: bool, **how: Any) -> History:
    """Executes a configuration in a folder and prints the result; `how` is passed to `runs.execute.execute`."""
    from fedjax_sel.engine.distributed import is_first
    from fedjax_sel.report import summary
    from fedjax_sel.runs import layout
    from fedjax_sel.runs.execute import execute
    from fedjax_sel.runs.prepare import prepare_jax

    finished = layout.check(place, config) == "finished"
    prepare_jax(mesh=config["mesh"], cache=not no_cache)
    history = execute(name, config, place, **how)
    table = summary.build_table(layout.title(config, history.rounds), summary.summarize(history))
    print_end(Console(quiet=not is_first()), table, NOTHING.format("run") if finished else "The run is in ", place)
    return history


def print_end(console: Console, table: Table, said: str, place: Path) -> None:
    """Prints the final table of a command, and where everything is."""
    console.print(table)
    console.print(Text.assemble(said, (str(place), "bold")), soft_wrap=True)
