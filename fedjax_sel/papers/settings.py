"""Settings of cells: a preset, or those in a paper's `cells.py`, with changes."""

from __future__ import annotations

from typing import Any

from fedjax_sel.config.files import load


def merge_settings(base: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """Returns `base` with the entries of each change, applied in order.

    A component with another name replaces the whole component; with the same name or none, it changes parameters.

    >>> merge_settings({"model": {"name": "mlp", "hidden": [8]}}, {"model": {"dropout": 0.5}}, {"rounds": 3})
    {'model': {'name': 'mlp', 'hidden': [8], 'dropout': 0.5}, 'rounds': 3}
    >>> merge_settings({"model": {"name": "mlp", "hidden": [8]}}, {"model": {"name": "logistic"}})
    {'model': {'name': 'logistic'}}
    """
    out = dict(base)
    for change in changes:
        for key, value in change.items():
            old = out.get(key)
            if isinstance(value, dict) and isinstance(old, dict):
                same = value.get("name", old.get("name")) == old.get("name")
                value = merge_settings(old, value) if same else value
            out[key] = value
    return out


def load_settings(preset: str, *without: str) -> dict[str, Any]:
    """Returns the configuration of a preset without its seeds, which the scale sets, and without other keys.

    Args:
      preset: its name.
      without: keys to leave out.
    """
    config = load(preset)[1]
    return {key: value for key, value in config.items() if key not in ("seeds", *without)}
