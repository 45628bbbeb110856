"""Scores from the tidy table: complete arrays over selectors, federations and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from fedjax_sel.leaderboard.measures import ACCURACY
from fedjax_sel.leaderboard.scales import BUDGETS, Budget
from fedjax_sel.leaderboard.selectors import BASELINE, VARIANTS
from fedjax_sel.metrics import Difference, adjust_holm, difference


@dataclass(frozen=True)
class Block:
    """Accuracies of the selectors that finished on all of some federations.

    Attributes:
      selectors, federations: their names.
      values: accuracy of each seed.
      missing: selectors that did not finish on one of the federations, and so cannot be ranked.
    """

    selectors: tuple[str, ...]
    federations: tuple[str, ...]
    values: Float[np.ndarray, "k D R"]
    missing: tuple[str, ...]

    @property
    def relative(self) -> Float[np.ndarray, "k D R"]:
        """Accuracy over the baseline's mean accuracy on the same federation: 1 is as good as the baseline."""
        return self.over_baseline(self.values)

    def over_baseline(self, values: Float[np.ndarray, "k D R"]) -> Float[np.ndarray, "k D R"]:
        """Returns accuracies, such as resampled ones, over the baseline's mean of them on the same federation."""
        return values / values[self.selectors.index(BASELINE)].mean(axis=1)[None, :, None]


def select(tidy: pd.DataFrame, measure: str, budget: str = "") -> pd.DataFrame:
    """Returns the values of a measure under a budget: one row per selector and federation, one column per seed."""
    mine = tidy.loc[(tidy["measure"] == measure) & (tidy["budget"] == budget)]
    wide = mine.set_index(["selector", "federation", "seed"])["value"].unstack("seed")
    return pd.DataFrame(wide).reindex(
        mine.set_index(["selector", "federation"]).index.unique()
    )  # in the order of the table


def leave_out_variants(tidy: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of selectors that are ranked."""
    return tidy.loc[~tidy["selector"].isin(VARIANTS)]


def take_block(tidy: pd.DataFrame, budget: Budget) -> Block:
    """Returns the accuracies under a budget of all selectors that finished on every federation of the table.

    Raises:
      ValueError: there are none.
    """
    wide = select(tidy, ACCURACY, budget.name)
    if wide.empty:
        raise ValueError(f"no finished cell has an accuracy under the budget {budget.name!r}")
    federations = list(dict.fromkeys(wide.index.get_level_values("federation")))
    names = list(dict.fromkeys(wide.index.get_level_values("selector")))
    whole = [name for name in names if all((name, one) in wide.index for one in federations)]
    values = np.stack([wide.loc[[(name, one) for one in federations]].to_numpy() for name in whole])
    return Block(tuple(whole), tuple(federations), values, tuple(name for name in names if name not in whole))


def list_gains(tidy: pd.DataFrame, budget: Budget) -> dict[tuple[str, str], Difference]:
    """Returns the paired difference to the baseline of every finished cell, by selector and federation."""
    wide = select(tidy, ACCURACY, budget.name)
    return {
        (selector, federation): difference(row.to_numpy(), wide.loc[(BASELINE, federation)].to_numpy())
        for (selector, federation), row in wide.iterrows()  # type: ignore[misc]  # the index has two levels
        if selector != BASELINE
    }


def mean_gains(tidy: pd.DataFrame, budget: Budget) -> dict[str, Difference]:
    """Returns, for every selector that ran on all federations, the paired difference of its mean to the baseline's.

    Raises:
      ValueError: no finished cell has an accuracy under the budget.
    """
    block = take_block(tidy, budget)
    mean = dict(zip(block.selectors, block.values.mean(axis=1), strict=True))
    return {name: difference(mine, mean[BASELINE]) for name, mine in mean.items() if name != BASELINE}


def find_ended(tidy: pd.DataFrame, budget: Budget) -> set[tuple[str, str]]:
    """Returns the cells, by selector and federation, with a seed that ended before it had spent the budget."""
    mine = tidy[(tidy["measure"] == ACCURACY) & (tidy["budget"] == budget.name) & tidy["censored"].astype(bool)]
    return set(zip(mine["selector"], mine["federation"], strict=True))


def list_budgets(tidy: pd.DataFrame) -> list[Budget]:
    """Returns the budgets under which a cell has an accuracy."""
    there = set(tidy.loc[tidy["measure"] == ACCURACY, "budget"])
    return [budget for budget in BUDGETS if budget.name in there]


def correct(gains: Mapping[str, Difference]) -> dict[str, float]:
    """Returns the p-value of no difference for each gain, two-sided, by Student's t, with Holm's correction for all."""
    p = adjust_holm([one.p_apart() for one in gains.values()])
    return dict(zip(gains, p, strict=True))


def group_gains(tidy: pd.DataFrame, budget: Budget, federations: Sequence[str]) -> dict[str, Difference]:
    """Returns `mean_gains` over some of the federations."""
    return mean_gains(tidy.loc[tidy["federation"].isin(federations)], budget)


def count_beating(gains: dict[tuple[str, str], Difference], selectors: Sequence[str]) -> dict[str, dict[str, int]]:
    """Returns, for each selector, on how many federations its gain's interval is above 0, below 0, or contains 0."""
    out = {}
    for name in selectors:
        mine = [d for (selector, _), d in gains.items() if selector == name]
        above, below = sum(d.low > 0 for d in mine), sum(d.high < 0 for d in mine)
        out[name] = {"above": above, "below": below, "undecided": len(mine) - above - below}
    return out
