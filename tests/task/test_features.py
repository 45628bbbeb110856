"""The backbone run once: the same run, and the same bill."""

import jax
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, load, partition, simulate
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.devices.laws import Uniform
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.task.features import precompute_features

DIGITS = load("digit_images", num_examples=60, num_test_examples=40)
MODEL = WideResNet(classes=10, depth=10)
BACKBONE = ("stem", "group1", "group2")
FLAT = load("digits", num_examples=80)
DENSE = MLP(classes=10, hidden=(12, 8))


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def experiment(task, **changes):
    trainer = SGD(0.1, batch_size=8, momentum=0.5)
    return Experiment(
        task, **{"local_training": trainer, "cohort_size": 2, "rounds": 2, "data_selection": Entropy(0.5), **changes}
    )


@pytest.fixture(scope="module")
def partly():
    whole = Task.on(MODEL, DIGITS)
    return whole.fine_tune(DIGITS.x, frozen=BACKBONE, pretrained=whole.init(jax.random.key(3), DIGITS.x))


def test_a_backbone_run_once_gives_the_same_run(partly):
    """Every number of the history, the bill too, and the model."""
    rest, (rows,) = precompute_features(partly, DIGITS)
    assert rest.frozen.begin == 3
    assert rows.x.shape == (60, 4, 4, 32)
    law = partition.Iid(4)
    runs = [
        simulate(experiment(task), Federation(data, law, devices=Uniform()), seeds=2, layout="scan")
        for task, data in ((partly, DIGITS), (rest, rows))
    ]
    for name, value in runs[0].metrics.items():
        np.testing.assert_allclose(runs[1][name], value, rtol=1e-4, err_msg=name)
    for name, leaf in flat(runs[0].variables).items():
        np.testing.assert_allclose(flat(runs[1].variables)[name], leaf, rtol=1e-3, atol=1e-4, err_msg=name)
    fixed = partly.fixed_parameters(DIGITS.x)
    down = runs[0]["bytes_down"]
    np.testing.assert_array_equal(down[:, 0] - down[:, 1], 4 * 4 * fixed)
    np.testing.assert_array_equal(down[:, 1], 2 * 4 * partly.parameters(DIGITS.x))


def test_without_a_checkpoint_fixed_parts_are_the_same_for_all_seeds():
    task = Task.on(DENSE, FLAT).fine_tune(FLAT.x, frozen=["Dense_0"])
    assert set(task.init(jax.random.key(5), FLAT.x)["params"]) == {"Dense_1", "Dense_2"}
    history = simulate(experiment(task), Federation(FLAT, partition.Iid(4)), seeds=2)
    assert set(history.variables["params"]) == {"Dense_1", "Dense_2"}
    assert history["accuracy"].shape == (2, 2)
    assert precompute_features(task, FLAT)[0] is task, "an MLP has no stages to run beforehand"
