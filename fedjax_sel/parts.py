"""FrozenParams of a model that are not trained: which, with what values, and what follows for the rest."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Variables

STATISTICS = "batch_stats"


class Counts(NamedTuple):
    """What a task costs.

    Attributes:
      parameters: numbers in the variables that are trained.
      flops: floating-point operations of one row's forward pass.
      backward: a backward pass as a multiple of that.
      outputs: shape of one row's logits.
      fixed: numbers in the fixed parts.
    """

    parameters: int
    flops: float
    backward: float
    outputs: tuple[int, ...]
    fixed: int


class FrozenParams(Pytree):
    """Which parts of a model are fixed.

    A part is named by where it stands in the model, as in `group1` or `group3/block1`; `*` stands for anything in one
    step of the way. A fixed part takes no gradient, its normalisation uses its statistics and does not move them, and
    it neither travels nor is averaged: it is no part of what goes round.

    Attributes:
      fixed_names: of the fixed parts.
      fixed: their variables.
      start: what the others begin with, where it is known; the rest is drawn.
      begin: how many of the model's `stages` were done beforehand, so that its rows are what those made of them.
      counts: of the whole task, where rows are no longer what they were; None: counted.
    """

    fixed_names: tuple[str, ...] = static(default=())
    fixed: Variables = field(default_factory=dict)
    start: Variables = field(default_factory=dict)
    begin: int = static(default=0)
    counts: Counts | None = static(default=None)

    @property
    def rest(self) -> dict[str, Any]:
        """What the model is called with besides, to begin where the rows are."""
        return {"begin": self.begin} if self.begin else {}

    def is_fixed(self, path: Sequence[str]) -> bool:
        """Whether a module, or a variable in one, is in a fixed part; `path` without its collection."""
        return any(within(path, name) for name in self.fixed_names)

    def parted(self, variables: Variables) -> tuple[Variables, Variables]:
        """What is trained, and what is fixed."""
        if not self.fixed_names:
            return variables, {}
        flat = traverse_util.flatten_dict(variables)
        sides = [{k: v for k, v in flat.items() if self.is_fixed(k[1:]) == fixed} for fixed in (False, True)]
        trained, fixed = map(traverse_util.unflatten_dict, sides)
        return trained, fixed

    def without_fixed(self, variables: Variables) -> Variables:
        """What is trained of some variables."""
        return self.parted(dict(variables))[0]

    def free(self, variables: Variables) -> Variables:
        """What is trained of fresh variables, as it is known or as drawn."""
        trained = self.without_fixed(variables)
        return joined(trained, self.start) if self.start else trained

    def whole(self, variables: Variables) -> Variables:
        """The model's variables."""
        return joined(self.fixed, variables) if self.fixed else variables

    def later(self, stages: Sequence[str]) -> Variables:
        """The fixed variables beyond these stages."""
        flat = traverse_util.flatten_dict(self.fixed)
        return traverse_util.unflatten_dict({path: leaf for path, leaf in flat.items() if path[1] not in stages})

    @contextmanager
    def evaluated(self) -> Iterator[None]:
        """Within, fixed modules that are told `train=True` do not believe it."""
        if not self.fixed_names:
            yield
            return

        def call(layer, args, kwargs, context):
            if kwargs.get("train") and context.method_name == "__call__" and self.is_fixed(context.module.path):
                kwargs = {**kwargs, "train": False}
            return layer(*args, **kwargs)

        with nn.intercept_methods(call):
            yield


def within(path: Sequence[str], name: str) -> bool:
    """Whether a path begins with a name's steps.

    >>> within(("group1", "block2", "conv1"), "group1"), within(("group1", "block2"), "*/block1"), within((), "group1")
    (True, False, False)
    """
    steps = name.split("/")
    return len(path) >= len(steps) and all(map(fnmatch.fnmatchcase, path, steps))


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both nested dictionaries in one; where both have a leaf, the other's."""
    out = dict(one)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = joined(out[key], value) if both else value
    return out


def size_of(variables: Variables) -> int:
    """How many numbers there are."""
    leaves: list[Any] = jax.tree.leaves(variables)
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


def fitted(variables: Variables, like: Variables, parts: FrozenParams, last: tuple[str, ...]) -> Variables:
    """The variables that fit a model, without those of its last layer where that has another number of classes.

    Args:
      variables: of a checkpoint.
      like: shapes of the model's.
      parts: of which the fixed must be there whole.
      last: where the last layer stands.

    Raises:
      ValueError: variables are missing, too many, or of other shapes; they are named.
    """
    given: dict[tuple[str, ...], Any] = dict(traverse_util.flatten_dict(variables))
    wanted: dict[tuple[str, ...], Any] = dict(traverse_util.flatten_dict(like))
    wrong = [f"{'/'.join(path)} is missing" for path in wanted if path not in given]
    wrong += [f"{'/'.join(path)} is no part of the model" for path in given if path not in wanted]
    out = {}
    for path in wanted.keys() & given.keys():
        have, need = jnp.shape(given[path]), wanted[path].shape
        if have == need:
            out[path] = jnp.asarray(given[path])
        elif path[1:-1] != last or have[:-1] != need[:-1] or parts.is_fixed(path[1:]):
            wrong.append(f"{'/'.join(path)} has shape {have}, the model's is {need}")
    if wrong:
        shown = sorted(wrong, key=lambda line: (line.startswith(STATISTICS), line))[:6]
        raise ValueError(f"the checkpoint is of another model: {'; '.join(shown)}" + more(len(wrong) - 6))
    classes = [path for path in wanted if path[1:-1] == last]
    if any(path not in out for path in classes):  # a layer is taken whole or not at all
        out = {path: leaf for path, leaf in out.items() if path not in classes}
    return traverse_util.unflatten_dict(out)


def more(count: int) -> str:
    """That there are others."""
    return f"; and {count} more" if count > 0 else ""


def check_parts(names: Sequence[str], variables: Variables) -> None:
    """Raise `ValueError` for names that no variable is in, or that leave nothing to train."""
    paths = {path[1:] for path in traverse_util.flatten_dict(variables)}
    known = ", ".join(sorted({path[0] for path in paths}))
    for name in names:
        if not any(within(path, name) for path in paths):
            raise ValueError(
                f"frozen: {name!r} is no part of the model; its parts are {known} (and what is within them, as in "
                "part/within; * stands for anything)"
            )
    parameters = [path[1:] for path in traverse_util.flatten_dict(variables) if path[0] != STATISTICS]
    if names and all(FrozenParams(fixed_names=tuple(names)).is_fixed(path) for path in parameters):
        raise ValueError(f"frozen: {', '.join(names)} is all of the model ({known}); something must be left to train")
