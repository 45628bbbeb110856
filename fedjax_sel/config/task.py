"""The loss and the metrics of a task, as a configuration names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedjax_sel.catalog import check_name, see
from fedjax_sel.config import own
from fedjax_sel.config.checks import Parameter, list_parameters, split_component
from fedjax_sel.config.components import ListedKind
from fedjax_sel.task import Task
from fedjax_sel.task.losses import LOSSES, Loss
from fedjax_sel.task.metrics import METRICS, Metric

KEYS = ("loss", "metrics")
"""The keys that `task` may have."""


@dataclass(frozen=True)
class MeasureKind(ListedKind):
    """Losses or metrics: classes of a module that are listed here, or a user's class or plain function."""

    def load(self, name: str) -> Callable[..., Any]:
        """Returns the class, or the user's class or function; raises as `ListedKind.load` does."""
        if not own.names_own_code(name):
            return super().load(name)
        found = own.load_own(self.what, name)
        if inspect.isfunction(found) or (isinstance(found, type) and issubclass(found, self.base)):
            return found
        raise ValueError(
            f"{self.what} {name} is {found!r:.80}; it must be a function of outputs and targets, or a subclass of "
            f"fedjax_sel.task.{self.base.__name__}"
        )

    def known(self, name: str) -> dict[str, Parameter]:
        """Returns the parameters of a class; a function has none."""
        part = self.load(name)
        return list_parameters(part) if isinstance(part, type) else {}

    def build(self, resolved: dict | None, **filled: Any) -> Any:
        """Returns the value that a resolved component describes, or the user's function itself."""
        part = None if resolved is None else self.load(resolved["name"])
        return super().build(resolved, **filled) if isinstance(part, type) else part


PAGE = "docs/learn/own_task.md"
LOSS = MeasureKind("loss", "fedjax_sel.task", None, Loss, members=LOSSES, page=PAGE, listed="losses")
METRIC = MeasureKind("metric", "fedjax_sel.task", None, Metric, members=METRICS, page=PAGE, listed="metrics")
MEASURES: dict[str, MeasureKind] = {"task.loss": LOSS, "task.metrics": METRIC}
"""The kinds of components in `task`, by key."""


@see(PAGE)
def resolve_task(given: Any) -> dict[str, Any]:
    """Returns the loss and metrics with all their parameters; None where the kind of targets decides.

    Metrics are a list of names, or a mapping whose keys are their names in the history.

    Raises:
      ValueError: a name or parameter is unknown, or a value has the wrong type.

    >>> resolve_task({"loss": "focal", "metrics": ["f1"]})
    {'loss': {'name': 'focal', 'gamma': 2.0}, 'metrics': {'f1': {'name': 'f1', 'average': 'macro'}}}
    """
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ValueError(f"task is {given!r}; it must be a mapping, as in {{loss: focal, metrics: [accuracy, f1]}}")
    for key in given:
        check_name("key of task:", key, KEYS)
    return {"loss": LOSS.resolve("task.loss", given.get("loss")), "metrics": resolve_metrics(given.get("metrics"))}


def resolve_metrics(given: Any) -> dict[str, dict] | None:
    """Returns every metric by its name in the history; raises as `resolve_task` does."""
    if given is None:
        return None
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list | tuple):
        named = [split_component("task.metrics", one, None)[0].rpartition(":")[2] for one in given]
        if twice := [name for name in named if named.count(name) > 1]:
            raise ValueError(
                f"task.metrics has two called {twice[0]}; give each a name, as in {{mine: {{name: {twice[0]}}}}}"
            )
        given = dict(zip(named, given, strict=True))
    if not isinstance(given, Mapping):
        raise ValueError(f"task.metrics is {given!r}; it must be a list of names, as in [accuracy, f1], or a mapping")
    if unnamed := [name for name in given if not isinstance(name, str)]:
        raise ValueError(f"task.metrics has a metric called {unnamed[0]!r}; its name must be text")
    named = {name: name if one is None else one for name, one in given.items()}
    return {name: METRIC.resolve(f"task.metrics.{name}", one) or {} for name, one in named.items()}


@see(PAGE)
def apply_task(task: Task, resolved: Mapping[str, Any]) -> Task:
    """Returns the task with the loss and metrics that a configuration names."""
    changes = {}
    if resolved["loss"] is not None:
        changes["loss"] = LOSS.build(resolved["loss"])
    if resolved["metrics"] is not None:
        changes["metrics"] = {name: METRIC.build(one) for name, one in resolved["metrics"].items()}
    return task.replace(**changes) if changes else task
