"""Releases the compiled programs of earlier runs before the system refuses memory for another one."""

from __future__ import annotations

from pathlib import Path

import jax

PIECES, MOST = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
"""On Linux, the list of this process's memory mappings, one per line, and their largest allowed number."""

_OTHERS = [0]
"""How many mappings were left when programs were last released: they belong to something else."""


def forget_many_programs() -> bool:
    """Releases all compiled programs if they take more than half of the memory mappings that a process may have.

    Linux allows 65,530 by default, and the program of a deep network takes hundreds; when none are left, XLA ends the
    process ("LLVM compilation error: Cannot allocate memory"). If compiled programs are cached on disk, they are read
    from there when they are needed again. On systems other than Linux, nothing is done.

    Returns:
      Whether they were released.
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
    """Returns how many memory mappings this process has."""
    return PIECES.read_bytes().count(b"\n")
