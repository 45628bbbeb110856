"""Data of one's own: arrays of clients, tables, items, the library `datasets`, partitioners of Flower."""

import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fedjax_sel as fs
from fedjax_sel.config import build, resolve
from fedjax_sel.data.own import from_arrays, from_frame, from_items
from fedjax_sel.models.logistic import LogisticRegression

datasets = pytest.importorskip("datasets")


def clients(sizes=(7, 4, 9), seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(i, 1, (n, 3)).astype(np.float32), rng.integers(0, 2, n)) for i, n in enumerate(sizes)]


def examples_of(data, i):
    """A client's examples, as a set of rows."""
    places = np.asarray(data.order)[data.offset[i] : data.offset[i] + data.num_examples[i]]
    return {tuple(row) for row in np.asarray(data.x)[places]}


def test_every_client_has_its_own_arrays():
    given = clients()
    drawn = fs.Federation.from_arrays(given, test=(np.zeros((2, 3), np.float32), np.array([0, 1]))).draw(5)
    np.testing.assert_array_equal(drawn.num_examples, [7, 4, 9])
    for i, (x, _) in enumerate(given):
        assert examples_of(drawn, i) == {tuple(row) for row in x}
    labels = {tuple(row): label for x, y in given for row, label in zip(x, y, strict=True)}
    assert all(labels[tuple(row)] == label for row, label in zip(np.asarray(drawn.x), np.asarray(drawn.y), strict=True))


def test_names_of_clients_are_in_order_and_a_share_is_set_apart():
    given = dict(zip(["c", "a", "b"], clients((20, 30, 50)), strict=True))
    made = from_arrays(given, test=0.2)
    assert len(made.test_y) == 20
    assert made.owner.max() == 2
    whole = from_arrays(given)
    np.testing.assert_array_equal(np.bincount(whole.owner), [30, 50, 20])


def test_labels_that_are_texts_are_numbered_over_all_clients_together():
    rows = np.arange(8.0).reshape(4, 2)
    clients = [(rows[:2], ["dog", "cat"]), (rows[2:], np.array(["fox", "dog"]))]
    made = fs.Federation.from_arrays(clients, test=(rows[:1], ["fox"])).source
    assert (made.labels, made.y.tolist(), made.test_y.tolist()) == (("cat", "dog", "fox"), [1, 0, 2, 1], [2])
    with pytest.raises(ValueError, match="own: the label 'cow' is in the test or validation examples only"):
        fs.Federation.from_arrays(clients, test=(rows[:1], ["cow"]))


def test_a_partition_of_ones_own_cannot_change_labels_or_owners():
    class Merges:
        clients = 2

        def assign(self, y, rng, owner):
            y[y == 2] = 1
            return y % 2

    iris = fs.load("iris")
    with pytest.raises(ValueError, match="read-only"):
        fs.Federation(iris, Merges()).draw(0)
    assert set(iris.y) == {0, 1, 2}


def test_clients_whose_examples_are_all_set_apart_are_named():
    few = [(np.full((1, 2), i), np.zeros(1, int)) for i in range(4)]
    many = (np.full((20, 2), 9.0), np.arange(20) % 2)
    with pytest.warns(
        UserWarning, match=r"own: \d of 5 owners \([0-3](, [0-3])*\) have all their examples in the test"
    ):
        data = from_arrays([*few, many], test=0.3)
    assert data.owner.max() < 4


