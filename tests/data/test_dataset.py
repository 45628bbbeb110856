"""Bad input is one clear error before anything compiles; good input is kept as it came."""

from collections import Counter

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from fedjax_sel.data import dataset as module
from fedjax_sel.data.dataset import dataset, normalisation
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import Task


def rows(n=12, width=3):
    return np.random.default_rng(0).normal(size=(n, width)), np.arange(n) % 3


def with_value(value, at):
    x, y = rows()
    x[at, 1] = value
    return x, y


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (*with_value(np.nan, [4, 7]), "2 of 12 examples hold NaN or infinity (the first is number 4)"),
        (*with_value(np.inf, [0]), "1 of 12 examples hold NaN or infinity (the first is number 0)"),
        (*with_value(1e300, [5]), "the first is number 5"),  # infinite as float32
        (rows()[0], rows(11)[1], "12 examples but 11 labels"),
        (rows()[0], rows()[1] - 1, "labels must be in 0..1 (2 classes), but there are also: -1"),
        (rows()[0], rows()[1] + 0.5, "labels are float64, not integers"),
        (rows()[0], np.array(list("abcabcabcabc")), "not integers; names or numbers of any kind become 0..C-1"),
        (rows()[0], np.eye(12, dtype=int), "one-hot labels become integers with y.argmax(1)"),
        (rows()[0], np.full(12, 2**40), "integers beyond 32 bits"),
        (np.zeros((0, 3)), np.zeros(0, int), "set is empty"),
        (np.zeros(12), rows()[1], "examples need at least one axis each"),
        (np.array([["a"]] * 12), rows()[1], "they must be numbers"),
        ([[1.0, 2.0], [1.0]], [0, 1], "all examples need the same shape"),
        (np.zeros((12, 3), complex), rows()[1], "examples are complex128; they must be numbers"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_the_reason(x, y, says):
    with pytest.raises(ValueError, match=r"^toy: ") as error:
        dataset("toy", x, y)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classes": 2}, "labels must be in 0..1 (2 classes), but there are also: 2"),
        ({"classes": 0}, "classes is 0; at least 1 is needed"),
        ({"owner": np.zeros(11)}, "12 training examples, but owner has shape (11,)"),
        ({"test": (np.zeros((2, 4)), np.zeros(2, int))}, "test examples have shape (4,), training examples (3,)"),
        ({"test": (np.zeros((2, 3), int), np.zeros(2, int))}, "test examples are int32, training examples float32"),
        ({"test": (np.zeros((2, 3)), np.zeros(3, int))}, "test: 2 examples but 3 labels"),
        ({"validation": (np.full((2, 3), np.nan), np.zeros(2, int))}, "validation: 2 of 2 examples hold NaN"),
        ({"test": (np.zeros((1, 3)), np.array([7])), "classes": 3}, "but there are also: 7"),
        ({"test": 1.0}, "toy: test is 1.0; it is (examples, labels) or a share of the examples in [0, 1)"),
        ({"validation": -0.1}, "toy: validation is -0.1"),
        ({"validation": "half"}, "toy: validation is 'half'"),
        ({"test": 0.01}, "which is 0 examples; each side needs at least one"),
        ({"test": 0.99}, "which is 12 examples; each side needs at least one"),
    ],
)
def test_what_does_not_fit_the_training_rows_is_refused_with_the_reason(options, says):
    with pytest.raises(ValueError, match=r"^toy: ") as error:
        dataset("toy", *rows(), **options)
    assert says in str(error.value)


def test_rows_keep_their_type_but_never_need_more_than_32_bits():
    kept = {np.uint8: np.uint8, np.int16: np.int16, np.float16: np.float16, np.float32: np.float32, bool: bool}
    for given, stored in {**kept, np.float64: np.float32, np.int64: np.int32, np.uint32: np.int32}.items():
        data = dataset("toy", np.ones((4, 2), given), np.arange(4))
        assert data.x.dtype == stored
        assert data.y.dtype == np.int32


