"""Programs that one command compiled are read from disk by the next."""

import subprocess
import sys

import jax
import pytest

import fedjax_sel as fs
from fedjax_sel.devices.laws import LogNormal
from fedjax_sel.engine.scan import run_chunk


@pytest.fixture
def compiled():
    """The names of the programs that are compiled, or read from disk, in this process while a test runs."""
    names = []

    def note(event, seconds, fun_name="", **_):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


def test_what_is_compiled_before_the_first_chunk_is_what_runs(blobs, compiled):
    experiment = fs.Experiment(fs.Task(fs.models.MLP(3, (4,))), cohort_size=2, rounds=3)
    clients = fs.Federation(blobs, fs.partition.Iid(clients=5))
    found, events = compiled, []

    class Watch:
        def on_train_begin(self, history):
            events.append(("begin", history.rounds, "run_chunk" in str(found)))

        def on_compiled(self, history):
            events.append(("compiled", history.rounds, "run_chunk" in str(found)))

        def after_central_iteration(self, history):
            events.append(("chunk", history.rounds, "run_chunk" in str(found)))

    run_chunk.clear_cache()
    fs.simulate(experiment, clients, callbacks=[Watch()], chunk=2)
    assert events == [("begin", 0, False), ("compiled", 0, True), ("chunk", 2, True), ("chunk", 3, True)]
    assert sum("run_chunk" in name for name in found) == 1
    events.clear()
    fs.simulate(experiment, clients, callbacks=[Watch()], debug=True)
    assert "compiled" not in [name for name, *_ in events]


def test_seeds_with_clients_of_other_sizes_share_the_few_programs_before_round_0(blobs, compiled):
    """Some of a known model, for another number of clients: not one for each operation on the clients' devices."""
    task = fs.Task(fs.models.MLP(3, (4,)))
    experiment = fs.Experiment(task, client_selection=fs.client_selection.Oort(), cohort_size=3, rounds=2)

    def programs(clients, seeds):
        lots = fs.partition.Dirichlet(clients=clients, alpha=0.3)
        federation = fs.Federation(blobs, lots, devices=LogNormal())
        assert len({one.longest for one in federation.draws(range(seeds))}) == seeds
        del compiled[:]
        fs.simulate(experiment, federation, seeds=seeds, chunk=1)
        return [name for name in compiled if "run_chunk" not in name]

    programs(31, 2)
    assert sum("make_context" in name for name in programs(32, 3)) == 1
    assert len(compiled) <= 20


PROGRAM = """
import sys
from collections import Counter
from pathlib import Path

import jax
from rich.console import Console

from fedjax_sel import papers
from fedjax_sel.config import resolve
from fedjax_sel.papers.running import run_cells
from fedjax_sel.runs.prepare import keep_compiled_programs

known = Counter()
jax.monitoring.register_event_listener(lambda event, **_: known.update([event.rpartition("/")[2]]))
keep_compiled_programs()
cell = papers.load("uacs").cells("smoke")[0]
run_cells(Path(sys.argv[1]), [cell], [resolve({**cell.config, "seeds": 1, "rounds": 2})], Console(quiet=True))
print(known["cache_misses"], known["cache_hits"])
"""


def test_another_process_compiles_nothing(tmp_path, monkeypatch):
    """Whatever the hashes of strings are, by which sets are ordered."""
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    counts = []
    for turn in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / turn)], capture_output=True, text=True, check=True
        )
        counts.append([int(number) for number in done.stdout.split()[-2:]])
    (missed, _), (missed_again, hits) = counts
    assert missed > 10, "compiled, and kept"
    assert missed_again == 0
    assert hits > 10
