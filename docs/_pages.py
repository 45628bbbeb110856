"""Pages that are made from the code and from committed results before Sphinx reads anything."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer
from _formulas import typeset

from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.config.resolve import list_plain_keys
from fedjax_sel.protocols import MOMENTS, ClientSelector, DataSelector, Signals
from fedjax_sel.report.catalogue import read_first_line
from fedjax_sel.report.explain import list_fields, tell_cost

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"


def write_pages(docs: Path) -> None:
    """Writes the pages of strategies, configuration keys and commands (`reference`), and of reports (`results`)."""
    write_strategies(docs / "reference" / "strategies")
    (docs / "reference" / "configuration.md").write_text(describe_configuration(), encoding="utf-8")
    (docs / "reference" / "command-line.md").write_text(describe_commands(), encoding="utf-8")
    copy_reports(docs / "results" / "reports")


def write_strategies(out: Path) -> None:
    """Writes a page for each component of a configuration, and a page for each kind that lists them."""
    shutil.rmtree(out, ignore_errors=True)
    described: set[object] = set()
    for key, kind in {**config.KINDS, "callbacks": config.CALLBACKS}.items():
        folder = out / key
        folder.mkdir(parents=True)
        for name in kind.available():
            made = kind.load(name)
            text = describe_strategy(name, made, made in described, kind.filled)
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
            described.add(made)
        listed = "\n".join(kind.available())
        (folder / "index.md").write_text(
            f"# {kind.what.capitalize()}\n\n```{{toctree}}\n{listed}\n```\n", encoding="utf-8"
        )


def describe_strategy(name: str, made: Any, again: bool, filled: Collection[str]) -> str:
    """Returns the page of a component: its docstring, what it asks for at what cost, its fields, its place.

    Args:
      name: of the component.
      made: the class or function.
      again: whether it has a page under another key, which the index points at.
      filled: fields that a run fills in.
    """
    role = "autoclass" if isinstance(made, type) else "autofunction"
    path = f"{made.__module__}.{made.__qualname__}"
    options = "   :no-index:\n" if again else ""
    parts = [f"# {name}", f"```{{eval-rst}}\n.. {role}:: {path}\n{options}```"]
    if fields := list(list_fields(made, filled)):
        parts += ["## Fields", "\n".join(f"- `{line}`" for line in fields)]
    if isinstance(made, type) and issubclass(made, ClientSelector | DataSelector):
        parts += ["## Signals and their cost", describe_signals(made())]
    if isinstance(made, type) and issubclass(made, ClientSelector):
        parts += ["## On the leaderboard", describe_place(name)]
    return "\n\n".join(parts) + "\n"


def describe_configuration() -> str:
    """Returns the page of all keys of a configuration, with what each may be."""
    plain = "\n".join(
        f"| `{key}` | {tell_type(one.annotation)} | `{'null' if one.default is None else one.default}` |"
        for key, one in list_plain_keys().items()
    )
    kinds = "\n".join(
        f"| `{key}` | {kind.what} | {f'`{kind.default}`' if kind.default else 'null'} "
        f"| [{len(kind.available())} to choose from](strategies/{key}/index.md) |"
        for key, kind in config.KINDS.items()
    )
    sources = ", ".join(f"`{name}`" for name in config.SOURCE_NAMES)
    return f"""# Configuration keys

A configuration is a mapping, in a YAML file or as `KEY=VALUE` on the command line, where
`client_selection.epsilon=0.1` reaches into a part. `config.yaml` in a run's folder is complete, and reruns the run.
Names, types and ranges are checked before anything compiles.

## Parts

A part is a name, or a mapping with `name` and its parameters; its page says which there are.

| key | what | default | |
|---|---|---|---|
{kinds}

`data` and `public` name a source: {sources}.
`deadline` has `seconds` and `late` (`drop` or `partial`); `layout` is `auto`, `vmap`, `scan` or a mapping with
`clients`, `seeds`, `examples`, `members`, `balanced`; `mesh` is a mapping with `seeds` and `clients`; `examples_on`
is `device`, `host`, `auto` or null; `callbacks` is a name, a list of names, or a mapping from names to parameters;
`task` has `loss` and `metrics`. Where `data` is `synthetic` or `uacs`, `partition` is `natural` by default.

## Values

