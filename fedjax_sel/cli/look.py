"""Commands that show information: `show`, `explain`, `doctor`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedjax_sel.cli.app import check_figure, command


@command
def show(
    target: Annotated[
        str, typer.Argument(metavar="RUN|PRESET|FILE", help="Folder of a finished run or sweep, or a configuration.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to a configuration, as for `run`.")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open the run's report.html in the browser.")] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw a configuration's partition into this file.")] = None,
) -> None:
    """Show a run, or the partition of a configuration before it is run.

    Examples: `fedjax-sel show runs/digits-1a2b3c4d --open`, `fedjax-sel show digits partition.alpha=0.1`.
    """
    if Path(target).expanduser().is_dir():
        if overrides:
            raise ValueError(
                f"{target} is a folder, whose configuration stays as it is; {' '.join(overrides)} is not used"
            )
        if figure is not None:
            raise ValueError(f"{target} is a folder, whose figures are in it; --figure {figure} is not used")
        show_folder(Path(target).expanduser(), opened)
    else:
        if opened:
            raise ValueError(
                f"{target} is not a folder of a run, whose report.html could be opened; --open is not used"
            )
        show_partition(target, overrides or [], figure)


def show_folder(folder: Path, opened: bool) -> None:
    """Prints the numbers of a finished run, or of each run of a sweep, and the path of its page."""
    from fedjax_sel.report import summary
    from fedjax_sel.runs import layout
    from fedjax_sel.runs.saved import SavedRun, open

    console, found = Console(), open(folder)
    page = folder / layout.REPORT
    if isinstance(found, SavedRun):
        page, numbers = folder / layout.HTML, summary.summarize(found.history)
        if not page.exists():  # the run is from an earlier version, or was made without figures, as in a sweep
            layout.write_report(folder, found.history, found.asked, numbers)
        try:
            config = found.config
        except ValueError as error:  # the code of a strategy is gone
            warnings.warn(f"{folder} is shown, but cannot be run again: {error}", stacklevel=2)
            config = found.asked
        console.print(summary.build_table(layout.title(config, found.history.rounds), numbers))
    else:
        for name in found.names:
            console.print(f"{folder / 'runs' / name}", soft_wrap=True, highlight=False)
    console.print(Text.assemble("The overview is ", (str(page), "bold")), soft_wrap=True)
    if opened:
        typer.launch(page.absolute().as_uri())


def show_partition(preset: str, overrides: list[str], figure: Path | None) -> None:
    """Prints how a configuration divides its examples among clients for its first seed, and draws it if asked."""
    import numpy as np

    from fedjax_sel import config as configuration
    from fedjax_sel.runs.files import write_figure

    check_figure(figure)
    _, given = configuration.load(preset)
    config = configuration.resolve(configuration.override(given, overrides))
    data = configuration.build(config).data.draw(config.seeds[0])
    size, listed = np.asarray(data.num_examples), f"targets: {data.targets}"
    ranges = {"examples of a client": size}
    if data.targets == "classes":
        listed = f"classes: {data.classes}"
        ranges["classes of a client"] = (data.count_labels() > 0).sum(1)
    console = Console(highlight=False)
    console.print(f"data {config['data']['name']}, partition {config['partition']['name']}, seed {config.seeds[0]}")
    console.print(f"clients: {len(size)}, {listed}, training examples: {size.sum():,}")
    for name, values in ranges.items():
        console.print(f"{name}: {values.min()} to {values.max()}, median {np.median(values):g}")
    if figure is not None:
        from fedjax_sel.data.picture import plot_clients

        write_figure(figure, plot_clients(data).figure)
        console.print(f"The figure is {figure}", soft_wrap=True)


@command
def explain(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A strategy, model, partition, loss, metric or callback; see `list`.")
    ],
) -> None:
    """Explain a component: what it does, its fields with their ranges, its signals and their cost, its source.

    Example: `fedjax-sel explain fed_entropy`.
    """
    from fedjax_sel.report.explain import explain as describe

    console = Console(highlight=False)
    for head, lines in describe(name):
        console.print(Text(head, style="bold underline"))
        for line in lines:
            console.print(Text(line), soft_wrap=True)
        console.print()


@command
def doctor() -> None:
    """Check this installation: versions, devices, caches, and a run of two rounds."""
    from fedjax_sel.report.doctor import examine

    console, wrong = Console(highlight=False), 0
    for name, said, fine in examine():
        mark = ("ok", "green") if fine else ("wrong", "red")
        console.print(Text.assemble((f"{mark[0]:>5} ", mark[1]), (f"{name}: ", "bold"), said), soft_wrap=True)
        wrong += not fine
    if wrong:
        raise typer.Exit(1)
