"""EL2N and GraNd: scores by hand and by differentiation, what is dropped, and scores that are measured a few times."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Task, signals
from fedjax_sel.data_selection.el2n import EL2N
from fedjax_sel.data_selection.grand import GraNd
from fedjax_sel.engine.signals import measure_examples
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.task import Focal, LabelSmoothing
from fedjax_sel.types import Batch

KEY = jax.random.key(0)


def test_scores_by_hand():
    """Z = (2, 1, 0), y = 1: p = (.665241, .244728, .090031); h = (1, 2)."""
    z, y, h = jnp.array([[2.0, 1.0, 0.0]]), jnp.array([1]), jnp.array([[1.0, 2.0]])
    np.testing.assert_allclose(signals.OutputGradient().measure(z, y)[0], [0.665241, -0.755272, 0.090031], atol=1e-6)
    np.testing.assert_allclose(signals.EL2N().measure(z, y), 1.010488, rtol=1e-6)
    np.testing.assert_allclose(signals.GraNd().measure(z, y, h), 2.475180, rtol=1e-6)


@pytest.mark.parametrize("loss", [None, Focal(2.0), LabelSmoothing(0.3)], ids=repr)
def test_the_last_layers_gradient_and_the_whole_models_are_those_of_differentiation(loss):
    task = Task(MLP(classes=3, hidden=(4,)), **({} if loss is None else {"loss": loss}))
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), jnp.array([2, 1, 0])
    variables = task.init(KEY, x)
    batch = Batch(x, y, jnp.arange(3) < 2)
    wanted = {"last": signals.LastLayerGradient(), "norm": signals.GraNd(), "loss": signals.Loss()}
    wanted["output"] = signals.OutputGradient()

    @jax.jit
    def measure(variables):
        return measure_examples(wanted, task, variables, batch.x, batch.y), signals.ExampleGradientNorm().measure(
            task, variables, batch, KEY
        )

    measured, every = measure(variables)
    gradient_of, loss_of = jax.jit(task.gradient), jax.jit(task.mean_loss)
    last = sorted(variables["params"])[-1]
    for i in range(2):
        one = Batch(x[i : i + 1], y[i : i + 1], jnp.ones(1, bool))
        gradient = jax.tree.map(np.asarray, gradient_of(variables, one))
        layer = gradient["params"][last]
        by_class = np.concatenate([layer["bias"][None], layer["kernel"]]).T
        np.testing.assert_allclose(measured["last"][i], by_class.ravel(), atol=1e-6)
        np.testing.assert_allclose(measured["norm"][i], np.linalg.norm(by_class), rtol=1e-5)
        np.testing.assert_allclose(measured["output"][i], layer["bias"], atol=1e-6)
        whole = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])
        np.testing.assert_allclose(every[i], np.linalg.norm(whole), rtol=1e-5)
        np.testing.assert_allclose(measured["loss"][i], loss_of(variables, one), rtol=1e-5)
    assert every[2] == 0


@pytest.mark.parametrize(
    "change", [lambda x: x[:, :2], lambda x: 5 * jnp.tanh(x), jax.nn.relu], ids=["cut", "cap", "relu"]
)
def test_features_of_a_model_that_changes_the_outputs_of_its_dense_layer_are_refused(change):
    class Changed(MLP):
        def __call__(self, x, *, train=False):
            return change(super().__call__(x, train=train))

    task, x = Task(Changed(classes=3, hidden=(4,))), jnp.zeros((2, 2))
    with pytest.raises(ValueError, match=r"Changed does not end with one; choose a signal that looks at the logits"):
        task.logits_and_features(task.init(KEY, x), x)


def test_features_of_logistic_regression_are_its_inputs():
    x, y = jax.random.normal(KEY, (5, 2, 3)), jnp.array([0, 1, 2, 0, 1])
    task = Task(LogisticRegression(classes=3))
    variables = jax.tree.map(lambda leaf: leaf + 0.3 * jnp.arange(leaf.size).reshape(leaf.shape), task.init(KEY, x))
    np.testing.assert_array_equal(task.logits_and_features(variables, x)[1], x.reshape(5, 6))
    check_norms(task, variables, x, y)


def test_a_bias_that_the_output_layer_lacks_has_no_part_in_its_gradient():
    task, x, y = Task(nn.Dense(3, use_bias=False)), jax.random.normal(KEY, (5, 4)), jnp.array([0, 1, 2, 0, 1])
    variables = task.init(KEY, x)
    check_norms(task, variables, x, y)
    found = measure_examples({"last": signals.LastLayerGradient(), "grand": signals.GraNd()}, task, variables, x, y)
    assert found["last"].shape == (5, 12)
    np.testing.assert_allclose(jnp.linalg.norm(found["last"], axis=1), found["grand"], rtol=1e-5)


def check_norms(task, variables, x, y):
    """Compares GraNd's norms with those of the gradients of a model that is its output layer alone."""
    norms = measure_examples({"grand": signals.GraNd()}, task, variables, x, y)["grand"]
    for i in range(len(x)):
        gradient = jax.grad(task.mean_loss)(variables, Batch(x[i : i + 1], y[i : i + 1], jnp.ones(1, bool)))
        whole = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        np.testing.assert_allclose(norms[i], np.linalg.norm(whole), rtol=1e-5)


