"""The rows that the global model gets most wrong."""

from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import check_positive, top_share
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["HighLoss"]


class HighLoss(DataSelector):
    """The `max(1, round(fraction · n_i))` rows of largest loss on the model received, before training.

    Unlike entropy and margin, the loss knows the label: a row that the model is sure of, and wrong about, comes first.
    Mislabelled rows are such rows. Rows of equal loss come in random order.

    Attributes:
      fraction: share of the client's rows, in (0, 1].

    Source: after online hard example mining; Shrivastava, Gupta and Girshick, 2016, https://arxiv.org/abs/1604.03540,
    which ranks the regions of an image by their loss at every step; here a client ranks its rows once a round.
    """

    fraction: Scalar = 0.1

    def signals(self) -> dict[str, ExampleSignal]:
        """DOC."""
        return {"loss": signals.Loss()}

    def __check_init__(self) -> None:
        """Refuse what is no share."""
        check_positive("high_loss: fraction", self.fraction, 1)

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, loss: Float[Array, "L"]
    ) -> Bool[Array, "L"]:
        """Largest losses."""
        return top_share(key, valid, self.fraction, loss)
