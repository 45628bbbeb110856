"""What all data selections by a score have in common: how many rows, which never, ties, refusals, the bill."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, data_selection, partition, simulate
from fedjax_sel.arrays import floor_share, multiply_share
from fedjax_sel.data_selection._ops import (
    count_kept,
    places,
    share_among_classes,
    share_exactly,
)
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.data_selection.high_loss import HighLoss
from fedjax_sel.data_selection.margin import Margin
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.signals import measure_examples
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.types import Batch

BY_SCORE = [Entropy, Margin, HighLoss]
SHARES = ["entropy", "entropy_batches", "high_loss", "margin", "random_subset"]
KEY = jax.random.key(0)


def values(samples, logits, y=None):
    """The signals that a data selection needs, of rows with these logits."""
    y = jnp.zeros(len(logits), jnp.int32) if y is None else jnp.asarray(y)
    return {name: s.measure(jnp.asarray(logits, jnp.float32), y) for name, s in samples.signals().items()}


def kept(samples, logits, y=None, valid=None, key=KEY):
    valid = jnp.ones(len(logits), bool) if valid is None else jnp.asarray(valid)
    return np.flatnonzero(samples.select(key, (), valid, **values(samples, logits, y))).tolist()


def test_a_hand_computed_choice():
    """Two of five rows: entropy at temperature 1, margin and loss each choose others."""
    logits = [[9.0, 0.0, 0.0], [5.0, 5.0, -9.0], [1.0, 0.9, 0.8], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0]]
    y = [1, 0, 0, 1, 1]
    assert kept(Entropy(0.4, temperature=1.0), logits) == [2, 4]  # 0.00, 0.69, 1.10, 0.37, 0.98 nats
    assert kept(Margin(0.4), logits) == [1, 2]  # 9, 0, 0.1, 3, 1
    assert kept(HighLoss(0.4), logits, y) == [0, 4]  # 9.00, 0.69, 1.00, 0.09, 1.55 nats


@pytest.mark.parametrize("samples", BY_SCORE)
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3, 0.35, 0.5, 0.77, 1.0])
def test_the_count_is_exact_for_every_number_of_rows_and_padding_is_never_kept(samples, fraction):
    """Padding has the best values of all."""
    strategy, most = samples(fraction), 120
    rng = np.random.default_rng(0)
    score = jnp.asarray(rng.normal(size=most), jnp.float32)

    @jax.vmap
    def keep(n):
        valid = jnp.arange(most) >= most - n
        rows = {name: jnp.where(valid, score, -9.0 if name == "margin" else 9.0) for name in strategy.signals()}
        return strategy.select(KEY, (), valid, **rows), valid

    n = np.arange(most + 1)
    keep, valid = map(np.asarray, keep(jnp.asarray(n)))
    assert not (keep & ~valid).any()
    assert keep.sum(1).tolist() == [0] + [max(1, round(Fraction(str(fraction)) * i)) for i in n[1:].tolist()]


def test_shares_are_those_of_fractions_for_large_clients_too():
    """Of hundredths up to 30,000 examples: beyond, a hundredth is too little beside the rounding of 32 bits."""
    rng = np.random.default_rng(0)
    counts = np.unique(np.concatenate([np.arange(1, 400), 100 * np.arange(1, 301), rng.integers(400, 30_000, 600)]))
    both = jax.jit(jax.vmap(lambda f, n: (floor_share(f, n), jnp.round(multiply_share(f, n))), in_axes=(None, 0)))
    for percent in (1, 3, 5, 7, 10, 14, 28, 29, 30, 33, 50, 55, 57, 58, 70, 77, 90, 99, 100):
        exact = [Fraction(percent, 100) * n for n in counts.tolist()]
        floors, rounded = both(jnp.float32(percent / 100), jnp.asarray(counts))
        np.testing.assert_array_equal(floors, [product.__floor__() for product in exact])
        np.testing.assert_array_equal(rounded, [round(product) for product in exact])
    for fraction in (1 / 3, 2 / 3, 5 / 6, 1 / 7):
        n = np.arange(1, 5000)
        floors, _ = both(jnp.float32(fraction), jnp.asarray(n))
        exact = Fraction(fraction).limit_denominator(10)
        np.testing.assert_array_equal(floors, [(exact * i).__floor__() for i in n.tolist()])
    valid = jnp.arange(16_384) < 16_350
    assert int(count_kept(valid, 0.7)) == 11_445
    assert int(floor_share(0.9999, jnp.int32(1))) == 0


@pytest.mark.parametrize("name", SHARES)
def test_all_rows_are_kept_where_the_share_is_one_and_one_row_always_is(name):
    samples = data_selection.load(name)
    for rows in (1, 2, 17, 30):
        valid = jnp.arange(30) < rows
        everything = samples(fraction=1.0)
        needed = {name: jax.random.normal(KEY, (30,)) for name in everything.signals()}
        np.testing.assert_array_equal(everything.select(KEY, (), valid, **needed), valid)
    one = samples(fraction=0.01)
    assert one.select(KEY, (), jnp.arange(30) == 4, **needed).nonzero()[0].tolist() == [4]


@pytest.mark.parametrize("samples", BY_SCORE)
def test_equal_rows_come_in_random_order_and_better_ones_before_them(samples):
    """A model that begins with zeros gives all rows the same logits; the first rows of a client may be one class."""
    logits = np.zeros((20, 4))
    logits[3], logits[7] = [1, 1, 0, 0], [0, 5, 0, 0]
    y = [0] * 20
    chosen = [kept(samples(0.25), logits, y, key=jax.random.key(k)) for k in range(200)]
    counts = np.bincount(np.concatenate(chosen), minlength=20)
    assert {len(c) for c in chosen} == {5}
    alike = np.delete(np.arange(20), [3, 7])
    first = {Entropy: [], Margin: [], HighLoss: [7]}[samples]
    assert counts[first].tolist() == [200] * len(first)
    share = (5 - len(first)) / (len(alike) + (samples is Margin))  # row 3 has margin 0 too
    np.testing.assert_allclose(counts[alike] / 200, share, atol=0.15)


@pytest.mark.parametrize("samples", BY_SCORE)
def test_a_row_without_a_number_is_a_row_and_comes_last(samples):
    valid = jnp.arange(8) < 6
    rows = {name: jnp.ones(8).at[2].set(jnp.nan) for name in samples().signals()}
    assert np.flatnonzero(samples(5 / 6).select(KEY, (), valid, **rows)).tolist() == [0, 1, 3, 4, 5]
    assert np.flatnonzero(samples(1.0).select(KEY, (), valid, **rows)).tolist() == list(range(6))


def test_places_are_those_of_a_sort_of_tuples():
    rng = np.random.default_rng(3)
    for _ in range(20):
        valid, first, second = rng.random(40) < 0.7, rng.integers(0, 4, 40), rng.integers(0, 5, 40)
        order = sorted(range(40), key=lambda i: (not valid[i], -first[i], -second[i], i))
        got = places(jnp.asarray(valid), jnp.asarray(first, jnp.float32), jnp.asarray(second, jnp.float32))
        assert np.argsort(got).tolist() == order


@pytest.mark.parametrize("name", SHARES)
def test_what_is_no_share_is_refused(name):
    samples = data_selection.load(name)
    for wrong in (0.0, -0.1, 1.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=rf"{name}: fraction is {wrong!r}; it must be in \(0, 1\]"):
            samples(fraction=wrong)
    assert jax.jit(lambda f: samples(fraction=f).fraction)(0.3) == jnp.float32(0.3)
    assert samples(fraction=jnp.array([0.1, 0.2])).fraction.shape == (2,), "swept over"


def test_what_is_no_temperature_or_no_batch_is_refused():
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"entropy: temperature is {wrong!r}; it must be in \\[1e-30, inf\\)"):
            Entropy(temperature=wrong)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match=f"entropy_batches: batch_size is {wrong!r}; it must be a whole number"):
            data_selection.load("entropy_batches")(batch_size=wrong)


FEATURES, CLASSES = 2, 3
F = 2 * FEATURES * CLASSES + CLASSES + 2 * FEATURES  # a row's forward pass, counted as in tests/devices/test_bill.py


@pytest.fixture(scope="module")
def unequal(blobs):
    return Federation(blobs, partition.Dirichlet(clients=9, alpha=0.7, min_examples=4))


def experiment(blobs, samples):
    task = Task.on(LogisticRegression(classes=CLASSES), blobs)
    return Experiment(task, data_selection=samples, local_training=SGD(batch_size=8, epochs=2), cohort_size=3, rounds=4)


@pytest.mark.parametrize("name", SHARES)
def test_the_choice_costs_one_forward_pass_over_each_members_rows_and_floats_do_not_recompile(blobs, unequal, name):
    """Entropy looks at two numbers of the same logits, and pays one pass; training, for the rows kept."""
    seeds, samples = (4, 9), data_selection.load(name)
    history = simulate(experiment(blobs, samples(fraction=0.2)), unequal, seeds)
    for seed, cohorts, choice, training in zip(
        seeds, history.selections, history["selection_flops"], history["client_flops"], strict=True
    ):
        size = np.asarray(unequal.draw(seed).num_examples)[cohorts]
        np.testing.assert_array_equal(choice, (name != "random_subset") * F * size.sum(-1))
        if name != "entropy_batches":
            rows = np.maximum(1, np.round(0.2 * size))
            np.testing.assert_array_equal(training, 3 * F * 2 * rows.sum(-1))
    assert (history["selection_bytes_down"] == 0).all()
    assert (history["selection_bytes_up"] == 0).all()
    before = run_chunk.programs
    floats = {"fraction": 0.4, **({"temperature": 0.02} if name == "entropy" else {})}
    again = simulate(experiment(blobs, samples(**floats)), unequal, seeds)
    assert run_chunk.programs == before
    assert (again["client_flops"] > history["client_flops"]).any()


def test_two_signals_of_the_same_rows_are_computed_from_one_forward_pass(blobs, monkeypatch):
    task = Task.on(LogisticRegression(classes=CLASSES), blobs)
    variables, calls, logits = task.init(KEY, blobs.x), [], Task.logits
    monkeypatch.setattr(Task, "logits", lambda *a, **k: (calls.append(1), logits(*a, **k))[1])
    batch = Batch(jnp.asarray(blobs.x[:7]), jnp.asarray(blobs.y[:7]), jnp.ones(7, bool))
    told = measure_examples(Entropy().signals(), task, variables, batch.x, batch.y)
    assert (set(told), len(calls)) == ({"entropy", "margin"}, 1)


def test_seeds_side_by_side_are_the_seeds_alone(blobs, unequal):
    both = simulate(experiment(blobs, Entropy(0.3)), unequal, seeds=[3, 8])
    alone = simulate(experiment(blobs, Entropy(0.3)), unequal, seeds=[8])
    np.testing.assert_array_equal(both["client_flops"][1], alone["client_flops"][0])
    np.testing.assert_allclose(both["loss"][1], alone["loss"][0], rtol=1e-5)


def test_clients_in_turn_measure_their_examples_in_passes_and_choose_the_same(blobs, monkeypatch):
    """In passes of 8, of some 20 examples a client; the last pass begins earlier."""
    data, task = Federation(blobs, partition.Dirichlet(clients=4, alpha=0.5)), Task(LogisticRegression(classes=3))
    experiment = Experiment(task, data_selection=Entropy(0.3), cohort_size=2, rounds=4, local_training=SGD(0.5))
    seen = []

    def note(signals, task, variables, x, y):
        seen.append(len(y))
        return measure_examples(signals, task, variables, x, y)

    monkeypatch.setattr("fedjax_sel.engine.data_selection.measure_examples", note)
    whole, parts = (simulate(experiment, data, seeds=2, layout=Layout(1, "scan", most)) for most in (8192, 8))
    assert max(seen) > 8
    assert min(seen) == 8
    np.testing.assert_allclose(parts["loss"], whole["loss"], rtol=1e-5)
    np.testing.assert_array_equal(parts.selections, whole.selections)


def test_shares_of_classes_are_exact_where_products_of_counts_exceed_int32():
    y, valid = jnp.where(jnp.arange(50_000) < 49_990, 0, 1), jnp.ones(50_000, bool)
    for count in (1, 45_000, 50_000):
        exact = [count * 49_990 / 50_000, count * 10 / 50_000]
        assert share_among_classes(y, valid, jnp.int32(count), 2).tolist() == [math.ceil(part) for part in exact]
        whole = share_exactly(y, valid, jnp.int32(count), 2)
        assert int(whole.sum()) == count
        np.testing.assert_allclose(whole, exact, atol=1)
