"""Losses and metrics against optax, scikit-learn and formulas."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import metrics as oracle

from fedjax_sel.task import losses, metrics
from fedjax_sel.task.losses import LOSSES
from fedjax_sel.task.metrics import METRICS

RNG = np.random.default_rng(0)
LOGITS = jnp.asarray(2 * RNG.normal(size=(40, 4)), jnp.float32)
HALVES = LOGITS[:, :2], LOGITS[:, 2:]
Y = jnp.asarray(RNG.integers(0, 3, 40), jnp.int32)  # the last class has no example
NUMBERS = jnp.asarray(RNG.normal(size=40), jnp.float32)
LABELS = jnp.asarray(RNG.integers(0, 2, (40, 4)), jnp.int32)
TOKENS = jnp.asarray(RNG.integers(0, 4, (8, 5)), jnp.int32)
PLACES = jnp.asarray(RNG.normal(size=(8, 5, 4)), jnp.float32)


def value(metric, outputs, targets):
    """The metric of two blocks of examples: of their sums, or of all values, with some that do not count."""
    blocks = [(outputs[:13], targets[:13]), (outputs[13:], targets[13:])]
    if metric.needs_all:
        several = [metric.measure(*one) for one in (*blocks, blocks[0])]
        values = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *several)
        counted = jnp.arange(len(jax.tree.leaves(values)[0])) < len(outputs)
        return np.asarray(metric.reduce(values, counted))
    sums = [jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32).sum(0), metric.measure(*one)) for one in blocks]
    return np.asarray(metric.compute(jax.tree.map(jnp.add, *sums), float(len(outputs))))


def token_loss(pad=0):
    whole = optax.softmax_cross_entropy_with_integer_labels(PLACES, TOKENS)
    return [whole[i][TOKENS[i] != pad].mean() for i in range(len(TOKENS))]


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "expected"),
    [
        (losses.CrossEntropy(), LOGITS, Y, lambda: optax.softmax_cross_entropy_with_integer_labels(LOGITS, Y)),
        (
            losses.LabelSmoothing(0.2),
            LOGITS,
            Y,
            lambda: optax.softmax_cross_entropy(LOGITS, 0.8 * jax.nn.one_hot(Y, 4) + 0.2 / 4),
        ),
        (losses.Focal(0.0), LOGITS, Y, lambda: optax.softmax_cross_entropy_with_integer_labels(LOGITS, Y)),
        (  # of two classes it is optax's, of their difference
            losses.Focal(2.0),
            LOGITS[:, :2],
            Y % 2,
            lambda: optax.sigmoid_focal_loss(LOGITS[:, 1] - LOGITS[:, 0], Y % 2, gamma=2.0),
        ),
        (losses.SquaredError(), LOGITS[:, :1], NUMBERS, lambda: (np.asarray(LOGITS)[:, 0] - np.asarray(NUMBERS)) ** 2),
        (losses.SquaredError(), LOGITS[:, :1], NUMBERS[:, None], lambda: optax.squared_error(LOGITS[:, 0], NUMBERS)),
        (losses.SquaredError(), *HALVES, lambda: optax.squared_error(*HALVES).mean(1)),
        (losses.Huber(0.5), LOGITS[:, :1], NUMBERS, lambda: optax.huber_loss(LOGITS[:, 0], NUMBERS, delta=0.5)),
        (losses.Huber(0.5), *HALVES, lambda: optax.huber_loss(*HALVES, delta=0.5).mean(1)),
        (
            losses.BinaryCrossEntropy(),
            LOGITS,
            LABELS,
            lambda: optax.sigmoid_binary_cross_entropy(LOGITS, LABELS.astype(float)).mean(1),
        ),
        (losses.NextToken(), PLACES, TOKENS, token_loss),
        (losses.NextToken(pad=3), PLACES, TOKENS, lambda: token_loss(3)),
    ],
)
def test_a_loss_is_that_of_optax(loss, outputs, targets, expected):
    np.testing.assert_allclose(loss(outputs, targets), np.asarray(expected()), rtol=1e-5, atol=1e-6)


def test_a_focal_loss_has_a_finite_gradient_where_the_model_is_sure():
    gradient = jax.grad(lambda z: losses.Focal(0.5)(z, jnp.array([0])).sum())(jnp.array([[200.0, 0.0]]))
    assert np.isfinite(gradient).all()


def calibration_error(bins):
    p = np.asarray(jax.nn.softmax(LOGITS))
    sure, right = p.max(1), p.argmax(1) == np.asarray(Y)
    edges = np.linspace(0, 1, bins + 1)
    inside = [(sure > low) & (sure <= high) for low, high in itertools.pairwise(edges)]
    return sum(m.mean() * abs(right[m].mean() - sure[m].mean()) for m in inside if m.any())


SAID = np.asarray(LOGITS).argmax(1)
ABSENT = LOGITS.at[:, 3].set(-9.0)
"""Outputs that never say the class of which there is no example."""
OVER = (np.asarray(LOGITS) > 0).astype(int)


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "expected"),
    [
        (metrics.Accuracy(), LOGITS, Y, lambda: oracle.accuracy_score(Y, SAID)),
        (metrics.F1(), LOGITS, Y, lambda: oracle.f1_score(Y, SAID, average="macro")),
        (metrics.F1(), ABSENT, Y, lambda: oracle.f1_score(Y, np.asarray(ABSENT).argmax(1), average="macro")),
        (
            metrics.F1("none"),
            ABSENT,
            Y,
            lambda: [*oracle.f1_score(Y, np.asarray(ABSENT).argmax(1), average=None), np.nan],
        ),
        (metrics.F1("micro"), LOGITS, Y, lambda: oracle.f1_score(Y, SAID, average="micro")),
        (
            metrics.F1("none"),
            LOGITS,
            Y,
            lambda: oracle.f1_score(Y, SAID, average=None, labels=range(4), zero_division=0),
        ),
        (metrics.F1(), LOGITS, LABELS, lambda: oracle.f1_score(LABELS, OVER, average="macro")),
        (metrics.LabelAccuracy(), LOGITS, LABELS, lambda: 1 - oracle.hamming_loss(np.asarray(LABELS), OVER)),
        (
            metrics.ClassAccuracy(),
            LOGITS,
            Y,
            lambda: [*oracle.recall_score(Y, SAID, average=None, labels=range(3)), np.nan],
        ),
        (metrics.CalibrationError(10), LOGITS, Y, lambda: calibration_error(10)),
        (metrics.AbsoluteError(), LOGITS[:, :1], NUMBERS, lambda: oracle.mean_absolute_error(NUMBERS, LOGITS[:, 0])),
        (metrics.AbsoluteError(), *HALVES, lambda: oracle.mean_absolute_error(*HALVES)),
        (metrics.R2(), LOGITS[:, :1], NUMBERS, lambda: oracle.r2_score(NUMBERS, LOGITS[:, 0])),
        (metrics.R2(), *HALVES, lambda: oracle.r2_score(*reversed(HALVES))),
    ],
)
def test_a_metric_of_added_sums_is_that_of_scikit_learn_of_all_examples(metric, outputs, targets, expected):
    np.testing.assert_allclose(value(metric, outputs, targets), np.asarray(expected()), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("number", [0.1, 7.3, -1e3])
def test_targets_that_are_all_the_same_have_no_coefficient_of_determination(number):
    """The difference of their sums is rounding, of either sign."""
    same, varied = jnp.full((7, 1), number), LOGITS[:7, :1]
    assert np.isnan(value(metrics.R2(), varied, same))
    both = jnp.concatenate([same, 2 * varied], 1)
    got = value(metrics.R2(), jnp.concatenate([varied, varied], 1), both)
    np.testing.assert_allclose(got, oracle.r2_score(2 * varied, varied), rtol=2e-5)


ODDS = jax.scipy.special.logit(np.asarray(jax.nn.softmax(LOGITS), np.float64))


@pytest.mark.parametrize("average", ["macro", "none"])
@pytest.mark.parametrize(
    ("outputs", "targets", "scores", "there"),
    [(LOGITS, Y, ODDS, np.eye(4)[np.asarray(Y)]), (LOGITS, LABELS, LOGITS, np.asarray(LABELS))],
    ids=["classes", "labels"],
)
def test_an_area_under_the_curve_is_that_of_scikit_learn(outputs, targets, scores, there, average):
    def areas(scores):
        some = there.any(0)  # the last class of `Y` has no example
        out = np.full(4, np.nan)
        out[some] = [oracle.roc_auc_score(there[:, c], scores[:, c]) for c in np.flatnonzero(some)]
        return np.nanmean(out) if average == "macro" else out

    np.testing.assert_allclose(value(metrics.AUC(average), outputs, targets), areas(scores), rtol=1e-6)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1e-5), (15, 1), (-30, 0.02)])
def test_an_area_is_that_of_scikit_learn_however_near_or_far_the_scores(shift, scale):
    rng = np.random.default_rng(3)
    labels = rng.random(3000) < 0.2
    scores = (shift + scale * np.round(labels + rng.normal(size=3000), 2)).astype(np.float32)  # some are equal
    found = value(metrics.AUC(), jnp.asarray(scores)[:, None], jnp.asarray(labels, jnp.int32)[:, None])
    np.testing.assert_allclose(found, oracle.roc_auc_score(labels, scores), rtol=2e-6)


def test_a_metric_with_a_reduce_of_its_own_needs_all_values():
    class Last(metrics.Metric):
        def measure(self, outputs, targets):
            return outputs[:, 0]

        def reduce(self, values, mask=None):
            return values[-1]

    assert [one.needs_all for one in (Last(), metrics.AUC(), metrics.R2(), metrics.F1())] == [True, True, True, False]


def test_two_classes_have_the_one_area_of_their_difference():
    expected = oracle.roc_auc_score(np.asarray(Y) % 2, np.asarray(LOGITS[:, 1] - LOGITS[:, 0]))
    np.testing.assert_allclose(value(metrics.AUC("none"), LOGITS[:, :2], Y % 2), expected, rtol=1e-6)


@pytest.mark.parametrize(("mean", "deviation"), [(900, 1), (-1998, 4), (0, 1e-3)])
def test_a_coefficient_of_targets_far_from_0_is_that_of_scikit_learn(mean, deviation):
    rng = np.random.default_rng(4)
    targets = (mean + deviation * rng.normal(size=100_000)).astype(np.float32)
    outputs = (targets + 0.7 * deviation * rng.normal(size=100_000)).astype(np.float32)
    found = value(metrics.R2(), jnp.asarray(outputs)[:, None], jnp.asarray(targets))
    np.testing.assert_allclose(found, oracle.r2_score(targets.astype(float), outputs.astype(float)), atol=2e-4)


def test_an_area_of_scores_that_are_nan_is_nan_and_infinite_scores_rank_last_and_first():
    assert np.isnan(value(metrics.AUC(), LOGITS.at[0, 0].set(jnp.nan), Y))
    scores = jnp.array([[jnp.inf], [-jnp.inf], [1e30], [0.0]] * 5)
    assert value(metrics.AUC(), scores, jnp.array([[1], [0], [1], [0]] * 5)) == 1


@pytest.mark.parametrize("pad", [0, 3])
def test_the_accuracy_of_tokens_leaves_padding_out(pad):
    accuracy, counts = metrics.TokenAccuracy(pad), np.asarray(TOKENS) != pad
    sums = jax.tree.map(lambda leaf: leaf.sum(0), accuracy.measure(PLACES, TOKENS))
    expected = oracle.accuracy_score(np.asarray(TOKENS)[counts], np.asarray(PLACES).argmax(-1)[counts])
    np.testing.assert_allclose(accuracy.compute(sums, 8.0), expected, rtol=1e-6)


def test_all_names_of_losses_and_metrics_are_values_that_compare_equal():
    for cls in (*LOSSES.values(), *METRICS.values()):
        assert cls() == cls()
        assert hash(cls()) == hash(cls())


def test_classes_that_cannot_be_are_no_reason_for_a_loss_that_is_no_number():
    """A model may exclude classes by a logit of -∞."""
    outputs, y = jnp.array([[1.0, -jnp.inf, 2.0], [0.0, 3.0, -jnp.inf]]), jnp.array([0, 1])
    expected = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    np.testing.assert_allclose(losses.CrossEntropy()(outputs, y), expected, rtol=1e-6)
    gradient = jax.grad(lambda z: losses.CrossEntropy()(z, y).sum())(outputs)
    p = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(gradient, p - np.eye(3)[y], atol=1e-6)


def test_sequences_of_padding_alone_have_no_accuracy():
    sums = jax.tree.map(lambda leaf: leaf.sum(0), metrics.TokenAccuracy().measure(PLACES, jnp.zeros_like(TOKENS)))
    assert np.isnan(metrics.TokenAccuracy().compute(sums, 8.0))


def test_a_label_that_nobody_has_is_left_out_of_the_mean():
    labels = np.array([[1, 0], [1, 0], [0, 0]])
    sums = jax.tree.map(lambda a: a.sum(0), metrics.F1().measure(jnp.asarray(2.0 * labels - 1), jnp.asarray(labels)))
    expected = oracle.f1_score(labels, labels, average="macro", zero_division=np.nan)
    assert metrics.F1().compute(sums, 3) == expected == 1


def test_who_has_no_largest_output_is_neither_right_nor_wrong():
    nan = jnp.full((3, 4), jnp.nan)
    y, several = jnp.array([0, 1, 0]), jnp.ones((3, 4), int)
    for metric, targets in (
        (metrics.Accuracy(), y),
        (metrics.ClassAccuracy(), y),
        (metrics.F1(), y),
        (metrics.F1(average="micro"), several),
        (metrics.LabelAccuracy(), several),
        (metrics.R2(), jnp.arange(12.0).reshape(3, 4)),
        (metrics.R2(), jnp.arange(12.0).reshape(3, 4) * jnp.array([[1.0, 1.0, 1.0, 0.0]])),
    ):
        assert np.isnan(np.asarray(metric.reduce(metric.measure(nan, targets)))).all(), metric
    tokens = metrics.TokenAccuracy().measure(nan[None], jnp.array([[1, 2, 0]]))
    assert np.isnan(metrics.TokenAccuracy().compute(jax.tree.map(lambda leaf: leaf.sum(0), tokens), 1.0))
    padding = metrics.TokenAccuracy().measure(nan.at[:2].set(1.0).at[:2, 1].set(2.0)[None], jnp.array([[1, 2, 0]]))
    assert padding["right"].tolist() == [1.0], "of an output for padding nothing is asked"
