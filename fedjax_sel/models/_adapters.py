"""Models that are not Linen modules: two functions, or a Flax NNX module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from flax import nnx, traverse_util
from jaxtyping import Array, Bool

from fedjax_sel.mistakes import check_accepts
from fedjax_sel.models._call import MODES, ModelAdapter, is_evaluated, warn_of_modes
from fedjax_sel.types import PRNGKey, Variables

__all__ = ["FunctionModel", "NNXModel", "from_functions", "from_nnx"]


@dataclass(frozen=True)
class FunctionModel(ModelAdapter):
    """A model made of two functions; constructed by `from_functions`.

    Attributes:
      make: `init(key, x)`.
      compute: `apply(variables, x)`, which may take one of `MODES` (`train`, `deterministic`, ...) and `key`.
    """

    make: Callable[..., Variables]
    compute: Callable[..., Array]
    _like: Any = field(init=False, compare=False, repr=False)  # the structure of the variables of the last `init`

    def init(self, key: PRNGKey, x: Array, *, train: bool = False) -> Variables:
        """Returns the initial variables."""
        made = self.make(key, x)
        object.__setattr__(self, "_like", jax.tree.structure(made))  # of the code as it is now
        return {"params": name_places(made)}

    def apply(
        self,
        variables: Variables,
        x: Array,
        *,
        train: bool = False,
        mask: Bool[Array, "b"] | None = None,
        rngs: Mapping[str, PRNGKey] | None = None,
        mutable: Sequence[str] = (),
    ) -> Array:
        """Returns the outputs."""
        takes = inspect.signature(self.compute).parameters
        options: dict[str, Any] = {name: value is train for name, value in MODES.items() if name in takes}
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
            options["train"] = train
        if "key" in takes:
            options["key"] = None if rngs is None else rngs["dropout"]
        if not hasattr(self, "_like"):
            jax.eval_shape(self.init, jax.random.key(0), x)
        return self.compute(restore_places(self._like, variables["params"]), x, **options)


def name_places(tree: Any) -> Any:
    """Returns nested dictionaries with strings as keys, from variables that may also hold lists and other containers.

    What is empty is left out.

    >>> name_places({"layers": [1, (), (2, 3)]})
    {'layers': {'0': 1, '2': {'0': 2, '1': 3}}}
    """
    named = {name_path(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    return named[()] if () in named else traverse_util.unflatten_dict(named)


def name_path(path: Any) -> tuple[str, ...]:
    """Returns the names of the steps of a path to a leaf."""
    return tuple(jax.tree_util.keystr((step,), simple=True) for step in path)


def restore_places(like: Any, named: Any) -> Any:
    """Returns variables in the structure `like`, from the dictionaries that `name_places` made of them.

    >>> restore_places(jax.tree.structure({"layers": [0, (0, 0), ()]}), {"layers": {"0": 1, "1": {"0": 2, "1": 3}}})
    {'layers': [1, (2, 3), ()]}
    """

    def find(path: Any) -> Any:
        found = named
        for name in name_path(path):
            found = found[name]
        return found

    places = jax.tree_util.tree_leaves_with_path(like.unflatten(range(like.num_leaves)))
    return like.unflatten([find(path) for path, _ in places])


def from_functions(init: Callable[..., Variables], apply: Callable[..., Array]) -> FunctionModel:
    """Returns a model made of two functions, as in other libraries (Flax models of Hugging Face, Haiku, plain JAX).

    Args:
      init: `init(key, x)` returns the variables, all of which are trained: nested dictionaries, lists and tuples of
        arrays. The places of a list or tuple are keys, as in a dictionary `{"0": ..., "1": ...}`, in saved models and
        for names of parts (`layers/0`).
      apply: `apply(variables, x)` returns an output for each example. It may also take `train` (or `deterministic`),
        and `key`, which is None in evaluation.

    Raises:
      ValueError: one of them is not a function of two arguments.

    >>> import jax.numpy as jnp
    >>> def init(key, x):
    ...     return {"kernel": jnp.zeros((x.shape[-1], 3))}
    >>> def apply(variables, x):
    ...     return x @ variables["kernel"]
    >>> from fedjax_sel import Task
    >>> Task(from_functions(init, apply)).parameters(jnp.zeros((1, 2)))
    6
    """
    for name, function, wanted in (("init", init, "(key, x)"), ("apply", apply, "(variables, x)")):
        try:
            signature = inspect.signature(function)
            more = {option: None for option in (*MODES, "key") if name == "apply" and option in signature.parameters}
            signature.bind("first", "second", **more)
        except TypeError as error:
            raise ValueError(
                f"from_functions: {name} is {function!r:.60} ({error}); it must be a function {name}{wanted}"
            ) from None
    warn_of_modes("from_functions: apply", inspect.signature(apply))
    return FunctionModel(init, apply)


def is_kept(path: Any, value: Any) -> bool:
    """Returns whether a part of an NNX module is a variable of floats, other than keys and what is only reported."""
    if not isinstance(value, nnx.Variable) or isinstance(value, nnx.RngState | nnx.Intermediate):
        return False
    dtype = getattr(value.get_value(), "dtype", None)
    return dtype is not None and jax.numpy.issubdtype(dtype, jax.numpy.floating)


NOT_TRAINED = ("batch_stats", "buffers")
"""Collections of an NNX module's variables beside `params`: its batch statistics, and its other variables of floats."""


