"""Learning rates over rounds, as values: factors on the base rate, traced where optax's closures fix them."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.pytree import Pytree, Scalar, static


class Constant(Pytree):
    """1 in every round."""

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""]) -> Float[Array, ""]:
        """Factor in round `round` of `rounds`."""
        return jnp.ones(())


class Exponential(Pytree):
    """`rate ^ round`.

    Attributes:
      rate: factor from a round to the next.
    """

    rate: Scalar = 0.99

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""]) -> Float[Array, ""]:
        """Factor in round `round` of `rounds`."""
        return jnp.asarray(self.rate, jnp.float32) ** round


class Steps(Pytree):
    """`factor` once for each round of `at` that has been reached.

    Attributes:
      at: rounds.
      factor: what each of them multiplies the rate by.
    """

    at: tuple[int, ...] = static(default=())
    factor: Scalar = 0.5

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""]) -> Float[Array, ""]:
        """Factor in round `round` of `rounds`."""
        reached = sum((jnp.asarray(round >= t, jnp.float32) for t in self.at), jnp.zeros(()))
        return jnp.asarray(self.factor, jnp.float32) ** reached


class Cosine(Pytree):
    """From 1 down to `end` along half a cosine over the run.

    Attributes:
      end: factor that the round after the last would have.
    """

    end: Scalar = 0.0

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""]) -> Float[Array, ""]:
        """Factor in round `round` of `rounds`."""
        return self.end + (1 - self.end) * 0.5 * (1 + jnp.cos(jnp.pi * round / rounds))
