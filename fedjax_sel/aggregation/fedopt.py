"""FedOpt: the mean of the updates as a pseudo-gradient for an adaptive server optimiser."""

from __future__ import annotations

import math

import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import WEIGHTINGS, cohort_weights, uncorrected_adaptive
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Plan

__all__ = ["FedOpt"]


class FedOpt(Aggregator):
    """`w ← w + η m / (√v + τ)` with `m ← β₁ m + (1 - β₁) Δ` and `v` by the optimiser's rule; `v` starts at `τ²`.

    `adagrad`: `v + Δ²`; `adam`: `β₂ v + (1 - β₂) Δ²`; `yogi`: `v - (1 - β₂) Δ² sign(v - Δ²)`. There is no bias
    correction, as in Algorithm 2. The authors' code has it, starts `v` at 0 and takes `β₂ = 0.999`; its first steps
    are about half as long, so that its learning rates may be too large here. An empty cohort leaves the model, `m` and
    `v` unchanged.

    Attributes:
      learning_rate: the server's, `η`.
      beta1: `β₁`, in [0, 1); None: 0.9, and 0 for `adagrad`, as in the source's experiments.
      beta2: `β₂`, in [0, 1); `adagrad` has none.
      tau: `τ`, which controls the adaptivity; at least 1e-30.
      optimizer: `"adam"`, `"adagrad"` or `"yogi"`.
      weighting: weights of the mean `Δ`, `"client"`, `"size"` or `"cohort"`.

    Source: Reddi et al., "Adaptive Federated Optimization", 2021, https://arxiv.org/abs/2003.00295, Algorithm 2.

    >>> import jax.numpy as jnp
    >>> FedOpt(0.1, optimizer="yogi").server_optimizer().init(jnp.zeros(2)).second
    Array([1.e-06, 1.e-06], dtype=float32)
    """

    learning_rate: Scalar = param(default=0.01, low=0, below=math.inf)
    beta1: Scalar | None = param(default=None, low=0, below=1)
    beta2: Scalar = param(default=0.99, low=0, below=1)
    tau: Scalar = param(default=0.001, low=1e-30, below=math.inf)
    optimizer: str = static(default="adam", choices=["adam", "adagrad", "yogi"])
    weighting: str = static(default="client", choices=WEIGHTINGS)

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns the weights of the mean."""
        return cohort_weights(self.weighting, cohort, num_examples)

    def server_optimizer(self) -> optax.GradientTransformation:
        """Returns the source's optimiser, without bias correction."""
        usual = 0.0 if self.optimizer == "adagrad" else 0.9
        beta1 = usual if self.beta1 is None else self.beta1
        return uncorrected_adaptive(self.optimizer, self.learning_rate, beta1, self.beta2, self.tau)
