"""The command line: `fedjax-sel run`, `sweep`, `pretrain`, `reproduce`, `compare`, `list`, `cite`."""

from fedjax_sel.cli import run, papers, show  # isort: skip  # the order of the help
from fedjax_sel.cli.app import main

__all__ = ["main", "papers", "run", "show"]
