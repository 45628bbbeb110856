"""Selectors that look at devices, against numbers by hand and their sources' rules written in plain Python."""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.client_selection.device_heuristic import DeviceHeuristic
from fedjax_sel.client_selection.fedcs import FedCS
from fedjax_sel.client_selection.oort import Oort, OortState
from fedjax_sel.client_selection.tifl import TiFL
from fedjax_sel.devices.clock import Timing
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""
KEY = jax.random.key(0)


def context(compute, m, *, round=0, rounds=50, size=None, available=None, download=None, upload=None, devices=None):
    """A round in which turns take these seconds."""
    parts = [np.zeros(len(compute)) if part is None else part for part in (download, compute, upload)]
    size = np.full(len(compute), 10) if size is None else size
    available = np.ones(len(compute), bool) if available is None else available
    if devices is None:
        devices = DeviceProfile.of(compute=np.ones(len(compute)), efficiency=1.0, memory=1.0, up=1.0, down=1.0)
    return Context(
        jnp.int32(round),
        jnp.int32(rounds),
        jnp.asarray(size, jnp.int32),
        jnp.asarray(available),
        devices=devices,
        timing=Timing(*(jnp.asarray(part, jnp.float32) for part in parts)),
        cohort_size=m,
    )


@pytest.mark.parametrize("selector", [Oort(), TiFL(), FedCS(), DeviceHeuristic()], ids=lambda s: type(s).__name__)
def test_without_devices_they_refuse_and_say_where_devices_go(selector):
    ctx = context([3, 1, 2, 9], 2).replace(devices=None, timing=None)
    with pytest.raises(ValueError, match="the clients have none; give them some: devices=lognormal"):
        selector.init(KEY, ctx, HOST)


NAN = float("nan")
OUT_OF_RANGE = [
    (lambda: DeviceHeuristic(alpha=-0.1), r"device_heuristic: alpha is -0.1; it must be 0 or above"),
    (lambda: DeviceHeuristic(delta=NAN), "device_heuristic: delta is nan"),
    (lambda: DeviceHeuristic(solver="exat"), "device_heuristic: solver is 'exat'; .*; did you mean 'exact'"),
    (lambda: DeviceHeuristic(scale="unit"), "device_heuristic: scale is 'unit'; it must be one of range, max"),
    (lambda: FedCS(deadline=0.0), "fedcs: deadline is 0.0; it must be above 0"),
    (lambda: FedCS(deadline=NAN), "fedcs: deadline is nan"),
    (lambda: FedCS(fraction=1.5), r"fedcs: fraction is 1.5; it must be in \(0, 1\]"),
    (lambda: TiFL(credits=0.0), "tifl: credits is 0.0; it must be above 0"),
    (lambda: TiFL(tiers=0), "tifl: tiers is 0; it must be a whole number, at least 1"),
    (lambda: TiFL(tiers=2, interval=0), "tifl: interval is 0; it must be a whole number, at least 1"),
    (lambda: Oort(epsilon=1.2), r"oort: epsilon is 1.2; it must be in \[0, 1\]"),
    (lambda: Oort(penalty=-1.0), "oort: penalty is -1.0; it must be 0 or above"),
    (lambda: Oort(percentile=NAN), r"oort: percentile is nan; it must be in \[0, 100\]"),
    (lambda: Oort(window=0.5), "oort: window is 0.5; it must be 1 or above"),
    (lambda: Oort(step=0), "oort: step is 0; it must be a whole number, at least 1"),
]


@pytest.mark.parametrize(("make", "says"), OUT_OF_RANGE)
def test_a_parameter_out_of_its_range_is_refused_when_the_value_is_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_more_tiers_than_cohorts_fit_are_refused_before_the_run():
    with pytest.raises(ValueError, match=r"tifl: tiers is 3; .* N = 4 clients make 1 to 2 tiers"):
        TiFL(tiers=3).init(KEY, context([3, 1, 2, 9], 2), HOST)


