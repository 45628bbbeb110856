"""Variables of a trained model in a file, to begin other runs with."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.runs.files import CHECKPOINTS, write_atomic
from fedjax_sel.types import Variables

FILE = "pretrained.npz"
"""In the folder of a pretraining."""


def save(path: Path, variables: Variables) -> None:
    """Writes the variables of one model, an array `params/group1/.../kernel` each."""
    flat: Any = traverse_util.flatten_dict(jax.device_get(variables), sep="/")
    with write_atomic(path) as new, new.open("wb") as stream:
        np.savez(stream, **flat)


def take_first_seed(variables: Variables) -> Variables:
    """Returns the variables of the first seed of a run."""
    return jax.tree.map(lambda leaf: leaf[0], variables)


def load(place: str | Path) -> Variables:
    """Returns the variables in a file that `save` wrote, or of the first seed of a run in a folder, as kept last.

    Raises:
      FileNotFoundError: there is neither.
      ValueError: it cannot be read, or holds no variables.
    """
    place = Path(place).expanduser()
    path = place / FILE if place.is_dir() else place
    if not path.is_file():
        kept = Checkpoints(place / CHECKPOINTS).variables() if place.is_dir() else None
        if kept is None:
            raise FileNotFoundError(
                f"model.pretrained: {place} is neither a file of variables nor the folder of a run that kept some; "
                "`fedjax-sel pretrain` writes one"
            )
        return take_first_seed(kept)
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it holds one array without a name")
            flat: dict[str, Any] = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"model.pretrained: {path} cannot be read ({error})") from error
    if not any(name.startswith("params/") for name in flat):
        raise ValueError(f"model.pretrained: {path} holds {', '.join(sorted(flat)[:5]) or 'nothing'}, no parameters")
    return traverse_util.unflatten_dict(flat, sep="/")