def test_a_run_on_ones_own_arrays():
    federation = fs.Federation.from_arrays(clients((40, 30, 50)), test=0.25)
    task = fs.Task.on(LogisticRegression(classes=2), federation.source)
    history = fs.simulate(fs.Experiment(task, cohort_size=2, rounds=3), federation, seeds=2)
    assert history["accuracy"].shape == (2, 3)
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "own: there are no clients"),
        ([(np.zeros((2, 3)), np.zeros(3, int))], "client 0 has 2 examples and 3 labels"),
        ([(np.zeros((0, 3)), np.zeros(0, int))], "client 0 has 0 examples and 0 labels"),
        ([np.zeros((2, 3))], "client 0 is a ndarray; it must be"),
        (
            [(np.zeros((2, 3)), [0, 1]), (np.zeros((2, 4)), [0, 1])],
            r"client 1 have shape \(4,\), those of client 0 \(3,\)",
        ),
        ([(np.zeros((2, 3)), [0.5, 1])], "own: training labels are float64, not integers"),
        (
            [(np.zeros((2, 3), np.uint8), [0, 1]), (np.zeros((2, 3)), [0, 1])],
            "client 1 are float64, those of client 0 uint8; examples must be alike",
        ),
        ([(np.ma.masked_equal(np.eye(2), 1), [0, 1])], "examples of client 0 are masked in places"),
        ([(np.eye(2), np.ma.masked_equal([0, 9], 9))], "labels of client 0 are masked in places"),
        ([(np.full((2, 3), np.nan), [0, 1])], "own: training: 2 of 2 examples hold NaN"),
    ],
    ids=str,
)
def test_arrays_that_are_no_clients_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        from_arrays(given)


FRAME = pd.DataFrame(
    {
        "age": [3, 4, 9, 7, 1, 2],
        "tall": [True, False, True, True, False, False],
        "name": list("uvwxyz"),
        "sick": ["no", "yes", "no", "no", "yes", "yes"],
        "ward": ["b", "a", "b", "c", "a", "a"],
    }
)


def test_a_table_with_a_column_of_clients():
    made = from_frame(FRAME, label="sick", client="ward", features=["age", "tall"])
    np.testing.assert_array_equal(made.x, np.array([[3, 1], [4, 0], [9, 1], [7, 1], [1, 0], [2, 0]], np.float32))
    np.testing.assert_array_equal(made.y, [0, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(made.owner, [1, 0, 1, 2, 0, 0])
    federation = fs.Federation.from_frame(FRAME.drop(columns="name"), client="ward", label="sick", test=FRAME[:2])
    drawn = federation.draw(0)
    np.testing.assert_array_equal(drawn.num_examples, [3, 2, 1])
    np.testing.assert_array_equal(drawn.test_y, [0, 1])
    assert made.features == ("age", "tall")
    assert (made.owners, made.labels) == (("a", "b", "c"), ("no", "yes"))
    assert from_frame(FRAME, label="age", features=["tall"], targets="continuous").labels is None
    named = from_arrays({"north": (np.eye(3), [0, 1, 0]), "east": (np.eye(3), [1, 1, 0])})
    assert (named.owners, named.owner.tolist()) == (("east", "north"), [0, 0, 0, 1, 1, 1])
    assert from_arrays([(np.eye(3), [0, 1, 0])] * 2).owners == (0, 1)


def test_categories_without_rows_are_said_not_to_be_clients():
    ward = pd.Categorical(FRAME["ward"], categories=list("abcdefgh"))
    with pytest.warns(UserWarning, match=r"5 of 8 categories of column 'ward' have no rows \(d, e, f, ...\)"):
        made = from_frame(FRAME.assign(ward=ward), label="sick", client="ward", features=["age"])
    np.testing.assert_array_equal(made.owner, [1, 0, 1, 2, 0, 0])
    from_frame(FRAME.assign(ward=ward.remove_unused_categories()), label="sick", client="ward", features=["age"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"label": "sik"}, "unknown column of table: 'sik'; did you mean 'sick'"),
        ({"label": "sick", "client": "war"}, "unknown column of table: 'war'; did you mean 'ward'"),
        ({"label": "sick", "client": "ward"}, "column 'name' holds .*, not numbers; encode it"),
        (
            {"label": "sick", "features": ["age"], "test": FRAME.assign(sick="maybe")},
            "the label 'maybe' is in the test",
        ),
        (
            {"label": "sick", "features": ["age"], "test": FRAME.assign(sick=["no", *[None] * 5])},
            "table: test: column 'sick' is empty in 5 rows, first in row 1",
        ),
    ],
    ids=str,
)
def test_tables_that_cannot_be_read_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        from_frame(FRAME, **given)


