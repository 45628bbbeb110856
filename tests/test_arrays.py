"""Sums over clients, and the types of what is computed from them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import aggregation, correction
from fedjax_sel.arrays import add_weighted, keep_types
from fedjax_sel.types import Cohort

COHORT = Cohort(jnp.arange(4), jnp.ones(4, bool), jnp.ones(4))
WEIGHT, DELTAS = jnp.full(4, 0.25), {"w": jnp.full((4, 3), 1.001)}


def merge(kind):
    return kind.merge(kind.init({"w": jnp.ones(3)}, 8), COHORT, DELTAS)


@pytest.mark.parametrize(
    "add",
    [
        lambda: aggregation.load("mean")().combine(DELTAS, WEIGHT),
        lambda: aggregation.load("fedavgm")().combine(DELTAS, WEIGHT),
        lambda: merge(correction.load("scaffold")()),
        lambda: merge(correction.load("feddyn")()),
    ],
    ids=["mean", "fedavgm", "scaffold", "feddyn"],
)
def test_sums_over_clients_are_not_rounded_as_products_of_accelerators_are(add):
    """There, a mean of equal numbers would be another: 0.1 is 0.10009766 in bfloat16."""
    program = str(jax.make_jaxpr(add)())
    assert "dot_general" in program
    assert "precision=None" not in program


def test_no_other_sum_over_clients_is_written():
    """Weighted sums are `add_weighted`, which asks for all bits."""
    folder = Path(fedjax_sel.__file__).parent
    found = {path.name for path in folder.rglob("*.py") if "tensordot(" in path.read_text(encoding="utf-8")}
    assert found == {"arrays.py"}


def test_weighted_sums_are_those_of_numpy():
    rng = np.random.default_rng(0)
    weight, leaf = rng.normal(size=5).astype(np.float32), rng.normal(size=(5, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(add_weighted(weight, leaf), np.einsum("m,mij->ij", weight, leaf), rtol=1e-5)


def test_floating_types_are_kept_and_no_others():
    key, count = jax.random.key(0), jnp.int32(1)
    old = {"w": jnp.ones(2, jnp.bfloat16), "key": key, "count": count, "plain": 1.0}
    new = {"w": jnp.ones(2), "key": key, "count": jnp.float32(1), "plain": 2.0}
    kept = keep_types(new, old)
    assert kept["w"].dtype == jnp.bfloat16
    assert kept["key"] is key
    assert kept["count"].dtype == jnp.float32, "a mistake, which is not hidden"
    assert kept["plain"] == 2.0
