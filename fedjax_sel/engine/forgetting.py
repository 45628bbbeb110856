"""Programs of earlier runs, which are forgotten before the system refuses memory for another one."""

from __future__ import annotations

from pathlib import Path

import jax

PIECES, MOST = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
"""On Linux, a line for each piece of memory that this process has mapped, and how many it may have."""

_OTHERS = [0]
"""How many pieces were left when programs were last forgotten: those of something else."""


def forget_many_programs() -> bool:
    """Forgets all compiled programs where they take half of the pieces of memory that a process may map.

    Linux allows 65,530 by default, the program of a deep network takes hundreds, and where there are no more XLA ends
    the process ("LLVM compilation error: Cannot allocate memory"). What is forgotten is read from disk when it is
    needed again, where programs are kept there. Elsewhere than on Linux nothing is done.

    Returns:
      Whether they were forgotten.
    """
    try:
        pieces, most = count_pieces(), int(MOST.read_text())
    except OSError:
        return False
    if pieces - _OTHERS[0] <= (most - _OTHERS[0]) / 2:
        return False
    jax.clear_caches()
    _OTHERS[0] = count_pieces()
    return True


def count_pieces() -> int:
    """Returns how many pieces of memory this process has mapped."""
    return PIECES.read_bytes().count(b"\n")
