"""Lists of all components, one line each, and of their sources."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fedjax_sel
from fedjax_sel import config
from fedjax_sel.config.components import Kind
from fedjax_sel.config.task import MEASURES
from fedjax_sel.runs import pretrained

SOURCES = {
    "synthetic": "FedProx's synthetic(α, β): points of 60 numbers, a model of its own for each client.",
    "uacs": "UACS-FL's three settings: points in a plane, some clients at the boundary of the classes.",
    "breast_cancer": "569 tumours, 30 numbers each, 2 classes (scikit-learn).",
    "diabetes": "442 patients, 10 numbers each, a continuous target (scikit-learn).",
    "digit_images": "The examples of `digits` as images of 8x8 pixels and one channel.",
    "digits": "1797 handwritten digits, 64 numbers each, 10 classes (scikit-learn).",
    "iris": "150 flowers, 4 numbers each, 3 classes (scikit-learn).",
    "wine": "178 wines, 13 numbers each, 3 classes (scikit-learn).",
    "npz:PATH": "Arrays in one `.npz` file: `x`, `y`, perhaps test examples and owners; or recordings.",
    "tfds:NAME": "A dataset prepared for tensorflow-datasets: labelled images, or spoken commands.",
    "hf:NAME": "A dataset of the library `datasets`, from the hub or a folder.",
    "MODULE:FUNCTION": "A function of yours that returns a `Dataset`.",
}
"""A one-line description of each source of examples."""


def list_choices() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the keys of a configuration, each with its possible names and a line on each, and then the presets."""
    for key, kind in config.KINDS.items():
        yield key, describe_kind(kind)
    for key, kind in MEASURES.items():
        yield key, describe_kind(kind)
    yield "callbacks", describe_kind(config.CALLBACKS)
    yield "data", [(name, SOURCES[name]) for name in config.SOURCE_NAMES]
    yield "model.pretrained", [(name, pretrained.describe(name)) for name in pretrained.list_shipped()]
    yield "run PRESET", [(name, read_preset_line(name)) for name in config.list_presets()]


def describe_kind(kind: Kind) -> list[tuple[str, str]]:
    """Returns the components of a kind, each with a line on it."""
    return [(name, read_first_line(kind.described_by(name))) for name in kind.available()]


def read_first_line(thing: Any) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def read_preset_line(name: str) -> str:
    """Returns the first comment of a preset."""
    return config.find_preset(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def list_strategies() -> list[str]:
    """Returns the names of all components."""
    return sorted({name for kind in config.KINDS.values() for name in kind.available()})


def list_sources(names: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yields components of these names with their sources; None: all components that have one.

    A component that two keys can name (`local_training` and `fine_tuning`) is listed once.
    """
    seen = set()
    for key, kind in config.KINDS.items():
        for name in kind.available():
            if (part := kind.load(name)) in seen:
                continue
            seen.add(part)
            text = find_source(part)
            if text != NO_SOURCE if names is None else name in names:
                yield f"{key} {name}", text


NO_SOURCE = "no source: textbook method"


def find_source(cls: Callable[..., Any]) -> str:
    """Returns the paragraph `Source:` of a docstring, else the paragraphs with a link, as one line."""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", inspect.getdoc(cls) or "")]
    named = [p for p in paragraphs if p.startswith("Source:")]
    linked = [p for p in paragraphs if "https://" in p]
    return " ".join(named or linked).removeprefix("Source: ") or NO_SOURCE


def cite_software() -> str:
    """Returns the citation of this software."""
    return f"fedjax_sel {fedjax_sel.__version__}. {read_first_line(fedjax_sel)}"
