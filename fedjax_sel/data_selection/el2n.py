"""EL2N: the examples whose predicted probabilities are furthest from their labels."""

from fedjax_sel import signals
from fedjax_sel.data_selection._pruning import Pruning
from fedjax_sel.protocols import ExampleSignal

__all__ = ["EL2N"]


class EL2N(Pruning):
    """The `max(1, round(fraction · n_i))` examples with the largest `‖p - y‖₂`, where `p = softmax(z)`.

    The paper scores every example early in training, averages over several training runs, and prunes once. Here a
    client scores its examples with the model that it receives: in every turn, or, with `turns`, in its first turns,
    whose mean then decides for good at no further cost.

    Attributes:
      fraction: fraction of the client's examples to keep, in (0, 1].
      drop: fraction of the examples to leave out first, rounded down: those with the highest scores (they may be
        mislabelled), as long as enough others remain.
      turns: number of a client's first turns whose mean scores decide, after which scores are not measured any more;
        None: the scores of each round decide.

    Source: Paul, Ganguli and Dziugaite, "Deep Learning on a Data Diet: Finding Important Examples Early in Training",
    2021, https://arxiv.org/abs/2107.07075, Definition 2.3; `drop`, section 4.

    >>> EL2N(fraction=0.3).signals()
    {'score': EL2N()}
    """

    @property
    def score(self) -> ExampleSignal:
        """Returns the norm of the probabilities' error."""
        return signals.EL2N()
