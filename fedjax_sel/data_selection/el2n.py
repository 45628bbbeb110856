"""EL2N: the examples whose probabilities are furthest from their labels."""

from fedjax_sel import signals
from fedjax_sel.data_selection._pruning import Pruning
from fedjax_sel.protocols import ExampleSignal

__all__ = ["EL2N"]


class EL2N(Pruning):
    """The `max(1, round(fraction · n_i))` examples of largest `‖p - y‖₂`, `p = softmax(z)`.

    The paper scores every example early in training, averages over several trainings, and prunes once. Here a client
    scores its examples on the model that it receives: every time, or, with `turns`, in its first turns, whose mean then
    decides for good and costs nothing more.

    Attributes:
      fraction: of the client's examples that is kept, in (0, 1].
      drop: fraction of the examples, those of highest score, that is left out first (they may be mislabelled), as long
        as enough others remain.
      turns: the mean score of a client's first so many turns decides, and is not measured any more afterwards; None:
        the score of the round.

    Source: Paul, Ganguli and Dziugaite, "Deep Learning on a Data Diet: Finding Important Examples Early in Training",
    2021, https://arxiv.org/abs/2107.07075, Definition 2.3; `drop`, section 4.

    >>> EL2N(fraction=0.3).signals()
    {'score': EL2N()}
    """

    @property
    def score(self) -> ExampleSignal:
        """Returns the error of the probabilities."""
        return signals.EL2N()
