from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.data.dataset import dataset
from fedjax_sel.data.federation import Federation, stack
from fedjax_sel.data.partition import Dirichlet, Iid, Natural, Shards
from fedjax_sel.data.sources import load

EXAMPLES = ("x", "y", "test_x", "test_y", "validation_x", "validation_y")


def synthetic(seed, rows=30, width=2):
    rng = np.random.default_rng(seed)
    return dataset("synthetic", rng.normal(size=(rows, width)), np.arange(rows) % 3, test=0.2, seed=seed)


def test_the_seed_draws_the_partition_over_the_same_rows():
    data = load("iris")
    federation = Federation(data, Iid(5))
    a, again, b = federation.draw(0), federation.draw(0), federation.draw(1)
    assert a.x is b.x is data.x
    assert np.array_equal(a.order, again.order)
    assert not np.array_equal(a.order, b.order)


def test_a_client_keeps_its_rows_in_random_order_so_that_its_hold_out_is_a_random_share():
    owned = dataset("toy", np.zeros((100, 2)), np.zeros(100, int), owner=np.zeros(100))
    data = Federation(owned, Natural(), holdout=0.5).draw(0)
    held = np.asarray(data.order)[50:]
    assert 15 < (held < 50).sum() < 35  # not the last fifty; 25 are expected


def test_a_synthetic_source_is_made_from_the_seed():
    federation = Federation(synthetic, Iid(5))
    np.testing.assert_array_equal(federation.draw(3).x, synthetic(3).x)
    assert not np.array_equal(federation.draw(4).x, synthetic(3).x)


