"""Helpers shared by aggregators: the weights of a sum over the cohort, and the server optimisers of Reddi et al."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.arrays import expand
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import Cohort, Variables

WEIGHTINGS = ("client", "size", "cohort")
"""`"client"`: the cohort's weights, normalised (all equal if the selector corrects nothing); `"size"`: the cohort's
weights times the number of examples trained on, normalised; `"cohort"`: the cohort's weights as they are, whatever
their sum, for selectors whose weights make the sum unbiased (the Horvitz-Thompson estimator)."""


def cohort_weights(weighting: str, cohort: Cohort, num_examples: Int[Array, "m"]) -> Float[Array, "m"]:
    """Returns the weight of each update under one of `WEIGHTINGS`; 0 for empty slots."""
    weight = cohort.weight * cohort.mask * (num_examples if weighting == "size" else 1.0)
    return weight if weighting == "cohort" else weight / jnp.maximum(weight.sum(), jnp.finfo(weight.dtype).tiny)


def equal_weights(cohort: Cohort) -> Float[Array, "m"]:
    """Returns the same weight for every update that came back, whatever the cohort's weights; their sum is 1, or 0."""
    return cohort.mask / jnp.maximum(cohort.mask.sum(), 1)


def sort_present(leaf: Shaped[Array, "m ..."], present: Bool[Array, "m"]) -> Shaped[Array, "m ..."]:
    """Returns each coordinate's values in ascending order; absent members come last, as infinity."""
    return jnp.sort(jnp.where(expand(present, leaf), leaf, jnp.inf), axis=0)


class MomentsState(NamedTuple):
    """First and second moments of the pseudo-gradients."""

    first: Variables
    second: Variables


def uncorrected_adaptive(
    rule: str, learning_rate: Scalar, beta1: Scalar, beta2: Scalar, tau: Scalar
) -> optax.GradientTransformation:
    """Returns the optimiser `w ← w - η m / (√v + τ)` without bias correction; `v` starts at `τ²`.

    Args:
      rule: update rule of `v`: `"adagrad"`, `"adam"` or `"yogi"`.
      learning_rate: `η`.
      beta1, beta2: `β₁`, `β₂`.
      tau: `τ`.

    Source: Reddi et al., "Adaptive Federated Optimization", 2021, https://arxiv.org/abs/2003.00295, Algorithm 2.
    Optax's optimisers divide the moments by `1 - β^t`.
    """
    second_moment = {
        "adagrad": lambda v, g: v + g**2,  # FedAdagrad
        "yogi": lambda v, g: v - (1 - beta2) * g**2 * jnp.sign(v - g**2),  # FedYogi
        "adam": lambda v, g: beta2 * v + (1 - beta2) * g**2,  # FedAdam
    }[rule]

    def init(params: Variables) -> MomentsState:
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0) * tau**2, params)
        return MomentsState(jax.tree.map(jnp.zeros_like, params), second)

    def update(updates: Variables, state: Any, params: Variables | None = None):
        del params
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, updates)
        second = jax.tree.map(second_moment, state.second, updates)
        change = jax.tree.map(lambda m, v: -(learning_rate * m) / (jnp.sqrt(v) + tau), first, second)
        return change, MomentsState(first, second)

    return optax.GradientTransformation(init, update)
