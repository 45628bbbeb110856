"""Components that a user wrote, named by module and attribute: `my_module:MySelector`, `lib/mine.py:make`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedjax_sel.catalog import check_name
from fedjax_sel.config.marks import note_import
from fedjax_sel.mistakes import describe, find_frame, is_library_file

FORMATS = ("npz", "tfds", "hf")
"""Prefixes before a colon that are data formats, not modules."""


def names_own_code(name: Any) -> bool:
    """Returns whether a name has the form `module:name`.

    >>> names_own_code("my_module:MySelector"), names_own_code("entropy"), names_own_code("npz:data.npz")
    (True, False, False)
    """
    before, colon, after = name.partition(":") if isinstance(name, str) else ("", "", "")
    return bool(colon and before and after) and before not in FORMATS


def check_own_name(option: str, name: str) -> None:
    """Raises `ValueError` if a name given to an option of the command line does not have the form `module:name`."""
    if not names_own_code(name):
        raise ValueError(f"{option} {name!r}: it must be of the form module:Name or file.py:Name")


def load_own(what: str, name: str) -> Any:
    """Returns the object that `module:name` refers to.

    The module is looked for in the current folder first; one that ends in `.py` is a file.

    Args:
      what: the kind of object wanted, for errors.
      name: `module:name`.

    Raises:
      ValueError: there is no such module or name, or the module raises an error.
    """
    module_name, _, attribute = name.partition(":")
    module = import_module(what, module_name)
    if not hasattr(module, attribute):
        public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        defined = [key for key, value in public.items() if getattr(value, "__module__", "") == module.__name__]
        check_name(f"name in {module_name}:", attribute, defined or public)
    return getattr(module, attribute)


def load_class(what: str, name: str, base: type) -> Any:
    """Returns a user's class.

    Args:
      what, name: as for `load_own`.
      base: its required superclass, or a protocol whose methods it must have.

    Raises:
      ValueError: the object is not such a class, or as for `load_own`.
    """
    found = load_own(what, name)
    if getattr(base, "_is_protocol", False):
        methods = [key for key, value in vars(base).items() if inspect.isfunction(value) and not key.startswith("_")]
        fits = all(callable(getattr(found, method, None)) for method in methods)
        wanted = f"a class with the method {', '.join(methods)}"
    else:
        fits = isinstance(found, type) and issubclass(found, base)
        wanted = "a class" if base is object else f"a subclass of {base.__module__.split('.')[0]}.{base.__qualname__}"
    if not (isinstance(found, type) and fits):
        raise ValueError(f"{what} {name} is {found!r:.80}; it must be {wanted}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ValueError(f"{what} {name} does not define {missing}, which every {base.__name__} must")
    return found


@contextmanager
def run_own(what: str, name: str) -> Iterator[None]:
    """Turns errors of the user's code into a one-line `ValueError` that gives the line; keeps ones made for users."""
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        if not names_own_code(name):
            raise
        raise ValueError(f"{what}: {name} cannot be made: {describe_failure(error)}") from error


def describe_failure(error: Exception) -> str:
    """Returns a description of an error, with the file and line that raised it."""
    at = find_frame(error) or traceback.extract_tb(error.__traceback__)[-1]
    place = f"{at.filename}, line {at.lineno}"
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
    return f"{describe(error)} ({place})"


def load_function(what: str, name: str) -> Any:
    """Returns a user's function that makes a `Dataset`, from a module or `.py` file; raises as `load_class` does."""
    found = load_own(what, name)
    if not callable(found):
        raise ValueError(f"{what} {name} is {found!r:.80}; it must be a function that returns a Dataset")
    return found


def import_module(what: str, name: str) -> ModuleType:
    """Imports and returns the user's module; raises as `load_own` does."""
    stem = Path(name).stem if name.endswith(".py") else name.split(".")[0]
    if name.endswith(".py") or Path(f"{stem}.py").is_file():  # an installed package of the user's is a library, too
        check_stem(what, Path(name if name.endswith(".py") else f"{stem}.py").expanduser().resolve())
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as with `python -m`; the module's later imports are found there, too
    try:
        is_file = name.endswith(".py")
        module = import_file(Path(name).expanduser().resolve()) if is_file else importlib.import_module(name)
        note_import(module)
        return module
    except FileNotFoundError as error:
        looked = f" ({name}, seen from the working directory)" if not Path(name).expanduser().is_absolute() else ""
        raise ValueError(f"{what}: there is no file {error.filename}{looked}") from error
    except ModuleNotFoundError as error:
        by = "" if error.name == name.split(".")[0] else f", which {name} imports"
        raise ValueError(f"{what}: there is no module {error.name!r}{by}, in {here} or on Python's path") from error
    except Exception as error:
        raise ValueError(f"{what}: {name} cannot be imported: {describe_failure(error)}") from error


def check_stem(what: str, file: Path) -> None:
    """Raises `ValueError` if a user's file has the name of a module of Python, or of a library that is in use."""
    stem = file.stem
    known = getattr(sys.modules.get(stem), "__file__", None) or ""
    if stem in sys.stdlib_module_names or (is_library_file(known) and known != str(file)):
        raise ValueError(f"{what}: {stem} is a module of Python or of a library; give the file {stem}.py another name")


def import_file(path: Path) -> ModuleType:
    """Imports the module in a file and returns it; later calls return the same module.

    Its name is the file's; that of another file with the same name, imported later, also has the folder.
    """
    for name in (path.stem, f"{path.stem} in {path.parent}"):
        known = sys.modules.get(name)
        if known is None:
            break
        if getattr(known, "__file__", None) == str(path):
            return known
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
