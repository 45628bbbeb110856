"""The command that reproduces a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedjax_sel.cli.app import NoCache, command


@command
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="See `list`.")],
    scale: Annotated[
        str | None, typer.Option(help="smoke, small (default) or full; some papers also have medium.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/PAPER-SCALE.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; by default as many as the scale has.")] = None,
    add: Annotated[
        list[str] | None, typer.Option(help="A strategy of your own, `mine.py:MySelector`, in every experiment.")
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing; report on what is finished, also while the rest runs.")
    ] = False,
    known: Annotated[
        Path | None,
        typer.Option(help="With --finished: the folder of an earlier report, for cells that were run elsewhere."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show errors with their traceback.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Reproduce a paper: its experiments, its figures, and its claims, each with a verdict."""
    from fedjax_sel import papers
    from fedjax_sel.catalog import check_name, see
    from fedjax_sel.papers.paper import locate_reproduction
    from fedjax_sel.runs.execute import say_on_stderr
    from fedjax_sel.runs.prepare import prepare_jax

    paper = paper.replace("-", "_")
    with see("`fedjax-sel list papers`"):
        check_name("paper", paper, papers.available())
    prepare_jax(cache=not no_cache)
    try:
        options = {"add": add or (), "finished": finished, "known": known, "console": Console()}
        papers.reproduce(paper, scale=scale, out=out, seeds=seeds, **options)
    except KeyboardInterrupt:
        where = out or locate_reproduction(papers.load(paper), scale)
        say_on_stderr()(f"stopped; what is finished is kept in {where}, and the same command goes on from there")
        raise
