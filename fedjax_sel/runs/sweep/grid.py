"""A grid over keys of a configuration, and the complete configuration of every combination in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from fedjax_sel import config as configuration
from fedjax_sel.catalog import see
from fedjax_sel.config import Config

ODD = re.compile(r"[^\w.+-]+")
"""Characters that a folder's name should not have."""

LONGEST = 150
"""Characters of a folder's name; longer ones are cut, and told apart by the configuration's fingerprint."""


@dataclass(frozen=True)
class Combination:
    """One value on every axis.

    Attributes:
      name: of its folder, as in `client_selection.epsilon=0.05,local_training.learning_rate=0.1`.
      values: by axis.
      config: its configuration, by which `run` makes the same run.
    """

    name: str
    values: dict[str, Any]
    config: Config


@see("docs/how-to/sweeps.md")
def combinations(given: dict, items: Iterable[str], options: dict[str, Any]) -> list[Combination]:
    """Returns every combination of values, the last axis varying fastest.

    Args:
      given: a configuration.
      items: `key=value,value,...` for an axis, `key=value` for what all combinations share.
      options: as for `config.override`; the same in all.

    Raises:
      ValueError: as `config.resolve` for any of them; no axis, one that is given twice, or values that are the same.
    """
    shared, axes = axes_in(items)
    base, out = configuration.override(given, shared), []
    names = [configuration.translate_parameter(base, configuration.translate_key(key)) for key in axes]
    for texts in itertools.product(*axes.values()):
        chosen = [f"{key}={text}" for key, text in zip(axes, texts, strict=True)]
        try:
            config = configuration.resolve(configuration.override(given, [*shared, *chosen], options))
        except ValueError as error:
            if chosen:
                error.add_note(f"this is the combination {' '.join(chosen)}")
            raise
        flat = config.flat()
        own_names = [configuration.translate_parameter(config, key) for key in names]
        values = {key: flat.get(own, text) for key, own, text in zip(names, own_names, texts, strict=True)}
        out.append(Combination(name_combination(values, config), values, config))
    if not axes:
        raise ValueError(
            "a sweep needs a key with several values, as in lr=0.01,0.1; `fedjax-sel run` runs one configuration"
        )
    check_different(out)
    return out


def axes_in(items: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Returns what all combinations share, and the values of each axis, by its key, both as they were written.

    >>> axes_in(["lr=0.01,0.1", "cohort_size=5", "model.hidden=[32],[64, 64]"])
    (['cohort_size=5'], {'lr': ['0.01', '0.1'], 'model.hidden': ['[32]', '[64, 64]']})
    """
    shared, axes, known = [], {}, {}
    for item in items:
        key, _, text = item.partition("=")
        name, values = configuration.translate_key(key), split_values(text)
        try:
            configuration.check_once(known, name, item)
        except ValueError as error:
            error.add_note(f"several values are given at once, as in {name}=VALUE,VALUE")
            raise
        if len(values) < 2:
            shared.append(item)
        elif name == "seeds":
            raise ValueError(
                f"{item} is not an axis: every combination has the same seeds; give {suggest_seeds(text)}, or --seeds"
            )
        else:
            axes[key] = values
    return shared, axes


def suggest_seeds(text: str) -> str:
    """Returns the list of seeds that was probably meant.

    >>> suggest_seeds("0,1"), suggest_seeds("[0,1],[2,3]")
    ('seeds=[0,1]', 'seeds=[0,1,2,3]')
    """
    return f"seeds=[{re.sub(r'[^0-9,]', '', text)}]"


def split_values(text: str) -> list[str]:
    """Returns the elements of a YAML flow sequence without its brackets, as written; none if it is not one."""
    try:
        node = yaml.compose(f"[{text}]", Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # whoever reads the value says what is wrong with it
        return []
    inside = node.value if isinstance(node, yaml.SequenceNode) else []
    return [text[one.start_mark.index - 1 : one.end_mark.index - 1] for one in inside]


def check_different(grid: Sequence[Combination]) -> None:
    """Raises `ValueError` if two combinations are the same configuration."""
    known: dict[str, Combination] = {}
    for one in grid:
        other = known.setdefault(one.config.fingerprint, one)
        if other is not one:
            raise ValueError(f"{other.name} and {one.name} are the same configuration; give every value once")


def name_combination(values: dict[str, Any], config: Config) -> str:
    """Returns a folder's name that says what the values are."""
    texts = {key: configuration.write_value(value) for key, value in values.items()}
    odd = {key: bool(ODD.search(text)) for key, text in texts.items()}
    short = {key: ODD.sub("-", text).strip("-") if odd[key] else text for key, text in texts.items()}
    name = ",".join(f"{key}={text}" for key, text in short.items())
    plain = len(name) <= LONGEST and not any(odd.values())
    return name if plain else f"{name[:LONGEST]}-{config.fingerprint}"
