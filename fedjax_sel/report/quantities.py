"""Formats quantities for people: bytes in GiB, times in minutes, energies in kJ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any


def format_count(number: int, noun: str) -> str:
    """Returns a number with a noun, which gets an s unless the number is 1.

    >>> format_count(1, "seed"), format_count(0, "seed"), format_count(20_000, "client")
    ('1 seed', '0 seeds', '20,000 clients')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_bytes(size: float) -> str:
    """Returns bytes with a binary prefix.

    >>> [format_bytes(size) for size in (0, 1000, 1024, 3 * 2**20, 1010 * 2**20, 5.5 * 2**40)]
    ['0 B', '1000 B', '1 KiB', '3 MiB', '1010 MiB', '5.5 TiB']
    """
    for prefix in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(size) < 1023.5:
            return f"{size:.{4 if abs(size) >= 999.5 else 3}g} {prefix}B"
        size /= 1024
    return f"{size:.3g} PiB"


def format_quantity(value: float, unit: str) -> str:
    """Returns a number with a metric prefix and its unit.

    >>> [format_quantity(value, "B") for value in (0, 999, 1_234_567, 5e12)]
    ['0 B', '999 B', '1.23 MB', '5 TB']
    """
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.3g} E{unit}"


def format_seconds(seconds: float) -> str:
    """Returns a time in seconds, minutes, hours or days.

    >>> [format_seconds(s) for s in (0.2, 59, 90, 5400, 200_000)]
    ['0.2 s', '59 s', '1.5 min', '1.5 h', '2.31 d']
    """
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 0.995 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


UNITS = {
    "memory": format_bytes,
    "seconds": format_seconds,
    "seconds_of_first_chunk": format_seconds,
}
"""How the numbers in `history.about` that have a unit are formatted."""


NAMES = {"examples_per_client": "examples per client, mean"}
"""What entries of `history.about` are called, where their key does not say enough."""


def format_about(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the entries of `history.about`, each a name and a value as text.

    >>> format_about({"seconds": 90.0, "parameters": 1234567, "strategies": {"correction": "FedProx"}})
    [('seconds', '1.5 min'), ('parameters', '1,234,567'), ('strategies', 'correction FedProx')]
    """

    def write(key: str, value: Any) -> str:
        if key in UNITS and isinstance(value, int | float):
            return UNITS[key](value)
        if isinstance(value, Mapping):
            return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in value.items())
        if isinstance(value, float):
            return f"{value:,.4g}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"

    return [(NAMES.get(key, key.replace("_", " ")), write(key, value)) for key, value in about.items()]


COSTS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "seconds": format_seconds,
    "joules": lambda joules: format_quantity(joules, "J"),
    "flops": lambda flops: format_quantity(flops, "FLOP"),
}
"""How the costs of a run are formatted."""
