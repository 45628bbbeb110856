"""rpow-d: power of choice by the losses that clients reported when they last trained."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import learn_values
from fedjax_sel.client_selection._power_of_choice import check_candidates, draw_candidates, top_candidates
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["RPowD"]


class RPowD(ClientSelector):
    """Like `power_of_choice`, by the training loss that a candidate last reported: no client is asked before training.

    A client that was never selected counts as having infinite loss; one that returned nothing when it was last
    selected, as having the mean of the known losses.

    Attributes:
      d: number of candidates, `m <= d <= N`.

    Source: Cho et al., "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
    Strategies", 2020, https://arxiv.org/abs/2010.01243, section 4, "communication- and computation-efficient variant".

    >>> RPowD(d=20).signals().after
    {'training_loss': TrainingLoss()}
    """

    d: int = static(default=10, low=1)

    def signals(self) -> Signals:
        """Returns the members' training losses."""
        return Signals(after=[signals.TrainingLoss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns the last loss of each client, none known yet; raises `ValueError` unless `m <= d <= N`."""
        check_candidates("rpow_d", self.d, ctx)
        return jnp.full(ctx.num_clients, jnp.inf, jnp.float32)

    def candidates(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Int[Array, "d"]:
        """Returns candidates drawn in proportion to their examples."""
        return draw_candidates(key, ctx, self.d)

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns the top `m` of the candidates."""
        assert ctx.candidates is not None
        return top_candidates(key, ctx, state[ctx.candidates])

    def observe(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        training_loss: Float[Array, "m"],
    ) -> Float[Array, "N"]:
        """Returns the losses, updated for the members."""
        return learn_values(state, cohort, training_loss)
