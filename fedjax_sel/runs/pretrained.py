"""Variables of a trained model in a file, to begin other runs with."""

from __future__ import annotations

from pathlib import Path

import jax

from fedjax_sel.catalog import see
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.runs import formats
from fedjax_sel.runs.files import CHECKPOINTS
from fedjax_sel.types import Variables

FILE = "pretrained.npz"
"""In the folder of a pretraining."""


def save(path: Path, variables: Variables) -> None:
    """Writes the variables of one model, an array `params/group1/.../kernel` each."""
    formats.save_variables(path, variables, "npz")


def take_first_seed(variables: Variables) -> Variables:
    """Returns the variables of the first seed of a run."""
    return jax.tree.map(lambda leaf: leaf[0], variables)


@see("docs/how-to/models.md")
def load(place: str | Path) -> Variables:
    """Returns the variables in a file that `save_variables` wrote, or of the first seed of a run, as kept last.

    Raises:
      FileNotFoundError: there is neither.
      ValueError: it cannot be read, or holds no variables.
    """
    place = Path(place).expanduser()
    path = place / FILE if place.is_dir() and not formats.is_orbax(place) else place
    if not path.exists() or (path.is_dir() and not formats.is_orbax(path)):
        kept = Checkpoints(place / CHECKPOINTS).variables() if place.is_dir() else None
        if kept is None:
            raise FileNotFoundError(
                f"model.pretrained: {place} is neither a file of variables nor the folder of a run that kept some; "
                "`fedjax-sel pretrain` writes one"
            )
        return take_first_seed(kept)
    try:
        return formats.load_variables(path)
    except ValueError as error:
        raise ValueError(f"model.pretrained: {error}") from error
