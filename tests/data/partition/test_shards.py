from collections import Counter

import numpy as np
import pytest

from fedjax_sel.data.partition import Shards

BALANCED = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 60))


def classes_of(client, y):
    return [set(y[client == i].tolist()) for i in range(client.max() + 1)]


def test_one_shard_a_client_is_one_class_a_client():
    client = Shards(100, 1).assign(BALANCED, np.random.default_rng(0), None)
    assert all(len(found) == 1 for found in classes_of(client, BALANCED))
    assert set(Counter(client.tolist()).values()) == {6}


def test_two_shards_a_client_are_one_or_two_classes():
    client = Shards(100, 2).assign(BALANCED, np.random.default_rng(0), None)
    assert {len(found) for found in classes_of(client, BALANCED)} == {1, 2}


def test_two_shards_are_as_often_of_one_class_as_dealing_without_replacement_makes_them():
    # 200 shards, 20 a class: the second shard is of the first one's class with probability 19 / 199.
    draws = (Shards(100, 2).assign(BALANCED, np.random.default_rng(seed), None) for seed in range(100))
    same = [len(found) == 1 for client in draws for found in classes_of(client, BALANCED)]
    assert np.mean(same) == pytest.approx(19 / 199, abs=0.012)


@pytest.mark.parametrize(("rows", "clients", "each"), [(103, 10, 1), (103, 10, 3), (7, 3, 2), (61, 5, 12)])
def test_rows_that_do_not_divide_evenly_are_spread_and_none_is_lost(rows, clients, each):
    client = Shards(clients, each).assign(np.arange(rows) % 4, np.random.default_rng(1), None)
    sizes = Counter(client.tolist())
    assert sum(sizes.values()) == rows
    assert max(sizes.values()) - min(sizes.values()) <= each  # each of a client's shards may have one more


def test_rows_of_one_label_are_sorted_at_random():
    y = np.zeros(40, int)
    one, two = (Shards(2, 1).assign(y, np.random.default_rng(seed), None) for seed in (0, 1))
    assert len(set(map(tuple, (one, 1 - one, two, 1 - two)))) == 4


def test_more_shards_than_rows_are_refused():
    with pytest.raises(ValueError, match="5 clients with 3 shards each need 15 shards, but there are only 14 examples"):
        Shards(5, 3).assign(np.zeros(14, int), np.random.default_rng(0), None)
