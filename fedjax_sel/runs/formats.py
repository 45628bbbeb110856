"""Reads and writes the variables of one model: as a NumPy archive, safetensors, or an Orbax checkpoint.

The first two hold one array per leaf, named `params/group1/.../kernel`; Orbax keeps the nested dictionaries.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from fedjax_sel.catalog import check_name, import_extra
from fedjax_sel.engine.orbax import handler, orbax, quiet
from fedjax_sel.pytree import escape, show, split_name
from fedjax_sel.runs.files import PART, write_atomic
from fedjax_sel.types import Variables

ENDINGS = {"npz": ".npz", "safetensors": ".safetensors", "orbax": ".orbax"}
"""The suffix of a file (for Orbax: a folder), by format."""

ORBAX_METADATA = "_CHECKPOINT_METADATA"
"""A file in every folder that Orbax writes."""


def save_variables(path: str | Path, variables: Variables, format: str | None = None) -> Path:
    """Writes the variables of one model and returns the path.

    Args:
      path: a file, which is replaced; for Orbax: a folder that does not exist yet.
      variables: nested dictionaries of arrays.
      format: `"npz"`, `"safetensors"` or `"orbax"`; None: given by the suffix (`.npz`, `.safetensors`, `.orbax`).

    Raises:
      ValueError: the format is unknown or contradicts the suffix, its package is not installed, or `variables` has no
        parameters, contains a list, or has a type or size that the format lacks.
      FileExistsError: the folder already exists.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.npz"
    >>> load_variables(save_variables(path, {"params": {"kernel": np.ones(2)}}))["params"]["kernel"]
    array([1., 1.])
    """
    path = Path(path).expanduser()
    if format is None:
        format = next((name for name, ending in ENDINGS.items() if path.suffix == ending), "")
        if not format:
            raise ValueError(f"{path} ends in none of {', '.join(ENDINGS.values())}; give format='npz', for instance")
    check_name("format", format, ENDINGS)
    if (other := {e: name for name, e in ENDINGS.items()}.get(path.suffix, format)) != format:
        raise ValueError(f"{path} ends as format {other}, but format is {format}; give one of them alone")
    if not isinstance(variables, Mapping) or not jax.tree.leaves(variables.get("params")):
        raise ValueError(f"variables is {show(variables, 60)}; it must be a dictionary with 'params', as a model has")
    path.parent.mkdir(parents=True, exist_ok=True)
    check_nested(variables)
    host = jax.tree.map(np.asarray, jax.device_get(variables))
    try:
        {"npz": write_npz, "safetensors": write_safetensors, "orbax": write_orbax}[format](path, host)
    except (AttributeError, TypeError, ValueError) as error:  # types and sizes that a format lacks
        said = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path} cannot be written as {format} ({said}); try another format") from error
    return path


def check_nested(variables: Variables) -> None:
    """Raises `ValueError` if variables are not nested dictionaries of arrays whose keys are strings."""
    for path, _ in jax.tree_util.tree_leaves_with_path(variables):
        if not all(isinstance(getattr(step, "key", None), str) for step in path):
            raise ValueError(
                f"variables{jax.tree_util.keystr(path)} is not in nested dictionaries of arrays, with strings as keys; "
                "make a list {'0': ..., '1': ...}"
            )


def load_variables(path: str | Path) -> Variables:
    """Returns the variables that `save_variables` wrote, nested dictionaries of NumPy arrays.

    Args:
      path: a file with suffix `.safetensors`, an Orbax folder, or any other file, which is read as a NumPy archive.

    Raises:
      FileNotFoundError: the path does not exist.
      ValueError: it cannot be read, holds no parameters, or a package is not installed.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; `fedjax-sel export RUN` writes the model of a run")
    if path.is_dir() and not is_orbax(path):
        raise ValueError(f"{path} is a folder that Orbax has not written; give a file, or fedjax_sel.open(RUN)")
    read = read_orbax if path.is_dir() else read_safetensors if path.suffix == ENDINGS["safetensors"] else read_npz
    flat = wrap_errors(read, path)
    if not any(name.split("/")[0] == "params" for name in flat):
        raise ValueError(f"{path} holds {', '.join(sorted(flat)[:5]) or 'nothing'}, no parameters")
    return traverse_util.unflatten_dict({split_name(name, "/"): leaf for name, leaf in flat.items()})


