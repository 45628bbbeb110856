"""The command line: `fedjax-sel run`, `compare`, `reproduce`, `list`, `cite`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from fedjax_sel.engine.history import History

main = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning simulated in one XLA program: who should train, and on what.",
)
USERS = (ValueError, FileNotFoundError, PermissionError)
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
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return main.command(name)(wrapped)


NoCache = Annotated[
    bool, typer.Option("--no-cache", envvar="FEDJAX_SEL_NO_CACHE", help="Do not keep compiled programs on disk.")
]


@command
def run(
    preset: Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `list`) or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="As in selector=entropy selector.epsilon=0.2 m=5."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, side by side.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/NAME-HASH.")] = None,
    mapping: Annotated[str | None, typer.Option(help="auto, vmap or scan.")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Without compilation, one client at a time; errors with traceback.")
    ] = False,
    no_cache: NoCache = False,
) -> None:
    """Run a configuration; go on with one that was interrupted."""
    from fedjax_sel import config as configuration

    name, given = configuration.load(preset)
    config = overridden(given, overrides, {"seeds": seeds, "mapping": mapping})
    place = out or Path("runs") / f"{name}-{configuration.fingerprint(config)}{'-debug' if debug else ''}"
    carried_out(name, config, place, debug=debug, no_cache=no_cache)


@command
def pretrain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="See `list`.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in trainer.batch_size=64 data.rows=20000.")
    ] = None,
    data: Annotated[str, typer.Option(help="Rows to train on, all of them in one place.")] = "digits",
    epochs: Annotated[int, typer.Option(help="Passes over the rows.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/pretrain-MODEL-HASH.")] = None,
    no_cache: NoCache = False,
) -> None:
    """Train a model on rows in one place, and keep its variables for other runs to begin with."""
    from fedjax_sel import config as configuration
    from fedjax_sel import pretrained

    given = {**CENTRAL, "data": {"name": data}, "model": {"name": model}, "rounds": epochs}
    config = overridden(given, overrides, {})
    place = out or Path("runs") / f"pretrain-{model}-{configuration.fingerprint(config)}"
    history = carried_out(f"pretrain {model}", config, place, debug=False, no_cache=no_cache)
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
    "m": 1,
    "seeds": 1,
    "trainer": {
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

    for key in [*configuration.aliases_in(given), *(item.partition("=")[0] for item in overrides or [])]:
        if (own := configuration.own_name(key)) != key:
            Console().print(f"{key} is {own} here", style="dim", highlight=False)
    given = configuration.override(given, overrides or [])
    return configuration.resolve(given | {key: value for key, value in options.items() if value is not None})


def carried_out(name: str, config: dict, place: Path, *, debug: bool, no_cache: bool) -> History | None:
    """Run a configuration in a folder with progress, checkpoints and a summary; None where it was finished before."""
    from fedjax_sel import config as configuration
    from fedjax_sel import folder
    from fedjax_sel.engine.checkpoint import Checkpoints
    from fedjax_sel.report import summary
    from fedjax_sel.report.progress import progress
    from fedjax_sel.report.stopping import stoppable

    console = Console()

    def show(history: History, said: str) -> None:
        console.print(summary.in_terminal(folder.title(config), summary.results(history)))
        console.print(Text.assemble(said, (str(place), "bold")), soft_wrap=True)

    if folder.check(place, config) == "finished":
        history, _ = folder.read(place)
        show(history, "Nothing was run: the finished run is in ")
        return None
    if not no_cache:
        keep_compiled_programs()
    built = configuration.build(config)
    say = functools.partial(Console(stderr=True).print, style="yellow", soft_wrap=True, highlight=False, markup=False)
    points = None if debug else Checkpoints(place / folder.CHECKPOINTS, say=say)
    ready = functools.partial(folder.begin, place, config)
    with progress(console, name, built.experiment.rounds) as bar, stoppable(bar, ready, say) as watch:
        history = built.simulate(watch=watch, checkpoints=points, debug=debug)
    if watch.signal and history.rounds < built.experiment.rounds:
        done = f"stopped after {history.rounds} of {built.experiment.rounds} rounds"
        say(
            f"{done}; {'debugging keeps nothing' if debug else f'kept in {place}: the same command goes on from there'}"
        )
        raise typer.Exit(128 + watch.signal)
    folder.save(place, history, config)
    show(history, "The run is in ")
    return history


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

    paper = paper.replace("-", "_")
    check_name("paper", paper, papers.available())
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


def keep_compiled_programs() -> None:
    """Let XLA keep what it compiles, so that the next start need not; where that folder cannot be made, do without."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    place = Path(os.environ.get("FEDJAX_SEL_CACHE") or "~/.cache/fedjax_sel").expanduser() / "xla"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


if __name__ == "__main__":
    sys.exit(main())
