"""Crops and flips, against loops; and training with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, dataset, partition, simulate
from fedjax_sel.config import build, resolve
from fedjax_sel.local_training import CropFlip
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP


def all_changes(image, padding, flip):
    """Every image that may come of one, by loops."""
    h, w, c = image.shape
    padded = np.zeros((h + 2 * padding, w + 2 * padding, c), image.dtype)
    padded[padding : padding + h, padding : padding + w] = image
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[top : top + h, left : left + w]
            yield crop
            if flip:
                yield crop[:, ::-1]


@pytest.mark.parametrize(("padding", "flip"), [(1, True), (1, False), (0, True), (2, True)])
def test_every_crop_and_flip_comes_equally_often_and_nothing_else(padding, flip):
    image = np.arange(1, 25, dtype=np.uint8).reshape(3, 4, 2)
    draws = 200 * (2 * padding + 1) ** 2 * (1 + flip)
    out = CropFlip(padding, flip)(jax.random.key(3), jnp.broadcast_to(image, (draws, 3, 4, 2)))
    assert out.dtype == jnp.uint8
    found = {}
    for one in np.asarray(out):
        found[one.tobytes()] = found.get(one.tobytes(), 0) + 1
    expected = [one.tobytes() for one in all_changes(image, padding, flip)]
    assert set(found) == set(expected)
    assert len(set(expected)) == len(expected)
    counts = np.array(list(found.values()))
    chi2 = ((counts - 200) ** 2 / 200).sum()
    assert chi2 < len(expected) + 4 * np.sqrt(2 * len(expected))


def test_a_border_can_be_the_image_reflected():
    image = np.arange(1, 26, dtype=np.uint8).reshape(5, 5, 1)
    out = CropFlip(2, flip=False, border="reflect")(jax.random.key(0), jnp.broadcast_to(image, (500, 5, 5, 1)))
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), "reflect")
    assert padded[1, 2, 0] == image[1, 0, 0]  # at the middle of the outermost pixels, which are not repeated
    expected = {padded[i : i + 5, j : j + 5].tobytes() for i in range(5) for j in range(5)}
    assert {np.asarray(one).tobytes() for one in out} == expected


def test_an_image_smaller_than_its_border_cannot_be_reflected():
    with pytest.raises(ValueError, match=r"crop_flip: an example has shape \(4, 9, 1\); .* larger than the padding, 4"):
        CropFlip(4, border="reflect")(jax.random.key(0), jnp.zeros((1, 4, 9, 1)))


def images():
    """Pictures whose class is where their bright column is; mirrored, they are of the other class."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.uniform(0, 0.1, (60, 4, 4, 1)).astype(np.float32)
    x[np.arange(60), :, np.where(y == 0, 0, 3)] += 1
    return dataset("columns", x, y, test=0.2)


def test_training_sees_changed_images_and_repeats_itself():
    data = images()
    federation, task = Federation(data, partition.Iid(clients=3)), Task.on(MLP(classes=2, hidden=(8,)), data)

    def train(augment):
        trainer = SGD(0.5, epochs=5, augment=augment)
        return simulate(Experiment(task, local_training=trainer, cohort_size=3, rounds=8), federation)

    plain, mirrored, again = train(None), train(CropFlip(padding=0)), train(CropFlip(padding=0))
    assert plain["accuracy"][0, -1] == 1.0
    assert mirrored["accuracy"][0, -1] < 0.8  # left and right cannot be told apart
    np.testing.assert_array_equal(mirrored["loss"], again["loss"])
    np.testing.assert_array_equal(train(CropFlip(padding=0, flip=False))["accuracy"], plain["accuracy"])


def test_a_configuration_names_it():
    config = resolve({"data": "digits", "local_training": {"augment": {"name": "crop_flip", "padding": 1}}})
    assert build(config).experiment.local_training == SGD(augment=CropFlip(padding=1))
    assert resolve({"data": "digits"})["local_training"]["augment"] is None
    with pytest.raises(ValueError, match=r"local_training\.augment\.padding is 'x'; it must be a whole number"):
        resolve({"data": "digits", "local_training": {"augment": {"name": "crop_flip", "padding": "x"}}})


def test_examples_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match=r"crop_flip: an example has shape \(2,\); it must be an image"):
        CropFlip()(jax.random.key(0), jnp.zeros((3, 2)))
