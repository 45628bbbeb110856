"""Tables, numbers and lists in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_sel.report.quantities import format_count


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Returns a Markdown table.

    >>> print(table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    lines = [columns, *rows]
    text = ["| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(columns), *text[1:]])


def format_number(value: Any) -> str:
    """Returns a number as text, with four significant digits.

    >>> format_number(0.123456), format_number(12), format_number(None), format_number({"mean": 1.5})
    ('0.1235', '12', '—', 'mean 1.5')
    >>> format_number({"mean": 0.25, "low": None, "high": None, "seeds": 1})
    '+0.25 [open, open], 1 seed'
    """
    if value is None:
        return "—"
    if is_interval(value):
        middle = f"{value['mean']:+.4g}" if "mean" in value else f"{value['factor']:.4g} times"
        over = "".join(f", {format_count(value[f'{one}s'], one)}" for one in ("seed", "repeat") if f"{one}s" in value)
        return f"{middle} [{bound(value['low'])}, {bound(value['high'])}]{over}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k.replace('_', ' ')} {format_number(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(format_number(v) for v in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bound(value: float | None) -> str:
    """Returns an end of an interval as text; None is an open end, since JSON has no infinity.

    >>> bound(0.5), bound(None)
    ('0.5', 'open')
    """
    return "open" if value is None or value in (float("inf"), float("-inf")) else f"{value:.4g}"


def is_interval(value: Any) -> bool:
    """Returns whether a value is a difference (`mean`) or a ratio (`factor`) with its interval."""
    return isinstance(value, Mapping) and {"low", "high"} <= set(value) and bool({"mean", "factor"} & set(value))


def format_lines(name: str, value: Any, depth: int = 0) -> list[str]:
    """Returns a named number as a list item; several named numbers become a list below the item.

    >>> format_lines("a", 1), format_lines("b", {"x": 1, "y": {"z": 2.5}})
    (['- a: 1'], ['- b', '  - x: 1', '  - y: z 2.5'])
    """
    many = isinstance(value, Mapping) and not is_interval(value) and len(value) > 1
    if not many or depth > 1:
        return [f"{'  ' * depth}- {name}: {format_number(value)}"]
    return [f"{'  ' * depth}- {name}", *(line for k, v in value.items() for line in format_lines(k, v, depth + 1))]
