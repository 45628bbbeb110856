"""Every strategy in the package goes through the same trials."""

import dataclasses
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import (
    Experiment,
    Federation,
    Task,
    aggregation,
    catalog,
    client_selection,
    correction,
    data_selection,
    dataset,
    local_training,
    models,
    partition,
    protocols,
    signals,
    simulate,
)
from fedjax_sel.devices.clock import Timing
from fedjax_sel.devices.laws import LogNormal, Uniform
from fedjax_sel.engine.cohort import merge_duplicates
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.program import plan_program
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import CohortSignal, ExampleSignal, Host, ServerSignal, UpdateSignal
from fedjax_sel.types import PAD_CLIENT, Batch, Cohort, Context, Turn, Update, Updates

N, M = 24, 4
SELECTORS = client_selection.available()
SAMPLES = data_selection.available()
AGGREGATORS = aggregation.available()
CORRECTIONS = correction.available()


def bare(name):
    return client_selection.load(name)()


def context(round=0, available=None):
    """A round of clients that differ in everything: examples, devices, seconds of a turn."""
    size = jnp.arange(1, N + 1, dtype=jnp.int32) * 3
    available = jnp.ones(N, bool) if available is None else available
    parts = jnp.asarray(np.random.default_rng(4).uniform(0.5, 2.0, (3, N)), jnp.float32)
    devices = LogNormal().draw(0, N)
    return Context(
        jnp.int32(round), jnp.int32(50), size, available, devices=devices, timing=Timing(*parts), cohort_size=M
    )


def signals_for(selector, ctx):
    """Every client has its own value of each signal, whoever else is asked."""
    key = jax.random.key(5)
    whole = {
        name: jax.random.uniform(jax.random.fold_in(key, i), (ctx.num_clients, *shape_of(signal)), minval=0.1)
        for i, (name, signal) in enumerate(selector.signals().before.items())
    }
    return whole if ctx.candidates is None else {name: value[ctx.candidates] for name, value in whole.items()}


def shape_of(signal):
    """The shape of a signal's value, of one client or of the server: a vector over three classes, say."""
    task, variables, y = host().task, host().variables, jnp.zeros(2, jnp.int32)
    if isinstance(signal, ServerSignal):
        return jax.eval_shape(signal.measure, jnp.ones((2, 3)), y).shape
    if isinstance(signal, ExampleSignal):
        return jax.eval_shape(signal.measure, jnp.ones((2, 3)), y).shape[1:]
    if isinstance(signal, UpdateSignal):
        update = Update(variables, *(jnp.int32(1),) * 3, jnp.ones(()), jnp.ones(()))
        return jax.eval_shape(signal.measure, update, None if signal.reference == "none" else variables).shape
    batch = Batch(jnp.ones((2, 3)), y, jnp.ones(2, bool))
    if isinstance(signal, CohortSignal):
        deltas = jax.tree.map(lambda leaf: jnp.zeros((M, *leaf.shape)), variables)
        updates = Updates(variables, deltas, jnp.ones(M))
        return jax.eval_shape(
            lambda key, *args: signal.measure(key, jnp.int32(0), task, *args), jax.random.key(0), updates, batch
        ).shape[1:]
    return jax.eval_shape(lambda *args: signal.measure(task, *args), variables, batch, jax.random.key(0)).shape


def after_for(selector):
    wanted = selector.signals().after
    return {n: jnp.ones((() if isinstance(s, ServerSignal) else (M,)) + shape_of(s)) for n, s in wanted.items()}


def trained_for(selector):
    return {name: jnp.ones((M, *shape_of(signal))) for name, signal in selector.signals().trained.items()}


def probes(selector):
    return protocols.overrides(selector, "probes")


def turn(selector, key, state, ctx, before=None):
    """One round of a selector's life, and its cohort."""
    key_candidates, key_select, key_accept, key_observe = jax.random.split(key, 4)
    ctx = ctx.replace(candidates=selector.candidates(key_candidates, state, ctx))
    before = signals_for(selector, ctx) if before is None else before
    cohort = selector.select(key_select, state, ctx, **before)
    cohort = merge_duplicates(cohort) if selector.replacement else cohort
    trained = trained_for(selector)
    accepted = selector.accept(key_accept, state, ctx, cohort, **trained)
    probed = {f"probed_{name}": 0.5 * value for name, value in before.items() if probes(selector)}
    told = before | probed | trained | after_for(selector)
    return cohort, selector.observe(key_observe, state, ctx, accepted, **told)


