"""CriticalFL: the size of cohorts, and the selector that it wraps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, partition, simulate
from fedjax_sel.client_selection.active_fl import ActiveFL
from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling
from fedjax_sel.client_selection.critical_fl import NORM, CriticalFL
from fedjax_sel.client_selection.device_heuristic import DeviceHeuristic
from fedjax_sel.client_selection.divfl import DivFL
from fedjax_sel.client_selection.epsilon_greedy import EpsilonGreedy
from fedjax_sel.client_selection.fed_entropy import FedEntropy
from fedjax_sel.client_selection.fed_gs import FedGS, FedGSState
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.client_selection.importance import Importance
from fedjax_sel.client_selection.lefl import LEFL
from fedjax_sel.client_selection.md import MD
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.config.components import KINDS
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from tests.client_selection.rounds import HOST, KEY, cohort, context, members


def sizes_by_hand(norms, smallest, largest, window=10, threshold=0.01, warmup=5, interval=2):
    """The source's check, with its list of norms that begins with zeros; the size of each round's cohort."""
    past, size, reached, out, checks = [0.0] * (window + 2), smallest, False, [], 0
    for t, norm in enumerate(norms):
        out.append(size)
        if t % interval:
            continue
        checks += 1
        past.append(norm)
        if size == largest:
            reached = True
        old, new = max(np.mean(past[-window - 1 : -1]), 1e-7), np.mean(past[-window:])
        if (new - old) / old > threshold or checks <= warmup:
            if not reached:
                size = min(largest, 2 * size)
        else:
            size = max(smallest, size - max(size // 2, 1))
    return out


def play(selector, norms, slots, n=30):
    """Sizes of the cohorts in rounds whose members have such mean squared gradient norms."""
    ctx = context(np.ones(n), slots)
    state, out = selector.init(KEY, ctx, HOST), []
    for t, norm in enumerate(norms):
        now = ctx.replace(round=jnp.int32(t))
        one = selector.select(jax.random.key(t), state, now)
        out.append(len(members(one)))
        each = jnp.where(one.mask, np.sqrt(norm), 0.0).astype(jnp.float32)
        state = selector.observe(KEY, state, now, one, **{NORM: each})
    return out


@pytest.mark.parametrize("kind", ["growing", "falling", "random"])
def test_sizes_follow_the_rule_over_rounds(kind):
    rng, rounds = np.random.default_rng(4), 70
    norms = {
        "growing": 1.1 ** np.arange(rounds),
        "falling": 5.0 * 0.9 ** np.arange(rounds),
        "random": rng.lognormal(0, 1, rounds),
    }[kind]
    got = play(CriticalFL(smallest=3), norms, 20)
    assert got == sizes_by_hand(norms, 3, 20)
    assert max(got) == 20
    assert (min(got[20:]) == 3) == (kind != "growing")


def test_a_round_from_which_nobody_returns_is_not_checked():
    """Norms grow, so that all rounds are critical; round 30 has no norm, which is not one of 0."""
    norms, ctx = 1.02 ** np.arange(50), context(np.ones(30), 24)
    selector = CriticalFL(smallest=3, interval=1)
    state = selector.init(KEY, ctx, HOST)
    for t, norm in enumerate(norms):
        now = ctx.replace(round=jnp.int32(t))
        one = selector.select(jax.random.key(t), state, now)
        one = one.replace(mask=one.mask & (t != 30))
        each = jnp.where(one.mask, np.sqrt(norm), 0.0).astype(jnp.float32)
        state = selector.observe(KEY, state, now, one, **{NORM: each})
    assert int(state.size) == 24


def test_sizes_by_hand():
    """2, 2, 4, 4, 8, 8, 8 (reached); then norms fall: 4, 2, 2."""
    norms = [1.0] * 6 + [0.5] * 14
    got = play(CriticalFL(smallest=2, window=2, warmup=3), norms, 8)
    assert got == sizes_by_hand(norms, 2, 8, window=2, warmup=3)
    assert got[:6] == [2, 4, 4, 8, 8, 8]
    assert got[-1] == 2


def test_members_are_the_first_of_the_wrapped_selectors():
    inner = PowerOfChoice(d=9)
    selector, ctx = CriticalFL(inner, smallest=2), context(np.ones(9), 6)
    state = selector.init(KEY, ctx, HOST)
    ctx = ctx.replace(candidates=selector.candidates(KEY, state, ctx))
    loss = jnp.asarray(np.random.default_rng(0).permutation(9), jnp.float32)
    whole = members(inner.select(KEY, (), ctx, loss=loss))
    assert len(whole) == 6
    one = selector.select(KEY, state, ctx, loss=loss)
    assert members(one) == whole[:2]
    assert one.client.tolist() == [*whole[:2], -1, -1, -1, -1]
    assert one.weight.tolist() == [len(whole) / 2, len(whole) / 2, 0, 0, 0, 0]


def test_weights_of_a_smaller_cohort_add_up_to_what_those_of_the_whole_did():
    ctx = context(np.arange(1, 31), 10)
    for inner in (MD(), Uniform()):
        selector = CriticalFL(inner, smallest=2)
        state = selector.init(KEY, ctx, HOST)
        one, whole = selector.select(KEY, state, ctx), inner.select(KEY, state.inner, ctx)
        assert len(members(one)) == 2
        np.testing.assert_allclose(one.weight.sum(), whole.weight.sum(), rtol=1e-6)


def state_of(inner, ctx, rng):
    """The wrapped selector's state in round 0, where it takes neither training nor labels to know it."""
    n = ctx.num_clients
    if isinstance(inner, LEFL):
        return jnp.arange(n) % inner.clusters
    if isinstance(inner, FedGS):
        apart = rng.random((n, n))
        return FedGSState(jnp.asarray((apart + apart.T) * (1 - np.eye(n)), jnp.float32), jnp.zeros(n, jnp.int32))
    return inner.init(KEY, ctx, HOST)


