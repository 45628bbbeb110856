"""The command line: `fedjax-sel run`, `sweep`, `compare`, `reproduce`, `list`, `cite`."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from fedjax_sel.engine.disk import DiskFull

main = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning simulated in one XLA program: who should train, and on what.",
)
USERS = (ValueError, FileNotFoundError, PermissionError, DiskFull)
"""Errors that are about what was asked, not about this program."""


def version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        from fedjax_sel import __version__

        print(f"fedjax-sel {__version__}")
        raise typer.Exit


@main.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before a command."""


def command(function: Callable[..., None], name: str | None = None) -> Callable[..., None]:
    """Add a command whose user's errors are one red line and exit status 2; with `--debug`, a traceback."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except USERS as error:
            if named.get("debug"):
                raise
            message = "; ".join([str(error), *getattr(error, "__notes__", ())])
            Console(stderr=True).print(Text(f"error: {message}", style="red"), soft_wrap=True)
            raise left(2) from None
        except KeyboardInterrupt:
            raise left(130) from None
        except Exception as error:
            if several():
                traceback.print_exc()
                told = f"this process of several ends ({type(error).__name__}); another one may be gone"
                again = "the same commands go on from the last checkpoint"
                Console(stderr=True).print(Text(f"error: {told}; {again}", style="red"), soft_wrap=True)
                left(1)
            raise

    return main.command(name)(wrapped)


def several() -> bool:
    """Whether this is one of several processes."""
    jax = sys.modules.get("jax")  # not there before a command that runs something
    return jax is not None and jax.distributed.is_initialized()


def left(code: int) -> typer.Exit:
    """The end of a command that failed; one of several processes ends here."""
    if several():
        from fedjax_sel.engine.distributed import exit_process

        exit_process(code)
    return typer.Exit(code)


NoCache = Annotated[
    bool, typer.Option("--no-cache", envvar="FEDJAX_SEL_NO_CACHE", help="Do not keep compiled programs on disk.")
]


Mesh = Annotated[
    str | None, typer.Option(metavar="seeds=S,clients=C", help="Divide seeds and cohorts among S x C devices.")
]
Memory = Annotated[float | None, typer.Option(metavar="GIB", help="What a device may use; by default all it has.")]
Distributed = Annotated[
    bool, typer.Option("--distributed", help="One of several processes, which JAX finds (Slurm, TPU, Kubernetes).")
]
Coordinator = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of the first of several processes.")]
Processes = Annotated[int | None, typer.Option(help="How many processes there are.")]
ProcessNumber = Annotated[int | None, typer.Option(help="Which one this is, from 0.")]


def meshed(text: str | None) -> dict[str, int] | None:
    """`seeds=2,clients=4` as a layout; None: nothing was given."""
    if text is None:
        return None
    parts = [part.partition("=") for part in text.split(",")]
    mesh = {name.strip(): int(size) for name, _, size in parts if size.strip().isdigit()}
    if len(mesh) != len(parts):
        raise ValueError(f"--mesh is {text!r}; it must be of the form seeds=2,clients=4")
    return mesh


def joined(distributed: bool, coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Become one of several processes, where that is asked for."""
    if distributed or not (coordinator is processes is process is None):
        from fedjax_sel.engine.distributed import init_distributed

        init_distributed(coordinator, processes, process)


@command
def run(
    preset: Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `list`) or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="As in client_selection=entropy client_selection.epsilon=0.2 cohort_size=5."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, side by side.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/NAME-HASH.")] = None,
    layout: Annotated[str | None, typer.Option(help="auto, vmap or scan.")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Without compilation, one client at a time; errors with traceback.")
    ] = False,
    no_cache: NoCache = False,
    mesh: Mesh = None,
    memory: Memory = None,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process: ProcessNumber = None,
) -> None:
    """Run a configuration; go on with one that was interrupted."""
    from fedjax_sel import config as configuration
    from fedjax_sel.running import run_in_folder

    name, given = configuration.load(preset)
    config = overridden(given, overrides, {"seeds": seeds, "layout": layout, "mesh": meshed(mesh)})
    joined(distributed, coordinator, processes, process)
    place = out or Path("runs") / f"{name}-{configuration.fingerprint(config)}{'-debug' if debug else ''}"
    run_in_folder(name, config, place, debug=debug, no_cache=no_cache, memory=memory)


@command
def sweep(
    preset: Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `list`) or a YAML file.")],
    axes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE,VALUE...",
            help="As in lr=0.01,0.1 client_selection=entropy,uniform; one value is that of all.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds of every combination.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/sweep-NAME-HASH.")] = None,
    layout: Annotated[str | None, typer.Option(help="auto, vmap or scan.")] = None,
    mesh: Mesh = None,
    memory: Memory = None,
    no_cache: NoCache = False,
) -> None:
    """Run all combinations of some values, those that differ only in floats by one program; go on with the rest."""
    from fedjax_sel import config as configuration
    from fedjax_sel.sweeping import place as places
    from fedjax_sel.sweeping.grid import combinations
    from fedjax_sel.sweeping.running import run_in_folder

    name, given = configuration.load(preset)
    tell_own_names(given, axes)
    options = {"seeds": seeds, "layout": layout, "mesh": meshed(mesh)}
    grid = combinations(given, axes or [], {key: value for key, value in options.items() if value is not None})
    place = out or Path("runs") / f"sweep-{name}-{places.fingerprint(grid)}"
    run_in_folder(name, grid, place, no_cache=no_cache, memory=memory)


