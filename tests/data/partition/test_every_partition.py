"""What holds for all partitions, whatever the rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_sel.data import partition
from fedjax_sel.data.partition import (
    ClientDirichlet,
    Dirichlet,
    Iid,
    LabelCount,
    LabelGroups,
    Natural,
    QuadraticDirichlet,
    Shards,
)

LAWS = [Iid, Shards, Dirichlet, ClientDirichlet, QuadraticDirichlet, LabelCount, LabelGroups, Natural]
ALPHA = st.floats(1e-6, 1e6)
LABELS = st.lists(st.integers(0, 9), min_size=1, max_size=150).map(np.array)


@st.composite
def drawable(draw):
    """A partition and labels that have at least a row for each client."""
    y = draw(LABELS)
    clients = draw(st.integers(1, len(y)))
    kind = draw(st.sampled_from(LAWS))
    if kind is Iid:
        return Iid(clients), y
    if kind is Shards:
        return Shards(clients, draw(st.integers(1, len(y) // clients))), y
    if kind is Dirichlet:
        return Dirichlet(clients, draw(ALPHA), draw(st.integers(0, len(y) // clients)) or 1, draw(st.booleans())), y
    if kind in (ClientDirichlet, QuadraticDirichlet):
        return kind(clients, draw(ALPHA)), y
    if kind is LabelCount:
        return LabelCount(clients, draw(st.integers(1, len(np.unique(y))))), y
    if kind is LabelGroups:
        return LabelGroups(clients, draw(st.integers(1, 10))), y
    return Natural(draw(st.none() | st.integers(1, len(np.unique(y))))), y


@given(drawable(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=300)
def test_every_row_gets_at_most_one_client_who_exists_and_nobody_is_left_empty(case, seed):
    law, y = case
    try:
        client = law.assign(y, np.random.default_rng(seed), y // 2 if law == Natural() else y)
    except ValueError as error:
        given_up = error
    else:
        given_up = None
    if given_up is not None:
        says = {  # the only ones that may give up, and they say why
            QuadraticDirichlet: ["gave no partition"],
            Dirichlet: [f"never gave every client min_examples={getattr(law, 'min_examples', 0)} examples"],
            LabelCount: ["lower clients or labels", "labels is"],
            LabelGroups: ["raise clients or labels", "lower clients", "labels is"],
        }
        assert any(words in str(given_up) for words in says[type(law)])
        return
    clients = len(np.unique(y // 2)) if law.clients is None else law.clients
    assert client.shape == y.shape
    assert client.min() >= -1
    assert sorted(set(client[client >= 0])) == list(range(clients))


@given(drawable(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_the_same_generator_draws_the_same_partition(case, seed):
    law, y = case

    def draw():
        try:
            return law.assign(y, np.random.default_rng(seed), y).tolist()
        except ValueError as error:
            return str(error)

    assert draw() == draw()


OWN = {"Flower", "Function", "Indices"}
"""Those that are made from what a user has."""


@pytest.mark.parametrize("name", sorted(set(partition.__all__) - OWN))
def test_a_partition_constructs_bare_is_frozen_and_names_its_source(name):
    law = getattr(partition, name)()
    assert hash(law) == hash(getattr(partition, name)())
    with pytest.raises(AttributeError):
        law.clients = 3
    assert "http" in type(law).__doc__ or name == "Iid"


@pytest.mark.parametrize("law", [kind(11) for kind in LAWS if kind is not Natural])
def test_more_clients_than_rows_are_refused(law):
    with pytest.raises(ValueError, match="clients is 11, but there are only 10 examples"):
        law.assign(np.zeros(10, int), np.random.default_rng(0), None)


@pytest.mark.parametrize("clients", [0, -1, 2.5, True])
@pytest.mark.parametrize("kind", LAWS)
def test_a_number_of_clients_that_is_none_is_refused(kind, clients):
    with pytest.raises(ValueError, match="it must be a whole number, at least 1"):
        kind(clients).assign(np.zeros(10, int), np.random.default_rng(0), np.arange(10))


@pytest.mark.parametrize("alpha", [np.int64(1), jnp.float32(1.0), np.float32(1.0), 1])
@pytest.mark.parametrize("kind", [Dirichlet, ClientDirichlet, QuadraticDirichlet])
def test_an_alpha_may_be_any_number(kind, alpha):
    y = np.arange(40) % 2
    np.testing.assert_array_equal(*(kind(2, a).assign(y, np.random.default_rng(0), None) for a in (alpha, 1.0)))


@pytest.mark.parametrize("alpha", [0, -1.0, np.inf, np.nan, 1e-9, 1e301, "0.5", True, np.ones(2)])
@pytest.mark.parametrize("kind", [Dirichlet, ClientDirichlet, QuadraticDirichlet])
def test_an_alpha_that_defines_no_law_is_refused(kind, alpha):
    with pytest.raises(ValueError, match="a Dirichlet concentration is a finite number above 0"):
        kind(2, alpha).assign(np.zeros(10, int), np.random.default_rng(0), None)
