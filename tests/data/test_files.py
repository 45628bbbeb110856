from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.data.files import find_data_folder
from fedjax_sel.data.sources import load

X, Y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2


def saved(folder, name="mine.npz", **arrays):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def test_x_and_y_are_split_by_the_given_shares(tmp_path):
    data = load(f"npz:{saved(tmp_path, x=X, y=Y)}", test=0.2, validation=0.25)
    assert (data.name, len(data.y), len(data.test_y), len(data.validation_y)) == ("mine", 12, 4, 4)


def test_a_files_own_test_rows_are_the_test_rows(tmp_path):
    path = saved(tmp_path, x_train=X, y_train=Y, x_test=X[:3] + 1, y_test=Y[:3], writer_names=np.array(["a"]))
    data = load(f"npz:{path}")
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.test_x, X[:3] + 1)


def test_test_examples_are_held_out_of_the_training_examples_where_that_is_asked_for(tmp_path):
    owner = np.repeat([9, 4], 10)
    path = saved(tmp_path, x_train=X, y_train=Y, x_test=X[:3] + 1000, y_test=Y[:3], owner_train=owner)
    data = load(f"npz:{path}", test=0.2, test_from="training")
    assert (len(data.y), len(data.test_y)) == (16, 4)
    np.testing.assert_array_equal(np.sort(np.concatenate([data.x, data.test_x]), 0), np.sort(X, 0))
    held = {tuple(x) for x in data.test_x.tolist()}
    assert data.owner.tolist() == [int(o == 9) for x, o in zip(X.tolist(), owner, strict=True) if tuple(x) not in held]


@pytest.mark.parametrize("name", ["digits", "file", "diabetes"])
def test_examples_to_tune_on_are_not_those_of_the_test(tmp_path, name):
    """Of data without test examples of its own, too, of which the test takes a share."""
    name = f"npz:{saved(tmp_path, x=X, y=Y)}" if name == "file" else name
    test, tune = load(name, test=0.2, seed=3), load(name, test=0.2, seed=3, test_from="training")
    rows = {
        part: {tuple(x) for x in getattr(data, of).tolist()}
        for part, data, of in (("test", test, "test_x"), ("tuned on", tune, "test_x"), ("trained on", tune, "x"))
    }
    assert not rows["test"] & (rows["tuned on"] | rows["trained on"])
    assert not rows["tuned on"] & rows["trained on"]
    assert len(tune.test_y) == pytest.approx(0.2 * len(test.y), abs=1.5)
    assert len(tune.y) + len(tune.test_y) == len(test.y)


def test_a_file_says_how_many_classes_there_are(tmp_path):
    labels = np.array([0, 99] * 10)
    with pytest.raises(
        ValueError, match=r"only 2 of these 100 classes .* classes=100 \(in an .npz file: num_classes\)"
    ):
        load(f"npz:{saved(tmp_path, x=X, y=labels)}")
    assert load(f"npz:{saved(tmp_path, x=X, y=labels, num_classes=np.array(101))}").classes == 101
    for count in (np.array(["a"]), np.array(9.0), np.array([9, 9])):
        with pytest.raises(ValueError, match=r"mine.npz: num_classes is array\(.*; it must be one integer"):
            load(f"npz:{saved(tmp_path, x=X, y=Y, num_classes=count)}")
    numbers = saved(tmp_path, x=X, y=Y + 0.5, num_classes=np.array(9))
    assert load(f"npz:{numbers}", targets="continuous").classes == 1
    with pytest.raises(ValueError, match=r"mine: labels must be in 0\.\.0 \(1 classes\), but there are also: 1"):
        load(f"npz:{saved(tmp_path, x=X, y=Y, num_classes=np.array(1))}")


def test_test_examples_come_from_nowhere_else(tmp_path):
    with pytest.raises(ValueError, match="test_from is 'test'; it must be 'training' or None"):
        load(f"npz:{saved(tmp_path, x=X, y=Y)}", test_from="test")


@pytest.mark.parametrize("column", ["owner", "owner_train"])
@pytest.mark.parametrize("suffix", ["", "_train"])
def test_the_owner_column_is_the_natural_owner(tmp_path, suffix, column):
    arrays = {f"x{suffix}": X, f"y{suffix}": Y, column: np.repeat([9, 4], 10)}
    owner = load(f"npz:{saved(tmp_path, **arrays)}", test=0.0).owner
    assert owner is not None
    assert owner.tolist() == [1] * 10 + [0] * 10