PICKLED = "pickled"
"""In NumPy's errors on files that are neither arrays nor archives of them."""


def wrap_errors(read: Callable[[Path], dict[str, Any]], path: Path) -> dict[str, Any]:
    """Returns what `read` returns; turns its errors into a one-line `ValueError` that names the file."""
    try:
        return read(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        said = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{path} cannot be read ({'it is not an archive of arrays' if PICKLED in said else said})"
        ) from error


def is_orbax(path: Path) -> bool:
    """Returns whether a path is a folder that Orbax wrote."""
    return (path / ORBAX_METADATA).is_file()


def flatten(variables: Variables) -> dict[str, Any]:
    """Returns the arrays of nested dictionaries by name, as in `params/head/kernel`; / in their keys is escaped."""
    flat = traverse_util.flatten_dict(variables)
    return {"/".join(escape(key, "/") for key in path): leaf for path, leaf in flat.items()}


def write_npz(path: Path, variables: Variables) -> None:
    """Writes a NumPy archive with one array per leaf; bfloat16 and the like, which NumPy does not know, as float32."""
    flat = {name: np.asarray(leaf) for name, leaf in flatten(variables).items()}
    known: dict[str, Any] = {
        name: leaf.astype(np.float32) if leaf.dtype.kind == "V" else leaf for name, leaf in flat.items()
    }
    with write_atomic(path) as new, new.open("wb") as stream:
        np.savez(stream, **known)


def read_npz(path: Path) -> dict[str, Any]:
    """Returns the arrays of a NumPy archive, by name."""
    with path.open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("it holds one array without a name")
        found = {name: file[name] for name in file.files}
    if odd := [name for name, array in found.items() if array.dtype.kind == "V"]:
        raise ValueError(f"the numbers of {odd[0]} are of a type that NumPy does not know; write it again")
    return found


def import_safetensors() -> Any:
    """Returns `safetensors.numpy`; raises `ValueError` if it is not installed."""
    return import_extra("safetensors.numpy", "safetensors", "the format safetensors")


def write_safetensors(path: Path, variables: Variables) -> None:
    """Writes a safetensors file with one array per leaf."""
    contiguous = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in flatten(variables).items()}
    content = import_safetensors().save(contiguous)
    with write_atomic(path) as new:
        new.write_bytes(content)


def read_safetensors(path: Path) -> dict[str, Any]:
    """Returns the arrays of a safetensors file, by name."""
    module = import_safetensors()
    try:
        return dict(module.load_file(path))
    except import_extra("safetensors", "safetensors", "").SafetensorError as error:
        raise ValueError(str(error)) from error


def write_orbax(path: Path, variables: Variables) -> None:
    """Writes a folder that Orbax's `StandardCheckpointer` reads; it gets its name only when it is complete."""
    if path.exists():
        raise FileExistsError(f"{path} exists; give another folder, or remove it")
    new = path.absolute().with_name(f".{path.name}{PART}")
    shutil.rmtree(new, ignore_errors=True)
    with handler() as checkpointer:
        checkpointer.save(new, args=orbax().args.StandardSave(variables))
    new.rename(path)


def read_orbax(path: Path) -> dict[str, Any]:
    """Returns the arrays of an Orbax folder, by name."""
    with handler() as checkpointer, quiet():
        return {name: np.asarray(leaf) for name, leaf in flatten(checkpointer.restore(path.absolute())).items()}
