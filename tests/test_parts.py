"""FrozenParams of a model that stay as they are: named, left out of what goes round, run once, and begun from a checkpoint."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, load, partition, simulate
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.devices.laws import Uniform
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.parts import FrozenParams, joined, within
from fedjax_sel.types import Batch

DIGITS = load("digit_images", rows=60, num_test_examples=40)
MODEL = WideResNet(classes=10, depth=10)
TRUNK = ("stem", "group1", "group2")
FLAT = load("digits", rows=80)
DENSE = MLP(classes=10, hidden=(12, 8))


def flat(tree):
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in _leaves(tree)}


def _leaves(tree):
    return jax.tree_util.tree_leaves_with_path(tree)


def experiment(task, **changes):
    trainer = SGD(0.1, batch_size=8, momentum=0.5)
    return Experiment(
        task, **{"local_training": trainer, "cohort_size": 2, "rounds": 2, "data_selection": Entropy(0.5), **changes}
    )


@pytest.fixture(scope="module")
def whole():
    return Task.on(MODEL, DIGITS)


@pytest.fixture(scope="module")
def known(whole):
    return whole.init(jax.random.key(3), DIGITS.x)


@pytest.fixture(scope="module")
def partly(whole, known):
    return whole.with_parts(DIGITS.x, frozen=TRUNK, pretrained=known)


def test_what_goes_round_is_what_is_trained(whole, partly, known):
    trained = partly.init(jax.random.key(0), DIGITS.x)
    assert set(trained["params"]) == {"group3", "norm", "head"}
    assert set(trained["batch_stats"]) == {"group3", "norm"}
    both = joined(partly.parts.fixed, trained)
    assert flat(both).keys() == flat(known).keys()
    for name, leaf in flat(both).items():
        np.testing.assert_array_equal(leaf, flat(known)[name], name)
    assert partly.parameters(DIGITS.x) + partly.fixed_parameters(DIGITS.x) == whole.parameters(DIGITS.x)
    np.testing.assert_allclose(
        partly.logits(trained, DIGITS.x[:5]), whole.logits(known, DIGITS.x[:5]), rtol=1e-5, atol=1e-5
    )


def test_gradients_of_a_part_are_those_of_the_whole(whole):
    """In evaluation: in training the whole model's normalisation looks at the batch where a fixed one does not."""
    grouped = Task.on(dataclasses.replace(MODEL, norm="group"), DIGITS)
    known = grouped.init(jax.random.key(1), DIGITS.x)
    part = grouped.with_parts(DIGITS.x, frozen=["stem", "group*/block1"], pretrained=known)
    batch = Batch(jnp.asarray(DIGITS.x[:6]), jnp.asarray(DIGITS.y[:6]), jnp.ones(6, bool))
    mine = flat(part.gradient(part.init(jax.random.key(0), DIGITS.x), batch))
    theirs = flat(grouped.gradient(known, batch))
    assert set(mine) == {name for name in theirs if name.startswith(("params/norm", "params/head"))}
    for name, leaf in mine.items():
        np.testing.assert_allclose(leaf, theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_fixed_normalisation_uses_its_statistics_and_keeps_them(partly, known):
    trained = partly.init(jax.random.key(0), DIGITS.x)
    batch = Batch(jnp.asarray(DIGITS.x[:8]), jnp.asarray(DIGITS.y[:8]), jnp.ones(8, bool))
    _, moved = partly.training_losses(trained, batch)
    assert set(moved["batch_stats"]) == {"group3", "norm"}, "the fixed ones are not there to be moved"
    assert not np.allclose(*(flat(s)["batch_stats/norm/BatchNorm_0/mean"] for s in (moved, known)))
    features = MODEL.apply(partly.parts.fixed, partly.normalised(batch.x), train=False, end=3)
    logits, _ = MODEL.apply(trained, features, train=True, begin=3, mask=batch.mask, mutable=["batch_stats"])
    np.testing.assert_allclose(
        partly.training_losses(trained, batch)[0], partly.example_loss(logits, batch.y), rtol=1e-5
    )


def test_a_trunk_run_once_gives_the_same_run(partly):
    """Every number of the history, the bill too, and the model."""
    rest, (rows,) = partly.precompute_features(DIGITS)
    assert rest.parts.begin == 3
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


def test_a_backward_pass_costs_what_is_trained(whole, partly):
    assert whole.backward(DIGITS.x) == 2.0
    assert 0.3 < partly.backward(DIGITS.x) < 1.0, (
        "a third of the operations, and the rest of a third group's first layer"
    )
    head = whole.with_parts(DIGITS.x, frozen=[*TRUNK, "group3", "norm"])
    assert 0 <= head.backward(DIGITS.x) < 0.01
    assert partly.flops(DIGITS.x) == whole.flops(DIGITS.x)


def test_without_a_checkpoint_fixed_parts_are_the_same_for_all_seeds():
    task = Task.on(DENSE, FLAT).with_parts(FLAT.x, frozen=["Dense_0"])
    assert set(task.init(jax.random.key(5), FLAT.x)["params"]) == {"Dense_1", "Dense_2"}
    history = simulate(experiment(task), Federation(FLAT, partition.Iid(4)), seeds=2)
    assert set(history.variables["params"]) == {"Dense_1", "Dense_2"}
    assert history["accuracy"].shape == (2, 2)
    assert task.precompute_features(FLAT)[0] is task, "an MLP has no stages to run beforehand"


def test_a_layer_of_other_classes_is_drawn_afresh_and_all_else_is_kept(known):
    other = Task(dataclasses.replace(MODEL, classes=7)).with_parts(DIGITS.x, frozen=TRUNK, pretrained=known)
    one, two = (other.init(jax.random.key(seed), DIGITS.x) for seed in (0, 1))
    assert one["params"]["head"]["kernel"].shape == (64, 7)
    assert not np.array_equal(one["params"]["head"]["kernel"], two["params"]["head"]["kernel"])
    for name, leaf in flat(one["params"]["group3"]).items():
        np.testing.assert_array_equal(leaf, flat(known["params"]["group3"])[name])


def test_names_are_steps_of_the_way():
    assert within(("group1", "block2", "conv1", "kernel"), "group1/block2")
    assert not within(("group1", "block2"), "block2")
    assert not within(("group10",), "group1")
    assert within(("group10", "block1"), "group*")
    assert not within(("group1",), "group1/block1")
    assert FrozenParams(fixed_names=("a", "b/c")).parted(
        {"params": {"a": {"x": 1}, "b": {"c": {"x": 2}, "d": {"x": 3}}}}
    ) == (
        {"params": {"b": {"d": {"x": 3}}}},
        {"params": {"a": {"x": 1}, "b": {"c": {"x": 2}}}},
    )


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        (
            ["group4"],
            r"frozen: 'group4' is no part of the model; its parts are group1, group2, group3, head, norm, stem",
        ),
        (["stem", "conv1"], "frozen: 'conv1' is no part"),
        (["*"], r"frozen: \* is all of the model"),
        ([*TRUNK, "group3", "norm", "head"], "is all of the model .* must be left to train"),
    ],
)
def test_names_that_cannot_be_are_refused(whole, frozen, message):
    with pytest.raises(ValueError, match=message):
        whole.with_parts(DIGITS.x, frozen=frozen)


def test_a_checkpoint_of_another_model_says_what_differs(whole, known):
    wider = Task(dataclasses.replace(MODEL, width=2))
    with pytest.raises(
        ValueError, match=r"of another model: params/group1/.* has shape .*, the model's is .*; and \d+ more"
    ):
        wider.with_parts(DIGITS.x, pretrained=known)
    deeper = Task(dataclasses.replace(MODEL, depth=16))
    with pytest.raises(ValueError, match=r"group1/block2/.* is missing"):
        deeper.with_parts(DIGITS.x, pretrained=known)
    with pytest.raises(ValueError, match=r"is no part of the model"):
        whole.with_parts(DIGITS.x, pretrained=deeper.init(jax.random.key(0), DIGITS.x))
    seven = Task(dataclasses.replace(MODEL, classes=7))
    with pytest.raises(ValueError, match=r"params/head/kernel has shape \(64, 10\), the model's is \(64, 7\)"):
        seven.with_parts(DIGITS.x, frozen=["head"], pretrained=known)
