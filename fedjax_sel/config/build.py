"""Builds the values that a configuration describes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedjax_sel.catalog import see
from fedjax_sel.config import callbacks, own
from fedjax_sel.config.checks import make_value
from fedjax_sel.config.components import KINDS, SYNTHETIC, list_source_parameters
from fedjax_sel.config.config import Config
from fedjax_sel.config.resolve import ANSWERS, NUMBERS
from fedjax_sel.config.task import apply_task
from fedjax_sel.data import sources
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.partition.natural import Natural
from fedjax_sel.engine.callback import Callback
from fedjax_sel.engine.contract import name_kind
from fedjax_sel.engine.driver import simulate
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.mistakes import refuse_global_random_numbers
from fedjax_sel.runs import pretrained
from fedjax_sel.task import Task
from fedjax_sel.task.features import precompute_features
from fedjax_sel.types import Variables


@dataclass(frozen=True)
class Run:
    """The arguments of `simulate`.

    Attributes:
      experiment: what to run.
      data: the recipe of the clients' examples.
      seeds: one for each run.
      execution: how to run it: the configuration's layout, mesh, chunk, and place of the examples.
      callbacks: makes the configuration's callbacks, given the folder of the run.
    """

    experiment: Experiment
    data: Federation
    seeds: tuple[int, ...]
    execution: Execution
    callbacks: Callable[[Path], list[Callback]]

    def simulate(self, **changes: Any) -> History:
        """Returns the history of the run; `changes` set other fields of `Execution`: `callbacks`, `checkpoints`, ..."""
        return simulate(self.experiment, self.data, self.seeds, self.execution, **changes)


@dataclass(frozen=True)
class Problem:
    """What is learnt, and from which examples.

    Attributes:
      task: the model, set up for examples like those of the source.
      source: the source of the clients' examples.
      public: examples that all clients may see; None: none.
    """

    task: Task
    source: Dataset | Callable[[int], Dataset]
    public: Dataset | None


def build_parts(config: Config) -> dict[str, Any]:
    """Returns the strategies of an experiment, by key, without those that the configuration leaves unset."""
    return {key: KINDS[key].build(config[key]) for key in ANSWERS if config[key] is not None}


PROBLEM = ("data", "public", "data_seed", "model")
"""The keys of a configuration that `build_problem` reads."""


@see("docs/how-to/command-line.md")
def build(config: Config, begin: Variables | None = None, problem: Problem | None = None) -> Run:
    """Returns the values of a configuration, checked together before anything compiles.

    The number of classes comes from the data. Examples are normalised by the moments of the training examples (those of
    data seed 0 if every seed draws its own), unless `model.normalise` is false.

    Args:
      config: the configuration of the run, as `resolve` returns it.
      begin: initial variables of the model, instead of those that `model.pretrained` names.
      problem: the result of `build_problem` for a configuration with the same `PROBLEM` keys, which saves loading it
        again.

    Raises:
      ValueError: the configuration cannot run.
      FileNotFoundError: the data, or a table of devices or of availability, does not exist.
      TypeError: the configuration is not resolved.
    """
    if not isinstance(config, Config):
        raise TypeError(f"build takes what resolve returns, not {type(config).__name__}: build(resolve(...))")
    if config.chunk is not None and config.chunk < 1:
        raise ValueError(f"chunk is {config.chunk}; it must be at least 1 round, or null")
    if config.data_seed is not None and config.data_seed < 0:
        raise ValueError(f"data_seed is {config.data_seed}; it must be at least 0, or null")
    make_callbacks = partial(callbacks.make_callbacks, config)
    make_callbacks(Path())
    parts = build_parts(config) | {key: KINDS[key].build(config[key]) for key in ("partition", "devices")}
    problem = build_problem(config, begin) if problem is None else problem
    if config["data"]["name"] in SYNTHETIC and not isinstance(parts["partition"], Natural):
        warnings.warn(
            f"data {config['data']['name']} has clients of its own, whose examples the partition "
            f"{config['partition']['name']} mixes; partition=natural keeps them",
            stacklevel=2,
        )
    data = Federation(
        problem.source,
        parts.pop("partition"),
        config.holdout,
        config.data_seed,
        devices=parts.pop("devices"),
        public=problem.public,
    )
    numbers = {key: config[key] for key in NUMBERS}
    experiment = Experiment(apply_task(problem.task, config["task"]), **parts, **numbers, deadline=config.deadline)
    experiment.check(data.draw(config.seeds[0]))
    execution = Execution(config.layout, config.mesh, config.chunk, config.examples_on)
    return Run(experiment, data, config.seeds, execution, make_callbacks)


@see("docs/how-to/models.md")
def build_problem(config: Config, begin: Variables | None = None, source: Any = None) -> Problem:
    """Returns the task of a configuration and its examples.

    Args:
      config: the configuration of the run.
      begin: as for `build`.
      source: the result of `load_source` for its `data`; None: it is loaded.

    Raises:
      ValueError, FileNotFoundError: as for `build`.
    """
    source = load_source(config["data"]) if source is None else source
    with see("docs/how-to/data.md"):
        example = source if isinstance(source, Dataset) else source(config.data_seed or 0)
    if not len(example.test_y):
        with see("docs/how-to/data.md"):
            raise ValueError(
                f"data {example.name} has no test examples to evaluate on; load it with a share, as in data.test: 0.2"
            )
    given = config["model"]
    model = KINDS["model"].build(given, classes=example.classes, shape=example.x.shape[1:])
    task = Task.on(model, example, normalise=given["normalise"]).replace(personal=tuple(given["personal"] or ()))
    if begin is None and given["pretrained"] is not None:
        begin = pretrained.load(given["pretrained"])
    if begin is not None or given["frozen"]:
        task = task.fine_tune(example.x, frozen=given["frozen"], pretrained=begin)
    public = None if config["public"] is None else load_source(config["public"])
    if given["cached"]:
        task, source, public = apply_backbone(task, example, source, public)
    return Problem(task, source, public)


def apply_backbone(task: Task, example: Dataset, source: Any, public: Dataset | None) -> tuple[Task, Any, Any]:
    """Returns the task on the features of its frozen backbone, and the data as features; both unchanged without one."""
    if isinstance(source, Dataset):
        rest, done = precompute_features(task, source, *([] if public is None else [public]))
        return rest, done[0], None if public is None else done[1]
    rest, _ = precompute_features(task, replace(example, x=example.x[:1], test_x=example.test_x[:0]))
    if rest is task:
        return task, source, public
    return (
        rest,
        lambda seed: precompute_features(task, source(seed))[1][0],
        None if public is None else precompute_features(task, public)[1][0],
    )


@see("docs/how-to/data.md")
def load_source(config: dict[str, Any]) -> Any:
    """Returns the dataset that a resolved `data` describes, or the function that draws it from a seed.

    A synthetic source is drawn from the run's seed, and so are the test examples of any other source whose `seed` is
    None.
    """
    name = config["name"]
    given = {key: make_value(config[key], one.annotation) for key, one in list_source_parameters(name).items()}
    if name in SYNTHETIC:
        draw = partial(SYNTHETIC[name], **given)
        return lambda seed: draw(seed=seed)
    make = own.load_function("data", name) if own.names_own_code(name) else partial(sources.load, name)
    if given.get("seed", 0) is None:
        return lambda seed: make_dataset(name, make, {**given, "seed": seed})
    return make_dataset(name, make, given)


OTHER_DATA = "the same configuration may have other examples each time; draw from np.random.default_rng(seed)"


def make_dataset(name: str, make: Callable[..., Any], given: dict[str, Any]) -> Dataset:
    """Returns the dataset that a source makes; raises `ValueError` if it is not a `Dataset`."""
    guard = refuse_global_random_numbers(OTHER_DATA) if own.names_own_code(name) else nullcontext()
    with own.run_own("data", name), guard:
        made = make(**given)
    if not isinstance(made, Dataset):
        hint = "; its dataset is .source, and who owns what is data.partition" if isinstance(made, Federation) else ""
        raise ValueError(f"data {name} returned {name_kind(made)}; it must return a Dataset, as fs.dataset makes{hint}")
    return made
