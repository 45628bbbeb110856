"""What the bytecode of a function says: which globals it reads, and in which containers it only notes something."""

from __future__ import annotations

import dis
import functools
from collections.abc import Sequence
from types import CodeType

NOTING = {"append", "appendleft", "add", "clear", "extend", "insert", "put", "update", "write"}
"""Methods by which code notes something in a container, and which return nothing of it."""

LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
"""Instructions that load a global or a variable of a closure."""

SILENT = {"CACHE", "PRECALL", "EXTENDED_ARG", "PUSH_NULL", "RESUME"}
"""Instructions between others that do nothing of interest here."""


@functools.lru_cache(maxsize=4096)
def list_steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Returns the instructions of a function's code, those of the functions inside included, without silent ones."""
    codes = [code]
    for one in codes:
        codes += [const for const in one.co_consts if isinstance(const, CodeType)]
    return tuple(step for one in codes for step in dis.get_instructions(one) if step.opname not in SILENT)


def list_globals(code: CodeType) -> list[str]:
    """Returns the names of the globals that a function's code reads and does not set."""
    steps = list_steps(code)
    stored = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    read = (step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return [name for name in dict.fromkeys(read) if name not in stored]


def find_noted(code: CodeType) -> set[str]:
    """Returns the names of globals and closure variables in which a function's code notes something, and nothing else.

    >>> def note(x): calls.append(x); table[0] = x; rows[len(rows)] = x; x[sum(kept)] = 0; seen.add(x); return seen
    >>> sorted(find_noted(note.__code__))
    ['calls', 'rows', 'table']
    """
    steps = list_steps(code)
    noted: dict[str, list[str]] = {}
    for i, step in enumerate(steps):
        if step.opname in LOADS:
            way = is_noting(steps[i + 1 : i + 3]) or ("by index" if is_appending(steps, i) else "")
            noted.setdefault(step.argval, []).append(way)
    return {name for name, ways in noted.items() if only_notes(ways) or "by index" in ways}


def only_notes(ways: Sequence[str]) -> bool:
    """Returns whether a container is only noted in, by the ways in which it is loaded; to ask what is in it is to read.

    Only where something is noted, too, a memo asks whether it is there already.
    """
    return all(ways) and set(ways) != {"whether"}


def is_noting(following: Sequence[dis.Instruction]) -> str:
    """Returns how two instructions note something in a container that was loaded before them; "" if they read it.

    Whoever stores by index may read the container, too: it is a memo.
    """
    after, last = (*(step.opname for step in following), "", "")[:2]
    if last == "STORE_SUBSCR" and after.startswith("LOAD_") and after not in ("LOAD_ATTR", "LOAD_METHOD"):  # the index
        return "by index"
    if after == "CONTAINS_OP":  # what is there is not noted again
        return "whether"
    return "by method" if after in ("LOAD_METHOD", "LOAD_ATTR") and following[0].argval in NOTING else ""


def is_appending(steps: Sequence[dis.Instruction], i: int) -> bool:
    """Returns whether a container is loaded for its length as its own index, as in `table[len(table)] = x`."""
    before, after = [step.argval for step in steps[max(i - 2, 0) : i]], [step.opname for step in steps[i + 1 : i + 3]]
    return before == [steps[i].argval, "len"] and after[:1] == ["CALL"] and after[1:] == ["STORE_SUBSCR"]
