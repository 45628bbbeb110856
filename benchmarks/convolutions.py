"""Measures one convolution's forward and backward pass in several forms, with a kernel for each client.

python -m benchmarks.convolutions        # prints a table for layers of the workloads' models

On a CPU, XLA's own convolution takes minutes for all layers.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import operator
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import _conv, _winograd
from fedjax_sel.report.markdown import table

REPEATS, STEPS = 3, 20


class Layer(NamedTuple):
    """A convolution of 3x3 with stride 1: clients, examples of each, side, channels in and out, padding."""

    clients: int
    batch: int
    side: int
    channels: int
    out: int
    padding: str = "SAME"

    def __str__(self) -> str:
        """Returns the layer's cell in the table."""
        bare = "" if self.padding == "SAME" else ", no padding"
        return f"{self.clients}, {self.batch}, {self.side}x{self.side}x{self.channels}, {self.out}{bare}"


LAYERS = (
    Layer(10, 64, 32, 16, 16),
    Layer(10, 64, 16, 32, 32),
    Layer(10, 64, 8, 64, 64),
    Layer(10, 64, 32, 3, 16),
    Layer(50, 10, 30, 32, 64, "VALID"),
    Layer(15, 50, 16, 32, 64),
)
"""Of ResNet-20, `conv_dropout` and GPFL's network."""


def list_ways(padding: str) -> dict[str, Callable[[Any, Any], Any]]:
    """Returns every form of a convolution of 3x3, a function of one client's examples and kernel."""
    see = functools.partial(_conv.shift, kernel=(3, 3), strides=(1, 1), padding=padding, dilation=(1, 1))

    def patches(x, kernel):
        return _conv.extract_patches(x, kernel, padding, (1, 1), (1, 1), None)

    def plain(x, kernel):
        return jnp.concatenate(see(x), -1) @ kernel.reshape(-1, kernel.shape[-1])

    def native(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=_conv.CHANNELS_LAST)

    @jax.custom_vjp
    def mixed(x, kernel):
        return native(x, kernel)

    def backwards(kept, given):
        x, kernel = kept
        (of_examples,) = jax.vjp(lambda x: native(x, kernel), x)[1](given)
        (of_kernel,) = jax.vjp(functools.partial(plain, x), kernel)[1](given)
        return of_examples, of_kernel

    mixed.defvjp(lambda x, kernel: (native(x, kernel), (x, kernel)), backwards)

    def tiles(tile):
        return lambda x, kernel: _winograd.convolve(x, kernel, padding, lax.Precision.HIGHEST, tile)

    def rows(x, kernel):
        slices = see(x)
        return sum(
            jnp.concatenate(slices[3 * i : 3 * i + 3], -1) @ kernel[i].reshape(-1, kernel.shape[-1]) for i in range(3)
        )

    def places(x, kernel):
        return functools.reduce(operator.add, map(jnp.matmul, see(x), kernel.reshape(9, *kernel.shape[2:])))

    return {
        "patches": patches,
        "their plain gradient": plain,
        "XLA's own": native,
        "XLA's own, kernel's gradient as patches": mixed,
        "squares (float32)": tiles(_winograd.SQUARE),
        "columns (float32)": tiles(_winograd.COLUMN),
        "3 products": rows,
        "9 products": places,
    }


def time_step(way: Callable[[Any, Any], Any], layer: Layer, steps: int = STEPS) -> float:
    """Returns the seconds of a step that moves examples and kernels along the gradient: the fastest of some loops."""

    def loss(kernel, x):
        return (jnp.maximum(way(x, kernel), 0) ** 2).mean()

    def step(carry, _):
        kernels, x = carry
        of_kernels, of_x = jax.vmap(jax.grad(loss, (0, 1)))(kernels, x)
        return (kernels - 1e-3 * of_kernels, x - 1e-3 * of_x), None

    first, second = jax.random.split(jax.random.key(0))
    kernels = 0.1 * jax.random.normal(first, (layer.clients, 3, 3, layer.channels, layer.out))
    x = jax.random.normal(second, (layer.clients, layer.batch, layer.side, layer.side, layer.channels))
    run = jax.jit(lambda kernels, x: lax.scan(step, (kernels, x), None, length=steps)[0]).lower(kernels, x).compile()
    spent = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        jax.block_until_ready(run(kernels, x))
        spent.append(time.perf_counter() - began)
    return min(spent[1:]) / steps


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolutions", description="Measures convolutions.")
    parser.add_argument("--quick", action="store_true", help="small layers, to see that they run")
    given = parser.parse_args()
    layers = [layer._replace(clients=2, batch=2) if given.quick else layer for layer in LAYERS]
    names = list(list_ways("SAME"))
    timed: dict[Layer, list[str]] = {layer: [] for layer in layers}
    for layer, name in itertools.product(layers, names):
        spent = time_step(list_ways(layer.padding)[name], layer, 2 if given.quick else STEPS)
        timed[layer].append(f"{1e3 * spent:.3g}")
        print(f"{layer}: {name} {timed[layer][-1]} ms", flush=True)
    print(jax.devices()[0].device_kind)
    print(table(("clients, batch, examples, channels out", *names), [(str(one), *row) for one, row in timed.items()]))


if __name__ == "__main__":
    main()
