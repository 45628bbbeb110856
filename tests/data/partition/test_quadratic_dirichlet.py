import re

import numpy as np
import pytest
from scipy import optimize, stats

from fedjax_sel.data.partition import QuadraticDirichlet
from fedjax_sel.data.partition.quadratic_dirichlet import DRAWS, solve_least_sizes

MNIST = np.repeat(np.arange(10), 5000)


def program(clients, classes, alpha, seed, uneven=False):
    """Mixes and class counts of one quadratic program."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(200, 20_000, classes) if uneven else np.full(classes, 5000)
    return rng.dirichlet(alpha * rows / rows.sum(), clients).T, rows


def table(law, y, seed):
    """Rows of each class at each client [N, C]."""
    client = law.assign(y, np.random.default_rng(seed), None)
    count = np.zeros((law.clients, y.max() + 1), int)
    np.add.at(count, (client, y), 1)
    return count


PROGRAMS = [  # clients, classes, alpha, seed, uneven, bounds that are active
    (100, 10, 0.2, 0, False, 0),
    (80, 20, 1e4, 0, False, 11),
    (80, 20, 1e4, 1, False, 1),
    (30, 10, 0.5, 0, False, 1),
    (200, 10, 1e6, 0, False, 0),
    (1000, 62, 0.2, 1, True, 15),
    (40, 1, 0.2, 0, True, 0),
]


@pytest.mark.parametrize(("clients", "classes", "alpha", "seed", "uneven", "active"), PROGRAMS)
def test_sizes_satisfy_the_conditions_of_karush_kuhn_and_tucker(clients, classes, alpha, seed, uneven, active):
    mix, rows = program(clients, classes, alpha, seed, uneven)
    sizes = solve_least_sizes(mix, rows)
    bound = sizes < 1e-9 * sizes.max()
    assert bound.sum() == active
    assert sizes.min() >= 0
    np.testing.assert_allclose(mix @ sizes, rows, atol=1e-6)
    multiplier = np.linalg.lstsq(mix[:, ~bound].T, sizes[~bound], rcond=None)[0]  # of Qx = d
    slack = sizes - mix.T @ multiplier  # multipliers of x >= 0
    np.testing.assert_allclose(slack[~bound], 0, atol=1e-6)
    assert (slack[bound] > 0).all()


def test_sizes_are_those_of_another_solver():
    active = []
    for seed in range(15):
        mix, rows = program(10, 5, 2.0, seed, uneven=True)
        sizes, share = solve_least_sizes(mix, rows), rows / rows.sum()
        other = optimize.minimize(
            lambda x: 0.5 * x @ x,
            np.full(10, 1 / 10),
            jac=lambda x: x,
            bounds=[(0, None)] * 10,
            constraints={"type": "eq", "fun": lambda x, q=mix, d=share: q @ x - d, "jac": lambda x, q=mix: q},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert other.success == (sizes is not None)
        if sizes is not None:
            np.testing.assert_allclose(sizes / rows.sum(), other.x, atol=1e-6)
            active.append((sizes < 1e-9 * sizes.max()).sum())
    assert {0, 2} <= set(active)


def test_without_an_active_bound_the_sizes_have_a_closed_form():
    mix, rows = program(100, 10, 0.2, 3)
    np.testing.assert_allclose(solve_least_sizes(mix, rows), mix.T @ np.linalg.solve(mix @ mix.T, rows), rtol=1e-8)


def test_there_are_no_sizes_exactly_where_a_linear_program_finds_none():
    found = []
    for seed in range(200):
        mix, rows = program(int(12 + seed % 40), 8, 10.0 ** (seed % 7 - 3), seed, uneven=True)
        share = rows / rows.sum()
        feasible = optimize.linprog(np.zeros(mix.shape[1]), A_eq=mix / share[:, None], b_eq=np.ones(8)).status == 0
        assert (solve_least_sizes(mix, rows) is not None) == feasible
        found.append(feasible)
    assert 40 < sum(found) < 160


def test_the_published_statistics_of_fedcors_setting():
    """100 clients, alpha 0.2, 10 classes of 5000 rows: recomputed over 20 other seeds with another solver."""
    counts = np.array([table(QuadraticDirichlet(), MNIST, seed) for seed in range(10)])
    assert (counts.sum(1) == 5000).all(), "every example is owned once"
    sizes = counts.sum(2)
    assert (sizes.mean(1) == 500).all()
    assert sizes.min() > 0
    assert sizes.std(1).mean() == pytest.approx(177, abs=50)  # 17 from one ten seeds to the next
    assert sizes.std(1).min() > 70
    assert sizes.std(1).max() < 410
    assert sizes.max(1).mean() == pytest.approx(1075, abs=350)  # 117
    assert (counts / sizes[..., None] > 0.05).sum(2).mean() == pytest.approx(1.47, abs=0.08)
    rows = np.full(10, 5000)
    left = [50_000 - QuadraticDirichlet()._counts(rows, np.random.default_rng(seed)).sum() for seed in range(10)]
    assert np.mean(left) == pytest.approx(114, abs=6)


def test_a_clients_mix_has_the_moments_of_the_law():
    y, alpha = np.repeat([0, 1, 2], [20_000, 12_000, 8_000]), 1.5
    counts = np.concatenate([table(QuadraticDirichlet(100, alpha), y, seed) for seed in range(10)])
    mix, prior = counts / counts.sum(1, keepdims=True), np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(mix.mean(0), prior, atol=0.04)
    np.testing.assert_allclose(mix.var(0), prior * (1 - prior) / (1 + alpha), rtol=0.12)


def test_rows_that_rounding_leaves_over_go_to_anybody_and_nothing_else_does():
    draws = np.array([np.sort(table(QuadraticDirichlet(3), np.zeros(9, int), seed)[:, 0]) for seed in range(20)])
    assert (draws == 3).all(), "a third of nine is three, whatever the solver's last digit"
    draws = np.array([table(QuadraticDirichlet(4), np.zeros(10, int), seed)[:, 0] for seed in range(800)])
    assert (draws >= 2).all()
    assert stats.chisquare((draws - 2).sum(0)).pvalue > 1e-4
    assert (draws == 4).any(), "with replacement"


def test_a_class_is_dealt_at_random():
    first = [QuadraticDirichlet(4).assign(np.zeros(8, int), np.random.default_rng(seed))[0] for seed in range(800)]
    assert stats.chisquare(np.bincount(first, minlength=4)).pvalue > 1e-4


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    one, again, other = (QuadraticDirichlet(20).assign(MNIST, np.random.default_rng(seed)) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.5


def test_mixes_that_fit_no_sizes_are_drawn_anew():
    y, rows = np.repeat(np.arange(10), 300), np.full(10, 300)
    rng, law = np.random.default_rng(0), QuadraticDirichlet(20)
    assert any(law._counts(rows, rng) is None for _ in range(20))
    for seed in range(5):
        counts = table(law, y, seed)
        assert (counts.sum(0) == 300).all()
        assert (counts.sum(1) > 0).all()


def test_giving_up_says_what_was_tried_what_is_wrong_and_which_knob_helps():
    rng = np.random.default_rng(0)
    says = (
        f"{DRAWS} draws of Dir(alpha=0.2 * prior) for 5 clients and 1000 examples of 10 classes gave no partition: in "
    )
    unfit = f"in {DRAWS} no sizes of the clients add up to the classes' examples (raise alpha or clients)"
    with pytest.raises(ValueError, match=re.escape(says) + "100 no sizes") as error:
        QuadraticDirichlet(5).assign(np.arange(1000) % 10, rng)
    assert str(error.value).endswith(f": {unfit}")
    with pytest.raises(
        ValueError,
        match=r"in 100 a client was left without examples \(raise alpha, or lower clients where examples are few\)$",
    ):
        QuadraticDirichlet(50, 1.0).assign(np.arange(60) % 2, rng)
