"""Published numbers, as printed in a paper: CSV files with named columns, next to the code that compares with them."""

from __future__ import annotations

import csv
from importlib import resources
from typing import Any


def read_published(package: str) -> list[dict[str, Any]]:
    """Returns the rows of `published.csv` in a paper's package; lines that begin with `#` are comments.

    >>> read_published("fedjax_sel.papers.device_heuristic")[0]
    {'source': 'Table 5.1', 'epsilon': 1.0, 'method': 'Set-Based Method', 'metric': 'final_accuracy', 'value': 0.9}
    """
    text = resources.files(package).joinpath("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [{name: parse_value(cell) for name, cell in row.items()} for row in csv.DictReader(lines, strict=True)]


def parse_value(text: str) -> str | float | None:
    """Returns the number that a text represents, the text itself if it is not a number, or None if it is empty.

    >>> parse_value("0.5"), parse_value("1SPC"), parse_value("")
    (0.5, '1SPC', None)
    """
    try:
        return float(text) if text else None
    except ValueError:
        return text
