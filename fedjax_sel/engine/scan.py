"""A compiled chunk of rounds of every run."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from fedjax_sel.compiled import jit
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.nonfinite import guard_round
from fedjax_sel.engine.round import round_step
from fedjax_sel.engine.state import RoundRecord, RoundState
from fedjax_sel.types import PRNGKey

FEWER_COPIES = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""XLA's analysis that finds out which copies of what loops carry are not needed, off on CPUs by default.

Results are the same bit for bit; rounds of `conv_dropout` take 0.88 of the time (`benchmarks/NOTES.md`).
"""


@jit(static_argnames=("layout", "length", "differs", "axes"), donate_argnames=("state",), cpu_options=FEWER_COPIES)
def run_chunk(
    experiment: Experiment,
    data: FederatedData,
    keys: PRNGKey,
    state: RoundState,
    t0: jax.Array,
    *,
    layout: Layout,
    length: int,
    differs: tuple[bool, ...],
    axes: FederatedData,
) -> tuple[RoundState, RoundRecord]:
    """Runs rounds `t0 … t0 + length - 1` of every run; rounds after the last one change nothing.

    Args:
      experiment: traced in its floats; leaves have a leading `R` where `differs`.
      data: leaves have a leading `R` where `axes` is 0.
      keys: Key["R"].
      state: with a leading `R`; its memory is reused.
      t0: first round.
      layout: how runs, clients and examples are laid out.
      length: rounds of the chunk, also of a run's last one, so that it is not compiled separately.
      differs: for each leaf of `experiment`, whether it has a leading `R`.
      axes: axes of `data`, for `Layout.over_seeds`.

    Returns:
      The state after the chunk, and what was measured, with leading `R`, `length`.
    """
    floats, tree = jax.tree.flatten(experiment)
    float_axes = [0 if own else None for own in differs]

    def run_one(floats, data, run_key, state):
        experiment = tree.unflatten(floats)
        guarded = guard_round(partial(round_step, experiment, data, run_key, layout))

        @jax.jit  # traced once for both uses below
        def go(state, t):
            return guarded(state, t)

        def step(state, t):
            _, like = jax.eval_shape(go, state, t)

            def stay(state, t):
                return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

            return jax.lax.cond(t < experiment.rounds, go, stay, state, t)

        return jax.lax.scan(step, state, t0 + jnp.arange(length))

    return layout.over_seeds(run_one, (floats, data, keys, state), (float_axes, axes, 0, 0))