@dataclass(frozen=True)
class NNXModel(ModelAdapter):
    """A model computed by a Flax NNX module; constructed by `from_nnx`.

    Attributes:
      make: makes a module from `nnx.Rngs`.
      takes: names of the arguments of the module's `__call__`.
    """

    make: Callable[[nnx.Rngs], nnx.Module]
    takes: tuple[str, ...] = field(compare=False)

    def init(self, key: PRNGKey, x: Array, *, train: bool = False) -> Variables:
        """Returns the initial variables: `params`, and, if there are any, `batch_stats` and others as `buffers`."""
        _, params, *rest, _ = self.split(self.make(nnx.Rngs(key)))
        return {"params": to_dict(params)} | {n: to_dict(one) for n, one in zip(NOT_TRAINED, rest, strict=True) if one}

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
        """Returns the outputs, with the new statistics if they are `mutable`."""
        # Streams of random keys start anew; XLA drops what else is drawn here.
        module = self.make(nnx.Rngs(jax.random.key(0) if rngs is None else rngs["dropout"]))
        definition, *states, streams = self.split(module)
        names = ("params", *NOT_TRAINED)
        known = [from_dict(state, variables.get(name, {})) for name, state in zip(names, states, strict=True)]
        module = nnx.merge(definition, *known, streams)
        module.train() if train else module.eval()
        for path, part in nnx.iter_modules(module):
            if is_evaluated(tuple(map(str, path))):
                part.eval()
        told: dict[str, Any] = {name: value is train for name, value in MODES.items() if name in self.takes}
        outputs = module(x, **told, **({"mask": mask} if "mask" in self.takes else {}))
        if not mutable:
            return outputs
        after: dict[str, Any] = dict(zip(NOT_TRAINED, self.split(module)[2:4], strict=True))
        return outputs, {name: to_dict(after[name]) for name in mutable}

    @staticmethod
    def split(module: nnx.Module) -> tuple[Any, Any, Any, Any, Any]:
        """Splits a module into its definition, parameters, statistics, other variables, and what is not kept."""
        definition, params, statistics, kept, rest = nnx.split(module, nnx.Param, nnx.BatchStat, is_kept, ...)
        return definition, params, statistics, kept, rest


def from_nnx(make: Callable[[nnx.Rngs], nnx.Module]) -> NNXModel:
    """Returns a model made of a Flax NNX module.

    The module is told whether it trains by `train()` and `eval()`, and by an argument `train` if its `__call__` has
    one. If it normalises by the moments of a batch, `__call__` must take `mask`, the examples that count, Bool["b"],
    and pass it to `nnx.BatchNorm` in a shape that fits the inputs `h`: `mask.reshape(-1, *[1] * (h.ndim - 1))`.

    Args:
      make: makes the module from `nnx.Rngs`, as in `lambda rngs: MyModule(10, rngs=rngs)`.

    Raises:
      ValueError: `make` is a module instead of a function, does not return a module, or returns one with batch
        statistics but without `mask`.

    >>> from fedjax_sel import Task
    >>> import jax.numpy as jnp
    >>> model = from_nnx(lambda rngs: nnx.Linear(2, 3, rngs=rngs))
    >>> Task(model).parameters(jnp.zeros((1, 2)))
    9
    """
    hint = "it must be a function of nnx.Rngs, as in from_nnx(lambda rngs: MyModule(10, rngs=rngs))"
    if isinstance(make, nnx.Module) or not callable(make):
        raise ValueError(f"from_nnx: make is {make!r:.60}; {hint}")
    if inspect.isclass(make):
        try:
            inspect.signature(make.__init__).bind(None, "rngs")
        except TypeError as error:
            raise ValueError(
                f"from_nnx: {make.__name__} cannot be made by {make.__name__}(rngs) ({error}); {hint}"
            ) from error
    check_accepts("from_nnx: make", make, ("rngs",))

    def checked() -> nnx.Module:
        module = make(nnx.Rngs(0))
        if not isinstance(module, nnx.Module) or not callable(module):
            raise ValueError(f"from_nnx: make returned {type(module).__name__}, which is not an nnx.Module; {hint}")
        return module

    module: Any = nnx.eval_shape(checked)
    takes = tuple(inspect.signature(module).parameters)  # in order, as the mark of a checkpoint includes the model
    if NNXModel.split(module)[2] and "mask" not in takes:
        raise ValueError(
            f"from_nnx: {type(module).__name__} has batch statistics, but its __call__ takes no mask; add mask=None, "
            "and hand mask.reshape(-1, *[1] * (h.ndim - 1)) to every nnx.BatchNorm of inputs h, so that padding does "
            "not enter them"
        )
    warn_of_modes(f"from_nnx: {type(module).__name__}.__call__", inspect.signature(module))
    return NNXModel(make, takes)


def to_dict(state: Any) -> dict[str, Any]:
    """Returns the arrays of an NNX state as a nested dictionary whose keys are strings."""
    flat = {tuple(map(str, path)): leaf.get_value() for path, leaf in nnx.to_flat_state(state)}
    return traverse_util.unflatten_dict(flat)


def from_dict(state: Any, values: Mapping[str, Any]) -> Any:
    """Returns an NNX state with the values that a nested dictionary has at the same paths."""
    flat = traverse_util.flatten_dict(dict(values))
    return nnx.from_flat_state(
        [(path, leaf.replace(flat[tuple(map(str, path))])) for path, leaf in nnx.to_flat_state(state)]
    )
