import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_sel.data.dataset import dataset
from fedjax_sel.data.federated import federate


def toy(rows):
    return dataset("toy", np.arange(rows, dtype=np.float32)[:, None], np.arange(rows) % 2)


@st.composite
def owned(draw):
    """Clients of rows; everybody has a row, some rows are nobody's."""
    clients = draw(st.integers(1, 6))
    rows = draw(st.lists(st.integers(-1, clients - 1), max_size=40))
    return np.array(draw(st.permutations([*rows, *range(clients)]))), clients


@given(owned(), st.floats(0, 0.99), st.none() | st.integers(0, 99))
@settings(deadline=None)
def test_every_client_has_its_own_rows_once_and_holds_out_the_rounded_down_share(case, holdout, seed):
    client, clients = case
    rng = None if seed is None else np.random.default_rng(seed)
    data = federate(toy(len(client)), client, clients, holdout=holdout, rng=rng)
    order, owner = np.asarray(data.order), np.asarray(data.owner)
    assert sorted(order) == np.flatnonzero(client >= 0).tolist()
    assert (owner == client[order]).all()
    for i in range(clients):
        count = (client == i).sum()
        assert data.num_holdout[i] == int(holdout * count + 1e-9)
        assert data.num_examples[i] + data.num_holdout[i] == count
        assert (owner[data.offset[i] : data.offset[i] + count] == i).all()
    assert data.longest == max(max(data.num_examples), max(data.num_holdout))


def test_rows_stay_in_their_stored_order_unless_they_are_shuffled():
    client = np.array([1, 0, 1, 0, 1])
    assert federate(toy(5), client, 2).order.tolist() == [1, 3, 0, 2, 4]


def test_the_hold_out_of_shuffled_rows_is_a_random_share():
    client = np.zeros(10, int)
    draws = [federate(toy(10), client, 1, holdout=0.3, rng=np.random.default_rng(s)).order[7:] for s in range(600)]
    chosen = np.bincount(np.concatenate(draws), minlength=10) / 600
    np.testing.assert_allclose(chosen, 0.3, atol=0.08)


@pytest.mark.parametrize("traced", [False, True])
def test_a_client_s_training_and_hold_out_examples_are_apart(traced):
    data = jax.device_put(federate(toy(9), np.array([1, 0, 1, 0, 1, -1, 1, 0, 1]), 2, holdout=0.4))  # of 3 and of 5

    def look(holdout):
        some = data.locate_examples(jnp.array([1, 0, -1]), holdout=holdout)
        each = [data.examples_of(jnp.asarray(client), holdout=holdout) for client in range(2)]
        return data.count_examples(holdout=holdout), data.locate_examples(holdout=holdout), some, each

    for holdout, own in ((False, [[1, 3], [0, 2, 4]]), (True, [[7], [6, 8]])):
        counts, every, some, each = jax.jit(look)(holdout) if traced else look(holdout)
        assert counts.tolist() == [len(one) for one in own]
        for (start, count), clients in ((every, (0, 1)), (some, (1, 0, 0))):
            found = [data.order[s : s + c].tolist() for s, c in zip(start.tolist(), count.tolist(), strict=True)]
            assert found == [own[client] for client in clients]
        for (index, mask), one in zip(each, own, strict=True):
            assert index.tolist() == one + one[-1:] * (data.longest - len(one))
            assert mask.tolist() == [place < len(one) for place in range(data.longest)]


def test_rows_are_shared_with_the_dataset():
    data = toy(4)
    federation = federate(data, np.array([0, 0, 1, 1]), 2)
    for name in ("x", "y", "test_x", "test_y", "validation_x", "validation_y"):
        assert getattr(federation, name) is getattr(data, name)


@pytest.mark.parametrize(
    ("client", "clients", "says"),
    [
        ([0, 1, 0], 2, "client is int64 of shape (3,); needed: one integer for each of 4 examples"),
        ([0.0, 1.0, 0.0, 1.0], 2, "client is float64"),
        ([0, 1, 2, 0], 2, "client holds 0 to 2; allowed are 0..1, and -1"),
        ([0, 1, -2, 0], 2, "client holds -2 to 1"),
        ([-1, -1, -1, -1], 0, "clients is 0; at least one is needed"),
        ([0, 0, -1, 0], 3, "2 of 3 clients have no training examples (the first is client 1)"),
    ],
)
def test_ownership_that_does_not_fit_the_rows_is_refused(client, clients, says):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        federate(toy(4), np.array(client), clients)
    assert says in str(error.value)


def test_a_hold_out_of_everything_is_refused():
    with pytest.raises(ValueError, match="holdout is 1"):
        federate(toy(4), np.zeros(4, int), 1, holdout=1)
