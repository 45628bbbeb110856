"""Explains a component: its docstring, fields, signals and source, as its class declares them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any

from fedjax_sel import config
from fedjax_sel.catalog import check_name, see
from fedjax_sel.config import own
from fedjax_sel.config.checks import find_components, list_options, list_parameters, to_snake
from fedjax_sel.config.components import SYNTHETIC, Kind
from fedjax_sel.config.task import MEASURES
from fedjax_sel.data import sources
from fedjax_sel.protocols import MOMENTS, ClientSelector, Cost, DataSelector, Signals, Strategy
from fedjax_sel.pytree import allows_none
from fedjax_sel.report.catalogue import NO_SOURCE, find_source, list_choices


def explain(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yields headings, each with lines, on every component with this name, or on a user's strategy (`module:Name`).

    Raises:
      ValueError: there is none; the message gives the nearest name.

    >>> heads = dict(explain("power_of_choice"))
    >>> heads["fields"][0]
    'd: int = 10, a whole number, at least 1'
    """
    for key, part in find_parts(name):
        text = re.split(r"\n\s*\n(?:Source:|>>>|Attributes:)", inspect.getdoc(part) or "")[0]
        yield f"{key}: {name}", text.splitlines()
        kind = {**config.KINDS, "callbacks": config.CALLBACKS}.get(key)
        yield "fields", list(list_fields(part, kind.filled if kind else ())) or ["none"]
        if kind and kind.more:
            yield f"fields of every {kind.what}", [f"{field} = {one.default!r}" for field, one in kind.more.items()]
        if signals := list(list_signals(part)):
            yield "signals", signals
        found = find_source(part)
        yield "source", [NO_SOURCE_OF_OWN if found == NO_SOURCE and own.names_own_code(name) else found]
        written = f"[{name}]" if key in ("callbacks", "task.metrics") else f"{{name: {name}}}"
        yield "in a configuration", [write_nested(key, written)]


MANY = 10
"""The number of component names from which a field's line no longer lists them."""

NO_SOURCE_OF_OWN = "none given: a paragraph `Source:` in its docstring names one"


def write_nested(key: str, value: str) -> str:
    """Returns a dotted key with a value as YAML.

    >>> write_nested("task.metrics", "[f1]"), write_nested("model", "{name: cnn}")
    ('task: {metrics: [f1]}', 'model: {name: cnn}')
    """
    *outer, last = key.split(".")
    return "".join(f"{part}: {{" for part in outer) + f"{last}: {value}" + "}" * len(outer)


def find_parts(name: str) -> list[tuple[str, Any]]:
    """Returns key and class or function of every component with a name; a user's class has the key of its base class.

    Raises:
      ValueError: there is none.
    """
    kinds: dict[str, Kind] = {**config.KINDS, "callbacks": config.CALLBACKS, **MEASURES}
    if own.names_own_code(name):
        part = own.load_class("component", name, Strategy)
        bases = {key: kind.base for key, kind in config.KINDS.items() if issubclass(kind.base, Strategy)}
        return [(key, part) for key, base in bases.items() if issubclass(part, base)][:1]
    if homes := [(key, kind.load(name)) for key, kind in kinds.items() if name in kind.available()]:
        return homes
    if name in SYNTHETIC:
        return [("data", SYNTHETIC[name])]
    if name in sources.available():
        return [("data", sources.load)]
    inner = {
        one: (place, made)
        for key, kind in reversed(config.KINDS.items())
        for part in kind.available()
        for place, one, made in list_inner(key, kind.load(part))
    }
    if name not in inner:
        with see("`fedjax-sel list`"):
            known = {one for kind in kinds.values() for one in kind.available()}
            check_name("component", name, sorted(known | inner.keys() | SYNTHETIC.keys() | set(sources.available())))
    return [inner[name]]


def list_inner(key: str, part: Any) -> Iterator[tuple[str, str, Any]]:
    """Yields key, name and class of each component that may be a field of a component, as a schedule of a trainer."""
    if isinstance(part, type) and dataclasses.is_dataclass(part):
        for field, parameter in list_parameters(part).items():
            for name, made in find_components(list_options(parameter.annotation)).items():
                yield f"{key}.{field}", name, made


