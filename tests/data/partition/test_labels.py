"""Clients with a number of labels each, and groups of clients with labels of their own."""

import numpy as np
import pytest

from fedjax_sel.data.partition import LabelCount, LabelGroups


def table(client, y, clients):
    """Rows of each client by class."""
    count = np.zeros((clients, y.max() + 1), int)
    np.add.at(count, (client, y), 1)
    return count


@pytest.mark.parametrize(("clients", "labels"), [(100, 2), (30, 3), (10, 1), (12, 10)])
def test_every_client_has_its_number_of_labels_and_classes_are_divided_evenly(clients, labels):
    y = np.repeat(np.arange(10), 500)
    count = table(LabelCount(clients, labels).assign(y, np.random.default_rng(1)), y, clients)
    assert ((count > 0).sum(1) == labels).all()
    assert count.sum() == len(y)
    assert (count[np.arange(clients), np.arange(clients) % 10] > 0).all(), "client i has class i mod C"
    for column in count.T:
        shared = column[column > 0]
        assert shared.max() - shared.min() <= 1


def test_the_other_labels_are_drawn_evenly():
    y, owned = np.repeat(np.arange(5), 400), np.zeros(5)
    for seed in range(200):
        count = table(LabelCount(20, 2).assign(y, np.random.default_rng(seed)), y, 20)
        owned += (count[np.arange(20) % 5 == 0] > 0).sum(0)
    assert owned[0] == 200 * 4
    others = owned[1:] / owned[1:].sum()
    np.testing.assert_allclose(others, 0.25, atol=0.04)


def test_groups_are_those_of_the_ablation():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 120))
    law = LabelGroups(24, 2)
    client = law.assign(y, np.random.default_rng(2))
    group = law.groups(10)
    assert np.bincount(group).tolist() == [5, 5, 5, 5, 4]
    count = table(client, y, 24)
    for i in range(24):
        assert set(np.flatnonzero(count[i])) == {2 * group[i], 2 * group[i] + 1}
        assert count[i].sum() == (48 if group[i] < 4 else 60)


def test_a_last_group_may_have_fewer_labels():
    y = np.repeat(np.arange(5), 30)
    count = table(LabelGroups(6, 2).assign(y, np.random.default_rng(0)), y, 6)
    assert [tuple(np.flatnonzero(row)) for row in count] == [(0, 1), (0, 1), (2, 3), (2, 3), (4,), (4,)]


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (LabelCount(100, 11), "11 labels each, but there are 10 classes; labels is at most 10"),
        (LabelCount(9, 2), "clients at least 10, so that every class has an owner"),
        (LabelCount(60, 10), "a class of 50 examples was given to 60 clients"),
        (LabelGroups(4, 2), "make 5 groups, but there are only 4 clients"),
        (LabelGroups(0, 2), "clients is 0"),
        (LabelCount(10, 0), "labels is 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(law, message):
    with pytest.raises(ValueError, match=message):
        law.assign(np.repeat(np.arange(10), 50), np.random.default_rng(0))