def test_a_data_seed_holds_rows_and_partition_fixed():
    fixed = Federation(synthetic, Dirichlet(5), data_seed=7)
    a, b = fixed.draw(0), fixed.draw(1)
    free = Federation(synthetic, Dirichlet(5)).draw(7)
    for name in (*EXAMPLES, "order", "owner", "offset", "num_examples", "num_holdout"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        np.testing.assert_array_equal(getattr(a, name), getattr(free, name))
    assert len(set(map(id, fixed.draws([0, 1, 2])))) == 1
    assert len(set(map(id, Federation(synthetic, Iid(5)).draws([0, 1, 2])))) == 3


def test_without_a_number_of_clients_there_are_as_many_as_owners():
    owned = dataset("toy", np.zeros((6, 2)), np.zeros(6, int), owner=np.array(list("bcabca")))
    data = Federation(owned, Natural()).draw(0)
    assert data.num_clients == 3
    assert sorted(data.order[:2]) == [2, 5]  # "a" comes first


def test_any_object_with_clients_and_assign_is_a_partition():
    @dataclass
    class EvenAndOdd:
        clients: int = 2

        def assign(self, y, rng, owner):
            return np.arange(len(y)) % 2

    data = Federation(load("iris", test=0.0), EvenAndOdd()).draw(0)
    assert (np.asarray(data.order)[:75] % 2 == 0).all()


def test_what_cannot_be_drawn_names_the_dataset_the_partition_and_the_seed():
    with pytest.raises(ValueError, match=r"^iris, Iid\(clients=999\): clients is 999, .* \(data seed 4\)"):
        Federation(load("iris"), Iid(999)).draw(4)
    with pytest.raises(ValueError, match="seed is -1; seeds are 0 or above"):
        Federation(load("iris"), Iid(9)).draw(-1)


def test_shared_rows_stay_single_and_partitions_are_stacked():
    drawn = Federation(load("iris"), Shards(5), holdout=0.2).draws([0, 1, 2])
    stacked, axes = stack(drawn)
    for name in EXAMPLES:
        assert getattr(stacked, name) is getattr(drawn[0], name)
        assert getattr(axes, name) is None
    for name in ("order", "owner", "offset", "num_examples", "num_holdout"):
        assert getattr(axes, name) == 0
        for seed, data in enumerate(drawn):
            np.testing.assert_array_equal(getattr(stacked, name)[seed], getattr(data, name))
    assert (stacked.num_clients, stacked.classes, stacked.longest) == (5, 3, drawn[0].longest)


def test_synthetic_rows_are_stacked_too():
    stacked, axes = stack(Federation(synthetic, Iid(4)).draws([0, 1]))
    assert stacked.x.shape == (2, 24, 2)
    assert axes.x == axes.test_y == 0


def test_one_federation_for_all_seeds_stays_single():
    stacked, axes = stack(Federation(synthetic, Iid(4), data_seed=0).draws([0, 1]))
    assert stacked.order.shape == (24,)
    assert jax.tree.leaves(axes) == []


def test_padding_belongs_to_nobody_and_the_longest_client_counts():
    owned = dataset("toy", np.zeros((10, 2)), np.zeros(10, int), owner=np.repeat([0, 1, 2], [2, 3, 5]))
    drawn = Federation(owned, Natural(2)).draws(range(20))
    lengths = [len(data.order) for data in drawn]
    assert set(lengths) == {5, 7, 8}  # two of the three owners
    stacked, axes = stack(drawn)
    assert stacked.longest == 5
    for seed, length in enumerate(lengths):
        assert (stacked.owner[seed, length:] == 2).all()
        assert (stacked.order[seed, length:] == 0).all()

    def rows_of_each(data):
        return jax.ops.segment_sum(jnp.ones(data.owner.shape), data.owner, num_segments=data.num_clients)

    counted = jax.vmap(rows_of_each, in_axes=(axes,))(stacked)
    np.testing.assert_array_equal(counted, [data.num_examples for data in drawn])


def test_a_seed_within_a_stack_reads_the_rows_it_reads_alone():
    drawn = Federation(load("iris"), Dirichlet(5), holdout=0.3).draws([0, 1, 2])
    stacked, axes = stack(drawn)

    def rows(data, client):
        index, valid = data.examples_of(client)
        held, held_valid = data.examples_of(client, holdout=True)
        mean = lambda index, valid: jnp.where(valid, data.y[index], 0).sum()  # noqa: E731
        return mean(index, valid), mean(held, held_valid)

    together = jax.jit(jax.vmap(rows, in_axes=(axes, None)))(stacked, 2)
    for seed, data in enumerate(drawn):
        start, size, held = data.offset[2], data.num_examples[2], data.num_holdout[2]
        mine = np.asarray(data.y)[data.order]
        assert together[0][seed] == mine[start : start + size].sum()
        assert together[1][seed] == mine[start + size : start + size + held].sum()


@pytest.mark.parametrize(
    ("source", "law", "says"),
    [
        (lambda seed: synthetic(0), lambda seed: Iid(3 + seed), "clients is 3 in federation 0, but 4 in federation 1"),
        (
            lambda seed: synthetic(0, rows=30 + 5 * seed),
            lambda seed: Iid(3),
            "the shape of x is (24, 2) in federation 0",
        ),
        (lambda seed: synthetic(0, width=2 + seed), lambda seed: Iid(3), "the shape of x is (24, 2) in federation 0"),
        (
            lambda seed: dataset("toy", np.zeros((6, 2)), np.zeros(6, int), classes=2 + seed),
            lambda seed: Iid(3),
            "classes is 2 in federation 0, but 3 in federation 1",
        ),
        (
            lambda seed: dataset("toy", np.zeros((6, 2), [np.uint8, np.float32][seed]), np.zeros(6, int)),
            lambda seed: Iid(3),
            "the type of x is uint8 in federation 0, but float32 in federation 1",
        ),
    ],
)
def test_federations_that_are_not_alike_are_refused(source, law, says):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        stack([Federation(source, law(seed)).draw(seed) for seed in (0, 1)])
    assert says in str(error.value)


def test_nothing_to_stack_is_refused():
    with pytest.raises(ValueError, match="nothing to stack"):
        stack([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": [0, 1, 1]}, r"partition is \[0, 1, 1\]; it must be a partition, as partition\.Iid\(100\)"),
        ({"partition": "iid"}, "partition is 'iid'; it must be a partition"),
        ({"partition": lambda y: y % 2}, "partition is <function .*; it must be a partition"),
        ({"partition": Iid}, r"partition is the class Iid; give a value, as Iid\(\.\.\.\)"),
        ({"source": np.zeros((9, 2))}, "source is a ndarray; it must be a Dataset"),
        ({"devices": "uniform"}, "devices is 'uniform'; it must be a DeviceProfile, or a law"),
    ],
    ids=["list", "string", "lambda", "class", "array", "name of a law"],
)
def test_what_is_no_part_of_a_federation_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Federation(**{"source": load("iris"), "partition": Iid(3), **options})


@dataclass(frozen=True)
class Drawn:
    """Draws from NumPy's global generator unless it is told not to."""

    clients: int | None = None
    own: bool = False

    def assign(self, y, rng, owner):
        return (rng if self.own else np.random).permutation(len(y)).tolist()


def test_a_users_rule_must_draw_from_the_generator_that_it_is_given_and_may_return_a_list():
    with pytest.raises(ValueError, match=r"random numbers were drawn from np\.random"):
        Federation(load("iris"), Drawn()).draw(0)
    first, again = (Federation(load("iris"), Drawn(own=True)).draw(0) for _ in range(2))
    np.testing.assert_array_equal(first.order, again.order)
    assert first.num_clients == len(load("iris").y)


def test_public_examples_that_are_test_examples_are_told(blobs):
    shared = np.concatenate([blobs.test_x[:3], blobs.x[:5]])
    with pytest.warns(UserWarning, match="3 of 8 public examples are test examples, too; take them from training"):
        Federation(blobs, Iid(clients=4), public=shared).draw(0)
    assert Federation(blobs, Iid(clients=4), public=blobs.x[:5]).draw(0).public_x.shape == (5, 2)
