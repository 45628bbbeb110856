"""FedSampling: every example of every client takes part with the same probability."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.protocols import Context, DataSelector, Host, Prepared, Upfront
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import BYTES, PRNGKey, StrategyState, Turn

__all__ = ["FedSampling"]


class FedSampling(DataSelector):
    """Each example with probability `min(1, K N / (N̂ m))`, so that the members train on `K` in all, in expectation.

    `N̂` estimates the total number of examples. Before round 0, each client answers with its number of examples, with
    probability `honest`, or else with an integer drawn from `1..M - 1`; then
    `N̂ = max((R - N (1 - honest) M / 2) / honest, N)`, where `R` is the sum of the answers. The authors' code asks
    again in every round. A client without selected examples does not train. The authors sum the updates with weights
    `|D_i| / K`; `mean` by size divides by `Σ |D_i|` instead, which is `K` in expectation.

    Attributes:
      examples: `K`, the expected number of examples per round.
      honest: probability of a true answer, `α`, in (0, 1]; 1: `N̂` is exact.
      most: `M`, an upper bound on each client's number of examples; None: the largest number plus 1.

    Source: Qi et al., "FedSampling: A Better Sampling Strategy for Federated Learning", 2023,
    https://arxiv.org/abs/2306.14245, Algorithm 1; code: https://github.com/taoqi98/FedSampling.

    >>> FedSampling(examples=100.0, honest=0.5)
    FedSampling(examples=100.0, honest=0.5, most=None)
    """

    uses_turn = True

    examples: Scalar = param(default=512.0, above=0)
    honest: Scalar = param(default=1.0, above=0, high=1)
    most: int | None = static(default=None, low=2)

    def count_down(self, classes: int) -> float:
        """Returns 1: the probability."""
        return 1.0

    def prepare(self, key: PRNGKey, ctx: Context, host: Host) -> Prepared:
        """Returns the probability of each example, for which each client sends one number."""
        size = jnp.asarray(ctx.num_examples)
        n = ctx.num_clients
        most = size.max() + 1 if self.most is None else self.most
        answer = answer_at_random(key, size, self.honest, most)
        total = jnp.maximum((answer.sum() - n * (1 - self.honest) * most / 2) / self.honest, n)
        chance = jnp.minimum(self.examples * n / (total * ctx.m), 1.0)
        return Prepared(server=chance.astype(jnp.float32), cost=Upfront(jnp.zeros(n), 0.0, float(BYTES)))

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, turn: Turn) -> Bool[Array, "L"]:
        """Returns 1 for the examples that take part."""
        return valid & (jax.random.uniform(key, valid.shape) < turn.server)


def answer_at_random(key: PRNGKey, size: Array, honest: Scalar, most: Int[Array, ""] | int) -> Float[Array, "N"]:
    """Returns each client's number of examples with probability `honest`, else an integer drawn from `1..most - 1`."""
    key_honest, key_number = jax.random.split(key)
    true = jax.random.uniform(key_honest, size.shape) < honest
    return jnp.where(true, size, jax.random.randint(key_number, size.shape, 1, most)).astype(jnp.float32)
