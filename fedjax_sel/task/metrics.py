"""Metrics: measures of a model on a set of examples, most of them computed from sums over the examples.

A metric that is not a mean over examples (an F1 score, a calibration error) is measured in the same way on each client
and on all test examples: from sums of what each example adds, or, as by ranks, from what all of them add.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

from fedjax_sel.arrays import expand
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.task.losses import ExampleFunction, align


class Metric(Pytree, ABC):
    """A number, or one for each class, measured on a set of examples.

    Attributes:
      targets: the kinds of targets that it applies to (`types.TARGETS`); empty: any.
    """

    targets: ClassVar[tuple[str, ...]] = ()

    @property
    def needs_all(self) -> bool:
        """Returns whether it has a `reduce` of its own, and is computed from all values, not from their sums alone."""
        return type(self).reduce is not Metric.reduce

    @property
    def higher_is_better(self) -> bool | None:
        """Returns whether higher values are better; true by default. None: neither is."""
        return True

    @abstractmethod
    def measure(self, outputs: Float[Array, "b ..."], targets: Shaped[Array, "b ..."]) -> Any:
        """Returns what each example adds to the sums: a pytree of arrays with a leading `b`."""

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Returns what `measure` returns."""
        return self.measure(outputs, targets)

    def compute(self, sums: Any, count: Float[Array, ""] | float) -> Float[Array, "..."]:
        """Returns the metric on `count` examples, from their sums; the mean by default."""
        return sums / count

    def reduce(self, values: Any, mask: Bool[Array, "n"] | None = None) -> Float[Array, "..."]:
        """Returns the metric on the examples in the mask (None: on all), from what `measure` returned for them.

        By default, `compute` returns it from the sums, which are in float32.
        """
        return self.compute(*add_up(values, mask))


def add_up(values: Any, mask: Bool[Array, "n"] | None = None) -> tuple[Any, Float[Array, ""] | float]:
    """Returns the sums of values over the examples in the mask (None: over all), and their number, at least 1."""
    if mask is None:
        count = float(len(jax.tree.leaves(values)[0]))
    else:
        count = jnp.maximum(mask.sum(), 1).astype(jnp.float32)
        values = jax.tree.map(lambda value: jnp.where(expand(mask, value), value, 0), values)
    return jax.tree.map(lambda value: value.sum(0, dtype=jnp.float32), values), count


class MeanOf(Metric):
    """The mean over the examples of a plain function of outputs and targets.

    Attributes:
      function: returns a number, or one for each class, for each example.
      higher_is_better: whether higher values are better; None: unknown, so no worst decile is reported.

    >>> MeanOf(lambda outputs, targets: outputs[:, 0] ** 2, higher_is_better=False).higher_is_better
    False
    """

    function: ExampleFunction = static()
    higher_is_better: bool | None = static(default=None)

    def measure(self, outputs: Any, targets: Any) -> Any:
        """Returns what the function returns; raises `ValueError` if that is not an array."""
        value = self.function(outputs, targets)
        if not hasattr(value, "shape"):
            name = getattr(self.function, "__name__", "a metric")
            raise ValueError(
                f"the task's metric {name} returns {'nothing' if value is None else f'a {type(value).__name__}'}; it "
                "must return an array, a number for each example"
            )
        return value


MEAN = MeanOf(lambda outputs, targets: outputs)
"""A metric whose values are known: it only averages them."""


def wrap_metric(function: ExampleFunction) -> MeanOf:
    """Returns the metric of a plain function, which may have an attribute `higher_is_better`."""
    return MeanOf(function, higher_is_better=getattr(function, "higher_is_better", None))


def if_numbers(value: Array, outputs: Float[Array, "*b C"]) -> Float[Array, "..."]:
    """Returns the values of examples in float32, NaN where an output of the example is NaN: it has no largest one.

    Args:
      value: one or several of each example, with as many leading axes as `outputs` has before its last.
      outputs: of the model.
    """
    unknown = expand(jnp.isnan(outputs).any(-1), value)
    return jnp.where(unknown, jnp.nan, value.astype(jnp.float32))