ORDERED = [ClusteredSampling(by="size"), Importance(), DivFL(gradients="all"), LEFL(clusters=3), FedGS()]
ORDERED += [DeviceHeuristic()]


@pytest.mark.parametrize("inner", ORDERED, ids=lambda one: type(one).__name__)
def test_of_ordered_slots_the_part_that_is_kept_is_drawn(inner):
    """Every client is in as many cohorts, and has as much weight, as with the whole cohort, up to the smaller size."""
    n, m, rng = 10, 6, np.random.default_rng(0)
    ctx = context([40, 20, 10, 10, 5, 5, 4, 3, 2, 1], m, seconds=np.ones(n))
    selector = CriticalFL(inner, smallest=2)
    before = {"gradient_norm": jnp.ones(n)} if isinstance(inner, Importance) else {}
    if isinstance(inner, DivFL):
        before = {"gradient": jnp.asarray(rng.normal(size=(n, 4)), jnp.float32)}
    state = selector.begin(state_of(inner, ctx, rng), ctx)
    draws = 400_000 if isinstance(inner, Importance) else 20_000  # a bias of 3 %

    def weights(select, state):
        def one(key):
            drawn = select(key, state, ctx, **before)
            return jnp.zeros(n).at[drawn.client].add(jnp.where(drawn.mask, drawn.weight, 0.0)), drawn.mask.sum()

        weight, size = jax.jit(jax.vmap(one))(jax.random.split(KEY, draws))
        return np.asarray(weight), np.asarray(size)

    part, size = weights(selector.select, state)
    whole, _ = weights(inner.select, state.inner)
    assert set(size.tolist()) == {2}
    error = np.sqrt((part.var(axis=0) + whole.var(axis=0)) / len(part))
    assert (np.abs(part.mean(axis=0) - whole.mean(axis=0)) < 5 * error + 1e-6).all()


def test_updates_are_kept_only_where_the_wrapped_selector_chooses_among_them():
    assert not CriticalFL().accepts
    assert CriticalFL(FedEntropy()).accepts


