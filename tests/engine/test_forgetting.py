"""A process that makes many runs forgets programs before the system has no room for another one."""

import sys

import jax
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.engine import forgetting
from fedjax_sel.engine.scan import run_chunk

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts pieces of memory")


@pytest.fixture
def limit(tmp_path, monkeypatch):
    """Sets how many pieces a process may map, by those that it has."""
    monkeypatch.setattr(forgetting, "MOST", tmp_path / "most")
    monkeypatch.setattr(forgetting, "_OTHERS", [0])
    return lambda share: forgetting.MOST.write_text(f"{int(share * forgetting.count_pieces())}\n")


def run(selector, blobs):
    federation = fs.Federation(blobs, fs.partition.Dirichlet(clients=4, alpha=1.0))
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), blobs)
    return fs.simulate(fs.Experiment(task, client_selection=selector, cohort_size=2, rounds=3), federation)["accuracy"]


@linux
def test_programs_are_forgotten_where_they_take_half_of_what_there_is_and_runs_are_the_same(limit, blobs):
    uniform, in_turn = fs.client_selection.Uniform(), fs.client_selection.RoundRobin()
    limit(100)
    run_chunk.clear_cache()
    first = run(uniform, blobs)
    one = run_chunk.programs
    run(in_turn, blobs)
    both = run_chunk.programs
    assert both > one > 0
    run(uniform, blobs)
    assert run_chunk.programs == both, "nothing was forgotten"
    limit(1.9)
    np.testing.assert_array_equal(run(uniform, blobs), first)
    assert run_chunk.programs == one, "the other one was"


@linux
def test_pieces_of_something_else_are_no_reason_to_forget_every_time(limit):
    limit(1.9)
    assert forgetting.forget_many_programs()
    f = jax.jit(lambda x: x + 1)
    f(1.0)
    assert not forgetting.forget_many_programs()
    assert f._cache_size() == 1


def test_where_nothing_is_counted_nothing_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(forgetting, "PIECES", tmp_path / "none")
    f = jax.jit(lambda x: x + 1)
    f(1.0)
    assert not forgetting.forget_many_programs()
    assert f._cache_size() == 1
