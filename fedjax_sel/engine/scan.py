"""A chunk of rounds of every run, compiled; and the same without compilation."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.round import State, round_step
from fedjax_sel.pytree import jit
from fedjax_sel.types import PRNGKey


@jit(static_argnames=("layout", "length", "differs", "axes"), donate_argnames=("state",))
def run_chunk(
    experiment: Experiment,
    data: FederatedData,
    keys: PRNGKey,
    state: State,
    t0: jax.Array,
    *,
    layout: Layout,
    length: int,
    differs: tuple[bool, ...],
    axes: FederatedData,
) -> tuple[State, dict[str, jax.Array]]:
    """Rounds `t0 … t0 + length - 1` of every run; those after the last change nothing.

    Args:
      experiment: traced in its floats; leaves with a leading `R` where `differs`.
      data: leaves with a leading `R` where `axes` says 0.
      keys: Key["R"].
      state: with a leading `R`; its memory is used again.
      t0: first round.
      layout: how.
      length: of the chunk; the last one of a run is not compiled for itself.
      differs: for each leaf of `experiment`.
      axes: of `data`, for `Layout.over_seeds`.

    Returns:
      The state after, and what was measured, with leading `R`, `length`.
    """
    floats, tree = jax.tree.flatten(experiment)
    of_floats = [0 if own else None for own in differs]

    def one_run(floats, data, key, state):
        experiment = tree.unflatten(floats)

        @jax.jit  # traced once for both uses below
        def go(state, t):
            return round_step(experiment, data, key, state, t, layout)

        _, like = jax.eval_shape(go, state, t0)

        def stay(state, t):
            return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

        def step(state, t):
            return jax.lax.cond(t < experiment.rounds, go, stay, state, t)

        return jax.lax.scan(step, state, t0 + jnp.arange(length))

    return layout.over_seeds(one_run, (floats, data, keys, state), (of_floats, axes, 0, 0))


def chunk_in_python(experiments, drawn, seeds, keys, state, t0, count, layout):
    """As `run_chunk`, without compilation: the tests' oracle, and where a user looks for an error."""
    states, measured = [], []
    with jax.disable_jit():
        for i, (experiment, data) in enumerate(zip(experiments, drawn, strict=True)):
            own = jax.tree.map(lambda leaf, i=i: leaf[i], state)
            rounds = []
            for t in range(t0, t0 + count):
                with stage("simulate", seed=seeds[i]):
                    own, values = round_step(
                        experiment, jax.tree.map(jnp.asarray, data), keys[i], own, jnp.int32(t), layout
                    )
                rounds.append(values)
            states.append(own)
            measured.append(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds))
        together = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
        return together(*states), together(*measured)
