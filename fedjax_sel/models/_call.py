"""Calls to models, whatever their arguments are called."""

from __future__ import annotations

import difflib
import inspect
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.arrays import widen
from fedjax_sel.mistakes import NOT_REPEATED, name_model, refuse_global_random_numbers
from fedjax_sel.models._fast_conv import FastConvolutions
from fedjax_sel.types import PRNGKey, Variables

__all__ = [
    "MODES",
    "Model",
    "ModelAdapter",
    "TakesTokens",
    "apply_model",
    "check_call",
    "evaluate_parts",
    "init_model",
    "is_evaluated",
]

MODES = {
    "train": True,
    "training": True,
    "is_training": True,
    "is_train": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Arguments that tell modules whether they train, with the value of each in training."""

MODE_LIKE = re.compile(
    r"(^|_)(train|training|eval|evaluate|evaluation|inference|deterministic|dropout|update_stats|running_average)(_|$)"
)
"""What other arguments that are meant to tell it have in their names."""


def looks_like_mode(name: str) -> bool:
    """Returns whether an argument that is none of `MODES` is named as if it told whether a module trains.

    >>> [looks_like_mode(name) for name in ("do_train", "isTraining", "is_traning")]
    [True, True, True]
    >>> [looks_like_mode(name) for name in ("train", "trained", "is_trained", "trainable")]
    [False, False, False, False]
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    near = difflib.get_close_matches(words, MODES, cutoff=0.9) and not words.endswith("ed")
    return name not in MODES and bool(MODE_LIKE.search(words) or near)


IN_EVALUATION = {name: not value for name, value in MODES.items()}
"""The values of such arguments and fields in evaluation."""

EVALUATED: ContextVar[Callable[[Sequence[str]], bool] | None] = ContextVar("EVALUATED", default=None)


class TakesTokens:
    """Marks a model whose examples are token ids, from 0 to `vocabulary - 1`: whole numbers that are not normalised."""

    vocabulary: int


class ModelAdapter(ABC):
    """A model that is not a Linen module but is called as one; constructed by `from_functions` or `from_nnx`."""

    @abstractmethod
    def init(self, key: PRNGKey, x: Array, *, train: bool = False) -> Variables:
        """Returns the initial variables."""

    @abstractmethod
    def apply(
        self,
        variables: Variables,
        x: Array,
        *,
        train: bool = False,
        mask: Bool[Array, "b"] | None = None,
        rngs: Mapping[str, PRNGKey] | None = None,
        mutable: Sequence[str] = (),
    ) -> Any:
        """Returns the outputs, with the new values of the collections in `mutable` if there are any."""


Model = nn.Module | ModelAdapter


def init_model(model: Model, key: PRNGKey, x: Array, **options: Any) -> Variables:
    """Returns the model's initial variables for examples like `x`.

    Args:
      model: a Linen module, or an adapter (`from_functions`, `from_nnx`).
      key: key of the initial values.
      x: normalised examples.
      options: other keyword arguments of the model.

    >>> sorted(init_model(nn.Dense(3), jax.random.key(0), jnp.zeros((1, 2)))["params"])
    ['bias', 'kernel']
    """
    with name_model(model, x), refuse_global_random_numbers(NOT_REPEATED):
        variables = model.init(key, x, **call_options(model, train=False), **options)
    if not isinstance(model, nn.Module):
        return variables
    return {name: part for name, part in variables.items() if name == "params" or not is_reported(part)}


def is_reported(collection: Any) -> bool:
    """Returns whether a collection is what a Linen module only reports: what it has sown is in tuples."""
    values = jax.tree.leaves(collection, is_leaf=lambda value: isinstance(value, tuple))
    return any(isinstance(value, tuple) for value in values)


def apply_model(
    model: Model,
    variables: Variables,
    x: Array,
    *,
    train: bool,
    key: PRNGKey | None = None,
    mask: Bool[Array, "b"] | None = None,
    mutable: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Returns the model's outputs, with the new values of the collections in `mutable` if there are any.

    Outputs of 16 bits are widened to 32, in which losses and metrics are computed. A module that takes none of `MODES`
    is called in the same way in training and in evaluation. If a module takes no `mask`, its `flax.linen.BatchNorm`
    layers get it, so that padding does not enter the statistics.

    Args:
      model, x, options: as for `init_model`.
      variables: variables of the model.
      train: whether it trains.
      key: key of dropout and other random draws; None: nothing is drawn.
      mask: which examples count in the statistics of a batch.
      mutable: names of collections.

    >>> apply_model(nn.Dense(1, use_bias=False), {"params": {"kernel": jnp.ones((2, 1))}}, jnp.ones((1, 2)), train=True)
    Array([[2.]], dtype=float32)
    """
    rngs = None if key is None else {"dropout": key, "params": jax.random.fold_in(key, 1)}
    if mutable:
        options["mutable"] = list(mutable)
    with name_model(model, x):
        if mask is not None and not takes_mask(model):
            with mask_batch_norms(mask):
                outputs = model.apply(variables, x, rngs=rngs, **call_options(model, train=train), **options)
        else:
            outputs = model.apply(variables, x, rngs=rngs, **call_options(model, train=train, mask=mask), **options)
    check_outputs(model, outputs[0] if mutable else outputs)
    return (widen(outputs[0]), *outputs[1:]) if mutable else widen(outputs)


def call_options(model: Model, *, train: bool, mask: Bool[Array, "b"] | None = None) -> dict[str, Any]:
    """Returns the keyword arguments that tell a model whether it trains, and which examples count."""
    parameters, fields = signature_of(model).parameters, find_called(model)
    options: dict[str, Any] = {
        name: value is train
        for name, value in MODES.items()
        if name in parameters and not isinstance(getattr(fields, name, None), bool)  # a layer of Flax takes one of both
    }
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        options["train"] = train
    return options if mask is None else {**options, "mask": mask}


def takes_mask(model: Any) -> bool:
    """Returns whether a model's call takes `mask`, which of the examples count; not that of each number, as Flax's."""
    return "mask" in signature_of(model).parameters and not isinstance(find_called(model), nn.BatchNorm)


def signature_of(model: Any) -> inspect.Signature:
    """Returns the signature of a model's call; a container has that of the module or first layer that it holds."""
    called = find_called(model)
    return inspect.signature(called.apply if isinstance(called, ModelAdapter) else called)


def find_called(model: Any) -> Any:
    """Returns what gets a model's keyword arguments: of a container, the module or first layer that it holds."""
    if isinstance(model, FastConvolutions):
        return find_called(model.module)
    return find_called(model.layers[0]) if isinstance(model, nn.Sequential) else model


def check_call(model: Model) -> None:
    """Raises `ValueError` if a Linen module cannot be called with examples alone, or is not hashable."""
    if not isinstance(model, nn.Module):
        return
    signature, name = signature_of(model), type(model).__name__
    try:
        hash(model)
    except TypeError:
        raise ValueError(
            f"task: {name} has a field that cannot be hashed, but programs are compiled for it; give it tuples instead "
            "of lists, as in nn.Sequential((nn.Dense(8), nn.relu))"
        ) from None
    try:
        signature.bind("x", **call_options(model, train=False))
    except TypeError as error:
        raise ValueError(
            f"task: {name}.__call__{signature} cannot be called with a batch of examples ({error}); give its other "
            "arguments defaults, or wrap it: fedjax_sel.models.from_functions(init, apply)"
        ) from None
    warn_of_modes(f"task: {name}.__call__", signature)
    for place, layer in enumerate(model.layers if isinstance(model, nn.Sequential) else ()):
        own = inspect.signature(layer).parameters.values() if place and isinstance(layer, nn.Module) else ()
        if untold := [one.name for one in own if one.name in MODES and isinstance(one.default, bool)]:
            warnings.warn(
                f"task: Sequential passes arguments to its first layer alone, so layer {place}, "
                f"{type(layer).__name__}, keeps its default {untold[0]} in training, too; write a module that calls "
                f"its layers with {untold[0]}",
                stacklevel=3,
            )


def warn_of_modes(what: str, signature: inspect.Signature) -> None:
    """Warns of arguments that look as if they told whether a model trains, but keep their defaults."""
    for parameter in signature.parameters.values():
        if isinstance(parameter.default, bool) and looks_like_mode(parameter.name):
            warnings.warn(
                f"{what} takes {parameter.name}, which is {parameter.default} in training, too; of its "
                f"arguments, only {', '.join(MODES)} tell whether it trains",
                stacklevel=3,
            )


def check_outputs(model: Model, outputs: Any) -> None:
    """Raises `ValueError` if a model's outputs are not one array."""
    if not hasattr(outputs, "shape"):
        kind = "nothing" if outputs is None else f"a {type(outputs).__name__}"
        raise ValueError(
            f"task: {type(model).__name__} returns {kind}; it must return one array, a row for each example"
        )


def is_evaluated(path: Sequence[str]) -> bool:
    """Returns whether a part of a training model is called as in evaluation; see `evaluate_parts`."""
    chosen = EVALUATED.get()
    return chosen is not None and chosen(path)


@contextmanager
def evaluate_parts(chosen: Callable[[Sequence[str]], bool]) -> Iterator[None]:
    """Context manager in which parts of a model are called as in evaluation, although the model trains.

    Parts of a Linen module are told by their arguments and fields, parts of an NNX module by their method `eval`.

    Args:
      chosen: returns whether the part at a path is one of them.
    """

    def call(layer: Callable, args: tuple, kwargs: dict[str, Any], context: nn.module.InterceptorContext) -> Any:
        module = context.module
        if context.method_name != "__call__" or not chosen(module.path):
            return layer(*args, **kwargs)
        names = [*inspect.signature(type(module).__call__).parameters][1:]
        args = tuple(evaluate(name, value) for name, value in zip_longest(names[: len(args)], args))
        kwargs = {name: evaluate(name, value) for name, value in kwargs.items()}
        with evaluate_fields(module):
            return layer(*args, **kwargs)

    token = EVALUATED.set(chosen)
    try:
        with nn.intercept_methods(call):
            yield
    finally:
        EVALUATED.reset(token)


def evaluate(name: str | None, value: Any) -> Any:
    """Returns an argument's value in evaluation, unchanged if the argument is not about training."""
    return value if value is None or name is None else IN_EVALUATION.get(name, value)


@contextmanager
def evaluate_fields(module: nn.Module) -> Iterator[None]:
    """Context manager in which a module's fields about training have their values in evaluation."""
    told = {name: getattr(module, name) for name in IN_EVALUATION if isinstance(getattr(module, name, None), bool)}
    for name in told:
        object.__setattr__(module, name, IN_EVALUATION[name])  # the module is a bound copy for this call alone
    try:
        yield
    finally:
        for name, value in told.items():
            object.__setattr__(module, name, value)


def list_flat_batch_norms(model: Model, x: Any, **options: Any) -> list[tuple[str, ...]]:
    """Returns the paths of the `flax.linen.BatchNorm` layers that normalise over examples alone, called with `x`."""
    found: dict[tuple[str, ...], None] = {}

    def note(layer: Callable, args: tuple, kwargs: dict[str, Any], context: nn.module.InterceptorContext) -> Any:
        normalises = isinstance(context.module, nn.BatchNorm) and context.method_name == "__call__"
        if normalises and (args[0] if args else kwargs["x"]).ndim == 2:
            found[context.module.path] = None
        return layer(*args, **kwargs)

    with nn.intercept_methods(note):
        jax.eval_shape(lambda x: init_model(model, jax.random.key(0), x, **options), x)
    return list(found)


@contextmanager
def mask_batch_norms(mask: Bool[Array, "b"]) -> Iterator[None]:
    """Context manager in which `flax.linen.BatchNorm` leaves out the examples that do not count."""

    def call(layer: Callable, args: tuple, kwargs: dict[str, Any], context: nn.module.InterceptorContext) -> Any:
        if (
            not isinstance(context.module, nn.BatchNorm)
            or context.method_name != "__call__"
            or kwargs.get("mask") is not None
        ):
            return layer(*args, **kwargs)
        x = args[0] if args else kwargs["x"]
        if x.shape[:1] != mask.shape:
            raise ValueError(
                f"{'/'.join(context.module.path)}: BatchNorm sees {x.shape[:1]} examples of a batch of {mask.shape}; "
                "give the model an argument mask, and BatchNorm the places that count"
            )
        counted = jnp.broadcast_to(mask.reshape(-1, *(1,) * (x.ndim - 1)), x.shape)
        return layer(*args, **{**kwargs, "mask": counted})

    with nn.intercept_methods(call):
        yield
