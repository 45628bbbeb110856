"""Frozen parts of a model: named, left out of the global model, run once, and begun from a checkpoint."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedjax_sel as fs
from fedjax_sel import Task, load
from fedjax_sel.models import from_functions, from_nnx
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.task.freezing import FrozenParams, merge_trees, within
from fedjax_sel.types import Batch

DIGITS = load("digit_images", num_examples=60, num_test_examples=40)
MODEL = WideResNet(classes=10, depth=10)
BACKBONE = ("stem", "group1", "group2")


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


@pytest.fixture(scope="module")
def whole():
    return Task.on(MODEL, DIGITS)


@pytest.fixture(scope="module")
def known(whole):
    return whole.init(jax.random.key(3), DIGITS.x)


@pytest.fixture(scope="module")
def partly(whole, known):
    return whole.fine_tune(DIGITS.x, frozen=BACKBONE, pretrained=known)


def test_what_goes_round_is_what_is_trained(whole, partly, known):
    trained = partly.init(jax.random.key(0), DIGITS.x)
    assert set(trained["params"]) == {"group3", "norm", "head"}
    assert set(trained["batch_stats"]) == {"group3", "norm"}
    both = merge_trees(partly.frozen.variables, trained)
    assert flat(both).keys() == flat(known).keys()
    for name, leaf in flat(both).items():
        np.testing.assert_array_equal(leaf, flat(known)[name], name)
    assert partly.parameters(DIGITS.x) + partly.fixed_parameters(DIGITS.x) == whole.parameters(DIGITS.x)
    few = DIGITS.x[:5]
    logits = jax.jit(partly.logits)(trained, few), jax.jit(whole.logits)(known, few)
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_part_are_those_of_the_whole(whole):
    """In evaluation: in training the whole model's normalisation looks at the batch where a fixed one does not."""
    grouped = Task.on(dataclasses.replace(MODEL, norm="group"), DIGITS)
    known = grouped.init(jax.random.key(1), DIGITS.x)
    part = grouped.fine_tune(DIGITS.x, frozen=["stem", "group*/block1"], pretrained=known)
    batch = Batch(jnp.asarray(DIGITS.x[:6]), jnp.asarray(DIGITS.y[:6]), jnp.ones(6, bool))
    mine = flat(jax.jit(part.gradient)(part.init(jax.random.key(0), DIGITS.x), batch))
    theirs = flat(jax.jit(grouped.gradient)(known, batch))
    assert set(mine) == {name for name in theirs if name.startswith(("params/norm", "params/head"))}
    for name, leaf in mine.items():
        np.testing.assert_allclose(leaf, theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_fixed_normalisation_uses_its_statistics_and_keeps_them(partly, known):
    trained = partly.init(jax.random.key(0), DIGITS.x)
    batch = Batch(jnp.asarray(DIGITS.x[:8]), jnp.asarray(DIGITS.y[:8]), jnp.ones(8, bool))
    losses, moved = jax.jit(partly.training_losses)(trained, batch)
    assert set(moved["batch_stats"]) == {"group3", "norm"}, "the fixed ones are not there to be moved"
    assert not np.allclose(*(flat(s)["batch_stats/norm/BatchNorm_0/mean"] for s in (moved, known)))

    @jax.jit
    def split(fixed, trained, x):
        features = MODEL.apply(fixed, x, train=False, end=3)
        return MODEL.apply(trained, features, train=True, begin=3, mask=batch.mask, mutable=["batch_stats"])[0]

    logits = split(partly.frozen.variables, trained, partly.normalize(batch.x))
    np.testing.assert_allclose(losses, partly.loss(logits, batch.y), rtol=1e-5)


def test_a_backward_pass_costs_what_is_trained(whole, partly):
    assert whole.backward(DIGITS.x) == 2.0
    assert 0.3 < partly.backward(DIGITS.x) < 1.0, (
        "a third of the operations, and the rest of a third group's first layer"
    )
    head = whole.fine_tune(DIGITS.x, frozen=[*BACKBONE, "group3", "norm"])
    assert 0 < head.backward(DIGITS.x) < 0.01
    assert partly.flops(DIGITS.x) == whole.flops(DIGITS.x)


def test_a_layer_of_other_classes_is_drawn_afresh_and_all_else_is_kept(known):
    other = Task(dataclasses.replace(MODEL, classes=7)).fine_tune(DIGITS.x, frozen=BACKBONE, pretrained=known)
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
    assert FrozenParams(names=("a", "b/c")).split({"params": {"a": {"x": 1}, "b": {"c": {"x": 2}, "d": {"x": 3}}}}) == (
        {"params": {"b": {"d": {"x": 3}}}},
        {"params": {"a": {"x": 1}, "b": {"c": {"x": 2}}}},
    )


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        (
            ["group4"],
            r"frozen: 'group4' is not a part of the model; its parts are group1, group2, group3, head, norm, stem",
        ),
        (["stem", "conv1"], "frozen: 'conv1' is not a part"),
        (["*"], r"frozen: \* is all of the model"),
        ([*BACKBONE, "group3", "norm", "head"], "is all of the model .* must be left to train"),
    ],
)
def test_names_that_cannot_be_are_refused(whole, frozen, message):
    with pytest.raises(ValueError, match=message):
        whole.fine_tune(DIGITS.x, frozen=frozen)


