"""Who can be reached, round by round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.devices.availability import Always, Bernoulli, Classes, Diurnal, Function, Trace
from fedjax_sel.devices.table import trace_from_file

KINDS = [Always(), Bernoulli(), Classes(), Diurnal(), Trace(np.arange(12).reshape(2, 6) % 3 == 0)]


def over_rounds(availability, rounds, clients, seed=0):
    keys = jax.vmap(lambda t: jax.random.fold_in(jax.random.key(seed), t))(jnp.arange(rounds))
    go = jax.jit(jax.vmap(lambda key, t: availability.available(key, t, clients)))
    return np.asarray(go(keys, jnp.arange(rounds)))


@pytest.mark.parametrize("availability", KINDS)
def test_all_kinds_answer_with_a_bool_a_client_and_the_key_decides(availability):
    availability.check(6)
    first = over_rounds(availability, 9, 6)
    assert first.shape == (9, 6)
    assert first.dtype == bool
    np.testing.assert_array_equal(first, over_rounds(availability, 9, 6))


def test_always_is_everybody():
    assert over_rounds(Always(), 5, 4).all()


def test_bernoulli_has_its_chances():
    np.testing.assert_allclose(over_rounds(Bernoulli(0.3), 200, 100).mean(), 0.3, atol=0.02)
    each = over_rounds(Bernoulli(jnp.array([0.0, 0.2, 1.0])), 2000, 3).mean(0)
    assert each[0] == 0
    assert each[2] == 1
    np.testing.assert_allclose(each[1], 0.2, atol=0.04)


def test_each_block_of_clients_has_the_chance_of_its_class():
    each = over_rounds(Classes((0.1, 0.9)), 2000, 5).mean(0)
    np.testing.assert_allclose(each, [0.1, 0.1, 0.1, 0.9, 0.9], atol=0.03)


@pytest.mark.parametrize("availability", [Bernoulli(), Diurnal()])
def test_a_client_is_reached_or_not_whoever_else_there_is(availability):
    np.testing.assert_array_equal(over_rounds(availability, 20, 10), over_rounds(availability, 20, 64)[:, :10])


def test_a_day_has_its_best_hour_and_comes_again():
    phase = np.array([0.0, 0.25])
    reached = over_rounds(Diurnal(period=10.0, mean=0.4, depth=0.6, phase=phase), 4000, 2)
    hours = np.arange(10) / 10
    expected = 0.4 * (1 + 0.6 * np.cos(2 * np.pi * (hours[:, None] - phase)))
    np.testing.assert_allclose(reached.reshape(-1, 10, 2).mean(0), expected, atol=0.09)
    assert not over_rounds(Diurnal(period=10.0, phase=np.zeros(2)), 400, 2)[5::10].any()


def test_phases_are_spread_over_the_day():
    reached = over_rounds(Diurnal(), 240, 1000).mean(1)
    np.testing.assert_allclose(reached, 0.5, atol=0.07)


def test_a_trace_is_followed_and_begins_again():
    present = np.array([[1, 0], [0, 1], [1, 1]], bool)
    np.testing.assert_array_equal(over_rounds(Trace(present), 7, 2), present[[0, 1, 2, 0, 1, 2, 0]])


def test_a_function_of_the_round_is_followed():
    """Client i arrives in round i and stays for three rounds."""
    table = np.tril(np.ones((6, 4), bool)) & ~np.tril(np.ones((6, 4), bool), -3)

    def present(round, num_clients):
        age = round - jnp.arange(num_clients)
        return (age >= 0) & (age < 3)

    np.testing.assert_array_equal(over_rounds(Function(present), 6, 4), table)


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv"])
def test_a_table_is_read_from_a_file(suffix, tmp_path):
    table, path = np.random.default_rng(0).random((5, 3)) < 0.5, tmp_path / f"trace.{suffix}"
    if suffix == "npz":
        np.savez(path, present=table)
    elif suffix == "npy":
        np.save(path, table.astype(float))  # as `np.zeros` and `np.ones` are
    else:
        np.savetxt(path, table.astype(int), fmt="%d", delimiter=",")
    np.testing.assert_array_equal(trace_from_file(path).present, table)


def test_a_file_that_holds_no_table_is_refused(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.ones((2, 2)), b=np.ones(2))
    np.save(tmp_path / "chances.npy", np.array([[0.0, 1.0], [1.0, 0.5]]))
    np.save(tmp_path / "flat.npy", np.ones(3))
    (tmp_path / "no.npz").write_text("1,0")
    (tmp_path / "blank.csv").write_text("1,0\n,\n0,1\n")
    for name, message in {
        "two.npz": "holds a, b; one array",
        "chances.npy": r"holds 0.5; one array \[rounds, N\] of 0 and 1",
        "flat.npy": r"holds float64 of shape \(3,\); one array \[rounds, N\] of 0 and 1",
        "blank.csv": "line 2: a cell is ''; one 0 or 1 for each client",
        "no.npz": "cannot be read as NumPy's arrays",
    }.items():
        with pytest.raises(ValueError, match=message):
            trace_from_file(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"no file .*lost\.npz"):
        trace_from_file(tmp_path / "lost.npz")


@pytest.mark.parametrize(
    ("availability", "message"),
    [
        (Function(lambda round, n: jnp.ones(n + 1, bool)), r"bool of shape \(7,\); it must be bool of shape \(6,\)"),
        (Function(lambda round, n: jnp.ones(n)), r"float32 of shape \(6,\)"),
        (Bernoulli(np.full(3, 0.5)), "N = 6"),
        (Classes((0.5,) * 7), "at most N = 6 classes"),
        (Classes((0.5, 1.5)), r"p is \(0.5, 1.5\)"),
        (Diurnal(phase=np.zeros(5)), r"phase has shape \(5,\).*N = 6"),
        (Trace(np.ones((3, 5), bool)), r"bool of shape \(3, 5\).*N = 6"),
        (Trace(np.ones((0, 6), bool)), "at least one round"),
    ],
)
def test_what_cannot_serve_the_clients_is_refused(availability, message):
    with pytest.raises(ValueError, match=message):
        availability.check(6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(1.2), r"Bernoulli: p is 1.2; it must be in \[0, 1\]"),
        (lambda: Bernoulli(float("nan")), "p is nan"),
        (lambda: Bernoulli(np.array([0.5, -0.1])), r"p is array.*in \[0, 1\]"),
        (lambda: Diurnal(period=0.0), "period is 0.0; it must be above 0"),
        (lambda: Diurnal(mean=1.5), r"mean is 1.5; it must be in \[0, 1\]"),
        (lambda: Diurnal(depth=-0.5), r"depth is -0.5; it must be in \[0, 1\]"),
    ],
)
def test_numbers_outside_their_ranges_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
