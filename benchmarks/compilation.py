"""Measures where compilation time goes: initial model, tracing, lowering, XLA with and without LLVM's optimisation.

python -m benchmarks.compilation                     # all; writes benchmarks/results/compilation-BACKEND.json
python -m benchmarks.compilation --only flute-lr
python -m benchmarks.compilation --print             # the written results, as a table

Seconds are CPU seconds of the process over all cores, which other processes disturb less than wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import workloads
from benchmarks.measure import prepare
from benchmarks.tables import RESULTS, figure
from benchmarks.workloads import chunk_of, scale_here
from fedjax_sel.engine.init import init_runs
from fedjax_sel.engine.program import plan_program
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.report.environment import environment
from fedjax_sel.report.markdown import table

COMPILED = {
    "flute-lr": workloads.flute_lr,
    "gpfl-mlp": workloads.gpfl_mlp,
    "pfl-cifar": workloads.pfl_cifar,
    "lefl-resnet": workloads.lefl_resnet,
}
COLUMNS = ("workload", "initial state (s)", "tracing", "lowering", "XLA", "XLA without LLVM's optimisation", "kernels")


def clock(work: Callable[[], Any]) -> tuple[Any, float]:
    """Returns the result of some work, and its CPU seconds over all cores."""
    began = time.process_time()
    done = jax.block_until_ready(work())
    return done, time.process_time() - began


def compile_apart(name: str) -> dict[str, Any]:
    """Returns the seconds of every step of a workload's compilation, and the number of kernels that XLA makes."""
    experiment, federation = COMPILED[name](scale_here(quick=False))
    program = plan_program([experiment], federation.draws((0,)), [0], mesh="auto", chunk=chunk_of(experiment))
    (state, _), initial = clock(
        lambda: init_runs(program.experiments, program.federations, program.keys, program.layout)
    )
    arguments = (*program.without_public_examples().place(state), np.int32(0))
    traced, tracing = clock(lambda: run_chunk.trace(*arguments, **program.static))
    lowered, lowering = clock(lambda: traced.lower())
    compiled, xla = clock(lambda: lowered.compile())
    _, plain = clock(lambda: lowered.compile(compiler_options={"xla_backend_optimization_level": 0}))
    return {
        "environment": environment(),
        "layout": str(program.layout),
        "seconds_of_initial_state": initial,
        "seconds_of_tracing": tracing,
        "seconds_of_lowering": lowering,
        "seconds_of_xla": xla,
        "seconds_of_xla_without_optimisation": plain,
        "kernels": len(re.findall(r" (?:fusion|dot|reduce|concatenate)\(", compiled.as_text())),
    }


def show(found: dict[str, Any]) -> str:
    """Returns a table with one row per workload."""
    lines = []
    for name, one in found.items():
        steps = ("initial_state", "tracing", "lowering", "xla", "xla_without_optimisation")
        lines.append((name, *(figure(one[f"seconds_of_{step}"]) for step in steps), f"{one['kernels']:,}"))
    return table(COLUMNS, lines)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compilation", description="Where compilation goes.")
    parser.add_argument("--only", default=",".join(COMPILED))
    parser.add_argument("--print", action="store_true", dest="only_print")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := set(names) - set(COMPILED):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are: {', '.join(COMPILED)}")
    prepare()
    out = RESULTS / f"compilation-{jax.default_backend()}.json"
    kept = json.loads(out.read_text()) if out.exists() else {}
    for name in names if not given.only_print else ():
        kept[name] = compile_apart(name)
        out.write_text(json.dumps(kept, indent=1) + "\n")
    print(show(kept))


if __name__ == "__main__":
    main()
