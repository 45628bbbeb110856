"""GraNd: the examples with the largest gradients."""

from fedjax_sel import signals
from fedjax_sel.data_selection._pruning import Pruning
from fedjax_sel.protocols import ClientSignal, FeatureSignal
from fedjax_sel.pytree import static

__all__ = ["GraNd"]


class GraNd(Pruning):
    """The `max(1, round(fraction · n_i))` examples with the largest gradient norm `‖∇ℓ(x)‖₂`.

    By default, the gradient is that of the output layer, which takes a forward pass; for the cross-entropy, its norm is
    `‖p - y‖₂ √(1 + ‖h‖²)` with the features `h`, without the 1 if the layer has no bias. The paper's gradient is that
    of all parameters (`layers="all"`), which also takes a backward pass. The paper averages over initial models and
    prunes once; here, with `turns`, a client averages over its first turns.

    Attributes:
      fraction: fraction of the client's examples to keep, in (0, 1].
      drop: fraction of the examples to leave out first, those with the highest scores (they may be mislabelled), as
        long as enough others remain.
      turns: number of a client's first turns whose mean scores decide, after which scores are not measured any more;
        None: the scores of each round decide.
      layers: `"last"` or `"all"`.

    Source: Paul, Ganguli and Dziugaite, "Deep Learning on a Data Diet: Finding Important Examples Early in Training",
    2021, https://arxiv.org/abs/2107.07075, Definition 2.1.

    >>> GraNd().signals(), GraNd(layers="all").signals()
    ({'score': GraNd()}, {'score': ExampleGradientNorm()})
    """

    layers: str = static(default="last", choices=["last", "all"])

    @property
    def score(self) -> FeatureSignal | ClientSignal:
        """Returns the gradient norm."""
        return signals.GraNd() if self.layers == "last" else signals.ExampleGradientNorm()
