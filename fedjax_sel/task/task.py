"""The task: what is learnt, as pure functions of a pytree of variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Shaped

from fedjax_sel.catalog import see
from fedjax_sel.code import describe_changeable
from fedjax_sel.data.dataset import Dataset, normalisation, warn_before_learning
from fedjax_sel.mistakes import refuse_global_random_numbers
from fedjax_sel.models._call import (
    ModelAdapter,
    TakesTokens,
    apply_model,
    check_call,
    init_model,
    list_flat_batch_norms,
    takes_mask,
)
from fedjax_sel.pytree import Pytree, Scalar, is_real, show, static
from fedjax_sel.task.costs import Costs, count_costs, count_numbers
from fedjax_sel.task.freezing import PARAMETERS, FrozenParams, check_parts, fit_variables, merge_trees, split_parts
from fedjax_sel.task.losses import DEFAULT_LOSS, CrossEntropy, ExampleFunction, Loss, OwnLoss
from fedjax_sel.task.metrics import DEFAULT_METRICS, MEAN, Accuracy, Metric, wrap_metric
from fedjax_sel.types import Batch, PRNGKey, Rows, Variables

TAKEN = ("loss", "training_loss", "seconds", "joules", "left_out", "alive", "idle", "round", "seed", "client")
TAKEN += ("bytes", "bytes_up", "bytes_down", "flops", "client_flops")
"""Names in a history that a task's metric may not have."""

PREFIXES = ("selection_", "fault_", "client_")
"""Prefixes that the name of a task's metric may not have."""


def is_affine(layer: Any) -> bool:
    """Returns whether a module declares that it is one affine map of its flattened inputs, as logistic regression."""
    return bool(getattr(type(layer), "affine", False))


def is_own_metric(name: str) -> bool:
    """Returns whether a metric of a history is one of the task's own metrics, on the test examples.

    >>> [name for name in ("accuracy", "f1", "client_f1_mean", "bytes") if is_own_metric(name)]
    ['f1']
    """
    return name != "accuracy" and name not in TAKEN and not name.startswith(PREFIXES)


