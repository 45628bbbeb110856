"""Cells of an earlier leaderboard, of which only the numbers are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedjax_sel.leaderboard import page
from fedjax_sel.leaderboard.cells import LEFT_OUT, Cell
from fedjax_sel.runs.files import read_json

WHERE = ["federation", "selector"]
"""The columns of the tidy table that name a cell."""


def read_known(folder: Path, scale: str, seeds: Sequence[int]) -> tuple[list[Cell], pd.DataFrame]:
    """Returns the cells and the tidy table of an earlier leaderboard.

    Args:
      folder: its folder.
      scale, seeds: what they must be.

    Raises:
      ValueError: there is no leaderboard, or one of another scale or other seeds.
    """
    files = [folder / page.JSON, folder / page.PARQUET]
    if missing := [path.name for path in files if not path.is_file()]:
        lacks = " and no ".join(missing)
        raise ValueError(f"known is {folder}, which has no {lacks}; give the folder of a leaderboard")
    told = read_json(files[0])
    for name, asked in (("scale", scale), ("seeds", list(seeds))):
        if told[name] != asked:
            raise ValueError(f"known is {folder}, whose {name} is {told[name]}; it must be {asked}, as here")
    return [Cell(**cell) for cell in told["cells"]], pd.read_parquet(files[1])


def join_known(
    cells: Sequence[Cell], tidy: pd.DataFrame, known: tuple[list[Cell], pd.DataFrame]
) -> tuple[list[Cell], pd.DataFrame]:
    """Returns all cells and their numbers, in the order of the earlier leaderboard, new ones last.

    What was run here counts, unless it was left out; the earlier numbers count for all other cells.
    """
    earlier, numbers = known
    joined = {name_of(cell): cell for cell in earlier}
    here = {name_of(cell): cell for cell in cells if cell.status != LEFT_OUT or name_of(cell) not in joined}
    # Times of choices that the folder keeps from another run are of cells that were not run here.
    own: dict[Any, pd.DataFrame] = {name: frame for name, frame in tidy.groupby(WHERE, sort=False) if name in here}
    frames: dict[Any, pd.DataFrame] = {
        name: frame for name, frame in numbers.groupby(WHERE, sort=False) if name not in here or name in own
    }
    return list((joined | here).values()), pd.concat(list((frames | own).values()), ignore_index=True)


def name_of(cell: Cell) -> tuple[str, str]:
    """Returns the names of a cell's federation and selector."""
    return cell.federation, cell.selector
