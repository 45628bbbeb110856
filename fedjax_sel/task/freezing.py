"""Frozen parts of a model, which are not trained: their names, their values, and the variables that are left."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Any

import jax.numpy as jnp
from flax import traverse_util

from fedjax_sel.models._call import evaluate_parts
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Variables

PARAMETERS = "params"
"""The collection of variables that are trained."""


class FrozenParams(Pytree):
    """The parts of a model that are not trained, and their variables.

    A part is named by its path in the model, as in `group1` or `group3/block1`; `*` matches anything within one step of
    the path. A frozen part gets no gradient, its normalisation uses its statistics without updating them, and its
    variables are neither sent nor averaged: they are not among the variables of the global model.

    Attributes:
      names: names of the frozen parts.
      variables: variables of the frozen parts.
      start: initial values of other parts, as far as they are known; the rest are drawn.
      begin: how many of the model's `stages` were run in advance, so that examples are the features they computed.
      costs: a `Costs` of the whole task, if examples are features; None: counted on request.
      example_bytes: of an example as stored, if examples are features; None: those of the examples given.
      normalised: whether the features are of examples normalised by moments, one for each entry.

    >>> FrozenParams(names=("group1",)).is_frozen(("group1", "block2"))
    True
    """

    names: tuple[str, ...] = static(default=())
    variables: Variables = field(default_factory=dict)
    start: Variables = field(default_factory=dict)
    begin: int = static(default=0)
    costs: Any = static(default=None)
    example_bytes: int | None = static(default=None)
    normalised: bool = static(default=False)

    @property
    def model_options(self) -> dict[str, Any]:
        """Keyword arguments that make the model start at the stage whose inputs the examples are."""
        return {"begin": self.begin} if self.begin else {}

    def is_frozen(self, path: Sequence[str]) -> bool:
        """Returns whether a module, or a variable in one, is in a frozen part; `path` without its collection."""
        return is_within(path, self.names)

    def split(self, variables: Variables) -> tuple[Variables, Variables]:
        """Splits variables into those that are trained and those that are frozen."""
        return split_parts(variables, self.names)

    def drop_frozen(self, variables: Variables) -> Variables:
        """Returns the variables that are trained."""
        return self.split(dict(variables))[0]

    def initialize(self, drawn: Variables) -> Variables:
        """Returns initial values of the variables that are trained: the known ones, otherwise those drawn."""
        trained = self.drop_frozen(drawn)
        return merge_trees(trained, self.start) if self.start else trained

    def merge(self, trained: Variables) -> Variables:
        """Returns all of the model's variables."""
        return merge_trees(self.variables, trained) if self.variables else trained

    def drop_stages(self, stages: Sequence[str]) -> Variables:
        """Returns the frozen variables that are not in these stages."""
        flat = traverse_util.flatten_dict(self.variables)
        return traverse_util.unflatten_dict({path: leaf for path, leaf in flat.items() if path[1] not in stages})

    def evaluate_frozen(self) -> AbstractContextManager[None]:
        """Returns a context manager in which frozen parts are called as in evaluation."""
        return evaluate_parts(self.is_frozen) if self.names else nullcontext()


def split_parts(variables: Variables, names: Sequence[str]) -> tuple[Variables, Variables]:
    """Splits variables into those outside and those within the named parts."""
    if not names:
        return variables, {}
    flat = traverse_util.flatten_dict(variables)
    inside = {path for path in flat if is_within(path[1:], names)}
    sides = ({path: leaf for path, leaf in flat.items() if (path in inside) == one} for one in (False, True))
    others, named = map(traverse_util.unflatten_dict, sides)
    return others, named


def is_within(path: Sequence[str], names: Sequence[str]) -> bool:
    """Returns whether a path begins with the steps of one of the names."""
    return any(within(path, name) for name in names)