class Task(Pytree):
    """What a model learns: the model, how its inputs are normalised, a loss and metrics.

    Attributes:
      model: maps normalised examples to outputs (logits of classes, of labels, of the next token; or numbers): any
        Linen module, or what `models.from_nnx` and `models.from_functions` return. It is called with `train=True` (or
        `deterministic=False`) while a client trains, if it takes that argument. What is not in the collection `params`
        is not trained: a client sends its values as they are after training, and they are averaged whatever the
        aggregator, as batch statistics are. While a client trains, the model gets the argument `mask`, which examples
        of a batch count, if it takes it; otherwise its `flax.linen.BatchNorm` layers get it. What a module only reports
        (`sow`, which by default makes tuples) is left out.
      shift, scale: an example as stored becomes `(x - shift) * scale`; numbers, or one for each entry of the example's
        last axis.
      loss: loss of each example, from the model's outputs and the targets; training minimises its mean. A `Loss`, whose
        floats can be swept over, or a plain function.
      metrics: by name, a `Metric`, or a plain function of outputs and targets whose values are averaged; a history has
        their values on the test examples, one for each class as `NAME_0`, `NAME_1`, ...
      frozen: the parameters that are not trained.
      raw: whether examples reach the model as stored, as token ids do: neither normalised nor converted to floats.
      personal: names of the parts that each client keeps for itself (`FrozenParams` says how parts are named): they are
        trained locally, never sent and never merged. A whole normalisation layer includes its statistics.

    Raises:
      ValueError: the loss or a metric is not a function, or a metric has a name that a history uses.

    >>> from fedjax_sel.models.mlp import MLP
    >>> task = Task(MLP(classes=3, hidden=(4,)))
    >>> task.parameters(jnp.zeros((1, 2)))
    27
    >>> from fedjax_sel.task import F1, Focal
    >>> Task(MLP(classes=3), loss=Focal(gamma=2.0), metrics={"f1": F1()}).loss
    Focal(gamma=2.0)
    """

    model: nn.Module | ModelAdapter = static()
    shift: Scalar | Float[Array | np.ndarray, "..."] = 0.0
    scale: Scalar | Float[Array | np.ndarray, "..."] = 1.0
    loss: Loss | ExampleFunction = CrossEntropy()
    metrics: Mapping[str, Metric | ExampleFunction] = static(default=FrozenDict(accuracy=Accuracy()))
    frozen: FrozenParams = FrozenParams()
    raw: bool = static(default=False)
    personal: tuple[str, ...] = static(default=())

    def __check_init__(self) -> None:
        """Raises `ValueError` if a field is invalid, and makes the metrics hashable."""
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
        if isinstance(self.personal, str):
            raise ValueError(f"task: personal is {self.personal!r}; it must be names of parts, as ({self.personal!r},)")
        if not isinstance(self.metrics, Mapping):
            raise ValueError(
                f"task: metrics is {show(self.metrics)}; it must be a mapping from names to functions, or to metrics "
                "of fedjax_sel.task, as in {'f1': F1()}"
            )
        for name, part in {
            "loss": self.loss,
            **{f"metric {name!r}": one for name, one in self.metrics.items()},
        }.items():
            if isinstance(part, type) and issubclass(part, Loss | Metric):
                raise ValueError(f"task: {name} is {part.__name__}, a class; give {part.__name__}(...)")
            if not callable(part) and not isinstance(part, Metric):
                each = "" if name == "loss" else " that gives a number for each example"
                known = "a loss" if name == "loss" else "a metric"
                raise ValueError(
                    f"task: {name} is {part!r}; it must be a function of outputs and targets{each}, or {known} of "
                    "fedjax_sel.task"
                )
        if wrong := [name for name in self.metrics if not isinstance(name, str)]:
            raise ValueError(f"task: a metric is called {wrong[0]!r}; a name is a text, as in {{'f1': F1()}}")
        if wrong := [name for name in self.metrics if name in TAKEN or name.startswith(PREFIXES)]:
            raise ValueError(f"task: a metric is called {wrong[0]!r}, as a history calls something else; rename it")
        if wrong := [name for name in self.metrics if not name or "." in name or "/" in name]:
            raise ValueError(f"task: a metric is called {wrong[0]!r}; a name has no dot and no slash, as in 'top_5'")
        wrapped = {name: one if isinstance(one, Metric) else wrap_metric(one) for name, one in self.metrics.items()}
        object.__setattr__(self, "metrics", FrozenDict(wrapped))
        object.__setattr__(self, "loss", self.loss if isinstance(self.loss, Loss) else OwnLoss(self.loss))

    @classmethod
    def on(
        cls,
        model: nn.Module | ModelAdapter,
        dataset: Dataset,
        *,
        loss: Loss | ExampleFunction | None = None,
        metrics: Mapping[str, Metric | ExampleFunction] | None = None,
        normalise: bool | str = True,
    ) -> Task:
        """Returns the task of learning `dataset` with `model`.

        Args:
          model: the model that learns.
          dataset: the dataset, whose targets determine the default loss and metrics.
          loss, metrics: of the task; None: the defaults.
          normalise: whether to normalise to mean 0 and deviation 1 over the training examples, unless the dataset's
            targets are tokens. Whole numbers that are not normalised are taken for token ids (`raw`), but bytes
            (`uint8`) only if the targets are tokens. `"unit"`: bytes become numbers from 0 to 1.

        Raises:
          ValueError: `normalise` is invalid; or it is `"unit"`, but the examples are token ids or not bytes; or a model
            of texts gets examples that are not token ids, or would be normalised.
        """
        if not isinstance(dataset, Dataset):
            raise ValueError(
                f"the data of a task is {show(dataset)} ({type(dataset).__name__}); it must be a Dataset (that of a "
                "federation is federation.source)"
            )
        if not (isinstance(normalise, bool | np.bool_) or normalise == "unit"):
            raise ValueError(f"normalise is {show(normalise)}; it must be True, False or 'unit'")
        as_stored = not normalise or dataset.targets == "tokens"
        if isinstance(model, TakesTokens):
            check_tokens(model, dataset, as_stored=as_stored)
        given = {
            "loss": DEFAULT_LOSS[dataset.targets] if loss is None else loss,
            "metrics": DEFAULT_METRICS[dataset.targets] if metrics is None else metrics,
        }
        if normalise == "unit":
            if dataset.targets == "tokens":
                raise ValueError(
                    "normalise is 'unit', but the dataset's targets are tokens, and its examples token ids"
                )
            if dataset.x.dtype != np.uint8:
                raise ValueError(
                    f"normalise is 'unit', which is for bytes, but examples are {dataset.x.dtype}; use True"
                )
            return cls(model, scale=1 / 255, **given)
        if as_stored:
            are_ids = dataset.targets == "tokens" or dataset.x.dtype != np.uint8
            return cls(model, raw=dataset.x.dtype.kind in "iu" and are_ids, **given)
        warn_before_learning(dataset)
        shift, scale = map(jnp.asarray, normalisation(dataset))
        return cls(model, shift, scale, **given)

    def init(self, key: PRNGKey, x: Rows) -> Variables:
        """Returns initial values of the variables that are trained, for examples like those of `x` (any number).

        Raises:
          ValueError: a variable is not a float.
        """
        example = jnp.zeros((1, *x.shape[1:]), x.dtype if self.raw else jnp.float32)
        variables = self.frozen.initialize(init_model(self.model, key, example, **self.frozen.model_options))
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                kind = jnp.result_type(leaf)
                what = f"the parameter {jax.tree_util.keystr(path[1:])} is {kind}; what is trained must be floats"
                if path[0].key != PARAMETERS:
                    what = f"the variable {jax.tree_util.keystr(path)} is {kind}; what clients send must be floats"
                    what += " (the model may make other constants when it is called)"
                raise ValueError(f"task: {type(self.model).__name__}: {what}")
        return variables

    def shapes(self, x: Rows) -> Variables:
        """Returns the shapes and types of what `init` returns."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0), x))

    def logits(
        self,
        variables: Variables,
        x: Rows,
        *,
        train: bool = False,
        key: PRNGKey | None = None,
        mask: Bool[Array, "b"] | None = None,
    ) -> Float[Array, "b ..."]:
        """Returns the model's outputs for examples as stored: logits if targets are classes.

        Args:
          variables: variables of the model.
          x: examples.
          train: whether to use dropout, drawn from `key`.
          key: required if `train`.
          mask: which examples count, for a model that takes it.
        """
        merged, options = self.frozen.merge(variables), self.frozen.model_options
        with self.frozen.evaluate_frozen():
            return apply_model(self.model, merged, self.normalize(x), train=train, key=key, mask=mask, **options)

    def logits_and_features(
        self, variables: Variables, x: Rows
    ) -> tuple[Float[Array, "b C"], Float[Array, "b H"], bool]:
        """Returns logits and features of examples as stored, in evaluation, and whether the last layer has a bias.

        Features are the inputs of the last layer: the `nn.Dense` whose outputs the model returns as they are, or a
        model that is such a layer itself (`affine`), as logistic regression is.

        Raises:
          ValueError: the model does not end with one.
        """
        seen: list[tuple[Array, Array, bool]] = []

        def note(layer, args, kwargs, context):
            out = layer(*args, **kwargs)
            if context.method_name == "__call__" and (
                isinstance(context.module, nn.Dense) or is_affine(context.module)
            ):
                seen.append((args[0], out, getattr(context.module, "use_bias", True)))
            return out

        with nn.intercept_methods(note):
            logits = self.logits(variables, x)
        if not seen or seen[-1][1] is not logits:
            raise ValueError(
                "features are the inputs of an nn.Dense whose outputs are the model's, and "
                f"{type(self.model).__name__} does not end with one; choose a signal that looks at the logits alone, "
                "such as OutputGradient or EL2N"
            )
        features, _, has_bias = seen[-1]
        return logits, features.reshape(len(features), -1) if is_affine(self.model) else features, has_bias

    def normalize(self, x: Rows) -> Shaped[Array, "b ..."]:
        """Returns examples as the model sees them."""
        if self.raw:
            return jnp.asarray(x)
        last, features = (1,) * (x.ndim - 1), max(np.size(self.shift), np.size(self.scale))
        if features not in (1, x.shape[-1]):
            raise ValueError(
                f"the task was made for examples of {features} features or channels, but these have shape {x.shape[1:]}"
            )
        shift, scale = (jnp.reshape(jnp.asarray(a, jnp.float32), (*last, -1)) for a in (self.shift, self.scale))
        return (jnp.asarray(x, jnp.float32) - shift) * scale

    def training_losses(
        self, variables: Variables, batch: Batch, key: PRNGKey | None = None
    ) -> tuple[Float[Array, "B"], Variables]:
        """Returns each example's loss in training, 0 if it does not count, and the statistics after the batch."""
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
        return jnp.where(batch.mask, self.example_losses(logits, batch.y), 0.0), after

    def split(self, variables: Variables) -> tuple[Variables, Variables]:
        """Splits variables into those that gradients change and the rest, as statistics (empty if there is none)."""
        if not isinstance(variables, dict) or variables.keys() <= {PARAMETERS}:
            return variables, {}
        statistics = {name: part for name, part in variables.items() if name != PARAMETERS}
        return {name: part for name, part in variables.items() if name == PARAMETERS}, statistics

    def split_personal(self, variables: Variables) -> tuple[Variables, Variables]:
        """Splits variables into those that are shared and a client's personal parts (empty if there are none)."""
        return split_parts(variables, self.personal)

    def hide_personal(self, variables: Variables) -> Variables:
        """Returns variables, or a change or gradient of them, with a client's personal parts set to 0."""
        if not self.personal:
            return variables
        shared, personal = self.split_personal(variables)
        return merge_trees(shared, jax.tree.map(jnp.zeros_like, personal))

    def check_personal(self, x: Rows) -> None:
        """Raises `ValueError` if a personal part is not among the trained variables, or all of them are personal."""
        if self.personal:
            check_parts("personal", self.personal, self.shapes(x), "shared")

    def join(self, trained: Variables, statistics: Variables) -> Variables:
        """Returns the variables that `split` splits."""
        return {**trained, **statistics} if statistics else trained

    def gradient(self, variables: Variables, batch: Batch) -> Variables:
        """Returns the gradient of a batch's mean loss, in evaluation, with respect to all variables but statistics."""
        trained, statistics = self.split(variables)
        return jax.grad(lambda trained: self.mean_loss(self.join(trained, statistics), batch))(trained)

    def example_losses(self, outputs: Float[Array, "b ..."], targets: Shaped[Array, "b ..."]) -> Float[Array, "b"]:
        """Returns the loss of each example; raises `ValueError` if the loss does not return a number for each."""
        losses = self.loss(outputs, targets)
        shape = jnp.shape(losses) if hasattr(losses, "shape") else f"(it is a {type(losses).__name__})"
        if shape != outputs.shape[:1]:
            raise ValueError(
                f"the task's loss is of shape {shape}; it must be a number for each example, of shape "
                f"{outputs.shape[:1]}"
            )
        return losses

    def example_metrics(self, outputs: Float[Array, "b ..."], targets: Shaped[Array, "b ..."]) -> dict[str, Any]:
        """Returns what each example adds to every metric, and its `loss`; arrays with a leading `b`.

        Raises:
          ValueError: a metric or the loss returns something else.
        """
        with refuse_global_random_numbers():
            measured = {name: metric.measure(outputs, targets) for name, metric in self.metrics.items()}
        for name, value in measured.items():
            for leaf in jax.tree.leaves(value):
                if jnp.shape(leaf)[:1] != outputs.shape[:1]:
                    raise ValueError(
                        f"the task's metric {name!r} is of shape {jnp.shape(leaf)}; it must be a number for each "
                        f"example, of shape {outputs.shape[:1]}, or one for each class"
                    )
        return {**measured, "loss": self.example_losses(outputs, targets)}

    def reduce_metrics(
        self, values: Mapping[str, Any], mask: Bool[Array, "n"] | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Returns every metric, and the mean `loss`, on the examples in the mask (None: on all).

        Args:
          values: what `example_metrics` returned for them, with a leading `n`; what it lacks is left out.
          mask: which examples count.
        """
        return self._with_loss(values, lambda metric, value: metric.reduce(value, mask))

    def compute_metrics(self, sums: Mapping[str, Any], count: Any) -> dict[str, Float[Array, "..."]]:
        """Returns the metrics that have sums in `sums`, on `count` examples; the mean `loss` likewise."""
        return self._with_loss(sums, lambda metric, value: metric.compute(value, count))

    def _with_loss(self, values: Mapping[str, Any], compute: Callable[[Metric, Any], Any]) -> dict[str, Any]:
        """Returns what `compute` returns for each metric that has values, and for the loss, which is a mean."""
        known = {**self.metrics, "loss": MEAN}
        return {name: compute(known[name], value) for name, value in values.items()}

    def list_flat_batch_norms(self, x: Rows) -> list[str]:
        """Returns the trained layers that normalise features over the examples of a batch alone; `x` as stored."""
        if not self.split(self.shapes(x))[1]:
            return []
        kind = x.dtype if self.raw else jnp.float32
        like = jax.ShapeDtypeStruct((2, *x.shape[1:]), kind)
        found = list_flat_batch_norms(self.model, like, **self.frozen.model_options)
        return ["/".join(path) or "the model" for path in found if not self.frozen.is_frozen(path)]

    def is_better_higher(self, name: str) -> bool | None:
        """Returns whether higher values of a metric are better, by its name in a history; None: nobody has said so."""
        own: dict[str, bool | None] = {key: one.higher_is_better for key, one in self.metrics.items()}
        own |= {key: value for key, value in {"loss": False, "accuracy": True}.items() if own.get(key) is None}
        return own.get(name, own.get(name.rpartition("_")[0], True))

    def losses(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "B"]:
        """Returns the loss of each of the batch's examples, unweighted; 0 if it does not count."""
        mask = batch.mask if takes_mask(self.model) else None
        losses = self.example_losses(self.logits(variables, batch.x, train=train, key=key, mask=mask), batch.y)
        return jnp.where(batch.mask, losses, 0.0)

    def mean_loss(self, variables: Variables, batch: Batch) -> Float[Array, ""]:
        """Returns the mean loss of the batch's examples that count, unweighted; 0 if none do."""
        return jnp.sum(self.losses(variables, batch)) / jnp.maximum(jnp.sum(batch.mask), 1)

    def fine_tune(self, x: Rows, *, frozen: Sequence[str] = (), pretrained: Variables | None = None) -> Task:
        """Returns the task that starts from pretrained variables and freezes some parts of the model.

        Args:
          x: examples as stored, for their shape.
          frozen: names of parts (`FrozenParams`).
          pretrained: variables that the model starts from; a last layer for another number of classes is not used, but
            drawn. None: all are drawn, frozen parts the same for every seed.

        Raises:
          ValueError: a name matches no part of the model, nothing is left to train, or variables do not fit.
        """
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            raise ValueError(f"fine_tune: x is {show(x, 80)}; it must be examples as stored, such as dataset.x")
        if not isinstance(pretrained, Mapping | None):
            raise ValueError(
                f"fine_tune: pretrained is {show(pretrained, 80)}; it must be variables, as load_variables(PATH) gives"
            )
        if isinstance(frozen, str):
            raise ValueError(f"fine_tune: frozen is {frozen!r}; it must be a list of parts, as [{frozen!r}]")
        if self.frozen.names or self.frozen.start:
            raise ValueError(
                "fine_tune: the task already starts from pretrained variables, or has frozen parts, which would be "
                "drawn anew; give all of it in one call"
            )
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
            start, fixed = named.split(fit_variables(pretrained, like, named, layers[-1] if layers else None))
            return self.replace(frozen=named.replace(variables=fixed, start=start))
        _, fixed = named.split(Task(self.model, raw=self.raw).init(jax.random.key(0), x))
        return self.replace(frozen=named.replace(variables=fixed))

    def costs(self, x: Rows) -> Costs:
        """Returns the costs of the task on examples like those of `x`."""
        if self.frozen.costs is not None:
            return self.frozen.costs
        shapes = jnp.shape(self.shift), jnp.shape(self.scale)
        kept = x.shape[1:], x.dtype, self.frozen.names, self.raw
        return _costs_of(type(self), self.model, *shapes, *kept, code=describe_changeable((type(self), self.model)))

    def parameters(self, x: Rows) -> int:
        """Returns `P`, the number of values in the variables that are trained."""
        return self.costs(x).parameters

    def shared_parameters(self, x: Rows) -> int:
        """Returns the number of values in the variables that are trained and not personal: those that are sent."""
        return _count_shared(self, x)[0] if self.personal else self.parameters(x)

    def gradient_parameters(self, x: Rows) -> int:
        """Returns the number of values in the shared variables without statistics: those of a gradient or a variate."""
        return self.shared_parameters(x) - (_count_shared(self, x)[1] if self.personal else self.costs(x).statistics)

    def fixed_parameters(self, x: Rows) -> int:
        """Returns the number of values in the frozen parts, which every client receives once."""
        return self.costs(x).fixed_parameters

    def flops(self, x: Rows) -> float:
        """Returns the floating-point operations of one example's forward pass, counted by XLA without optimisation."""
        return self.costs(x).flops

    def backward(self, x: Rows) -> float:
        """Returns an example's backward pass as a multiple of its forward pass: 2 if all is trained, otherwise less."""
        return self.costs(x).backward

    def outputs(self, x: Rows) -> tuple[int, ...]:
        """Returns the shape of one example's outputs, `(1, C)`; `(1, L, C)` for the tokens of a sequence."""
        return self.costs(x).outputs


@see("docs/learn/own_model.md")
def check_tokens(model: TakesTokens, dataset: Dataset, *, as_stored: bool) -> None:
    """Raises `ValueError` if the examples of a model of texts are not token ids, or would be normalised.

    Args:
      model: the model.
      dataset: the examples.
      as_stored: whether the model gets them as they are, not normalised.
    """
    name = f"{dataset.name}: {type(model).__name__} takes token ids"
    parts = [x for x in (dataset.x, dataset.test_x, dataset.validation_x) if x.size]
    if any(x.dtype.kind not in "iu" and not np.array_equal(x, np.round(x)) for x in parts):
        raise ValueError(f"{name}, but the examples are not whole numbers; choose another model")
    low, high = min(x.min() for x in parts), max(x.max() for x in parts)
    if low < 0 or high >= model.vocabulary:
        raise ValueError(f"{name} from 0 to {model.vocabulary - 1}, but there are some from {low:g} to {high:g}")
    if not as_stored:
        raise ValueError(f"{name}, which must not be normalised; give normalise=False (model.normalise=false)")


def _count_shared(task: Task, x: Rows) -> tuple[int, int]:
    """Returns the number of values in the shared variables, and how many of them are statistics."""
    shared = task.split_personal(task.shapes(x))[0]
    return count_numbers(shared), count_numbers(task.split(shared)[1])


@functools.lru_cache(maxsize=64)  # every seed, and every trace of a round, calls it again
def _costs_of(
    cls: type[Task],
    model: nn.Module | ModelAdapter,
    shift: tuple[int, ...],
    scale: tuple[int, ...],
    example: tuple[int, ...],
    dtype: Any,
    names: tuple[str, ...],
    raw: bool,
    *,
    code: str,
) -> Costs:
    """Returns `count_costs` of a task with these shapes, whose parts `names` are frozen.

    `code` tells a model from an equal one, whose code or globals were others before.
    """
    del code
    one = jax.ShapeDtypeStruct((1, *example), dtype)
    moments = (jax.ShapeDtypeStruct(shift, jnp.float32), jax.ShapeDtypeStruct(scale, jnp.float32))
    variables = jax.eval_shape(cls(model, raw=raw).init, jax.random.key(0), one)

    def logits(frozen: FrozenParams, trained: Variables, x: Array, shift: Array, scale: Array) -> Array:
        return cls(model, shift, scale, frozen=frozen, raw=raw).logits(trained, x)

    return count_costs(logits, FrozenParams(names=names), variables, one, *moments)
