"""adapow-d: power of choice with a decreasing number of candidates."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import round_down
from fedjax_sel.client_selection._power_of_choice import check_candidates, draw_candidates, top_candidates
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey, StrategyState

__all__ = ["AdaPowD"]


class AdaPowD(ClientSelector):
    """Like `power_of_choice`, with `d` decreasing to `m` over the run: from selection by loss to selection by size.

    Round `t` of `T` has `d - floor((d - m) t / (T - 1))` candidates. The source anneals the number without giving a
    formula; the linear schedule is ours.

    Attributes:
      d: number of candidates in the first round, `m <= d <= N`.

    Source: Cho et al., "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
    Strategies", 2020, https://arxiv.org/abs/2010.01243, section 5, "adaptive".

    >>> AdaPowD(d=30).signals().before
    {'loss': Loss()}
    """

    d: int = static(default=20, low=1)

    uses_rounds: ClassVar[bool] = True  # the number of candidates falls over the run

    def signals(self) -> Signals:
        """Returns the candidates' losses."""
        return Signals(before=[signals.Loss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns no state; raises `ValueError` unless `m <= d <= N`."""
        check_candidates("adapow_d", self.d, ctx)
        return ()

    def candidates(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Int[Array, "d"]:
        """Returns candidates drawn in proportion to their examples; `PAD_CLIENT` beyond this round's number."""
        last = jnp.maximum(ctx.rounds - 1, 1)
        whole, rest = jnp.divmod(jnp.int32(self.d - ctx.m), last)  # (d - m) t could exceed int32
        part = jnp.where(last < 2**15, rest * ctx.round // last, round_down(rest / last * ctx.round))
        asked = self.d - (whole * ctx.round + part)
        return jnp.where(jnp.arange(self.d) < asked, draw_candidates(key, ctx, self.d), PAD_CLIENT)

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, loss: Float[Array, "d"]) -> Cohort:
        """Returns the top `m` of the candidates."""
        return top_candidates(key, ctx, loss)
