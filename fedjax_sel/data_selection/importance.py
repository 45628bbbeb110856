"""Importance sampling: examples drawn by a bound on their gradients and weighted so that the mean stays unbiased."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import count_kept, scale_to_mean
from fedjax_sel.protocols import DataSelector, ExampleSignal, FeatureSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Importance"]


class Importance(DataSelector):
    """`K = max(1, round(fraction · n))` draws with replacement, `j` with probability `q_j` proportional to a bound.

    The bound is `‖p - y‖₂`, the norm of the cross-entropy's gradient with respect to the logits, or the norm of the
    loss's gradient with respect to the output layer. An example drawn `k_j` times has weight `k_j U / (n q_j K)`, where
    `U` is the number of distinct examples
    drawn. The mean of their weighted gradients is, in expectation, the mean gradient over all `n` examples. With
    `uniform` above 0, `q` is mixed with the uniform distribution, which bounds the weight of each draw, `1 / (n q_j)`,
    by `1 / uniform`.

    The source draws the examples of every step anew, out of three times as many that are drawn uniformly, and does so
    only once this is estimated to reduce the variance enough; until then, it draws uniformly. Here, a client draws once
    a round, out of all its examples and from the first round on, and its epochs share that draw.

    An aggregator that weights by size counts all of the client's examples.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      bound: `"output"`, `‖p - y‖₂`, or `"last_layer"`, the gradient's norm.
      uniform: share of the uniform distribution in `q`, in [0, 1].

    Source: Katharopoulos and Fleuret, "Not All Samples Are Created Equal: Deep Learning with Importance Sampling",
    2018, https://arxiv.org/abs/1803.00942, section 3; in federated learning: Rizk, Vlaski and Sayed, "Optimal
    Importance Sampling for Federated Learning", 2021, https://arxiv.org/abs/2010.13600.

    >>> Importance(fraction=0.2).signals()
    {'bound': EL2N()}
    """

    weighted = True
    represents_all = True

    fraction: Scalar = param(default=0.1, above=0, high=1)
    bound: str = static(default="output", choices=["output", "last_layer"])
    uniform: Scalar = param(default=0.0, low=0, high=1)

    def signals(self) -> dict[str, ExampleSignal | FeatureSignal]:
        """Returns the bound of each example."""
        return {"bound": signals.EL2N() if self.bound == "output" else signals.GraNd()}

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, bound: Float[Array, "L"]
    ) -> Float[Array, "L"]:
        """Returns the weights of the examples that were drawn."""
        chance = mix_chances(bound, valid, self.uniform)
        count = count_kept(valid, self.fraction)
        drawn = draw_examples(key, chance)
        times = jax.ops.segment_sum((jnp.arange(len(valid)) < count).astype(jnp.float32), drawn, len(valid))
        return weigh_draws(times, chance, valid)


def mix_chances(bound: Float[Array, "L"], valid: Bool[Array, "L"], uniform: Scalar) -> Float[Array, "L"]:
    """Returns `q`, in which the uniform distribution has the share `uniform`.

    This share is 1 if no bound is above 0, or the sum of the bounds is not finite.
    """
    bound = jnp.where(valid, bound, 0.0)
    total, even = bound.sum(), valid / jnp.maximum(valid.sum(), 1)
    usable = (total > 0) & jnp.isfinite(total)
    own = jnp.where(usable, bound / jnp.where(usable, total, 1.0), even)
    return (1 - uniform) * own + uniform * even


def draw_examples(key: PRNGKey, chance: Float[Array, "L"]) -> Int[Array, "L"]:
    """Returns `L` draws with replacement; an example of probability 0 is never drawn."""
    # XLA's cumulative sums in float32 may fall; without this, rounding alone could draw an example.
    reach = jax.lax.cummax(jnp.where(chance > 0, jnp.cumsum(chance), 0.0))
    mark = jax.random.uniform(key, chance.shape) * reach[-1]
    last = len(chance) - 1 - jnp.argmax(chance[::-1] > 0)  # a mark may be rounded up to the end
    return jnp.minimum(jnp.searchsorted(reach, mark, side="right"), last).astype(jnp.int32)


def weigh_draws(times: Float[Array, "L"], chance: Float[Array, "L"], valid: Bool[Array, "L"]) -> Float[Array, "L"]:
    """Returns `k_j U / (n q_j K)` for examples drawn `k_j` times in `K` draws of `U` distinct examples."""
    count = jnp.maximum(times.sum(), 1)
    return scale_to_mean(jnp.where(times > 0, times / jnp.where(times > 0, count * chance, 1.0), 0.0), valid)
