"""FedCore: a client that is too slow for the deadline trains on the medoids of its examples' gradients."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.data_selection._coreset import Coreset
from fedjax_sel.data_selection._ops import count_kept, scale_to_mean, share_among_classes, share_exactly
from fedjax_sel.kernels.facility_location import count_clusters, locate_in_groups, pairwise_distances, swap_medoids
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, Turn

__all__ = ["FedCore"]


class FedCore(Coreset):
    """All examples, or the k-medoids of each class by `‖g_i - g_j‖` if there is no time for all before the deadline.

    Every client first makes a forward pass over all its examples. (In the authors' code, one that can train on all does
    not; here, it trains on all only if there is time for both.)

    The coreset has as many examples `b` as the client can train on before the deadline, after a forward pass over all
    for their gradients; at least 1, and at most `fraction` of all. A class with `n_c` of the client's `n` examples gets
    `⌈b n_c / n⌉` of them. If these are too many for the deadline, `b` is shared by largest remainder instead (a class
    gets none if `b` is too small, and then its examples count for nothing). Medoids are chosen greedily and then
    swapped until no swap helps (PAM; the authors use FasterPAM, which may end in another local optimum). A medoid's
    weight is the number of examples to which it is nearest. The selection takes `L²` numbers of memory.

    A client minimises the mean of `w_j ℓ_j` over the `U` examples of the coreset, where `w_j` is the weight above times
    `U / n`; this approximates its mean loss if every class has a medoid. The authors' code divides each minibatch by
    the sum of its weights instead. There, the first of `E` epochs trains on all examples and is followed by a pass for
    their gradients, which takes no time, and `b = ⌈(c τ E - n) / (E - 1)⌉` fit in the others at `c` examples per
    second; a client without time for one epoch is left out. Here, all epochs train on the coreset. For logistic
    regression, their code compares the inputs themselves instead of gradients, which is not implemented.

    With a number of local steps instead of epochs, fewer examples can take longer (more passes over them), so a client
    may be late if `fraction` makes its coreset smaller than the deadline alone would.

    Attributes:
      fraction: largest fraction of the client's examples, in (0, 1]; the only limit if there are no devices.
      every: rounds for which a client keeps its coreset; 1 in the text.
      gradient: proxy for an example's gradient: that of the loss with respect to the logits (`"output"`, for the
        cross-entropy `p - y`) or to the output layer (`"last_layer"`, that `⊗ (1, h)`, as in the authors' code).

    Source: Guo et al., "FedCore: Straggler-Free Federated Learning with Distributed Coresets", 2024,
    https://arxiv.org/abs/2402.00219; code: https://github.com/hongpeng-guo/FedCore, `fedcore/client.py`.

    >>> FedCore(fraction=0.5).signals()
    {'point': LastLayerGradient()}
    """

    fraction: Scalar = param(default=1.0, above=0, high=1)
    gradient: str = static(default="last_layer", choices=["output", "last_layer"])

    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a new coreset; 1 for all examples if they are affordable."""
        n, size = valid.sum(), count_kept(valid, self.fraction)
        if turn.affordable is not None:
            size = jnp.clip(turn.affordable, 1, size)
        whole = size >= n
        shared = turn.y, valid, jnp.where(whole, 0, size), turn.classes
        budget = share_among_classes(*shared)
        if turn.affordable is not None:
            budget = jnp.where(budget.sum() <= jnp.maximum(turn.affordable, 1), budget, share_exactly(*shared))
        distance = pairwise_distances(point)
        chosen = locate_in_groups(key, distance, turn.y, valid, valid, budget) >= 0
        medoid = swap_medoids(distance, chosen, turn.y, valid, turn.classes)
        weight = scale_to_mean(count_clusters(distance, medoid, turn.y, valid), valid)
        return jnp.where(whole, valid.astype(jnp.float32), weight)
