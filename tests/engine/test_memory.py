"""What a run is said to hold, beside what XLA allocates for it; and what is said where it does not fit."""

import jax
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, simulate
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.data_selection.random_subset import RandomSubset
from fedjax_sel.engine import program as engine
from fedjax_sel.engine.memory import estimate, peak, size_of
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP

FACTOR = 3
SCAN = Layout(clients=1, seeds="scan")
WIDE = Layout(examples=512)


@pytest.fixture(scope="module")
def rows():
    """200 features of 900 training rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 200)).astype(np.float32)
    return dataset("rows", x, np.arange(1200) % 4, test=0.2, validation=0.05)


def experiment(rows, personal=(), **changes):
    task = Task.on(MLP(classes=4, hidden=(64,)), rows).replace(personal=personal)
    return Experiment(task, local_training=SGD(0.1, batch_size=32), **({"cohort_size": 6, "rounds": 2} | changes))


def clients(rows):
    return Federation(rows, partition.Iid(clients=12), data_seed=0)


class Found(Exception):
    """What was to be compiled."""


def program(monkeypatch, *arguments, **how):
    """What `simulate` would compile."""

    def found(*what):
        raise Found(*what)

    monkeypatch.setattr(engine, "check_program", found)
    with pytest.raises(Found) as caught:
        simulate(*arguments, **how)
    return caught.value.args[:3]


def compiled(function, arguments, static):
    """The compiled program, whose arguments are leaves: JAX puts descriptions of them where types are checked."""
    leaves, tree = jax.tree.flatten(arguments)
    first = len(jax.tree.leaves(arguments[:3]))
    state = range(first, first + len(jax.tree.leaves(arguments[3])))
    flat = jax.jit(lambda *leaves: function.__wrapped__(*tree.unflatten(leaves), **static), donate_argnums=state)
    return flat.lower(*leaves).compile()


@pytest.mark.parametrize(
    ("changes", "layout"),
    [({}, WIDE), ({}, SCAN), ({"correction": Scaffold()}, WIDE), ({"client_selection": GPFL()}, WIDE)],
    ids=["vmap", "scan", "scaffold", "gpfl"],
)
def test_the_estimate_is_near_what_xla_allocates(rows, changes, layout, monkeypatch):
    function, arguments, static = program(
        monkeypatch, experiment(rows, **changes), clients(rows), seeds=4, layout=layout
    )
    estimated = estimate(function, arguments, static)
    found = compiled(function, arguments, static).memory_analysis()
    allocated = allocate(found)
    print(f"estimated {estimated / 1e6:.2f} MB, allocated {allocated / 1e6:.2f} MB")
    assert allocated / FACTOR < estimated < allocated * FACTOR


def allocate(found):
    """Bytes that XLA allocates on a device."""
    kept = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return kept - found.alias_size_in_bytes


@pytest.mark.parametrize("mesh", [(2, 1), (1, 2)])
def test_on_a_mesh_the_estimate_is_of_one_device(rows, mesh, monkeypatch):
    layout = Layout(examples=512, mesh=mesh)
    function, arguments, static = program(
        monkeypatch, experiment(rows, correction=Scaffold()), clients(rows), seeds=8, layout=layout
    )
    estimated = estimate(function, arguments, static)
    allocated = allocate(compiled(function, arguments, static).memory_analysis())
    assert allocated / 1.3 < estimated < allocated * 1.3


def test_what_seeds_have_of_their_own_counts_by_share_where_seeds_are_divided(rows, monkeypatch):
    """The order of the examples is each seed's own, the examples are shared."""
    sizes = []
    monkeypatch.setattr(
        engine, "check_kept", lambda _, data, *rest: sizes.append([size_of(data.order), size_of(data.x)])
    )
    for mesh in (None, (2, 1), (1, 2)):
        drawn = Federation(rows, partition.Iid(clients=12)).draws(range(4))
        engine.plan_program([experiment(rows)], drawn, range(4), layout=Layout(mesh=mesh)).check_kept(None)
    (order, x), divided, copied = sizes
    assert divided == [order / 2, x]
    assert copied == [order, x]


def test_liveness_counts_what_is_needed_at_once_and_nothing_that_is_fused():
    """Two products of 4 MB are alive together where they are added, three never; sums of rows are small."""
    a = jax.ShapeDtypeStruct((1000, 1000), np.float32)

    def chain(a):
        b = a @ a
        return (b @ b).sum()

    def apart(a):
        return ((a @ a) * (a @ a.T) + 1.0).sum()

    def loop(a):
        return jax.lax.scan(lambda carry, _: (carry @ carry, None), a, None, length=50)[0].sum()

    for function in (chain, apart):
        assert peak(jax.make_jaxpr(function)(a).jaxpr) == pytest.approx(8e6, rel=0.01)
    assert peak(jax.make_jaxpr(loop)(a).jaxpr) == pytest.approx(8e6, rel=0.01), "however many times it goes round"


def test_what_is_scattered_into_an_array_nobody_needs_any_more_takes_no_second_one():
    a = jax.ShapeDtypeStruct((1000, 1000), np.float32)
    assert peak(jax.make_jaxpr(lambda a: (a @ a).at[3].add(1.0).sum())(a).jaxpr) == pytest.approx(4e6, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "memory", "message"),
    [
        ({}, 100_000, r"the examples take .* GiB, but a device has 9.31e-05 GiB; lower data.num_examples"),
        (
            {"correction": Scaffold()},
            2_000_000,
            r"the state of scaffold for N = 12 clients, 4 runs and a model of 13124 parameters takes 0.00\d+ GiB",
        ),
        (
            {"personal": ("Dense_0",)},
            2_000_000,
            r"the personal parts \(Dense_0\) for N = 12 clients, 4 runs .* take 0.00\d+ .*; make fewer parts personal",
        ),
        ({}, 2_000_000, r"would hold about .* with seeds by vmap, clients by vmap and 4 runs, .*layout=scan .* takes"),
    ],
    ids=["rows", "clients", "personal", "program"],
)
def test_what_does_not_fit_is_refused_before_anything_compiles_with_what_would_help(rows, changes, memory, message):
    before = run_chunk.programs
    with pytest.raises(ValueError, match=message):
        simulate(experiment(rows, **changes), clients(rows), seeds=4, layout=WIDE, memory=memory)
    assert run_chunk.programs == before


def test_the_program_is_traced_once_for_the_estimate_and_the_run(rows):
    traced = []

    class Counting(type(Layout())):
        """A layout that is asked when a round is traced."""

        def over_seeds(self, f, args, axes):
            traced.append(1)
            return super().over_seeds(f, args, axes)

    history = simulate(experiment(rows, rounds=4), clients(rows), seeds=1, layout=Counting(examples=512), chunk=2)
    assert history.about["memory"] > 0
    assert len(traced) == 1


@pytest.mark.parametrize(
    "selector", [Everything(), RandomSubset(0.5), Entropy(0.5)], ids=lambda one: type(one).__name__
)
def test_data_selection_holds_no_examples_of_the_whole_cohort(rows, selector):
    recipe, m = Federation(rows, partition.Dirichlet(clients=12, alpha=0.1), data_seed=0), 12
    how = {"layout": SCAN, "memory": 10**9}
    history = simulate(experiment(rows, cohort_size=m, data_selection=selector), recipe, 1, **how)
    assert history.about["memory"] < m * recipe.draw(0).longest * 200 * 4
