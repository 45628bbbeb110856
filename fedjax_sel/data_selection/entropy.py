"""FedFT-EDS: the examples of which the global model is least sure, by the entropy of a hardened softmax."""

import math

from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import keep_top
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Entropy"]


class Entropy(DataSelector):
    """The `max(1, round(fraction · n_i))` examples of highest entropy on the model received, before training.

    `H(x) = -Σ_c p_c log p_c` with `p = softmax(z / ρ)` and the logits `z`, Float["L C"].

    In float32 `H` of a confident example is 0 for small ρ. Examples of equal `H` are therefore ranked by the margin,
    the difference of the two largest logits, smallest first, which is what the ranking by `H` tends to as ρ goes to 0;
    examples equal in both, in random order. Both numbers come from one forward pass.

    With ρ = 0.1 the method is nearly margin sampling: for a million examples of ten logits drawn from N(0, 9),
    Spearman's correlation of the rankings by entropy and by margin is 0.819, 0.953, 0.9996 for ρ = 1, 0.5, 0.1, and the
    tenths of the examples ranked first share 0.30, 0.44, 0.96 of their examples.

    Attributes:
      fraction: of the client's examples, `P_ds` in the paper, in (0, 1].
      temperature: of the softmax, ρ in the paper, from 1e-30 on; below 1 hardens it.

    The paper does not say how the count is rounded. Its weights, each client's number of selected examples, are those
    of the aggregator `mean` by size.

    Source: Shi, Radu and Yang, "Federated Learning with Workload Reduction through Partial Training of Client Models
    and Entropy-Based Data Selection" (FedFT-EDS), 2024, https://arxiv.org/abs/2501.00170, equations (3) and (6), in
    whose denominator `z_i` is read as `z_j`; the text once has ρ greater than 1, its experiments have 0.1.

    >>> Entropy(fraction=0.5).signals()
    {'entropy': Entropy(temperature=0.1), 'margin': Margin()}
    """

    fraction: Scalar = param(default=0.1, above=0, high=1)
    temperature: Scalar = param(default=0.1, low=1e-30, below=math.inf)

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns the entropy of each example at this temperature, and its margin."""
        return {"entropy": signals.Entropy(self.temperature), "margin": signals.Margin()}

    def select(
        self,
        key: PRNGKey,
        state: StrategyState,
        valid: Bool[Array, "L"],
        *,
        entropy: Float[Array, "L"],
        margin: Float[Array, "L"],
    ) -> Bool[Array, "L"]:
        """Returns 1 for the highest entropies, then for the smallest margins."""
        return keep_top(key, valid, self.fraction, entropy, -margin)  # Alg. 1, line 7
