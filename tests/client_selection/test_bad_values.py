"""Numbers that are not finite, and settings at the edge of what is allowed, spoil no other client's choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection._inclusion import draw_in_order, draw_systematic
from fedjax_sel.client_selection._stale_chances import renew_chances, weigh_draws
from fedjax_sel.client_selection._unbiased import chances_of_inclusion, draw_unbiased, normalize
from fedjax_sel.client_selection.adapow_d import AdaPowD
from fedjax_sel.client_selection.by_size import BySize
from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling
from fedjax_sel.client_selection.fedcs import FedCS
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.client_selection.importance import Importance
from fedjax_sel.client_selection.k_vib import KVib
from fedjax_sel.client_selection.md import MD
from fedjax_sel.kernels.facility_location import count_clusters, count_served, locate_in_groups, swap_medoids
from fedjax_sel.kernels.matching_pursuit import pursue
from fedjax_sel.signals.double_greedy import RUINED, double_greedy
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, many, members

BAD = (np.nan, np.inf)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("available", [True, False])
def test_importance_of_the_others_is_as_without_the_client(bad, available):
    ctx = context(np.full(6, 10), 2, available=[True] * 5 + [available])
    drawn = [
        inclusion(many(Importance(), (), ctx, 4000, gradient_norm=jnp.array([1.0, 2, 3, 2, 1, last])), 6)
        for last in (0.0, bad)
    ]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("bad", BAD)
def test_chances_of_inclusion_are_those_of_the_others(bad):
    np.testing.assert_array_equal(
        chances_of_inclusion(jnp.array([1.0, 2, 3, bad]), 2), chances_of_inclusion(jnp.array([1.0, 2, 3, 0]), 2)
    )


@pytest.mark.parametrize("bad", BAD)
def test_probabilities_are_renewed_for_the_other_members(bad):
    chance, client = jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([0, 1, 2])
    found = renew_chances(chance, client, jnp.ones(3, bool), jnp.array([1.0, 1.0, bad]))
    np.testing.assert_allclose(found, [0.15, 0.15, 0.3, 0.4], rtol=1e-6)


@pytest.mark.parametrize("bad", BAD)
def test_what_a_bandit_knows_stays_finite(bad):
    ctx, who = context(np.full(4, 10), 2), cohort([0, 1])
    vib = KVib()
    state = vib.observe(KEY, vib.init(KEY, ctx, HOST), ctx, who, update_norm=jnp.array([1.0, bad]))
    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state)])).all()
    assert float(state.total[0]) > 0
    told = {"validation_accuracy": jnp.float32(0.5), "validation_loss": jnp.float32(1.0)}
    gpfl = GPFL()
    state = gpfl.observe(KEY, gpfl.init(KEY, ctx, HOST), ctx, who, projection=jnp.array([1.0, bad]), **told)
    assert np.isfinite(state.total).all()
    assert state.selected.tolist() == [1, 1, 0, 0]
    before = state._replace(loss=jnp.float32(1e4))
    after = gpfl.observe(KEY, before, ctx, who, projection=jnp.ones(2), **told)
    assert np.isfinite(after.total).all()


@pytest.mark.parametrize("bad", BAD)
def test_facilities_are_those_of_the_other_points(bad):
    x = jnp.array([0.0, 1, 2, 10, 11, 12, bad])
    distance = jnp.abs(x[:, None] - x[None])
    one = jnp.zeros(7, jnp.int32)
    chosen = locate_in_groups(KEY, distance, one, jnp.ones(7, bool), jnp.ones(7, bool), jnp.array([2]))
    assert set(np.flatnonzero(chosen >= 0)) < set(range(6))
    assert (chosen >= 0).sum() == 2


def test_medoids_and_their_clusters_are_those_of_the_other_points():
    x = jnp.array([0.0, 1, 2, 10, 11])
    one, start = jnp.zeros(6, jnp.int32), jnp.array([0, 0, 1, 1, 0, 0], bool)
    there = jnp.append(x, jnp.nan)
    distance, served = jnp.abs(there[:, None] - there[None]), jnp.ones(6, bool)
    alone = jnp.abs(x[:, None] - x[None])
    expected = swap_medoids(alone, start[:5], one[:5], served[:5], 1)
    found = swap_medoids(distance, start, one, served, 1)
    np.testing.assert_array_equal(found, [*expected, False])
    assert found.nonzero()[0].tolist() == [1, 3]
    np.testing.assert_array_equal(count_clusters(distance, found, one, served), [0, 3, 0, 2, 0, 0])
    np.testing.assert_array_equal(count_served(distance, jnp.array([1, 3]), jnp.ones(2, bool), served), [3, 2])


@pytest.mark.parametrize("bad", BAD)
def test_vectors_that_cannot_be_chosen_do_not_count(bad):
    g = jnp.array([[1.0, 0], [0, 1], [1, 1], [bad, bad]])
    allowed = jnp.arange(4) < 3
    expected = pursue(g[:3], jnp.array([1.0, 2]), allowed[:3], 2)
    found = pursue(g, jnp.array([1.0, 2]), allowed, 2)
    np.testing.assert_allclose(found[0][:3], expected[0], rtol=1e-5)
    np.testing.assert_array_equal(found[1], [*expected[1], False])


def test_a_member_that_ruins_the_model_is_dropped_and_the_others_stay():
    worth = jnp.array([1.0, 2.0, 0.0, 1.5])

    def value(members):
        return jnp.where(members[2] > 0, RUINED, members @ worth)

    assert double_greedy(value, KEY, jnp.ones(4), randomized=False).tolist() == [1, 1, 0, 1]


def test_systematic_draws_are_as_many_as_asked_for_and_of_nobody_without_a_chance():
    """Sums of 100,000 probabilities in float32, in XLA's order, may fall."""
    n, m = 100_000, 1000
    rng = np.random.default_rng(0)
    size = np.where(rng.random(n) < 0.1, rng.integers(10, 1000, n), 0)
    target = normalize(jnp.asarray(size, jnp.float32))

    @jax.jit
    def draw(target, keys):  # an argument, as XLA takes half a minute to fold sorts of a constant
        pi = chances_of_inclusion(target, m)
        return jax.lax.map(
            lambda key: (
                draw_unbiased(key, target, target, m, replacement=False).client,
                draw_systematic(key, pi).sum(),
                (draw_in_order(key, pi)[1] & (pi[draw_in_order(key, pi)[0]] == 0)).any(),
            ),
            keys,
        )

    client, count, wrong = draw(target, jax.random.split(jax.random.key(1), 60))
    assert (size[client] > 0).all()
    assert count.tolist() == [m] * 60
    assert not wrong.any()


