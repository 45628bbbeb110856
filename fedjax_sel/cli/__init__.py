"""The command line: `fedjax-sel run`, `sweep`, `pretrain`, `reproduce`, `leaderboard`, `compare`, `list`, `cite`."""

from fedjax_sel.cli import run, papers, leaderboard, show  # isort: skip  # the order of the help
from fedjax_sel.cli.app import main

__all__ = ["leaderboard", "main", "papers", "run", "show"]