def test_a_run_passes_signals_on_and_bills_only_the_members(blobs):
    """FedEntropy's soft labels and verdicts are as without the wrapper; the gradient norm is one number more."""

    def run(selector, slots):
        experiment = Experiment(
            Task.on(LogisticRegression(classes=3), blobs),
            client_selection=selector,
            local_training=SGD(batch_size=8),
            cohort_size=slots,
            rounds=8,
        )
        return simulate(experiment, Federation(blobs, partition.ClientDirichlet(clients=20, alpha=0.2)), seeds=2)

    history = run(CriticalFL(FedEntropy(), smallest=3), 10)
    model = 4 * 9
    sent = history["bytes_down"] / model
    assert sent[0].tolist() == [3, 6, 6, 10, 10, 10, 10, 10]
    np.testing.assert_array_equal(history["selection_bytes_up"], sent * 4 * (3 + 1))
    assert (history["bytes_up"] / model <= sent).all()
    alone = run(CriticalFL(FedEntropy(), smallest=10), 10)
    plain = run(FedEntropy(), 10)
    assert alone.selections[0].tolist() == plain.selections[0].tolist()
    np.testing.assert_allclose(alone["accuracy"], plain["accuracy"], atol=1e-6)


def test_a_cohort_in_which_nobody_returned_counts_as_norm_0():
    selector, ctx = CriticalFL(smallest=2), context(np.ones(8), 6)
    state = selector.init(KEY, ctx, HOST)
    after = selector.observe(KEY, state, ctx, cohort([1, 2, -1, -1, -1, -1], [False] * 6), **{NORM: jnp.zeros(6)})
    assert float(after.norms[-1]) == 0
    assert np.isfinite(np.asarray(after.norms)).all()


def test_what_cannot_be_wrapped_or_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"critical_fl: selector is FedCor, which probes; wrap one that does not"):
        CriticalFL(FedCor())
    with pytest.raises(ValueError, match=r"critical_fl: selector is CriticalFL, which has a signal"):
        CriticalFL(CriticalFL())
    with pytest.raises(ValueError, match=r"critical_fl: smallest is 9 members, but the cohort has m = 6 slots"):
        CriticalFL(Uniform(), smallest=9).init(KEY, context(np.ones(12), 6), HOST)
    with pytest.raises(ValueError, match=r"power_of_choice: d is 3 candidates"):
        CriticalFL(PowerOfChoice(d=3)).init(KEY, context(np.ones(12), 6), HOST)


def test_a_configuration_names_the_wrapped_selector():
    kind = KINDS["client_selection"]
    given = {"name": "critical_fl", "selector": {"name": "power_of_choice", "d": 12}}
    assert kind.build(kind.resolve("client_selection", given)) == CriticalFL(PowerOfChoice(d=12))
    assert kind.resolve("client_selection", "critical_fl")["selector"] == {"name": "uniform"}
    with pytest.raises(ValueError, match=r"unknown client_selection.selector 'unifrm'; did you mean 'uniform'"):
        kind.resolve("client_selection", {"name": "critical_fl", "selector": "unifrm"})
    with pytest.raises(ValueError, match=r"selector has fraction, but no name that says which one it is"):
        kind.resolve("client_selection", {"name": "critical_fl", "selector": {"fraction": 0.2}})


@pytest.mark.parametrize(
    ("inner", "signal"),
    [(EpsilonGreedy(0.3, per_slot=True), "loss"), (ActiveFL(alpha3=0.5), None)],
    ids=["epsilon_greedy", "active_fl"],
)
def test_exploration_of_the_wrapped_selector_survives(inner, signal):
    """The exploited members come first in its cohort, and a smaller cohort keeps some of the others."""
    n, m = 96, 24
    ctx, score = context(np.ones(n), m), jnp.arange(n, dtype=jnp.float32)
    selector = CriticalFL(inner, smallest=4)
    state = selector.init(KEY, ctx, HOST)
    state = state._replace(inner=score) if signal is None else state
    told = {} if signal is None else {signal: score}
    select = jax.jit(lambda selector, key: selector.select(key, state, ctx, **told))
    taken = [select(selector, key) for key in jax.random.split(KEY, 200)]
    explored = np.mean([np.mean(np.array(members(one)) < n - m) for one in taken])
    alone = jax.jit(lambda key: inner.select(key, state.inner, ctx, **told))
    whole = np.mean([np.mean(np.array(members(alone(key))) < n - m) for key in jax.random.split(KEY, 200)])
    assert whole > 0.2
    assert explored == pytest.approx(whole, abs=0.06)
