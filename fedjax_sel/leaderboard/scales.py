"""The sizes of a leaderboard, and the budgets under which selectors are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TypeVar

from fedjax_sel.catalog import check_name
from fedjax_sel.leaderboard.federations import FEDERATIONS, Entry
from fedjax_sel.leaderboard.selectors import BASELINE, SELECTORS, VARIANTS, Competitor
from fedjax_sel.report.budgets import KINDS, Budget

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """A size of the leaderboard.

    Attributes:
      seeds: number of seeds of every cell.
      rounds: `T`.
      federations, selectors: their names; empty: all, and the selectors' variants.
      tuned: whether each selector, but no variant, is also tuned, with the same number of configurations for all.
    """

    seeds: int
    rounds: int
    federations: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    tuned: bool = False


SCALES: dict[str, Scale] = {
    "smoke": Scale(2, 12, ("digits", "digits-unequal"), (BASELINE, "round_robin", "power_of_choice", "e3cs")),
    "small": Scale(10, 100),
    "full": Scale(10, 100, tuned=True),
}


ALL_ROUNDS = Budget("rounds", 1.0)
"""What papers on selection mostly compare at: all rounds, where signals cost nothing."""

BUDGETS: tuple[Budget, ...] = (
    ALL_ROUNDS,
    *(Budget(kind, share) for share in (0.5, 0.2) for kind in KINDS),
)
"""The budgets of tables; all but the first are below all rounds, so that a cheaper selector spends them in its run."""

PRIMARY = Budget("bytes", 0.5)
"""The budget of figures and rankings."""


def choose(scale: Scale, only: Sequence[str], added: Sequence[Competitor]) -> tuple[list[Entry], list[Competitor]]:
    """Returns the federations and selectors of a leaderboard.

    Args:
      scale: the scale of the leaderboard.
      only: names of federations and selectors, or patterns such as `fashion-*`; if none names a federation (or a
        selector), these are not limited. The baseline is always included; variants are selectors here.
      added: the user's selectors, which are always included.

    Raises:
      ValueError: a name is neither a federation, nor a selector, nor a variant.
    """
    names = [*FEDERATIONS, *SELECTORS, *VARIANTS]
    for text in only:
        if not any(fnmatch(name, text) for name in names):
            more = "; repeat the option to name several" if "," in text else ""
            check_name("federation or selector", text, names, more=more)
    federations = pick(FEDERATIONS, scale.federations, only)
    selectors = pick(SELECTORS | VARIANTS, scale.selectors, only)
    return list(federations.values()), list(({BASELINE: SELECTORS[BASELINE]} | selectors).values()) + list(added)


def pick(table: Mapping[str, T], listed: Sequence[str], only: Sequence[str]) -> dict[str, T]:
    """Returns the entries that a pattern names; if no pattern names any, those that are listed, or all.

    >>> pick({"a": 1, "b": 2}, listed=["a"], only=["b"]), pick({"a": 1, "b": 2}, listed=["a"], only=["c"])
    ({'b': 2}, {'a': 1})
    """
    named = [name for name in table if any(fnmatch(name, text) for text in only)]
    return {name: table[name] for name in named or listed or table}
