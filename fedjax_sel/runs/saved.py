"""Finished runs and sweeps, read from their folders: configurations, results, and final models."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Shaped

from fedjax_sel import config as configuration
from fedjax_sel.catalog import see
from fedjax_sel.compiled import jit
from fedjax_sel.config import Config
from fedjax_sel.config.build import PROBLEM, Problem, Run, build_problem
from fedjax_sel.config.marks import SourceChangedError, drop_marks
from fedjax_sel.config.task import apply_task
from fedjax_sel.data.convert import convert_new
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.history import History
from fedjax_sel.runs import files, formats, layout
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.sweep import layout as of_sweep
from fedjax_sel.task import Task
from fedjax_sel.types import Rows, Variables

AT_ONCE = 1000
"""Examples per forward pass."""


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A finished run in its folder.

    Attributes:
      folder: the folder of the run.
      history: the history of all seeds; its `variables` are None, since models are read on demand.
      asked: the configuration as the folder has it, under the current key names.
    """

    folder: Path
    history: History
    asked: dict

    @functools.cached_property
    def config(self) -> Config:
        """The complete configuration; warns if the user's code or files have changed since the run.

        Raises:
          ValueError: a component is no longer installed.
        """
        return self.resolve(self.asked)

    def resolve(self, asked: dict) -> Config:
        """Returns the complete configuration of what was asked, or of a part; warns as `config` does."""
        try:
            return configuration.resolve(asked)
        except SourceChangedError as error:
            warnings.warn(
                f"{self.folder}: {str(error).partition(';')[0]}; what needs it uses it as it is now", stacklevel=4
            )
            return configuration.resolve(drop_marks(asked))

    def __repr__(self) -> str:
        return f"SavedRun({str(self.folder)!r}, {self.history!r})"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The `R` seeds of the run."""
        return self.history.seeds

    @functools.cached_property
    def variables(self) -> Variables:
        """The final models of all seeds, as nested dictionaries of arrays with a leading axis `R`.

        Raises:
          FolderError: the folder has no models, or they cannot be read.
        """
        if (self.folder / layout.MODELS).is_file():
            return layout.read_file(self.folder / layout.MODELS, formats.load_variables)
        kept = Checkpoints(self.folder / layout.CHECKPOINTS)
        if self.history.rounds not in kept.rounds():
            raise FolderError(
                f"{self.folder} keeps no models: its checkpoints were removed, or it is of a sweep without "
                "--keep-models; run it again in another folder"
            )
        last = layout.read_file(self.folder / layout.CHECKPOINTS, lambda _: kept.variables_after(self.history.rounds))
        return jax.tree.map(lambda leaf: leaf[: len(self.seeds)], last)  # without runs that only fill a mesh

    @see("docs/how-to/saved-runs.md")
    def model(self, seed: int | None = None) -> Variables:
        """Returns the final model of a seed (None: the first), as `save_variables` takes it.

        Raises:
          ValueError: the run does not have the seed.
          FolderError: as for `variables`.
        """
        if seed is not None and seed not in self.seeds:
            raise ValueError(f"seed is {seed!r}, but the run in {self.folder} has the seeds {list(self.seeds)}")
        place = 0 if seed is None else self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[place], self.variables)

    def params(self, seed: int | None = None) -> Variables:
        """Returns the trained parameters of the final model of a seed (None: the first)."""
        return self.model(seed)["params"]

    def build(self) -> Run:
        """Builds the experiment, the federation and the seeds of the run; this loads the data."""
        return configuration.build(self.config)

    @functools.cached_property
    def problem_config(self) -> Config:
        """The configuration of what is learnt; the strategies of the run, whose code may be gone, are left out."""
        return self.resolve({key: self.asked[key] for key in PROBLEM if key in self.asked})

    @functools.cached_property
    def problem(self) -> Problem:
        """The task and its data, which is loaded; examples are as stored."""
        given = self.problem_config.to_dict()
        return build_problem(Config({**given, "model": {**given["model"], "cached": False}}))

    @functools.cached_property
    def example(self) -> Dataset:
        """A dataset of the run's source, which gives the shape and the targets of all; this loads it."""
        source = self.problem.source
        return source if isinstance(source, Dataset) else source(0)

    @functools.cached_property
    def task(self) -> Task:
        """The task of the run, for examples as stored; this loads the data, for the normalisation.

        Raises:
          ValueError: its loss or a metric is the user's own, whose file is gone.
        """
        measures = self.resolve({key: self.asked[key] for key in (*PROBLEM, "task") if key in self.asked})["task"]
        return apply_task(self.problem.task, measures)

    def logits(self, x: Rows, seed: int | None = None) -> Float[np.ndarray, "b C"]:
        """Returns the logits of examples as stored, by the final model of a seed (None: the first).

        Raises:
          ValueError: the examples have another shape or range than the run's, lack a column, are not numbers, or hold
            NaN or infinity.
        """
        variables, x = self.model(seed), convert_new(x, self.example.x, self.example.features)
        parts = [compute_logits(self.problem.task, variables, x[i : i + AT_ONCE]) for i in range(0, len(x), AT_ONCE)]
        return np.concatenate([np.asarray(part) for part in parts])

    def predict(self, x: Rows, seed: int | None = None) -> Shaped[np.ndarray, "b ..."]:
        """Returns the predictions of the final model of a seed (None: the first) for examples as stored.

        They are the class of each example (for tokens: at each position), the numbers themselves for continuous
        targets (in the shape of the targets), or 0 or 1 for each label for multilabel targets. The columns of a table
        are found by their names if the run's data was made with `from_frame`.
        """
        outputs = self.logits(x, seed)
        if self.example.targets == "continuous":
            return outputs.reshape(len(outputs), *self.example.y.shape[1:])
        return (outputs > 0).astype(np.int32) if self.example.targets == "multilabel" else outputs.argmax(-1)

    @see("docs/how-to/saved-runs.md")
    def export(self, path: str | Path | None = None, format: str | None = None, seed: int | None = None) -> Path:
        """Writes the final model of a seed (None: the first), with its frozen parts, and returns the path.

        Args:
          path: where to write; None: `model-seed-S` in the run's folder, with the format's suffix.
          format: as `save_variables` takes it; None: given by the suffix of `path`, or `"npz"`.
          seed: seed of the model.

        Raises:
          ValueError: as for `model` and `save_variables`.
          FileExistsError: the format is Orbax, and the path exists.
        """
        if path is None:
            format = format or "npz"
            configuration.check_name("format", format, formats.ENDINGS)
            number = self.seeds[0] if seed is None else seed
            path = self.folder / f"{layout.EXPORTED}{number}{formats.ENDINGS[format]}"
        model = self.model(seed)
        whole = self.problem.task.frozen.merge(model) if self.problem_config["model"].get("frozen") else model
        return formats.save_variables(path, whole, format)


