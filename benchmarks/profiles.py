"""Where a workload's time goes: a trace of its compiled rounds, and the operations that took most of it.

python -m benchmarks.profiles --only flute-lr            # prints a table
python -m benchmarks.profiles --only flute-lr --keep DIR # and keeps the trace, for Perfetto or TensorBoard
"""

from __future__ import annotations

import argparse
import collections
import tempfile
from pathlib import Path

import jax

import fedjax_sel as fs
from benchmarks import workloads
from benchmarks.workloads import Scale
from fedjax_sel.report.markdown import table
from fedjax_sel.running import use_cores

ONE_RUN = {
    "flute-lr": workloads.flute_lr,
    "gpfl-mlp": workloads.gpfl_mlp,
    "pfl-cifar": workloads.pfl_cifar,
    "lefl-resnet": workloads.lefl_resnet,
}


class Tracing:
    """Traces the last chunk but one of a run, when everything is compiled and warm."""

    def __init__(self, folder: str, chunk: int, rounds: int):
        self.folder, self.chunk, self.begin = folder, chunk, rounds - 2 * chunk

    def after_central_iteration(self, history: fs.History) -> None:
        """Begin before it, end after it."""
        if history.rounds == self.begin:
            jax.profiler.start_trace(self.folder)
        elif history.rounds == self.begin + self.chunk:
            jax.profiler.stop_trace()


def own_time(events: list[tuple[float, float, str]]) -> collections.Counter:
    """Nanoseconds by name, without those of the events inside.

    Args:
      events: begin, duration, name, of one thread.
    """
    spent: collections.Counter = collections.Counter()
    inside: list[tuple[float, str]] = []  # ends and names of the events around
    for begin, lasted, name in sorted(events, key=lambda e: (e[0], -e[1])):
        while inside and inside[-1][0] <= begin:
            inside.pop()
        if inside:
            spent[inside[-1][1]] -= lasted
        spent[name] += lasted
        inside.append((begin + lasted, name))
    return spent


def operations(folder: str) -> tuple[collections.Counter, collections.Counter]:
    """Nanoseconds and numbers of calls by operation, over all threads that ran any."""
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


def profile(name: str, keep: Path | None, top: int) -> None:
    """Run, trace, print."""
    experiment, data = ONE_RUN[name](Scale())
    chunk = workloads.chunk_of(experiment)
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(keep or scratch)
        fs.simulate(
            experiment,
            data,
            mesh="auto",
            chunk=chunk,
            callbacks=[Tracing(folder, chunk, experiment.rounds)],
        )
        spent, calls = operations(folder)
    whole = sum(spent.values())
    rows = [(op, str(calls[op]), f"{ns / 1e6 / chunk:.3f}", f"{ns / whole:.1%}") for op, ns in spent.most_common(top)]
    print(table(("operation", "calls", "own ms a round", "share"), rows))
    print(f"all: {whole / 1e6 / chunk:.3f} ms a round")


def main() -> None:
    """One command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(ONE_RUN))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--top", type=int, default=15)
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(ONE_RUN):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are: {', '.join(ONE_RUN)}")
    use_cores()
    for name in given.only.split(","):
        print("==", name)
        profile(name, given.keep, given.top)


if __name__ == "__main__":
    main()
