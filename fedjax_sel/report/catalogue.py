"""What there is, in a line each; and where it comes from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fedjax_sel
from fedjax_sel import config
from fedjax_sel.config.components import SYNTHETIC, Kind
from fedjax_sel.data.files import npz_dataset
from fedjax_sel.data.sources import BUILT_IN
from fedjax_sel.data.tfds import tfds_dataset


def everything() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Keys of a configuration, and what each can name with one line each; presets."""
    for key, kind in config.KINDS.items():
        yield key, describe_kind(kind)
    yield "callbacks", describe_kind(config.CALLBACKS)
    functions: dict[str, Callable[..., Any]] = {
        **SYNTHETIC,
        **BUILT_IN,
        "npz:PATH": npz_dataset,
        "tfds:NAME": tfds_dataset,
    }
    yield "data", [(name, first_line(functions[name])) for name in config.SOURCE_NAMES]
    yield "run PRESET", [(name, preset_line(name)) for name in config.preset_names()]


def describe_kind(kind: Kind) -> list[tuple[str, str]]:
    """Components of a kind, with one line each."""
    return [(name, first_line(kind.described_by(name))) for name in kind.available()]


def first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def preset_line(name: str) -> str:
    """The first comment of a preset."""
    return config.preset(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def strategies() -> list[str]:
    """Names of all components."""
    return sorted({name for kind in config.KINDS.values() for name in kind.available()})


def sources(names: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """Components and where they come from: those of these names; None: all that have a source."""
    for key, kind in config.KINDS.items():
        for name in kind.available():
            text = source_of(kind.load(name))
            if text != NO_SOURCE if names is None else name in names:
                yield f"{key} {name}", text


NO_SOURCE = "no source: textbook method"


def source_of(cls: Callable[..., Any]) -> str:
    """The paragraph `Source:` of a docstring, else those with a link, in one line."""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", inspect.getdoc(cls) or "")]
    named = [p for p in paragraphs if p.startswith("Source:")]
    linked = [p for p in paragraphs if "https://" in p]
    return " ".join(named or linked).removeprefix("Source: ") or NO_SOURCE


def software() -> str:
    """How this software is cited."""
    return f"fedjax_sel {fedjax_sel.__version__}. {first_line(fedjax_sel)}"
