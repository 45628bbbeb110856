"""The application that commands belong to, their errors, and options that several of them share."""

from __future__ import annotations

import errno
import functools
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedjax_sel.catalog import add_pointer, list_notes
from fedjax_sel.engine.disk import DiskFull
from fedjax_sel.interrupts import note_interrupts

main = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning simulated in one XLA program: who should train, and on what.",
)
USERS = (ValueError, FileNotFoundError, PermissionError, DiskFull)
"""Errors caused by what the user asked for, not by this program; see `is_users`."""

Preset = Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `list`) or a YAML file.")]
LayoutName = Annotated[str | None, typer.Option("--layout", help="auto, vmap or scan.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", envvar="FEDJAX_SEL_NO_CACHE", help="Do not keep compiled programs on disk.")
]
Mesh = Annotated[
    str | None, typer.Option(metavar="seeds=S,clients=C", help="Divide seeds and cohorts among S x C devices.")
]
Memory = Annotated[
    float | None, typer.Option(metavar="GIB", min=1e-6, help="Memory that a device may use; by default all of it.")
]


def print_version(wanted: bool) -> None:
    """Prints the version and exits."""
    if wanted:
        from fedjax_sel import __version__

        print(f"fedjax-sel {__version__}")
        raise typer.Exit


@main.callback()
def options(
    context: typer.Context,
    show: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before a command."""
    context.call_on_close(note_interrupts())
    os.environ["MPLBACKEND"] = "Agg"  # figures are written to files; a notebook's or a window's may not be there
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal lacks is shown as "?" and ends nothing
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")


def command(function: Callable[..., None], name: str | None = None) -> Callable[..., None]:
    """Adds a command; user errors in it give one red line and exit status 2, or with `--debug` a traceback."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> None:
        named = {key: expand_home(value) for key, value in named.items()}
        try:
            with print_warnings():
                function(*arguments, **named)
        except KeyboardInterrupt as stopped:
            raise leave(128 + getattr(stopped, "signal", signal.SIGINT)) from None
        except Exception as error:
            if not is_users(error):
                exit_if_one_of_several(error)
                raise
            if named.get("debug"):
                raise
            if type(error) is ValueError:  # about what was typed; help does not solve a folder in use or a full disk
                add_pointer(error, f"`fedjax-sel {name or function.__name__} --help`")
            place = getattr(error, "filename", None)
            said = f"{place}: {error.strerror}" if isinstance(error, OSError) and place else str(error)
            message = "; ".join([said, *list_notes(error)])
            Console(stderr=True).print(Text(f"error: {message}", style="red"), soft_wrap=True)
            raise leave(2) from None

    return main.command(name)(wrapped)


def expand_home(value: Any) -> Any:
    """Returns a path, or a list of paths, with `~` replaced by the home folder; a shell leaves it in `--out=~/runs`."""
    if isinstance(value, list):
        return [expand_home(one) for one in value]
    return value.expanduser() if isinstance(value, Path) else value


def is_users(error: Exception) -> bool:
    """Returns whether an error is caused by what the user asked for, such as an unusable file or a full disk."""
    of_file = isinstance(error, OSError) and error.strerror and (error.filename or error.errno == errno.ENOSPC)
    return isinstance(error, USERS) or bool(of_file)


def exit_if_one_of_several(error: Exception) -> None:
    """Ends this process if it is one of several, after its traceback and a line on what to do."""
    if is_one_of_several():
        traceback.print_exc()
        said = f"this process of several ends ({type(error).__name__}); another one may be gone"
        again = "the same commands go on from the last checkpoint"
        Console(stderr=True).print(Text(f"error: {said}; {again}", style="red"), soft_wrap=True)
        leave(1)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Prints warnings for users as one line each, without the line of code that warned."""
    as_python_does = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category is UserWarning:
            said = explain_damaged_program(str(message))
            Console(stderr=True).print(Text(f"warning: {said}", style="yellow"), soft_wrap=True)
        else:
            as_python_does(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def explain_damaged_program(warning: str) -> str:
    """Returns a warning; if it is about a compiled program on disk that JAX cannot read, with what to do about that.

    A process that was killed, or had no room, while it wrote a program leaves a part of it, and JAX never writes over
    what is there.
    """
    found = re.match(r"Error reading persistent compilation cache entry for '(\w+)'", warning)
    folder = getattr(sys.modules["jax"].config, "jax_compilation_cache_dir", None) if found else None
    if found is None or folder is None:
        return warning
    files = Path(folder) / f"{found[1]}-*"
    return f"{warning}; it is compiled in every run until you remove {files}, which are all compiled again once"


def check_figure(path: Path | None) -> None:
    """Raises `ValueError` unless a figure can be written to a path, before it is computed."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"figure is {path}; its name must end in .png, .pdf or .svg")
    if not path.parent.is_dir():
        raise ValueError(f"figure is {path}, but {path.parent} is not a folder; name a file in one that exists")


def print_wide(table: Table) -> None:
    """Prints a table with each row on one line, even if that is longer than the terminal's; numbers are not broken."""
    console = Console()
    needed = console.measure(table, options=console.options.update(width=10_000)).maximum
    Console(width=max(console.width, needed)).print(table)


def is_one_of_several() -> bool:
    """Returns whether this is one of several processes."""
    jax = sys.modules.get("jax")  # only commands that run something import it
    return jax is not None and jax.distributed.is_initialized()


def leave(code: int) -> typer.Exit:
    """Returns the exception that ends a failed command; one of several processes exits here instead."""
    if is_one_of_several():
        from fedjax_sel.engine import distributed

        distributed.exit_process(code)
    return typer.Exit(code)


def print_notes(given: dict, items: list[str] | None) -> None:
    """Prints which names in a configuration and on the command line have other names here."""
    from fedjax_sel import config as configuration

    for note in configuration.describe_renames(given, items or []):
        Console().print(note, style="dim", highlight=False)


def parse_mesh(text: str | None) -> dict[str, int] | None:
    """Returns `seeds=2,clients=4` as a mapping; None if nothing was given.

    Raises:
      ValueError: the text has another form.
    """
    if text is None:
        return None
    parts = [part.partition("=") for part in text.split(",")]
    mesh = {name.strip(): int(size) for name, _, size in parts if size.strip().isdecimal()}
    if len(mesh) != len(parts):
        raise ValueError(f"--mesh is {text!r}; it must be of the form seeds=2,clients=4")
    return mesh
