"""Settings of cells: a preset, or what stands in a paper's `cells.py`, and changes to it."""

from __future__ import annotations

from typing import Any

from fedjax_sel.config.files import load


def merge_settings(base: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """Returns `base` with the entries of each change, in their order.

    A component of another name replaces the whole component; of the same name, or without one, it changes parameters.

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
    """Returns the configuration of a preset without its seeds, which are the scale's, and without other keys.

    Args:
      preset: its name.
      without: keys that are left out.
    """
    config = load(preset)[1]
    return {key: value for key, value in config.items() if key not in ("seeds", *without)}
