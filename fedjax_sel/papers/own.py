"""Strategies of the user's in a paper's experiments, beside the method that they take the place of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from fedjax_sel.config import KINDS, own
from fedjax_sel.config.marks import CODE, digest_source
from fedjax_sel.engine.history import History
from fedjax_sel.metrics import difference
from fedjax_sel.papers.paper import Cell, Histories, Table
from fedjax_sel.protocols import Strategy

PLACES: Mapping[str, str] = {
    "client_selection": "uniform",
    "data_selection": "everything",
    "local_training": "sgd",
    "correction": "none",
    "aggregation": "mean",
}
"""Keys that a strategy of the user's may stand under, and the strategy of the library whose place it takes."""


@dataclass(frozen=True)
class OwnCell:
    """A strategy of the user's in an experiment of a paper.

    Attributes:
      cell: what is run.
      reference: the paper's cell that it differs from in that strategy alone.
    """

    cell: Cell
    reference: Cell


def list_own_cells(cells: Sequence[Cell], names: Sequence[str]) -> list[OwnCell]:
    """Returns a cell for each strategy of the user's in each experiment that has a method whose place it can take.

    Args:
      cells: of the paper.
      names: of classes, `module:Name` or `file.py:Name`.

    Raises:
      ValueError: a name that is none, or a strategy that no experiment has a place for.
    """
    out = []
    for name in names:
        key, code = find_place(name)
        references: dict[str, Cell] = {}
        for cell in cells:
            if cell.config.get(key, {}).get("name", KINDS[key].default) == PLACES[key]:
                references.setdefault(cell.experiment, cell)
        if not references:
            raise ValueError(f"--add {name!r}: no experiment of the paper has {PLACES[key]} as {key}, to be replaced")
        for cell in references.values():
            config = {**cell.config, key: {"name": name, CODE: code}}
            out.append(OwnCell(replace(cell, method=f"{name} {code}", config=config), cell))
    return out


def find_place(name: str) -> tuple[str, str]:
    """Returns the key under which a strategy of the user's stands, and the digest of its source.

    Raises:
      ValueError: it is none.
    """
    if not own.is_own(name):
        raise ValueError(f"--add {name!r}: it must be of the form module:Name or file.py:Name")
    made = own.load_class("strategy", name, Strategy)
    for key in PLACES:
        if issubclass(made, KINDS[key].base):
            return key, digest_source(made)
    raise ValueError(f"--add {name!r} is none of: {', '.join(PLACES)}")


def tabulate_own(cells: Sequence[OwnCell], histories: Histories) -> Table:
    """Returns the quality at the end of every strategy of the user's, beside the method whose place it takes."""
    rows = []
    for one in cells:
        mine, theirs = histories[one.cell.key], histories[one.reference.key]
        gap = difference(take_last(mine), take_last(theirs))
        interval = f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        name, _, code = one.cell.method.rpartition(" ")
        ends = (f"{take_last(mine).mean():.4f}", f"{take_last(theirs).mean():.4f}")
        rows.append((one.cell.experiment, f"{name} ({code})", ends[0], one.reference.method, ends[1], interval))
    return Table(
        "Your own",
        ("experiment", "strategy", "at the end", "in the place of", "at the end", "difference, 95 %"),
        tuple(rows),
        "Accuracy on the test examples (loss where targets are no classes), the mean over seeds; differences are "
        "paired by seed, with Student's t. In brackets, the digest of the source file. No verdict rests on these runs.",
    )


def take_last(history: History) -> Float[np.ndarray, "R"]:
    """Returns accuracy or loss of each seed at the last evaluation."""
    return history[history.headline][:, -1]
