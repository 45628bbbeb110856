"""CRAIG: examples chosen greedily so that each example's gradient has a near one among them."""

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

    A class of which the client has `n_c` of its `n` examples has `⌈b n_c / n⌉` in the coreset, `b = max(1,
    round(fraction · n))`. An example weighs as many as it is the nearest to, `γ_j`. It takes one forward pass over all
    examples, and `L²` numbers of memory. Equal choices are settled at random.

    A client trains on the mean of `w_j ℓ_j` over the coreset, of `U` examples, with `w_j = γ_j U / n`, which
    approximates its mean loss; an aggregator by size counts all its examples.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset; 1 in the text.
      gradient: what stands for an example's gradient, that of the loss by the logits (`"output"`, `p - y`) or by the
        output layer (`"last_layer"`, `(p - y) ⊗ (1, h)`).
      distance: `"euclidean"`, as in the text, or `"squared"`, as in the library CORDS, which GCFL uses.
      weighting: `"cluster"`, or `"none"` for weights of 1.

    Source: Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models", 2020,
    https://arxiv.org/abs/1906.01827, Algorithm 1; `p - y` is its bound for deep networks. In the copy of CORDS in GCFL,
    https://github.com/nlokeshiisc/GCFL_Release, weights are counts of similarities below 2, which is not implemented.

    >>> CRAIG(fraction=0.2).signals()
    {'point': OutputGradient()}
    """

    distance: str = static(default="euclidean", choices=["euclidean", "squared"])
    weighting: str = static(default="cluster", choices=["cluster", "none"])

    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a fresh coreset."""
        budget = share_among_classes(turn.y, valid, count_kept(valid, self.fraction), turn.classes)
        distance = pairwise_distances(point)
        distance = distance**2 if self.distance == "squared" else distance
        chosen = locate_in_groups(key, distance, turn.y, valid, valid, budget) >= 0  # Alg. 1, lines 2 to 5
        if self.weighting == "none":
            return chosen.astype(jnp.float32)
        return scale_to_mean(count_clusters(distance, chosen, turn.y, valid), valid)  # Alg. 1, lines 6 to 8