def test_an_array_that_needs_no_change_is_not_copied():
    x, y = np.ones((4, 2), np.float32), np.arange(4, dtype=np.int32)
    data = dataset("toy", x, y)
    assert np.shares_memory(data.x, x)
    assert data.y is y


def test_a_grey_image_gets_its_one_channel():
    images = np.zeros((4, 5, 6), np.uint8)
    data = dataset("toy", images, np.arange(4), test=(images[:2], np.arange(2)))
    assert data.x.shape == (4, 5, 6, 1)
    assert data.test_x.shape == (2, 5, 6, 1)


def test_missing_test_and_validation_sets_are_zero_rows_of_the_right_kind():
    data = dataset("toy", np.zeros((4, 2, 2, 3), np.uint8), np.arange(4))
    for x, y in [(data.test_x, data.test_y), (data.validation_x, data.validation_y)]:
        assert (x.shape, x.dtype, y.shape, y.dtype) == ((0, 2, 2, 3), np.uint8, (0,), np.int32)


def test_shares_are_stratified_disjoint_and_together_all_rows():
    x, y = np.arange(300.0)[:, None], np.repeat([0, 1, 2], [200, 80, 20])
    data = dataset("toy", x, y, test=0.2, validation=0.25)
    assert Counter(data.test_y.tolist()) == {0: 40, 1: 16, 2: 4}
    assert Counter(data.validation_y.tolist()) == {0: 40, 1: 16, 2: 4}  # a quarter of the 240 rows that are left
    assert sorted(np.concatenate([data.x, data.test_x, data.validation_x])[:, 0]) == list(range(300))
    for rows_, labels in [(data.x, data.y), (data.test_x, data.test_y), (data.validation_x, data.validation_y)]:
        assert (y[rows_[:, 0].astype(int)] == labels).all()


def test_a_class_of_one_row_makes_the_split_a_plain_random_one():
    data = dataset("toy", np.arange(10.0)[:, None], np.array([1] + [0] * 9), test=0.2)
    assert (len(data.y), len(data.test_y), data.classes) == (8, 2, 2)


def test_fewer_test_rows_than_classes_make_the_split_a_plain_random_one():
    assert len(dataset("toy", np.arange(20.0)[:, None], np.arange(20) % 10, test=0.1).test_y) == 2


def test_the_seed_draws_the_split():
    draw = lambda seed: dataset("toy", *rows(60), test=0.3, seed=seed).test_x  # noqa: E731
    assert (draw(1) == draw(1)).all()
    assert not (draw(1) == draw(2)).all()


def test_owners_are_numbered_from_0_in_the_order_of_their_names():
    data = dataset("toy", *rows(4), owner=np.array(["zoe", "al", "zoe", "mia"]))
    assert data.owner is not None
    assert data.owner.tolist() == [2, 0, 2, 1]
    assert "3 owners" in repr(data)


def test_an_owner_whose_rows_all_became_test_rows_is_not_counted_and_named():
    with pytest.warns(UserWarning, match=r"toy: 20 of 40 owners \(.*, \.\.\.\) have all their examples in the test"):
        data = dataset("toy", *rows(40), owner=np.arange(40), test=0.5)
    assert data.owner is not None
    assert sorted(data.owner) == list(range(20))


def test_normalised_flat_rows_are_what_scikit_learn_makes_of_them():
    x = np.random.default_rng(0).normal([0, 5, -1e4], [1, 0.01, 300], size=(500, 3)).astype(np.float32)
    shift, scale = normalisation(dataset("toy", x, np.zeros(500, int)))
    scaler = StandardScaler().fit(x.astype(np.float64))
    np.testing.assert_allclose(shift, scaler.mean_, rtol=1e-5)
    np.testing.assert_allclose(scale, 1 / scaler.scale_, rtol=1e-4)
    assert (shift.dtype, scale.dtype) == (np.float32, np.float32)


