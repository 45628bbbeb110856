"""A mesh of devices changes where things are computed, not what."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Layout, simulate
from fedjax_sel.collectives import count_devices, exchange, map_parts, share
from fedjax_sel.config import build, resolve
from fedjax_sel.engine import scan
from fedjax_sel.engine.autolayout import divide_cores
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.scan import run_chunk
from tests.engine.meshes import BLOCKS, CASES, CLIENTS, SCAN, SEEDS, compare

HERE = Path(__file__).parents[2]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_parts_of_an_axis_are_mapped_on_all_devices(length):
    seen = []

    def f(part, scale):
        seen.append((len(part), count_devices()))
        return {"twice": scale * part, "none": jnp.zeros((len(part), 0))}

    n = jax.local_device_count()
    whole = jnp.arange(float(length))
    for devices, expected in ((jax.local_devices(), n), (jax.local_devices()[:1], 1), ((), 1)):
        got = jax.jit(lambda whole, scale, devices=devices: map_parts(f, whole, scale, devices=devices))(whole, 2.0)
        np.testing.assert_array_equal(got["twice"], 2.0 * np.arange(length))
        assert got["none"].shape == (length, 0)
        assert seen.pop() == (-(-length // expected), expected)


def test_eight_devices_give_what_one_gives():
    """Three seeds and cohorts of three or five, which divide among none of the meshes."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-m", "tests.engine.meshes"]
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("alike:") == 5


@pytest.mark.parametrize(
    ("case", "mesh", "layout"),
    [
        ("stacked updates", (1, 2), BLOCKS),
        ("stacked updates", (2, 1), SCAN),
        ("devices with a deadline", (1, 2), SCAN),
        ("row signals over all clients", (2, 1), Layout()),
        ("updates together, and members that fail", (1, 2), Layout()),
    ],
    ids=str,
)
def test_two_devices_give_what_one_gives(case, mesh, layout):
    compare(case, mesh, layout)


def test_numbers_of_every_kind_come_back_from_one_message_as_they_were():
    whole = {
        "flag": jnp.array([True, False, True]),
        "count": jnp.array([-1, 2**31 - 1, 0], jnp.int32),
        "bits": jnp.array([0, 2**32 - 1, 7], jnp.uint32),
        "loss": jnp.array([jnp.nan, -0.0, -jnp.inf], jnp.float32),
        "tiny": jnp.array([1e-45, 1e38, -1e-40], jnp.float32),
        "half": jnp.array([1.5, 2.5, -1.0], jnp.bfloat16),
        "row": jnp.arange(6.0).reshape(3, 2),
    }
    layout = Layout(mesh=(1, 2))
    nowhere = jax.sharding.PartitionSpec()

    def there_and_back(part):
        return exchange({"w": 1.0 + jax.lax.axis_index("clients")}, share(part, 2), 3)

    mapped = jax.shard_map(there_and_back, mesh=layout.devices(), in_specs=nowhere, out_specs=nowhere, check_vma=False)
    total, parts = jax.jit(mapped)(whole)
    assert total["w"] == 3.0
    for name, back in parts.items():
        assert back.dtype == whole[name].dtype
        assert np.asarray(back).tobytes() == np.asarray(whole[name]).tobytes(), name
    messages = jax.jit(mapped).lower(whole).compile().as_text()
    assert messages.count(" all-reduce(") == 1, "the five of 32 bits or one, with the total"
    assert messages.count(" all-gather(") == 2, "halves and rows"


def test_a_run_on_a_mesh_goes_on_bit_for_bit(tmp_path):
    experiment, data = CASES["candidates, and control variates"]
    experiment = experiment.replace(rounds=5)
    how = {"mesh": (2, 1), "chunk": 2}
    whole = simulate(experiment, data, SEEDS, **how)
    points = Checkpoints(tmp_path, pause=0)
    stopped = simulate(experiment, data, SEEDS, **how, checkpoints=points, callbacks=[lambda history: True])
    assert stopped.rounds == 2
    rest = simulate(experiment, data, SEEDS, **how, checkpoints=Checkpoints(tmp_path, pause=0))
    assert rest.about["resumed_at"] == 2
    np.testing.assert_array_equal(rest.selections, whole.selections)
    for metric in whole.metrics:
        np.testing.assert_array_equal(rest[metric], whole[metric], err_msg=metric)
    jax.tree.map(np.testing.assert_array_equal, rest.variables, whole.variables)