def test_a_checkpoint_of_another_model_says_what_differs(whole, known):
    wider = Task(dataclasses.replace(MODEL, width=2))
    with pytest.raises(
        ValueError, match=r"of another model: params/group1/.* has shape .*, the model's is .*; and \d+ more"
    ):
        wider.fine_tune(DIGITS.x, pretrained=known)
    deeper = Task(dataclasses.replace(MODEL, depth=16))
    with pytest.raises(ValueError, match=r"group1/block2/.* is missing"):
        deeper.fine_tune(DIGITS.x, pretrained=known)
    with pytest.raises(ValueError, match=r"is not a part of the model"):
        whole.fine_tune(DIGITS.x, pretrained=deeper.init(jax.random.key(0), DIGITS.x))
    seven = Task(dataclasses.replace(MODEL, classes=7))
    with pytest.raises(ValueError, match=r"params/head/kernel has shape \(64, 10\), the model's is \(64, 7\)"):
        seven.fine_tune(DIGITS.x, frozen=["head"], pretrained=known)


class Idioms(nn.Module):
    """Normalisation that learns in three ways whether it trains: by a field, by a place, by a name."""

    @nn.compact
    def __call__(self, x, *, train=False):
        x = nn.BatchNorm(use_running_average=not train, name="field")(nn.Dense(4, name="first")(x))
        x = Normalised(name="place")(x, train)
        x = nn.BatchNorm(name="name")(nn.relu(x), use_running_average=not train)
        return nn.Dense(2, name="head")(x)


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.Dropout(0.5, deterministic=not train)(nn.BatchNorm(use_running_average=not train)(x))


class OfNNX(nnx.Module):
    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(3, 4, rngs=rngs), NormalisedByNNX(rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x, mask=None):
        mask = None if mask is None else jnp.broadcast_to(mask[:, None], (len(x), 4))
        return self.head(self.norm(self.first(x), mask))


class NormalisedByNNX(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.dropout = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, mask):
        return self.dropout(nnx.relu(self.norm(x, mask=mask)))


@pytest.mark.parametrize(
    ("model", "frozen"),
    [(Idioms(), ("first", "field", "place", "name")), (from_nnx(OfNNX), ("first", "norm"))],
    ids=["linen", "nnx"],
)
def test_a_frozen_part_is_evaluated_however_it_is_told_that_it_trains(model, frozen):
    """The rest has neither normalisation nor dropout, so that the losses in training are those in evaluation."""
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32) * 3 + 2
    task = Task(model).fine_tune(x, frozen=frozen)
    variables, y = task.init(jax.random.key(0), x), jnp.arange(8) % 2
    for mask in (jnp.ones(8, bool), jnp.arange(8) < 4):
        batch = Batch(jnp.asarray(x), y, mask)
        losses, statistics = task.training_losses(variables, batch, jax.random.key(1))
        assert statistics == {}
        np.testing.assert_allclose(losses, task.losses(variables, batch), rtol=1e-5)
    whole = Task(model).replace(frozen=FrozenParams())
    known = merge_trees(task.frozen.variables, variables)
    assert not np.allclose(whole.training_losses(known, batch, jax.random.key(1))[0], losses, rtol=1e-2)


def test_of_two_normalisations_the_frozen_one_uses_its_statistics_and_the_other_the_batch():
    """By hand."""
    x = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32) * 3 + 2
    task = Task(Idioms()).fine_tune(x, frozen=("first", "field", "place"))
    variables, y = task.init(jax.random.key(0), x), jnp.arange(8) % 2
    losses, moved = task.training_losses(variables, Batch(jnp.asarray(x), y, jnp.ones(8, bool)), jax.random.key(1))
    assert set(moved["batch_stats"]) == {"name"}
    first, head = task.frozen.variables["params"]["first"], variables["params"]["head"]
    h = np.maximum((x @ np.asarray(first["kernel"]) + np.asarray(first["bias"])) / (1 + 1e-5), 0)  # of 0 and 1, twice
    h = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5)
    expected = task.example_losses(jnp.asarray(h @ np.asarray(head["kernel"]) + np.asarray(head["bias"])), y)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_a_sweep_of_models_with_different_beginnings_is_refused():
    source = fs.load("iris")
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), source)
    one, two = (
        fs.Experiment(task.fine_tune(source.x, pretrained=task.init(jax.random.key(i), source.x)), cohort_size=2)
        for i in (1, 2)
    )
    federation = fs.Federation(source, fs.partition.Iid(clients=5))
    with pytest.raises(ValueError, match="begin with different pretrained variables"):
        fs.sweep([one, two], federation)


def test_a_checkpoint_for_flat_parameters_must_fit_completely():
    def init(key, x):
        del key
        return {"w1": jnp.ones((x.shape[-1], 8)), "w2": jnp.ones((8, 10))}

    def apply(params, x):
        return jnp.tanh(x.reshape(len(x), -1) @ params["w1"]) @ params["w2"]

    flat = Task(from_functions(init, apply))
    shape = jnp.zeros((1, 64))
    known = jax.tree.map(lambda leaf: 2 * leaf, flat.init(jax.random.key(0), shape))
    begun = flat.fine_tune(shape, pretrained=known).init(jax.random.key(1), shape)
    jax.tree.map(np.testing.assert_array_equal, begun, known)
    with pytest.raises(ValueError, match=r"params/w2 has shape \(8, 3\), the model's is \(8, 10\)"):
        flat.fine_tune(shape, pretrained={"params": {**known["params"], "w2": jnp.ones((8, 3))}})
