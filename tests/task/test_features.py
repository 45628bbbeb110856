"""The backbone run once: the same run, and the same bill."""

import jax
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, load, partition, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.client_selection.uniform import Uniform as UniformSelection
from fedjax_sel.config import build, resolve
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.devices.laws import Uniform
from fedjax_sel.engine import privacy
from fedjax_sel.local_training import CropFlip
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


def test_features_are_neither_cropped_nor_flipped(partly):
    rest, (rows,) = precompute_features(partly, DIGITS)
    federation = Federation(rows, partition.Iid(4))
    with pytest.raises(ValueError, match="augment is CropFlip, which changes images, but the examples are features"):
        simulate(experiment(rest, local_training=SGD(augment=CropFlip())), federation)


def test_features_of_examples_normalised_by_the_clients_moments_have_no_epsilon(monkeypatch):
    monkeypatch.setattr(privacy, "epsilon", lambda *args, **given: 1.5)
    private = {"aggregation": DPFedAvg(), "client_selection": UniformSelection(), "data_selection": Everything()}
    model = WideResNet(classes=10, depth=10, norm="group")
    refusal = "no ε: the task normalises by moments"
    for normalise, refused in ((True, True), (False, False)):
        task = Task.on(model, DIGITS, normalise=normalise).fine_tune(DIGITS.x, frozen=BACKBONE)
        rest, (rows,) = precompute_features(task, DIGITS)
        data = Federation(rows, partition.Iid(4)).draw(0)
        one = experiment(rest, **private)
        if refused:
            with pytest.raises(ValueError, match=refusal):
                privacy.epsilon_of(one, data, 1e-3)
        else:
            assert privacy.epsilon_of(one, data, 1e-3) == 1.5
        assert privacy.epsilon_of(one, data, 1e-3, public_moments=True) == 1.5


def test_public_examples_are_features_too_where_each_seed_draws_its_data():
    given = {"data": {"name": "digit_images", "seed": None, "num_examples": 40}, "public": "digit_images"}
    given |= {"model": {"name": "wide_resnet", "depth": 10, "frozen": list(BACKBONE)}, "partition": {"clients": 4}}
    built = build(resolve({**given, "cohort_size": 2, "rounds": 1}))
    public = built.data.draw(0).public_x
    assert public.shape[1:] == built.data.draw(0).x.shape[1:] == (4, 4, 32)
