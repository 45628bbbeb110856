"""Targets that are no classes: numbers, several labels, tokens; a model learns them, and what needs classes refuses."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.lefl import LEFL
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.tifl import TiFL
from fedjax_sel.data.own import shift_tokens
from fedjax_sel.data_selection.el2n import EL2N
from fedjax_sel.data_selection.grad_match import GradMatch
from fedjax_sel.data_selection.grand import GraNd
from fedjax_sel.data_selection.margin import Margin
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.report.summary import build_table, render_page, summarize
from fedjax_sel.task import F1, R2, AbsoluteError, Focal, LabelAccuracy, Task, TokenAccuracy, accuracy

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(3, 2)).astype(np.float32)


class NextByEmbedding(nn.Module):
    """A bigram model: logits of the next token from the embedding of this one."""

    tokens: int

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(self.tokens)(nn.Embed(self.tokens, 8)(x.astype(jnp.int32)))


def clients_of(target):
    """Eight clients with twelve examples each, as `target` says what is to be learnt of three numbers."""
    return [(x, target(x)) for x in RNG.normal(size=(8, 12, 3)).astype(np.float32)]


def count_up(first):
    """Sequences in which each token is one more than the one before it, from 1 to 6 and around, some of them short."""
    sequences = [[1 + (first + i + k) % 6 for k in range(6 - i % 3)] for i in range(12)]
    return shift_tokens(sequences, length=5)


KINDS = {
    "continuous": (
        [(x, y) for x, y in clients_of(lambda x: x @ WEIGHTS[:, 0] + 1)],
        MLP(1, hidden=()),
        "absolute_error",
    ),
    "multilabel": (clients_of(lambda x: (x @ WEIGHTS > 0).astype(int)), MLP(2, hidden=()), "label_accuracy"),
    "tokens": ([count_up(i) for i in range(8)], NextByEmbedding(7), "token_accuracy"),
}


def problem(targets):
    clients, model, metric = KINDS[targets]
    data = fs.Federation.from_arrays(clients, targets=targets, classes=7 if targets == "tokens" else None)
    return data, Task.on(model, data.source), metric


@pytest.fixture(scope="module", params=list(KINDS))
def learnt(request):
    data, task, metric = problem(request.param)
    experiment = fs.Experiment(
        task,
        client_selection=PowerOfChoice(d=5),
        local_training=SGD(0.5 if request.param == "tokens" else 0.1, batch_size=4, epochs=2),
        cohort_size=4,
        rounds=12,
        evaluate_clients_every=6,
    )
    return fs.simulate(experiment, data, seeds=2), data, task, metric


def test_a_model_learns_targets_of_any_kind_with_clients_chosen_by_loss(learnt):
    history, _, task, metric = learnt
    assert "accuracy" not in history.metrics
    assert (history["loss"][:, -1] < 0.7 * history["loss"][:, 0]).all()
    better = history[metric][:, -1] - history[metric][:, 0]
    assert (better > 0).all() if task.is_better_higher(metric) else (better < 0).all()


def test_the_loss_of_a_history_is_that_of_the_final_model_on_the_test_examples(learnt):
    history, data, task, _ = learnt
    for seed in range(2):
        own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], history.variables)
        outputs = task.logits(own, data.source.test_x)
        expected = task.loss(outputs, jnp.asarray(data.source.test_y)).mean()
        np.testing.assert_allclose(history["loss"][seed, -1], expected, rtol=1e-4, atol=1e-7)


def test_a_summary_and_a_page_without_accuracy_speak_of_the_loss(learnt):
    history, *_ = learnt
    found = summarize(history)
    assert not found.keys() & {"final_accuracy", "best_accuracy"}
    page = render_page("run", found, "", history.about)
    assert "figures/loss.png" in page
    assert "accuracy.png" not in page
    assert "final loss" in str([column._cells for column in build_table("run", found).columns])


class Told(fs.DataSelector):
    """Wants a signal on the server's examples that is of classes."""

    uses_turn = True

    def validation_signals(self):
        return {"told": fs.signals.ValidationAccuracy(split="test")}

    def select(self, key, state, valid, *, turn):
        return valid


