"""Configuration files: the user's, and the presets that come with the library."""

from __future__ import annotations

import os
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from fedjax_sel.catalog import check_name, see
from fedjax_sel.pytree import show


class Loader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """Returns a mapping as the parent does; raises an error for a duplicate key."""
        seen = set()
        for key, _ in node.value:
            text = str(key.value)
            if text in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {text!r} is given twice", key.start_mark)
            seen.add(text)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Returns a number; raises an error for leading zeros and colons, as YAML 1.1 reads 010 as 8 and 1:30 as 90."""
        text = str(node.value)
        if ":" in text or re.fullmatch(r"[-+]?0[\d_]+", text):
            said = f"{text} is not read in base ten; write it without leading zeros and colons, or as '{text}'"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        is_float = node.tag.endswith(":float")
        return self.construct_yaml_float(node) if is_float else self.construct_yaml_int(node)


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)
Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_number)


def parse_yaml(text: str) -> Any:
    """Returns the value of some YAML; files and values on the command line follow the same rules.

    Raises:
      yaml.YAMLError: the text is not YAML, or a key is given twice.

    >>> parse_yaml("{name: entropy, epsilon: 0.1}")
    {'name': 'entropy', 'epsilon': 0.1}
    """
    return yaml.load(text, Loader)


@see("`fedjax-sel list presets`")
def load(name: str) -> tuple[str, dict]:
    """Returns the short name and the configuration of a preset or file.

    Args:
      name: a preset's name, or a path (it ends in `.yaml` or `.yml`, has a separator in it, or exists).

    Raises:
      ValueError: the preset is unknown or a file has its name, a setting is in its place, or the file is not a
        configuration.
      FileNotFoundError: there is no such file.
    """
    path = Path(name).expanduser()
    if "=" in name and not path.exists():
        raise ValueError(
            f"there is no preset or file before {name!r}; name one first, as in `fedjax-sel run digits {name}`"
        )
    if name in list_presets() and path.is_file():
        raise ValueError(
            f"there is a preset {name}, and a file {name} in this folder; name the file ./{name}, or rename it"
        )
    if path.is_dir() and name not in list_presets():
        inside = path / "config.yaml"
        hint = f"; the configuration of the run in it is {inside}" if inside.is_file() else ""
        raise ValueError(f"{name} is a folder; name a preset, or a file with a configuration{hint}")
    if path.suffix in (".yaml", ".yml") or os.sep in name or path.is_file():
        return path.stem, load_file(path)
    check_name("preset", name, list_presets())
    return name, parse_mapping(f"preset {name}", find_preset(name).read_text(encoding="utf-8"))


@see("docs/how-to/command-line.md")
def load_file(path: str | Path) -> dict:
    """Returns the configuration in a YAML file.

    Raises:
      ValueError: the file cannot be read, is not YAML, or is not a mapping.
      FileNotFoundError: there is no such file.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}; presets are: {', '.join(list_presets())}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return parse_mapping(str(path), text)


@see("docs/how-to/command-line.md")
def parse_mapping(where: str, text: str) -> dict:
    """Returns the mapping in some YAML.

    Raises:
      ValueError: the text is not YAML or not a mapping; the message begins with `where`.
    """
    try:
        config: Any = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        found = "it is empty" if config is None else f"it holds {type(config).__name__} {show(config)}"
        raise ValueError(f"{where} is not a configuration: a mapping of keys to values is needed, but {found}")
    return config


def list_presets() -> list[str]:
    """Returns the names of the presets."""
    return sorted(path.name.removesuffix(".yaml") for path in find_presets().iterdir() if path.name.endswith(".yaml"))


def find_preset(name: str) -> Traversable:
    """Returns the file of a preset."""
    return find_presets() / f"{name}.yaml"


def find_presets() -> Traversable:
    """Returns the folder of the presets."""
    return resources.files("fedjax_sel") / "presets"
