"""GreedyFed and relatives: the clients whose updates have lowered the server's validation loss most."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection._ops import gumbel_m, top_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.signals.shapley import MOST, Shapley
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["GreedyShapley"]


class GreedyShapleyState(NamedTuple):
    """What `GreedyShapley` carries from round to round.

    Attributes:
      value: mean or moving average of each client's Shapley values.
      count: number of those values.
      selected: which clients were selected, whether or not an update was merged.
    """

    value: Float[Array, "N"]
    count: Int[Array, "N"]
    selected: Bool[Array, "N"]


class GreedyShapley(ClientSelector):
    """The `m` clients of highest Shapley value so far, once all clients were selected; ties at random.

    After each round the server measures the Shapley values of the merged updates. `rule="greedy"` (GreedyFed) selects
    the clients of highest value, clients never selected first; `"ucb"` adds `β sqrt(ln t / N_i)`; `"softmax"`
    (S-FedAvg) draws clients without replacement in proportion to `exp(Φ_i)`, where `Φ_i` starts at `1 / N` and
    `Φ_i ← α Φ_i + β φ_i`. For the first two rules, `memory="ema"` makes the value a moving average, `α` times the
    old value plus `1 - α` times the new one, from the first one on. A member whose update was not merged adds nothing:
    its value of the round is 0 or, if that is less, the mean of those that were merged (if none was, of all known
    values), and its selection counts, so that clients that do not return do not fill every cohort.

    All updates of a cohort are kept, and the server evaluates its validation examples for every coalition: `2^m` of
    them, or `m²` in each pass of `"gtg"`. This costs the clients nothing. GreedyFed's code compares with an S-FedAvg in
    which `φ_i` is the mean of the client's values so far and updates weigh `n_i / P_i`; neither is done here.

    Attributes:
      alpha: α.
      beta: β, of `"ucb"` and `"softmax"`.
      rule: `"greedy"`, `"ucb"` or `"softmax"`.
      memory: `"mean"` or `"ema"`; not for `"softmax"`.
      method: of the Shapley values, `"exact"`, for at most 10 slots, or `"gtg"`.

    Source: Singhal, Pandey and Popovski, "Greedy Shapley Client Selection for Communication-Efficient Federated
    Learning", 2023, https://arxiv.org/abs/2312.09108; code: https://github.com/pringlesinghal/GreedyFed. S-FedAvg:
    Nagalapatti and Narayanam, "Game of Gradients: Mitigating Irrelevant Clients in Federated Learning", 2021,
    https://arxiv.org/abs/2110.12257.

    >>> list(GreedyShapley(method="exact").signals().after)
    ['shapley']
    """

    alpha: Scalar = param(default=0.75, low=0, high=1)
    beta: Scalar = param(default=0.25, low=0)
    rule: str = static(default="greedy", choices=["greedy", "ucb", "softmax"])
    memory: str = static(default="mean", choices=["mean", "ema"])
    method: str = static(default="gtg", choices=["exact", "gtg"])

    def signals(self) -> Signals:
        """Returns the Shapley values of the merged updates."""
        return Signals(after=[Shapley(self.method)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> GreedyShapleyState:
        """Returns the state before any selection; raises `ValueError` for exact values of more than 10 slots."""
        if self.method == "exact" and ctx.m > MOST:
            raise ValueError(
                f"greedy_shapley: method is 'exact', but the cohort has m = {ctx.m} slots, which make 2^{ctx.m} "
                f"coalitions; set method to 'gtg', or m to at most {MOST}"
            )
        first = 1 / ctx.num_clients if self.rule == "softmax" else 0.0
        n = ctx.num_clients
        return GreedyShapleyState(jnp.full(n, first), jnp.zeros(n, jnp.int32), jnp.zeros(n, bool))

    def select(self, key: PRNGKey, state: GreedyShapleyState, ctx: Context) -> Cohort:
        """Returns the clients of highest value, or clients drawn by it."""
        if self.rule == "softmax":
            return gumbel_m(key, state.value, ctx.available, ctx.m)
        score = state.value
        if self.rule == "ucb":
            score = score + self.beta * jnp.sqrt(jnp.log(jnp.maximum(ctx.round, 1)) / jnp.maximum(state.count, 1))
        return top_m(key, jnp.where(state.selected, score, jnp.inf), ctx.available, ctx.m)

    def observe(
        self, key: PRNGKey, state: GreedyShapleyState, ctx: Context, cohort: Cohort, *, shapley: Float[Array, "m"]
    ) -> GreedyShapleyState:
        """Returns the values, updated with those of this round; at most 0 for members whose update was not merged."""
        known = jnp.where(state.selected, state.value, 0.0).sum() / jnp.maximum(state.selected.sum(), 1)
        mean = jnp.where(cohort.mask, shapley, 0.0).sum() / jnp.maximum(cohort.mask.sum(), 1)
        mean = jnp.where(cohort.mask.any(), mean, known)
        shapley = jnp.where(cohort.mask, shapley, jnp.minimum(mean, 0.0))
        value, count = state.value[cohort.client], state.count[cohort.client]
        if self.rule == "softmax":
            new = self.alpha * value + self.beta * shapley
        elif self.memory == "ema":
            new = jnp.where(count > 0, self.alpha * value + (1 - self.alpha) * shapley, shapley)
        else:
            new = (count * value + shapley) / (count + 1)
        return GreedyShapleyState(
            value=state.value.at[cohort.selected].set(new, mode="drop"),
            count=state.count.at[cohort.selected].add(1, mode="drop"),
            selected=state.selected.at[cohort.selected].set(True, mode="drop"),
        )
