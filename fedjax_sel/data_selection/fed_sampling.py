"""FedSampling: every example of every client takes part with the same chance."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.protocols import Context, DataSelector, Host, Prepared, Upfront
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, StrategyState, Turn

__all__ = ["FedSampling"]


class FedSampling(DataSelector):
    """Each example with chance `min(1, K N / (N̂ m))`, so that all members together train on `K` in expectation.

    `N̂` estimates how many examples there are, from one answer of each client before round 0: its number of examples
    with chance `honest`, else a whole number drawn from `1..M - 1`; then `N̂ = max((R - N (1 - honest) M / 2) / honest,
    N)`, of the sum of the answers `R`. The authors' code asks anew in every round. A client none of whose examples
    takes part does not train. The authors add up `|D_i| / K` times each update; `mean` by size divides by `Σ |D_i|`
    instead, which is `K` in expectation.

    Attributes:
      examples: `K`, of a round.
      honest: chance of a true answer, `α`, in (0, 1]; 1: `N̂` is exact.
      most: `M`, above which no client has examples; None: the most examples of any client, and 1.

    Source: Qi et al., "FedSampling: A Better Sampling Strategy for Federated Learning", 2023,
    https://arxiv.org/abs/2306.14245, Algorithm 1; code: https://github.com/taoqi98/FedSampling.

    >>> FedSampling(examples=100.0, honest=0.5)
    FedSampling(examples=100.0, honest=0.5, most=None)
    """

    uses_turn = True

    examples: Scalar = param(default=512.0, above=0)
    honest: Scalar = param(default=1.0, above=0, high=1)
    most: int | None = static(default=None, low=2)

    def prepare(self, key: PRNGKey, ctx: Context, host: Host) -> Prepared:
        """Returns the chance of every example, for which each client sent a number."""
        size = jnp.asarray(ctx.num_examples)
        n = ctx.num_clients
        most = size.max() + 1 if self.most is None else self.most
        answer = answer_at_random(key, size, self.honest, most)
        total = jnp.maximum((answer.sum() - n * (1 - self.honest) * most / 2) / self.honest, n)
        chance = jnp.minimum(self.examples * n / (total * ctx.m), 1.0)
        return Prepared(server=chance.astype(jnp.float32), cost=Upfront(jnp.zeros(n), 0.0, 4.0))

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, turn: Turn) -> Bool[Array, "L"]:
        """Returns 1 for examples that take part."""
        return valid & (jax.random.uniform(key, valid.shape) < turn.server)


def answer_at_random(key: PRNGKey, size: Array, honest: Scalar, most: Int[Array, ""] | int) -> Float[Array, "N"]:
    """Returns each client's number of examples with chance `honest`, else a number drawn from `1..most - 1`."""
    key_honest, key_number = jax.random.split(key)
    true = jax.random.uniform(key_honest, size.shape) < honest
    return jnp.where(true, size, jax.random.randint(key_number, size.shape, 1, most)).astype(jnp.float32)