def within(path: Sequence[str], name: str) -> bool:
    """Returns whether a path begins with the steps of a name; a step of the path may itself hold some, as Haiku's do.

    >>> within(("group1", "block2", "conv1"), "group1"), within(("group1", "block2"), "*/block1"), within((), "group1")
    (True, False, False)
    >>> within(("mlp/~/linear_0", "w"), "mlp/~/linear_0"), within(("mlp/~/linear_0", "w"), "*/w")
    (True, True)
    """
    steps, paths = name.split("/"), (tuple(path), tuple("/".join(path).split("/") if path else ()))
    return any(len(one) >= len(steps) and all(map(fnmatch.fnmatchcase, one, steps)) for one in paths)


def merge_trees(tree: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two nested dictionaries; where both have a leaf, takes that of `other`.

    >>> merge_trees({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4})
    {'a': {'x': 1, 'y': 3}, 'b': 4}
    """
    out = dict(tree)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merge_trees(out[key], value) if both else value
    return out


def fit_variables(
    variables: Variables, like: Variables, frozen: FrozenParams, last: tuple[str, ...] | None
) -> Variables:
    """Returns a checkpoint's variables in the model's types, without the last layer if its classes are others.

    Args:
      variables: variables of a checkpoint.
      like: shapes of the model's variables.
      frozen: the parts that must fit completely.
      last: path of the last layer; None if it is not known, so that everything must fit.

    Raises:
      ValueError: variables are missing, superfluous, or of other shapes; the message names them.
    """
    given: dict[tuple[str, ...], Any] = dict(traverse_util.flatten_dict(variables))
    wanted: dict[tuple[str, ...], Any] = dict(traverse_util.flatten_dict(like))
    wrong = [f"{'/'.join(path)} is missing" for path in wanted if path not in given]
    wrong += [f"{'/'.join(path)} is not a part of the model" for path in given if path not in wanted]
    out = {}
    for path in wanted.keys() & given.keys():
        have, need = jnp.shape(given[path]), wanted[path].shape
        if have == need:
            out[path] = jnp.asarray(given[path], wanted[path].dtype)
        elif path[1:-1] != last or have[:-1] != need[:-1] or frozen.is_frozen(path[1:]):
            wrong.append(f"{'/'.join(path)} has shape {have}, the model's is {need}")
    if wrong:
        shown = sorted(wrong, key=lambda line: (not line.startswith(PARAMETERS), line))[:6]
        raise ValueError(f"the checkpoint is of another model: {'; '.join(shown)}" + name_others(len(wrong) - 6))
    classes = [path for path in wanted if path[1:-1] == last]
    if any(path not in out for path in classes):  # take a layer completely or not at all
        out = {path: leaf for path, leaf in out.items() if path not in classes}
    return traverse_util.unflatten_dict(out)


def name_others(count: int) -> str:
    """Returns the end of a message that says how many more there are."""
    return f"; and {count} more" if count > 0 else ""


def check_parts(what: str, names: Sequence[str], variables: Variables, rest: str) -> None:
    """Raises `ValueError` if a name matches no variable, or the names cover the whole model.

    Args:
      what: what the parts are, for error messages.
      names: names of the parts.
      variables: variables of the model.
      rest: what the other parts are, for error messages.
    """
    paths = {path[1:] for path in traverse_util.flatten_dict(variables)}
    known = ", ".join(sorted({path[0] for path in paths}))
    for name in names:
        if not any(within(path, name) for path in paths):
            raise ValueError(
                f"{what}: {name!r} is not a part of the model; its parts are {known} (and what is within them, as in "
                "part/within; * stands for anything)"
            )
    parameters = [path[1:] for path in traverse_util.flatten_dict(variables) if path[0] == PARAMETERS]
    if names and all(is_within(path, names) for path in parameters):
        left = "something must be left to train" if rest == "trained" else f"something must be {rest}"
        raise ValueError(f"{what}: {', '.join(names)} is all of the model ({known}); {left}")
