"""Commands that run nothing: `compare`, `join`, `export`, `list`, `cite`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedjax_sel.cli.app import check_figure, command, print_wide


@command
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of finished runs; a sweep stands for all of its runs."),
    ],
    metric: Annotated[
        str | None, typer.Option(help="What to compare, such as loss or bytes; by default accuracy, else loss.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="Accuracy to reach; by default one all seeds reach.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=SHARE",
            help="Compare at one budget: bytes=0.5 is what the first run spends in half of its rounds, seed by seed. "
            "Kinds: rounds, bytes, flops, seconds, joules.",
        ),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the metric against rounds into this file.")] = None,
) -> None:
    """Compare finished runs side by side."""
    from fedjax_sel.report import compare as comparison
    from fedjax_sel.report.budgets import count_rounds, keep_common_rounds, limit_runs, read_budget
    from fedjax_sel.runs import layout
    from fedjax_sel.runs.files import write_figure
    from fedjax_sel.runs.saved import list_run_folders

    places = list_run_folders(runs)
    names = [place.resolve().name for place in places]
    read = {
        name if names.count(name) == 1 else str(place): layout.read(place)
        for name, place in zip(names, places, strict=True)
    }
    check_figure(figure)
    if target is not None and not 0 < target <= 1:
        raise ValueError(f"target is {target:g}; an accuracy is above 0 and at most 1")
    budget = None if at is None else read_budget(at)
    metric = comparison.choose_metric(read, metric)
    limited: list[str] = []
    limit = ""
    if budget is not None:
        reference = next(iter(read.values()))[0]
        rounds = f"{count_rounds(reference, budget)} of its {reference.rounds} rounds"
        limit = f"{budget.kind}: what run 1 spends in {100 * budget.share:g} % of its rounds ({rounds})"
        read, limited = limit_runs(read, budget, metric)
    if metric == "accuracy":
        target = comparison.find_reachable_accuracy(read) if target is None else target
    elif target is not None:
        raise ValueError(f"target is {target:g}, an accuracy, but the runs are compared by {metric}; leave it out")
    console = Console()
    lines = list(comparison.list_runs(read))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
    if limit:
        console.print(f"all at one budget of {limit}, seed by seed", soft_wrap=True, highlight=False)
    for line in (*comparison.list_faults(read), *comparison.list_intervals(read), *limited):
        console.print(line, style="yellow", soft_wrap=True, highlight=False)
    print_wide(comparison.compare_runs(read, metric, target, at_budget=budget is not None))
    paired, said = comparison.compare_pairs(read, metric, at_budget=budget is not None)
    if paired is not None:
        print_wide(paired)
    for line in said:
        console.print(line, style="yellow", soft_wrap=True, highlight=False)
    if figure is not None:
        from fedjax_sel.report.figures import plot_comparison

        histories = [history for history, _ in read.values()]
        if limit:  # rounds that all seeds can afford
            histories = [keep_common_rounds(history, metric) for history in histories]
            lines = [f"{line}; budget of {limit}" for line in lines]
        write_figure(figure, plot_comparison(dict(zip(lines, histories, strict=True)), metric))
        console.print(f"The figure is {figure}", soft_wrap=True)


@command
def join(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    out: Annotated[Path, typer.Option(help="Folder of the joined run.")],
) -> None:
    """Make one run out of finished runs that differ only in their seeds, such as those of the jobs of a batch.

    Example: `fedjax-sel join runs/seed-* --out runs/mine`.
    """
    from fedjax_sel.report.quantities import format_count
    from fedjax_sel.runs.execute import say_on_stderr
    from fedjax_sel.runs.joining import join

    history = join(runs, out, say=say_on_stderr())
    said = f"The run of {format_count(len(history.seeds), 'seed')}, {format_count(history.rounds, 'round')}, is in "
    Console().print(Text.assemble(said, (str(out), "bold")), soft_wrap=True)


@command
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    form: Annotated[
        str | None, typer.Option("--format", help="npz, safetensors or orbax; by default the ending of --out, or npz.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File; by default RUN/model-seed-S.ENDING.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed whose model is exported; by default the first.")] = None,
) -> None:
    """Write the final model of a run to a file that other programs can read."""
    from fedjax_sel.runs.saved import open_run

    written = open_run(run).export(out, form, seed)
    Console().print(Text.assemble("The model is ", (str(written), "bold")), soft_wrap=True)


@functools.partial(command, name="list")
def everything(
    word: Annotated[
        str | None, typer.Argument(metavar="[KIND|WORD]", help="A kind, such as `selectors`, or a word to look for.")
    ] = None,
) -> None:
    """List everything that a configuration can name, and the papers.

    Examples: `fedjax-sel list selectors`, `fedjax-sel list model`, `fedjax-sel list entropy`.
    """
    from rich.table import Table

    console = Console()
    for key, lines in find_lists(word):
        console.print(Text(key, style="bold underline"))
        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        console.print()


def find_lists(word: str | None) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns all lists, those that a word names, or what contains it; papers are loaded only if they can be in it."""
    from fedjax_sel import papers
    from fedjax_sel.report.catalogue import list_choices
    from fedjax_sel.report.explain import find_entries, find_kinds

    asked = (word or "").lower()
    every = asked in ("", "paper", "papers")
    if not every and (found := find_kinds(asked)):
        return found
    named = [(name, papers.load(name).title) for name in papers.available()]
    named = [line for line in named if every or asked in " ".join(line).lower()]
    of_papers = [("reproduce PAPER", named)] if named else []
    if every:
        return [*(() if asked else list_choices()), *of_papers]
    try:
        return [*find_entries(word or ""), *of_papers]
    except ValueError:
        if not named:
            raise
        return of_papers


@command
def cite(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Strategies or papers; by default all.")
    ] = None,
    bibtex: Annotated[bool, typer.Option("--bibtex", help="As BibTeX entries.")] = False,
) -> None:
    """Print the sources of strategies, the references of papers, and the citation of this software.

    Example: `fedjax-sel cite power_of_choice --bibtex`.
    """
    from fedjax_sel import papers
    from fedjax_sel.catalog import check_name, see
    from fedjax_sel.report.catalogue import NO_SOURCE, cite_software, list_sources, list_strategies
    from fedjax_sel.report.explain import write_bibtex

    names, known = names or [], papers.available()
    for name in names:
        with see("`fedjax-sel list`"):
            check_name("name", name, [*list_strategies(), *known])
    console = Console(highlight=False)

    def tell(name: str, text: str) -> None:
        if bibtex:
            if text != NO_SOURCE:
                console.print(Text(write_bibtex(name, text)), soft_wrap=True)
            return
        console.print(Text.assemble((f"{name}: ", "bold"), text), soft_wrap=True)

    for name, text in list_sources(names or None):
        tell(name, text)
    for name in [name for name in known if not names or name in names]:
        tell(f"paper {name}", papers.load(name).reference)
    if not names or set(names) & set(known):
        tell("this software", cite_software())
