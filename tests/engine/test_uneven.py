"""Clients of unequal sizes: dealt to devices and trained in an order that spares steps, examined without padding."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Layout, partition, simulate
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.data.federation import Federation
from fedjax_sel.data_selection.el2n import EL2N
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.data_selection.kakurenbo import Kakurenbo
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.engine import data_selection
from fedjax_sel.engine.autolayout import CROWDED, LARGE_STEP, OF_MODEL, OF_STEP, choose_layout, estimate_cost
from fedjax_sel.engine.layout import deal
from fedjax_sel.engine.program import count_steps, plan_layout
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from tests.engine.meshes import BASE, CASES, CLOSE, ROWS, SEEDS

LONGEST = 11
FEW = Federation(ROWS, partition.Dirichlet(clients=9, alpha=0.1))
NEVER = 1e9


def deal_by_hand(load, among):
    """Deals members by what the parts have so far, as a person would with a list of them."""
    queue = sorted(range(len(load)), key=lambda i: -load[i])
    parts = [[] for _ in range(among)]
    while queue:
        now, queue = queue[:among], queue[among:]
        waiting = sorted(range(among), key=lambda p: sum(load[i] for i in parts[p]))
        for member, part in zip(now, waiting, strict=False):
            parts[part].append(member)
    return parts


@pytest.mark.parametrize("among", [1, 2, 3, 8])
@pytest.mark.parametrize("m", [1, 2, 7, 24])
def test_members_are_dealt_as_by_hand(m, among):
    load = np.random.default_rng(m).permutation(100)[:m] + 1
    dealt = np.asarray(jax.jit(deal, static_argnums=1)(jnp.asarray(load), among)).reshape(among, -1)
    assert sorted(dealt.ravel()) == list(range(dealt.size))
    assert [[i for i in part if i < m] for part in dealt] == deal_by_hand(load.tolist(), among)
    assert all((np.diff(part >= m) >= 0).all() for part in dealt)  # nobody stands between members


def test_dealt_parts_wait_less_than_parts_of_the_cohort_as_it_is():
    load = np.random.default_rng(0).lognormal(5.0, size=(200, 10)).astype(np.int32)
    dealt = jax.vmap(partial(deal, among=2))(jnp.asarray(load))
    sums = np.take_along_axis(load, np.asarray(dealt), 1).reshape(200, 2, 5).sum(2)
    longest, as_they_are = sums.max(1).mean(), load.reshape(200, 2, 5).sum(2).max(1).mean()
    assert longest < 0.88 * as_they_are


@pytest.mark.parametrize(
    ("examples", "seeds", "mesh"),
    [
        (8192, "vmap", None),
        (1, "vmap", None),
        (3, "scan", None),
        (8192, "vmap", (1, 2)),
        (1, "scan", (1, 2)),
        (3, "scan", (1, 2)),
        (3, "vmap", (2, 1)),
        (8192, "scan", (2, 1)),
    ],
    ids=str,
)
def test_what_clients_have_is_measured_wherever_it_lies(examples, seeds, mesh):
    rng = np.random.default_rng(examples)
    counts = rng.integers(0, LONGEST + 1, (4, 5)) * rng.integers(0, 2, (4, 5))
    counts[2] = 0
    index = rng.integers(0, 99, (4, 5, LONGEST))
    last = np.minimum(np.arange(LONGEST), np.maximum(counts, 1)[..., None] - 1)
    index = np.take_along_axis(index, last, 2)
    layout = Layout(seeds=seeds, examples=examples, mesh=mesh)

    def f(index):
        return {"square": index**2, "even": index % 2 == 0, "two": jnp.stack([0.5 * index, -1.0 * index], 1)}

    def one(index, count):
        return layout.over_filled(f, index, count, usual=2.0)

    found = jax.jit(lambda *own: layout.over_seeds(one, own, (0, 0)))(jnp.asarray(index), jnp.asarray(counts))
    some = (counts > 0)[..., None]
    np.testing.assert_array_equal(found["square"], np.where(some, index**2, 0))
    np.testing.assert_array_equal(found["even"], some & (index % 2 == 0))
    np.testing.assert_array_equal(
        found["two"], np.where(some, np.stack([0.5 * index, -1.0 * index], 0), 0).transpose(1, 2, 3, 0)
    )


def test_there_are_as_many_passes_as_the_examples_need():
    layout, count, seen = Layout(examples=4), jnp.array([0, 1, 4, 5, 11, 0]), []
    index = jnp.arange(6 * LONGEST).reshape(6, LONGEST)

    def f(index):
        if not isinstance(index, jax.core.Tracer):
            seen.extend(index.tolist())
        return index

    with jax.disable_jit():
        layout.over_filled(f, index, count, usual=3.5)
    assert seen[:21] == [LONGEST * i + j for i, n in enumerate(count.tolist()) for j in range(n)]
    assert len(seen) == 24


def choose_with(selector):
    return BASE.replace(data_selection=selector, availability=Bernoulli(0.5))


@functools.cache
def run_each_alone(selector):
    """The run in which each member measures its own examples, side by side, padded to the longest client."""
    own, alone_only = data_selection.measure_own, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_selection, "UNEVEN", NEVER)
        patch.setattr(data_selection, "measure_own", lambda *given: alone_only.append(1) or own(*given))
        run_chunk.clear_cache()
        found = simulate(choose_with(selector), FEW, SEEDS, layout=Layout())
        run_chunk.clear_cache()
    assert alone_only
    return found


ON_TWO = Layout(clients=1, seeds="scan", examples=20), (1, 2)


@pytest.mark.parametrize(
    ("selector", "layout", "mesh"),
    [
        (Entropy(0.2), Layout(), None),
        (Entropy(0.2), *ON_TWO),
        (Entropy(0.2), Layout(members=1, balanced=True), (2, 1)),
        (Entropy(0.2), Layout(clients=2, seeds="scan", balanced=True), (1, 2)),
        (EL2N(0.3), *ON_TWO),
        (EL2N(0.3, turns=2), Layout(), None),
        (Kakurenbo(0.3), *ON_TWO),
    ],
    ids=str,
)
def test_members_choose_what_they_choose_when_each_measures_its_own(selector, layout, mesh):
    alone = run_each_alone(selector)
    together = simulate(choose_with(selector), FEW, SEEDS, layout=layout, mesh=mesh)
    np.testing.assert_array_equal(together.selections, alone.selections)
    for metric in alone.metrics:
        np.testing.assert_allclose(together[metric], alone[metric], **CLOSE, err_msg=metric)
    for metric in ("flops", "selection_flops"):
        np.testing.assert_array_equal(together[metric], alone[metric])


def take_case_with_failures():
    experiment, data = CASES["candidates, and control variates"]
    return experiment.replace(volatility=Bernoulli(0.7)), data


@functools.cache
def run_in_order():
    experiment, data = take_case_with_failures()
    return simulate(experiment, data, SEEDS, layout=Layout(balanced=False))


@pytest.mark.parametrize(
    "blocks", [{"clients": 1}, {"members": 1}, {"clients": 2}, {"clients": 3, "members": 2}], ids=str
)
@pytest.mark.parametrize("mesh", [None, (1, 2)], ids=str)
def test_a_balanced_cohort_trains_as_one_in_order(mesh, blocks):
    (experiment, data), plain = take_case_with_failures(), run_in_order()
    balanced = simulate(experiment, data, SEEDS, layout=Layout(**blocks, balanced=True), mesh=mesh)
    np.testing.assert_array_equal(balanced.selections, plain.selections)
    for metric in plain.metrics:
        np.testing.assert_allclose(balanced[metric], plain[metric], **CLOSE, err_msg=metric)


@pytest.mark.parametrize("case", ["stacked updates", "updates together, and members that fail"])
def test_a_cohort_whose_updates_are_all_kept_stays_in_order(case):
    experiment, data = CASES[case]
    assert plan_layout(experiment, data.draws(SEEDS), 3, Layout(members=1, balanced=True)).balanced is False
    experiment, data = CASES["candidates, and control variates"]
    assert plan_layout(experiment, data.draws(SEEDS), 3, Layout(members=1, balanced=True)).balanced is True


def test_a_deadline_meets_the_same_members_in_a_balanced_cohort():
    experiment, data = CASES["devices with a deadline"]
    assert isinstance(experiment.client_selection, Oort)
    plain = simulate(experiment, data, SEEDS, layout=Layout(clients=1, balanced=False))
    balanced = simulate(experiment, data, SEEDS, layout=Layout(clients=1, balanced=True), mesh=(1, 2))
    np.testing.assert_array_equal(balanced.selections, plain.selections)
    np.testing.assert_allclose(balanced["seconds"], plain["seconds"], rtol=1e-5)


def test_the_cost_of_a_layout_is_that_of_the_steps_of_the_longest_that_wait_together():
    steps, work = [np.array([1, 3]), np.array([2, 7])], 1e4
    cost = estimate_cost(work, steps, 2, 2, (1, 1))

    def of(count, width):
        return count * (OF_STEP + width * (OF_MODEL + work))

    assert cost["vmap", "vmap"] == pytest.approx(of(7, 4))
    assert cost["scan", "vmap"] == pytest.approx(of(3 + 7, 2))
    assert cost["vmap", "scan"] == pytest.approx(of(7 + 2, 2))
    assert cost["scan", "scan"] == pytest.approx(of(13, 1))
    divided = estimate_cost(work, steps, 2, 2, (1, 2))
    assert divided["scan", "scan"] == pytest.approx(of(3 + 7, 1))
    crowded = estimate_cost(LARGE_STEP, steps, 2, 2, (1, 1))
    assert crowded["vmap", "vmap"] == pytest.approx(7 * CROWDED * (OF_STEP + 4 * (OF_MODEL + LARGE_STEP)))


@pytest.mark.parametrize(
    ("work", "longest", "runs", "members", "seeds"),
    [
        (1e3, 2, 1, None, "vmap"),  # a step is mostly overhead
        (1e3, 100, 1, 1, "scan"),
        (1e6, 100, 1, 1, "scan"),
        (1e3, 10, 8, 1, "vmap"),  # the longest clients of all seeds together
        (1e7, 10, 8, 1, "scan"),
    ],
)
def test_unequal_clients_take_turns_where_they_would_wait_for_the_longest(work, longest, runs, members, seeds):
    steps = [np.array([1] * 8 + [longest])] * runs
    found = choose_layout(None, work, 1.0, runs=runs, members=9, steps=steps)
    assert (found.members, found.seeds, found.balanced) == (members, seeds, members == 1)
    assert found.clients is None, "passes over all clients stay side by side"
    alike = choose_layout(None, work, 1.0, runs=runs, members=9, steps=[np.full(9, longest)] * runs)
    assert alike == choose_layout(None, work, 1.0, runs=runs, members=9)
    assert not alike.balanced


def test_a_given_layout_balances_unequal_clients_unless_it_says_otherwise():
    alike, differ = [np.array([4, 4, 5])], [np.array([4, 4, 9])]
    for given in (Layout(clients=1), Layout(clients=1, balanced=None)):
        assert choose_layout(given, 1e6, 1.0, members=3, steps=differ).balanced is True
        assert choose_layout(given, 1e6, 1.0, members=3, steps=alike).balanced is False
    for told in (True, False):
        for steps in (alike, differ):
            assert choose_layout(Layout(clients=1, balanced=told), 1e6, 1.0, members=3, steps=steps).balanced is told


def test_members_take_turns_only_where_it_is_worth_it():
    steps, chosen = [np.array([4, 5, 6, 9])], []
    for work in np.geomspace(1e3, 1e7, 40):
        cost = estimate_cost(work, steps, 1, 4, (1, 1))
        gain = cost["scan", "scan"] / cost["vmap", "vmap"]
        found = choose_layout(None, work, 1.0, members=4, steps=steps)
        assert found.members == (1 if gain < 0.85 else None)
        chosen.append((found.members, gain < 1))
    assert set(chosen) == {(None, False), (None, True), (1, True)}


def test_an_accelerator_stacks_unequal_clients_too(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_layout(None, 1e6, 1.0, members=9, steps=[np.array([1] * 8 + [100])]).members is None


@pytest.mark.parametrize(
    ("trainer", "steps"),
    [
        (SGD(0.1, batch_size=10, epochs=3), [3, 3, 6, 30]),
        (SGD(0.1, batch_size=10, steps=4), [4, 4, 4, 4]),
        (SGD(0.1, batch_size=None), [1, 1, 1, 1]),
        (SGD(0.1, batch_size=20, epochs=5), [5, 5, 5, 25]),
    ],
    ids=str,
)
def test_steps_are_counted_as_trainers_plan_them(trainer, steps):
    sizes = np.array([5, 10, 20, 100])
    np.testing.assert_array_equal(count_steps(trainer, sizes), steps)
    np.testing.assert_array_equal(trainer.plan(jnp.asarray(sizes), 100, 0, 1).steps, steps)


@pytest.mark.parametrize(("sizes", "alike"), [([10, 10, 10], True), ([10, 12, 11], True), ([4, 4, 12], False)])
def test_clients_about_as_long_as_each_other_run_as_those_of_one_size(sizes, alike):
    one, other = (
        choose_layout(None, 1e6, 1.0, members=3, steps=[np.array(steps)]) for steps in (sizes, [max(sizes)] * 3)
    )
    assert (one == other) == alike


@pytest.mark.parametrize("value", [1, "yes"])
def test_balanced_is_true_false_or_null(value):
    layout = Layout()
    object.__setattr__(layout, "balanced", value)
    with pytest.raises(ValueError, match=f"balanced is {value!r}; it must be true, false or null"):
        layout.__post_init__()
