"""DELTA and FedIS: chances by hand, the practical rule in loops, expected aggregates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection._stale_chances import renew_chances
from fedjax_sel.client_selection.delta import Delta
from fedjax_sel.client_selection.fedis import FedIS
from fedjax_sel.engine.cohort import merge_duplicates
from fedjax_sel.protocols import Host
from fedjax_sel.types import Cohort, Context

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""

KEYS = jax.random.split(jax.random.key(0), 40_000)
G = jnp.array([[1.0, 0], [0, 1], [-1, 0], [3, 4]])
NOISE = jnp.array([0.5, 1, 2, 1])


def context(n, m, available=None, candidates=None):
    available = np.ones(n, bool) if available is None else available
    ctx = Context(jnp.int32(3), jnp.int32(9), jnp.full(n, 10), jnp.asarray(available), cohort_size=m)
    return ctx.replace(candidates=candidates)


def test_scores_by_hand():
    """The mean is (0.75, 1.25)."""
    score = Delta().score(G, NOISE, jnp.ones(4, bool))
    zeta = [1.274755, 0.790569, 2.150581, 3.553168]
    np.testing.assert_allclose(Delta(1.0, 0.0).score(G, NOISE, jnp.ones(4, bool)), zeta, rtol=1e-5)
    np.testing.assert_allclose(score / score.sum(), [0.158529, 0.114154, 0.289433, 0.437885], atol=1e-6)


def test_the_score_of_some_is_about_their_mean():
    mask = jnp.array([True, False, True, False])
    got = Delta(1.0, 0.0).score(G, NOISE, mask)
    np.testing.assert_allclose(got, [1, 0, 1, 0], atol=1e-6)  # their mean is 0


def test_the_codes_score_has_parts_of_the_examples():
    size = jnp.array([10, 10, 20, 40])
    got = Delta(0.6, 0.4, variant="code").score(G, size, jnp.ones(4, bool))
    mean, part = np.mean(G, axis=0), np.array([1, 1, 2, 4]) / 8
    wanted = [0.6 * part[i] * np.linalg.norm(G[i] - mean) + 0.4 * np.sqrt(part[i]) for i in range(4)]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_the_codes_draws_weigh_their_share_of_the_cohort_over_n_times_their_probability():
    """As its `comm_helpers`: `l_i / (N p_i) / Σ_S l`."""
    size, selector = np.array([10, 10, 20, 40]), Delta(0.6, 0.4, variant="code")
    everyone = context(4, 2).replace(num_examples=jnp.asarray(size))
    some = everyone.replace(available=jnp.array([True, False, True, True]))
    for key, ctx, n in [(key, *one) for key in KEYS[:8] for one in ((everyone, 4), (some, 3))]:
        score = np.asarray(selector.score(G, ctx.num_examples, ctx.available))
        cohort = selector.select(key, selector.init(key, ctx, HOST), ctx, gradient=G)
        who = np.asarray(cohort.client)
        wanted = size[who] / size[who].sum() / (n * (score / score.sum())[who])
        np.testing.assert_allclose(cohort.weight, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("selector", "told", "chance"),
    [
        (
            Delta(gradients="all"),
            {"gradient": G, "local": NOISE},
            [0.158529, 0.114154, 0.289433, 0.437885],
        ),
        (FedIS(gradients="all"), {"gradient_norm": jnp.linalg.norm(G, axis=1)}, [0.125, 0.125, 0.125, 0.625]),
    ],
    ids=["delta", "fedis"],
)
def test_with_everybodys_gradients_chances_are_those_by_hand_and_the_sum_is_unbiased(selector, told, chance):
    m, delta = 3, np.array([[1.0, 2], [3, -1], [0, 5], [2, 2]])
    state = selector.init(KEYS[0], context(4, m), HOST)
    draw = jax.jit(jax.vmap(lambda key: selector.select(key, state, context(4, m), **told)))
    cohort = draw(KEYS)
    client, weight = np.asarray(cohort.client), np.asarray(cohort.weight, float)
    np.testing.assert_allclose(np.bincount(client.ravel(), minlength=4) / client.size, chance, atol=0.006)
    np.testing.assert_allclose(weight, 1 / (m * 4 * np.array(chance)[client]), rtol=1e-4)
    each = np.einsum("tk,tkp->tp", weight, delta[client])
    assert (np.abs(each.mean(0) - delta.mean(0)) < 4.5 * each.std(0) / np.sqrt(len(KEYS))).all()


@pytest.mark.parametrize("selector", [Delta(), FedIS()], ids=["delta", "fedis"])
@pytest.mark.parametrize("some", [False, True])
def test_with_stale_chances_the_sum_is_unbiased_over_those_available(selector, some):
    n, m, rng = 7, 3, np.random.default_rng(0)
    p, delta = rng.dirichlet(np.ones(n)).astype(np.float32), rng.normal(size=(n, 2))
    available = np.arange(n) % 3 != 0 if some else np.ones(n, bool)
    ctx = context(n, m, available)

    def draw(key):
        asked = ctx.replace(candidates=selector.candidates(key, jnp.asarray(p), ctx))
        gradient, norm = jnp.zeros((m, 2)), jnp.zeros(m)
        told = {"gradient": gradient, "local": norm} if isinstance(selector, Delta) else {"gradient_norm": norm}
        return merge_duplicates(selector.select(key, jnp.asarray(p), asked, **told))

    cohort = jax.jit(jax.vmap(draw))(KEYS)
    each = np.einsum("tk,tkp->tp", np.asarray(cohort.weight, float), delta[np.asarray(cohort.client)])
    error = each.std(0) / np.sqrt(len(KEYS))
    assert (np.abs(each.mean(0) - delta[available].mean(0)) < 4.5 * error).all()
    assert set(np.unique(cohort.client)) <= {*np.flatnonzero(available), -1}


def renewed(p, members, score):
    """The practical rule, in loops."""
    new, left = list(p), 1 - sum(p[j] for j in range(len(p)) if j not in members)
    for i in members:
        new[i] = score[i] / sum(score[j] for j in members) * left
    return new


@pytest.mark.parametrize("seed", range(5))
def test_members_share_the_chances_that_they_had_together(seed):
    n, m, rng = 9, 4, np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n))
    gradient, noise = rng.normal(size=(n, 3)), rng.uniform(0.1, 2, n)
    drawn = jnp.array([2, 7, 2, 5])
    cohort = merge_duplicates(Cohort(drawn, jnp.ones(m, bool), jnp.ones(m)))
    members = [2, 7, 5]
    ctx = context(n, m, candidates=drawn)
    mean = gradient[members].mean(0)
    score = {i: np.sqrt(0.8 * ((gradient[i] - mean) ** 2).sum() + 0.2 * noise[i] ** 2) for i in members}
    asked = jnp.asarray(gradient[np.asarray(drawn)], jnp.float32)
    told = {"gradient": asked, "local": jnp.asarray(noise[np.asarray(drawn)], jnp.float32)}
    got = Delta().observe(KEYS[0], jnp.asarray(p, jnp.float32), ctx, cohort, **told)
    np.testing.assert_allclose(got, renewed(p, members, score), rtol=1e-4)
    assert float(got.sum()) == pytest.approx(1, abs=1e-5)

    norm = np.linalg.norm(gradient, axis=1)
    got = FedIS().observe(
        KEYS[0],
        jnp.asarray(p, jnp.float32),
        ctx,
        cohort,
        gradient_norm=jnp.asarray(norm[np.asarray(drawn)], jnp.float32),
    )
    np.testing.assert_allclose(got, renewed(p, members, norm), rtol=1e-4)


def test_a_member_that_did_not_come_back_keeps_its_chance_and_scores_of_0_change_nothing():
    p, client = jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([3, 0, 1])
    got = renew_chances(p, client, jnp.array([True, False, True]), jnp.array([1.0, 9.0, 2.0]))
    np.testing.assert_allclose(got, [0.1, 0.4, 0.3, 0.2], rtol=1e-6)
    np.testing.assert_allclose(renew_chances(p, client, jnp.ones(3, bool), jnp.zeros(3)), p)


@pytest.mark.parametrize(
    ("selector", "asked", "numbers"),
    [
        (Delta(sketch=6), "members", 6 + 1),
        (Delta(variant="code", sketch=6), "all", 6),
        (FedIS(), "members", 1),
        (FedIS(gradients="all"), "all", 1),
    ],
)
def test_only_members_are_asked_and_billed_unless_everybody_is(blobs, selector, asked, numbers):
    clients, m = 10, 3
    one = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=selector,
        aggregation=fs.aggregation.Mean("cohort"),
        cohort_size=m,
        rounds=5,
    )
    history = fs.simulate(one, fs.Federation(blobs, fs.partition.Dirichlet(clients=clients, alpha=1.0)), seeds=2)
    members = (np.asarray(history.selections) >= 0).sum(2)
    np.testing.assert_array_equal(history["selection_bytes_up"], 4 * numbers * (clients if asked == "all" else members))
    if asked == "members":
        np.testing.assert_array_equal(history["selection_bytes_down"], 0)  # they get the model anyway
    assert np.isfinite(history["loss"]).all()


def test_gradients_are_those_that_were_asked_for():
    before = Delta(batch_size=8).signals().before
    assert before == {"gradient": fs.signals.Gradient(), "local": fs.signals.GradientNoise(8)}
    everyone = Delta(gradients="all", sketch=6)
    assert everyone.signals().before["gradient"] == fs.signals.Gradient(6)
    assert everyone.candidates(KEYS[0], jnp.full(4, 0.25), context(4, 2)) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Delta(alpha1=-1.0), "delta: alpha1 is -1.0; it must be 0 or above"),
        (lambda: Delta(gradients="some"), "delta: gradients"),
        (lambda: FedIS(gradients="some"), "fedis: gradients"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_counts_as_none(strange):
    """It decides neither the chances of the others nor is it drawn, and the run hears of it."""
    ctx, norms = context(4, 2), jnp.array([100.0, 1, 1, strange])
    drawn = jax.vmap(lambda key: FedIS("all").select(key, jnp.full(4, 0.25), ctx, gradient_norm=norms))(KEYS[:2000])
    share = np.bincount(np.asarray(drawn.client).ravel(), minlength=4) / 4000
    np.testing.assert_allclose(share, [100 / 102, 1 / 102, 1 / 102, 0], atol=0.01)
    assert (drawn.nan_scores == 1).all()
    wild = G.at[3, 0].set(strange)
    some = Delta().score(G[:3], NOISE[:3], jnp.ones(3, bool))
    np.testing.assert_allclose(Delta().score(wild, NOISE, jnp.ones(4, bool)), [*some, np.nan], rtol=1e-6)
    for selector in (Delta(gradients="all"), Delta(variant="code")):
        told = {} if selector.variant == "code" else {"local": NOISE}
        one = selector.select(KEYS[0], selector.init(KEYS[0], ctx, HOST), ctx, gradient=wild, **told)
        assert 3 not in one.client
        assert np.isfinite(one.weight).all()
        assert int(one.nan_scores) == 1
