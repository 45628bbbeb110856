"""Counts of what strategies returned that cannot be: how they are counted, and how they leave a round."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.engine.cohort import FEW
from fedjax_sel.engine.faults import count_twice
from fedjax_sel.engine.nonfinite import hide_faults
from fedjax_sel.engine.state import pack_faults


@pytest.mark.parametrize("m", [1, 7, FEW, FEW + 1])
def test_whoever_stands_in_a_cohort_again_is_counted_whether_members_are_compared_or_sorted(m):
    rng = np.random.default_rng(m)
    for clients in (3, m, 10 * m):
        client = rng.integers(-1, clients, m)
        there = client[client >= 0]
        assert count_twice(jnp.asarray(client, jnp.int32)) == len(there) - len(np.unique(there))


@pytest.mark.parametrize(("began", "alive"), [(True, True), (True, False), (False, False)])
def test_a_seed_that_ended_has_no_faults_and_in_the_round_that_ends_it_none_of_divergence(began, alive):
    packed = pack_faults({"twice": 2, "nan_score": 3, "signal_loss": 4})
    hidden = hide_faults(packed, jnp.asarray(began), jnp.asarray(alive))
    assert hidden.names == ("twice", "nan_score", "signal_loss")
    assert hidden.counts.tolist() == [2 * began, 3 * alive, 4 * alive]
