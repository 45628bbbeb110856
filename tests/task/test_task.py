"""A task of the user's own loss and metrics."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import Experiment, Federation, dataset, partition, simulate
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.engine.targets import check_targets
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.transformer import Transformer
from fedjax_sel.task import Task, accuracy, cross_entropy
from fedjax_sel.task.losses import OwnLoss
from fedjax_sel.task.metrics import F1
from fedjax_sel.types import Batch

MODEL = MLP(classes=3, hidden=(4,))
X, Y = jax.random.normal(jax.random.key(1), (6, 5)), jnp.array([0, 1, 2, 0, 1, 2])
BATCH = Batch(X, Y, jnp.arange(6) < 4)


def brier(outputs, targets):
    return jnp.sum((jax.nn.softmax(outputs) - jax.nn.one_hot(targets, outputs.shape[-1])) ** 2, -1)


def top_two(outputs, targets):
    return (jax.lax.top_k(outputs, 2)[1] == targets[:, None]).any(-1)


def test_a_model_that_takes_the_mask_gets_it_though_it_keeps_no_statistics():
    """It normalises by the moments of the examples that count."""

    class Centred(MLP):
        def __call__(self, x, *, train=False, mask=None):
            counts = jnp.ones(len(x)) if mask is None else mask
            mean = jnp.sum(counts[:, None] * x, 0, keepdims=True) / counts.sum()
            return super().__call__(x - mean, train=train)

    task = Task(Centred(classes=3, hidden=(4,)))
    variables = task.init(jax.random.key(0), X)
    short = Batch(X[:4], Y[:4], jnp.ones(4, bool))
    for train in (False, True):
        losses = task.losses(variables, BATCH, train=train, key=jax.random.key(2) if train else None)
        np.testing.assert_allclose(losses[:4], task.losses(variables, short, train=train), rtol=1e-5)
    np.testing.assert_allclose(task.training_losses(variables, BATCH)[0][:4], losses[:4], rtol=1e-5)


def test_pretrained_variables_are_not_lost_by_freezing_parts_afterwards():
    task = Task(MODEL)
    known = jax.tree.map(lambda leaf: leaf + 7, task.init(jax.random.key(0), X))
    with pytest.raises(ValueError, match=r"already starts from pretrained variables, .* give all of it in one call"):
        task.fine_tune(X, pretrained=known).fine_tune(X, frozen=("Dense_0",))
    with pytest.raises(ValueError, match="give all of it in one call"):
        task.fine_tune(X, frozen=("Dense_0",)).fine_tune(X, frozen=("Dense_1",))


def test_the_default_loss_is_cross_entropy_and_its_gradient_has_no_scatter():
    task = Task(MODEL)
    variables = task.init(jax.random.key(0), X)
    logits = task.logits(variables, X)
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, Y)
    np.testing.assert_allclose(task.loss(logits, Y), expected, rtol=1e-6)
    np.testing.assert_allclose(task.mean_loss(variables, BATCH), expected[:4].mean(), rtol=1e-6)
    assert "scatter" not in str(jax.make_jaxpr(task.gradient)(variables, BATCH))


def test_the_default_metric_is_accuracy():
    logits = jnp.eye(3)[jnp.array([0, 1, 1])]
    found = Task(MODEL).example_metrics(logits, jnp.array([0, 1, 2]))
    assert found.keys() == {"accuracy", "loss"}
    assert found["accuracy"].tolist() == [True, True, False]


def test_a_loss_of_the_users_own_is_minimised_and_metrics_are_measured():
    task = Task(MODEL, loss=brier, metrics={"accuracy": accuracy, "top_two": top_two})
    variables = task.init(jax.random.key(0), X)
    logits = task.logits(variables, X)
    np.testing.assert_allclose(task.losses(variables, BATCH), brier(logits, Y) * (np.arange(6) < 4), rtol=1e-6)
    by_hand = jax.grad(lambda v: brier(task.logits(v, X), Y)[:4].mean())(variables)
    assert jax.tree.all(
        jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), task.gradient(variables, BATCH), by_hand)
    )
    assert task.example_metrics(logits, Y).keys() == {"accuracy", "top_two", "loss"}


def test_equal_tasks_share_one_program_and_another_loss_has_its_own():
    traced = []

    @jax.jit
    def loss(task, variables):
        traced.append(task.loss)
        return task.mean_loss(variables, BATCH)

    variables = Task(MODEL).init(jax.random.key(0), X)
    for task in (Task(MODEL), Task(MODEL, 1.0), Task(MODEL, metrics={"accuracy": accuracy})):
        loss(task, variables)
    loss(Task(MODEL, loss=brier), variables)
    assert traced == [cross_entropy, OwnLoss(brier)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "task: loss is 'hinge'; it must be a function of outputs and targets"),
        ({"metrics": {"top": 2}}, "task: metric 'top' is 2; it must be a function"),
        ({"metrics": {"loss": accuracy}}, "a metric is called 'loss'"),
    ],
)
def test_what_measures_nothing_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Task(MODEL, **options)


@pytest.mark.parametrize("layout", ["vmap", "scan"])
def test_a_history_has_the_users_metrics_of_the_final_model_on_the_test_examples(blobs, layout):
    task = Task.on(MODEL, blobs).replace(metrics={"accuracy": accuracy, "top_two": top_two, "brier": brier})
    experiment = Experiment(task, cohort_size=3, rounds=4, evaluate_every=2)
    history = simulate(experiment, Federation(blobs, partition.Iid(clients=8)), seeds=2, layout=layout)
    for seed in range(2):
        variables = jax.tree.map(lambda leaf, seed=seed: leaf[seed], history.variables)
        logits = task.logits(variables, blobs.test_x)
        for name, metric in task.metrics.items():
            expected = np.asarray(metric(logits, jnp.asarray(blobs.test_y)), float).mean()
            np.testing.assert_allclose(history[name][seed, -1], expected, rtol=1e-5)
    assert np.isnan(history["brier"][:, [0, 2]]).all()
    assert np.isfinite(history["brier"][:, [1, 3]]).all()


def test_a_metric_that_is_no_number_for_each_example_is_refused(blobs):
    task = Task.on(MODEL, blobs).replace(metrics={"mean": lambda outputs, targets: outputs.mean()})
    before = run_chunk.programs
    with pytest.raises(ValueError, match=r"the task's metric 'mean' is of shape \(\); it must be a number for each"):
        simulate(Experiment(task, cohort_size=3, rounds=2), Federation(blobs, partition.Iid(clients=8)))
    assert run_chunk.programs == before


def test_bytes_can_become_numbers_from_0_to_1():
    x, y = np.array([[0, 51, 255]] * 4, np.uint8), np.array([0, 1, 0, 1])
    task = Task.on(MODEL, dataset("bytes", x, y, test=0.5), normalise="unit")
    np.testing.assert_allclose(task.normalize(x[:1]), [[0, 0.2, 1]], rtol=1e-6)
    with pytest.raises(ValueError, match="normalise is 'unit', which is for bytes, but examples are float32; use True"):
        Task.on(MODEL, dataset("floats", x.astype(np.float32), y, test=0.5), normalise="unit")
    ids = np.ones((8, 5), np.uint8)
    with pytest.raises(ValueError, match="normalise is 'unit', but the dataset's targets are tokens"):
        Task.on(MODEL, dataset("texts", ids, ids.astype(int), test=0.5, targets="tokens"), normalise="unit")


def test_bytes_that_are_tokens_reach_an_embedding_as_they_are():
    """Those of images do not: they become floats."""
    ids = np.arange(24, dtype=np.uint8).reshape(6, 4)
    texts = dataset("texts", ids, ids.astype(int), targets="tokens", test=0.5)
    assert Task.on(MODEL, texts).raw
    grey = dataset("grey", np.zeros((6, 4, 4), np.uint8), np.arange(6) % 3, test=0.5)
    assert not Task.on(MODEL, grey, normalise=False).raw


def test_token_ids_of_validation_examples_are_checked_too():
    ids, labels = np.arange(40).reshape(10, 4), np.arange(10) % 2
    texts = dataset("texts", ids % 20, labels, test=0.2, validation=(ids[:2] + 5000, labels[:2]))
    with pytest.raises(ValueError, match="takes token ids from 0 to 19, but there are some from 0 to 5007"):
        Task.on(Transformer(classes=2, vocabulary=20), texts, normalise=False)


def test_a_metric_that_is_called_as_one_class_of_another_is_refused():
    data = Federation(dataset("d", X, np.asarray(Y), test=0.5), partition.Iid(2)).draw(0)
    check = partial(check_targets, client_selection=Uniform(), data_selection=Everything(), data=data)
    with pytest.raises(ValueError, match="the task has a metric 'f1_0', as a history calls a class of 'f1'"):
        check(Task(MODEL, metrics={"f1": F1(average="none"), "f1_0": accuracy}))
    check(Task(MODEL, metrics={"f1": F1(average="none"), "f1_3": accuracy, "accuracy_2": top_two}))
