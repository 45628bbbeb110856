"""CRAIG: examples chosen greedily so that every example's gradient is close to that of a chosen one."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.data_selection._coreset import Coreset
from fedjax_sel.data_selection._ops import count_kept, scale_to_mean, share_among_classes
from fedjax_sel.kernels.facility_location import count_clusters, locate_in_groups, pairwise_distances
from fedjax_sel.pytree import static
from fedjax_sel.types import PRNGKey, Turn

__all__ = ["CRAIG"]


class CRAIG(Coreset):
    """In each class, the examples for which `Σ_i min_{j ∈ S} ‖g_i - g_j‖` is least, found greedily.

    A class with `n_c` of the client's `n` examples gets `⌈b n_c / n⌉` in the coreset, where
    `b = max(1, round(fraction · n))`. A chosen example represents the `γ_j` examples to which it is nearest. The
    selection takes one forward pass over all examples and `L²` numbers of memory. Ties are broken at random.

    A client minimises the mean of `w_j ℓ_j` over the `U` examples of the coreset, with `w_j = γ_j U / n`, which
    approximates its mean loss. An aggregator that weights by size counts all of the client's examples.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset; 1 in the text.
      gradient: proxy for an example's gradient: that of the loss with respect to the logits (`"output"`, for the
        cross-entropy `p - y`) or to the output layer (`"last_layer"`, that `⊗ (1, h)`).
      distance: `"euclidean"`, as in the text, or `"squared"`, as in the library CORDS, which GCFL uses.
      weighting: `"cluster"`, or `"none"` for weights of 1.

    Source: Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models", 2020,
    https://arxiv.org/abs/1906.01827, Algorithm 1; `p - y` is its bound for deep networks. In GCFL's copy of CORDS,
    https://github.com/nlokeshiisc/GCFL_Release, the weights count similarities below 2; this is not implemented.

    >>> CRAIG(fraction=0.2).signals()
    {'point': OutputGradient()}
    """

    distance: str = static(default="euclidean", choices=["euclidean", "squared"])
    weighting: str = static(default="cluster", choices=["cluster", "none"])

    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a new coreset."""
        budget = share_among_classes(turn.y, valid, count_kept(valid, self.fraction), turn.classes)
        distance = pairwise_distances(point)
        distance = distance**2 if self.distance == "squared" else distance
        chosen = locate_in_groups(key, distance, turn.y, valid, valid, budget) >= 0  # Alg. 1, lines 2 to 5
        if self.weighting == "none":
            return chosen.astype(jnp.float32)
        return scale_to_mean(count_clusters(distance, chosen, turn.y, valid), valid)  # Alg. 1, lines 6 to 8
