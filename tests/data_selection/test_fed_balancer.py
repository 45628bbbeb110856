"""FedBalancer: Algorithms 1 to 4 against loops, and the numbers of a threshold worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.data_selection.fed_balancer import BalancerState, FedBalancer, LossReport, find_peak
from fedjax_sel.devices.clock import Timing
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import Host
from fedjax_sel.types import Cohort, Context, Turn

KEY = jax.random.key(0)
CTX = Context(jnp.int32(0), jnp.int32(9), jnp.full(4, 9), jnp.ones(4, bool), cohort_size=3)
START = FedBalancer().prepare(KEY, CTX, Host(None, None, {})).server


def cohort(*mask):
    return Cohort(jnp.arange(3), jnp.array(mask), jnp.ones(3))


def turn(threshold, affordable=None):
    server = START._replace(threshold=jnp.float32(threshold))
    return Turn(jnp.int32(0), jnp.int32(9), jnp.zeros(12, int), server, affordable, {})


def counts(loss, n, threshold, affordable, part, prefer):
    """(hard, easy) that a client takes, as the authors' Algorithm 1 with `p` from one kind."""
    hard = int((loss[:n] >= threshold).sum())
    easy, wanted = n - hard, hard
    if affordable is not None and affordable >= n:
        wanted = n
    elif affordable is not None and affordable >= hard:
        wanted = affordable
    wanted = max(1, wanted)
    first, second = (hard, easy) if prefer == "hard" else (easy, hard)
    of_first = min(int(wanted * part + 1e-6), first)
    of_second = min(wanted - of_first, second)
    of_first = wanted - of_second
    return (of_first, of_second) if prefer == "hard" else (of_second, of_first)


@pytest.mark.parametrize("prefer", ["hard", "easy"])
@pytest.mark.parametrize("part", [1.0, 0.75, 0.5])
def test_so_many_hard_and_easy_examples_are_drawn(prefer, part):
    loss, n, samples = np.random.default_rng(0).random(12).astype(np.float32), 10, FedBalancer(prefer=prefer, part=part)
    for threshold in (0.0, 0.3, 0.6, 2.0):
        for affordable in (None, 0, 4, 8, 10, 12):
            known = {"loss": jnp.asarray(loss)}
            now = turn(threshold, None if affordable is None else jnp.int32(affordable))
            kept = np.asarray(samples.select(KEY, (), jnp.arange(12) < n, turn=now, **known))
            hard = loss >= threshold
            got = int((kept & hard).sum()), int((kept & ~hard).sum())
            assert got == counts(loss, n, threshold, affordable, part, prefer), (threshold, affordable)
            assert not kept[n:].any()


def test_hard_examples_are_exactly_those_where_no_deadline_is_known_and_ties_are_drawn_at_random():
    loss = jnp.array([1.0, 1, 1, 1, 5, 6])
    kept = FedBalancer().select(KEY, (), jnp.ones(6, bool), loss=loss, turn=turn(4.0))
    assert kept.nonzero()[0].tolist() == [4, 5]
    three = [
        FedBalancer().select(jax.random.key(k), (), jnp.ones(6, bool), loss=loss, turn=turn(4.0, jnp.int32(3)))
        for k in range(40)
    ]
    assert all(kept[4] and kept[5] and kept.sum() == 3 for kept in three)
    assert set(np.argmax([kept[:4] for kept in three], axis=1)) == {0, 1, 2, 3}


def test_a_report_has_the_least_the_high_and_the_sum_of_the_losses():
    loss, valid = jnp.array([3.0, 0.5, 9.0, 2.0, 1.0, 77.0]), jnp.arange(6) < 5
    for high in (1.0, 0.8, 0.3):
        report = FedBalancer(high=high).report((), valid, valid, loss=loss, turn=turn(0.0))
        np.testing.assert_allclose(report.high, np.percentile(loss[:5], 100 * high), rtol=1e-5)
        assert (float(report.low), float(report.total), float(report.count)) == (0.5, 15.5, 5)


