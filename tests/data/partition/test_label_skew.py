import numpy as np
import pytest

from fedjax_sel.data.partition import LabelSkew, Unequal

Y = np.arange(1000) % 10


def assign(partition, y=Y, seed=0):
    return partition.assign(y, np.random.default_rng(seed))


def test_four_fifths_of_each_clients_examples_are_of_its_main_class():
    client = assign(LabelSkew(20, share=0.8))
    for i in range(20):
        mine = Y[client == i]
        assert len(mine) == 50
        assert (mine == i % 10).sum() == 40


def test_the_rest_comes_from_all_other_classes():
    client = assign(LabelSkew(20, share=0.8))
    others = np.array([np.bincount(Y[client == i], minlength=10) for i in range(20)])
    others[np.arange(20), np.arange(20) % 10] = 0
    assert others.sum() == 200
    assert (others.sum(0) == 20).all()  # each class has 20 examples left, and none stays behind


def test_a_main_class_that_is_too_small_is_divided_evenly():
    y = np.repeat([0, 1], [10, 90])
    client = assign(LabelSkew(4, share=1.0), y)
    assert [int((y[client == i] == 0).sum()) for i in (0, 2)] == [5, 5]
    assert (np.bincount(client[client >= 0]) == 25).all()


def test_a_share_beyond_all_is_refused():
    with pytest.raises(ValueError, match=r"share is 1.2; it is the main class's share"):
        assign(LabelSkew(20, share=1.2))


def test_sizes_follow_the_lognormal_law_and_labels_do_not():
    client = assign(Unequal(50, spread=1.0))
    weight = np.exp(np.random.default_rng(0).standard_normal(50))
    np.testing.assert_allclose(np.bincount(client), 1 + 950 * weight / weight.sum(), atol=1)
    largest = Y[client == np.bincount(client).argmax()]
    assert np.bincount(largest, minlength=10).min() > 0


@pytest.mark.parametrize(
    ("partition", "told"),
    [(Unequal(10, spread=-1.0), "spread is -1.0"), (Unequal(600, min_examples=2), "600 clients with 2 examples each")],
)
def test_unequal_sizes_that_cannot_be_are_refused(partition, told):
    with pytest.raises(ValueError, match=told):
        assign(partition)