compiled_turn = jax.jit(turn)
"""One program for each selector, which the tests below share."""


@functools.cache
def host():
    """What a selector may look at before the first round: `N` clients with examples, and public examples."""
    rng = np.random.default_rng(6)
    data = dataset("noise", rng.normal(size=(240, 3)).astype(np.float32), np.arange(240) % 3, test=0.1)
    drawn = Federation(data, partition.Iid(clients=N), public=data.x[:12]).draw(0)
    task = Task(MLP(classes=3, hidden=(4,)))
    return Host(task, drawn, task.init(jax.random.key(0), data.x), SGD(batch_size=4))


def start(selector, ctx):
    wanted = selector.signals().upfront
    key, *keys = jax.random.split(jax.random.key(0), 1 + len(wanted))
    upfront = {name: wanted[name].measure(key, host()) for name, key in zip(wanted, keys, strict=True)}
    return selector.init(key, ctx, host(), **upfront)


FEWER = {"gpfl"}
"""Selectors that fill fewer slots while they warm up."""

ANY_SIZE = {"critical_fl", "filfl", "k_vib"}
"""Selectors of which cohorts have fewer members than slots, even none, by rule or by chance."""


def may_be_fewer(name, round):
    """Whether a cohort can have less than `m` different members."""
    return bare(name).replacement or (name in FEWER and round <= 12)


@pytest.mark.parametrize("name", SELECTORS)
def test_a_cohort_has_its_shape_and_distinct_clients_in_range(name):
    selector, ctx = bare(name), context()
    state = start(selector, ctx)
    for round in range(14):
        cohort, state = compiled_turn(selector, jax.random.key(round), state, context(round))
        assert isinstance(cohort, Cohort)
        assert (cohort.client.shape, cohort.mask.shape, cohort.weight.shape) == ((M,), (M,), (M,))
        assert cohort.client.dtype == jnp.int32
        members = cohort.client[cohort.mask].tolist()
        assert len(set(members)) == len(members) <= M
        assert len(members) >= (0 if name in ANY_SIZE else 1 if may_be_fewer(name, round) else M)
        assert all(0 <= member < N for member in members)
        assert set(cohort.client[~cohort.mask].tolist()) <= {PAD_CLIENT}


@pytest.mark.parametrize("name", SELECTORS)
def test_only_available_clients_are_selected_and_empty_slots_say_so(name):
    selector = bare(name)
    reachable = {2, 11, 20}
    ctx = context(available=jnp.zeros(N, bool).at[jnp.array(sorted(reachable))].set(True))
    cohort, _ = compiled_turn(selector, jax.random.key(3), start(selector, ctx), ctx)
    assert set(cohort.client[cohort.mask].tolist()) <= reachable
    assert set(cohort.client[~cohort.mask].tolist()) <= {PAD_CLIENT}
    assert 1 <= int(cohort.mask.sum()) <= 3
    assert float(jnp.where(cohort.mask, 0, cohort.weight).sum()) == 0


@pytest.mark.parametrize("name", SELECTORS)
def test_the_same_key_gives_the_same_cohort(name):
    """The state before the first round and the round itself, traced anew, hold the same numbers and operations."""
    selector, ctx, found = bare(name), context(), []
    for _ in range(2):
        state = start(selector, ctx)
        traced = jax.make_jaxpr(lambda key, state=state: turn(selector, key, state, ctx))(jax.random.key(1))
        found.append((jax.tree.leaves((state, traced.consts)), re.sub("0x[0-9a-f]+", "", str(traced.jaxpr))))
    (numbers, operations), (others, again) = found
    assert operations == again
    for one, other in zip(numbers, others, strict=True):
        np.testing.assert_array_equal(one, other)


WRAPPERS = {"critical_fl"}
"""Selectors that pass signals on to the selector that they wrap, whatever these are."""

BY_SCORE = {"adapow_d", "cpow_d", "device_heuristic", "divfl", "entropy", "epsilon_greedy", "fedcs", "gradient_norm"}
BY_SCORE |= {"power_of_choice"}
"""Selectors that, without exploration and with all clients asked, leave nothing to chance where no two clients tie."""