def test_the_threshold_lies_between_the_least_loss_and_the_mean_of_the_largest():
    """Least .1; largest 2 and 4; ratio .05: .1 + 2.9 · .05 = .245. The third member did not return."""
    state = START._replace(loss_ratio=jnp.float32(0.05))
    reports = LossReport(*map(jnp.array, ([0.5, 0.1, 0.0], [2.0, 4.0, 90.0], [3.0, 5.0, 90.0], [4.0, 4.0, 9.0])))
    after = FedBalancer().merge(KEY, state, CTX, cohort(True, True, False), reports)
    np.testing.assert_allclose(after.threshold, 0.245, rtol=1e-6)
    assert (float(after.window_loss), int(after.rounds)) == (1.0, 1)
    same = FedBalancer().merge(KEY, state, CTX, cohort(False, False, False), reports)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(same, state, strict=True))


def test_the_threshold_is_zero_until_the_ratio_has_risen_once():
    """Then, at ratio 0 again, it is the least loss."""
    samples = FedBalancer(window=1, loss_step=0.5)
    state, seen = START, []
    for loss in (4.0, 4.0, 3.0, 3.0, 3.0):
        reports = LossReport(jnp.full(3, 0.25), jnp.full(3, 2.25), jnp.full(3, loss), jnp.ones(3))
        state = samples.merge(KEY, state, CTX, cohort(True, True, True), reports)
        seen.append(float(state.threshold))
    assert seen == [0, 0, 1.25, 0.25, 0.25]


def test_losses_are_compared_by_the_second_of_the_rounds_deadline():
    """The whole cohort's deadline is 11, that of its first member alone 6: 3/6 is above 4/11, though 3 is below 4."""
    ones, compute = jnp.full(4, 0.5), jnp.array([5.0, 10.0, 50.0, 1.0])
    ctx = CTX.replace(timing=Timing(ones, compute, ones), epoch=Timing(ones, compute / 5, ones))
    alone = Cohort(jnp.array([0, -1, -1]), jnp.array([True, False, False]), jnp.ones(3))
    late = cohort(True, True, False)  # the third was selected, and its turn counted when the deadline was chosen

    def ratio(samples, ctx):
        state = START._replace(loss_ratio=jnp.float32(0.5))
        for loss, members in ((4.0, late), (3.0, alone)):
            reports = LossReport(jnp.zeros(3), jnp.ones(3), jnp.full(3, loss), jnp.ones(3))
            state = samples.merge(KEY, state, ctx, members, reports)
        return round(float(state.loss_ratio), 2), float(state.previous_loss)

    assert ratio(FedBalancer(window=1), ctx) == (0.45, pytest.approx(0.5, rel=1e-5))
    assert ratio(FedBalancer(window=1, deadline="fixed"), ctx) == (0.55, 3.0)
    assert ratio(FedBalancer(window=1), CTX) == (0.55, 3.0)


def test_at_ratio_one_nobody_is_late_by_rounding():
    rng = np.random.default_rng(0)
    compute = jnp.asarray(rng.uniform(1, 100, (500, 4)), jnp.float32)
    part = jnp.asarray(rng.uniform(0, 1, (500, 1)), jnp.float32)

    @jax.vmap
    def choose(compute, part):
        zero = jnp.zeros(4)
        ctx = CTX.replace(timing=Timing(zero, compute, zero), epoch=Timing(zero, part * compute, zero))
        members = cohort(True, True, True)
        return FedBalancer().choose_deadline(START, ctx, members, 0.0), find_peak(compute[:3], members.mask)

    deadline, time = choose(compute, part)
    assert (deadline > time).all()
    np.testing.assert_allclose(deadline, time, rtol=2e-6)


def test_in_a_compiled_run_the_member_that_sets_the_deadline_is_never_late():
    """Times are summed in float32 twice, for the deadline and for who is late, and rounded otherwise."""
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(400, 6)).astype(np.float32), rng.integers(0, 4, 400)
    numbers = {name: rng.uniform(low, high, 8) for name, low, high in (("compute", 1e3, 2e4), ("up", 1e3, 1e4))}
    devices = DeviceProfile.of(**numbers, efficiency=1e9, memory=2e9, down=rng.uniform(1e3, 1e4, 8))
    data = fs.dataset("noise", x, y, test=0.2)
    clients = fs.Federation(data, fs.partition.Dirichlet(clients=8, alpha=1.0, min_examples=3), devices=devices)
    task = fs.Task.on(fs.models.LogisticRegression(classes=4), data)
    experiment = fs.Experiment(
        task, data_selection=FedBalancer(), local_training=SGD(0.1, batch_size=7, epochs=3), cohort_size=1, rounds=30
    )
    assert (fs.simulate(experiment, clients, seeds=6)["bytes_up"] > 0).all()


