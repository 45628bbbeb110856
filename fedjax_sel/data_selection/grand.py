"""GraNd: the examples of largest gradient."""

from fedjax_sel import signals
from fedjax_sel.data_selection._pruning import Pruning
from fedjax_sel.protocols import ClientSignal, FeatureSignal
from fedjax_sel.pytree import static

__all__ = ["GraNd"]


class GraNd(Pruning):
    """The `max(1, round(fraction · n_i))` examples of largest gradient norm `‖∇ℓ(x)‖₂`.

    By default the gradient is that of the output layer, `‖p - y‖₂ √(1 + ‖h‖²)` with the features `h`, for a forward
    pass; the paper's is that of all parameters, `layers="all"`, which takes a backward pass too. The paper averages
    over initial models and prunes once; a client averages over its first `turns`, if these are given.

    Attributes:
      fraction: of the client's examples that is kept, in (0, 1].
      drop: fraction of the examples, those of highest score, that is left out first (they may be mislabelled), as long
        as enough others remain.
      turns: the mean score of a client's first so many turns decides, and is not measured any more afterwards; None:
        the score of the round.
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