@pytest.mark.parametrize("mesh", [(1, 1), (4, 2), (3, 1)], ids=str)
def test_a_mesh_of_other_devices_than_there_are_is_refused(mesh):
    with pytest.raises(ValueError, match=r"the mesh is .* but there are 2 devices; .* as in --mesh seeds=2,clients=1"):
        simulate(CASES["stacked updates"][0], CLIENTS, SEEDS, mesh=mesh)
    with pytest.raises(ValueError, match="but there are 2 devices"):
        simulate(CASES["stacked updates"][0], CLIENTS, SEEDS, layout=Layout(mesh=mesh))


def test_a_configuration_names_a_mesh():
    assert build(resolve({"data": "iris", "rounds": 1, "mesh": {"seeds": 2, "clients": 1}})).execution.mesh == (2, 1)
    assert build(resolve({"data": "iris", "rounds": 1})).execution.mesh == "auto"


@pytest.mark.parametrize(
    ("devices", "runs", "members", "mesh"),
    [
        (2, 16, 10, (2, 1)),
        (2, 1, 10, (1, 2)),
        (2, 3, 5, (1, 2)),  # three clients one after another in three rounds, against five in two
        (2, 1, 1, None),
        (1, 20, 10, None),
        (8, 20, 10, (4, 2)),
        (8, 1, 5, (1, 5)),
        (64, 4, 10, (4, 10)),
    ],
)
def test_cores_get_the_mesh_that_leaves_least_to_do_after_one_another(devices, runs, members, mesh, monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    assert divide_cores(runs, members) == mesh
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert divide_cores(runs, members) is None


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("own", "devices"),
    [
        ({}, CORES),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
        ({"JAX_NUM_CPU_DEVICES": "4"}, 4),
        ({"MESH": "dict(seeds=3, clients=2)"}, 6),
        ({"MESH": "dict(seeds=16, clients=512)"}, CORES),
    ],
    ids=["cores", "flag", "variable", "mesh", "mesh of a cluster"],
)
def test_every_core_is_a_device_unless_a_number_or_a_mesh_is_chosen(own, devices):
    code = f"from fedjax_sel.runs.prepare import prepare_jax; prepare_jax(mesh={own.get('MESH')}, cache=False)"
    code += "; import jax; print(jax.local_device_count())"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **own}
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == [str(devices)], done.stderr


def test_an_automatic_mesh_changes_nothing_and_a_round_is_traced_once(monkeypatch):
    """For the estimate of memory, the shape of its record and the program together."""
    traced, step = [], scan.round_step
    monkeypatch.setattr(scan, "round_step", lambda *args: traced.append(1) or step(*args))
    experiment, data = CASES["devices with a deadline"]
    run_chunk.clear_cache()
    one = simulate(experiment, data, 1)
    assert len(traced) == 1
    run_chunk.clear_cache()
    several = simulate(experiment, data, 1, mesh="auto", chunk=1)
    assert run_chunk.programs == 1
    assert len(traced) == 2
    assert several.about["layout"].endswith("on a mesh of 1 x 2 devices (seeds, clients)")
    np.testing.assert_array_equal(one.selections, several.selections)
    np.testing.assert_allclose(one["loss"], several["loss"], rtol=1e-5)


def test_another_word_than_auto_is_no_mesh():
    for mesh in ("all", (0, 2)):
        with pytest.raises(ValueError, match=r"mesh is .*; it must be two whole numbers, among how many devices"):
            simulate(CASES["stacked updates"][0], CLIENTS, SEEDS, mesh=mesh)


def test_what_is_kept_of_every_client_is_copied_to_no_device_of_a_cohort():
    experiment, data = CASES["candidates, and control variates"]
    assert "mesh" not in simulate(experiment, data, 1, mesh="auto").about["layout"]
    assert "a mesh of 2 x 1" in simulate(experiment, data, 2, mesh="auto").about["layout"]


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ({"seeds": 2, "client": 1}, "unknown parameter of mesh: 'client'; did you mean 'clients'"),
        ({"seeds": "two", "clients": 1}, "mesh.seeds is 'two'; it must be a whole number"),
        (2, "mesh is 2; it must be a mapping"),
    ],
    ids=str,
)
def test_a_configuration_of_no_mesh_is_refused(mesh, says):
    with pytest.raises(ValueError, match=says):
        build(resolve({"data": "iris", "rounds": 1, "mesh": mesh}))