@pytest.mark.parametrize("samples", [EL2N, GraNd])
def test_the_hardest_are_kept_below_those_that_are_dropped(samples):
    score, valid = jnp.array([5.0, 1, 4, 2, 3, 0, 9]), jnp.arange(7) < 6
    choose = lambda **k: samples(**k).select(KEY, (), valid, score=score).nonzero()[0].tolist()  # noqa: E731
    assert choose(fraction=0.5) == [0, 2, 4]
    assert choose(fraction=0.5, drop=0.2) == [2, 3, 4], "one of six"
    assert choose(fraction=0.5, drop=0.9) == [1, 3, 5], "enough others remain"


def test_the_mean_of_the_first_turns_decides_and_is_then_not_measured_any_more():
    samples, valid = EL2N(fraction=0.25, turns=2), jnp.ones(4, bool)
    state = jax.tree.map(lambda leaf: leaf[1], samples.init(3, 4))
    chosen, asked = [], []
    for round, score in enumerate(([4.0, 1, 0, 0], [0.0, 5, 0, 0], [0.0] * 4, [0.0] * 4)):
        asked.append(bool(samples.asks(state, jnp.int32(round))))
        score = jnp.array(score)
        kept = samples.select(KEY, state, valid, score=score)
        state = samples.observe(KEY, state, kept, score=score)
        chosen.append(kept.nonzero()[0].tolist())
    assert (chosen, asked) == ([[0], [1], [1], [1]], [True, True, False, False])  # 4, 1; then 4, 6
    assert bool(EL2N().asks((), jnp.int32(9)))


@pytest.mark.parametrize("turns", [1, 2])
def test_a_choice_for_good_does_not_change_though_examples_tie(turns):
    samples, valid = EL2N(fraction=0.5, turns=turns), jnp.arange(12) < 10
    state = jax.tree.map(lambda leaf: leaf[0], samples.init(1, 12))
    chosen = []
    for round in range(6):
        key = jax.random.key(round)
        score = jnp.where(samples.asks(state, jnp.int32(round)), jnp.where(jnp.arange(12) < 2, 1.0, 0.5), 0.0)
        kept = samples.select(key, state, valid, score=score)
        state = samples.observe(key, state, kept, score=score)
        chosen.append(tuple(kept.nonzero()[0].tolist()))
    assert {len(one) for one in chosen} == {5}
    assert set(chosen[turns - 1 :]) == {chosen[-1]}
    assert len(set(chosen)) == turns, "drawn at random in each turn that counts"
