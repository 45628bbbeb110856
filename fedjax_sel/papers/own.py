"""The user's own strategies in a paper's experiments, beside the methods that they replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedjax_sel.config import KINDS, own
from fedjax_sel.config.marks import CODE, digest_source
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
"""Keys under which a user's strategy may appear, and the library's strategy that it replaces."""


@dataclass(frozen=True)
class OwnCell:
    """A user's strategy in an experiment of a paper.

    Attributes:
      cell: what is run.
      reference: the paper's cell that differs from it in that strategy only.
    """

    cell: Cell
    reference: Cell


def list_own_cells(cells: Sequence[Cell], names: Sequence[str]) -> list[OwnCell]:
    """Returns a cell for each of the user's strategies in each experiment with a method that it can replace.

    Args:
      cells: of the paper.
      names: of classes, `module:Name` or `file.py:Name`.

    Raises:
      ValueError: a name is not a strategy, or no experiment has a place for the strategy.
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
    """Returns the key for a user's strategy, and the digest of its source.

    Raises:
      ValueError: `name` is not a strategy.
    """
    own.check_own_name("--add", name)
    made = own.load_class("strategy", name, Strategy)
    for key in PLACES:
        if issubclass(made, KINDS[key].base):
            return key, digest_source(made)
    raise ValueError(f"--add {name!r} is none of: {', '.join(PLACES)}")


def tabulate_own(cells: Sequence[OwnCell], histories: Histories) -> Table:
    """Returns a table of the final quality of each of the user's strategies, beside the method that it replaces."""
    rows = []
    for one in cells:
        mine, theirs = histories[one.cell.key], histories[one.reference.key]
        ends = [history.last(history.headline) for history in (mine, theirs)]
        gap = difference(*ends)
        interval = f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        name, _, code = one.cell.method.rpartition(" ")
        means = [f"{end.mean():.4f}" for end in ends]
        rows.append((one.cell.experiment, f"{name} ({code})", means[0], one.reference.method, means[1], interval))
    return Table(
        "Your own strategies",
        (
            "experiment",
            "strategy",
            "final quality",
            "replaced method",
            "its final quality",
            "difference, 95 % interval",
        ),
        tuple(rows),
        "Final quality is the accuracy on the test examples (the loss if targets are not classes), averaged over "
        "seeds. Differences are paired by seed, and their intervals are by Student's t. The digest of the source file "
        "is in brackets. No verdict rests on these runs.",
    )
