"""Profiles a workload: a trace of its compiled rounds, the operations that took most of its time, and its work.

python -m benchmarks.profiles                            # all; writes benchmarks/results/profiles-BACKEND.json
python -m benchmarks.profiles --only flute-lr --keep DIR # keeps the trace, for Perfetto or TensorBoard
python -m benchmarks.profiles --print                    # the written results, as tables
"""

from __future__ import annotations

import argparse
import collections
import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_sel as fs
from benchmarks import workloads
from benchmarks.floor import fastest
from benchmarks.measure import peak_flops, prepare
from benchmarks.tables import RESULTS
from benchmarks.workloads import scale_here
from fedjax_sel.report.environment import environment
from fedjax_sel.report.markdown import table

TRACED = {
    "flute-lr": lambda scale: (*workloads.flute_lr(scale), 1),
    "gpfl-mlp": lambda scale: (*workloads.gpfl_mlp(scale), 1),
    "pfl-cifar": lambda scale: (*workloads.pfl_cifar(scale), 1),
    "lefl-resnet": lambda scale: (*workloads.lefl_resnet(scale), 1),
    "population": lambda scale: (*workloads.populated("oort", 100_000, 40), 1),
    "sweep": lambda scale: (*workloads.uacs(scale, 16)[1:], 16),
}
"""The experiment, rows and seeds of each; the population is Oort among 100,000, the sweep 16 seeds of UACS-FL."""


class Tracing:
    """Traces the second-to-last chunk of a run, when everything is compiled and warm."""

    def __init__(self, folder: str, chunk: int, rounds: int):
        self.folder, self.chunk, self.begin = folder, chunk, rounds - 2 * chunk

    def after_central_iteration(self, history: fs.History) -> None:
        """Starts the trace before that chunk and stops it afterwards."""
        if history.rounds == self.begin:
            jax.profiler.start_trace(self.folder)
        elif history.rounds == self.begin + self.chunk:
            jax.profiler.stop_trace()


def own_time(events: list[tuple[float, float, str]]) -> collections.Counter:
    """Returns nanoseconds by name, without those of nested events.

    Args:
      events: begin, duration and name of the events of one thread.
    """
    spent: Any = collections.Counter()  # of floats
    inside: list[tuple[float, str]] = []  # ends and names of the enclosing events
    for begin, lasted, name in sorted(events, key=lambda e: (e[0], -e[1])):
        while inside and inside[-1][0] <= begin:
            inside.pop()
        if inside:
            spent[inside[-1][1]] -= lasted
        spent[name] += lasted
        inside.append((begin + lasted, name))
    return spent


def operations(folder: str) -> tuple[collections.Counter, collections.Counter]:
    """Returns nanoseconds and numbers of calls by operation, over all threads that ran any."""
    spent: collections.Counter = collections.Counter()
    calls: collections.Counter = collections.Counter()
    for path in Path(folder).rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                mine = []
                for event in line.events:
                    stats = dict(event.stats)
                    if "hlo_op" in stats:
                        mine.append((event.start_ns, event.duration_ns, event.name))
                        calls[event.name] += 1
                spent.update(own_time(mine))
    return spent, calls


def moved(experiment: fs.Experiment, data: Any) -> float:
    """Returns the bytes of examples and models that a round moves, if all clients are equally likely to train.

    They are each client's rows as stored and its parameters, read once per step, its parameters written once per step,
    and a score of every client.
    """
    drawn, trainer = data.draw(0), experiment.local_training
    size, longest = jnp.asarray(drawn.num_examples), int(np.max(drawn.num_examples))
    plan = trainer.plan(size, longest, jnp.int32(0), jnp.int32(experiment.rounds))
    row = drawn.x[:1].nbytes
    parameters = experiment.task.parameters(drawn.x)
    return (
        experiment.count_cohort(drawn.num_clients)
        * float(jnp.mean(plan.examples_seen * row + plan.steps * 8.0 * parameters))
        + 4 * drawn.num_clients
    )


def bandwidth() -> float:
    """Returns bytes per second, read and written, for an array too large for any cache."""
    x = jnp.zeros(2**26)
    return 2 * x.nbytes / fastest(jax.jit(lambda x: x + 1.0), x, 1)


def profile(name: str, keep: Path | None) -> dict[str, Any]:
    """Runs and traces a workload, and returns the results."""
    experiment, data, seeds = TRACED[name](scale_here(quick=False))
    chunk = workloads.chunk_of(experiment)
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(keep or scratch)
        tracing = Tracing(folder, chunk, experiment.rounds)
        history = fs.simulate(experiment, data, seeds=seeds, mesh="auto", chunk=chunk, callbacks=[tracing])
        spent, calls = operations(folder)
    flops, bytes_ = float(history["flops"].sum() / history.rounds), seeds * moved(experiment, data)
    return {
        "environment": environment(),
        "layout": history.about["layout"],
        "devices": jax.local_device_count(),
        "seeds": seeds,
        "milliseconds_a_round": sum(spent.values()) / 1e6 / chunk,
        "floor": {
            "flops": flops,
            "milliseconds_of_flops": 1e3 * flops / peak_flops(),
            "bytes": bytes_,
            "milliseconds_of_bytes": 1e3 * bytes_ / bandwidth(),
        },
        "operations": [
            {"name": op, "calls_a_round": calls[op] / chunk, "milliseconds_a_round": ns / 1e6 / chunk}
            for op, ns in spent.most_common(MOST)
        ],
    }


MOST = 12
"""The number of operations that are kept."""


def shown(name: str, found: dict[str, Any]) -> str:
    """Returns a profile as a table, with the work of its rounds beside it."""
    whole, floor = found["milliseconds_a_round"], found["floor"]
    rows = [
        (
            f"`{op['name']}`",
            f"{op['calls_a_round']:.0f}",
            f"{op['milliseconds_a_round']:.3g}",
            f"{op['milliseconds_a_round'] / whole:.0%}",
        )
        for op in found["operations"]
    ]
    said = (
        f"{name}: {found['seeds']} seeds, {found['layout']}. Traced {whole:.3g} ms a round, the devices' times added "
        f"up. Billed work: {floor['flops'] / 1e6:.3g} MFLOP ({floor['milliseconds_of_flops']:.3g} ms at the peak), "
        f"{floor['bytes'] / 2**20:.3g} MiB ({floor['milliseconds_of_bytes']:.3g} ms from memory)."
    )
    return said + "\n\n" + table(("operation", "calls a round", "own ms a round", "share"), rows)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profiles", description="Traces compiled rounds of workloads."
    )
    parser.add_argument("--only", default=",".join(TRACED))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--print", action="store_true", dest="only_print")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := set(names) - set(TRACED):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are: {', '.join(TRACED)}")
    if given.keep and len(names) > 1:
        parser.error(f"--keep is a folder for one trace; given are {len(names)} workloads")
    if given.keep and any(given.keep.rglob("*.xplane.pb")):
        parser.error(f"--keep: {given.keep} already holds a trace; give another folder")
    prepare()
    out = RESULTS / f"profiles-{jax.default_backend()}.json"
    kept = json.loads(out.read_text()) if out.exists() else {}
    if missing := set(names) - set(kept) if given.only_print else ():
        parser.error(f"{out} has no profile of {', '.join(sorted(missing))}; run it without --print")
    for name in names:
        if not given.only_print:
            kept[name] = profile(name, given.keep)
            out.write_text(json.dumps(kept, indent=1) + "\n")
        print(shown(name, kept[name]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
