"""cpow-d: power of choice in which candidates estimate their loss on one minibatch."""

from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._power_of_choice import check_candidates, draw_candidates, top_candidates
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["CPowD"]


class CPowD(ClientSelector):
    """Like `power_of_choice`, with each candidate's loss estimated on a fresh minibatch, which takes less computation.

    Attributes:
      d: number of candidates, `m <= d <= N`.
      batch_size: examples of the minibatch; a client with no more examples reports its whole loss.

    Source: Cho et al., "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
    Strategies", 2020, https://arxiv.org/abs/2010.01243, section 4, "computation-efficient variant".

    >>> CPowD(batch_size=32).signals().before
    {'minibatch_loss': MinibatchLoss(batch_size=32)}
    """

    d: int = static(default=10, low=1)
    batch_size: int = static(default=64, low=1)

    def signals(self) -> Signals:
        """Returns the candidates' losses on a minibatch."""
        return Signals(before=[signals.MinibatchLoss(self.batch_size)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns no state; raises `ValueError` unless `m <= d <= N`."""
        check_candidates("cpow_d", self.d, ctx)
        return ()

    def candidates(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Int[Array, "d"]:
        """Returns candidates drawn in proportion to their examples."""
        return draw_candidates(key, ctx, self.d)

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, minibatch_loss: Float[Array, "d"]) -> Cohort:
        """Returns the top `m` of the candidates."""
        return top_candidates(key, ctx, minibatch_loss)
