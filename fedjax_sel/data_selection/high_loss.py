"""The examples that the global model gets most wrong."""

from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import keep_top
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["HighLoss"]


class HighLoss(DataSelector):
    """The `max(1, round(fraction · n_i))` examples of largest loss on the received model, before training.

    Unlike entropy and margin, the loss depends on the label: examples on which the model is confident but wrong come
    first, mislabelled ones among them. Ties are broken at random.

    Attributes:
      fraction: of the client's examples, in (0, 1].

    Source: adapted from online hard example mining, Shrivastava, Gupta and Girshick, 2016,
    https://arxiv.org/abs/1604.03540, which ranks the regions of an image by their loss at every step; here, a client
    ranks its examples once per round.

    >>> HighLoss(fraction=0.2).signals()
    {'loss': Loss()}
    """

    fraction: Scalar = param(default=0.1, above=0, high=1)

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns the loss of each example."""
        return {"loss": signals.Loss()}

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, loss: Float[Array, "L"]
    ) -> Bool[Array, "L"]:
        """Returns 1 for the largest losses."""
        return keep_top(key, valid, self.fraction, loss)
