"""Weights of a mean over the cohort."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.catalog import check_name
from fedjax_sel.types import Cohort


def check_by(where: str, by: str) -> None:
    """Raise `ValueError` for what is no weighting."""
    check_name(f"{where}: by", by, ["client", "size"])


def mean_weights(by: str, cohort: Cohort, rows: Int[Array, "m"]) -> Float[Array, "m"]:
    """Equal, or by the rows trained on; normalised over the filled slots."""
    weight = cohort.weight * cohort.mask * (rows if by == "size" else 1.0)
    return weight / jnp.maximum(weight.sum(), jnp.finfo(weight.dtype).tiny)
