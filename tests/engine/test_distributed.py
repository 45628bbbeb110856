"""Several processes run one program: to the same result, and to one end."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from fedjax_sel.engine import distributed
from fedjax_sel.engine.distributed import fetch, init_distributed, max_over_processes
from tests.killing import Program, kill, terminate

HERE = Path(__file__).parents[2]
LONG = 300
"""Seconds after which a process that has not ended never will."""
BOUND = 120
"""Seconds in which the others end where one is gone: a heartbeat, and time to notice."""
SOON = 10
"""Seconds without a heartbeat after which a process is taken for dead, where one dies."""
RUN = [
    "run",
    "digits",
    "rounds=12",
    "chunk=2",
    "partition.clients=12",
    "cohort_size=4",
    "client_selection=gpfl",
    "data.validation=0.1",
]
RUN += ["--seeds", "3"]
TWO = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Several:
    """The same command in processes that know of each other, a device each.

    Args:
      here: the folder that `folder`, of the run, is in.
      arguments: more of them.
      only: more arguments of one process, by its number.
      how: what happens in one process, by its number, as `tests.killing.body` has it.
      heartbeat: seconds without one after which a process is taken for dead; None: as usual.
    """

    def __init__(self, here, folder, *arguments, only=None, how=None, heartbeat=None):
        given = [*RUN, "--mesh", "seeds=2,clients=1", "--out", here / folder, *arguments]
        given += ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
        beat = {} if heartbeat is None else {"heartbeat": heartbeat}
        self.programs = [
            Program(
                [*given, *(only or {}).get(i, []), "--process", i], here, devices=1, **beat, **(how or {}).get(i, {})
            )
            for i in range(2)
        ]

    def ended(self, within=LONG):
        """Exit statuses; a failure where one goes on for longer."""
        until = time.monotonic() + within
        try:
            return [program.ended(max(0.1, until - time.monotonic())) for program in self.programs]
        finally:
            self.kill()

    def kill(self):
        for program in self.programs:
            program.kill()

    def text(self, i):
        return self.programs[i].said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def left(folder):
    with np.load(folder / "selections.npz") as file:
        selections = file["selections"]
    return pd.read_parquet(folder / "metrics.parquet"), selections


def assert_same(folder, other, *, exactly):
    (metrics, selections), (metrics2, selections2) = left(folder), left(other)
    np.testing.assert_array_equal(selections, selections2)
    pd.testing.assert_frame_equal(metrics, metrics2, check_exact=exactly, **({} if exactly else {"rtol": 5e-4}))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What two processes leave."""
    here = tmp_path_factory.mktemp("hosts")
    with Several(here, "two") as both:
        assert both.ended() == [0, 0], both.text(0) + both.text(1)
        assert "The run is in" in both.text(0)
        assert "on 2 hosts" in both.text(0)
        assert "The run is in" not in both.text(1)
    return here / "two"


def test_two_processes_leave_what_one_leaves_on_the_same_mesh(uninterrupted, tmp_path):
    alone = Program([*RUN, "--mesh", "seeds=2,clients=1", "--out", tmp_path / "one"], tmp_path, devices=2)
    assert alone.ended(LONG) == 0, alone.said
    assert_same(uninterrupted, tmp_path / "one", exactly=False)


def unsent(*_, **__):
    raise ValueError("UNKNOWN: Gather failed: Connection reset by peer")


def test_a_message_that_fails_is_no_users_error(monkeypatch):
    with pytest.raises(RuntimeError, match="Connection reset"):
        fetch({"accuracy": type("Unsent", (), {"__array__": unsent})()})
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(distributed.multihost_utils, "process_allgather", unsent)
    with pytest.raises(RuntimeError, match="Connection reset"):
        max_over_processes(3)


@pytest.mark.parametrize("victim", [0, 1])
def test_where_one_process_is_killed_the_other_ends_and_both_go_on_afterwards(victim, uninterrupted, tmp_path):
    with Several(tmp_path, "killed", how={victim: {"saved": (6, kill)}}, heartbeat=SOON) as both:
        assert both.programs[victim].ended(LONG) == -signal.SIGKILL, both.text(victim)
        began = time.monotonic()
        code = both.ended(BOUND)[1 - victim]
        print(f"process {victim} was killed; the other ended {time.monotonic() - began:.1f} s later with {code}")
        assert code not in (0, -signal.SIGKILL)
        said = both.text(1 - victim)
        assert "another task died" in said or "another one may be gone" in said
    assert not (tmp_path / "killed" / "summary.json").exists()
    with Several(tmp_path, "killed") as again:
        assert again.ended() == [0, 0], again.text(0) + again.text(1)
        assert "continuing after round" in again.text(0)
    assert_same(uninterrupted, tmp_path / "killed", exactly=True)


