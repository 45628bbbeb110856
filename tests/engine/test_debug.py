"""Without compilation, an error says where it happened."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, dataset, load, partition, simulate
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.data_selection.el2n import EL2N
from fedjax_sel.engine.debug import check_finite, stage
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression


@pytest.fixture(scope="module")
def wild():
    """Three clients of four rows; the rows of client 2 are astronomical."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2)).astype(np.float32) * np.repeat([1, 1, 1e15], 4)[:, None].astype(np.float32)
    y = np.arange(12) % 2
    test = (x[:4], y[:4].astype(np.int32))
    return Federation(dataset("wild", x, y, test=test, owner=np.repeat(np.arange(3), 4)), partition.Natural())


class Clumsy(RoundRobin):
    """Stumbles in its second round."""

    def select(self, key, state, ctx):
        if int(ctx.round) == 1:
            raise RuntimeError("stumbled")
        return super().select(key, state, ctx)


def experiment(selector, learning_rate=0.1):
    trainer = SGD(learning_rate, batch_size=None)
    return Experiment(
        Task(LogisticRegression(classes=2)), client_selection=selector, local_training=trainer, cohort_size=2, rounds=2
    )


def test_a_selector_that_raises_is_found_by_stage_round_and_seed(wild):
    with pytest.raises(RuntimeError, match="stumbled") as caught:
        simulate(experiment(Clumsy()), wild, seeds=[9], debug=True)
    notes = [note for note in caught.value.__notes__ if note.startswith("in ")]
    assert notes == ["in client selection, round 1", "in simulate, seed 9"]


def test_training_that_diverges_is_found_by_client_stage_round_and_seed(wild):
    """Two clients of three train in a round, so that client 2 has its turn in the first or the second."""
    with pytest.raises(FloatingPointError, match=r"(kernel|bias).* is not finite") as caught:
        simulate(experiment(RoundRobin(), learning_rate=1e30), wild, seeds=[7], debug=True)
    client, stage_and_round, seed = (note for note in caught.value.__notes__ if note.startswith("in "))
    assert client == "in local training, client 2"
    assert stage_and_round in ("in local training, round 0", "in local training, round 1")
    assert seed == "in simulate, seed 7"


def test_notes_stand_from_the_innermost_stage_outwards():
    with pytest.raises(ZeroDivisionError) as caught, stage("the round", seed=3), stage("the middle", round=2, client=5):
        _ = 1 // 0
    assert caught.value.__notes__ == ["in the middle, round 2, client 5", "in the round, seed 3"]


def test_numbers_that_are_not_known_yet_are_left_out_of_a_note():
    @jax.jit
    def compiled(t):
        with stage("tracing", round=t, client=4):
            raise TypeError("no")

    with pytest.raises(ValueError, match="TypeError: no") as caught:
        compiled(1)
    assert caught.value.__notes__[0] == "in tracing, client 4"


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_number_that_is_not_finite_is_named_by_its_place(bad):
    with pytest.raises(FloatingPointError, match=r"\['b'\]\[1\] is not finite"):
        check_finite({"a": jnp.ones(3), "b": [jnp.ones(2), jnp.array([0.0, bad])]})


def test_finite_numbers_integers_and_compiled_code_pass():
    check_finite({"a": jnp.ones(3), "b": jnp.arange(3), "c": None, "key": jnp.array([True])})

    @jax.jit
    def compiled(x):
        check_finite(x / 0)
        return x

    assert compiled(jnp.ones(())) == 1


def test_a_loss_that_overflows_is_an_error_in_debug_mode(blobs):
    """The update is finite, but its loss is not, for which it would be left out."""
    experiment = Experiment(
        Task(LogisticRegression(classes=3), loss=lambda outputs, targets: 3e38 + outputs[:, 0]),
        local_training=SGD(batch_size=8),
        cohort_size=2,
        rounds=3,
    )
    with pytest.raises(FloatingPointError, match=r"loss'.* is not finite"):
        simulate(experiment, Federation(blobs, partition.Iid(clients=4)), debug=True)


def test_seeds_whose_largest_clients_differ_have_states_of_one_length():
    clients = Federation(load("iris"), partition.Dirichlet(clients=5, alpha=0.8))
    assert len({clients.draw(seed).longest for seed in (1, 2)}) == 2
    experiment = Experiment(
        Task(LogisticRegression(classes=3)), data_selection=EL2N(turns=2), cohort_size=5, rounds=3, evaluate_every=3
    )
    eager = simulate(experiment, clients, seeds=[1, 2], debug=True)
    np.testing.assert_allclose(eager.last("loss"), simulate(experiment, clients, seeds=[1, 2]).last("loss"), rtol=1e-4)
