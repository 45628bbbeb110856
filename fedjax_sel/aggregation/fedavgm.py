"""FedAvgM: the mean of the updates with server momentum."""

from __future__ import annotations

import math

import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import WEIGHTINGS, cohort_weights
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Plan

__all__ = ["FedAvgM"]


class FedAvgM(Aggregator):
    """`v ← β v + Δ`, `w ← w + η v`, where `Δ` is the mean of the updates; `β = 0`, `η = 1` is `mean`.

    With `nesterov`, `w ← w + η (Δ + β v)`, as in Flower's reproduction of the source. An empty cohort leaves the model
    and `v` unchanged.

    Attributes:
      momentum: `β`, in [0, 1).
      learning_rate: the server's, `η`.
      weighting: weights of the mean, `"client"`, `"size"` or `"cohort"`.
      nesterov: whether the step looks ahead.

    Source: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", 2019, https://arxiv.org/abs/1909.06335, section 4.3.

    >>> FedAvgM(0.5, weighting="size")
    FedAvgM(momentum=0.5, learning_rate=1.0, weighting='size', nesterov=False)
    """

    momentum: Scalar = param(default=0.9, low=0, below=1)
    learning_rate: Scalar = param(default=1.0, low=0, below=math.inf)
    weighting: str = static(default="client", choices=WEIGHTINGS)
    nesterov: bool = static(default=False)

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns the weights of the mean."""
        return cohort_weights(self.weighting, cohort, num_examples)

    def server_optimizer(self) -> optax.GradientTransformation:
        """Returns SGD with momentum."""
        return optax.sgd(self.learning_rate, self.momentum, nesterov=self.nesterov)
