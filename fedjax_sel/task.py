"""What is learnt, as pure functions over a pytree of variables."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jaxtyping import Array, Float, Int

from fedjax_sel.data.dataset import Dataset, normalisation
from fedjax_sel.types import Batch, PRNGKey, Rows, Scalar, Variables


@struct.dataclass
class Task:
    """Classification of rows by a Flax module.

    Attributes:
      model: maps normalised rows to logits; called with `train=True` while a client trains (dropout, statistics of the
        batch). Where it has statistics (a collection `batch_stats`), it also takes `mask`, the rows that count.
      shift, scale: a row as stored becomes `(x - shift) * scale`; numbers, or one for each place of the row's last
        axis.
    """

    model: nn.Module = struct.field(pytree_node=False)
    shift: Scalar | Float[Array | np.ndarray, "..."] = 0.0
    scale: Scalar | Float[Array | np.ndarray, "..."] = 1.0

    @classmethod
    def on(cls, model: nn.Module, dataset: Dataset) -> Task:
        """The task of learning `dataset`, its rows normalised to mean 0 and deviation 1 by its training rows."""
        return cls(model, *map(jnp.asarray, normalisation(dataset)))

    def init(self, key: PRNGKey, x: Rows) -> Variables:
        """Fresh variables for rows like those of `x` (any number of them)."""
        row = jnp.zeros((1, *x.shape[1:]), jnp.float32)
        return self.model.init(key, row, train=False)

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
        logits: Any = self.model.apply(variables, self.normalised(x), train=train, rngs=rngs)
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
        out: Any = self.model.apply(
            variables, self.normalised(batch.x), train=True, mask=batch.mask, rngs=rngs, mutable=list(statistics)
        )
        logits, after = out
        some = batch.mask.any()
        after = jax.tree.map(lambda new, old: jnp.where(some, new, old), dict(after), statistics)
        return self.row_loss(logits, batch.y) * batch.mask, after

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

    def row_loss(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Cross-entropy of each row, in nats."""
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)

    def losses(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, "B"]:
        """Loss of each of the batch's rows; 0 where it does not count."""
        return self.row_loss(self.logits(variables, batch.x, train=train, key=key), batch.y) * batch.mask

    def loss(
        self, variables: Variables, batch: Batch, *, train: bool = False, key: PRNGKey | None = None
    ) -> Float[Array, ""]:
        """Mean loss of the batch's rows that count; 0 where none does."""
        losses = self.losses(variables, batch, train=train, key=key)
        return jnp.sum(losses) / jnp.maximum(jnp.sum(batch.mask), 1)

    def parameters(self, x: Rows) -> int:
        """`P`, the numbers in the variables."""
        return self._counted(x)[0]

    def flops(self, x: Rows) -> float:
        """Floating-point operations of one row's forward pass, by XLA's count of the unoptimised program."""
        return self._counted(x)[1]

    def outputs(self, x: Rows) -> tuple[int, ...]:
        """Shape of one row's logits, `(1, C)`."""
        return self._counted(x)[2]

    def _counted(self, x: Rows) -> tuple[int, float, tuple[int, ...]]:
        return _counted(type(self), self.model, jnp.shape(self.shift), jnp.shape(self.scale), x.shape[1:], x.dtype)


@functools.lru_cache(maxsize=64)  # every seed, and every trace of a round, asks again
def _counted(
    cls: type[Task], model: nn.Module, shift: tuple[int, ...], scale: tuple[int, ...], row: tuple[int, ...], dtype: Any
) -> tuple[int, float, tuple[int, ...]]:
    """Parameters, floating-point operations a row, and shape of a row's logits, of the task of these shapes."""
    one = jax.ShapeDtypeStruct((1, *row), dtype)
    variables = jax.eval_shape(cls(model).init, jax.random.key(0), one)
    moments = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (shift, scale))
    lowered: Any = jax.jit(lambda v, x, *given: cls(model, *given).logits(v, x)).lower(variables, one, *moments)
    parameters = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(variables))
    return parameters, float(lowered.cost_analysis()["flops"]), lowered.out_info.shape
