"""Which combinations share a compiled program, and how many of them, and of the seeds, fit one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedjax_sel import config as configuration
from fedjax_sel.config.build import LEARNT, Run, learnt, source_of
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.engine.experiment import side_by_side
from fedjax_sel.engine.runs import laid_out
from fedjax_sel.sweeping.grid import Combination

LAID_OUT = (*LEARNT, "partition", "holdout", "devices", "seeds", "layout", "mesh", "chunk")
"""The keys in which the combinations of one program are equal."""


@dataclass(frozen=True)
class Group:
    """Combinations that differ only in floats.

    Attributes:
      members: in the order of the sweep.
      runs: the built configuration of each.
    """

    members: tuple[Combination, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Block:
    """What one program runs at a time, its seeds in turns where they do not fit together.

    Attributes:
      members: its combinations.
      runs: of each, the last one repeated until there are as many as in the group's other blocks.
      group: all runs of the group.
      seeds: of each turn; all turns have as many.
    """

    members: tuple[Combination, ...]
    runs: tuple[Run, ...]
    group: Group
    seeds: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Together(Federation):
    """A federation whose seeds are drawn at once, so that some of them run by the program of others."""

    drawn: dict[int, FederatedData] = field(default_factory=dict)

    def draws(self, seeds: Sequence[int]) -> list[FederatedData]:
        """As drawn before."""
        return [self.drawn[seed] for seed in seeds]


def built(grid: Sequence[Combination]) -> list[Run]:
    """The values of every combination, checked; rows that several of them share are loaded once.

    Raises:
      ValueError, FileNotFoundError: as `config.build`, with a note that says which combination.
    """
    rows, known, out = {}, {}, []
    for one in grid:
        try:
            data = key_of(one.config, ("data",))
            if data not in rows:
                rows[data] = source_of(one.config["data"])
            what = key_of(one.config, LEARNT)
            if what not in known:
                known[what] = learnt(one.config, source=rows[data])
            out.append(configuration.build(one.config, known=known[what]))
        except (ValueError, FileNotFoundError) as error:
            error.add_note(f"this is the combination {one.name}")
            raise
    return out


def grouped(grid: Sequence[Combination], runs: Sequence[Run]) -> list[Group]:
    """The combinations by the program they share, in the order of the first of each."""
    groups: list[tuple[str, list[int]]] = []
    for i, one in enumerate(grid):
        how = key_of(one.config, LAID_OUT)
        for theirs, members in groups:
            if theirs == how and alike(runs[members[0]], runs[i]):
                members.append(i)
                break
        else:
            groups.append((how, [i]))
    return [Group(tuple(grid[i] for i in of), tuple(runs[i] for i in of)) for _, of in groups]


def alike(one: Run, other: Run) -> bool:
    """Whether two experiments differ only in floats."""
    try:
        side_by_side([one.experiment, other.experiment])
    except ValueError:
        return False
    return True


def blocks(group: Group, data: Together, memory: int | None) -> list[Block]:
    """A group in blocks that fit a device, all of one size.

    Args:
      group: of combinations.
      data: of its seeds.
      memory: bytes that a device may use; None: what it has.

    Raises:
      ValueError: not even one combination with one seed fits.
    """
    first = group.runs[0]
    experiments = [run.experiment for run in group.runs]

    def check(k: int, seeds: int) -> None:
        drawn = data.draws(first.seeds[:seeds])
        how: dict[str, Any] = {"layout": first.layout, "mesh": first.mesh, "chunk": first.chunk}
        laid_out(experiments[:k], drawn, range(seeds), **how, others=experiments).check_fits(memory)

    def fits(k: int, seeds: int) -> bool:
        try:
            check(k, seeds)
        except ValueError:
            return False
        return True

    k, seeds = most(len(group.members), len(first.seeds), fits)
    if (k, seeds) == (1, 1):
        check(1, 1)
    turns = in_turns(first.seeds, seeds)
    return [
        Block(group.members[i : i + k], padded(group.runs[i : i + k], k), group, turns)
        for i in range(0, len(group.members), k)
    ]


def most(combinations: int, seeds: int, fits: Callable[[int, int], bool]) -> tuple[int, int]:
    """How many combinations, and seeds of each, run together: halved until they fit, the combinations first.

    >>> most(100, 20, lambda k, r: k * r <= 600), most(100, 20, lambda k, r: k * r <= 7)
    ((25, 20), (1, 5))
    """
    while (combinations > 1 or seeds > 1) and not fits(combinations, seeds):
        if combinations > 1:
            combinations = -(-combinations // 2)
        else:
            seeds = -(-seeds // 2)
    return combinations, seeds


def padded(items: tuple, size: int) -> tuple:
    """So many items: the last one is repeated.

    >>> padded((1, 2), 4)
    (1, 2, 2, 2)
    """
    return items + items[-1:] * (size - len(items))


def in_turns(seeds: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Seeds in parts of one size; the last part takes again what it lacks from the one before.

    >>> in_turns((0, 1, 2, 3, 4), 2)
    ((0, 1), (2, 3), (3, 4))
    """
    return tuple(seeds[min(i, len(seeds) - size) :][:size] for i in range(0, len(seeds), size))


def together(run: Run) -> Together:
    """The federations of all seeds of a run.

    Raises:
      ValueError: one cannot be drawn.
    """
    drawn = run.data.draws(run.seeds)
    longest = max(one.longest for one in drawn)
    alike = {id(one): replace(one, longest=longest) for one in drawn}
    recipe = {name: getattr(run.data, name) for name in Federation.__dataclass_fields__}
    return Together(**recipe, drawn={seed: alike[id(one)] for seed, one in zip(run.seeds, drawn, strict=True)})


def key_of(config: dict, keys: Sequence[str]) -> str:
    """Some keys of a resolved configuration, to be compared."""
    return json.dumps({key: config[key] for key in keys}, sort_keys=True)
