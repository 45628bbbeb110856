"""Whether runs would fit a device side by side, found out with the state of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import stack
from fedjax_sel.engine import memory as sizes
from fedjax_sel.engine.beginning import start
from fedjax_sel.engine.chunk import run_chunk
from fedjax_sel.engine.experiment import Experiment, side_by_side
from fedjax_sel.engine.mapping import Mapping
from fedjax_sel.engine.run import default_chunk, in_runs, laid_out


def check_fits(
    experiments: Sequence[Experiment],
    drawn: Sequence[FederatedData],
    mapping: Mapping | str | None,
    mesh: tuple[int, int] | None,
    chunk: int | None,
    memory: int | None,
    others: Sequence[Experiment] = (),
) -> None:
    """Raise `ValueError` where `engine.run.sweep` would for lack of memory; nothing is compiled for it.

    Args:
      experiments: alike but for floats.
      drawn: the federation of every seed.
      mapping, mesh, chunk, memory, others: as for `sweep`.
    """
    first = experiments[0]
    x: Any = drawn[0].x
    layout = laid_out(first, stack(drawn)[0], x, mapping, mesh)
    each, of_runs, runs = in_runs(experiments, drawn, range(len(drawn)), layout)
    data, axes = stack(of_runs)
    sizes.check_kept(first, data, x, len(runs), layout, memory)
    one, _ = start([first], [drawn[0]], jax.vmap(jax.random.key)(jnp.zeros(1, jnp.uint32)), layout)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(runs), *leaf.shape[1:]), leaf.dtype), one)
    shared, differs = side_by_side(each, others)
    keys = jax.eval_shape(jax.vmap(jax.random.key), jnp.zeros(len(runs), jnp.uint32))
    static = {"mapping": layout, "length": chunk or default_chunk(first.rounds), "differs": differs, "axes": axes}
    sizes.check_program(run_chunk, (shared, replace(data, public_x=None), keys, state, np.int32(0)), static, memory)
