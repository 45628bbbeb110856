"""Examples that no device holds give the numbers of examples that one holds, to the last bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import ClientSelector, Experiment, Federation, Layout, Task, config, dataset, partition, simulate
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.data.host_array import Stored, keep_on_host
from fedjax_sel.engine import program
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from tests.engine.meshes import BASE, CASES, ROWS, SCAN

SEEDS = [3, 8]
UNEVEN = Federation(ROWS, partition.Dirichlet(clients=9, alpha=0.5), holdout=0.3)
EPOCHS = BASE.replace(local_training=SGD(0.1, batch_size=8, epochs=2), rounds=4, evaluate_clients_every=2)
PASSES = Layout(clients=2, examples=40)
RUNS = {
    "uniform, on two devices": (EPOCHS, UNEVEN, {"mesh": (1, 2)}),
    "signals of candidates": (EPOCHS.replace(client_selection=PowerOfChoice(d=6)), UNEVEN, {"layout": PASSES}),
    "signals of examples, updates together": (*CASES["stacked updates"], {"layout": SCAN}),
}


@pytest.fixture(scope="module", params=RUNS)
def pair(request):
    """A run with its examples on the device, and with its examples on the host; and how it is run."""
    experiment, data, how = RUNS[request.param]
    how = {"chunk": 2, **how}
    on_device, on_host = (simulate(experiment, data, SEEDS, **how, examples_on=place) for place in ("device", "host"))
    return on_device, on_host, (experiment, data, how)


def check_same(one, other):
    assert list(one.metrics) == list(other.metrics)
    for name in one.metrics:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    np.testing.assert_array_equal(one.selections, other.selections)
    for name, value in one.client_metrics.items():
        np.testing.assert_array_equal(value, other.client_metrics[name], err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, one.variables, other.variables)


def test_where_examples_lie_changes_no_number(pair):
    on_device, on_host, _ = pair
    check_same(on_device, on_host)
    assert (on_device.about["examples_on"], on_host.about["examples_on"]) == ("on the device", "on the host, as asked")
    assert np.ptp(on_device["loss"]) > 0.01, "they have learnt something that could differ"


@pytest.mark.parametrize("pair", ["signals of candidates"], indirect=True)
@pytest.mark.parametrize("begun", ["device", "host"])
def test_a_run_that_was_stopped_goes_on_wherever_its_examples_lay(pair, begun, tmp_path):
    whole, _, (experiment, data, how) = pair
    points = Checkpoints(tmp_path, pause=0)
    stop = [lambda history: True]
    assert simulate(experiment, data, SEEDS, **how, examples_on=begun, checkpoints=points, callbacks=stop).rounds == 2
    rest = simulate(experiment, data, SEEDS, **how, examples_on="host", checkpoints=Checkpoints(tmp_path, pause=0))
    assert rest.about["resumed_at"] == 2
    check_same(whole, rest)


def test_examples_stay_on_the_host_where_a_device_has_no_room_for_them():
    """2000 features: 1.2 MB of the clients' examples, 0.6 MB of the server's, 24 kB a model."""
    rng = np.random.default_rng(0)
    data = UNEVEN.draw(0)
    wide = rng.normal(size=(len(data.x), 2000)).astype(np.float32)
    data = data.replace(x=wide, test_x=wide[: len(data.test_x)], validation_x=wide[: len(data.validation_x)])
    how = {"memory": 1_900_000, "layout": Layout(clients=1, examples=20)}
    experiment = Experiment(Task(LogisticRegression(3)), local_training=SGD(batch_size=4), cohort_size=2, rounds=1)
    found = simulate(experiment, data, 1, **how)
    assert found.about["examples_on"].startswith("on the host, because the examples take 0.00")
    assert found.about["memory"] < how["memory"]
    with pytest.raises(ValueError, match=r"the examples take .*, but a device has .*; .*examples_on=host"):
        simulate(experiment, data, 1, **how, examples_on="device")


def test_a_place_that_is_none_is_refused():
    for ask in (
        lambda: simulate(EPOCHS, UNEVEN, 1, examples_on="hots"),
        lambda: config.resolve({"data": "iris", "examples_on": "hots"}),
    ):
        with pytest.raises(ValueError, match="unknown examples_on 'hots'; did you mean 'host'"):
            ask()
    assert config.resolve({"data": "iris", "examples_on": "auto"})["examples_on"] is None
    assert config.build(config.resolve({"data": "iris", "examples_on": "host"})).execution.examples_on == "host"


def test_each_seed_reads_its_own_array_in_one_visit(monkeypatch):
    arrays = [np.arange(24, dtype=np.int16).reshape(6, 2, 2) + 100 * i for i in range(2)]
    kept = keep_on_host([arrays[1], arrays[0], arrays[1]])
    assert kept[0] is kept[2]
    assert kept[0].shape == (6, 2, 2)
    visits = []
    read = Stored.read
    monkeypatch.setattr(Stored, "read", lambda self, *of: visits.append(1) or read(self, *of))
    together = jax.tree.map(lambda *which: np.stack(which), *kept)
    index = jnp.array([[[5, 0, 3], [1, 1, 2]]] * 2 + [[[4, 4, 4], [0, 5, 1]]])
    found = jax.jit(jax.vmap(lambda x, index: jax.vmap(lambda i: x[i])(index)))(together, index)
    wanted = np.stack([arrays[k][index[seed]] for seed, k in enumerate([1, 0, 1])])
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == np.int16
    assert len(visits) == 1
    np.testing.assert_array_equal(np.asarray(together), np.stack([arrays[1], arrays[0], arrays[1]]))


def test_a_program_is_looked_up_by_the_arrays_that_it_reads():
    one, other = np.zeros(3), np.zeros(3)
    assert Stored([one]) == Stored([one])
    assert Stored([one]) != Stored([other])
    assert hash(Stored([one, other])) == hash(Stored([one, other]))


def test_several_processes_are_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(program, "is_distributed", lambda: True)
    monkeypatch.setattr(program, "init_variables", None)
    with pytest.raises(ValueError, match=r"^examples_on is 'host', which is for one process, but there are 1; set"):
        simulate(BASE, UNEVEN, SEEDS, examples_on="host")


@pytest.mark.parametrize("seeds", ["vmap", "scan"])
def test_seeds_with_examples_of_their_own_are_asked_of_everybody_on_the_host(seeds):
    """Flat passes look at the same places in the arrays of all seeds."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        return dataset("own", rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 3, 60), test=0.2)

    task = Task.on(LogisticRegression(classes=3), draw(0))
    experiment = Experiment(task, PowerOfChoice(4), cohort_size=2, rounds=2, evaluate_clients_every=1)
    recipe = Federation(draw, partition.Iid(6))
    one, other = (
        simulate(experiment, recipe, seeds=2, examples_on=place, layout=Layout(seeds=seeds))
        for place in ("host", "device")
    )
    np.testing.assert_array_equal(one.selections, other.selections)
    for name in one.metrics:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def test_an_error_of_the_users_code_is_none_of_too_little_memory():
    """It is raised at once, instead of being met again with the examples elsewhere."""
    traced = []

    class Broken(ClientSelector):
        def select(self, key, state, ctx):
            traced.append(1)
            raise ValueError("mine")

    experiment = Experiment(Task(LogisticRegression(3)), client_selection=Broken(), cohort_size=2, rounds=1)
    with pytest.raises(ValueError, match="mine"):
        simulate(experiment, UNEVEN, 1)
    assert len(traced) == 1
