"""What is learnt, as pure functions over a pytree of variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.core import FrozenDict
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.data.dataset import Dataset, normalisation, warn_before_learning
from fedjax_sel.models._call import ModelAdapter, apply_model, check_call, init_model
from fedjax_sel.pytree import Pytree, Scalar, is_real, show, static
from fedjax_sel.task.costs import Costs, count_costs, count_numbers
from fedjax_sel.task.freezing import FrozenParams, check_parts, fit_variables
from fedjax_sel.types import Batch, PRNGKey, Rows, Variables

ExampleFunction = Callable[[Float[Array, "b C"], Int[Array, "b"]], Float[Array, "b"] | Bool[Array, "b"]]
"""A number for each example, from the model's outputs and the targets."""


def cross_entropy(outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b"]:
    """Cross-entropy of each example, in nats.

    >>> cross_entropy(jnp.zeros((1, 4)), jnp.array([2])).round(4)
    Array([1.3863], dtype=float32)
    """
    # From one-hot labels: the gradient then has no scatter.
    return optax.softmax_cross_entropy(outputs, jax.nn.one_hot(targets, outputs.shape[-1]))


def accuracy(outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Bool[Array, "b"]:
    """Whether each example's largest output is that of its class.

    >>> accuracy(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([1, 1]))
    Array([ True, False], dtype=bool)
    """
    return outputs.argmax(-1) == targets


TAKEN = ("loss", "training_loss", "seconds", "joules", "left_out", "alive", "idle")
TAKEN += ("bytes", "bytes_up", "bytes_down", "flops", "client_flops")
"""Names in a history that no metric of a task may have."""


class Task(Pytree):
    """Classification by a Flax module: a model, how its inputs are normalised, a loss and metrics.

    Attributes:
      model: maps normalised examples to logits: any Linen module, or what `models.from_nnx` and `models.from_functions`
        make. Called with `train=True` (or `deterministic=False`) while a client trains, where it takes that. Where it
        has statistics (a collection `batch_stats`), it gets `mask`, the examples that count, if it takes that; else its
        `flax.linen.BatchNorm` layers do.
      shift, scale: an example as stored becomes `(x - shift) * scale`; numbers, or one for each place of the example's
        last axis.
      example_loss: of each example, from the model's outputs and the targets; training minimises its mean.
      metrics: by name, of each example, from outputs and targets; a history has their means over the test examples.
      frozen: the parameters that are not trained.
      raw: whether examples reach the model as stored, as token ids do: neither normalised nor made floats.
      personal: names of the parts that each client keeps for itself (`FrozenParams` says how parts are named): they are
        trained locally, never sent and never merged. A whole normalisation layer keeps its statistics with it.

    Raises:
      ValueError: the loss or a metric is no function, or a metric has a name that a history uses.

    >>> from fedjax_sel.models.mlp import MLP
    >>> task = Task(MLP(classes=3, hidden=(4,)))
    >>> task.parameters(jnp.zeros((1, 2)))
    27
    """

    model: nn.Module | ModelAdapter = static()
    shift: Scalar | Float[Array | np.ndarray, "..."] = 0.0
    scale: Scalar | Float[Array | np.ndarray, "..."] = 1.0
    example_loss: ExampleFunction = static(default=cross_entropy)
    metrics: Mapping[str, ExampleFunction] = static(default=FrozenDict(accuracy=accuracy))
    frozen: FrozenParams = FrozenParams()
    raw: bool = static(default=False)
    personal: tuple[str, ...] = static(default=())

    def __check_init__(self) -> None:
        """Refuses a loss or metrics that cannot be computed, and makes the metrics hashable."""
        if isinstance(self.model, type):
            raise ValueError(f"task: model is {self.model.__name__}, a class; give {self.model.__name__}(...)")
        if not all(callable(getattr(self.model, method, None)) for method in ("init", "apply")):
            raise ValueError(
                f"task: model is {show(self.model)}; it must be a Flax module, as models.MLP(classes=10), "
                "or adapted by models.from_nnx or models.from_functions"
            )
        check_call(self.model)
        for name in ("shift", "scale"):
            value: Any = getattr(self, name)
            if not isinstance(value, Tracer) and not (is_real(value) and np.isfinite(value).all()):
                raise ValueError(f"task: {name} is {show(value)}; it must be a finite number, or one a feature")
        if not isinstance(self.metrics, Mapping):
            raise ValueError(f"task: metrics is {show(self.metrics)}; it must be a mapping from names to functions")
        if not callable(self.example_loss):
            raise ValueError(
                f"task: example_loss is {self.example_loss!r}; it must be a function of outputs and targets"
            )
        for name, metric in self.metrics.items():
            if not callable(metric):
                raise ValueError(
                    f"task: metric {name!r} is {metric!r}; it must be a function of outputs and targets that gives a "
                    "number for each example"
                )
            if name in TAKEN or name.startswith(("selection_", "fault_", "personal_")):
                raise ValueError(f"task: a metric is called {name!r}, as a history calls something else; rename it")
        object.__setattr__(self, "metrics", FrozenDict(self.metrics))

    @classmethod
    def on(cls, model: nn.Module | ModelAdapter, dataset: Dataset) -> Task:
        """The task of learning `dataset`, normalised to mean 0 and deviation 1 by its training examples."""
        if not isinstance(dataset, Dataset):
            raise ValueError(f"the data of a task is {show(dataset)} ({type(dataset).__name__}); it must be a Dataset")
        warn_before_learning(dataset)
        shift, scale = map(jnp.asarray, normalisation(dataset))
        return cls(model, shift, scale)

    def init(self, key: PRNGKey, x: Rows) -> Variables:
        """Initial values of what is trained, for examples like those of `x` (any number of them)."""
        example = jnp.zeros((1, *x.shape[1:]), x.dtype if self.raw else jnp.float32)
        return self.frozen.initialize(init_model(self.model, key, example, **self.frozen.model_options))

    def logits(
        self, variables: Variables, x: Rows, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "b C"]:
        """Logits of examples as stored.

        Args:
          variables: the model's.
          x: examples.
          train: with dropout, drawn from `key`.
          key: needed where `train`.
        """
        merged, options = self.frozen.merge(variables), self.frozen.model_options
        with self.frozen.evaluate_frozen():
            return apply_model(self.model, merged, self.normalize(x), train=train, key=key, **options)

    def normalize(self, x: Rows) -> Shaped[Array, "b ..."]:
        """Examples as the model sees them."""
        if self.raw:
            return jnp.asarray(x)
        last = (1,) * (x.ndim - 1)
        shift, scale = (jnp.reshape(jnp.asarray(a, jnp.float32), (*last, -1)) for a in (self.shift, self.scale))
        return (jnp.asarray(x, jnp.float32) - shift) * scale

    def training_losses(
        self, variables: Variables, batch: Batch, key: PRNGKey | None = None
    ) -> tuple[Float[Array, "B"], Variables]:
        """Loss of each of the batch's examples in training, 0 where it does not count, and the statistics after it."""
        _, statistics = self.split(variables)
        if not statistics:
            return self.losses(variables, batch, train=True, key=key), statistics
        with self.frozen.evaluate_frozen():
            logits, after = apply_model(
                self.model,
                self.frozen.merge(variables),
                self.normalize(batch.x),
                train=True,
                mask=batch.mask,
                key=key,
                mutable=list(statistics),
                **self.frozen.model_options,
            )
        after = self.frozen.drop_frozen(after)
        some = batch.mask.any()
        after = jax.tree.map(lambda new, old: jnp.where(some, new, old), after, statistics)
        return self.example_loss(logits, batch.y) * batch.mask, after

    def split(self, variables: Variables) -> tuple[Variables, Variables]:
        """What gradients change, and the statistics (empty where there are none)."""
        if not isinstance(variables, dict) or "batch_stats" not in variables:
            return variables, {}
        statistics = {"batch_stats": variables["batch_stats"]}
        return {name: part for name, part in variables.items() if name not in statistics}, statistics

    def split_personal(self, variables: Variables) -> tuple[Variables, Variables]:
        """What is shared, and the parts that a client keeps for itself (empty where there are none)."""
        return FrozenParams(names=self.personal).split(variables)

    def check_personal(self, x: Rows) -> None:
        """Raises `ValueError` where a personal part is no part of what is trained, or all of it."""
        if self.personal:
            like = jax.eval_shape(lambda x: self.init(jax.random.key(0), x), jax.ShapeDtypeStruct(x.shape, x.dtype))
            check_parts("personal", self.personal, like, "shared")

    def join(self, trained: Variables, statistics: Variables) -> Variables:
        """The variables that `split` splits."""
        return {**trained, **statistics} if statistics else trained

    def gradient(self, variables: Variables, batch: Batch) -> Variables:
        """Gradient of the mean loss of the batch's examples, in evaluation, by what gradients change."""
        trained, statistics = self.split(variables)
        return jax.grad(lambda trained: self.loss(self.join(trained, statistics), batch))(trained)

    def example_metrics(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> dict[str, Array]:
        """Every metric of each example, and its `loss`."""
        metrics = {name: metric(outputs, targets) for name, metric in self.metrics.items()}
        return {**metrics, "loss": self.example_loss(outputs, targets)}

    def losses(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "B"]:
        """Loss of each of the batch's examples, unweighted; 0 where it does not count."""
        return self.example_loss(self.logits(variables, batch.x, train=train, key=key), batch.y) * batch.mask

    def loss(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, ""]:
        """Mean loss of the batch's examples that count, unweighted; 0 where none does."""
        losses = self.losses(variables, batch, train=train, key=key)
        return jnp.sum(losses) / jnp.maximum(jnp.sum(batch.mask), 1)

    def fine_tune(self, x: Rows, *, frozen: Sequence[str] = (), pretrained: Variables | None = None) -> Task:
        """The task that begins with pretrained variables and does not train some parts of the model.

        Args:
          x: examples as stored, for their shape.
          frozen: names of parts (`FrozenParams`).
          pretrained: variables that the model begins with; None: all are drawn, frozen parts the same for every seed.

        Raises:
          ValueError: a name that is no part of the model, nothing left to train, or variables that do not fit.
        """
        example, layers = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype if self.raw else jnp.float32), []

        def note(layer, args, kwargs, context):
            if isinstance(context.module, nn.Dense):
                layers.append(context.module.path)
            return layer(*args, **kwargs)

        with nn.intercept_methods(note):
            like = jax.eval_shape(lambda key, example: init_model(self.model, key, example), jax.random.key(0), example)
        check_parts("frozen", frozen, like, "trained")
        named = FrozenParams(names=tuple(frozen))
        if pretrained is not None:
            start, fixed = named.split(fit_variables(pretrained, like, named, layers[-1] if layers else ()))
            return self.replace(frozen=named.replace(variables=fixed, start=start))
        _, fixed = named.split(Task(self.model, raw=self.raw).init(jax.random.key(0), x))
        return self.replace(frozen=named.replace(variables=fixed))

    def costs(self, x: Rows) -> Costs:
        """What the task costs on examples like those of `x`."""
        if self.frozen.costs is not None:
            return self.frozen.costs
        shapes = jnp.shape(self.shift), jnp.shape(self.scale)
        return _costs_of(type(self), self.model, *shapes, x.shape[1:], x.dtype, self.frozen.names, self.raw)

    def parameters(self, x: Rows) -> int:
        """`P`, the numbers in the variables that are trained."""
        return self.costs(x).parameters

    def shared_parameters(self, x: Rows) -> int:
        """The numbers in the variables that are trained and not personal: those that travel."""
        return _count_shared(self, x) if self.personal else self.parameters(x)

    def fixed_parameters(self, x: Rows) -> int:
        """The numbers in the frozen parts: every client receives them once."""
        return self.costs(x).fixed_parameters

    def flops(self, x: Rows) -> float:
        """Floating-point operations of one example's forward pass, by XLA's count of the unoptimised program."""
        return self.costs(x).flops

    def backward(self, x: Rows) -> float:
        """An example's backward pass as a multiple of its forward pass: 2 where all is trained, else less."""
        return self.costs(x).backward

    def outputs(self, x: Rows) -> tuple[int, ...]:
        """Shape of one example's logits, `(1, C)`."""
        return self.costs(x).outputs


def _count_shared(task: Task, x: Rows) -> int:
    """`Task.shared_parameters`, where parts are personal."""
    one = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    drawn = jax.eval_shape(lambda one: task.init(jax.random.key(0), one), one)
    return count_numbers(task.split_personal(drawn)[0])


@functools.lru_cache(maxsize=64)  # every seed, and every trace of a round, asks again
def _costs_of(
    cls: type[Task],
    model: nn.Module | ModelAdapter,
    shift: tuple[int, ...],
    scale: tuple[int, ...],
    example: tuple[int, ...],
    dtype: Any,
    names: tuple[str, ...],
    raw: bool,
) -> Costs:
    """`count_costs` of the task of these shapes, of which the parts of these names are frozen."""
    one = jax.ShapeDtypeStruct((1, *example), dtype)
    moments = (jax.ShapeDtypeStruct(shift, jnp.float32), jax.ShapeDtypeStruct(scale, jnp.float32))
    variables = jax.eval_shape(cls(model, raw=raw).init, jax.random.key(0), one)

    def logits(frozen: FrozenParams, trained: Variables, x: Array, shift: Array, scale: Array) -> Array:
        return cls(model, shift, scale, frozen=frozen, raw=raw).logits(trained, x)

    return count_costs(logits, FrozenParams(names=names), variables, one, *moments)