def test_normalised_images_have_mean_0_and_deviation_1_in_every_channel():
    x = np.random.default_rng(0).integers(0, [50, 120, 256], size=(20, 8, 8, 3)).astype(np.uint8)
    shift, scale = normalisation(dataset("toy", x, np.zeros(20, int)))
    unit = x / 255  # the usual way to write it
    expected = (unit - unit.mean((0, 1, 2))) / unit.std((0, 1, 2))
    np.testing.assert_allclose((x.astype(np.float32) - shift) * scale, expected, atol=1e-5)


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, -3e-5])
def test_a_constant_feature_keeps_scale_1(value):
    shift, scale = normalisation(dataset("toy", np.full((1000, 2), value), np.zeros(1000, int)))
    assert (scale == 1).all()
    np.testing.assert_allclose(shift, value, rtol=1e-6)


def test_normalisation_does_not_depend_on_the_chunks_it_is_computed_in(monkeypatch):
    data = dataset("toy", *rows(100, 7))
    whole = normalisation(data)
    monkeypatch.setattr(module, "CHUNK", 7 * 9)
    np.testing.assert_allclose(normalisation(data), whole, rtol=1e-6, atol=1e-7)


SECONDS = np.stack([1_700_000_000 + np.arange(60), np.arange(60) % 7], axis=1)


def test_whole_numbers_that_32_bit_floats_cannot_tell_apart_are_refused_before_they_are_normalised():
    data = dataset("times", SECONDS, np.arange(60) % 2)
    with pytest.raises(ValueError, match=r"times: training examples: column 0 \(from 1.7e\+09 .* loses digits"):
        Task.on(LogisticRegression(classes=2), data)
    Task.on(LogisticRegression(classes=2), data, normalise=False)  # token ids, which an embedding reads as they are
    with pytest.warns(UserWarning, match="will be normalised as measurements"):
        Task.on(LogisticRegression(classes=2), dataset("times", SECONDS - SECONDS.min(0), np.arange(60) % 2))


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (1.7e12 + 60_000 * np.linspace(-1, 1, 60), "prices: training targets: column 0 .* loses digits"),
        (2**40 + np.arange(60), "prices: training targets: column 0 .* loses digits"),
        (10.0 ** np.linspace(0, 60, 60), "prices: training targets reach 1e\\+60, beyond 32-bit floats"),
    ],
)
def test_targets_that_32_bit_floats_cannot_hold_are_refused(y, says):
    with pytest.raises(ValueError, match=says):
        dataset("prices", SECONDS.astype(np.float32) - 1.7e9, y, targets="continuous")


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (np.array(["a", 1, "a", 1], object), r"d: owner holds values of several types \(int, str\)"),
        (np.array(["2026-01-01", "NaT", "2026-01-01", "NaT"], "M8[D]"), "d: owner 1 is None"),
    ],
)
def test_owners_that_cannot_be_told_apart_are_refused(owner, says):
    with pytest.raises(ValueError, match=says):
        dataset("d", np.eye(4), np.arange(4) % 2, owner=owner)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"y": np.ma.masked_equal(np.arange(12) % 3, 2)}, "training labels are masked in 4 places"),
        ({"y": np.ma.masked_less([1.0] * 11 + [-9999.0], 0), "targets": "continuous"}, "labels are masked in 1 places"),
        ({"test": (rows()[0], np.ma.masked_equal(np.arange(12) % 3, 2))}, "test labels are masked in 4 places"),
        ({"owner": np.ma.masked_equal(np.arange(12), 5)}, "owners are masked in 1 places; give a number for each"),
        ({"x": np.ma.masked_greater(rows()[0], 1)}, "training examples are masked in"),
    ],
)
def test_what_is_masked_is_refused(given, says):
    x, y = rows()
    with pytest.raises(ValueError, match=says):
        dataset("t", **{"x": x, "y": y, **given})


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i2", ">f8", ">i4"])
def test_another_byte_order_is_converted(dtype):
    x, y = rows()
    x = np.rint(10 * x)
    made = dataset("t", x.astype(dtype), y.astype(">i4"), test=(x.astype(dtype), y.astype(">i8")))
    assert made.x.dtype.isnative
    assert made.test_x.dtype == made.x.dtype
    np.testing.assert_array_equal(made.x, x)
    np.testing.assert_array_equal(made.y, y)
    targets = dataset("t", x, x[:, 0].astype(">f4"), targets="continuous").y
    np.testing.assert_array_equal(targets, x[:, 0])
    if made.x.dtype.kind == "f":
        assert Task.on(LogisticRegression(classes=3), made).shift.dtype == np.float32