REFUSED = {
    "Entropy needs classes, by the signal 'entropy', but the targets are continuous": {"client_selection": Entropy()},
    "TiFL needs classes, by the signal 'correct'": {"client_selection": TiFL()},
    "LEFL needs classes, but the targets are continuous": {"client_selection": LEFL()},
    "Margin needs classes, by the signal 'margin'": {"data_selection": Margin()},
    "EL2N needs classes, by the signal 'score'": {"data_selection": EL2N()},
    "GraNd needs classes, by the signal 'score'": {"data_selection": GraNd()},
    "GradMatch needs classes, by the signal": {"data_selection": GradMatch()},
    "Told needs classes, by the signal 'told'": {"data_selection": Told()},
    "loss is Focal, which is of classes, but the targets are continuous; of those: SquaredError, Huber": {
        "task": {"loss": Focal()}
    },
    "metric 'f1' is F1, which is of classes or multilabel, but the targets are continuous": {
        "task": {"metrics": {"f1": F1()}}
    },
    "metric 'accuracy' is Accuracy, which is of classes": {"task": {"metrics": {"accuracy": accuracy}}},
    "the task's loss is of shape \\(2, 1\\); it must be a number for each example": {
        "task": {"loss": lambda outputs, targets: (outputs - targets[:, None]) ** 2}
    },
    "cannot be computed of outputs of shape": {"task": {"loss": lambda outputs, targets: outputs @ outputs}},
    "outputs of shape \\(2,\\) an example, but its targets are continuous, which need \\(1,\\)": {
        "task": {"model": MLP(2, hidden=())}
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_needs_classes_is_refused_before_anything_compiles(message):
    data, task, _ = problem("continuous")
    changes = dict(REFUSED[message])
    task = task.replace(**changes.pop("task", {}))
    before = run_chunk.programs
    with pytest.raises(ValueError, match=message):
        fs.simulate(fs.Experiment(task, cohort_size=3, rounds=2, **changes), data)
    assert run_chunk.programs == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"loss": lambda outputs, targets: ((outputs - targets) ** 2).mean(-1)},
            r"loss of an example changes .* of shapes \(b, 1\) and \(b,\); write outputs\[:, 0\]",
        ),
        ({"metrics": {"mae": lambda outputs, targets: jnp.abs(outputs - targets)}}, "'mae' of an example changes with"),
        ({"metrics": {"rank": lambda outputs, targets: outputs[:, 0].argsort()}}, "'rank' of an example changes with"),
    ],
)
def test_a_loss_or_metric_of_several_examples_is_refused_where_shapes_do_not_tell(changes, message):
    """A user's JAX broadcasts `(b, 1)` and `(b,)`."""
    data, task, _ = problem("continuous")
    before = run_chunk.programs
    with jax.numpy_rank_promotion("allow"), pytest.raises(ValueError, match=message):
        fs.simulate(fs.Experiment(task.replace(**changes), cohort_size=3, rounds=2), data)
    assert run_chunk.programs == before


@pytest.mark.parametrize(
    "by_class",
    [
        fs.partition.Dirichlet(4, 0.5),
        fs.partition.Shards(4),
        fs.partition.LabelCount(4, 1),
        fs.partition.LabelGroups(4, 1),
        fs.partition.ClientDirichlet(4, 0.5),
        fs.partition.QuadraticDirichlet(4),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_partition_by_class_refuses_numbers_and_names_those_that_work(by_class):
    source = problem("continuous")[0].source
    with pytest.raises(ValueError, match=r"divides examples by class, .* Iid, Natural, Indices and Function"):
        fs.Federation(source, by_class).draw(0)
    assert fs.Federation(source, fs.partition.Iid(4)).draw(0).num_clients == 4


@pytest.mark.parametrize(
    ("targets", "y", "message"),
    [
        ("classes", np.ones(4), "targets='continuous' says that they are numbers"),
        ("classes", np.ones((4, 2), int), "targets='multilabel' says that an example has several"),
        ("continuous", np.array([0, 1, 2, np.nan]), "finite numbers, without NaN"),
        ("continuous", np.array(list("abcd")), "finite numbers"),
        ("multilabel", np.full((4, 2), 2), "hold 2 to 2; each must be 0 or 1"),
        ("multilabel", np.ones(4, int), r"have shape \(4,\); multilabel have \[4, labels\]"),
        ("tokens", np.ones(4, int), r"tokens have \[4, places of a sequence\]"),
        ("tokens", np.ones((4, 2)), "ids of tokens are whole numbers"),
        ("numbers", np.ones(4), "continuous"),
    ],
)
def test_targets_that_are_not_of_their_kind_are_refused(targets, y, message):
    with pytest.raises(ValueError, match=message):
        fs.dataset("toy", np.eye(4), y, targets=targets)


def test_regression_targets_keep_their_numbers_in_every_kind_of_data():
    y = np.array([0.25, -3.5, 7.0, 1.5])
    made = fs.dataset("toy", np.eye(4), y, targets="continuous", test=0.25)
    assert sorted([*made.y, *made.test_y]) == sorted(y)
    drawn = fs.Federation(made, fs.partition.Iid(3)).draw(0)
    assert drawn.targets == "continuous"
    assert sorted(drawn.y) == sorted(made.y)
    assert fs.load("diabetes").targets == "continuous"
    assert len({AbsoluteError(), LabelAccuracy(), TokenAccuracy(), R2()}) == 4


def test_labels_that_begin_at_1_are_said_where_the_model_has_an_output_less():
    x, y = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32), 1 + np.arange(60) % 3
    with pytest.warns(UserWarning, match="renumbers labels"):
        data = fs.dataset("ones", x, y, test=0.2)
    experiment = fs.Experiment(fs.Task.on(fs.models.LogisticRegression(classes=3), data), cohort_size=2, rounds=1)
    clients = fs.Federation(data, fs.partition.Iid(clients=4))
    with pytest.raises(ValueError, match="3 logits an example, but the data has 4 classes; subtract 1 from the labels"):
        fs.simulate(experiment, clients)
