from collections import Counter

import numpy as np
import pytest

from fedjax_sel.data.partition import Dirichlet


def shares(law, y, seed):
    """Share of each class at each client [C, N], counted without the code under test."""
    client = law.assign(y, np.random.default_rng(seed), None)
    of = Counter(zip(y.tolist(), client.tolist(), strict=True))
    total = Counter(y.tolist())
    return np.array([[of[c, i] / total[c] for i in range(law.clients)] for c in sorted(total)])


@pytest.mark.parametrize(("clients", "alpha"), [(4, 0.5), (5, 2.0)])
def test_a_classs_shares_have_the_moments_of_the_law(clients, alpha):
    # Dir(alpha 1_N): mean 1/N, variance (1/N)(1 - 1/N) / (N alpha + 1), whatever the size of the class.
    y = np.repeat([0, 1], [1500, 500])
    drawn = np.array([shares(Dirichlet(clients, alpha), y, seed) for seed in range(400)])
    np.testing.assert_allclose(drawn.mean(0), 1 / clients, atol=0.06)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    np.testing.assert_allclose(drawn.var(0).mean(), variance, rtol=0.1)


def test_classes_are_divided_independently():
    drawn = np.array([shares(Dirichlet(3, 1.0), np.repeat([0, 1], 300), seed)[:, 0] for seed in range(500)])
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.15


def test_every_row_is_somebodys_and_a_large_alpha_divides_evenly():
    drawn = shares(Dirichlet(5, 1e6), np.repeat([0, 1], 1000), 0)
    np.testing.assert_allclose(drawn, 0.2, atol=0.01)
    np.testing.assert_allclose(drawn.sum(1), 1)


def test_no_client_has_fewer_than_min_rows():
    for seed in range(20):
        client = Dirichlet(10, 0.3, min_examples=10).assign(np.arange(600) % 5, np.random.default_rng(seed), None)
        assert min(Counter(client.tolist()).values()) >= 10


def test_a_full_client_gets_no_more_of_the_later_classes_when_balanced():
    y = np.arange(1000) % 10
    for seed in range(20):
        client = Dirichlet(5, 0.2, balance=True).assign(y, np.random.default_rng(seed), None)
        for i in range(5):
            before = np.cumsum(np.bincount(y[client == i], minlength=10))
            after_full = np.diff(before)[before[:-1] >= 200]
            assert (after_full == 0).all()


def test_giving_up_says_how_close_it_came_and_what_to_change():
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Dirichlet(50, 0.01, min_examples=5).assign(np.arange(1000) % 10, np.random.default_rng(0), None)
    assert "100 draws of Dir(alpha=0.01) over 50 clients and 1000 examples of 10 classes" in str(error.value)
    assert "min_examples=5 examples (the smallest client had at most 0)" in str(error.value)
    assert "raise alpha, or lower clients or min_examples, or set balance=True" in str(error.value)


def test_min_rows_that_do_not_exist_are_refused_before_anything_is_drawn():
    with pytest.raises(ValueError, match="10 clients with min_examples 11 need 110 examples, but there are only 100"):
        Dirichlet(10, min_examples=11).assign(np.zeros(100, int), np.random.default_rng(0), None)