def test_parameters_that_are_swept_over_are_checked_one_by_one():
    with pytest.raises(ValueError, match="fraction"):
        FedCS(fraction=jnp.array([0.5, 0.0]))
    FedCS(fraction=jnp.array([0.5, 1.0]))


# Heuristic device selection


def devices_of(f):
    """Devices whose features, up to one factor a row, are `f`."""
    compute, efficiency, memory, network = np.asarray(f, float)
    return DeviceProfile.of(compute=compute, efficiency=efficiency, memory=memory, up=network, down=network)


def test_the_devices_of_the_hand_example_are_selected_in_every_round():
    """Pairs 01 … 23 are worth .475, .7, .6, .5, .35, .575 (every row has the same largest value)."""
    f = [[0.9, 0.1, 0.8, 0.4], [0.5, 0.9, 0.6, 0.2], [0.7, 0.3, 0.9, 0.5], [0.9, 0.2, 0.6, 0.8]]
    for solver, t in itertools.product(("exact", "exhaustive", "greedy"), range(3)):
        selector, ctx = (
            DeviceHeuristic(solver=solver, scale="max"),
            context(np.ones(4), 2, round=t, devices=devices_of(f)),
        )
        assert sorted(selector.select(jax.random.key(t), (), ctx).client.tolist()) == [0, 2]


@pytest.mark.parametrize("scale", ["range", "max"])
def test_the_best_of_all_sets_of_available_devices_is_selected(scale):
    rng = np.random.default_rng(1)
    for t in range(30):
        f, available = rng.uniform(0.05, 1, (4, 9)), rng.random(9) < 0.7
        low = f.min(1, keepdims=True) if scale == "range" else 0
        g = (f - low) / (f.max(1, keepdims=True) - low)
        weights = rng.random(4)
        who = np.flatnonzero(available)
        sets = list(itertools.combinations(who, min(4, len(who))))
        worth = [weights[:3] @ g[:3, s].mean(1) + weights[3] * g[3, s].min() for s in map(list, sets)]
        ctx = context(np.ones(9), 4, available=available, devices=devices_of(f))
        cohort = DeviceHeuristic(*map(float, weights), scale=scale).select(jax.random.key(t), (), ctx)
        assert tuple(sorted(cohort.client[cohort.mask].tolist())) == sets[int(np.argmax(worth))]


# FedCS


def algorithm_3(download, compute, upload, asked, deadline, most):
    """As printed: x has the smallest increment; it is removed, and added where the round still ends in time."""
    left, chosen, end = set(np.flatnonzero(asked)), [], 0.0
    while left:
        spread = max([download[i] for i in chosen], default=0.0)

        def increment(k, spread=spread, end=end):
            return max(spread, download[k]) - spread + upload[k] + max(0.0, compute[k] - end)

        x = min(left, key=increment)
        left.remove(x)
        new = end + upload[x] + max(0.0, compute[x] - end)
        if max(spread, download[x]) + new < deadline and len(chosen) < most:
            chosen.append(int(x))
            end = new
    return chosen


def test_fedcs_is_algorithm_3_in_random_rounds():
    rng, short = np.random.default_rng(0), 0
    for t in range(40):
        download, compute, upload = rng.uniform(0.1, 2, (3, 12))
        available, deadline = rng.random(12) < 0.8, float(rng.choice([3.0, 5.0, 8.0, np.inf]))
        ctx = context(compute, 6, download=download, upload=upload, available=available)
        cohort = FedCS(deadline=deadline).select(jax.random.key(t), (), ctx)
        chosen = algorithm_3(download, compute, upload, available, deadline, 6)
        assert cohort.client.tolist() == chosen + [-1] * (6 - len(chosen))
        assert cohort.mask.tolist() == [True] * len(chosen) + [False] * (6 - len(chosen))
        short += 0 < len(chosen) < 6
    assert short > 10, "the deadline must bind in some of the rounds"


