"""The command line: `fedjax-sel run`, `sweep`, `reproduce`, `compare`, `join`, `export`, `show`, `list`, ...."""

from fedjax_sel.cli import run, papers, leaderboard, show, look  # isort: skip  # the order of the help
from fedjax_sel.cli.app import main

__all__ = ["leaderboard", "look", "main", "papers", "run", "show"]