BY_CLUSTER = {"fed_lecc"}
"""Selectors that leave as little to chance, with clusters made of the clients' examples once."""


def settled(name):
    """A selector without exploration, that asks everyone."""
    selector = bare(name)
    settings = {"epsilon": 0.0, "d": N} if name in BY_SCORE else {}
    return dataclasses.replace(selector, **{key: value for key, value in settings.items() if hasattr(selector, key)})


@pytest.mark.parametrize("name", SELECTORS)
def test_another_key_gives_another_cohort_unless_a_score_decides(name):
    selector, ctx = settled(name), context()
    state = start(selector, ctx)
    cohorts = {frozenset(compiled_turn(selector, jax.random.key(k), state, ctx)[0].client.tolist()) for k in range(8)}
    assert (len(cohorts) == 1) == (name in BY_SCORE | BY_CLUSTER)


@pytest.mark.parametrize("name", SELECTORS)
def test_rounds_and_float_hyperparameters_share_one_trace(name):
    selector, ctx = bare(name), context()
    state = start(selector, ctx)
    traces = []

    @jax.jit
    def step(selector, key, state, ctx):
        traces.append(1)
        return turn(selector, key, state, ctx)

    for round, factor in ((0, 1.0), (1, 1.0), (2, 0.5)):
        tuned = jax.tree.map(lambda leaf, factor=factor: leaf * factor, selector)
        _, state = jax.eval_shape(step, tuned, jax.random.key(round), state, context(round))
    assert len(traces) == 1


VARIANTS = {"e3cs": {"schedule": "inc"}, "gpfl": {"schedule": "linear"}}
"""Fields with which a selector reads how many rounds there are, where it does not as it is constructed bare."""


@pytest.mark.parametrize(("name", "fields"), [*((name, {}) for name in SELECTORS), *VARIANTS.items()])
def test_who_reads_the_number_of_rounds_says_so(name, fields):
    """The state before round 0, and which inputs the traced round has a use for, by T = 50 and T = 60."""
    selector, ctx = client_selection.load(name)(**fields), context(7)
    states = [start(selector, ctx.replace(rounds=jnp.int32(T))) for T in (50, 60)]
    differ = any(
        not np.array_equal(a, b, equal_nan=a.dtype == jnp.float32)
        for a, b in zip(*map(jax.tree.leaves, states), strict=True)
    )

    def round_of(rounds):
        return turn(selector, jax.random.key(1), states[0], ctx.replace(rounds=rounds))

    traced = jax.make_jaxpr(round_of)(jnp.int32(50)).jaxpr
    read = any(variable is traced.invars[0] for equation in traced.eqns for variable in equation.invars)
    assert selector.uses_rounds == (differ or read)


@pytest.mark.parametrize("name", SELECTORS)
def test_seeds_and_floats_can_be_vmapped(name):
    selector, ctx = bare(name), context()
    state = start(selector, ctx)
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf, jnp.float32)] * 3), selector)
    cohort = jax.jit(jax.vmap(lambda selector, key: turn(selector, key, state, ctx)[0]))(many, keys)
    alone = [compiled_turn(selector, key, state, ctx)[0].client.tolist() for key in keys]
    assert cohort.client.tolist() == alone


@pytest.mark.parametrize("name", sorted(BY_SCORE))
def test_relabelling_the_clients_relabels_the_cohort_that_a_score_decides(name):
    selector, ctx = settled(name), context()
    old = jnp.asarray(np.random.default_rng(1).permutation(N))  # who the new client i was
    moved = ctx.replace(
        num_examples=ctx.num_examples[old],
        devices=ctx.devices.take(old),
        timing=jax.tree.map(lambda leaf: leaf[old], ctx.timing),
    )

    def cohort_of(ctx, label):
        asked = selector.candidates(jax.random.split(jax.random.key(2), 4)[0], (), ctx)  # as `turn` does
        values = {n: v[label] if asked is None else v[label][asked] for n, v in signals_for(selector, ctx).items()}
        state = start(selector, ctx)
        return compiled_turn(selector, jax.random.key(2), state, ctx, values)[0].client

    assert {int(old[i]) for i in cohort_of(moved, old)} == set(cohort_of(ctx, jnp.arange(N)).tolist())


