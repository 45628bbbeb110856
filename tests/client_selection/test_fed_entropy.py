"""FedEntropy: who is drawn, who is accepted by maximum entropy, and what is remembered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

from fedjax_sel import Experiment, Federation, Task, partition, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.fed_entropy import FedEntropy, judge
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from tests.client_selection.rounds import KEY, cohort, context, inclusion, many, members


def judge_by_hand(soft, size):
    """Maximum entropy judgment: the one without whom the entropy rises most goes, until it rises no more."""
    left = list(range(len(soft)))

    def of(group):
        return entropy(sum(size[i] * soft[i] for i in group) / sum(size[i] for i in group))

    while len(left) > 1:
        without = {j: of([i for i in left if i != j]) for j in left}
        worst = max(left, key=lambda j: without[j])
        if without[worst] <= of(left):
            break
        left.remove(worst)
    return left


def accepted(soft, size, mask=None):
    slots = len(soft)
    ctx = context(size, slots)
    one = cohort(np.arange(slots), mask)
    soft = jnp.asarray(soft, jnp.float32)
    return members(FedEntropy().accept(KEY, jnp.ones(slots), ctx, one, soft_labels=soft))


def test_the_example_by_hand():
    """Without client 1 the entropy is largest; then none of three is better off without another."""
    soft = [[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    np.testing.assert_allclose(entropy(np.mean(soft, 0), base=2), 1.557924, atol=1e-6)
    assert accepted(soft, [5, 5, 5, 5]) == [0, 2, 3]
    assert accepted(soft, [5, 5, 5, 5], [True, False, True, True]) == [0, 2, 3]
    assert accepted(soft, [5, 5, 5, 5], [False, True, False, False]) == [1]
    assert accepted(soft, [5, 5, 5, 5], [False] * 4) == []


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_member_whose_soft_labels_are_not_finite_is_rejected_and_the_rest_judged(strange):
    soft = [[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [strange, 0.5, 0.5]]
    assert accepted(soft, [5] * 5) == [0, 2, 3]


def test_judgment_follows_the_rule_over_random_soft_labels_and_sizes():
    rng, taken_away = np.random.default_rng(0), []
    for _ in range(60):
        m, classes = rng.choice([2, 4, 7]), rng.choice([2, 5])  # few shapes, each compiled once
        soft, size = rng.dirichlet(np.full(classes, 0.3), m), rng.integers(1, 50, m)
        left = accepted(soft, size)
        assert left == judge_by_hand(soft, size)
        taken_away.append(m - len(left))
    assert 0 in taken_away
    assert max(taken_away) > 2


def test_equal_predictions_are_all_accepted():
    """Whatever rounding makes of their entropies."""
    for m in range(1, 12):
        soft = jnp.full((m, 3), jnp.array([0.1, 0.2, 0.7])) * 3
        assert bool(judge(soft, jnp.ones(m, bool)).all())


def test_accepted_clients_gain_one_and_others_lose_half():
    """By hand: 0 accepted, 2 taken away, 4 returned nothing, 1 and 3 not selected."""
    state = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
    one = cohort([0, 2, 4, -1], [True, False, False, False])
    soft = jnp.array([[0.5, 0.5], [0.2, 0.8], [0, 0], [0, 0]])
    assert FedEntropy().observe(KEY, state, context(np.ones(5), 4), one, soft_labels=soft).tolist() == [2, 2, 1.5, 4, 5]


def test_clients_are_drawn_in_proportion_to_their_values_or_uniformly():
    value, draws = np.array([1.0, 2.0, 5.0, 0.0]), 20000
    ctx = context(np.ones(4), 1)
    for epsilon in (0.0, 0.25, 1.0):
        got = inclusion(many(FedEntropy(epsilon), jnp.asarray(value), ctx, draws), 4)
        expected = (1 - epsilon) * value / value.sum() + epsilon / 4
        np.testing.assert_allclose(got, expected, atol=4.5 * 0.5 / np.sqrt(draws))


def test_a_run_bills_soft_labels_of_all_members_and_models_of_the_accepted(blobs):
    experiment = Experiment(
        Task.on(LogisticRegression(classes=3), blobs),
        client_selection=FedEntropy(),
        local_training=SGD(batch_size=8),
        aggregation=Mean("size"),
        cohort_size=5,
        rounds=6,
    )
    history = simulate(experiment, Federation(blobs, partition.ClientDirichlet(clients=20, alpha=0.1)), seeds=2)
    model = 4 * (2 * 3 + 3)
    uploads = history["bytes_up"] / model
    assert set(np.unique(uploads)) <= set(range(1, 6))
    assert (uploads < 5).any()
    np.testing.assert_array_equal(history["selection_bytes_up"], 4 * 3 * 5)
    assert (history["selection_flops"] > 0).all()


def test_a_chance_outside_0_and_1_is_refused():
    with pytest.raises(ValueError, match=r"fed_entropy: epsilon is 2.0; it must be in \[0, 1\]"):
        FedEntropy(2.0)


def test_values_that_were_halved_for_long_do_not_break_the_draw():
    state = jnp.full(6, 1e-44).at[2].set(0.0)
    drawn = FedEntropy(0.0).select(jax.random.key(1), state, context(np.ones(6), 6))
    assert sorted(members(drawn)) == list(range(6))
