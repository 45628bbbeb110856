"""Pages that are made from the code and from committed results before Sphinx reads anything."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from fedjax_sel import config

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"


def write_pages(docs: Path) -> None:
    """Writes a page for each strategy (`reference/strategies`) and for each paper's report (`results/reports`)."""
    write_strategies(docs / "reference" / "strategies")
    copy_reports(docs / "results" / "reports")


def write_strategies(out: Path) -> None:
    """Writes a page for each component of a configuration, and a page for each kind that lists them."""
    shutil.rmtree(out, ignore_errors=True)
    described: set[object] = set()
    for key, kind in config.KINDS.items():
        folder = out / key
        folder.mkdir(parents=True)
        for name in kind.available():
            made = kind.load(name)
            (folder / f"{name}.md").write_text(describe_strategy(name, made, made in described), encoding="utf-8")
            described.add(made)
        listed = "\n".join(kind.available())
        (folder / "index.md").write_text(
            f"# {kind.what.capitalize()}\n\n```{{toctree}}\n{listed}\n```\n", encoding="utf-8"
        )


def describe_strategy(name: str, made: Any, again: bool) -> str:
    """Returns the page of a component, from its docstring.

    Args:
      name: of the component.
      made: the class or function.
      again: whether it has a page under another key, which the index points at.
    """
    role = "autoclass" if isinstance(made, type) else "autofunction"
    path = f"{made.__module__}.{made.__qualname__}"
    options = "   :no-index:\n" if again else ""
    return f"# {name}\n\n```{{eval-rst}}\n.. {role}:: {path}\n{options}```\n"


COPIES = {
    r"\.\./\.\./benchmarks/results/([\w-]+)/report\.md": r"reports/\1/report.md",
    r"\.\./\.\./benchmarks/NOTES\.md": "reports/notes.md",
}
"""Where pages of the site find what pages of the repository link to."""


def point_at_copies(text: str) -> str:
    """Returns a page's text with links to copies in the site."""
    for there, here in COPIES.items():
        text = re.sub(there, here, text)
    return text


def copy_reports(out: Path) -> None:
    """Copies each committed report with its figures, and the notes on speed."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    notes = (REPOSITORY / "benchmarks" / "NOTES.md").read_text(encoding="utf-8")
    (out / "notes.md").write_text(notes.replace("](results/", "](../../../benchmarks/results/"), encoding="utf-8")
    for report in sorted(RESULTS.glob("*/report.md")):
        folder = out / report.parent.name
        folder.mkdir(parents=True)
        text = report.read_text(encoding="utf-8")
        for figure in set(re.findall(r"\]\((figures/[^)]+)\)", text)):
            (folder / "figures").mkdir(exist_ok=True)
            shutil.copy(report.parent / figure, folder / figure)
        (folder / "report.md").write_text(text, encoding="utf-8")
