"""Programs that one command compiled are read from disk by the next."""

from collections import Counter

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from rich.console import Console

import fedjax_sel as fs
from fedjax_sel import papers
from fedjax_sel.config import resolve
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.papers.reproduction import run_cells
from fedjax_sel.runs.prepare import keep_compiled_programs

OPTIONS = ("dir", "min_compile_time_secs", "min_entry_size_bytes")
NAMES = [f"jax_{'compilation' if name == 'dir' else 'persistent'}_cache_{name}" for name in OPTIONS]
EVENTS = "/jax/compilation_cache/"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The cache as a command sets it, in a folder of its own; gives the counts of what JAX asks of it."""
    known = Counter()

    def count(event, **_):
        known.update([event.removeprefix(EVENTS)])

    jax.monitoring.register_event_listener(count)
    before = {name: getattr(jax.config, name) for name in NAMES}
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "cache"))
    jax.config.update(NAMES[0], None)
    compilation_cache.reset_cache()
    keep_compiled_programs()
    yield known
    jax.monitoring.unregister_event_listener(count)
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_what_is_compiled_before_the_first_chunk_is_what_runs(blobs):
    experiment = fs.Experiment(fs.Task(fs.models.MLP(3, (4,))), cohort_size=2, rounds=3)
    clients = fs.Federation(blobs, fs.partition.Iid(clients=5))
    found, events = [], []

    def count(event, seconds, fun_name="", **_):
        if event.endswith("backend_compile_duration"):
            found.append(fun_name)

    class Watch:
        def on_train_begin(self, history):
            events.append(("begin", history.rounds, "run_chunk" in str(found)))

        def on_compiled(self, history):
            events.append(("compiled", history.rounds, "run_chunk" in str(found)))

        def after_central_iteration(self, history):
            events.append(("chunk", history.rounds, "run_chunk" in str(found)))

    run_chunk.clear_cache()
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        fs.simulate(experiment, clients, callbacks=[Watch()], chunk=2)
        assert events == [("begin", 0, False), ("compiled", 0, True), ("chunk", 2, True), ("chunk", 3, True)]
        assert sum("run_chunk" in name for name in found) == 1
        events.clear()
        fs.simulate(experiment, clients, callbacks=[Watch()], debug=True)
        assert "compiled" not in [name for name, *_ in events]
    finally:
        jax.monitoring.unregister_event_duration_listener(count)


def test_a_cell_of_a_reproduction_compiles_nothing_the_second_time(own_cache, tmp_path):
    cell = papers.load("uacs").cells("smoke")[0]
    config = resolve({**cell.config, "seeds": 1, "rounds": 2})
    counts = []
    for turn in ("first", "second"):
        jax.clear_caches()  # as in another process
        own_cache.clear()
        run_cells(tmp_path / turn, [cell], [config], Console(quiet=True))
        counts.append(Counter(own_cache))
    first, second = counts
    assert first["cache_misses"] > 10, "compiled, and kept"
    assert second["cache_misses"] == 0
    assert second["cache_hits"] == second["compile_requests_use_cache"] > 10
