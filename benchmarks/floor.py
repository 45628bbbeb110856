"""Measures a local step's matrix products alone: a floor under the time that the step can take on a machine.

python -m benchmarks.floor        # prints a table for the workloads' models and some of the papers'

Both are measured as clients train, on every core at once. A step can take less than its products: Winograd's tiles need
fewer.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

import fedjax_sel as fs
from benchmarks.measure import prepare
from fedjax_sel.models import _conv, _dense, cnn
from fedjax_sel.models.cnn import CNN
from fedjax_sel.models.conv_dropout import ConvDropout
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.resnet import ResNet
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.report.markdown import table
from fedjax_sel.types import Batch

REPEATS, STEPS = 7, 10
LENET = CNN(10, (6, 16), (120, 84), kernel=5, pooled=2)
MODELS = {
    "gpfl-mlp, 64 rows": (MLP(10, (64, 30), 0.5), (64, 28, 28, 1)),
    "pfl-cifar, 10 rows": (ConvDropout(10), (10, 32, 32, 3)),
    "cnn, 50 rows of CIFAR-10": (CNN(10), (50, 32, 32, 3)),
    "lenet, 64 rows of Fashion-MNIST": (LENET, (64, 28, 28, 1)),
    "lenet, 64 rows of CIFAR-10": (LENET, (64, 32, 32, 3)),
    "lefl-resnet, 64 rows": (ResNet(10), (64, 32, 32, 3)),
    "WRN-16-1, 32 rows": (WideResNet(10), (32, 32, 32, 3)),
    "WRN-16-1, 128 rows": (WideResNet(10), (128, 32, 32, 3)),
}


def products(jaxpr: Any) -> list[Any]:
    """Returns the matrix products in a program without loops, and in the programs that it calls."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            found.append(eqn)
        found += itertools.chain.from_iterable(map(products, core.jaxprs_in_params(eqn.params)))
    return found


def products_of_step(gradient: Any, trained: Any) -> list[Any]:
    """Returns the matrix products that a gradient needs if each convolution is the product of patches and kernel."""
    from jax.interpreters import partial_eval

    with one_product_per_batch():
        closed = jax.make_jaxpr(gradient)(trained, jax.random.key(0))
    needed, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    return products(needed)


def gradient(model: Any, shape: tuple[int, ...]):
    """Returns the gradient function of the mean loss, and the parameters that it takes."""
    rng = np.random.default_rng(0)
    task = fs.Task(model)
    x = jnp.asarray(rng.normal(size=shape), jnp.float32)
    batch = Batch(x, jnp.arange(shape[0]) % 10, jnp.ones(shape[0], bool))
    variables = task.init(jax.random.key(0), x)
    trained, statistics = task.split(variables)

    def mean_loss(trained, key):
        losses, _ = task.training_losses(task.join(trained, statistics), batch, key)
        return losses.mean()

    return jax.grad(mean_loss), trained


def a_step(gradient: Any, trained: Any) -> float:
    """Returns the seconds of one step of SGD, one of several in a loop."""

    def step(i, carry):
        key, trained = carry
        change = gradient(trained, jax.random.fold_in(key, i))
        return key, jax.tree.map(lambda w, d: w - 1e-4 * d, trained, change)

    return fastest(everywhere(lambda c: lax.fori_loop(0, STEPS, step, c)), (jax.random.key(0), trained), STEPS)


def alone(eqn: Any) -> float:
    """Returns the seconds of one product, one of several in a loop that changes the smaller factor each time."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=v.aval.shape), jnp.float32) for v in eqn.invars)
    how = {name: eqn.params[name] for name in ("dimension_numbers", "precision")}

    def once(_, carry):
        total, a, b = carry
        factors = (a + total, b) if a.size < b.size else (a, b + total)
        return 1e-9 * lax.dot_general(*factors, **how).sum(), a, b

    return fastest(everywhere(lambda c: lax.fori_loop(0, STEPS, once, c)), (jnp.float32(0), a, b), STEPS)


def everywhere(f: Any) -> Any:
    """Returns `f` compiled so that all devices run it at once, as clients train."""
    mesh = jax.make_mesh((jax.local_device_count(),), ("devices",), (jax.sharding.AxisType.Auto,))
    same = jax.sharding.PartitionSpec()
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=same, out_specs=same, check_vma=False))


def fastest(compiled: Any, carry: Any, steps: int) -> float:
    """Returns the seconds of one step of a compiled program: the best of some repeats."""
    jax.block_until_ready(compiled(carry))
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(carry))
        spent.append(time.perf_counter() - began)
    return min(spent) / steps


def main() -> None:
    """Measures and prints."""
    argparse.ArgumentParser(
        prog="python -m benchmarks.floor", description="Measures steps' products alone."
    ).parse_args()
    prepare()
    lines = []
    for name, (model, shape) in MODELS.items():
        of, trained = gradient(model, shape)
        step = a_step(of, trained)
        dots = products_of_step(of, trained)
        work = sum(2 * eqn.outvars[0].aval.size * contracted(eqn) for eqn in dots)
        floor = sum(alone(eqn) for eqn in dots)
        lines.append((name, f"{work / 1e9:.3f}", f"{1e3 * floor:.2f}", f"{1e3 * step:.2f}", f"{step / floor:.2f}"))
    print(table(("step", "GFLOP", "its products alone (ms)", "step (ms)", "ratio"), lines))


@contextlib.contextmanager
def one_product_per_batch():
    """Makes each convolution the product of all its patches and its kernel, and each kernel's gradient a product."""
    replaced = dict.fromkeys(((_conv, "is_faster_natively"), (_conv, "choose_tile")), lambda *_: None)
    replaced |= {(cnn, "are_thin"): lambda *_: False, (_dense, "is_faster_in_sums"): lambda *_: False}
    replaced |= {(_conv, "block"): lambda examples, *_, **__: examples}
    with contextlib.ExitStack() as stack:
        for (module, name), function in replaced.items():
            stack.enter_context(mock.patch.object(module, name, function))
        yield


def contracted(eqn: Any) -> int:
    """Returns the number of terms that each element of a product sums."""
    (lhs, _), _ = eqn.params["dimension_numbers"]
    return int(np.prod([eqn.invars[0].aval.shape[i] for i in lhs]))


if __name__ == "__main__":
    main()