@pytest.mark.parametrize("ward", [["a", None] * 3, [1.0, np.nan] * 3], ids=["text", "number"])
def test_a_row_without_a_client_is_no_client_of_its_own(ward):
    with pytest.raises(ValueError, match=r"^table: column 'ward' is empty in 3 rows, first in row 1; leave them out"):
        from_frame(FRAME.assign(ward=ward), label="sick", client="ward", features=["age"])
    with pytest.raises(ValueError, match="owner 1 is NaN; every example needs an owner"):
        fs.dataset("d", np.zeros((6, 1)), np.arange(6) % 2, owner=np.array([1.0, np.nan] * 3))


class Torch:
    """A dataset as PyTorch has them."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def test_anything_with_a_length_and_items():
    x, y = np.arange(24, dtype=np.uint8).reshape(6, 2, 2), np.array([0, 1, 2, 0, 1, 2])
    made = from_items(Torch(x, y), test=Torch(x[:2], y[:2]))
    np.testing.assert_array_equal(made.x[..., 0], x)
    np.testing.assert_array_equal(made.test_y, [0, 1])
    with pytest.raises(ValueError, match="item 0 is a int; it must be"):
        from_items([1, 2])
    assert len(from_items(Torch(x, y), test=0).y) == 6
    with pytest.raises(ValueError, match=r"items: item 1 has the label 1\.7; labels must be whole numbers"):
        from_items([(np.zeros(2), 1.0), (np.zeros(2), 1.7)])
    with pytest.raises(ValueError, match=r"item 1 has shape \(3,\), item 0 has \(2,\)"):
        from_items([(np.zeros(2), 0), (np.zeros(3), 1)])


def test_lists_of_places():
    y = np.zeros(5, int)
    assign = fs.partition.Indices([[4, 0], np.array([2]), []]).assign
    np.testing.assert_array_equal(assign(y, None), [0, -1, 1, -1, 0])
    for places, says in [
        ([[0, 5]], "client 0 has place 5, but places are 0 to 4"),
        ([[-1]], "client 0 has place -1"),
        ([[0, 1], [1]], r"another client's \(place 1\)"),
        ([[2, 2]], "an example twice"),
        ([[0.5]], "float64 of shape"),
    ]:
        with pytest.raises(ValueError, match=says):
            fs.partition.Indices(places).assign(y, None)


def test_a_function_of_the_labels_is_a_partition(blobs):
    partition = fs.partition.Function(lambda y, rng: y, clients=3)
    drawn = fs.Federation(blobs, partition).draw(0)
    for i in range(3):
        places = np.asarray(drawn.order)[drawn.offset[i] : drawn.offset[i] + drawn.num_examples[i]]
        assert set(np.asarray(drawn.y)[places].tolist()) == {i}
    with pytest.raises(ValueError, match=r"returned float64 of shape \(\)"):
        fs.Federation(blobs, fs.partition.Function(lambda y, rng: 0.5)).draw(0)


class ByLabel:
    """A partitioner with the interface of `flwr-datasets`: label i belongs to partition i."""

    num_partitions = 3

    def __init__(self, fail=False):
        self._dataset, self.fail = None, fail

    @property
    def dataset(self):
        return self._dataset

    @dataset.setter
    def dataset(self, value):
        if self._dataset is not None:
            raise Exception("The dataset should be assigned only once")
        self._dataset = value

    def load_partition(self, i):
        if self.fail:
            raise ValueError("no such luck")
        return self._dataset.filter(lambda row: row["label"] == i)


def test_a_partitioner_of_flower(blobs):
    partition = fs.partition.Flower(ByLabel())
    first, again = (fs.Federation(blobs, partition).draw(seed) for seed in (0, 1))
    np.testing.assert_array_equal(first.num_examples, np.bincount(blobs.y))
    np.testing.assert_array_equal(first.num_examples, again.num_examples)
    with pytest.raises(ValueError, match="ByLabel: ValueError: no such luck"):
        fs.Federation(blobs, fs.partition.Flower(ByLabel(fail=True))).draw(0)


def save(folder, columns, features=None, test=False):
    table = datasets.Dataset.from_dict(columns, features=features)
    (datasets.DatasetDict(train=table, test=table.select([0, 1])) if test else table).save_to_disk(str(folder))


def test_a_folder_of_the_library_datasets(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    y = np.arange(30) % 3
    features = datasets.Features(
        {
            "pixels": datasets.Array2D((2, 2), "float32"),
            "label": datasets.ClassLabel(names=["a", "b", "c", "d"]),
            "writer_id": datasets.Value("string"),
        }
    )
    columns = {"pixels": x.reshape(30, 2, 2), "label": y, "writer_id": [f"w{i % 5}" for i in range(30)]}
    save(tmp_path / "own", columns, features, test=True)
    made = fs.load(f"hf:{tmp_path / 'own'}")
    np.testing.assert_allclose(made.x.reshape(30, 4), x)
    np.testing.assert_array_equal(made.y, y)
    np.testing.assert_array_equal(made.owner, np.arange(30) % 5)
    assert (made.classes, len(made.test_y)) == (4, 2)
    drawn = fs.load(f"hf:{tmp_path / 'own'}", test=0.2, test_from="training")
    assert (len(drawn.y), len(drawn.test_y)) == (24, 6)
    run = build(
        resolve({"data": {"name": f"hf:{tmp_path / 'own'}"}, "partition": "natural", "cohort_size": 2, "rounds": 1})
    )
    assert run.data.draw(0).num_clients == 5


def test_the_index_of_a_table_is_no_example_and_a_second_label_is_refused(tmp_path):
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 0, 1]}, index=[7, 5, 6, 4])
    datasets.Dataset.from_pandas(table).save_to_disk(str(tmp_path / "index"))
    np.testing.assert_array_equal(fs.load(f"hf:{tmp_path / 'index'}", test=0.0).x, [[1], [2], [3], [4]])
    for other in ("y", "speaker"):
        columns = {"a": [1.0, 2.0], "label": [0, 1], "client": [0, 1], other: [1.0, 0.0]}
        save(tmp_path / other, columns)
        with pytest.raises(
            ValueError, match=rf"{other} would be one of the numbers .* label has the labels and client"
        ):
            fs.load(f"hf:{tmp_path / other}")


def test_numbers_to_be_learnt_and_splits_that_cannot_be_used(tmp_path):
    save(tmp_path / "numbers", {"a": [1.0, 2.0, 3.0, 4.0], "target": [0.5, -3.5, 1.0, 2.0]})
    made = fs.load(f"hf:{tmp_path / 'numbers'}", test=0.0, targets="continuous")
    np.testing.assert_array_equal(made.y, np.float32([0.5, -3.5, 1.0, 2.0]))
    assert (made.targets, made.classes) == ("continuous", 1)
    train, test = (
        datasets.Dataset.from_dict({"a": [1.0, 2.0], "label": [0, 1]}),
        datasets.Dataset.from_dict({"label": [0]}),
    )
    datasets.DatasetDict(train=train, test=test).save_to_disk(str(tmp_path / "lacking"))
    with pytest.raises(ValueError, match="the split 'test' has no column 'a', which the split 'train' has"):
        fs.load(f"hf:{tmp_path / 'lacking'}")
    classes = [datasets.ClassLabel(names=names) for names in (["cat", "dog"], ["dog", "cat"])]
    train, other = (
        datasets.Dataset.from_dict(
            {"a": [1.0, 2.0], "label": [0, 1]},
            features=datasets.Features({"a": datasets.Value("float32"), "label": label}),
        )
        for label in classes
    )
    datasets.DatasetDict(train=train, test=other).save_to_disk(str(tmp_path / "swapped"))
    datasets.DatasetDict(train=train, test=train).save_to_disk(str(tmp_path / "named"))
    assert fs.load(f"hf:{tmp_path / 'named'}").labels == ("cat", "dog")
    with pytest.raises(
        ValueError, match=r"the classes of 'label' are \['cat', 'dog'\] in the split 'train', but \['dog'"
    ):
        fs.load(f"hf:{tmp_path / 'swapped'}")
    datasets.DatasetDict(train=train, test=train.select([])).save_to_disk(str(tmp_path / "empty"))
    with pytest.raises(ValueError, match=r"has a split no examples\?|the split 'test' has no examples"):
        fs.load(f"hf:{tmp_path / 'empty'}")


def test_labels_that_are_texts_are_numbered_and_owners_are_those_of_labelled_rows(tmp_path):
    save(tmp_path / "texts", {"a": [1.0, 2.0, 3.0, 4.0], "label": ["no", "yes", "no", "maybe"]}, test=True)
    made = fs.load(f"hf:{tmp_path / 'texts'}")
    np.testing.assert_array_equal(made.y, [1, 2, 1, 0])
    np.testing.assert_array_equal(made.test_y, [1, 2])
    assert made.labels == ("maybe", "no", "yes")
    columns = {"a": [1.0, 2.0, 3.0, 4.0], "label": [0, -1, 1, 0], "writer_id": ["v", "u", "u", "v"]}
    save(tmp_path / "partly", columns)
    made = fs.load(f"hf:{tmp_path / 'partly'}", test=0.0)
    np.testing.assert_array_equal(made.y, [0, 1, 0])
    np.testing.assert_array_equal(made.owner, [1, 0, 1])


def test_columns_of_numbers_and_images(tmp_path):
    save(tmp_path / "table", {"a": [1.0, 2.0, 3.0, 4.0], "b": [0, 1, 0, 1], "target": [0, 1, 1, 0]})
    np.testing.assert_array_equal(fs.load(f"hf:{tmp_path / 'table'}", test=0.0).x, [[1, 0], [2, 1], [3, 0], [4, 1]])
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=2)})
    save(tmp_path / "images", {"image": [image, 255 - image], "label": [0, 1]}, features)
    made = fs.load(f"hf:{tmp_path / 'images'}", test=0.0)
    np.testing.assert_array_equal(made.x, [image, 255 - image])
    assert made.x.dtype == np.uint8


def test_images_whose_numbers_are_places_in_a_palette_are_refused(tmp_path):
    colours = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    images = [Image.fromarray(one) for one in colours]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=2)})
    save(tmp_path / "palette", {"image": [images[0].convert("P"), images[1].convert("P")], "label": [0, 1]}, features)
    with pytest.raises(ValueError, match=r"image 0 of 'image' has mode 'P', .* cast_column\('image', datasets.Image"):
        fs.load(f"hf:{tmp_path / 'palette'}")
    save(tmp_path / "grey", {"image": [one.convert("L") for one in images], "label": [0, 1]}, features)
    assert fs.load(f"hf:{tmp_path / 'grey'}", test=0.0).x.shape == (2, 8, 8, 1)


@pytest.mark.parametrize("first", [1_700_000_000, 1_700_000_000_000])
def test_whole_numbers_that_32_bit_floats_do_not_tell_apart_are_refused(tmp_path, first):
    when = first + np.arange(4) % 2
    with pytest.raises(ValueError, match=r"table: column 'when' \(from .* loses digits in which it varies"):
        from_frame(POINTS.assign(when=when), label="y", client="who")
    with pytest.raises(ValueError, match="table: test: column 'when'"):
        from_frame(POINTS.assign(when=[0, 1, 0, 1]), label="y", client="who", test=POINTS.assign(when=when))
    save(tmp_path / "times", {"a": [1.0, 2.0, 3.0, 4.0], "when": when.tolist(), "label": [0, 1, 1, 0]})
    with pytest.raises(ValueError, match="times: column 'when'"):
        fs.load(f"hf:{tmp_path / 'times'}")
    constant = from_frame(POINTS.assign(when=np.full(4, first)), label="y", client="who")
    np.testing.assert_allclose(constant.x[:, 2], first)


def test_labels_of_clients_are_all_texts_or_all_numbers():
    x = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"own: labels of client 1 are <U1, those of client 0 int64; all are texts"):
        fs.Federation.from_arrays([(x, [0, 1]), (x, ["0", "a"])])
    with pytest.raises(ValueError, match=r"labels of client 0 are of several types \(int, str\)"):
        fs.Federation.from_arrays([(x, np.array([0, "a"], object))])
    of_objects = fs.Federation.from_arrays([(x, np.array(["b", "a"], object)), (x, ["b", "c"])], test=(x, [b"c", b"a"]))
    assert of_objects.source.labels == ("a", "b", "c")
    np.testing.assert_array_equal(of_objects.source.test_y, [2, 0])


def test_folders_without_labels_or_examples_are_refused(tmp_path):
    save(tmp_path / "bare", {"a": [1.0, 2.0]})
    with pytest.raises(ValueError, match="has no column of labels"):
        fs.load(f"hf:{tmp_path / 'bare'}")
    save(tmp_path / "text", {"text": ["a", "b"], "label": [0, 1]})
    with pytest.raises(ValueError, match=r"has text \(Value\) beside its labels"):
        fs.load(f"hf:{tmp_path / 'text'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"hf:.*empty is a folder that save_to_disk did not write"):
        fs.load(f"hf:{tmp_path / 'empty'}")
    with pytest.raises(FileNotFoundError, match=r"hf:.*none is neither a folder here nor to be had from the hub"):
        fs.load(f"hf:{tmp_path / 'none'}")


POINTS = pd.DataFrame({"x1": [1.0, 2, 3, 4], "x2": [0.0, 1, 0, 1], "y": [0, 1, 0, 1], "who": ["a", "a", "b", "b"]})


@pytest.mark.parametrize(
    ("frame", "given", "says"),
    [
        ("d.csv", {}, "frame is 'd.csv'; it must be a DataFrame, as pandas.read_csv makes"),
        (POINTS, {"test": "d.csv"}, "test is 'd.csv'; it must be a DataFrame"),
        (POINTS[:0], {}, "frame has no rows"),
        (pd.concat([POINTS, POINTS[["x1"]]], axis=1), {}, "frame has two columns 'x1'"),
        (POINTS, {"test": POINTS[["x1", "y"]]}, "test: there is no column 'x2', which the other table has"),
        (POINTS, {"features": "x1"}, "features is 'x1'; features is a list of columns"),
        (POINTS, {"features": ["x1", "y"]}, "column 'y' is the label or the client, so it cannot be a feature"),
        (POINTS, {"features": ["x1", "who"]}, "column 'who' is the label or the client"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_clear_error(frame, given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        from_frame(frame, label="y", client="who", **given)


def test_test_examples_need_no_owner():
    data = from_frame(POINTS, label="y", client="who", test=POINTS[["x1", "x2", "y"]])
    assert len(data.test_y) == 4


def test_texts_that_are_no_examples_and_labels_that_are_no_numbers_from_0_are_refused(tmp_path):
    classes = datasets.ClassLabel(names=["a", "b"])
    columns = {"sentence": ["x", "y"], "label": [0, 1], "idx": [0, 1]}
    features = {"sentence": datasets.Value("string"), "label": classes, "idx": datasets.Value("int32")}
    save(tmp_path / "glue", columns, datasets.Features(features))
    with pytest.raises(ValueError, match=r"has sentence \(Value\), idx \(Value\) .*, or numbers alone"):
        fs.load(f"hf:{tmp_path / 'glue'}")
    save(tmp_path / "signs", {"a": [1.0, 2.0], "label": [-2, 2]})
    with pytest.raises(ValueError, match="a label is -2; labels must be numbers from 0, or -1"):
        fs.load(f"hf:{tmp_path / 'signs'}")
    save(tmp_path / "hidden", {"a": [1.0, 2.0], "label": [-1, -1]})
    with pytest.raises(ValueError, match=r"2 examples without any label .* set test_from=training"):
        fs.load(f"hf:{tmp_path / 'hidden'}")


def test_owners_without_an_example_among_those_asked_for_are_told(tmp_path):
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(20), 4)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(80, 2)), y=rng.integers(0, 2, 80), owner=owner)
    with pytest.warns(UserWarning, match=r"owners .* left out by num_examples.* ask for more"):
        fs.load(f"npz:{tmp_path / 'mine.npz'}", num_examples=20, test=0.0)


def test_of_two_columns_of_classes_the_one_that_names_owners_is_not_learnt(tmp_path):
    features = datasets.Features(
        {"f": datasets.Value("float32"), "label": datasets.Value("int64"), "speaker_id": datasets.ClassLabel(5)}
    )
    columns = {"f": [0.0, 1.0, 2.0, 3.0], "label": [1, 0, 1, 0], "speaker_id": [4, 3, 2, 4]}
    save(tmp_path / "spoken", columns, features)
    made = fs.load(f"hf:{tmp_path / 'spoken'}", test=0.0)
    np.testing.assert_array_equal(made.y, [1, 0, 1, 0])
    np.testing.assert_array_equal(made.owner, [2, 1, 0, 2])
    assert made.x.shape == (4, 1)


def test_lists_of_small_whole_numbers_are_read_as_token_ids(tmp_path):
    features = datasets.Features(
        {"ids": datasets.Sequence(datasets.Value("uint8"), 3), "label": datasets.Value("int64")}
    )
    save(tmp_path / "tokens", {"ids": [[1, 2, 3], [4, 5, 255]], "label": [0, 1]}, features)
    made = fs.load(f"hf:{tmp_path / 'tokens'}", test=0.0)
    np.testing.assert_array_equal(made.x, np.array([[1, 2, 3], [4, 5, 255]], np.int32), strict=True)


def test_a_column_of_the_library_datasets_that_loses_its_digits_is_refused(tmp_path):
    times = [1.7e12 + 10_000 * i for i in range(8)]
    save(tmp_path / "times", {"t": times, "a": [1.0, 2.0] * 4, "label": [0, 1] * 4})
    with pytest.raises(ValueError, match=r"times: training examples: column 0 \(from 1.7e\+12 .* loses digits"):
        fs.load(f"hf:{tmp_path / 'times'}", test=0.0)


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        (
            [(np.eye(3), np.ones(3)), (np.eye(3), np.ones((3, 2)))],
            r"client 1 have shape \(2,\), those of client 0",
        ),
        ([(np.eye(3), 1)], "labels of client 0 are 1; they must be arrays"),
        ([(2.0, [1])], "examples of client 0 are 2.0; they must be arrays"),
    ],
)
def test_targets_that_are_not_alike_or_no_arrays_name_the_client(clients, says):
    with pytest.raises(ValueError, match=says):
        from_arrays(clients, targets="continuous")


def test_clients_may_have_names_of_several_types():
    made = from_arrays({"b": (np.ones((1, 2)), [0]), 3: (np.zeros((2, 2)), [1, 0])})
    np.testing.assert_array_equal(made.owner, [0, 0, 1])  # "3" comes before "b"


@pytest.mark.parametrize(
    ("changes", "given", "says"),
    [
        ({"sick": ["no", 1, "no", "no", 1, "no"]}, {}, r"column 'sick' holds values of several types \(int, str\)"),
        ({"ward": [1, "a", 1, 1, "a", 1]}, {"client": "ward"}, "column 'ward' holds values of several types"),
        ({"age": np.arange(6) * 1j}, {}, "column 'age' holds complex128, not numbers"),
        ({}, {"test": FRAME.assign(age="old")}, "table: test: column 'age' holds .*, not numbers"),
    ],
)
def test_columns_of_several_types_and_columns_that_are_no_numbers_in_one_table_are_named(changes, given, says):
    with pytest.raises(ValueError, match=says):
        from_frame(FRAME.assign(**changes), label="sick", features=["age", "tall"], **given)


def test_a_label_that_is_different_in_most_rows_is_told_of_whatever_it_is():
    frame = pd.DataFrame({"a": np.arange(30.0), "day": pd.date_range("2020-01-01", periods=30)})
    with pytest.warns(UserWarning, match="'day' holds 30 different values in 30 rows, each of which is a class$"):
        from_frame(frame, label="day", test=0.0)


def test_classes_without_examples_can_be_given_with_every_source():
    with pytest.warns(UserWarning, match="1 of 3 classes have no example"):
        assert from_frame(FRAME.assign(sick=[0, 2, 0, 2, 2, 0]), label="sick", features=["age"]).classes == 3
    whole = FRAME.assign(sick=[0, 2, 0, 2, 2, 0])
    assert from_frame(whole, label="sick", features=["age"], classes=4).classes == 4
    federation = fs.Federation.from_frame(whole, label="sick", client="ward", features=["age"], classes=5, test=None)
    assert federation.source.classes == 5
    assert from_items([(np.zeros(2), 0), (np.ones(2), 2)], classes=3).classes == 3


def test_clients_may_have_labels_of_several_types_of_integers():
    x = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    named = [(x, (np.arange(10) % 2).astype(kind)) for kind in (np.int64, np.uint64, np.uint8)]
    found = fs.Federation.from_arrays(named, test=0.2)
    assert found.draw(0).classes == 2