@pytest.mark.parametrize("name", SELECTORS)
def test_declared_needs_are_the_keyword_only_names(name):
    selector = bare(name)

    def keywords(method):
        parameters = inspect.signature(method).parameters.values()
        return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}, any(
            p.kind is p.VAR_KEYWORD for p in parameters
        )

    wanted = selector.signals()
    assert keywords(selector.select) in ((set(wanted.before), False), *([(set(), True)] if name in WRAPPERS else []))
    assert keywords(selector.accept) in ((set(wanted.trained), False), (set(), True))
    named, anything = keywords(selector.observe)
    probed = {f"probed_{name}" for name in wanted.before if probes(selector)}
    assert anything or named == probed | {*wanted.before, *wanted.trained, *wanted.after}


ASKING = [name for name in SELECTORS if bare(name).signals().before]
LEARNING = [name for name in SELECTORS if bare(name).signals().after]


@pytest.mark.parametrize("name", ASKING)
def test_a_missing_signal_is_an_error_that_names_it(name):
    selector, ctx = bare(name), context()
    state = start(selector, ctx)
    told = signals_for(selector, ctx.replace(candidates=selector.candidates(jax.random.key(0), state, ctx)))
    for lacking in selector.signals().before:
        others = {name: value for name, value in told.items() if name != lacking}
        with pytest.raises(TypeError, match=f"'{lacking}'"):
            selector.select(jax.random.key(0), state, ctx, **others)


@pytest.mark.parametrize("name", LEARNING)
def test_a_missing_signal_after_the_round_is_an_error_that_names_it(name):
    selector, ctx = bare(name), context()
    state, cohort = start(selector, ctx), Cohort(jnp.arange(M), jnp.ones(M, bool), jnp.ones(M))
    told = signals_for(selector, ctx) | trained_for(selector) | after_for(selector)
    for lacking in selector.signals().after:
        others = {name: value for name, value in told.items() if name != lacking}
        with pytest.raises((TypeError, KeyError), match=f"'{lacking}'"):
            selector.observe(jax.random.key(0), state, ctx, cohort, **others)


@pytest.mark.parametrize(
    ("package", "name"),
    [(p, n) for p in (client_selection, data_selection, aggregation, correction) for n in p.available()],
    ids=lambda v: v if isinstance(v, str) else v.__name__.rsplit(".", 1)[-1],
)
def test_the_docstring_names_source_and_year(package, name):
    source = inspect.getdoc(package.load(name)).split("Source:")
    assert len(source) == 2, "one paragraph that begins with 'Source:'"
    assert re.search(r"\b(19|20)\d\d\b", source[1]) or "UACS-FL" in source[1]
    thesis = re.search(r"thesis, [A-Z][\w ]+, (19|20)\d\d", source[1])  # not published: institution and year
    assert "http" in source[1] or "UACS-FL" in source[1] or "FedFT-EDS" in source[1] or thesis


PERHAPS_NONE = {"fed_sampling"}
"""Data selections that may keep no example of a client, by chance."""


def known_to(samples):
    """One client's state, and what it knows of its 30 examples: signals, the same for all that look at logits."""
    key, variables = jax.random.key(0), host().variables
    logits, features = jax.random.normal(key, (30, 3)), jax.random.normal(jax.random.key(1), (30, 4))
    y, ctx = jnp.arange(30) % 3, context()
    batch = Batch(jnp.ones((30, 3)), y, jnp.ones(30, bool))
    known = {}
    for name, signal in samples.signals().items():
        if isinstance(signal, protocols.ClientSignal):
            known[name] = signal.measure(host().task, variables, batch, key)
        else:
            more = (features,) if isinstance(signal, protocols.FeatureSignal) else ()
            known[name] = signal.measure(logits, y, *more)
    validating = host().data.replace(validation_x=host().data.x[:40], validation_y=host().data.y[:40])
    place = dataclasses.replace(host(), data=validating.replace(longest=30))
    ready = samples.prepare(key, ctx.replace(num_examples=place.data.num_examples), place)
    clients = samples.init(N, 30) if ready.clients is None else ready.clients
    if samples.uses_turn:
        known["turn"] = Turn(jnp.int32(3), jnp.int32(10), y, ready.server, None, {}, 3)
    return jax.tree.map(lambda leaf: leaf[0], clients), known