def test_a_file_without_the_needed_arrays_says_what_it_holds(tmp_path):
    with pytest.raises(ValueError, match=r"mine.npz holds the arrays images, y; needed are x, y, or x_train"):
        load(f"npz:{saved(tmp_path, images=X, y=Y)}")


def test_test_rows_without_test_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="only one of x_test and y_test"):
        load(f"npz:{saved(tmp_path, x_train=X, y_train=Y, x_test=X)}")
    with pytest.raises(ValueError, match="holds both x and x_train; give all examples"):
        load(f"npz:{saved(tmp_path, x=X, y=Y, x_train=X[3:], y_train=Y[3:], x_test=X[:3], y_test=Y[:3])}")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_a_half_written_file_is_one_clear_error(tmp_path, share):
    path = saved(tmp_path, x=X, y=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"mine.npz cannot be read .* must be written again"):
        load(f"npz:{path}")


def test_a_damaged_array_is_named(tmp_path):
    path = saved(tmp_path, x=X, y=Y)
    broken = bytearray(path.read_bytes())
    broken[200] ^= 0xFF  # within the values of x: only the checksum notices
    path.write_bytes(broken)
    with pytest.raises(ValueError, match=r"array 'x' of .*mine.npz cannot be read"):
        load(f"npz:{path}")


def test_pickled_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"array 'x' of .* without pickled objects"):
        load(f"npz:{saved(tmp_path, x=np.array([{}, []], object), y=Y)}")


def test_a_single_array_is_not_an_archive(tmp_path):
    np.save(tmp_path / "mine.npy", X)
    with pytest.raises(ValueError, match="it holds a single array"):
        load(f"npz:{tmp_path / 'mine.npy'}")


def test_a_text_is_not_an_archive(tmp_path):
    (tmp_path / "mine.npz").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"mine.npz cannot be read \(it is not an .npz archive\); an .npz archive"):
        load(f"npz:{tmp_path / 'mine.npz'}")


def test_a_missing_file_gets_the_nearest_one_beside_it(tmp_path):
    saved(tmp_path, x=X, y=Y)
    with pytest.raises(FileNotFoundError, match=r"no file .*mien.npz; did you mean .*mine.npz"):
        load(f"npz:{tmp_path / 'mien.npz'}")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The folder one is in, and that of the data."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TFDS_DATA_DIR", str(there))
    return here, there


def test_the_folder_of_the_data_is_the_given_one_then_the_environments_then_one_at_home(places, tmp_path, monkeypatch):
    assert find_data_folder(tmp_path / "given") == tmp_path / "given"
    assert find_data_folder() == places[1]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_data_folder("~/mine") == tmp_path / "mine"
    monkeypatch.delenv("TFDS_DATA_DIR")
    assert find_data_folder() == tmp_path / "tensorflow_datasets"


@pytest.mark.parametrize("name", ["mine.npz", "deeper/mine.npz"])
def test_a_relative_path_that_leads_nowhere_is_looked_for_in_the_folder_of_the_data(places, tmp_path, name):
    here, there = places
    saved(there, name, x=X, y=Y)
    np.testing.assert_array_equal(np.sort(load(f"npz:{name}", test=0.2).x[:, 0]) % 2, 0)
    saved(tmp_path / "given", name, x=X + 1, y=Y)
    np.testing.assert_array_equal(load(f"npz:{name}", data_dir=tmp_path / "given").x % 2, np.tile([1, 0], (16, 1)))
    saved(here, name, x=X[:10], y=Y[:10])
    assert len(load(f"npz:{name}", test=0.2).y) == 8, "one that leads somewhere is not looked for"


def test_an_absolute_path_is_not_looked_for_elsewhere(places):
    here, there = places
    saved(there, x=X, y=Y)
    with pytest.raises(FileNotFoundError) as error:
        load(f"npz:{here / 'mine.npz'}")
    assert str(there) not in str(error.value)


@pytest.mark.parametrize("where", [0, 1])
def test_a_file_in_neither_place_names_both_and_the_nearest_in_either(places, where):
    near = saved(places[where], x=X, y=Y)
    with pytest.raises(FileNotFoundError) as error:
        load("npz:mien.npz")
    shown = near.name if where == 0 else near
    assert str(error.value) == f"no file mien.npz or {places[1] / 'mien.npz'}; did you mean {shown}?"


def test_with_nothing_near_both_places_are_named(places):
    with pytest.raises(FileNotFoundError) as error:
        load(f"npz:{Path('no') / 'where.npz'}")
    assert str(error.value) == f"no file {Path('no') / 'where.npz'} or {places[1] / 'no' / 'where.npz'}"
