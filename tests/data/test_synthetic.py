import numpy as np
import pytest

from fedjax_sel.data.synthetic import CLASSES, FEATURES, draw_clients, synthetic


def transcribe(rng, alpha, beta, sizes):
    """The authors' generate_synthetic, literally, with inputs drawn as mean + deviation * z."""
    mean_w = rng.normal(0, alpha, len(sizes))
    mean_b = mean_w
    b_of_inputs = rng.normal(0, beta, len(sizes))
    diagonal = np.zeros(FEATURES)
    for j in range(FEATURES):
        diagonal[j] = np.power(j + 1, -1.2)
    mean_x = np.zeros((len(sizes), FEATURES))
    for i in range(len(sizes)):
        mean_x[i] = rng.normal(b_of_inputs[i], 1, FEATURES)
    out = []
    for i in range(len(sizes)):
        w = rng.normal(mean_w[i], 1, (FEATURES, CLASSES))
        b = rng.normal(mean_b[i], 1, CLASSES)
        xx = np.array([mean_x[i] + np.sqrt(diagonal) * z for z in rng.standard_normal((sizes[i], FEATURES))])
        yy = np.zeros(sizes[i])
        for j in range(sizes[i]):
            logits = np.dot(xx[j], w) + b
            softmax = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            yy[j] = np.argmax(softmax)
        out.append((xx, yy))
    return out


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.0, 0.5)])
def test_clients_are_those_of_the_authors_code(alpha, beta):
    sizes = np.array([7, 1, 30])
    mine = draw_clients(np.random.default_rng(3), alpha, beta, sizes)
    theirs = transcribe(np.random.default_rng(3), alpha, beta, sizes)
    for (x, y), (xx, yy) in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(x, xx, rtol=1e-6)
        np.testing.assert_array_equal(y, yy)


def test_sizes_are_in_proportion_to_the_lognormal_law_and_all_draws_have_as_many_examples():
    one, other = (synthetic(1, 1, seed, clients=20, num_examples=4000, num_validation_examples=50) for seed in (0, 1))
    for seed, data in enumerate((one, other)):
        rng = np.random.default_rng((0x5E17, seed))
        law = rng.lognormal(4, 2, 20).astype(int) + 50
        np.testing.assert_allclose(np.bincount(data.owner), (4000 - 20) * law / law.sum() + 1, atol=1)
        assert (len(data.y), len(data.test_y), len(data.validation_y)) == (4000, 1000, 50)
    assert not np.array_equal(one.x, other.x)


def test_test_examples_are_the_clients_own():
    data = synthetic(0, 0, 1, clients=1, num_examples=2000, num_test_examples=2000)
    np.testing.assert_allclose(data.x.mean(0), data.test_x.mean(0), atol=0.15)
    np.testing.assert_allclose(np.bincount(data.y, minlength=10), np.bincount(data.test_y, minlength=10), atol=160)


def test_test_and_validation_examples_are_of_the_clients_in_proportion_to_their_sizes():
    """At β = 50 clients lie far apart, so that an example is of the client whose inputs' mean is nearest."""
    data = synthetic(0, 50, 2, clients=5, num_examples=2000, num_test_examples=500, num_validation_examples=300)
    middle = np.array([data.x[data.owner == client].mean() for client in range(5)])
    law = np.random.default_rng((0x5E17, 2)).lognormal(4, 2, 5).astype(int) + 50
    for x in (data.test_x, data.validation_x):
        client = np.abs(x.mean(1)[:, None] - middle).argmin(1)
        np.testing.assert_allclose(np.bincount(client, minlength=5), len(x) * law / law.sum(), atol=1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"alpha": -1.0}, "alpha is -1.0; it is a standard deviation"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"clients": 10.0}, "synthetic: clients is 10.0; it must be a whole number"),
        ({"clients": 5, "num_examples": 4}, "5 clients, 4 training"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        synthetic(**given)
