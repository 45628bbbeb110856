"""What is learnt, as pure functions over a pytree of variables."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.data.dataset import Dataset, normalisation
from fedjax_sel.parts import Counts, FrozenParams, check_parts, fitted, size_of
from fedjax_sel.pytree import Pytree, Scalar, jit, static
from fedjax_sel.types import Batch, PRNGKey, Rows, Variables

AT_ONCE = 500
"""Rows that pass the backbone together."""


class Task(Pytree):
    """Classification of rows by a Flax module.

    Attributes:
      model: maps normalised rows to logits; called with `train=True` while a client trains (dropout, statistics of the
        batch). Where it has statistics (a collection `batch_stats`), it also takes `mask`, the rows that count.
      shift, scale: a row as stored becomes `(x - shift) * scale`; numbers, or one for each place of the row's last
        axis.
      parts: which parts of the model are fixed, and what is known of the others beforehand.
    """

    model: nn.Module = static()
    shift: Scalar | Float[Array | np.ndarray, "..."] = 0.0
    scale: Scalar | Float[Array | np.ndarray, "..."] = 1.0
    parts: FrozenParams = FrozenParams()

    @classmethod
    def on(cls, model: nn.Module, dataset: Dataset) -> Task:
        """The task of learning `dataset`, its rows normalised to mean 0 and deviation 1 by its training rows."""
        shift, scale = map(jnp.asarray, normalisation(dataset))
        return cls(model, shift, scale)

    def init(self, key: PRNGKey, x: Rows) -> Variables:
        """What is trained, fresh or as it is known, for rows like those of `x` (any number of them)."""
        row = jnp.zeros((1, *x.shape[1:]), jnp.float32)
        return self.parts.free(self.model.init(key, row, train=False, **self.parts.rest))

    def logits(
        self, variables: Variables, x: Rows, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "b C"]:
        """Logits of rows as stored.

        Args:
          variables: the model's.
          x: rows.
          train: with dropout, drawn from `key`.
          key: needed where `train`.
        """
        rngs = None if key is None else {"dropout": key}
        with self.parts.evaluated():
            logits: Any = self.model.apply(
                self.parts.whole(variables), self.normalised(x), train=train, rngs=rngs, **self.parts.rest
            )
        return logits

    def normalised(self, x: Rows) -> Float[Array, "b ..."]:
        """Rows as the model sees them."""
        last = (1,) * (x.ndim - 1)
        shift, scale = (jnp.reshape(jnp.asarray(a, jnp.float32), (*last, -1)) for a in (self.shift, self.scale))
        return (jnp.asarray(x, jnp.float32) - shift) * scale

    def training_losses(
        self, variables: Variables, batch: Batch, key: PRNGKey | None = None
    ) -> tuple[Float[Array, "B"], Variables]:
        """Loss of each of the batch's rows in training, 0 where it does not count, and the statistics after it."""
        _, statistics = self.split(variables)
        if not statistics:
            return self.losses(variables, batch, train=True, key=key), statistics
        rngs = None if key is None else {"dropout": key}
        with self.parts.evaluated():
            out: Any = self.model.apply(
                self.parts.whole(variables),
                self.normalised(batch.x),
                train=True,
                mask=batch.mask,
                rngs=rngs,
                mutable=list(statistics),
                **self.parts.rest,
            )
        logits, after = out
        after = self.parts.without_fixed(after)
        some = batch.mask.any()
        after = jax.tree.map(lambda new, old: jnp.where(some, new, old), after, statistics)
        return self.example_loss(logits, batch.y) * batch.mask, after

    def split(self, variables: Variables) -> tuple[Variables, Variables]:
        """What gradients change, and the statistics (empty where there are none)."""
        if not isinstance(variables, dict) or "batch_stats" not in variables:
            return variables, {}
        statistics = {"batch_stats": variables["batch_stats"]}
        return {name: part for name, part in variables.items() if name not in statistics}, statistics

    def join(self, trained: Variables, statistics: Variables) -> Variables:
        """The variables that `split` splits."""
        return {**trained, **statistics} if statistics else trained

    def gradient(self, variables: Variables, batch: Batch) -> Variables:
        """Of the mean loss of the batch's rows, in evaluation, by what gradients change."""
        trained, statistics = self.split(variables)
        return jax.grad(lambda trained: self.loss(self.join(trained, statistics), batch))(trained)

    def example_loss(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Cross-entropy of each row, in nats."""
        return optax.softmax_cross_entropy(logits, jax.nn.one_hot(y, logits.shape[-1]))  # no scatter in its gradient

    def losses(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "B"]:
        """Loss of each of the batch's rows; 0 where it does not count."""
        return self.example_loss(self.logits(variables, batch.x, train=train, key=key), batch.y) * batch.mask

    def loss(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, ""]:
        """Mean loss of the batch's rows that count; 0 where none does."""
        losses = self.losses(variables, batch, train=train, key=key)
        return jnp.sum(losses) / jnp.maximum(jnp.sum(batch.mask), 1)

    def parameters(self, x: Rows) -> int:
        """`P`, the numbers in the variables that are trained."""
        return self._counts(x).parameters

    def flops(self, x: Rows) -> float:
        """Floating-point operations of one row's forward pass, by XLA's count of the unoptimised program."""
        return self._counts(x).flops

    def backward(self, x: Rows) -> float:
        """A row's backward pass as a multiple of its forward pass: 2 where all is trained, less where parts are fixed.

        It is twice the share of the gradient's operations beyond the forward pass that are left when only what is
        trained has gradients, by XLA's count.
        """
        return self._counts(x).backward

    def fixed_parameters(self, x: Rows) -> int:
        """The numbers in the parts that are fixed: every client receives them once."""
        return self._counts(x).fixed

    def outputs(self, x: Rows) -> tuple[int, ...]:
        """Shape of one row's logits, `(1, C)`."""
        return self._counts(x).outputs

    def with_parts(self, x: Rows, *, frozen: Sequence[str] = (), pretrained: Variables | None = None) -> Task:
        """The task in which some parts stay as they are.

        Args:
          x: rows as stored, for their shape.
          frozen: names of parts (`FrozenParams`).
          pretrained: variables that the model begins with; None: all are drawn, fixed parts the same for every seed.

        Raises:
          ValueError: a name that is no part of the model, nothing left to train, or variables that do not fit.
        """
        row, layers = jax.ShapeDtypeStruct((1, *x.shape[1:]), jnp.float32), []

        def note(layer, args, kwargs, context):
            if isinstance(context.module, nn.Dense):
                layers.append(context.module.path)
            return layer(*args, **kwargs)

        with nn.intercept_methods(note):
            like = jax.eval_shape(lambda key, row: self.model.init(key, row, train=False), jax.random.key(0), row)
        check_parts(frozen, like)
        parts = FrozenParams(fixed_names=tuple(frozen))
        if pretrained is not None:
            start, fixed = parts.parted(fitted(pretrained, like, parts, layers[-1] if layers else ()))
            return replace(self, parts=replace(parts, fixed=fixed, start=start))
        _, fixed = parts.parted(Task(self.model).init(jax.random.key(0), x))
        return replace(self, parts=replace(parts, fixed=fixed))

    def precompute_features(self, *datasets: Dataset) -> tuple[Task, list[Dataset]]:
        """The same task on what its fixed backbone makes of the rows, which never changes: the backbone is run here, once.

        The backbone are the first of the model's `stages` that are all fixed; without any, everything is returned as it
        is. What rounds cost is still counted with the backbone, as for clients that run it every time.

        Args:
          datasets: whose rows are replaced, training, test and validation rows; the first says their shape.
        """
        stages = getattr(self.model, "stages", ())
        begin = next((i for i, name in enumerate(stages) if not self.parts.is_fixed((name,))), len(stages))
        if not begin or self.parts.begin:
            return self, list(datasets)

        def through(x):
            like: Any = jax.eval_shape(partial(backbone, end=begin), self, jnp.zeros((1, *x.shape[1:]), x.dtype))
            out = np.empty((len(x), *like.shape[1:]), like.dtype)
            for i in range(0, len(x), AT_ONCE):
                out[i : i + AT_ONCE] = backbone(self, x[i : i + AT_ONCE], end=begin)
            return out

        counts = self._counts(datasets[0].x)
        parts = replace(self.parts, fixed=self.parts.later(stages[:begin]), begin=begin, counts=counts)
        done = [
            replace(d, x=through(d.x), test_x=through(d.test_x), validation_x=through(d.validation_x)) for d in datasets
        ]
        return replace(self, parts=parts, shift=0.0, scale=1.0), done

    def _counts(self, x: Rows) -> Counts:
        if self.parts.counts is not None:
            return self.parts.counts
        shapes = jnp.shape(self.shift), jnp.shape(self.scale)
        return _counted(type(self), self.model, *shapes, x.shape[1:], x.dtype, self.parts.fixed_names)


@jit(static_argnames=("end",))
def backbone(task: Task, x: Rows, *, end: int) -> Float[Array, "b ..."]:
    """What the model's stages before `end`, all fixed, make of rows as stored."""
    apply: Any = task.model.apply
    return apply(task.parts.fixed, task.normalised(x), train=False, end=end)


@functools.lru_cache(maxsize=64)  # every seed, and every trace of a round, asks again
def _counted(
    cls: type[Task],
    model: nn.Module,
    shift: tuple[int, ...],
    scale: tuple[int, ...],
    row: tuple[int, ...],
    dtype: Any,
    fixed: tuple[str, ...],
) -> Counts:
    """The counts of the task of these shapes, of which these parts are fixed."""
    one = jax.ShapeDtypeStruct((1, *row), dtype)
    whole = jax.eval_shape(cls(model).init, jax.random.key(0), one)
    moments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (shift, scale))
    lowered: Any = jax.jit(lambda v, x, *given: cls(model, *given).logits(v, x)).lower(whole, one, *moments)
    flops = float(lowered.cost_analysis()["flops"])
    trained, kept = FrozenParams(fixed_names=fixed).parted(whole)

    def gradient(parts):
        def loss(trained, kept, x, *given):
            parts_now = replace(parts, fixed=kept)
            return cls(model, *given, parts=parts_now).logits(trained, x).sum()

        return jax.jit(jax.grad(loss, allow_int=True))

    backward = 2.0
    if fixed:
        some: Any = gradient(FrozenParams(fixed_names=fixed)).lower(trained, kept, one, *moments)
        every: Any = gradient(FrozenParams()).lower(whole, {}, one, *moments)
        beyond = [max(float(count.cost_analysis()["flops"]) - flops, 0.0) for count in (some, every)]
        backward = 2.0 * min(beyond[0] / beyond[1], 1.0) if beyond[1] else 0.0
    return Counts(size_of(trained), flops, backward, lowered.out_info.shape, size_of(kept))