@jax.jit
def compiled_choice(samples, key, state, valid, known):
    """The weights of one client's examples, and what it then keeps; one program for each selection."""
    kept = samples.select(key, state, valid, **known)
    return kept, samples.observe(jax.random.fold_in(key, 9), state, kept, **known)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_data_selection_keeps_valid_examples_and_at_least_one(name):
    samples = data_selection.load(name)()
    state, known = known_to(samples)
    for seed, count in enumerate((1, 2, 17, 30)):
        valid = np.arange(30) < count
        kept, after = compiled_choice(samples, jax.random.key(seed), state, valid, known)
        kept = np.asarray(kept)
        assert kept.shape == valid.shape
        assert ((kept == 1) | ((kept >= 0) & samples.weighted) | (kept == 0)).all()
        assert ((kept > 0) <= valid).all()
        assert (0 if name in PERHAPS_NONE else 1) <= (kept > 0).sum() <= count
        assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_data_selection_that_reads_the_number_of_rounds_says_so(name):
    samples = data_selection.load(name)()
    state, known = known_to(samples)

    def weights_of(rounds):
        told = known | ({"turn": known["turn"].replace(rounds=rounds)} if samples.uses_turn else {})
        return samples.select(jax.random.key(0), state, jnp.ones(30, bool), **told)

    traced = jax.make_jaxpr(weights_of)(jnp.int32(10)).jaxpr
    assert samples.uses_rounds == any(v is traced.invars[0] for equation in traced.eqns for v in equation.invars)


COMMON = ["entropy", "entropy_batches", "everything", "high_loss", "margin", "random_subset"]
RUN_WITH = {selector: SAMPLES[i % len(SAMPLES)] for i, selector in enumerate(SELECTORS)}
"""The selection of examples with which each selection of clients is compiled and run."""

PAIRS = [(samples, selector) for samples in COMMON for selector in SELECTORS]
PAIRS += [(samples, selector) for selector, samples in RUN_WITH.items() if samples not in COMMON]
"""Data selections that keep something on the server, or look at features, meet the client selections they run with."""


REFUSED = {("fednova", "proximal"), ("fednova", "feddyn"), ("dp_fedavg", "feddyn"), ("dp_fedavg", "scaffold")}
"""Aggregators and corrections that do not go together."""


@pytest.mark.filterwarnings("ignore:krum. f is")  # the cohorts are small
@pytest.mark.filterwarnings("ignore:.*already weighs clients")  # FedNova does, too
@pytest.mark.parametrize(("samples", "selector"), PAIRS)
def test_any_selection_of_clients_runs_with_any_selection_of_examples(blobs, selector, samples):
    """Aggregators and corrections take turns, so that each meets every data selection and most client selections.

    All pairs are traced, shapes and types checked, with seeds in turn, as tracing them side by side takes half as long
    again. Each selection of clients is compiled and run, with seeds side by side, with one selection of examples, which
    has two or three of them.
    """
    kwargs = {"d": 6} if selector == "power_of_choice" else {}
    turn_of = SELECTORS.index(selector) + SAMPLES.index(samples) // 2
    aggregator, corrected = AGGREGATORS[turn_of % len(AGGREGATORS)], CORRECTIONS[turn_of % len(CORRECTIONS)]
    if (aggregator, corrected) in REFUSED:
        corrected = "none"
    experiment = Experiment(
        Task.on(MLP(classes=3, hidden=(4,)), blobs),
        client_selection=client_selection.load(selector)(**kwargs),
        data_selection=data_selection.load(samples)(),
        local_training=SGD(batch_size=8),
        correction=correction.load(corrected)(),
        aggregation=aggregation.load(aggregator)(),
        cohort_size=3,
        rounds=3,
    )
    federation = Federation(blobs, partition.Iid(clients=20), devices=Uniform(low=0.1), public=blobs.x[:9])
    if RUN_WITH[selector] != samples:
        plan_program([experiment], federation.draws([0, 1]), [0, 1], layout=Layout(seeds="scan")).check_fits(None)
        return
    history = simulate(experiment, federation, seeds=2)
    assert np.isfinite(history["accuracy"]).all()
    assert (history["seconds"] > 0).all()
    assert (history["joules"] > 0).all()
    before = run_chunk.programs
    tuned = experiment.replace(
        client_selection=jax.tree.map(lambda leaf: leaf * 0.5, experiment.client_selection),
        local_training=SGD(learning_rate=0.05, batch_size=8),
    )
    simulate(tuned, federation, seeds=[5, 6])
    assert run_chunk.programs == before, "floats and seeds must not recompile"


