"""Variables of trained models, in files or shipped with the library, that other runs start from."""

from __future__ import annotations

import functools
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import jax

from fedjax_sel.catalog import see
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.mark import digest
from fedjax_sel.runs import formats
from fedjax_sel.runs.files import CHECKPOINTS
from fedjax_sel.types import Variables

FILE = "pretrained.npz"
"""The file of the variables in the folder of a pretraining."""

MODELS = "models.npz"
"""The file of the final models in a run's folder, each array with a leading axis `R`."""


def save(path: Path, variables: Variables) -> None:
    """Writes the variables of one model, each as an array named `params/group1/.../kernel`."""
    formats.save_variables(path, variables, "npz")


def take_first_seed(variables: Variables) -> Variables:
    """Returns the variables of the first seed of a run."""
    return jax.tree.map(lambda leaf: leaf[0], variables)


def list_shipped() -> list[str]:
    """Returns the names of the models that come with the library."""
    return sorted(path.name.removesuffix(".npz") for path in find_folder().iterdir() if path.name.endswith(".npz"))


def describe(name: str) -> str:
    """Returns the first comment of the configuration that a model of the library was trained with."""
    return (find_folder() / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def find_folder() -> Traversable:
    """Returns the folder of the library's models: `NAME.npz`, and the configuration `NAME.yaml` that made it."""
    return resources.files("fedjax_sel") / "pretrained"


def list_files(place: str | Path) -> list[Path]:
    """Returns the file that `load` reads, as a list; empty for a model of the library, a checkpoint, or a folder."""
    path = locate(Path(place).expanduser())
    return [path] if str(place) not in list_shipped() and path.is_file() else []


def digest_folder(place: str | Path) -> dict[str, str]:
    """Returns the digest, by path, of what `load` reads from a run's newest checkpoint or an Orbax folder.

    It is a digest of the numbers: a run that was made again has the same. Empty for anything else, and for what is
    damaged.

    Raises:
      OSError: it cannot be read now.
    """
    path = locate(Path(place).expanduser())
    if str(place) in list_shipped() or path.is_file():
        return {}
    folder = Path(place).expanduser()
    kept = [path] if path.is_dir() else sorted((folder / CHECKPOINTS).glob("round-*"))[-1:]
    kept = kept or [one for one in [folder / MODELS] if one.is_file()]
    found = [(str(one), digest_variables(str(place), one.stat().st_mtime_ns)) for one in kept]
    return {name: value for name, value in found if value is not None}


@functools.lru_cache(maxsize=64)
def digest_variables(place: str, time: int) -> str | None:
    """Returns the digest of the variables at a place that was last written at `time`; None: none, or damaged ones."""
    try:
        arrays = formats.flatten(load(place))
    except (FileNotFoundError, ValueError):
        return None
    return digest(arrays)[:8]


def locate(place: Path) -> Path:
    """Returns the file of variables in a run's folder; a file or an Orbax folder is returned unchanged."""
    return place / FILE if place.is_dir() and not formats.is_orbax(place) else place


@see("docs/how-to/models.md")
def load(place: str | Path) -> Variables:
    """Returns the variables of a model that comes with the library, is in a file, or belongs to a run.

    Args:
      place: a name (`list_shipped`), a file that `save_variables` wrote, or the folder of a run: the model of its first
        seed is taken, as last saved.

    Raises:
      FileNotFoundError: none of these exists.
      ValueError: it cannot be read, holds no variables, or is both a name and a path.
      OSError: the system cannot read it now.
    """
    shipped, name, place = list_shipped(), str(place), Path(place).expanduser()
    if name in shipped:
        if place.exists():
            raise ValueError(
                f"model.pretrained: {name} is a model of the library and a place here as well; write ./{name} for the "
                "place, or rename it"
            )
        with resources.as_file(find_folder() / f"{name}.npz") as path:
            return formats.load_variables(path)
    path = locate(place)
    if not path.exists() or (path.is_dir() and not formats.is_orbax(path)):
        kept = Checkpoints(place / CHECKPOINTS).variables() if place.is_dir() else None
        if kept is None and (place / MODELS).is_file():
            kept = formats.load_variables(place / MODELS)
        if kept is None:
            raise FileNotFoundError(
                f"model.pretrained: {place} is neither a file of variables nor the folder of a run that kept some "
                f"(`fedjax-sel pretrain` writes one), nor a model of the library: {', '.join(shipped)}"
            )
        return take_first_seed(kept)
    try:
        return formats.load_variables(path)
    except ValueError as error:
        raise ValueError(f"model.pretrained: {error}") from error