@dataclass(frozen=True, eq=False)
class SavedSweep:
    """A sweep in its folder; `sweep[NAME]` is one of its runs.

    Attributes:
      folder: the folder of the sweep.
      description: the values of every axis (`axes`), and what all combinations have in common (`common`).
      table: one row per combination and seed, as in `table.parquet`.
    """

    folder: Path
    description: dict
    table: pd.DataFrame

    def __repr__(self) -> str:
        return f"SavedSweep({str(self.folder)!r}, {len(self.names)} runs)"

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of the combinations, in alphabetical order."""
        return sorted(path.name for path in (self.folder / of_sweep.RUNS).iterdir() if path.is_dir())

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[SavedRun]:
        return (self[name] for name in self.names)

    def __getitem__(self, name: str) -> SavedRun:
        configuration.check_name("combination", name, self.names)
        return open_run(self.folder / of_sweep.RUNS / name)


@see("docs/how-to/saved-runs.md")
def open(folder: str | Path) -> SavedRun | SavedSweep:
    """Returns the finished run, or the finished sweep, in a folder.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: it holds something else, is not finished, or cannot be read.

    >>> import tempfile
    >>> from fedjax_sel.runs.execute import execute
    >>> from rich.console import Console
    >>> asked = configuration.resolve({"data": "iris", "rounds": 1, "seeds": 1, "partition": {"clients": 10}})
    >>> place = Path(tempfile.mkdtemp()) / "run"
    >>> history = execute("iris", asked, place, figures=False, console=Console(quiet=True))
    >>> run = open(place)
    >>> run.predict(np.zeros((2, 4), np.float32)).shape
    (2,)
    """
    folder = Path(folder).expanduser()
    if (folder / of_sweep.ASKED).is_file():
        return open_sweep(folder)
    return open_run(folder)


@see("docs/how-to/saved-runs.md")
def open_run(folder: Path) -> SavedRun:
    """Returns the finished run in a folder; raises as `open` does."""
    history, given = layout.read(folder)
    return SavedRun(folder.absolute(), history, given)  # models are read when they are asked for


@see("docs/how-to/saved-runs.md")
def open_sweep(folder: Path) -> SavedSweep:
    """Returns the finished sweep in a folder; raises as `open` does."""
    if not (folder / layout.SUMMARY).is_file():
        raise FolderError(f"the sweep in {folder} is not finished; the same command goes on with the rest")
    described = of_sweep.read_description(folder)
    return SavedSweep(folder.absolute(), described, layout.read_file(folder / of_sweep.PARQUET, files.read_parquet))


def list_run_folders(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders of runs, each once: those given, and for a finished sweep those of its combinations.

    Raises:
      FolderError: a sweep is not finished, or cannot be read.
    """
    out: dict[Path, Path] = {}
    for folder in folders:
        is_sweep = (folder / of_sweep.ASKED).is_file()
        inside = [folder / of_sweep.RUNS / name for name in open_sweep(folder).names] if is_sweep else [folder]
        for one in inside:
            out.setdefault(one.resolve(), one)
    return list(out.values())


@jit()
def compute_logits(task: Task, variables: Variables, x: Rows) -> Float[Array, "b C"]:
    """Returns the logits of examples as stored."""
    return task.logits(variables, x)