@pytest.mark.parametrize("name", SELECTORS)
def test_no_selector_uses_a_key_twice(name):
    """JAX itself watches: the computations of `init` one by one, then those of a compiled round."""
    selector = bare(name)
    with jax.debug_key_reuse(True):
        state = start(selector, context())
        for round in range(3):
            _, state = compiled_turn(selector, jax.random.key(round), state, context(round))


@pytest.mark.parametrize("name", SAMPLES)
def test_no_data_selection_uses_a_key_twice(name):
    samples = data_selection.load(name)()
    state, known = known_to(samples)
    with jax.debug_key_reuse(True):
        compiled_choice(samples, jax.random.key(0), state, np.arange(30) < 17, known)


BASES = {
    client_selection: fs.ClientSelector,
    data_selection: fs.DataSelector,
    local_training: fs.LocalTrainer,
    correction: fs.Correction,
    aggregation: fs.Aggregator,
}


@pytest.mark.parametrize(
    ("package", "name"), [(p, n) for p in BASES for n in p.available()], ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_strategy_is_a_subclass_of_its_base_and_constructs_bare(package, name):
    cls = package.load(name)
    assert issubclass(cls, BASES[package])
    assert isinstance(cls(), cls)


@pytest.mark.parametrize(
    ("part", "given", "says"),
    [
        ("client_selection", client_selection.Uniform, r"client_selection is Uniform, a class; .* as in Uniform\(\)"),
        ("client_selection", object(), r"it must be an instance of fedjax_sel.ClientSelector"),
        (
            "client_selection",
            data_selection.Margin(),
            r"\(Margin\); it must be an instance of fedjax_sel.ClientSelector",
        ),
        ("data_selection", data_selection.Margin, r"data_selection is Margin, a class; .* as in Margin\(\)"),
        (
            "data_selection",
            client_selection.Entropy(),
            r"\(Entropy\); it must be an instance of fedjax_sel.DataSelector",
        ),
        ("aggregation", "mean", r"'mean' \(str\); it must be an instance of fedjax_sel.Aggregator"),
    ],
)
def test_a_part_that_is_no_instance_of_its_base_is_one_clear_error(part, given, says):
    with pytest.raises(ValueError, match=says):
        Experiment(Task(MLP(classes=3)), **{part: given})


NAMESPACES = [client_selection, data_selection, local_training, correction, aggregation, models, signals]


@pytest.mark.parametrize("package", NAMESPACES, ids=lambda p: p.__name__)
def test_a_folder_shows_its_classes_and_tells_type_checkers_of_each(package):
    """Those told stand in the `TYPE_CHECKING` block of its `__init__`, which no program reads."""
    block = Path(package.__file__).read_text()
    found = catalog.exports(package.__name__)
    assert found
    for name, module in found.items():
        assert getattr(package, name).__name__ == name
        assert name in dir(package)
        line = f"from {package.__name__}.{module} import {name} as {name}"
        assert line in block, f"{package.__name__}/__init__.py lacks, where TYPE_CHECKING: {line}"
    told = set(re.findall(rf"from {re.escape(package.__name__)}\.\w+ import (\w+) as", block))
    assert all(hasattr(package, name) for name in told)


def test_a_name_that_a_folder_does_not_have_is_told_the_nearest():
    with pytest.raises(AttributeError, match="no attribute 'Entrpy'; did you mean 'Entropy'"):
        _ = client_selection.Entrpy


def test_a_folder_is_shown_without_importing_what_is_in_it():
    code = (
        "import sys, fedjax_sel as fs; dir(fs.client_selection); fs.client_selection.Uniform; "
        "assert 'fedjax_sel.client_selection.lefl' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
