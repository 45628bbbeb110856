"""Commands, as reports show them to be given again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def write_command(words: Sequence[str], seeds: Sequence[int], usual: int, **options: Sequence[str]) -> str:
    """Returns the line that gives a command of `fedjax-sel` again, with `--seeds` if they are not the usual number.

    Seeds that are not numbered from 0 can be given in Python alone, and are left out.

    Args:
      words: the command, with its arguments and fixed options.
      seeds: numbers of the seeds; empty: as many as usual.
      usual: how many there are without `--seeds`.
      options: the values of each option that can be given several times, by its name.

    >>> write_command(["reproduce", "lefl", "--scale", "smoke"], (0, 1, 2, 3), 2, add=["mine.py:Last"])
    'fedjax-sel reproduce lefl --scale smoke --seeds 4 --add mine.py:Last'
    >>> write_command(["leaderboard", "--scale", "smoke"], (), 2, only=["fashion-*"], add=["mine.py:Last"])
    "fedjax-sel leaderboard --scale smoke --only 'fashion-*' --add mine.py:Last"
    """
    counted = list(seeds) == list(range(len(seeds))) and len(seeds) not in (0, usual)
    given = {"seeds": [str(len(seeds))] if counted else [], **options}
    named = [part for option, values in given.items() for one in values for part in (f"--{option}", one)]
    return shlex.join(["fedjax-sel", *words, *named])