def test_both_ratios_move_a_step_after_every_window_of_rounds_and_stay_within_bounds():
    losses = [5.0, 5, 4, 4, 3, 3, 6, 6, 7, 7, 8, 8, 1, 1]
    samples, state, seen = FedBalancer(window=2, loss_step=0.6, deadline_step=0.25), START, []
    for loss in losses:
        state = samples.move_ratios(state, jnp.float32(loss))
        seen.append((round(float(state.loss_ratio), 2), round(float(state.deadline_ratio), 2)))
    assert seen[1::2] == [(0, 1), (0.6, 0.75), (1, 0.5), (0.4, 0.75), (0, 1), (0, 1), (0.6, 0.75)]
    assert all(seen[2 * i] == seen[2 * i - 1] for i in range(1, len(losses) // 2))


def test_the_deadline_lies_between_the_peaks_of_one_epoch_and_of_all():
    """Members finish 1 epoch after 2, 3 and 11 seconds, all 5 after 6, 11 and 51."""
    ones = jnp.full(4, 0.5)
    compute = jnp.array([5.0, 10.0, 50.0, 1.0])
    ctx = CTX.replace(timing=Timing(ones, compute, ones), epoch=Timing(ones, compute / 5, ones))
    seconds = [find_peak(jnp.array(t), jnp.ones(3, bool)) for t in ([2.0, 3.0, 11.0], [6.0, 11.0, 51.0])]
    assert [float(s) for s in seconds] == [3.0, 11.0]  # 1/2, 2/3, 3/11; 1/6, 2/11, 3/51
    for ratio, deadline in ((1.0, 11.0), (0.0, 3.0), (0.25, 5.0)):
        state = START._replace(deadline_ratio=jnp.float32(ratio))
        assert float(FedBalancer().choose_deadline(state, ctx, cohort(True, True, True), 99.0)) == pytest.approx(
            deadline, rel=1e-5
        )
        assert FedBalancer(deadline="fixed").choose_deadline(state, ctx, cohort(True, True, True), 99.0) == 99.0
    one = FedBalancer().choose_deadline(START, ctx, cohort(True, False, False), 99.0)
    assert float(one) == pytest.approx(6.0, rel=1e-5)
    assert float(FedBalancer().choose_deadline(START, ctx, cohort(False, False, False), 99.0)) == 99.0
    assert isinstance(START, BalancerState)


def test_losses_that_are_not_finite_are_not_reported():
    valid = jnp.ones(4, bool)
    report = FedBalancer().report((), valid, valid, loss=jnp.array([1.0, jnp.nan, 3.0, jnp.inf]), turn=turn(0.0))
    assert [float(part) for part in report] == [1.0, 3.0, 4.0, 2.0]
    none = FedBalancer().report((), valid, valid, loss=jnp.full(4, jnp.nan), turn=turn(0.0))
    assert float(none.count) == 0


def test_a_fixed_deadline_is_not_sent():
    assert [FedBalancer(deadline=how).count_down(3) for how in ("chosen", "fixed")] == [2, 1]


@pytest.mark.parametrize("loss", [(0.1, 8.0, 0.3, 0.2), (0.1, jnp.nan, 0.3, 0.2)])
def test_without_a_hard_example_the_one_of_the_highest_loss_counts_as_hard(loss):
    """As in the authors' code, whose search for the first hard one ends at the last of the sorted losses."""
    highest = int(np.nanargmax(loss))
    for key in jax.random.split(KEY, 8):
        kept = FedBalancer().select(key, (), jnp.ones(4, bool), loss=jnp.asarray(loss), turn=turn(9.0))
        assert np.flatnonzero(kept).tolist() == [highest]
