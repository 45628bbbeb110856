"""The synthetic federation of UACS-FL keeps its geometry."""

from itertools import pairwise

import numpy as np
import pytest

from fedjax_sel.data.uacs import Shape, draw_clients, uacs

SETTINGS = (1, 2, 3)


def height(x):
    """Above the boundary, written out again."""
    return x[:, 1].astype(np.float64) - 0.5 * np.sin(np.pi * x[:, 0].astype(np.float64))


def examples_of(data, client):
    mine = data.owner == client
    return data.x[mine], data.y[mine]


@pytest.fixture(scope="module", params=[(s, b, seed) for s in SETTINGS for b, seed in ((6, 0), (10, 1))], ids=str)
def drawn(request):
    """Setting, boundary clients, data."""
    setting, boundary, seed = request.param
    return setting, boundary, uacs(setting, seed, boundary=boundary)


def test_a_hundred_clients_own_fifty_rows_each_in_the_square(drawn):
    _, _, data = drawn
    np.testing.assert_array_equal(np.bincount(data.owner), [50] * 100)
    assert data.x.shape == (5000, 2)
    assert data.classes == 2
    assert np.abs(data.x).max() <= 1


def test_the_label_says_on_which_side_of_the_curve_a_row_lies(drawn):
    _, _, data = drawn
    for x, y in ((data.x, data.y), (data.test_x, data.test_y)):
        clear = np.abs(height(x)) > 1e-6  # rows are rounded to float32
        np.testing.assert_array_equal(y[clear], height(x)[clear] > 0)
        assert clear.mean() > 0.99


def test_boundary_clients_hold_both_classes_within_the_strip(drawn):
    _, boundary, data = drawn
    for client in range(boundary):
        x, y = examples_of(data, client)
        assert 10 <= y.sum() <= 40
        assert np.abs(height(x)).max() <= 0.15 + 1e-6


def test_the_others_hold_one_class_beyond_the_margin_and_half_of_them_each(drawn):
    _, boundary, data = drawn
    of_class = []
    for client in range(boundary, 100):
        x, y = examples_of(data, client)
        assert np.abs(height(x)).min() > 0.25 - 1e-6
        (only,) = set(y.tolist())
        of_class.append(only)
    assert sum(of_class) == len(of_class) / 2


def test_boundary_clients_have_disjoint_stretches_of_the_curve_or_all_of_it(drawn):
    setting, boundary, data = drawn
    ends = [(x[:, 0].min(), x[:, 0].max()) for x in (examples_of(data, i)[0] for i in range(boundary))]
    width = 2 / boundary
    if setting == 2:
        assert all(low < -0.8 and high > 0.8 for low, high in ends)
    else:
        assert all(high - low <= 0.8 * width + 1e-6 for low, high in ends)
        assert all(left[1] + 0.1 * width < right[0] for left, right in pairwise(ends))
        assert ends[0][0] < -1 + 0.2 * width
        assert ends[-1][1] > 1 - 0.2 * width


def test_only_in_the_third_setting_are_the_others_confined_to_small_boxes(drawn):
    setting, boundary, data = drawn
    sides = np.array([np.ptp(examples_of(data, i)[0], axis=0) for i in range(boundary, 100)])
    centres = np.array([examples_of(data, i)[0].mean(0) for i in range(boundary, 100)])
    if setting == 3:
        assert sides.max() <= 0.2 + 1e-6
        assert centres.std(0).min() > 0.3, "each has a box of its own"
    else:
        assert sides[:, 0].min() > 1
        assert sides.min() > 0.5


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_seed_draws_everything_and_always_the_same(setting):
    first, again, other = uacs(setting, 3, clients=12), uacs(setting, 3, clients=12), uacs(setting, 4, clients=12)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.test_x, again.test_x)
    assert (first.x != other.x).all()
    assert (first.test_x != other.test_x).all()


def test_test_rows_are_uniform_on_the_square():
    x = uacs(1, 0, clients=8, num_test_examples=4000).test_x
    quarters, _, _ = np.histogram2d(x[:, 0], x[:, 1], bins=4, range=[[-1, 1]] * 2)
    assert quarters.sum() == 4000
    np.testing.assert_allclose(quarters, 250, atol=70)  # over four deviations


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"setting": 4}, "setting is 4; it must be 1, 2 or 3"),
        ({"setting": 0}, "setting is 0"),
        ({"boundary": 0}, "0 boundary clients of 100; there must be 1 to 99"),
        ({"boundary": 20, "clients": 20}, "20 boundary clients of 20; there must be 1 to 19"),
        ({"num_examples": 0}, "num_examples is 0, num_test_examples is 2000; both must be at least 1"),
        ({"num_test_examples": -1}, "num_test_examples is -1"),
        ({"clients": 20.5}, "uacs: clients is 20.5; it must be a whole number"),
        ({"keep": "boundary"}, "unknown keep 'boundary'"),
        ({"amplitude": -0.1}, "amplitude is -0.1; it must be from 0 to 0.75"),
        ({"amplitude": float("nan")}, "amplitude is nan"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_what_can(arguments, words):
    with pytest.raises(ValueError, match=words):
        uacs(**arguments)


@pytest.mark.parametrize("setting", [1, 2, 3])
def test_other_shapes_keep_what_the_settings_say(setting):
    shape = Shape(amplitude=0.0, strip=0.05, margin=0.35, box=0.05)
    drawn = draw_clients(shape, setting, 3)
    np.testing.assert_array_equal(drawn.y, drawn.x[:, 1] > 0)
    np.testing.assert_array_equal(drawn.test_y, drawn.test_x[:, 1] > 0)
    owner = np.asarray(drawn.owner)
    near = owner < 6
    assert np.abs(drawn.x[near, 1]).max() <= 0.05
    assert np.abs(drawn.x[~near, 1]).min() > 0.35
    if setting == 3:
        widths = [np.ptp(drawn.x[owner == client], axis=0).max() for client in range(6, 100)]
        assert max(widths) <= 0.1 + 1e-6


def test_by_default_the_shape_is_that_of_the_source():
    one, other = uacs(2, 5), draw_clients(Shape(), 2, 5)
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)


def test_an_amplitude_changes_the_curve_alone():
    one, other = uacs(1, 5, amplitude=0.75), draw_clients(Shape(amplitude=0.75), 1, 5)
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.test_x, uacs(1, 5).test_x)
    np.testing.assert_array_equal(uacs(1, 5, amplitude=0.0).test_y, one.test_x[:, 1] > 0)