def test_a_signal_to_one_process_stops_both_after_the_chunk(uninterrupted, tmp_path):
    with Several(tmp_path, "stopped", how={1: {"saved": (6, terminate)}}) as both:
        assert both.ended() == [143, 143], both.text(0) + both.text(1)
        assert "stopped after 8 of 12 rounds" in both.text(0)
    assert not (tmp_path / "stopped" / "summary.json").exists()
    with Several(tmp_path, "stopped") as again:
        assert again.ended() == [0, 0], again.text(0) + again.text(1)
        assert "continuing after round 8" in again.text(0)
    assert_same(uninterrupted, tmp_path / "stopped", exactly=True)


def test_processes_of_different_runs_are_refused_before_anything_compiles(tmp_path):
    """One has another learning rate, which would be that of its seeds alone."""
    with Several(tmp_path, "mixed", only={1: ["lr=0.2"]}, heartbeat=SOON) as both:
        assert both.ended(BOUND) == [2, 2], both.text(0) + both.text(1)
        for i in range(2):
            assert "the processes were started with different runs" in both.text(i)
    assert not (tmp_path / "mixed" / "metrics.parquet").exists()


def test_bad_input_in_one_process_ends_both(tmp_path):
    with Several(tmp_path, "bad", only={1: ["local_training.batch_size=0"]}, heartbeat=SOON) as both:
        first, second = both.ended(BOUND)
        assert second == 2
        assert "batch_size is 0" in both.text(1)
        assert first != 0
    assert not (tmp_path / "bad" / "summary.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("host:1", None, 0), "--processes is missing"),
        ((None, 2, 0), "--coordinator is missing"),
        (("host:1", 2, 2), "--process is 2; with --processes 2 it is 0 to 1"),
        (("host:1", 2, -1), "it is 0 to 1"),
    ],
)
def test_what_names_no_process_is_refused_before_anything_waits(given, message):
    with pytest.raises(ValueError, match=message):
        init_distributed(*given)


def test_one_process_agrees_with_itself():
    assert max_over_processes(3) == 3
    np.testing.assert_array_equal(fetch(np.arange(3)), np.arange(3))


ONE = """
import jax, pytest
from unittest.mock import Mock
from fedjax_sel.engine import distributed

distributed.wait_for_all()
assert distributed.coordination_client() is None
distributed.init_distributed("127.0.0.1:{port}", 1, 0)
client = distributed.coordination_client()
assert client is not None, "JAX keeps its client elsewhere"
distributed.wait_for_all()
distributed.coordination_client = lambda: None
sync = distributed.multihost_utils.sync_global_devices
distributed.multihost_utils.sync_global_devices = Mock(side_effect=sync)
distributed.wait_for_all()
distributed.multihost_utils.sync_global_devices.assert_called_once_with("fedjax_sel-1")
"""
"""A process that waits for itself: at the barrier of JAX's client, and where there is none at the public one."""


def test_processes_wait_for_each_other_with_and_without_jaxs_own_client():
    script = ONE.format(port=free_port())
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=HERE,
        env={**os.environ, **TWO},
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr


def test_without_jaxs_private_module_there_is_no_client(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax._src.distributed", None)
    monkeypatch.delattr("jax._src.distributed")
    assert distributed.coordination_client() is None


@pytest.mark.parametrize(("limit", "expected"), [(None, 10), (4096, 1), (4096 * 11, 10)])
def test_the_memory_of_a_container_is_seen(limit, expected, monkeypatch):
    """In pages of 4096 bytes, of which the machine has ten."""
    monkeypatch.setattr(distributed, "memory_limit", lambda: limit)
    monkeypatch.setattr(distributed.os, "sysconf", {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.get)
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    assert distributed.device_memory() == expected * 4096


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "4096\n"}, 4096),
        ({"memory/memory.limit_in_bytes": "8192\n"}, 8192),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory.max": "4096"}, 4096),
    ],
)
def test_the_memory_of_a_container_is_read_from_control_groups_of_both_versions(tmp_path, files, limit):
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert distributed.memory_limit(tmp_path) == limit
