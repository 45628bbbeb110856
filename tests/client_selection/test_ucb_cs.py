"""UCB-CS: discounted sums and indices, against sums over the whole past."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.ucb_cs import UCBCS
from tests.client_selection.rounds import HOST, KEY, cohort, context, members


def observe(selector, state, ctx, one, mean, deviation):
    mean, deviation = np.asarray(mean, np.float32), np.asarray(deviation, np.float32)
    rms = np.sqrt(mean**2 + deviation**2)
    return selector.observe(KEY, state, ctx, one, training_loss=jnp.asarray(mean), training_loss_rms=jnp.asarray(rms))


@pytest.mark.parametrize("gamma", [0.7, 1.0])
def test_indices_are_those_of_sums_over_all_past_rounds(gamma):
    """L_i = Σ γ^(t-τ) 1[i ∈ S_τ] ℓ_i(τ), and so on; deviations are of the last round."""
    rng, n, m = np.random.default_rng(0), 7, 3
    size = rng.integers(5, 40, n)
    selector, ctx, past = UCBCS(gamma), context(size, m), []
    state = selector.init(KEY, ctx, HOST)
    for t in range(15):
        one = selector.select(jax.random.key(t), state, ctx)
        weight = [gamma ** (t - 1 - tau) for tau in range(t)]
        index = np.full(n, np.inf)
        for i in range(n):
            reports = sum(w for w, (who, _, _) in zip(weight, past, strict=True) if i in who)
            if reports:
                losses = sum(w * loss[i] for w, (who, loss, _) in zip(weight, past, strict=True) if i in who)
                bonus = np.sqrt(2 * past[-1][2] ** 2 * np.log(sum(weight)) / reports)
                index[i] = size[i] / size.sum() * (losses / reports + bonus)
        np.testing.assert_allclose(selector.indices(state, ctx), index, rtol=2e-4)
        assert set(members(one)) <= set(np.flatnonzero(index >= np.sort(index)[-m]))
        mean, deviation = rng.uniform(0.2, 2, m), rng.uniform(0.1, 1, m)
        back = rng.random(m) < 0.8
        back[0] = True
        who = one.client.tolist()
        state = observe(selector, state, ctx, cohort(one.client, back), mean, deviation)
        level = (size[who] * mean)[back].mean()  # of the index's products
        told = {i: mean[k] if back[k] else level / size[i] for k, i in enumerate(who)}
        past.append((who, told, deviation[back].max()))


def test_with_gamma_1_and_equal_sizes_it_is_ucb1_by_hand():
    """After rounds {0}, {1}, {0}: T = 3, N = (2, 1), means 1.5 and 1; σ = .5: bonuses √(.5 ln 3 / N)."""
    selector, ctx = UCBCS(1.0), context([4, 4], 1)
    state = selector.init(KEY, ctx, HOST)
    for client, loss, deviation in ((0, 1.0, 0.1), (1, 1.0, 0.2), (0, 2.0, 0.5)):
        state = observe(selector, state, ctx, cohort([client]), [loss], [deviation])
    expected = 0.5 * np.array([1.5 + np.sqrt(0.5 * np.log(3) / 2), 1 + np.sqrt(0.5 * np.log(3))])
    np.testing.assert_allclose(selector.indices(state, ctx), expected, rtol=1e-4)
    assert members(selector.select(KEY, state, ctx)) == [0]


def test_clients_that_never_reported_come_first_in_random_order():
    selector, ctx = UCBCS(), context(np.ones(6), 2)
    state = selector.init(KEY, ctx, HOST)
    first = {tuple(members(selector.select(jax.random.key(k), state, ctx))) for k in range(20)}
    assert len(first) > 5
    seen = []
    for t in range(3):
        one = selector.select(jax.random.key(t), state, ctx)
        seen += members(one)
        state = observe(selector, state, ctx, one, [9.0, 9.0], [1.0, 1.0])
    assert sorted(seen) == list(range(6))


def test_a_client_not_heard_of_for_long_is_selected_and_a_round_without_updates_changes_no_deviation():
    selector, ctx = UCBCS(0.7), context(np.ones(4), 1)
    state = selector.init(KEY, ctx, HOST)
    for client in (0, 1, 2, 3):
        state = observe(selector, state, ctx, cohort([client]), [1.0], [0.3])
    for _ in range(400):
        state = observe(selector, state, ctx, cohort([1]), [5.0], [0.3])
    assert np.isfinite(np.asarray(selector.indices(state, ctx))).all()
    assert members(selector.select(KEY, state, ctx))[0] != 1
    silent = observe(selector, state, ctx, cohort([1], mask=[False]), [0.0], [0.0])
    assert float(silent.deviation) == float(state.deviation) > 0


def test_a_client_not_heard_of_for_ages_keeps_its_mean_and_never_ties_with_those_who_never_reported():
    selector, ctx = UCBCS(0.7), context(np.ones(5), 1)
    state = observe(selector, selector.init(KEY, ctx, HOST), ctx, cohort([0]), [9.0], [2.0])
    for age in range(1, 400):
        state = observe(selector, state, ctx, cohort([1]), [1.0], [2.0])
        assert float(state.losses[0] / state.reports[0]) == pytest.approx(9.0, rel=1e-4), age
    index = np.asarray(selector.indices(state, ctx))
    assert np.isfinite(index[:2]).all()
    assert index[0] > index[1]
    assert np.isinf(index[2:]).all()


def test_a_discount_outside_0_and_1_is_refused():
    with pytest.raises(ValueError, match=r"ucb_cs: gamma is 1.2|UCBCS: gamma is 1.2"):
        UCBCS(1.2)
    with pytest.raises(ValueError, match=r"ucb_cs: gamma is 0.0; it must be in \(0, 1\]"):
        UCBCS(0.0)
