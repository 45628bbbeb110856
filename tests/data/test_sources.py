import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits

from fedjax_sel.data import partition
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.sources import available, load


@pytest.mark.parametrize("name", sorted(set(available()) - {"diabetes"}))
def test_a_built_in_dataset_loads_with_a_fifth_for_testing(name):
    data = load(name)
    rows = len(data.y) + len(data.test_y)
    assert len(data.test_y) == round(0.2 * rows)
    assert set(data.y) == set(range(data.classes))
    assert data.x.dtype == np.float32


def test_diabetes_has_continuous_targets_and_a_fifth_for_testing():
    data, whole = load("diabetes"), load_diabetes()
    assert data.targets == "continuous"
    assert (len(data.y), len(data.test_y)) == (354, 88)
    targets = np.concatenate([data.y, data.test_y])
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(np.sort(targets.ravel()), np.sort(whole.target).astype(np.float32))


def test_rows_keep_the_values_that_scikit_learn_has():
    data = load("digits", test=0.0)
    np.testing.assert_array_equal(data.x, load_digits().data.astype(np.float32))
    assert data.x.max() == 16


def test_the_seed_draws_the_test_rows():
    assert not np.array_equal(load("iris", seed=0).test_x, load("iris", seed=1).test_x)


@pytest.mark.parametrize(("name", "near"), [("irs", "iris"), ("Digits", "digits"), ("breastcancer", "breast_cancer")])
def test_a_misspelt_name_gets_the_nearest_valid_one(name, near):
    with pytest.raises(ValueError, match=f"unknown dataset '{name}'; known: .*did you mean '{near}'"):
        load(name)


@pytest.mark.parametrize("name", ["", "tfds:", "npz:", "csv:x"])
def test_an_unknown_kind_of_source_gets_the_list_of_kinds(name):
    with pytest.raises(ValueError, match=r"npz:PATH .*tfds:NAME"):
        load(name)


@pytest.mark.parametrize("count", [3, 40, 97])
def test_fewer_training_rows_are_taken_in_proportion_to_the_classes(count):
    whole, few = load("wine", validation=0.1), load("wine", validation=0.1, num_examples=count)
    share = np.bincount(whole.y) * count / len(whole.y)
    assert len(few.y) == count
    assert (np.abs(np.bincount(few.y, minlength=3) - share) < 1).all()
    stored = {(*row, y) for row, y in zip(whole.x.tolist(), whole.y.tolist(), strict=True)}
    assert {(*row, y) for row, y in zip(few.x.tolist(), few.y.tolist(), strict=True)} <= stored
    for name in ("test_x", "test_y", "validation_x", "validation_y"):
        np.testing.assert_array_equal(getattr(few, name), getattr(whole, name))


def test_fewer_validation_examples_leave_the_others_where_they_were():
    whole, few = load("wine", validation=0.3), load("wine", validation=0.3, num_validation_examples=10)
    assert (few.validation_x.shape, few.validation_y.shape) == ((10, 13), (10,))
    stored = {(*row, y) for row, y in zip(whole.validation_x.tolist(), whole.validation_y.tolist(), strict=True)}
    assert {(*row, y) for row, y in zip(few.validation_x.tolist(), few.validation_y.tolist(), strict=True)} < stored
    for name in ("x", "y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(few, name), getattr(whole, name))
    with pytest.raises(ValueError, match="num_validation_examples is 10; there are 0 validation examples"):
        load("wine", num_validation_examples=10)


def test_which_rows_are_taken_is_the_seeds_doing(tmp_path):
    path = tmp_path / "numbers.npz"
    np.savez(path, x=np.arange(90.0)[:, None], y=np.arange(90) % 3)
    one, again, other = (load(f"npz:{path}", num_examples=30, test=0.0, seed=seed).x for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert len(np.unique(one)) == 30
    np.testing.assert_array_equal(load(f"npz:{path}", num_examples=72).x, load(f"npz:{path}").x)


def test_owners_whose_rows_are_not_taken_are_no_clients(tmp_path):
    path, owner = tmp_path / "owned.npz", np.arange(60) // 3 * 10
    np.savez(path, x=owner[:, None] * 1.0, y=np.arange(60) % 2, owner=owner)
    with pytest.warns(UserWarning, match="of 20 owners .* have all their examples left out by num_examples"):
        few = load(f"npz:{path}", num_examples=12, test=0.0)
    kept = np.unique(few.x[:, 0])
    assert len(kept) < 20, "all of some owner's rows are gone"
    assert few.owner.dtype == np.int32
    np.testing.assert_array_equal(kept[few.owner], few.x[:, 0])
    assert Federation(few, partition.Natural()).draw(0).num_clients == len(kept)
    assert few.owners == tuple(kept)


@pytest.mark.parametrize("count", [0, -1, 121, 2.0, True])
def test_rows_that_are_not_there_are_refused(count):
    with pytest.raises(
        ValueError, match=f"iris: num_examples is {count}; there are 120 training examples, and at least 1 is needed"
    ):
        load("iris", num_examples=count)