def list_fields(part: Any, filled: Collection[str] = ()) -> Iterator[str]:
    """Yields a line for each field of a component, except those that a run fills in: type, default, allowed values."""
    if not dataclasses.is_dataclass(part):
        for name, one in inspect.signature(part).parameters.items():
            if name in filled or (name == "seed" and part in SYNTHETIC.values()):  # a run's own
                continue
            yield f"{name}" + ("" if one.default is inspect.Parameter.empty else f" = {one.default!r}")
        return
    inner: dict[str, list[str]] = {}
    for place, name, _ in list_inner("", part):
        inner.setdefault(place.removeprefix("."), []).append(name)
    for field in dataclasses.fields(part):
        if not field.init or field.name in filled:
            continue
        if field.name in inner:
            chosen = "null" if field.default is None else to_snake(type(field.default).__name__)
            names = ", ".join(inner[field.name]) if len(inner[field.name]) < MANY else "a selector"
            yield f"{field.name} = {chosen}, one of {names}" + ", null" * allows_none(field.type)
            continue
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        kind = "float" if "floating" in kind or "Scalar" in kind.split(" | ") else kind  # or an array of numbers
        yield f"{field.name}: {kind}{default}{describe_range(field.metadata)}"


def describe_range(metadata: Any) -> str:
    """Returns the allowed values of a field, as in ", in [0, 1]"; empty if they are not declared.

    >>> describe_range({"choices": ("a", "b")})
    ', one of a, b'
    """
    if "choices" in metadata:
        return f", one of {', '.join(map(str, metadata['choices']))}"
    bounds = metadata.get("range")
    return "" if bounds is None or str(bounds) == "a number" else f", {bounds}"


def list_signals(part: Any) -> Iterator[str]:
    """Yields a line for each signal that a selector with default fields asks for: moment, name, cost."""
    if not isinstance(part, type) or not issubclass(part, ClientSelector | DataSelector):
        return
    if needed := [field.name for field in dataclasses.fields(part) if is_required(field)]:
        yield f"they depend on {', '.join(needed)}, which {'has' if len(needed) == 1 else 'have'} no default"
        return
    asked = part().signals()
    moments = {m: asked.at(m) for m in MOMENTS} if isinstance(asked, Signals) else {"on the client": asked}
    for moment, signals in moments.items():
        for name, signal in signals.items():
            yield f"{moment}: {name} = {signal!r}. {tell_cost(signal, sends=moment in MOMENTS)}"


def is_required(field: dataclasses.Field) -> bool:
    """Returns whether a value must be given for a field."""
    missing = dataclasses.MISSING
    return field.init and field.default is missing and field.default_factory is missing


def tell_cost(signal: Any, *, sends: bool) -> str:
    """Returns in words what one client pays for a signal.

    Args:
      signal: of a selector.
      sends: whether the client tells the server its value; a client keeps what it selects its own examples by.

    >>> from fedjax_sel.signals import Loss, UpdateNorm
    >>> tell_cost(Loss(), sends=False)
    'A client pays one forward pass of each of its examples.'
    >>> tell_cost(UpdateNorm(), sends=True)
    'Clients pay nothing for it.'
    """
    cost = signal.cost
    if not sends:
        cost = Cost(forward=cost.forward, backward=cost.backward, max_examples=cost.max_examples)
    whose = "each of its examples" if cost.max_examples is None else f"at most {cost.max_examples} of its examples"
    passes = [
        f"{'one' if count == 1 else f'{count:g}'} {kind} {'pass' if count == 1 else 'passes'}"
        for kind, count in (("forward", cost.forward), ("backward", cost.backward))
        if count
    ]
    moved = [
        f"{verb} {count:g} {'number' if count == 1 else 'numbers'}"
        for verb, count in (("sends", cost.up), ("receives", cost.down))
        if count
    ]
    if sends and (signal.count_up(7), signal.count_up(8)) == (7, 8):
        moved = [one for one in moved if not one.startswith("sends")] + ["sends a number for each class"]
    if cost.models_up:
        moved.append(f"sends as many numbers as {cost.models_up:g} {'model' if cost.models_up == 1 else 'models'}")
    paid = ([f"pays {' and '.join(passes)} of {whose}"] if passes else []) + moved
    told = " and ".join(paid)
    if not told:
        return "Clients pay nothing for it."
    return f"A client {told}{'; it must have received the current model' if cost.needs_model else ''}."