class Accuracy(Metric):
    """Fraction of the examples whose largest output is that of their class; NaN if an output is NaN.

    >>> accuracy(jnp.array([[0.0, 2.0], [1.0, 0.0], [jnp.nan, 0.0]]), jnp.array([1, 1, 0]))
    Array([ 1.,  0., nan], dtype=float32)
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns 1 for each example that the model classifies correctly."""
        return if_numbers(outputs.argmax(-1) == targets, outputs)


accuracy = Accuracy()


class ClassAccuracy(Metric):
    """Fraction of each class's examples that are classified correctly (its recall); NaN for a class without examples.

    >>> measured = ClassAccuracy().measure(jnp.eye(3)[:2], jnp.array([0, 0]))
    >>> ClassAccuracy().compute(jax.tree.map(lambda leaf: leaf.sum(0), measured), 2).tolist()
    [0.5, nan, nan]
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> dict[str, Float[Array, "b C"]]:
        """Returns, by class, each example and whether the model classifies it correctly."""
        of = jax.nn.one_hot(targets, outputs.shape[-1])
        return {"right": jnp.where(of > 0, accuracy(outputs, targets)[:, None], 0.0), "examples": of}

    def compute(self, sums: dict[str, Float[Array, "C"]], count: Any) -> Float[Array, "C"]:
        """Returns the fraction of each class."""
        return sums["right"] / jnp.where(sums["examples"] > 0, sums["examples"], jnp.nan)


class F1(Metric):
    """`2 TP / (2 TP + FP + FN)` of each class, or label, against all others.

    It is NaN if an output is NaN, and for a class or label that no example has and that is predicted for none; the mean
    leaves such a class out, as scikit-learn's does for classes, and for labels with `zero_division=nan` (its default
    counts such a label as 0).

    Labels, of which an example can have several, are predicted if their output is above 0 (a probability above ½).

    Attributes:
      average: `"macro"`, the mean over classes; `"micro"`, the score of the counts of all classes together; or
        `"none"`, one score for each class.

    >>> F1(average="none")
    F1(average='none')
    """

    targets: ClassVar[tuple[str, ...]] = ("classes", "multilabel")

    average: str = static(default="macro", choices=["macro", "micro", "none"])

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b *C"]) -> dict[str, Float[Array, "b C"]]:
        """Returns, by class, true positives, and the number of predictions plus targets."""
        if targets.ndim == 1:
            classes = outputs.shape[-1]
            said, there = jax.nn.one_hot(outputs.argmax(-1), classes), jax.nn.one_hot(targets, classes)
        else:
            said, there = outputs > 0, targets.astype(jnp.float32)
        said = if_numbers(said, outputs)
        return {"both": said * there, "either": said + there}

    def compute(self, sums: dict[str, Float[Array, "C"]], count: Any) -> Float[Array, "..."]:
        """Returns the score, or the scores."""
        both, either = sums["both"], sums["either"]
        if self.average == "micro":
            both, either = both.sum(), either.sum()
        score = 2 * both / jnp.where(either > 0, either, jnp.nan)  # 2 TP + FP + FN: predictions and targets
        return jnp.nanmean(score) if self.average == "macro" else score


class CalibrationError(Metric):
    """`Σ_b (n_b / n) |acc_b - conf_b|` over equal-width bins of the largest probability: expected calibration error.

    Attributes:
      bins: number of bins.

    Source: Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017,
    https://arxiv.org/abs/1706.04599, equation (3).

    >>> CalibrationError(bins=10)
    CalibrationError(bins=10)
    """

    targets: ClassVar[tuple[str, ...]] = ("classes",)

    bins: int = static(default=15, low=1)

    @property
    def higher_is_better(self) -> bool:
        """Returns false: it is an error."""
        return False

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b"]) -> Float[Array, "b bins"]:
        """Returns accuracy minus confidence of each example, in the bin of its confidence."""
        sure = jax.nn.softmax(outputs).max(-1)
        place = jnp.clip(jnp.ceil(sure * self.bins).astype(jnp.int32) - 1, 0, self.bins - 1)  # bins ((b-1)/B, b/B]
        return jax.nn.one_hot(place, self.bins) * (accuracy(outputs, targets) - sure)[:, None]

    def compute(self, sums: Float[Array, "bins"], count: Any) -> Float[Array, ""]:
        """Returns the error."""
        return jnp.abs(sums).sum() / count  # Eq. (3)


class AUC(Metric):
    """Area under the ROC curve of each class, or label, against all others; NaN without examples on both sides.

    Scores are the log-odds of a class (a label's output).

    Attributes:
      average: `"macro"`, the mean over the classes that have an area; or `"none"`, one area for each class.

    Source: Hanley and McNeil, "The Meaning and Use of the Area under a Receiver Operating Characteristic (ROC) Curve",
    1982, https://doi.org/10.1148/radiology.143.1.7063747: the probability that a positive example ranks above a
    negative one, ties counted one half.

    >>> auc = AUC(average="none")
    >>> auc.reduce(auc.measure(jnp.array([[2.0], [1.0], [0.0]]), jnp.array([[1], [0], [1]]))).tolist()
    [0.5]
    """

    targets: ClassVar[tuple[str, ...]] = ("classes", "multilabel")

    average: str = static(default="macro", choices=["macro", "none"])

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b *C"]) -> dict[str, Shaped[Array, "b C"]]:
        """Returns, by class, each example's score, and whether it is a positive one."""
        if targets.ndim == 1:
            return {
                "score": log_odds(outputs),
                "positive": jax.nn.one_hot(targets, outputs.shape[-1], dtype=bool),
            }
        return {"score": outputs, "positive": targets > 0}

    def reduce(self, values: dict[str, Shaped[Array, "n C"]], mask: Bool[Array, "n"] | None = None) -> Any:
        """Returns the area, or the areas; NaN if any score is NaN."""
        score, positive = values["score"], values["positive"]
        counted = jnp.ones(len(score), bool) if mask is None else mask
        areas = jax.vmap(measure_area, in_axes=(1, 1, None))(score, positive, counted)
        area = areas if self.average == "none" else jnp.nanmean(areas)
        return jnp.where(jnp.any(jnp.isnan(score) & counted[:, None]), jnp.nan, area)


def measure_area(score: Float[Array, "n"], positive: Bool[Array, "n"], counted: Bool[Array, "n"]) -> Float[Array, ""]:
    """Returns the share of pairs of a positive and a negative example in which the positive one has the higher score.

    A tie counts one half. Only pairs of `counted` examples enter; without any, the share is NaN.
    """
    order, place = jnp.argsort(score), jnp.arange(len(score))
    score, above, below = score[order], (positive & counted)[order], (~positive & counted)[order]
    new = jnp.concatenate([jnp.ones(1, bool), score[1:] != score[:-1]])  # where a run of equal scores begins
    until = jnp.cumsum(below)
    first = jax.lax.cummax(jnp.where(new, place, 0))
    last = jax.lax.cummin(jnp.where(jnp.roll(new, -1).at[-1].set(True), place, len(score) - 1), reverse=True)
    less, up_to = until[first] - below[first], until[last]
    beaten = jnp.where(above, (less + up_to) / 2, 0).sum()
    pairs = above.sum().astype(jnp.float32) * below.sum()
    return jnp.where(pairs > 0, beaten / jnp.maximum(pairs, 1), jnp.nan)


def log_odds(outputs: Float[Array, "b C"]) -> Float[Array, "b C"]:
    """Returns `log p / (1 - p)` of each class's probability `p`, accurate even if one is almost 1.

    >>> log_odds(jnp.array([[3.0, 1.0], [40.0, 0.0]])).tolist()
    [[2.0, -2.0], [40.0, -40.0]]
    """
    chances = jax.nn.log_softmax(outputs)
    largest = jax.nn.one_hot(outputs.argmax(-1), outputs.shape[-1], dtype=bool)
    rest = jax.nn.logsumexp(jnp.where(largest, -jnp.inf, outputs), axis=-1, keepdims=True)
    return jnp.where(largest, outputs - rest, chances - jnp.log1p(-jnp.exp(jnp.where(largest, -jnp.inf, chances))))


class AbsoluteError(Metric):
    """`|outputs - targets|`, averaged over examples and their numbers.

    >>> AbsoluteError().measure(jnp.array([[3.0]]), jnp.array([1.0])).tolist()
    [2.0]
    """

    targets: ClassVar[tuple[str, ...]] = ("continuous",)

    @property
    def higher_is_better(self) -> bool:
        """Returns false: it is an error."""
        return False

    def measure(self, outputs: Float[Array, "b k"], targets: Num[Array, "b *k"]) -> Float[Array, "b"]:
        """Returns the error of each example."""
        return jnp.abs(outputs - align(targets, outputs)).mean(-1)


class R2(Metric):
    """Coefficient of determination, `1 - Σ (y - f)² / Σ (y - ȳ)²`, averaged over an example's numbers.

    Numbers that are the same in all examples have no coefficient, and are left out.

    >>> r2 = R2()
    >>> r2.reduce(r2.measure(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 2.0]))).item()
    -1.0
    """

    targets: ClassVar[tuple[str, ...]] = ("continuous",)

    def measure(self, outputs: Float[Array, "b k"], targets: Num[Array, "b *k"]) -> dict[str, Float[Array, "b k"]]:
        """Returns the squared error, and the target."""
        y = align(targets, outputs)
        return {"error": (outputs - y) ** 2, "y": y}

    def reduce(self, values: dict[str, Float[Array, "n k"]], mask: Bool[Array, "n"] | None = None) -> Float[Array, ""]:
        """Returns the coefficient."""
        y, counted = values["y"], True if mask is None else mask[:, None]
        least = y.min(0, keepdims=True, where=counted, initial=jnp.inf)
        varies = (y > least).any(0, where=counted)
        sums, count = add_up({**values, "y": y - least}, mask)  # no digits are lost of targets that are far from 0
        total = ((y - least - sums["y"][None] / count) ** 2).sum(0, where=counted)
        coefficient = jnp.where(varies, 1 - sums["error"] / jnp.where(varies, total, 1.0), 0.0)
        return coefficient.sum() / jnp.where(varies.any(), varies.sum(), jnp.nan)


class LabelAccuracy(Metric):
    """Fraction of the labels of all examples that the model predicts correctly, with threshold ½ on the probability.

    >>> LabelAccuracy().measure(jnp.array([[1.0, -1.0]]), jnp.array([[1, 1]])).tolist()
    [0.5]
    """

    targets: ClassVar[tuple[str, ...]] = ("multilabel",)

    def measure(self, outputs: Float[Array, "b C"], targets: Int[Array, "b C"]) -> Float[Array, "b"]:
        """Returns the fraction of each example's labels that are correct; NaN where an output is NaN."""
        return jnp.where(jnp.isnan(outputs), jnp.nan, (outputs > 0) == (targets > 0)).mean(-1)


class TokenAccuracy(Metric):
    """Fraction of the positions of all sequences whose largest output is that of their token, without padding.

    Attributes:
      pad: the token that pads sequences; positions where it is the target do not count.

    >>> TokenAccuracy().measure(jnp.eye(3)[None], jnp.array([[0, 1, 1]]))["right"].tolist()
    [1.0]
    """

    targets: ClassVar[tuple[str, ...]] = ("tokens",)

    pad: int = static(default=0)

    def measure(self, outputs: Float[Array, "b L C"], targets: Int[Array, "b L"]) -> dict[str, Float[Array, "b"]]:
        """Returns how many positions of each sequence count, and at how many of them the model is right."""
        counts = targets != self.pad
        right = jnp.where(counts, if_numbers(outputs.argmax(-1) == targets, outputs), 0.0)
        return {"right": right.sum(-1), "places": counts.sum(-1).astype(jnp.float32)}

    def compute(self, sums: dict[str, Float[Array, ""]], count: Any) -> Float[Array, ""]:
        """Returns the fraction of all positions that are right; NaN if none counts."""
        return sums["right"] / jnp.where(sums["places"] > 0, sums["places"], jnp.nan)


METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "class_accuracy": ClassAccuracy,
    "f1": F1,
    "calibration_error": CalibrationError,
    "auc": AUC,
    "absolute_error": AbsoluteError,
    "r2": R2,
    "label_accuracy": LabelAccuracy,
    "token_accuracy": TokenAccuracy,
}
"""The metrics, by their names in a configuration."""

DEFAULT_METRICS: dict[str, dict[str, Metric]] = {
    "classes": {"accuracy": Accuracy()},
    "continuous": {"absolute_error": AbsoluteError()},
    "multilabel": {"label_accuracy": LabelAccuracy(), "f1": F1()},
    "tokens": {"token_accuracy": TokenAccuracy()},
}
"""The default metrics of each kind of targets."""
