"""Margin sampling: the examples on which two classes are nearly tied."""

from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import keep_top
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Margin"]


class Margin(DataSelector):
    """The `max(1, round(fraction · n_i))` examples of smallest `z_(1) - z_(2)` on the received model, before training.

    `z_(1)` and `z_(2)` are an example's two largest logits, so the difference is `log p_(1)/p_(2)`. This is the limit
    of `data_selection.entropy` as its temperature goes to 0. Ties are broken at random.

    Attributes:
      fraction: of the client's examples, in (0, 1].

    Source: Scheffer, Decomain and Wrobel, "Active Hidden Markov Models for Information Extraction", 2001,
    https://doi.org/10.1007/3-540-44816-0_31, where the margin is the difference of the two probabilities; section II-B
    of FedFT-EDS names it beside the entropy.

    >>> Margin(fraction=0.2).signals()
    {'margin': Margin()}
    """

    fraction: Scalar = param(default=0.1, above=0, high=1)

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns the margin of each example."""
        return {"margin": signals.Margin()}

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, margin: Float[Array, "L"]
    ) -> Bool[Array, "L"]:
        """Returns 1 for the smallest margins."""
        return keep_top(key, valid, self.fraction, -margin)
