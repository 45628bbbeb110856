import numpy as np
import pytest

from fedjax_sel.data.partition import Natural

OWNER = np.array([5, 9, 5, 7, 7, 7])
Y = np.zeros(6, int)


def test_every_owner_is_a_client_in_the_order_of_their_names():
    assert Natural().assign(Y, np.random.default_rng(0), OWNER).tolist() == [0, 2, 0, 1, 1, 1]


def test_fewer_clients_are_owners_drawn_at_random_and_the_others_rows_are_nobodys():
    seen = {tuple(Natural(2).assign(Y, np.random.default_rng(seed), OWNER).tolist()) for seed in range(30)}
    assert seen == {(0, 1, 0, -1, -1, -1), (0, -1, 0, 1, 1, 1), (-1, 1, -1, 0, 0, 0)}


def test_rows_without_owners_are_refused_with_a_way_out():
    with pytest.raises(ValueError, match="these examples have no natural owner; pass dataset"):
        Natural().assign(Y, np.random.default_rng(0), None)


def test_more_clients_than_owners_are_refused():
    with pytest.raises(ValueError, match="clients is 4, but the examples have only 3 owners; None takes them all"):
        Natural(4).assign(Y, np.random.default_rng(0), OWNER)