LISTED = {
    "preset": "run PRESET",
    "pretrained": "model.pretrained",
    "loss": "task.loss",
    "metric": "task.metrics",
    "callback": "callbacks",
}
"""Other names of lists, in the singular, with their keys."""


STRATEGIES = ("client_selection", "data_selection", "local_training", "correction", "aggregation")
"""The kinds that a configuration chooses a strategy from."""


PLURALS = ("selectors", "presets", "pretrained", "losses", "metrics")
"""What lists are called in the documentation, where that is not their key."""


def find_kinds(word: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the lists of the kind of component that a word names, which are none if it names no kind.

    A kind is named by its key, by its short form, or by either in the plural: `selectors`, `client_selection`, `model`.
    """
    asked = word.lower().replace("-", "_")
    forms = {asked, asked.removesuffix("s"), asked.removesuffix("es"), re.sub("ies$", "y", asked)}
    keys = {config.translate_key(form) for form in forms} | forms | {LISTED[form] for form in forms & LISTED.keys()}
    if "strategies" in forms:
        keys |= set(STRATEGIES)
    return [(key, lines) for key, lines in list_choices() if key in keys or key.lower() in keys]


def find_entries(word: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the components whose name or description contains a word, in lists by kind.

    Raises:
      ValueError: there are none.
    """
    asked, choices = word.lower().replace("-", "_"), list(list_choices())
    found = [
        (key, [line for line in lines if asked in line[0].lower() or word.lower() in line[1].lower()])
        for key, lines in choices
    ]
    found = [(key, lines) for key, lines in found if lines]
    if not found:
        kinds, names = [*(key for key, _ in choices), *PLURALS], config.KINDS["client_selection"].available()
        with see("`fedjax-sel list`"):
            check_name("kind or component", word, [*kinds, *names])
    return found


BIBTEX = re.compile(r'^(?P<author>[^"“]+?),? ["“](?P<title>[^"”]+?),?["”],? (?:.*?)(?P<year>(?:19|20)\d\d)')
"""Matches the authors, title and year in a paragraph `Source:`."""


NAMES = re.compile(r"(?!(?:The|As)\b)(?:(?:van|von|de|der|den|el|al) )*[^\W\d_a-z][^\d:;()ε]{0,300}")
"""Matches what can be names of authors, and not other text before a title."""


def write_bibtex(name: str, text: str) -> str:
    """Returns a BibTeX entry for a source; it is a note if the source does not have the usual form.

    >>> print(write_bibtex("power", 'Cho et al., "Selection", 2020, https://arxiv.org/abs/2010.01243, section 3.'))
    @misc{power,
      author = {Cho and others},
      title = {{Selection}},
      year = {2020},
      url = {https://arxiv.org/abs/2010.01243},
    }
    """
    text = " ".join(text.split())
    found, link = BIBTEX.match(text), re.search(r"https?://[^\s,;)]+", text)
    fields = {"note": text}
    if found and NAMES.fullmatch(found["author"]):
        author = re.sub(r",? et al\.?$", " and others", found["author"].strip())
        author = author if author.endswith("others") else re.sub(r",? (?:and|&) |, ", " and ", author)
        fields = {"author": author, "title": f"{{{found['title'].strip()}}}", "year": found["year"]}
    if link:
        fields["url"] = link[0].rstrip(".:")
    key = re.sub(r"\W+", "_", name)
    return "\n".join([f"@misc{{{key},", *(f"  {k} = {{{v}}}," for k, v in fields.items()), "}"])
