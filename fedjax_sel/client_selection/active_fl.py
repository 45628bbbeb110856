"""AFL: samples clients in proportion to their last reported loss."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import draw_members, learn_values, round_down, top_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["ActiveFL"]

NEVER = -jnp.inf
"""The valuation written for a client that never took part."""


class ActiveFL(ClientSelector):
    """Drops the clients of lowest valuation, draws most slots in proportion to `exp(alpha2 v_i)`, the others uniformly.

    The valuation `v_i = sqrt(n_i) · mean loss` is that of the last round in which client i took part. Of the available
    clients, the `⌊fraction · count⌋` of lowest valuation are dropped, ties broken at random. `⌊(1 - alpha3) m⌋` slots
    are drawn from the rest without replacement, in proportion to `exp(alpha2 v_i)`. All other slots, including those
    that the rest is too small to fill, are drawn uniformly from the available clients not drawn yet, dropped or not.

    The source evaluates the loss on the received model. Ours is the mean over the client's local steps, one extra
    number sent with the update. A client that never took part gets the highest known valuation, and so ties
    with the best. A client that was selected but did not return gets the mean of the known valuations. Both rules are
    ours; the source leaves this open.

    Attributes:
      fraction: fraction of the available clients that is dropped; the source's `α1`.
      alpha2: how much a higher valuation counts; 0: not at all.
      alpha3: fraction of the slots that is drawn uniformly.

    Source: Goetz et al., "Active Federated Learning", 2019, https://arxiv.org/abs/1909.12641, Algorithm 1.

    >>> ActiveFL(fraction=0.5)
    ActiveFL(fraction=0.5, alpha2=0.01, alpha3=0.1)
    """

    ordered: ClassVar[bool] = True

    fraction: Scalar = param(default=0.75, low=0, high=1)
    alpha2: Scalar = param(default=0.01, low=0)
    alpha3: Scalar = param(default=0.1, low=0, high=1)

    def signals(self) -> Signals:
        """Returns the members' training losses."""
        return Signals(after=[signals.TrainingLoss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns the last valuation of each client, none known yet."""
        return jnp.full(ctx.num_clients, NEVER, jnp.float32)

    def valuations(self, state: Float[Array, "N"]) -> Float[Array, "N"]:
        """Returns `v_i`; unseen clients get the highest known valuation, or 0 if no client was seen yet."""
        seen = state > NEVER
        return jnp.where(seen, state, jnp.where(seen.any(), state.max(), 0.0))

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns the exploited clients first, then the explored ones."""
        key_tie, key_exploit, key_explore = jax.random.split(key, 3)
        valuation = self.valuations(state)
        dropped = round_down(jnp.asarray(self.fraction * ctx.available.sum()))
        rising = jnp.lexsort((jax.random.uniform(key_tie, state.shape), jnp.where(ctx.available, valuation, jnp.inf)))
        kept = ctx.available & (jnp.argsort(rising) >= dropped)
        wanted = round_down(jnp.asarray(ctx.m * (1 - self.alpha3)))
        exploited = draw_members(key_exploit, self.alpha2 * valuation, kept, wanted, ctx.m)
        return top_m(key_explore, exploited.astype(jnp.float32), ctx.available, ctx.m)

    def observe(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        training_loss: Float[Array, "m"],
    ) -> Float[Array, "N"]:
        """Returns the valuations, updated for the members."""
        return learn_values(state, cohort, jnp.sqrt(ctx.num_examples[cohort.client]) * training_loss)