| key | type | default |
|---|---|---|
{plain}
"""


def tell_type(annotation: Any) -> str:
    """Returns a type in words.

    >>> tell_type(int | None), tell_type(float)
    ('int or null', 'float')
    """
    named = str(annotation) if hasattr(annotation, "__args__") else annotation.__name__
    return named.replace(" | ", " or ").replace("None", "null")


def describe_commands() -> str:
    """Returns the page of all commands, with their help."""
    root: Any = typer.main.get_command(main)
    parts = ["# Commands", "What `fedjax-sel COMMAND --help` says."]
    for name, command in sorted(root.commands.items()):
        with command.context_class(command, info_name=f"fedjax-sel {name}", terminal_width=100) as context:
            lines = "\n".join([*context.get_usage().splitlines(), "", inspect.cleandoc(command.help or ""), ""])
            rows = [one.get_help_record(context) for one in command.get_params(context)]
        width = max((len(row[0]) for row in rows if row), default=0)
        options = "\n".join(f"  {row[0]:{width}}  {row[1]}".rstrip() for row in rows if row)
        parts += [f"## {name}", f"```text\n{lines}\n{options}\n```"]
    return "\n\n".join(parts) + "\n"


MOMENT_WORDS = {
    "before": "before training, of the candidates",
    "trained": "of each member, once it has trained",
    "after": "after the merge",
    "upfront": "once, before the first round",
}


def describe_signals(selector: ClientSelector | DataSelector) -> str:
    """Returns what a selector asks for, a line each, with the cost in words."""
    asked = selector.signals()
    moments = {m: asked.at(m) for m in MOMENTS} if isinstance(asked, Signals) else {"on the client": asked}
    lines = []
    for moment, signals in moments.items():
        for name, signal in signals.items():
            what = read_first_line(type(signal)).removesuffix(" Costs the clients nothing.")
            told = tell_cost(signal, sends=moment in MOMENTS)
            lines.append(f"- `{name}`, {MOMENT_WORDS.get(moment, moment)}: {what} {told}")
    said = typeset("\n".join(lines)).replace(":math:`", "{math}`") or "With default parameters it asks for no signals."
    if isinstance(selector, DataSelector):
        if type(selector).prepare is not DataSelector.prepare:
            said += "\n\nWhat it does before the first round is billed to that round (`prepare`)."
        for verb, one, ten in (
            ("receives", selector.count_down(1), selector.count_down(10)),
            ("sends", selector.count_up(1), selector.count_up(10)),
        ):
            if ten:
                many = f"{ten:g} {'number' if ten == 1 else 'numbers'}"
                said += (
                    f"\n\nIn every turn a client {verb} {many}{'' if one == ten else ' where there are ten classes'}."
                )
    if isinstance(selector, ClientSelector):
        if type(selector).upfront is not ClientSelector.upfront:
            said += "\n\nWhat it does before the first round is billed to that round (`upfront`)."
        if type(selector).probes is not ClientSelector.probes:
            said += "\n\nIn some rounds it probes: a random cohort trains, is measured, and is billed (`probes`)."
    return said


LEADERBOARD = RESULTS / "leaderboard-small" / "leaderboard.json"
"""What `fedjax-sel leaderboard` wrote, once it is committed."""


def describe_place(name: str, path: Path = LEADERBOARD) -> str:
    """Returns the selector's line of the committed leaderboard's first table; a link where none is committed."""
    link = "[what is compared, and how](../../../results/leaderboard.md)"
    if not path.exists():
        return f"No run of the whole leaderboard is committed yet: {link}."
    table = json.loads(path.read_text(encoding="utf-8"))["tables"][0]
    rows = [row for row in table["rows"] if row[0] == name]
    if not rows:
        return f"It is not ranked: {link}."
    lines = [table["columns"], ["---"] * len(table["columns"]), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + f"\n\n{table['title']}: {link}."


COPIES = {
    r"\.\./\.\./benchmarks/results/([\w-]+)/(report|leaderboard)\.md": r"reports/\1/\2.md",
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
    for report in sorted([*RESULTS.glob("*/report.md"), *RESULTS.glob("*/leaderboard.md")]):
        folder = out / report.parent.name
        folder.mkdir(parents=True)
        text = report.read_text(encoding="utf-8")
        for figure in set(re.findall(r"\]\((figures/[^)]+)\)", text)):
            (folder / "figures").mkdir(exist_ok=True)
            shutil.copy(report.parent / figure, folder / figure)
        (folder / report.name).write_text(text, encoding="utf-8")
