"""Reproductions: one folder per paper, each of which exports one `Paper`."""

import importlib
import pkgutil
from typing import Any

from fedjax_sel import catalog
from fedjax_sel.catalog import see
from fedjax_sel.papers.paper import Paper


def available() -> list[str]:
    """Returns the names of all papers.

    >>> available()
    ['device_heuristic', 'fedft_eds', 'gpfl', 'lefl', 'uacs']
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


@see("`fedjax-sel list papers`")
def load(name: str) -> Paper:
    """Returns the paper of that name.

    Raises:
      ValueError: there is no such paper; the message names the most similar one.
    """
    catalog.check_name("paper", name, available())
    return importlib.import_module(f"{__name__}.{name}").PAPER


def reproduce(name: str, **options: Any) -> dict[str, Any]:
    """Reproduces the paper of that name; see `fedjax_sel.papers.reproduction.reproduce`."""
    from fedjax_sel.papers.reproduction import reproduce as run  # late: it imports everything below

    return run(load(name), **options)
