"""What a step of the CIFAR-10 network costs with convolutions as patches, and with XLA's own, inside a loop.

    python benchmarks/convolution.py        # prints ratios, writes benchmarks/results/convolution.json

Rows are random numbers of CIFAR-10's shape, so nothing is downloaded; only times matter.
"""

import json
import time
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import Task
from fedjax_sel.models import cnn
from fedjax_sel.models._conv import Conv
from fedjax_sel.report.environment import environment
from fedjax_sel.types import Batch

STEPS, BATCH, REPEATS = 3, 50, 5
LOWERINGS = {"patches": Conv, "native": nn.Conv}


def seconds_a_step(lowering) -> list[float]:
    """Of forward and backward pass and plain SGD, in a scan; compiled beforehand."""
    cnn.Conv = lowering
    task = Task(cnn.CNN())
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 256, (STEPS, BATCH, 32, 32, 3), dtype=np.uint8))
    y = jnp.asarray(rng.integers(0, 10, (STEPS, BATCH)))
    variables = task.init(jax.random.key(0), x[0])

    @jax.jit
    def run(variables, x, y):
        def step(variables, rows):
            gradient = jax.grad(task.loss)(variables, Batch(*rows, jnp.ones(BATCH, bool)))
            return jax.tree.map(lambda w, g: w - 0.01 * g, variables, gradient), None

        return jax.lax.scan(step, variables, (x, y))[0]

    jax.block_until_ready(run(variables, x, y))
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(run(variables, x, y))
        spent.append((time.perf_counter() - began) / STEPS)
    return spent


def main() -> None:
    spent = {name: seconds_a_step(lowering) for name, lowering in LOWERINGS.items()}
    ratio = float(np.median(spent["native"]) / np.median(spent["patches"]))
    print(f"native / patches, median of {REPEATS}: {ratio:.1f}")
    out = Path(__file__).parent / "results" / "convolution.json"
    found = {"steps": STEPS, "batch": BATCH, "seconds_a_step": spent, "ratio": ratio}
    out.write_text(json.dumps({"environment": environment(), **found}, indent=1) + "\n")
    print("wrote", out)


if __name__ == "__main__":
    main()
