"""The command line: `fedjax-sel run`, `sweep`, `pretrain`, `reproduce`, `compare`, `export`, `show`, `list`, ...."""

from fedjax_sel.cli import run, papers, show, look  # isort: skip  # the order of the help
from fedjax_sel.cli.app import main

__all__ = ["look", "main", "papers", "run", "show"]
