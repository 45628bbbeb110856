"""Per-example gradients with respect to the logits, the output layer or the whole model, and their norms."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.arrays import widen
from fedjax_sel.protocols import ClientSignal, Cost, ExampleSignal, FeatureSignal, ServerSignal
from fedjax_sel.pytree import static
from fedjax_sel.signals.loss import use_task_loss
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task

__all__ = ["EL2N", "ExampleGradientNorm", "GraNd", "LastLayerGradient", "OutputGradient", "ValidationGradient"]

AT_ONCE = 32
"""Examples whose gradients are in memory at the same time."""


def differ(logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b C"]:
    """Returns probabilities minus one-hot labels, `p - y`: the gradient of the cross-entropy w.r.t. the logits."""
    return jax.nn.softmax(logits) - jax.nn.one_hot(y, logits.shape[-1])


def differentiate(loss: Any, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b C"]:
    """Returns the gradient of each example's loss with respect to its logits, `p - y` if the loss is None."""
    if loss is None:
        return differ(logits, y)
    return jax.vmap(jax.grad(lambda one, label: loss(one[None], label[None])[0]))(logits, y)


def note_bias(self: Any, has_bias: bool) -> Any:
    """Returns a signal for an output layer with or without a bias. A signal's `of_layer`."""
    return self.replace(has_bias=has_bias)


class OutputGradient(ExampleSignal):
    """The gradient of each example's loss w.r.t. its logits, or the output layer's bias, Float["C"].

    That of the cross-entropy is `p - y`, probabilities minus one-hot label.

    Attributes:
      loss: which loss, as in `Task.loss`; None: the task's.

    >>> OutputGradient().measure(jnp.zeros((1, 2)), jnp.zeros(1, int)).tolist()
    [[-0.5, 0.5]]
    """

    name: ClassVar[str] = "output_gradient"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True)

    loss: Any = field(default=None, repr=False)

    def count_up(self, classes: int) -> float:
        """Returns `C`."""
        return float(classes)

    of_task = use_task_loss

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b C"]:
        """Returns the gradient of each example."""
        return differentiate(self.loss, logits, y)


class LastLayerGradient(FeatureSignal):
    """The gradient of each example's loss w.r.t. the output layer, Float["C (H + 1)"].

    That of the cross-entropy is `(p - y) ⊗ (1, h)`, where `h` are the example's features; without the 1 if the layer
    has no bias. A client's values take `L C (H + 1)` numbers.

    Attributes:
      loss: which loss, as in `Task.loss`; None: the task's.
      has_bias: whether the layer has a bias; in a run, as the model has it.

    >>> LastLayerGradient().measure(jnp.zeros((1, 2)), jnp.zeros(1, int), jnp.array([[3.0]])).tolist()
    [[-0.5, -1.5, 0.5, 1.5]]
    """

    name: ClassVar[str] = "last_layer_gradient"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True)

    loss: Any = field(default=None, repr=False)
    has_bias: bool = field(default=True, repr=False, metadata={"static": True})

    of_task = use_task_loss

    of_layer = note_bias

    def measure(
        self, logits: Float[Array, "b C"], y: Int[Array, "b"], features: Float[Array, "b H"]
    ) -> Float[Array, "b P"]:
        """Returns the gradient of each example: for each class its bias, then its weights."""
        inputs = jnp.concatenate([jnp.ones((len(features), 1)), features], axis=1) if self.has_bias else features
        return (differentiate(self.loss, logits, y)[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)


class EL2N(ExampleSignal):
    """`‖p - y‖₂`, the error of an example's probabilities, which is roughly proportional to the norm of its gradient.

    Source: Paul, Ganguli and Dziugaite, "Deep Learning on a Data Diet: Finding Important Examples Early in Training",
    2021, https://arxiv.org/abs/2107.07075, Definition 2.3.

    >>> EL2N().measure(jnp.array([[2.0, 1.0, 0.0]]), jnp.array([1])).round(4)
    Array([1.0105], dtype=float32)
    """

    name: ClassVar[str] = "el2n"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the norm of each example."""
        return jnp.linalg.norm(differ(logits, y), axis=-1)


class GraNd(FeatureSignal):
    """The norm of the gradient of each example's loss w.r.t. the output layer.

    That of the cross-entropy is `‖p - y‖₂ √(1 + ‖h‖²)`, where `h` are the example's features; without the 1 if the
    layer has no bias.

    Attributes:
      loss: which loss, as in `Task.loss`; None: the task's.
      has_bias: whether the layer has a bias; in a run, as the model has it.

    Source: Paul, Ganguli and Dziugaite, 2021, https://arxiv.org/abs/2107.07075, Definition 2.1, for the output layer.

    >>> GraNd().measure(jnp.array([[2.0, 1.0, 0.0]]), jnp.array([1]), jnp.array([[1.0, 2.0]])).round(4)
    Array([2.4752], dtype=float32)
    """

    name: ClassVar[str] = "grand"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    loss: Any = field(default=None, repr=False)
    has_bias: bool = field(default=True, repr=False, metadata={"static": True})

    of_task = use_task_loss

    of_layer = note_bias

    def measure(
        self, logits: Float[Array, "b C"], y: Int[Array, "b"], features: Float[Array, "b H"]
    ) -> Float[Array, "b"]:
        """Returns the norm of each example."""
        output = jnp.linalg.norm(differentiate(self.loss, logits, y), axis=-1)
        return output * jnp.sqrt(float(self.has_bias) + jnp.sum(features**2, axis=-1))


class ExampleGradientNorm(ClientSignal):
    """`‖∇ℓ(x)‖₂` of each of a client's examples, over all trained parameters, without dropout, Float["L"].

    It is made for data selectors, whose clients keep it. If a client selector asks for it, each client is billed for
    sending one number, not `L`.

    Source: Paul, Ganguli and Dziugaite, 2021, https://arxiv.org/abs/2107.07075, Definition 2.1.

    >>> ExampleGradientNorm().cost.backward
    1.0
    """

    name: ClassVar[str] = "example_gradient_norm"
    cost: ClassVar[Cost] = Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0)

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, "L"]:
        """Returns the norm of each example; 0 for padding."""

        def measure_one(example):
            x, y, counts = example
            gradient = task.gradient(variables, Batch(x[None], y[None], counts[None]))
            return jnp.where(counts, optax.tree.norm(widen(gradient)), 0.0)

        return jax.lax.map(measure_one, (batch.x, batch.y, batch.mask), batch_size=AT_ONCE)


class ValidationGradient(ServerSignal):
    """Mean output gradient of the server's validation examples of each class, Float["C C"]; 0 for a class without any.

    Costs the clients nothing, unless it is sent to them.

    Attributes:
      loss: which loss, as in `Task.loss`; None: the task's.
      split: `"validation"`, or `"test"` for the test examples (a leak, for parity with code that has it).

    >>> ValidationGradient().measure(jnp.zeros((2, 2)), jnp.zeros(2, int)).tolist()
    [[-0.5, 0.5], [0.0, 0.0]]
    """

    name: ClassVar[str] = "validation_gradient"
    needs_classes: ClassVar[bool] = True

    loss: Any = field(default=None, repr=False)

    split: str = static(default="validation", choices=["validation", "test"])

    of_task = use_task_loss

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "C C"]:
        """Returns the mean of each class."""
        of_class = jax.nn.one_hot(y, logits.shape[-1])
        return of_class.T @ differentiate(self.loss, logits, y) / jnp.maximum(of_class.sum(0), 1)[:, None]