@command
def pretrain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="See `list`.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="As in local_training.batch_size=64 data.rows=20000."),
    ] = None,
    data: Annotated[str, typer.Option(help="Rows to train on, all of them in one place.")] = "digits",
    epochs: Annotated[int, typer.Option(help="Passes over the rows.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/pretrain-MODEL-HASH.")] = None,
    no_cache: NoCache = False,
) -> None:
    """Train a model on rows in one place, and keep its variables for other runs to begin with."""
    from fedjax_sel import config as configuration
    from fedjax_sel import pretrained
    from fedjax_sel.running import run_in_folder

    given = {**CENTRAL, "data": {"name": data}, "model": {"name": model}, "rounds": epochs}
    config = overridden(given, overrides, {})
    place = out or Path("runs") / f"pretrain-{model}-{configuration.fingerprint(config)}"
    history = run_in_folder(f"pretrain {model}", config, place, no_cache=no_cache)
    if history is not None:
        pretrained.save(place / pretrained.FILE, pretrained.of_first_seed(history.variables))
    Console().print(
        f"Other runs begin with it by [bold]model={model} model.pretrained={place}[/], and keep parts of it as they "
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
"""Training in one place: a federation of one client, whose rounds are epochs."""


def overridden(given: dict, overrides: list[str] | None, options: dict[str, Any]) -> dict:
    """The complete configuration, after what the command line changes; other names of keys are told."""
    from fedjax_sel import config as configuration

    tell_own_names(given, overrides)
    given = configuration.override(given, overrides or [])
    return configuration.resolve(given | {key: value for key, value in options.items() if value is not None})


def tell_own_names(given: dict, overrides: list[str] | None) -> None:
    """Print what keys are called here that have another name there."""
    from fedjax_sel import config as configuration

    for key in [*configuration.aliases_in(given), *(item.partition("=")[0] for item in overrides or [])]:
        if (own := configuration.own_name(key)) != key:
            Console().print(f"{key} is {own} here", style="dim", highlight=False)


@command
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    target: Annotated[float | None, typer.Option(help="Accuracy to reach; by default one all seeds reach.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw accuracy against rounds into this file.")] = None,
) -> None:
    """Put finished runs beside each other."""
    from fedjax_sel import folder
    from fedjax_sel.report.compare import compared, named, reachable

    names = [place.resolve().name for place in runs]
    read = {
        name if names.count(name) == 1 else str(place): folder.read(place)
        for name, place in zip(names, runs, strict=True)
    }
    if figure is not None and figure.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"figure is {figure}; its name must end in .png, .pdf or .svg")
    if target is not None and not 0 < target <= 1:
        raise ValueError(f"target is {target:g}; an accuracy is above 0 and at most 1")
    console = Console()
    for line in named(read):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(compared(read, reachable(read) if target is None else target))
    if figure is not None:
        from fedjax_sel.report.figures import curves

        drawn = curves({"": dict(zip(named(read), (history for history, _ in read.values()), strict=True))})
        with folder.written(figure) as new:
            drawn.savefig(new, dpi=110, format=figure.suffix[1:].lower())
        console.print(f"The figure is {figure}", soft_wrap=True)


@command
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="See `list`.")],
    scale: Annotated[str | None, typer.Option(help="smoke, small or full; by default small.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/PAPER-SCALE.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds instead of the scale's.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Errors with traceback.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Reproduce a paper: its experiments, its figures, its claims with a verdict each."""
    from fedjax_sel import papers
    from fedjax_sel.catalog import check_name
    from fedjax_sel.running import keep_compiled_programs, use_cores

    paper = paper.replace("-", "_")
    check_name("paper", paper, papers.available())
    use_cores()
    if not no_cache:
        keep_compiled_programs()
    try:
        papers.reproduce(paper, scale=scale, out=out, seeds=seeds, console=Console())
    except KeyboardInterrupt:
        where = out or Path("runs") / f"{paper}-{scale or 'small'}"
        Console(stderr=True).print(
            f"stopped; what is finished is kept in {where}, and the same command goes on from there",
            style="yellow",
            soft_wrap=True,
            highlight=False,
        )
        raise


@functools.partial(command, name="list")
def everything() -> None:
    """Everything that a configuration can name, and the papers."""
    from rich.table import Table

    from fedjax_sel import papers
    from fedjax_sel.report import catalogue

    console = Console()
    named = [(name, papers.load(name).title) for name in papers.available()]
    for key, lines in [*catalogue.everything(), ("reproduce PAPER", named)]:
        console.print(Text(key, style="bold underline"))
        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        console.print()


@command
def cite(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Strategies or papers; none: all.")
    ] = None,
) -> None:
    """The sources of strategies; the reference of a paper, and of this software."""
    from fedjax_sel import papers
    from fedjax_sel.catalog import check_name
    from fedjax_sel.report.catalogue import software, sources, strategies

    names, known = names or [], papers.available()
    for name in names:
        check_name("name", name, [*strategies(), *known])
    console = Console(highlight=False)

    def tell(name: str, text: str) -> None:
        console.print(Text.assemble((f"{name}: ", "bold"), text), soft_wrap=True)

    for name, text in sources(names or None):
        tell(name, text)
    for name in [name for name in known if not names or name in names]:
        tell(f"paper {name}", papers.load(name).reference)
    if not names or set(names) & set(known):
        tell("this software", software())


if __name__ == "__main__":
    sys.exit(main())
