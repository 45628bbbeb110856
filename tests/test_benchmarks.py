"""The benchmarks run, and count right; what they measure is nobody's test."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    """The benchmarks are beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_quick_workload_writes_what_it_measured(tmp_path):
    out = tmp_path / "quick.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "flute-lr,gpfl-mlp", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found) == {"flute-lr", "gpfl-mlp"}
    for name in found:
        (row,) = found[name]["rows"]
        assert row["seconds_a_round"] > 0
        assert 0 < row["fraction_of_peak"] == pytest.approx(row["flops_a_second"] / found[name]["peak_flops"])
        assert f"| {name} |" in done.stdout


def test_a_workload_that_is_none_is_refused():
    command = [sys.executable, "-m", "benchmarks", "--only", "flute"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "unknown workload flute; there are: flute-lr, gpfl-mlp" in done.stderr


def test_the_time_of_an_operation_is_without_those_inside():
    from benchmarks.profiles import own_time

    events = [(0, 100, "while"), (10, 30, "dot"), (15, 5, "copy"), (50, 40, "dot"), (200, 7, "sort")]
    assert own_time(events) == {"while": 30, "dot": 65, "copy": 5, "sort": 7}


def test_a_ratio_is_of_one_turn_and_failures_are_left_out():
    from benchmarks.peers.__main__ import ratios

    def turn(ours, theirs):
        return {"fedjax_sel": {"seconds_a_round": ours}, "slow": theirs}

    turns = [turn(1.0, {"seconds_a_round": 3.0}), turn(2.0, {"seconds_a_round": 8.0}), turn(1.0, {"failed": "late"})]
    assert ratios([*turns, {"fedjax_sel": {"seconds_a_round": 5.0}}]) == {"slow": 3.5}


def test_the_floor_counts_the_products_of_a_gradient_and_of_the_programs_inside():
    from benchmarks.floor import contracted, products

    def loss(w, x):
        return jax.jit(lambda w: jnp.tanh(x @ w[0]) @ w[1])(w).sum()

    x, w = jnp.ones((5, 7)), (jnp.ones((7, 3)), jnp.ones((3, 2)))
    found = products(jax.make_jaxpr(jax.grad(loss))(w, x).jaxpr)
    work = sorted(2 * eqn.outvars[0].aval.size * contracted(eqn) for eqn in found)
    forwards, backwards = [2 * 5 * 7 * 3, 2 * 5 * 3 * 2], [2 * 7 * 5 * 3, 2 * 3 * 5 * 2, 2 * 5 * 2 * 3]
    assert work == sorted(forwards + backwards)
