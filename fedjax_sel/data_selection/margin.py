"""Margin sampling: the rows on which two classes are nearly tied."""

from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import check_positive, top_share
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Margin"]


class Margin(DataSelector):
    """The `max(1, round(fraction · n_i))` rows of smallest `z_(1) - z_(2)` on the model received, before training.

    `z_(1)` and `z_(2)` are a row's two largest logits, so the difference is `log p_(1)/p_(2)`. This is the limit of
    `data_selection.entropy` as its temperature goes to 0. Rows of equal margin come in random order.

    Attributes:
      fraction: share of the client's rows, in (0, 1].

    Source: Scheffer, Decomain and Wrobel, "Active Hidden Markov Models for Information Extraction", 2001,
    https://doi.org/10.1007/3-540-44816-0_31, where the margin is the difference of the two probabilities; FedFT-EDS
    names it beside the entropy, section II-B.
    """

    fraction: Scalar = 0.1

    def signals(self) -> dict[str, ExampleSignal]:
        """DOC."""
        return {"margin": signals.Margin()}

    def __check_init__(self) -> None:
        """Refuse what is no share."""
        check_positive("margin: fraction", self.fraction, 1)

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, margin: Float[Array, "L"]
    ) -> Bool[Array, "L"]:
        """Smallest margins."""
        return top_share(key, valid, self.fraction, -margin)
