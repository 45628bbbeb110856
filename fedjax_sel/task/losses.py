"""Losses: the error of the model's outputs on the targets of each example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

from fedjax_sel.pytree import Pytree, Scalar, param, static

ExampleFunction = Callable[[Shaped[Array, "b ..."], Shaped[Array, "b ..."]], Shaped[Array, "b"]]
"""A number for each example, from the model's outputs and the targets."""


class Loss(Pytree, ABC):
    """A loss is called with outputs and targets; training minimises its mean over examples.

    Attributes:
      targets: the kinds of targets that it applies to (`types.TARGETS`); empty: any.
    """

    targets: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __call__(self, outputs: Float[Array, "b ..."], targets: Shaped[Array, "b ..."]) -> Float[Array, "b"]:
        """Returns the loss of each example."""


class OwnLoss(Loss):
    """A plain function of outputs and targets.

    >>> OwnLoss(lambda outputs, targets: jnp.abs(outputs[:, 0] - targets))(jnp.ones((1, 1)), jnp.zeros(1))
    Array([1.], dtype=float32)
    """

    function: ExampleFunction = static()

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Returns what the function returns."""
        return self.function(outputs, targets)


def surprise(outputs: Float[Array, "... C"], targets: Int[Array, "..."]) -> Float[Array, "..."]:
    """Returns `-log p` of each target, in nats; other classes may be impossible (a logit of -∞)."""
    own = jax.nn.one_hot(targets, outputs.shape[-1], dtype=bool)  # not an index: the gradient then has no scatter
    return -jnp.where(own, jax.nn.log_softmax(outputs), 0.0).sum(-1)


class CrossEntropy(Loss):
    """`-log softmax(outputs)_y`, in nats.

    >>> CrossEntropy()(jnp.zeros((1, 4)), jnp.array([2])).round(4)
    Array([1.3863], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    def __call__(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        return surprise(outputs, targets)


class LabelSmoothing(Loss):
    """Cross-entropy, in nats, from labels of which a share is spread evenly over all classes.

    Attributes:
      smoothing: that share, in [0, 1).

    Source: Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception Architecture for Computer Vision",
    2016, https://arxiv.org/abs/1512.00567, section 7.

    >>> LabelSmoothing(smoothing=0.1)
    LabelSmoothing(smoothing=0.1)
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    smoothing: Scalar = param(default=0.1, low=0, below=1)

    def __call__(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        labels = jax.nn.one_hot(targets, outputs.shape[-1])
        return optax.softmax_cross_entropy(outputs, optax.smooth_labels(labels, self.smoothing))


class Focal(Loss):
    """`-(1 - p_y)^γ log p_y` with `p = softmax(outputs)`: examples that the model is sure of count less.

    Attributes:
      gamma: `γ`; 0 is the cross-entropy.

    Source: Lin, Goyal, Girshick, He and Dollár, "Focal Loss for Dense Object Detection", 2017,
    https://arxiv.org/abs/1708.02002, equation (4).

    >>> Focal(gamma=1.0)(jnp.zeros((1, 2)), jnp.array([0])).round(4)
    Array([0.3466], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    gamma: Scalar = param(default=2.0, low=0)

    def __call__(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        loss = surprise(outputs, targets)
        # 1 - p_y; a power of 0 has no gradient.
        wrong = jnp.maximum(-jnp.expm1(-loss), jnp.finfo(jnp.float32).tiny)
        return wrong**self.gamma * loss  # Eq. (4)


class SquaredError(Loss):
    """`(outputs - targets)²`, averaged over the numbers of an example.

    >>> SquaredError()(jnp.array([[3.0], [1.0]]), jnp.array([1.0, 1.0]))
    Array([4., 0.], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("continuous",)

    def __call__(self, outputs: Float[Array, "b k"], targets: Num[Array, "b *k"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        return optax.squared_error(outputs, align(targets, outputs)).mean(-1)


class Huber(Loss):
    """`½ r²` of a residual `r` up to `delta`, beyond it `delta (|r| - ½ delta)`; averaged over an example's numbers.

    Attributes:
      delta: the residual beyond which the loss is linear; above 0.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964, https://doi.org/10.1214/aoms/1177703732.

    >>> Huber(delta=1.0)(jnp.array([[3.0], [0.5]]), jnp.zeros(2))
    Array([2.5  , 0.125], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("continuous",)

    delta: Scalar = param(default=1.0, above=0)

    def __call__(self, outputs: Float[Array, "b k"], targets: Num[Array, "b *k"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        return optax.huber_loss(outputs, align(targets, outputs), delta=self.delta).mean(-1)


class BinaryCrossEntropy(Loss):
    """Cross-entropy, in nats, of each label separately, with `p = sigmoid(outputs)`; averaged over an example's labels.

    >>> BinaryCrossEntropy()(jnp.zeros((1, 3)), jnp.array([[0, 1, 1]])).round(4)
    Array([0.6931], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("multilabel",)

    def __call__(self, outputs: Float[Array, "b C"], targets: Num[Array, "b C"]) -> Float[Array, "b"]:
        """Returns the loss of each example."""
        return optax.sigmoid_binary_cross_entropy(outputs, jnp.asarray(targets, outputs.dtype)).mean(-1)


class NextToken(Loss):
    """Cross-entropy, in nats, of the token at each position of a sequence; averaged over positions without padding.

    Attributes:
      pad: the token that pads sequences; positions where it is the target do not count.

    >>> NextToken()(jnp.zeros((1, 3, 4)), jnp.array([[2, 1, 0]])).round(4)
    Array([1.3863], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("tokens",)

    pad: int = static(default=0)

    def __call__(self, outputs: Float[Array, "b L C"], targets: Int[Array, "b L"]) -> Float[Array, "b"]:
        """Returns the loss of each sequence; 0 if it is all padding."""
        return average_places(surprise(outputs, targets), targets != self.pad)


LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "label_smoothing": LabelSmoothing,
    "focal": Focal,
    "squared_error": SquaredError,
    "huber": Huber,
    "binary_cross_entropy": BinaryCrossEntropy,
    "next_token": NextToken,
}
"""The losses, by their names in a configuration."""

DEFAULT_LOSS: dict[str, Loss] = {
    "classes": CrossEntropy(),
    "continuous": SquaredError(),
    "multilabel": BinaryCrossEntropy(),
    "tokens": NextToken(),
}
"""The default loss of each kind of targets."""

cross_entropy = CrossEntropy()


def align(targets: Num[Array, "b *k"], outputs: Float[Array, "b k"]) -> Num[Array, "b k"]:
    """Returns targets with one number per example with the additional axis of the outputs."""
    return targets[:, None] if targets.ndim == outputs.ndim - 1 else targets


def average_places(value: Float[Array, "b L"], counts: Bool[Array, "b L"]) -> Float[Array, "b"]:
    """Returns the mean over each example's positions that count; 0 if none do.

    >>> average_places(jnp.array([[1.0, 3.0, 9.0]]), jnp.array([[True, True, False]]))
    Array([2.], dtype=float32)
    """
    return jnp.where(counts, value, 0).sum(-1) / jnp.maximum(counts.sum(-1), 1)
