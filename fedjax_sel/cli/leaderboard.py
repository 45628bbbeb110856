"""The command that runs the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedjax_sel.cli.app import NoCache, command


@command
def leaderboard(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="A federation, selector or pattern such as 'fashion-*'; may be repeated."
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke, small or full.")] = "small",
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="MODULE:NAME", help="Your own selector, or FILE.py:NAME; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/leaderboard-SCALE.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; by default as many as the scale has.")] = None,
    known: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="An earlier leaderboard, whose numbers stand in for what is not run here."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show errors with their traceback.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Compare all client selectors on many federations under equal budgets."""
    from fedjax_sel.leaderboard import run_leaderboard
    from fedjax_sel.runs.prepare import prepare_jax

    prepare_jax(cache=not no_cache)
    chosen = {"only": only or (), "add": add or (), "seeds": seeds, "known": known}
    run_leaderboard(scale, **chosen, out=out, console=Console(), debug=debug)
