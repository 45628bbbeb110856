"""Sizes whose spread floating point hardly holds."""

import numpy as np
import pytest

from fedjax_sel.data.partition.unequal import Unequal


@pytest.mark.parametrize("spread", [0.0, 1.0, 500.0, 1e5, 1e300])
def test_any_spread_divides_all_examples(spread):
    owner = Unequal(100, spread=spread).assign(np.arange(60_000) % 10, np.random.default_rng(0))
    count = np.bincount(owner, minlength=100)
    assert count.sum() == 60_000
    assert count.min() >= 1
    if spread >= 500:
        assert count.max() == 60_000 - 99


def test_a_spread_beyond_floating_point_is_refused():
    with (
        pytest.raises(ValueError, match=r"spread is 1.7e\+308; clients' sizes are beyond floating point"),
        np.errstate(over="ignore"),
    ):
        Unequal(100, spread=1.7e308).assign(np.arange(600), np.random.default_rng(0))
