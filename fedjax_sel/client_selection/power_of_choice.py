"""Power of choice: of a few candidates, those with the highest loss."""

from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._power_of_choice import check_candidates, draw_candidates, top_candidates
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["PowerOfChoice"]


class PowerOfChoice(ClientSelector):
    """The `m` of highest loss `F_i(w)` among `d` candidates, drawn without replacement in proportion to their examples.

    `d = m` is selection by size, `d = N` greedy selection by loss.

    Attributes:
      d: number of candidates, `m <= d <= N`.

    Source: Cho et al., "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
    Strategies", 2020, https://arxiv.org/abs/2010.01243, section 4.

    >>> PowerOfChoice(d=20).signals().before
    {'loss': Loss()}
    """

    d: int = static(default=10, low=1)

    def signals(self) -> Signals:
        """Returns the candidates' losses."""
        return Signals(before=[signals.Loss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns no state; raises `ValueError` unless `m <= d <= N`."""
        check_candidates("power_of_choice", self.d, ctx)
        return ()

    def candidates(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Int[Array, "d"]:
        """Returns candidates drawn in proportion to their examples."""
        return draw_candidates(key, ctx, self.d)

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, loss: Float[Array, "d"]) -> Cohort:
        """Returns the top `m` of the candidates."""
        return top_candidates(key, ctx, loss)