def test_a_feature_that_float32_cannot_scale_keeps_its_scale():
    x, y = rows()
    x[:, 1] = 0
    x[3, 1] = 1e-40
    scale = normalisation(dataset("t", x.astype(np.float32), y))[1]
    assert np.isfinite(scale).all()
    assert scale[1] == 1


def test_an_example_without_numbers_is_refused():
    with pytest.raises(ValueError, match=r"examples have shape \(12, 0\); an example needs at least one number"):
        dataset("rows", np.zeros((12, 0)), rows()[1])


def test_test_examples_that_are_training_examples_are_warned_of():
    x, y = rows(120)
    with pytest.warns(UserWarning, match="rows: 120 of 120 test examples are training examples, too"):
        dataset("rows", x, y, test=(x, y))
    with pytest.warns(UserWarning, match="rows: 50 of 50 validation examples are training examples, too"):
        dataset("rows", x, y, test=0.2, validation=(x[:50], y[:50]))
    dataset("rows", x, y, test=(np.concatenate([x[:50], x[50:] + 0.1]), y))  # some examples do occur twice
    dataset("rows", x, y, test=(x, (y + 1) % 3))  # with other labels


def test_test_examples_of_another_unit_are_warned_of():
    x, y = np.random.default_rng(0).random((12, 4)).astype(np.float32), np.arange(12) % 3
    with pytest.warns(UserWarning, match=r"training examples reach 0.9\d*, test ones 2[45]\d.*: divide bytes by 255"):
        dataset("rows", x, y, test=(255 * x + 1, y))
    with pytest.warns(UserWarning, match=r"test examples reach 0.9\d*, training ones 2[45]\d"):
        dataset("rows", 255 * x, y, test=(x, y))
    dataset("rows", x, y, test=(10 * x, y))


def test_ids_that_only_begin_a_sequence_are_in_the_vocabulary():
    tokens = np.array([[7, 1, 2, 3, 4], [6, 4, 3, 2, 1]])
    x, y = tokens[:, :-1], tokens[:, 1:]
    assert dataset("text", x, y, targets="tokens").classes == 8
    assert dataset("tags", x + 10, y, targets="tokens").classes == 5  # inputs of another vocabulary
    with pytest.raises(ValueError, match=r"text: labels must be in 0..5"):
        dataset("text", x, y, classes=6, targets="tokens")
    x = np.where(x == 7, -5, x)
    with pytest.raises(ValueError, match=r"text: ids of tokens are whole numbers from 0, but there are also: \[-5\]"):
        dataset("text", x, y, targets="tokens")


def test_a_feature_that_varies_by_rounding_alone_keeps_its_scale():
    x = np.stack([np.linspace(0, 1, 40), np.full(40, 1.1) + 1e-15 * np.arange(40)], axis=1)
    x[::2, 1] = np.nextafter(np.float32(1.1), np.float32(2))
    _, scale = normalisation(dataset("rows", x.astype(np.float32), np.arange(40) % 2))
    assert scale[1] == 1
    assert scale[0] == pytest.approx(1 / np.linspace(0, 1, 40).std(), rel=1e-5)
