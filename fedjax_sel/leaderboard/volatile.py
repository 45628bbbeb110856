"""E3CS's numerical experiment: how many selected clients return if clients can fail, without any training."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection.e3cs import E3CS
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.engine.keys import make_key
from fedjax_sel.metrics import jain
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import Context, PRNGKey, StrategyState

CHANCES = (0.1, 0.3, 0.6, 0.9)
"""The probabilities of success, each of a quarter of the clients."""

CLIENTS, COHORT, ROUNDS, SEEDS = 100, 20, 2500, 10


def count_successes(
    selector: ClientSelector,
    state: StrategyState,
    key: PRNGKey,
    chance: Float[Array, "N"],
    available: Bool[Array, "N"],
    cohort_size: int = COHORT,
    rounds: int = ROUNDS,
) -> tuple[Int[Array, ""], Int[Array, "N"]]:
    """Returns how many turns succeeded, and how often each client was selected.

    Args:
      selector: a selector without signals.
      state: its initial state.
      key: the random key of a run.
      chance: each client's probability of returning in a round, independently.
      available: the clients that the selector may take.
      cohort_size: `m`.
      rounds: `T`.

    Source: Huang et al., "Stochastic Client Selection for Federated Learning with Volatile Clients", 2022,
    https://arxiv.org/abs/2011.08756, section VI-B.
    """
    clients = chance.shape[0]

    def context(t) -> Context:
        count = jnp.ones(clients, jnp.int32)
        return Context(t, jnp.asarray(rounds), count, available, cohort_size=cohort_size)

    def step(state, t):
        select_key, success_key, observe_key = jax.random.split(jax.random.fold_in(key, t), 3)
        cohort = selector.select(select_key, state, context(t))
        returns = jax.random.uniform(success_key, (clients,)) < chance
        merged = cohort.mask & returns[cohort.client]
        turns = jnp.zeros(clients, jnp.int32).at[cohort.client].add(cohort.mask.astype(jnp.int32))
        state = selector.observe(observe_key, state, context(t), cohort.replace(mask=merged))
        return state, (merged.sum(), turns)

    _, (successes, turns) = jax.lax.scan(step, state, jnp.arange(rounds))
    return successes.sum(), turns.sum(axis=0)


def study_volatile() -> dict[str, Any]:
    """Returns the successes of every selector and seed, and Jain's index of the clients' turns."""
    chance = jnp.repeat(jnp.asarray(CHANCES), CLIENTS // len(CHANCES))
    everyone, best = jnp.ones(CLIENTS, bool), chance == max(CHANCES)
    methods: dict[str, tuple[ClientSelector, Bool[Array, "N"]]] = {
        "uniform": (Uniform(), everyone),
        "oracle": (Uniform(), best),
        **{
            f"e3cs, fairness {share:g}": (E3CS(fairness=share, draw="systematic"), everyone)
            for share in (0.0, 0.5, 0.8)
        },
        "e3cs, inc": (E3CS(schedule="inc", draw="systematic"), everyone),
    }
    keys = jax.vmap(make_key)(jnp.arange(SEEDS))
    found = {}
    for name, (selector, available) in methods.items():
        state = jnp.zeros(CLIENTS) if isinstance(selector, E3CS) else ()  # equal weights
        count = partial(count_successes, selector, state, chance=chance, available=available)
        run = jax.jit(jax.vmap(lambda key, count=count: count(key=key)))
        successes, turns = map(np.asarray, run(keys))
        found[name] = {"successes": successes.tolist(), "jain": jain(turns).tolist()}
    return {"rounds": ROUNDS, "turns": ROUNDS * COHORT, "methods": found}
