"""cpow-d: power of choice in which candidates estimate their loss on one minibatch."""

from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import check_number
from fedjax_sel.client_selection._power_of_choice import by_num_examples, check_candidates, largest
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["CPowD"]


class CPowD(ClientSelector):
    """As `power_of_choice`, with the loss of each candidate estimated on a fresh minibatch: cheaper in computation.

    Attributes:
      d: number of candidates, `m <= d <= N`.
      batch_size: rows of the minibatch.

    Source: Cho et al., "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
    Strategies", 2020, https://arxiv.org/abs/2010.01243, section 4, "computation-efficient variant".
    """

    d: int = static(default=10)
    batch_size: int = static(default=64)

    def signals(self) -> Signals:
        """DOC."""
        return Signals(before=[signals.MinibatchLoss(self.batch_size)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Nothing; checks `d` and the batch."""
        check_candidates("cpow_d", self.d, ctx)
        check_number("cpow_d: batch_size", self.batch_size, 1)
        return ()

    def candidates(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Int[Array, "d"]:
        """Bigger clients more often."""
        return by_num_examples(key, ctx, self.d)

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, minibatch_loss: Float[Array, "d"]) -> Cohort:
        """Top `m` of the candidates."""
        return largest(key, ctx, minibatch_loss)
