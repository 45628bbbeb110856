"""Measures how long a selector's choice takes on the server, without any client's signals or training."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.init import init_run
from fedjax_sel.engine.keys import Purpose, key_for, make_key
from fedjax_sel.engine.layout import ONE_BY_ONE
from fedjax_sel.engine.probe import probe
from fedjax_sel.engine.round import aggregate, choose_candidates, make_context, measure_round, select_cohort
from fedjax_sel.engine.signals import measure_before
from fedjax_sel.engine.state import RoundState, Values
from fedjax_sel.engine.training import train_cohort
from fedjax_sel.pytree import is_key
from fedjax_sel.types import PRNGKey

ROUNDS, REPEATS = 100, 5


def time_choice(
    experiment: Experiment, data: FederatedData, rounds: int = ROUNDS, repeats: int = REPEATS
) -> np.ndarray:
    """Returns the seconds per round that a selector takes on the server: candidates, cohort, updates, and new state.

    Its signals are drawn beforehand, with the right shapes; no client computes anything. One more call compiles and is
    not counted.

    Args:
      experiment: the experiment with the selector.
      data: the federation, for its sizes.
      rounds: rounds per call, from the first.
      repeats: number of timed calls.

    Returns:
      Float["repeats"].
    """
    run_key = make_key(0)
    state = init_run(experiment, data, run_key, ONE_BY_ONE)
    data = jax.tree.map(jnp.asarray, data)
    before, signals = draw_signals(experiment, data, run_key, state)
    choose = jax.jit(partial(choose_repeatedly, experiment, data, run_key, state, rounds))
    choose(before, signals).block_until_ready()
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        choose(before, signals).block_until_ready()
        spent.append(time.perf_counter() - began)
    return np.array(spent) / rounds


def choose_repeatedly(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    state: RoundState,
    rounds: int,
    before: Values,
    signals: Values,
) -> jax.Array:
    """Returns a sum over all selections and states, so that the compiler cannot remove any part of the choice."""
    selector = experiment.client_selection

    def step(carry: tuple[RoundState, jax.Array], t: jax.Array) -> tuple[Any, None]:
        # The barrier makes the signals depend on the previous round, so that work on them is not hoisted from the loop.
        (state, total), early, late = jax.lax.optimization_barrier((carry, before, signals))
        key = partial(key_for, run_key, round=t)
        ctx = make_context(experiment, data, run_key, t)
        ctx = ctx.replace(candidates=choose_candidates(experiment, key(Purpose.CANDIDATES), state, ctx))
        cohort = select_cohort(experiment, key(Purpose.SELECT), state, ctx, early)
        if selector.accepts:
            trained = {name: late[name] for name in selector.signals().at("trained")}
            cohort = selector.accept(key(Purpose.ACCEPT), state.client_selection, ctx, cohort, **trained)
        selector_state = selector.observe(key(Purpose.OBSERVE), state.client_selection, ctx, cohort, **late)
        chosen = jnp.where(cohort.mask, cohort.client, 0).sum()
        return (state.replace(client_selection=selector_state), total + chosen), None

    (last, total), _ = jax.lax.scan(step, (state, jnp.int32(0)), jnp.arange(rounds))
    kept = jax.tree.map(lambda leaf: jnp.sum(leaf, dtype=jnp.float32), numbers_of(last.client_selection))
    return jax.tree.reduce(jnp.add, kept, total.astype(jnp.float32))


def numbers_of(tree: Any) -> list[jax.Array]:
    """Returns the leaves that are numbers, not random keys."""
    return [leaf for leaf in jax.tree.leaves(tree) if not is_key(leaf)]


def draw_signals(
    experiment: Experiment, data: FederatedData, run_key: PRNGKey, state: RoundState
) -> tuple[Values, Values]:
    """Returns random stand-ins for a round's signals, those before the choice and all, with their shapes and types."""

    def measure(state: RoundState) -> tuple[Values, Values]:
        t = jnp.int32(0)
        ctx = make_context(experiment, data, run_key, t)
        ctx = ctx.replace(candidates=choose_candidates(experiment, run_key, state, ctx))
        before, asked = measure_before(experiment, data, run_key, state, ctx, ONE_BY_ONE)
        cohort = select_cohort(experiment, run_key, state, ctx, before)
        trained = train_cohort(experiment, data, run_key, state, ctx, cohort, asked, ONE_BY_ONE)
        probed, _ = probe(aggregate, experiment, data, run_key, state, ctx, asked, ONE_BY_ONE)
        variables, *_ = aggregate(experiment, state, trained)
        known = before | probed
        return before, measure_round(experiment, data, run_key, state, ctx, trained, variables, known, ONE_BY_ONE)

    rng = np.random.default_rng(0)

    def draw(like: jax.ShapeDtypeStruct) -> jax.Array:
        if like.dtype == jnp.bool_:
            return jnp.ones(like.shape, bool)
        if jnp.issubdtype(like.dtype, jnp.integer):
            return jnp.asarray(rng.integers(1, 10, like.shape), like.dtype)
        return jnp.asarray(rng.uniform(0.1, 1.0, like.shape), like.dtype)

    before, signals = jax.tree.map(draw, jax.eval_shape(measure, state))
    return before, {**signals, **before}
