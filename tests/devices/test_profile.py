"""Devices as values: what is allowed, what is read from a table, what laws draw."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_sel.devices.laws import LogNormal, Tiers, Uniform
from fedjax_sel.devices.profile import UNITS, DeviceProfile, features
from fedjax_sel.devices.table import from_csv

GOOD = {"compute": [1e9, 4e9, 2e9], "efficiency": 1e9, "memory": [1e9, 0, 2e9], "up": 1e6, "down": 4e6}
LAWS = [
    Uniform(),
    Uniform(low=0.2),
    LogNormal(),
    Tiers(),
    Tiers((1.0, 0.5), network_factor=(1.0, 0.1), share=(2.0, 1.0)),
]


def test_one_number_stands_for_all_clients():
    devices = DeviceProfile.of(**GOOD)
    assert devices.num_clients == 3
    np.testing.assert_array_equal(devices.up, [1e6] * 3)
    np.testing.assert_array_equal(devices.radio, [1.0] * 3)
    np.testing.assert_array_equal(devices.take(jnp.array([2, 0])).compute, [2e9, 1e9])
    devices.check(3)


@pytest.mark.parametrize("name", list(UNITS))
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, 1e39])
def test_a_bad_number_is_named_with_its_client_and_unit(name, bad):
    with pytest.raises(ValueError, match=rf"{name} of client 1 is .* {UNITS[name]} \(1 of 3 clients\)"):
        DeviceProfile.of(**{**GOOD, name: [1.0, bad, 2.0]})


def test_a_rate_of_zero_is_refused():
    with pytest.raises(ValueError, match=r"compute of client 0 is 0.0 FLOP/s.*above 0"):
        DeviceProfile.of(**{**GOOD, "compute": 0.0})


def test_another_length_than_the_clients_is_refused():
    with pytest.raises(ValueError, match=r"memory has shape \(2,\), but there are N = 3 clients"):
        DeviceProfile.of(**{**GOOD, "memory": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"compute has shape \(3,\), but there are N = 4 clients"):
        DeviceProfile.of(**GOOD).check(4)


def test_network_is_the_rate_of_a_model_down_and_up():
    devices = DeviceProfile.of(**{**GOOD, "up": 1.0, "down": 4.0})
    np.testing.assert_allclose(devices.network, 2 * 100 / (100 / 1 + 100 / 4), rtol=1e-6)


def test_features_are_scaled_by_range_or_largest_value():
    devices = DeviceProfile.of(**GOOD)
    np.testing.assert_allclose(features(devices)[0], [0, 1, 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(features(devices)[1], [1, 1, 1])
    np.testing.assert_allclose(features(devices, "max")[0], [0.25, 1, 0.5])
    with pytest.raises(ValueError, match=r"scale of device features is 'minmax'; it must be 'range' or 'max'"):
        features(devices, "minmax")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("clients", [1, 7, 100])
def test_a_law_draws_allowed_devices_and_the_seed_decides(law, clients):
    one, same, other = law.draw(3, clients), law.draw(3, clients), law.draw(4, clients)
    one.check(clients)
    for name in UNITS:
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    if clients == 100:
        assert (one.compute != other.compute).any()


@pytest.mark.parametrize("law", [Uniform(), LogNormal()])
def test_a_client_keeps_its_device_when_others_join(law):
    np.testing.assert_array_equal(law.draw(0, 10).compute, law.draw(0, 50).compute[:10])


def test_uniform_features_are_uniform_and_independent():
    f = np.asarray(features(Uniform().draw(0, 20_000), "max"))
    assert f.min() > 0
    np.testing.assert_allclose(np.quantile(f, [0.1, 0.5, 0.9], axis=1), [[0.1] * 4, [0.5] * 4, [0.9] * 4], atol=0.015)
    assert np.abs(np.corrcoef(f) - np.eye(4)).max() < 0.03


def test_lognormal_has_its_median_and_spread():
    devices = LogNormal(spread=0.6, compute=5e9).draw(0, 20_000)
    np.testing.assert_allclose(np.median(devices.compute), 5e9, rtol=0.03)
    np.testing.assert_allclose(np.log(devices.up).std(), 0.6, rtol=0.03)


@settings(max_examples=50, deadline=None)
@given(share=st.lists(st.integers(0, 9).map(float), min_size=1, max_size=6).filter(any), clients=st.integers(1, 200))
def test_tiers_have_their_share_of_the_clients(share, clients):
    factor = tuple(2.0**k for k in range(len(share)))
    devices = Tiers(factor, share=tuple(share), compute=1.0).draw(0, clients)
    count = np.array([(devices.compute == c).sum() for c in factor])
    assert count.sum() == clients
    assert (np.abs(count - clients * np.array(share) / sum(share)) < 1).all()


def test_the_network_of_a_tier_is_slower_both_ways_and_an_operation_costs_all_tiers_the_same():
    law = Tiers((1.0, 0.5), network_factor=(1.0, 0.1), share=(2.0, 1.0), compute=8.0, up=10.0, down=40.0)
    devices = law.draw(3, 30)
    slow = np.asarray(devices.compute) == 4
    assert slow.sum() == 10
    np.testing.assert_allclose(devices.up, np.where(slow, 1.0, 10.0), rtol=1e-6)
    np.testing.assert_allclose(devices.down, np.where(slow, 4.0, 40.0), rtol=1e-6)
    for name in ("efficiency", "memory"):
        np.testing.assert_allclose(getattr(devices, name), getattr(law, name), rtol=1e-6)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (Uniform(low=1.5), "low is 1.5"),
        (Uniform(compute=-1.0), "law Uniform: compute is -1.0 FLOP/s; it must be finite and above 0"),
        (LogNormal(spread=-1.0), "spread is -1.0"),
        (LogNormal(spread=float("nan")), "spread is nan"),
        (Tiers(()), "at least one tier"),
        (Tiers((1.0, 2.0), share=(1.0,)), "share 1 numbers"),
        (Tiers((1.0, 2.0), share=(0.0, 0.0)), "not all 0"),
    ],
)
def test_a_law_that_cannot_be_drawn_says_why(law, message):
    with pytest.raises(ValueError, match=message):
        law.draw(0, 5)


def test_there_is_no_negative_seed_and_no_empty_population():
    with pytest.raises(ValueError, match=r"seed -1, N = 5"):
        Uniform().draw(-1, 5)
    with pytest.raises(ValueError, match=r"N = 0"):
        Uniform().draw(0, 0)


def written(tmp_path, text):
    path = tmp_path / "devices.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_read_by_the_names_of_its_columns(tmp_path):
    devices = from_csv(
        written(tmp_path, "\ufeffup, down,compute,memory,efficiency\n1,4,1e9,2e9,3e9\n\n2,8,2e9,0,1e9\n")
    )
    np.testing.assert_array_equal(devices.compute, np.float32([1e9, 2e9]))
    np.testing.assert_array_equal(devices.down, [4, 8])
    np.testing.assert_array_equal(devices.radio, [1, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 lines"),
        ("compute,efficiency,memory,up,down\n", "1 lines"),
        ("compute,efficency,memory,up,down\n1,1,1,1,1\n", "'efficency'; did you mean 'efficiency'"),
        ("compute,efficiency,up,down\n1,1,1,1\n", "missing: memory"),
        ("compute,efficiency,memory,up,down,up\n1,1,1,1,1,1\n", "needed, once each"),
        ("compute,efficiency,memory,up,down\n1,1,1,1\n", "line 2: 4 cells"),
        ("compute,efficiency,memory,up,down\n1,1,1,1,1\n1,fast,1,1,1\n", "line 3: efficiency is 'fast'.*FLOP/J"),
        ("compute,efficiency,memory,up,down\n1,1,1,1,1\n,,,,\n1,1,1,1,1\n", "line 3: compute is ''"),
        ("compute,efficiency,memory,up,down\n1,1,1,1,-4\n", "devices.csv: devices: down of client 0 is -4.0"),
        ("compute,efficiency,memory,up,down\n1,nan,1,1,4\n", "efficiency of client 0 is nan"),
    ],
)
def test_a_bad_table_says_what_is_wrong_and_where(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        from_csv(written(tmp_path, text))
