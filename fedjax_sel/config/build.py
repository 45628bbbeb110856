"""From a configuration to the values that run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedjax_sel import pretrained
from fedjax_sel.config import callbacks
from fedjax_sel.config.components import KINDS, SYNTHETIC, source_parameters
from fedjax_sel.config.resolve import resolve
from fedjax_sel.data import sources
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.federation import Federation
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.callback import Callback
from fedjax_sel.engine.collectives import CLIENTS
from fedjax_sel.engine.driver import checked_seeds, simulate
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.engine.layout import SEEDS, Layout
from fedjax_sel.task import Task
from fedjax_sel.task.features import precompute_features
from fedjax_sel.types import Variables


@dataclass(frozen=True)
class Run:
    """What `simulate` takes.

    Attributes:
      experiment: what to run.
      data: the recipe of the clients' rows.
      seeds: of the runs.
      layout: how axes are run.
      mesh: on how many devices, as `simulate` takes it.
      chunk: rounds between two looks of the host; None: chosen.
      callbacks: those of the configuration, made for a run in a folder.
    """

    experiment: Experiment
    data: Federation
    seeds: tuple[int, ...]
    layout: Layout | str
    mesh: tuple[int, int] | str
    chunk: int | None
    callbacks: Callable[[Path], list[Callback]]

    def simulate(self, **how: Any) -> History:
        """Run it; `how` is `callbacks`, `checkpoints`, `memory`, `debug` of `engine.driver.simulate`."""
        return simulate(
            self.experiment, self.data, self.seeds, layout=self.layout, mesh=self.mesh, chunk=self.chunk, **how
        )


@dataclass(frozen=True)
class Learnt:
    """What is learnt, and from which rows.

    Attributes:
      task: the model on rows like those of the source.
      source: of the clients' rows.
      public: rows that all clients may see; None: none.
    """

    task: Task
    source: Dataset | Callable[[int], Dataset]
    public: Dataset | None


LEARNT = ("data", "public", "data_seed", "model")
"""The keys of a configuration that `learnt` looks at."""


def build(config: dict, begin: Variables | None = None, known: Learnt | None = None) -> Run:
    """The values of a configuration, checked together before anything compiles.

    The number of classes is the data's. Rows are normalised by the moments of the training rows (of data seed 0 where
    every seed draws its own), unless `model.normalise` is false.

    Args:
      config: of the run.
      begin: variables of the model that it begins with, instead of those that `model.pretrained` names.
      known: what `learnt` gave for a configuration with the same `LEARNT`, so that its rows are not loaded again.

    Raises:
      ValueError: something cannot run.
      FileNotFoundError: the data, or a table of devices or of availability, is not there.
    """
    config = resolve(config)
    if config["chunk"] is not None and config["chunk"] < 1:
        raise ValueError(f"chunk is {config['chunk']}; it must be at least 1 round, or null")
    if config["data_seed"] is not None and config["data_seed"] < 0:
        raise ValueError(f"data_seed is {config['data_seed']}; it must be at least 0, or null")
    told = partial(callbacks.made, config)
    told(Path())
    parts = {key: KINDS[key].build(config[key]) for key in KINDS if key != "model"}
    what = learnt(config, begin) if known is None else known
    data = Federation(
        what.source,
        parts.pop("partition"),
        config["holdout"],
        config["data_seed"],
        devices=parts.pop("devices"),
        public=what.public,
    )
    numbers = {key: config[key] for key in ("cohort_size", "rounds", "evaluate_every", "evaluate_last", "signal_split")}
    experiment = Experiment(what.task, **parts, **numbers, deadline=Deadline(**config["deadline"]))
    seeds = checked_seeds(config["seeds"])
    experiment.check(data.draw(seeds[0]))
    how = config["layout"]
    how = Layout(**how) if isinstance(how, dict) else how
    mesh = "auto" if config["mesh"] is None else (config["mesh"][SEEDS], config["mesh"][CLIENTS])
    return Run(experiment, data, seeds, how, mesh, config["chunk"], told)


def learnt(config: dict, begin: Variables | None = None, source: Any = None) -> Learnt:
    """The task of a resolved configuration and its rows.

    Args:
      config: of the run.
      begin: as for `build`.
      source: what `source_of` gave for its `data`; None: it is loaded.

    Raises:
      ValueError, FileNotFoundError: as `build`.
    """
    source = source_of(config["data"]) if source is None else source
    example = source if isinstance(source, Dataset) else source(config["data_seed"] or 0)
    if not len(example.test_y):
        raise ValueError(
            f"data {example.name} has no test rows to evaluate on; load it with a share, as in data.test: 0.2"
        )
    given = config["model"]
    model = KINDS["model"].build(given, classes=example.classes)
    task = Task.on(model, example) if given["normalise"] else Task(model)
    if begin is None and given["pretrained"] is not None:
        begin = pretrained.load(given["pretrained"])
    if begin is not None or given["frozen"]:
        task = task.fine_tune(example.x, frozen=given["frozen"], pretrained=begin)
    public = None if config["public"] is None else source_of(config["public"])
    if given["cached"]:
        task, source, public = through_backbone(task, example, source, public)
    return Learnt(task, source, public)


def through_backbone(task: Task, example: Dataset, source: Any, public: Dataset | None) -> tuple[Task, Any, Any]:
    """The task, and its data run through the parts that are not trained; as they were, where that cannot be."""
    if isinstance(source, Dataset):
        rest, done = precompute_features(task, source, *([] if public is None else [public]))
        return rest, done[0], None if public is None else done[1]
    rest, _ = precompute_features(task, replace(example, x=example.x[:1], test_x=example.test_x[:0]))
    if rest is task:
        return task, source, public
    return (
        rest,
        lambda seed: precompute_features(task, source(seed))[1][0],
        None if public is None else precompute_features(task, public)[1],
    )


def source_of(config: dict) -> Any:
    """The dataset a resolved `data` describes, or the function that draws it from a seed.

    A synthetic source is drawn from the seed of the run, and so are the test rows of any other where `seed` is None.
    """
    given = {key: config[key] for key in source_parameters(config["name"])}
    if config["name"] in SYNTHETIC:
        draw = partial(SYNTHETIC[config["name"]], **given)
        return lambda seed: draw(seed=seed)
    if given["seed"] is None:
        return lambda seed: sources.load(config["name"], **{**given, "seed": seed})
    return sources.load(config["name"], **given)
