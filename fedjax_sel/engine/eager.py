"""Runs a chunk of rounds without compilation: the reference for tests, and debug mode for users."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from fedjax_sel.arrays import stack_trees
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.nonfinite import guard_round
from fedjax_sel.engine.program import Program
from fedjax_sel.engine.round import round_step
from fedjax_sel.engine.state import RoundRecord, RoundState


def run_chunk_in_python(program: Program, state: RoundState, t0: int, count: int) -> tuple[RoundState, RoundRecord]:
    """Runs rounds `t0 … t0 + count - 1` of every run, as `scan.run_chunk` does."""
    states, records, longest = [], [], max(one.longest for one in program.federations)
    with jax.disable_jit():
        for i, (experiment, data) in enumerate(zip(program.experiments, program.federations, strict=True)):
            own = jax.tree.map(lambda leaf, i=i: leaf[i], state)
            data = replace(jax.tree.map(jnp.asarray, data), longest=longest)  # what states have a place for
            run_key, rounds = program.keys[i], []
            step = guard_round(partial(round_step, experiment, data, run_key, program.layout))
            for t in range(t0, t0 + count):
                with stage("simulate", seed=program.seeds[i]):
                    own, record = step(own, jnp.int32(t))
                rounds.append(record)
            states.append(own)
            records.append(stack_trees(rounds))
        return stack_trees(states), stack_trees(records)
