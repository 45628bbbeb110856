"""Groups combinations that share a compiled program, and splits the groups into blocks that fit a device."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fedjax_sel import config as configuration
from fedjax_sel.config import Config
from fedjax_sel.config.build import PROBLEM, Run, build_problem, load_source
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.engine.experiment import stack_experiments
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.memory import DoesNotFit
from fedjax_sel.engine.program import plan_layout, plan_program
from fedjax_sel.runs.sweep.grid import Combination

LIKE = (*PROBLEM, "partition", "holdout", "devices", "seeds", "layout", "mesh", "examples_on", "chunk")
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
    """What one program runs at a time, its seeds in turns if they do not fit together.

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
class DrawnFederation(Federation):
    """A federation whose seeds are drawn at once, so that some of them run by the program of others."""

    by_seed: dict[int, FederatedData] = field(default_factory=dict)

    def draws(self, seeds: Sequence[int]) -> list[FederatedData]:
        """Returns the data that was drawn for these seeds."""
        return [self.by_seed[seed] for seed in seeds]


def build_all(grid: Sequence[Combination]) -> list[Run]:
    """Returns the values of every combination, checked; examples that several of them share are loaded once.

    Raises:
      ValueError, FileNotFoundError: as `config.build`, with a note that says which combination.
    """
    sources, problems, out = {}, {}, []
    for one in grid:
        try:
            data, what = select_keys(one.config, ("data",)), select_keys(one.config, PROBLEM)
            if data not in sources:
                sources[data] = load_source(one.config["data"])
            if what not in problems:
                problems[what] = build_problem(one.config, source=sources[data])
            out.append(configuration.build(one.config, problem=problems[what]))
        except (ValueError, FileNotFoundError) as error:
            error.add_note(f"this is the combination {one.name}")
            raise
    return out


def group_by_program(grid: Sequence[Combination], runs: Sequence[Run]) -> list[Group]:
    """Returns the combinations by the program they share, in the order of the first of each."""
    groups: list[tuple[str, list[int]]] = []
    for i, one in enumerate(grid):
        how = select_keys(one.config, LIKE)
        for theirs, members in groups:
            if theirs == how and share_program(runs[members[0]], runs[i]):
                members.append(i)
                break
        else:
            groups.append((how, [i]))
    return [Group(tuple(grid[i] for i in of), tuple(runs[i] for i in of)) for _, of in groups]


def share_program(one: Run, other: Run) -> bool:
    """Returns whether two experiments differ only in floats."""
    try:
        stack_experiments([one.experiment, other.experiment])
    except ValueError:
        return False
    return True


def split_group(group: Group, data: DrawnFederation, memory: int | None) -> list[Block]:
    """Returns a group in blocks that fit a device, all of one size; nothing is compiled, and no selector begins.

    Args:
      group: of combinations.
      data: of its seeds.
      memory: bytes that a device may use; None: what it has.

    Raises:
      ValueError: not even one combination with one seed fits.
    """
    first = group.runs[0]
    experiments, how = [run.experiment for run in group.runs], first.execution

    def plan(k: int, seeds: int) -> Layout:  # one for all turns, whatever the sizes of their clients
        every = data.draws(first.seeds)
        return replace(plan_layout(experiments[0], every, k * seeds, how.layout, how.mesh), mesh=None)

    def check(k: int, seeds: int, place: str) -> None:
        drawn = data.draws(first.seeds[:seeds])
        program = plan_program(
            experiments[:k],
            drawn,
            range(seeds),
            layout=plan(k, seeds),
            mesh=how.mesh,
            chunk=how.chunk,
            others=experiments,
        )
        program.check_fits(memory, place)

    def fits(k: int, seeds: int, place: str) -> bool:
        try:
            check(k, seeds, place)
        except DoesNotFit:
            return False
        return True

    places = ("device", "host") if how.examples_on is None else (how.examples_on,)
    k, seeds = 1, 1
    for place in places:  # smaller blocks of runs come before examples that every round fetches
        k, seeds = halve_until(len(group.members), len(first.seeds), partial(fits, place=place))
        if (k, seeds) != (1, 1) or fits(1, 1, place):
            break
    else:
        check(1, 1, places[0])
    turns = split_seeds(first.seeds, seeds)
    execution = replace(how, layout=plan(k, seeds))
    runs = tuple(replace(run, execution=execution) for run in group.runs)
    return [
        Block(group.members[i : i + k], pad(runs[i : i + k], k), group, turns) for i in range(0, len(group.members), k)
    ]


def halve_until(combinations: int, seeds: int, fits: Callable[[int, int], bool]) -> tuple[int, int]:
    """Returns how many combinations, and seeds of each, run together: halved until they fit, the combinations first.

    >>> halve_until(100, 20, lambda k, r: k * r <= 600), halve_until(100, 20, lambda k, r: k * r <= 7)
    ((25, 20), (1, 5))
    """
    while (combinations > 1 or seeds > 1) and not fits(combinations, seeds):
        if combinations > 1:
            combinations = -(-combinations // 2)
        else:
            seeds = -(-seeds // 2)
    return combinations, seeds


def pad(items: tuple, size: int) -> tuple:
    """Returns so many items: the last one is repeated.

    >>> pad((1, 2), 4)
    (1, 2, 2, 2)
    """
    return items + items[-1:] * (size - len(items))


def split_seeds(seeds: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Returns seeds in parts of one size; the last part takes again what it lacks from the one before.

    >>> split_seeds((0, 1, 2, 3, 4), 2)
    ((0, 1), (2, 3), (3, 4))
    """
    return tuple(seeds[min(i, len(seeds) - size) :][:size] for i in range(0, len(seeds), size))


def draw_seeds(run: Run) -> DrawnFederation:
    """Returns the federations of all seeds of a run.

    Raises:
      ValueError: one cannot be drawn.
    """
    drawn = run.data.draws(run.seeds)
    longest = max(one.longest for one in drawn)
    padded = {id(one): replace(one, longest=longest) for one in drawn}
    recipe = {name: getattr(run.data, name) for name in Federation.__dataclass_fields__}
    by_seed = {seed: padded[id(one)] for seed, one in zip(run.seeds, drawn, strict=True)}
    return DrawnFederation(**recipe, by_seed=by_seed)


def select_keys(config: Config, keys: Sequence[str]) -> str:
    """Returns some keys of a configuration, to be compared."""
    return json.dumps({key: config[key] for key in keys}, sort_keys=True)