def test_fedcs_takes_the_earliest_to_finish_and_leaves_slots_empty():
    """Computing side by side, uploads after one another: ends at 1+1, 2+1, 3+1; the fourth would end at 10."""
    ctx = context([3, 1, 2, 9], 4, upload=np.ones(4))
    assert FedCS(deadline=5.0).select(KEY, (), ctx).client.tolist() == [1, 2, 0, -1]
    assert FedCS(deadline=1.5).select(KEY, (), ctx).client.tolist() == [-1] * 4
    assert FedCS().select(KEY, (), ctx).client.tolist() == [1, 2, 0, 3]


def test_fedcs_asks_a_fraction_and_draws_among_equals():
    ctx = context(np.arange(1.0, 21.0), 5)
    draws = jax.vmap(lambda key: FedCS(fraction=0.25).select(key, (), ctx).client)(jax.random.split(KEY, 400))
    counts = np.bincount(np.ravel(draws), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-4, "the 5 of 20 that are asked are all that can be chosen"
    equal = context(np.ones(20), 5, upload=np.ones(20))
    draws = jax.vmap(lambda key: FedCS().select(key, (), equal).client)(jax.random.split(KEY, 400))
    assert stats.chisquare(np.bincount(np.ravel(draws), minlength=20)).pvalue > 1e-4


# TiFL


def test_tiers_are_of_equal_size_and_ordered_by_seconds():
    state = TiFL().init(KEY, context([4, 9, 1, 7, 2, 8, 3, 6, 0, 5], 2), HOST)
    assert state.tier.tolist() == [2, 4, 0, 3, 1, 4, 1, 3, 0, 2]
    np.testing.assert_array_equal(state.credits, [20] * 5)
    np.testing.assert_allclose(state.chance, [0.2] * 5, rtol=1e-6)


def test_the_worst_tier_gets_five_fifteenths():
    selector, ctx = TiFL(), context(np.arange(10.0), 2, round=10)
    state = selector.init(KEY, ctx, HOST)._replace(accuracy=jnp.full(5, 0.9))
    correct = jnp.array([0.8, 0.8, 0.2, 0.2, 0.6, 0.6, 0.3, 0.5, 1.0, 0.8])  # by tier .8, .2, .6, .4, .9
    chance = selector.update_chances(state, ctx, correct).chance
    np.testing.assert_allclose(chance, np.array([2, 5, 3, 4, 1]) / 15, rtol=1e-6)
    draws = jax.vmap(
        lambda key: selector.select(
            key, state._replace(chance=chance), ctx.replace(round=jnp.int32(11)), correct=correct
        )
    )
    tiers = np.asarray(state.tier)[np.asarray(draws(jax.random.split(KEY, 6000)).client)]
    assert (tiers[:, 0] == tiers[:, 1]).all()
    assert stats.chisquare(np.bincount(tiers[:, 0]), np.array([2, 5, 3, 4, 1]) / 15 * 6000).pvalue > 1e-4


def test_tiers_of_equal_accuracy_share_their_chances():
    selector, ctx = TiFL(), context(np.arange(10.0), 2, round=10)
    state = selector.init(KEY, ctx, HOST)._replace(accuracy=jnp.full(5, 1.0))
    correct = jnp.array([1.0, 1.0, 0.2, 0.2, 1.0, 1.0, 0.2, 0.2, 1.0, 1.0])
    chance = selector.update_chances(state, ctx, correct).chance
    np.testing.assert_allclose(chance, np.array([2, 4.5, 2, 4.5, 2]) / 15, rtol=1e-6)


def test_chances_stay_where_the_drawn_tier_could_not_report():
    selector, available = TiFL(), np.arange(10) > 1  # all but the first tier
    ctx = context(np.arange(10.0), 2, round=10, available=available)
    state = selector.init(KEY, ctx, HOST)._replace(accuracy=jnp.full(5, 0.9))
    assert state.tier[:2].tolist() == [0, 0]
    kept = selector.update_chances(state, ctx, jnp.linspace(0, 1, 10))
    np.testing.assert_array_equal(kept.chance, state.chance)
    told = jnp.where(ctx.available, jnp.linspace(0, 1, 10), jnp.nan)  # as the engine does
    moved = selector.update_chances(state._replace(current=jnp.int32(1)), ctx, told)
    assert not np.array_equal(moved.chance, state.chance)
    assert np.isfinite(moved.accuracy).all()


def test_a_tiers_accuracy_is_the_one_on_the_rows_of_its_available_clients():
    selector = TiFL(tiers=2)
    ctx = context([1, 2, 3, 4], 1, size=[10, 30, 5, 5], available=[True, True, True, False])
    state = selector.init(KEY, ctx, HOST)
    np.testing.assert_allclose(
        selector.update_chances(state, ctx, jnp.array([1.0, 0.0, 0.6, jnp.nan])).accuracy, [0.25, 0.6], rtol=1e-6
    )
    nobody = ctx.replace(available=jnp.array([True, True, False, False]))
    known = state._replace(accuracy=jnp.array([0.1, 0.7]))
    np.testing.assert_allclose(selector.update_chances(known, nobody, jnp.ones(4)).accuracy, [1.0, 0.7], rtol=1e-6)


def algorithm_2(tiers, interval, round, accuracy, memory, weight):
    """Chances of a round: changed where the tier drawn last is no better than an interval ago. `memory` is mutated."""
    if round % interval == 0:
        measured = [np.average(accuracy[t], weights=weight[t]) for t in range(tiers)]
        if round >= interval and measured[memory["current"]] <= memory["accuracy"][memory["current"]]:
            for rank, tier in enumerate(np.argsort(measured)):
                memory["chance"][tier] = (tiers - rank) / (tiers * (tiers + 1) / 2)
        memory["accuracy"] = measured


def test_tifl_is_algorithm_2_in_random_rounds():
    rng, rounds, interval, tiers = np.random.default_rng(3), 60, 3, 4
    selector, size = TiFL(credits=1.2, tiers=tiers, interval=interval), rng.integers(5, 30, 12)
    seconds = rng.permutation(12) + 1.0
    group = [np.argsort(seconds)[3 * t : 3 * t + 3] for t in range(tiers)]
    state = selector.init(KEY, context(seconds, 2, rounds=rounds, size=size), HOST)
    memory = {"chance": np.full(tiers, 1 / tiers), "current": 0, "accuracy": None}
    credits, changes, ran_out = np.full(tiers, 18), set(), 0  # ⌈1.2 · 60 / 4⌉
    for t in range(rounds):
        ctx = context(seconds, 2, round=t, rounds=rounds, size=size)
        correct = rng.random(12).astype(np.float32)
        asked = jnp.asarray(correct if t % interval == 0 else np.zeros(12), jnp.float32)
        assert bool(selector.asks(ctx.round)) == (t % interval == 0)
        algorithm_2(tiers, interval, t, [correct[g] for g in group], memory, [size[g] for g in group])
        np.testing.assert_allclose(selector.update_chances(state, ctx, asked).chance, memory["chance"], rtol=1e-5)
        cohort = selector.select(jax.random.key(t), state, ctx, correct=asked)
        (tier,) = {k for k in range(tiers) for i in cohort.client.tolist() if i in group[k]}
        assert credits[tier] > 0
        credits[tier] -= 1
        ran_out += credits[tier] == 0
        memory["current"] = tier
        back = cohort.replace(mask=jnp.asarray(rng.random(2) < 0.5))  # whoever returns, a credit is paid
        state = selector.observe(jax.random.key(t), state, ctx, back, correct=asked)
        np.testing.assert_array_equal(state.credits, credits)
        changes.add(tuple(memory["chance"]))
    assert len(changes) > 5
    assert ran_out


def test_where_no_tier_has_credits_left_they_no_longer_count():
    selector, ctx = TiFL(tiers=2), context([1, 2, 3, 4], 2, round=1)
    state = selector.init(KEY, ctx, HOST)
    drawn = jax.vmap(lambda key, state: selector.select(key, state, ctx, correct=jnp.zeros(4)), in_axes=(0, None))
    keys = jax.random.split(KEY, 64)
    one_left = drawn(keys, state._replace(credits=jnp.array([0.0, 1.0]))).client
    assert set(np.ravel(one_left).tolist()) == {2, 3}
    none_left = drawn(keys, state._replace(credits=jnp.zeros(2))).client
    assert set(np.ravel(none_left).tolist()) == {0, 1, 2, 3}


# Oort


def test_the_system_term_is_one_up_to_the_preferred_time_and_a_quarter_at_twice_of_it():
    ctx, memory = (
        context([1, 1, 1, 2], 2),
        OortState(jnp.ones(4), jnp.ones(4, jnp.int32), jnp.float32(50.0), jnp.zeros(2)),
    )
    np.testing.assert_allclose(Oort().system(memory, ctx), [1, 1, 1, 0.25])
    np.testing.assert_allclose(Oort().system(memory._replace(percentile=jnp.float32(100.0)), ctx), 1)


def test_scores_are_the_ones_by_hand():
    """R = 4: utilities 1, 3, 5 with the clip at the second, last seen in rounds 1, 2, 3; the fourth was never seen."""
    ctx = context([1, 1, 1, 1], 2, round=3)
    memory = OortState(jnp.array([1.0, 3, 5, 0]), jnp.array([1, 2, 3, 0]), jnp.float32(50.0), jnp.zeros(2))
    bonus = np.sqrt(0.1 * np.log(4) / np.array([1, 2, 3]))
    expected = (np.array([1, 3, 3]) - 0.999) / (5 - 0.999) + bonus
    np.testing.assert_allclose(Oort(clip=0.5).scores(memory, ctx), [*expected, 0], rtol=1e-5)


class OortByHand:
    """Scores, pools and pacer of the authors' selector, client by client, with its dictionary of arms."""

    def __init__(self, o, seconds, size):
        self.o, self.seconds, self.size, self.arms = o, seconds, size, {}
        self.percentile, self.epsilon, self.history = o.percentile, o.epsilon, []

    def term(self, i):
        n = len(self.seconds)
        if self.percentile >= 100:
            return 1.0
        preferred = sorted(self.seconds)[min(int(n * self.percentile / 100), n - 1)]
        return (preferred / self.seconds[i]) ** self.o.penalty if self.seconds[i] > preferred else 1.0

    def round(self, number, m, available):
        """Scores, how many are exploited and from whom, how many are explored and from whom."""
        step, o = self.o.step, self.o
        if number >= 2 * step and number % step == 0:
            last, now = sum(self.history[-2 * step : -step]), sum(self.history[-step:])
            if abs(now - last) <= 0.1 * last:
                self.percentile = min(100, self.percentile + o.delta)
            elif abs(now - last) >= 5 * last:
                self.percentile = max(o.delta, self.percentile - o.delta)
        seen = [i for i in available if i in self.arms]
        new = [i for i in available if i not in self.arms]
        scores = {}
        if seen:
            rewards = sorted(self.arms[i][0] for i in seen)
            clip = rewards[min(int(len(rewards) * o.clip), len(rewards) - 1)]
            low = rewards[0] * 0.999
            spread = max(rewards[-1] - low, 1e-4)
            for i in seen:
                reward, stamp = self.arms[i]
                score = (min(reward, clip) - low) / spread + math.sqrt(0.1 * math.log(number) / stamp)
                scores[i] = score * self.term(i)
        self.epsilon = max(self.epsilon * o.decay, o.smallest)
        epsilon = 0.0 if len(self.arms) == len(self.seconds) else self.epsilon
        exploit = min(int(m * (1 - epsilon) + 1e-9), len(seen))
        ranked = sorted(scores, key=scores.get, reverse=True)
        cut = scores[ranked[min(exploit, len(ranked) - 1)]] * o.cut_off if ranked else 0.0
        pool = [i for i in ranked if scores[i] >= cut]
        explore = min(len(new), m - exploit)
        reward = {i: self.size[i] * self.term(i) for i in new}
        window = sorted(new, key=reward.get, reverse=True)[: int(o.window * explore)]
        return scores, exploit, pool, explore, window

    def update(self, number, returned, failed, exploited):
        """`returned`: losses by client; `failed`: who was selected and did not come back."""
        exploited = [i for i in returned if i in exploited]
        for i, loss in returned.items():
            self.arms[i] = (loss * self.size[i], number)
        self.history.append(sum(self.arms[i][0] for i in exploited) / max(len(exploited), 1))
        expected = np.mean([self.arms[i][0] for i in returned])
        self.arms |= dict.fromkeys(failed, (expected, number))


def test_oort_is_the_authors_rule_in_random_rounds():
    rng, n, m = np.random.default_rng(5), 40, 10
    reachable = np.arange(n) > 0  # while client 0 is never seen, places to explore are filled with seen clients
    seconds, size = rng.lognormal(0, 0.6, n).astype(np.float32), rng.permutation(n) + 5
    o = Oort(
        decay=0.9, smallest=0.3, percentile=30.0, delta=4.0, penalty=1.5, clip=0.9, cut_off=0.8, window=2.0, step=4
    )
    plain = OortByHand(o, seconds, size)
    plain.history.append(0.0)  # the authors' pacer writes a line before the first round
    state = o.init(KEY, context(seconds, m, size=size), HOST)
    select, observe, scored = jax.jit(o.select), jax.jit(o.observe), jax.jit(o.scores)
    happened, percentiles, filled = Counter(), [], 0
    for t in range(48):
        available = (rng.random(n) < 0.8) & reachable
        ctx = context(seconds, m, round=t, size=size, available=available)
        scores, exploit, pool, explore, window = plain.round(t + 1, m, np.flatnonzero(available).tolist())
        np.testing.assert_allclose(float(state.percentile), plain.percentile)
        np.testing.assert_allclose(scored(state, ctx), [scores.get(i, 0.0) for i in range(n)], rtol=1e-4, atol=1e-6)
        cohort = select(jax.random.key(t), state, ctx)
        client = cohort.client[cohort.mask].tolist()
        assert len(set(client)) == m
        assert set(client[:exploit]) <= set(pool)
        assert set(client[exploit : exploit + explore]) <= set(window)
        assert set(client[exploit + explore :]) <= set(np.flatnonzero(available).tolist())
        mask, loss = rng.random(m) < 0.9, rng.uniform(0.5, 2.0, m) * (9 if t >= 35 else 1)
        back = cohort.replace(mask=cohort.mask & mask)
        state = observe(KEY, state, ctx, back, training_loss_rms=jnp.asarray(np.where(mask, loss, 0), jnp.float32))
        returned = {c: v for c, v, came in zip(client, loss, mask, strict=True) if came}
        plain.update(t + 1, returned, set(client) - set(returned), client[:exploit])
        np.testing.assert_array_equal(state.last, [plain.arms.get(i, (0, 0))[1] for i in range(n)])
        np.testing.assert_allclose(state.sums.sum(), sum(plain.history[-(len(plain.history) % 4 + 4) :]), rtol=1e-4)
        filled += m - exploit - explore
        happened.update(exploit=exploit, explore=explore)
        percentiles.append(float(state.percentile))
    assert min(happened.values()) > 10 < filled
    assert {-4.0, 0.0, 4.0} == set(np.diff(percentiles)), "the pacer goes both ways"


def test_oort_draws_in_proportion_to_scores():
    """Nothing is cut off, one slot, everybody was seen: the chances are the scores' shares."""
    o, n = Oort(cut_off=0.0), 5
    ctx = context(np.ones(n), 1, round=2)
    memory = OortState(jnp.array([1.0, 2, 3, 4, 6]), jnp.full(n, 2, jnp.int32), jnp.float32(50.0), jnp.zeros(2))
    draws = jax.vmap(lambda key: o.select(key, memory, ctx).client[0])(jax.random.split(KEY, 8000))
    score = np.asarray(o.scores(memory, ctx), float)
    assert stats.chisquare(np.bincount(draws, minlength=n), 8000 * score / score.sum()).pvalue > 1e-4
