"""Sets up every test: strict shapes, no warnings, two CPU devices, compiled programs kept, no network.

XLA compiles without its expensive passes and without its newer fusion emitters, which takes a third of the time, and
each program in one thread, as the other core has a worker of its own; numbers agree within the tolerances. Programs do
not carry the calls that led to each of their operations. Small programs stay in memory from file to file, and garbage
is collected rarely.
"""

import functools
import gc
import itertools
import os
import socket
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src.interpreters import mlir
from jaxtyping import install_import_hook

FEWER_PASSES = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
FEWER_PASSES += " --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):  # later ones do not know this flag, and abort
    FEWER_PASSES += " --xla_cpu_use_fusion_emitters=false"
PLATFORMS = os.environ.get("FEDJAX_SEL_TESTS_ON", "cpu")
"""`cuda,cpu` runs them on a GPU, with `JAX_DEFAULT_MATMUL_PRECISION=float32`: the tolerances are not those of TF32."""
if PLATFORMS == "cpu" and "FEDJAX_SEL_TESTS_OPTIMISED" not in os.environ:
    os.environ["XLA_FLAGS"] = f"{FEWER_PASSES} {os.environ.get('XLA_FLAGS', '')}".strip()
os.environ["MPLBACKEND"] = "Agg"
os.environ["FEDJAX_SEL_CACHE"] = str(Path(tempfile.gettempdir()) / "fedjax_sel_tests")

# Modules that compute with arrays; data and states also hold NumPy arrays, stacks of seeds and axis specifications.
CHECKED = ["aggregation", "client_selection", "correction", "data_selection", "local_training"]
CHECKED += ["collectives", "kernels", "metrics", "signals", "task"]
CHECKED += [f"engine.{name}" for name in ("signals", "averages", "timing", "metrics", "layout", "keys")]
CHECKED += [f"devices.{name}" for name in ("availability", "clock", "laws", "table")]
install_import_hook([f"fedjax_sel.{name}" for name in CHECKED], "beartype.beartype")

jax.config.update("jax_platforms", PLATFORMS)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # pytest's own calls, through which XLA goes several times

KEPT = {
    "jax_compilation_cache_dir": f"{os.environ['FEDJAX_SEL_CACHE']}/xla",
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}
"""Every program, even of a single operation, is kept on disk for the other worker and the next run of the tests."""
for name, value in KEPT.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)  # for the processes that tests start


from fedjax_sel.compiled import jit  # noqa: E402 (imported with the settings above)
from fedjax_sel.engine import init  # noqa: E402

mlir.make_ir_context = functools.cache(mlir.make_ir_context)
"""All programs are written in one context of MLIR.

JAX makes one for each program and keeps it, which takes 5 ms, and longer the more there are; the tests compile 15,000
programs, most of them a single operation.
"""

init.compiled_variables = jit(static_argnames=["example"])(init.init_variables)
"""Initial models are drawn without LLVM's optimisation, too, which halves the time until they are compiled."""

QUICK = ("devices/", "kernels/", "metrics/", "data/", "leaderboard/test_statistics", "papers/test_judging")
QUICK += ("test_layers", "test_pytree", "test_config", "client_selection/test_ops", "client_selection/test_inclusion")
"""Paths of tests that take two minutes together: `pytest -m quick`, to run while working."""


FIRST = ("papers/", "leaderboard/")
"""Paths of tests whose modules share runs of up to half a minute.

A worker that is done takes the last of the other's tests, and makes once more what the tests of a module share. So
these come first.
"""


def pytest_collection_modifyitems(items):
    """Marks the quick tests, and moves those that share long runs to the front."""
    here = Path(__file__).parent

    def lies_in(item, paths):
        return item.path.is_relative_to(here) and str(item.path.relative_to(here)).startswith(paths)

    for item in items:
        if lies_in(item, QUICK):
            item.add_marker(pytest.mark.quick)
    items.sort(key=lambda item: not lies_in(item, FIRST))


def pytest_collection_finish():
    """Makes the collector skip the million objects of imported modules, and run rarely, as tracing makes many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Makes connections to anywhere but this machine fail at once."""
    connect = socket.socket.connect

    def local_only(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a test tried to connect to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def no_module_stays(tmp_path_factory):
    """Forgets modules that a test wrote and imported: the next test's `mine.py` is another file of the same name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture(scope="session")
def blobs():
    """Returns three classes in the plane: 216 training, 60 test and 24 validation rows."""
    from fedjax_sel import dataset

    rng = np.random.default_rng(7)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    return dataset("blobs", x.astype(np.float32), y, test=0.2, validation=0.1)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Drops the compiled rounds of a file from memory; they are on disk, and each file counts its own.

    The hundreds of small programs that JAX compiles for single operations are kept, since they take 25 ms each.
    """
    yield
    from fedjax_sel.engine.scan import run_chunk

    run_chunk.clear_cache()
    forget_too_many()


@pytest.fixture(autouse=True)
def close_figures():
    """Closes the figures of a test, since matplotlib warns of more than twenty."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


TESTS = itertools.count(1)
MAPS = Path("/proc/self/maps")


def forget_too_many():
    """Drops all compiled programs if there are too many.

    Linux allows a process 65,530 memory mappings by default, a compiled program takes several, and XLA crashes if there
    are none left. A run drops programs itself beyond half of that, which tests that count them must not see.
    """
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 28_000:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def forget_many_programs():
    """Drops compiled programs also within a file if there are too many."""
    yield
    if next(TESTS) % 10 == 0:
        forget_too_many()
