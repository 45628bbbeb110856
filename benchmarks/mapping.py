"""Which mapping a CPU wants: rounds with clients and seeds stacked, against one after another, in one run.

    python benchmarks/mapping.py            # prints ratios, writes benchmarks/results/mapping.json

Rows are random numbers of MNIST's shape, so nothing is downloaded; only times matter.
"""

import json
import time
from pathlib import Path

import numpy as np

import fedjax_sel as fs
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.report.environment import environment

CHUNK, CHUNKS = 15, 5
MAPPINGS = {"stacked": fs.Mapping(), "scanned": fs.Mapping(clients=1, seeds="scan")}


def rows(count: int) -> fs.Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)
    return fs.dataset("noise", x, rng.integers(0, 10, count), test=0.01, classes=10)


def workloads():
    """Name, floating-point operations of a step, experiment, federation."""
    data = rows(60_000)
    rounds = {"rounds": CHUNK * CHUNKS, "evaluate_every": CHUNK * CHUNKS}
    linear = fs.Task.on(LogisticRegression(10), data)
    deep = fs.Task.on(MLP(10, (64, 30), 0.5), data)
    yield (
        "logistic regression, N = 1000, m = 10, B = 10",
        30 * linear.flops(data.x),
        fs.Experiment(linear, trainer=SGD(0.03, batch_size=10), m=10, **rounds),
        fs.Federation(data, fs.partition.Iid(clients=1000)),
    )
    yield (
        "MLP 784-64-30-10, N = 100, m = 5, B = 64, E = 3",
        192 * deep.flops(data.x),
        fs.Experiment(deep, trainer=SGD(0.005, batch_size=64, epochs=3), m=5, **rounds),
        fs.Federation(data, fs.partition.Iid(clients=100), holdout=0.2),
    )


def seconds_a_round(experiment, federation, seeds: int, mapping) -> float:
    """Median over chunks, the first one (compilation) left out."""
    marks: list[float] = []
    fs.simulate(
        experiment,
        federation,
        seeds=seeds,
        mapping=mapping,
        chunk=CHUNK,
        callbacks=[lambda history: marks.append(time.perf_counter())],
    )
    return float(np.median(np.diff(marks))) / CHUNK


def main() -> None:
    found = []
    for name, flops, experiment, federation in workloads():
        for seeds in (1, 4):
            spent = {how: seconds_a_round(experiment, federation, seeds, mapping) for how, mapping in MAPPINGS.items()}
            ratio = spent["scanned"] / spent["stacked"]
            found.append(
                {"workload": name, "flops_a_step": flops, "seeds": seeds, "seconds_a_round": spent, "ratio": ratio}
            )
            print(f"{name}, {seeds} seeds: scanned / stacked = {ratio:.2f}", flush=True)
    out = Path(__file__).parent / "results" / "mapping.json"
    out.write_text(json.dumps({"environment": environment(), "results": found}, indent=1) + "\n")
    print("wrote", out)


if __name__ == "__main__":
    main()
