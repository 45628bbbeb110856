"""What JAX is told before a command runs."""

import os
import subprocess
import sys

import pytest

from fedjax_sel.runs.prepare import PATIENCE, let_devices_wait

NAMES = ("warn_stuck", "terminate")

UNEVEN = """
from fedjax_sel.runs.prepare import let_devices_wait
let_devices_wait({seconds})
import jax, jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 2)
mesh, P = jax.make_mesh((2,), ("devices",), (jax.sharding.AxisType.Auto,)), jax.sharding.PartitionSpec

def work(x):
    steps = jnp.where(jax.lax.axis_index("devices") == 0, 1, 10_000)
    x = jax.lax.fori_loop(0, steps, lambda _, x: jnp.sin(x) + x.mean(), x)
    return jax.lax.psum(x.sum(), "devices")

shared = jax.shard_map(work, mesh=mesh, in_specs=P("devices"), out_specs=P(), check_vma=False)
print(jax.jit(shared)(jnp.ones(400_000)).shape)
"""


def run_uneven(seconds):
    env = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    code = UNEVEN.format(seconds=seconds)
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def test_xla_waits_as_long_as_it_is_told():
    impatient = run_uneven(1)
    assert impatient.returncode
    assert "of 1 seconds exceeded" in impatient.stderr
    patient = run_uneven(PATIENCE)
    assert patient.stdout.strip() == "()", patient.stderr


@pytest.mark.parametrize("given", ["", "--xla_cpu_enable_fast_math=false"])
def test_devices_wait_for_a_day_beside_other_flags(given, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", given)
    let_devices_wait()
    flags = os.environ["XLA_FLAGS"].split()
    assert flags == [*given.split(), *(f"--xla_cpu_collective_call_{n}_timeout_seconds={24 * 3600}" for n in NAMES)]


def test_what_the_user_says_is_left(monkeypatch):
    given = " ".join(f"--xla_cpu_collective_call_{name}_timeout_seconds=7" for name in NAMES)
    monkeypatch.setenv("XLA_FLAGS", given)
    let_devices_wait()
    assert os.environ["XLA_FLAGS"] == given
