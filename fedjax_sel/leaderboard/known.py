"""Cells of an earlier leaderboard, of which only the numbers are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedjax_sel.leaderboard import page
from fedjax_sel.leaderboard.cells import LEFT_OUT, Cell
from fedjax_sel.leaderboard.measures import ACCURACY, CHOICE
from fedjax_sel.leaderboard.scales import ALL_ROUNDS
from fedjax_sel.leaderboard.scores import select
from fedjax_sel.leaderboard.selectors import BASELINE
from fedjax_sel.runs.files import read_json, read_parquet

WHERE = ["federation", "selector"]
"""The columns of the tidy table that name a cell."""

MOVED = 0.01
"""A seed's accuracy may differ by this much between two leaderboards; if the baseline's differs by more, it is said."""


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
    return [Cell(**cell) for cell in told["cells"]], read_parquet(files[1])


def join_known(
    cells: Sequence[Cell], tidy: pd.DataFrame, known: tuple[list[Cell], pd.DataFrame]
) -> tuple[list[Cell], pd.DataFrame]:
    """Returns all cells and their numbers, in the order of the earlier leaderboard, new ones last.

    What was run here counts, unless it was left out; the earlier numbers count for all other cells. Times of choices
    are the earlier ones, as all times in a table must come from one machine and one federation; selectors without an
    earlier time get the one measured here, if it is of the same federation.
    """
    earlier, numbers = known
    joined = {name_of(cell): cell for cell in earlier}
    here = {name_of(cell): cell for cell in cells if cell.status != LEFT_OUT or name_of(cell) not in joined}
    times, numbers = take_times(numbers)
    new, tidy = take_times(tidy)
    new = new.loc[[name in here for name in zip(new["federation"], new["selector"], strict=True)]]
    if len(times):
        new = new.loc[new["federation"].isin(times["federation"]) & ~new["selector"].isin(times["selector"])]
    own: dict[Any, pd.DataFrame] = {name: frame for name, frame in tidy.groupby(WHERE, sort=False) if name in here}
    frames: dict[Any, pd.DataFrame] = {
        name: frame for name, frame in numbers.groupby(WHERE, sort=False) if name not in here or name in own
    }
    return list((joined | here).values()), pd.concat([*(frames | own).values(), times, new], ignore_index=True)


def describe_moved(tidy: pd.DataFrame, numbers: pd.DataFrame) -> dict[str, str]:
    """Returns remarks on the baseline that ran here, by federation, where its accuracy differs from the earlier one.

    Selectors of the earlier leaderboard are compared with this baseline, seed by seed. That is fair only if the earlier
    baseline was the same, which another version or other settings prevent; so may another processor's rounding.

    Args:
      tidy: the tidy table of here.
      numbers: that of the earlier leaderboard.
    """
    here, there = (select(frame, ACCURACY, ALL_ROUNDS.name) for frame in (tidy, numbers))
    both = [key for key in here.index.intersection(there.index) if key[0] == BASELINE]
    farthest = (here.loc[both] - there.loc[both]).abs().to_numpy().max(axis=1, initial=0.0)
    return {
        federation: f"a seed's accuracy differs by up to {100 * points:.1f} points from the earlier leaderboard's; to "
        "be compared fairly, selectors of that one must run here, too"
        for (_, federation), points in zip(both, farthest, strict=True)
        if points > MOVED
    }


def take_times(tidy: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the times of choices of a tidy table, and the rest of it."""
    timed = tidy["measure"] == CHOICE
    return tidy.loc[timed], tidy.loc[~timed]


def name_of(cell: Cell) -> tuple[str, str]:
    """Returns the names of a cell's federation and selector."""
    return cell.federation, cell.selector
