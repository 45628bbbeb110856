"""Selection by entropy against FedFT-EDS in float64, where the temperature is small, and beside margin sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from fedjax_sel import Federation, Task, partition
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.data_selection.margin import Margin
from fedjax_sel.engine.signals import measure_examples
from fedjax_sel.models.logistic import LogisticRegression

KEY = jax.random.key(0)
TINY = float(np.finfo(np.float32).tiny)


def entropies(z, rho):
    """Equations (6) and (3), row by row, in float64."""
    out = []
    for row in np.asarray(z, np.float64):
        e = np.exp((row - row.max()) / rho)
        p = e / e.sum()
        out.append(-sum(q * np.log(q) for q in p if q > 0))
    return np.array(out)


def margins(z):
    best = np.sort(np.asarray(z, np.float64), axis=-1)
    return best[:, -1] - best[:, -2]


def logits(seed, rows, classes=10):
    """Of N(0, 9)."""
    return np.random.default_rng(seed).normal(0, 3, (rows, classes)).astype(np.float32)


def values(samples, z):
    z = jnp.asarray(z)
    return {name: signal.measure(z, jnp.zeros(len(z), jnp.int32)) for name, signal in samples.signals().items()}


def ranking(samples, z):
    """Rows from the first kept to the last, read off what is kept at each share `1/n, 2/n, ...`."""
    n = len(z)
    told = values(samples, z)
    keep = jax.vmap(lambda f: samples.replace(fraction=f).select(KEY, (), jnp.ones(n, bool), **told))(
        jnp.arange(1, n + 1) / n
    )
    place = n - np.asarray(keep).sum(0)
    assert sorted(place) == list(range(n)), "a larger share keeps what a smaller one keeps"
    return np.argsort(place)


def settled(score, slack):
    """Whether no number is exceeded by a later one by more than `slack`, relatively."""
    later = np.maximum.accumulate(score[::-1])[::-1]
    return (score >= later * (1 - slack)).all()


@pytest.mark.parametrize("rho", [1.0, 0.5, 0.1, 0.05])
def test_the_rows_kept_are_those_of_the_paper(rho):
    for seed in range(5):
        z = logits(seed, 300)
        told = values(Entropy(temperature=rho), z)
        for fraction in (0.1, 0.5):
            keep = Entropy(fraction, rho).select(KEY, (), jnp.ones(300, bool), **told)
            best = np.argsort(-entropies(z, rho))[: round(300 * fraction)]
            assert set(np.flatnonzero(keep)) == set(best)


def test_the_rows_kept_of_a_model_are_those_of_the_paper(blobs):
    """The model, its normalisation and the client's rows in NumPy."""
    task = Task.on(LogisticRegression(classes=3), blobs)
    data = Federation(blobs, partition.Dirichlet(clients=6, alpha=0.5, min_examples=4)).draw(2)
    data = jax.tree.map(jnp.asarray, data)
    variables = jax.tree.map(lambda w: w + jax.random.normal(jax.random.key(w.ndim), w.shape), task.init(KEY, blobs.x))
    dense = {np.ndim(leaf): np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(variables)}
    samples = Entropy(0.3, temperature=0.1)
    for client in range(6):
        index, valid = data.examples_of(jnp.int32(client))
        batch = data.batch(index, valid)
        told = measure_examples(samples.signals(), task, variables, batch.x, batch.y)
        keep = samples.select(KEY, (), valid, **told)
        mine = np.asarray(index)[np.asarray(valid)]
        x = (np.asarray(data.x)[mine] - np.asarray(task.shift)) * np.asarray(task.scale)
        z = x @ dense[2].T + dense[1]
        best = np.lexsort((margins(z), -entropies(z, 0.1)))[: max(1, round(0.3 * len(mine)))]
        assert set(np.asarray(index)[np.asarray(keep)]) == set(mine[best])


@pytest.mark.parametrize("rho", [0.01, 0.02, 0.05, 0.1])
def test_a_small_temperature_ranks_by_entropy_while_float32_has_it_and_by_the_margin_after_that(rho):
    """In float32 most of these entropies are 0; those are exactly the ones ranked by margin, smallest first."""
    underflows = 0
    for seed in range(5):
        z = logits(seed, 400)
        order = ranking(Entropy(temperature=rho), z)
        h, m = entropies(z, rho)[order], margins(z)[order]
        zero = np.asarray(values(Entropy(temperature=rho), z)["entropy"])[order] == 0
        sure = h > 1e6 * TINY
        assert settled(h[sure], SLACK)
        assert (np.diff(zero.astype(int)) >= 0).all(), "rows whose entropy is 0 come last"
        assert (h[zero] < 1e3 * TINY).all()
        assert (np.diff(m[zero]) > -1e-5).all()
        underflows += zero.sum()
    assert underflows > 0 or rho == 0.1


SLACK = 3e-6
"""By how much `signals.Entropy` may be wrong, relatively, for a row whose `log p_max` is lost in float32."""


@pytest.mark.parametrize("rho", [1e-3, 1e-5, 1e-10, 1e-30])
def test_a_temperature_near_zero_is_margin_sampling(rho):
    for seed in range(3):
        z = logits(seed, 200)
        m = margins(z)
        if rho <= 1e-5:
            np.testing.assert_array_equal(ranking(Entropy(temperature=rho), z), ranking(Margin(), z))
        told = values(Entropy(temperature=rho), z)
        for fraction in (0.05, 0.1, 0.5, 0.9):
            keep = Entropy(fraction, rho).select(KEY, (), jnp.ones(200, bool), **told)
            assert set(np.flatnonzero(keep)) == set(np.argsort(m)[: round(200 * fraction)])


def test_two_entropies_that_underflow_are_told_apart_by_the_margin():
    z = np.array([[50.0, 0.0, 0.0], [40.0, 0.0, 0.0], [30.0, 0.0, 0.0], [3.0, 2.9, 0.0]], np.float32)
    told = values(Entropy(temperature=0.1), z)
    assert told["entropy"][:3].tolist() == [0, 0, 0]
    assert ranking(Entropy(temperature=0.1), z).tolist() == [3, 2, 1, 0]


def test_an_infinite_gap_at_the_smallest_temperature_is_certainty():
    told = values(Entropy(temperature=1e-30), np.array([[1e9, 0.0, -1e9], [2.0, 2.0, 0.0]], np.float32))
    np.testing.assert_allclose(told["entropy"], [0, np.log(2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("rho", "correlation", "overlap"), [(1.0, 0.82, 0.30), (0.5, 0.953, 0.436), (0.1, 0.9996, 0.960)]
)
def test_the_harder_the_softmax_the_more_alike_are_entropy_and_margin(rho, correlation, overlap):
    """Numbers measured in float64 on a million rows; here 20,000."""
    z = logits(11, 20_000)
    told = values(Entropy(temperature=rho), z)
    assert spearmanr(told["entropy"], -np.asarray(told["margin"]))[0] == pytest.approx(correlation, abs=0.02)
    everyone = jnp.ones(len(z), bool)
    by_entropy = Entropy(0.1, rho).select(KEY, (), everyone, **told)
    by_margin = Margin(0.1).select(KEY, (), everyone, margin=told["margin"])
    assert int((by_entropy & by_margin).sum()) / 2000 == pytest.approx(overlap, abs=0.03)
