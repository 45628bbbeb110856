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
    """All examples, or the k-medoids of each class by `‖g_i - g_j‖` where training on all ends after the deadline.

    The coreset has as many examples as the client can train on until the deadline, after a forward pass over all for
    their gradients; at least 1, and at most `fraction`. A class of which the client has `n_c` of its `n` examples has
    `⌈b n_c / n⌉` of the `b`; where there is a deadline, for which these may be too many, it has its share by largest
    remainder (none where `b` is too small, and then its examples count for nothing). Medoids are chosen greedily and
    then exchanged until no exchange helps (PAM; the authors use FasterPAM, whose local optimum may be another). An
    example weighs as many as it is the nearest to. It takes `L²` numbers of memory.

    A client trains on the mean of `w_j ℓ_j` over the coreset, of `U` examples, with the weights above times `U / n`,
    which approximates its mean loss; the authors' code divides each minibatch by the sum of its weights instead. There
    the first of `E` epochs trains on all examples, whose gradients come along, and `b = ⌈(c τ E - n) / (E - 1)⌉` fit in
    the others at `c` examples a second; here the gradients take a forward pass, and all epochs train on the coreset.

    Attributes:
      fraction: of the client's examples at most, in (0, 1]; the only limit where there are no devices.
      every: rounds for which a client keeps its coreset; 1 in the text.
      gradient: what stands for an example's gradient, that of the loss by the logits (`"output"`, `p - y`) or by the
        output layer (`"last_layer"`, `(p - y) ⊗ (1, h)`, as in the authors' code).

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
        """Returns the weights of a fresh coreset; 1 for all examples where they are affordable."""
        n, size = valid.sum(), count_kept(valid, self.fraction)
        share = share_among_classes
        if turn.affordable is not None:
            size, share = jnp.clip(turn.affordable, 1, size), share_exactly  # one more would be too late
        whole = size >= n
        budget = share(turn.y, valid, jnp.where(whole, 0, size), turn.classes)
        distance = pairwise_distances(point)
        chosen = locate_in_groups(key, distance, turn.y, valid, valid, budget) >= 0
        medoid = swap_medoids(distance, chosen, turn.y, valid, turn.classes)
        weight = scale_to_mean(count_clusters(distance, medoid, turn.y, valid), valid)
        return jnp.where(whole, valid.astype(jnp.float32), weight)