def test_weights_of_large_cohorts_of_large_federations_are_positive():
    n, m = 1_000_000, 3000
    weight = weigh_draws(jnp.arange(m), jnp.full(n, 1e-6), context(np.ones(n), m)).weight
    np.testing.assert_allclose(weight, 1 / m, rtol=1e-4)


def test_candidates_of_long_runs_fall_as_those_of_short_ones():
    selector = AdaPowD(d=50_000 - 1)
    ctx = context(np.ones(60_000), 1, round=49_000, rounds=50_000)
    asked = (selector.candidates(KEY, (), ctx) >= 0).sum()
    assert asked == pytest.approx(49_999 - 49_998 * 49_000 / 49_999, abs=2)


@pytest.mark.parametrize("selector", [ClusteredSampling(by="size"), BySize(replacement=True), MD()], ids=str)
@pytest.mark.parametrize("sizes", [[5, 0, 5, 0], [0, 5, 5, 0]])
def test_if_nobody_who_is_available_has_examples_nobody_is_drawn(selector, sizes):
    ctx = context(sizes, 2, available=[sizes[0] == 0, False, False, True])
    assert members(selector.select(KEY, selector.init(KEY, ctx, HOST), ctx)) == []


def test_the_smallest_fraction_asks_one_client():
    ctx = context(np.ones(100), 5, seconds=np.ones(100))
    assert len(members(FedCS(fraction=1e-6).select(KEY, (), ctx))) == 1
