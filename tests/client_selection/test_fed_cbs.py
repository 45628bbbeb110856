"""Fed-CBS: imbalances of the paper's example, and the chances of every sequence of draws in loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection.fed_cbs import FedCBS, FedCBSState, imbalance
from fedjax_sel.types import Cohort, Context

EXAMPLE = np.array([[5] * 6, [6] * 5 + [0], [0, 0, 0, 10, 10, 10], [10, 10, 10, 0, 0, 0]], float)
"""Four clients of 30 examples each, six classes."""


def context(n, m, round=0, available=None):
    available = np.ones(n, bool) if available is None else available
    return Context(jnp.int32(round), jnp.int32(50), jnp.full(n, 30), jnp.asarray(available), cohort_size=m)


def qcid(counts, members):
    """From the inner products of the counts alone, as the source has it."""
    total = sum(counts[i].sum() for i in members)
    inner = sum(float(counts[i] @ counts[j]) for i in members for j in members)
    return inner / total**2 - 1 / counts.shape[1]


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ((0,), 0),
        ((1,), 0.03333),
        ((2,), 0.16667),
        ((3,), 0.16667),
        ((0, 1), 0.00833),
        ((0, 2), 0.04167),
        ((0, 3), 0.04167),
        ((1, 2), 0.03333),
        ((1, 3), 0.06667),
        ((2, 3), 0),
        ((0, 1, 2), 0.01481),
        ((0, 1, 3), 0.02963),
        ((0, 2, 3), 0),
        ((1, 2, 3), 0.0037),
    ],
)
def test_imbalances_of_the_papers_example(members, wanted):
    got = imbalance(jnp.asarray(EXAMPLE[list(members)].sum(0, keepdims=True), jnp.float32))
    assert float(got[0]) == pytest.approx(wanted, abs=1e-5)
    assert qcid(EXAMPLE, members) == pytest.approx(wanted, abs=1e-5)


def chances(counts, members, selected, t, exploration=10.0, beta=1.0, floor=1e-6):
    """Of each client to be drawn next."""
    k, n = len(members) + 1, len(counts)
    weight = np.zeros(n)
    for i in set(range(n)) - set(members):
        q = max(qcid(counts, [*members, i]), floor)
        weight[i] = q ** (-beta * k)
        if k == 1:
            weight[i] += exploration * np.sqrt(3 * np.log(t) / (2 * selected[i]))
    return weight / weight.sum()


def test_after_one_class_half_its_complement_is_as_good_as_certain():
    assert 1 - chances(EXAMPLE, [2], np.ones(4), 1)[3] == pytest.approx(1e-9, rel=0.6)
    state = FedCBSState(jnp.asarray(EXAMPLE, jnp.float32), jnp.ones(4))
    uneven, only = np.arange(4) > 0, np.arange(4) > 1  # client 0, which is even, would be drawn first
    draw = jax.jit(jax.vmap(lambda key: FedCBS().select(key, state, context(4, 2, available=uneven)).client))
    client = np.asarray(draw(jax.random.split(jax.random.key(0), 3000)))
    after = client[client[:, 0] == 2, 1]
    assert len(after) > 300
    assert set(after) == {3}
    cohort = FedCBS().select(jax.random.key(1), state, context(4, 3, available=only))
    assert sorted(cohort.client.tolist()) == [-1, 2, 3]


@pytest.mark.parametrize("round", [0, 7])
@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_sequences_of_draws_have_the_chances_of_the_rule(round, beta):
    """Five clients, three slots: sixty sequences."""
    rng = np.random.default_rng(3)
    counts, selected = rng.integers(0, 9, (5, 3)).astype(float) + 1, rng.integers(1, 6, 5)
    state = FedCBSState(jnp.asarray(counts, jnp.float32), jnp.asarray(selected, jnp.float32))
    draws = 40_000
    select = FedCBS(exploration=2.0, beta=beta, floor=0.02).select
    draw = jax.jit(jax.vmap(lambda key: select(key, state, context(5, 3, round)).client))
    client = np.asarray(draw(jax.random.split(jax.random.key(0), draws)))
    rule = {"selected": selected, "t": round + 1, "exploration": 2.0, "beta": beta, "floor": 0.02}
    for sequence in itertools.permutations(range(5), 3):
        p = np.prod([chances(counts, list(sequence[:k]), **rule)[sequence[k]] for k in range(3)])
        got = (client == np.array(sequence)).all(1).mean()
        assert abs(got - p) < 4.5 * np.sqrt(p * (1 - p) / draws) + 1e-4


def test_everybody_who_was_selected_is_counted():
    state = FedCBSState(jnp.ones((4, 2)), jnp.ones(4))
    cohort = Cohort(jnp.array([2, -1, 0]), jnp.array([True, False, False]), jnp.ones(3))
    after = FedCBS().observe(jax.random.key(0), state, context(4, 3), cohort)
    assert after.selected.tolist() == [2, 1, 2, 1]


def test_cohorts_of_a_skewed_federation_are_more_even_than_uniform_ones(blobs):
    """Each client has one class. Label counts are sent once, three numbers of each client."""
    federation = fs.Federation(blobs, fs.partition.LabelCount(clients=18, labels=1))
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs)
    drawn = federation.draw(0)
    owner, y = np.repeat(np.arange(18), np.asarray(drawn.num_examples)), np.asarray(drawn.y)[np.asarray(drawn.order)]
    counts = np.stack([np.bincount(y[: len(owner)][owner == i], minlength=3) for i in range(18)]).astype(float)
    mean = {}
    for name, selector in (("fed_cbs", FedCBS()), ("uniform", fs.client_selection.Uniform())):
        one = fs.Experiment(task, client_selection=selector, cohort_size=4, rounds=40)
        history = fs.simulate(one, federation, seeds=[0])
        mean[name] = np.mean([qcid(counts, list(cohort)) for cohort in history.selections[0]])
        if name == "fed_cbs":
            assert history["selection_bytes_up"][0].tolist() == [4.0 * 3 * 18] + [0] * 39
    assert mean["fed_cbs"] < 0.5 * mean["uniform"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FedCBS(exploration=-1.0), "fed_cbs: exploration is -1.0; it must be 0 or above"),
        (lambda: FedCBS(floor=0.0), "fed_cbs: floor is 0.0; it must be above 0"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
