"""Whole batches of examples of which the global model is unsure."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._ops import count_kept, places
from fedjax_sel.protocols import DataSelector, ExampleSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["EntropyBatches"]


class EntropyBatches(DataSelector):
    """The batches of highest mean entropy on the model received, before training.

    Every round the client's examples, in a fresh random order, are cut into batches; the last one may be smaller.
    Batches are kept in the order of their mean `H(x) = -Σ_c p_c log p_c`, `p = softmax(z)`, until one more would end no
    nearer to `max(1, round(fraction · n_i))` examples: at least one batch, and never a part of one. All of them are at
    most `batch_size` long, so the count is off by at most half a batch, or by less than a batch where only one is kept.
    Training shuffles the examples that were kept and cuts its own batches.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      batch_size: examples of a batch.

    Source: FedAvg-BE as FedFT-EDS describes it in section II-B, Shi, Radu and Yang, 2024,
    https://arxiv.org/abs/2501.00170: batches of the examples of highest entropy; the mean and the fraction are ours.
    FedAvg-BE itself is another rule: Orlandi et al., "Entropy to Mitigate Non-IID Data Problem on Federated Learning
    for the Edge Intelligence Environment", IEEE Access, 2023, https://doi.org/10.1109/ACCESS.2023.3298704; its code,
    https://github.com/fernanda-orlandi/dm-nvflare-fedavg-entropy, trains on the batches whose labels have less entropy
    than a client's labels have on average, and does not ask the model.

    >>> EntropyBatches(batch_size=32).signals()
    {'entropy': Entropy(temperature=1.0)}
    """

    fraction: Scalar = param(default=0.1, above=0, high=1)
    batch_size: int = static(default=10, low=1)

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns the entropy of each example."""
        return {"entropy": signals.Entropy()}

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, entropy: Float[Array, "L"]
    ) -> Bool[Array, "L"]:
        """Returns 1 for batches whose middle, counted in examples in the order of the means, is in the count."""
        batch = places(valid, jax.random.uniform(key, valid.shape, jnp.float32)) // self.batch_size
        batches = -(-valid.shape[0] // self.batch_size)
        size = jax.ops.segment_sum(valid.astype(jnp.int32), batch, batches)
        total = jax.ops.segment_sum(jnp.where(valid, entropy, 0.0), batch, batches)
        rank = places(size > 0, total / jnp.maximum(size, 1))
        end = jnp.cumsum(jnp.zeros_like(size).at[rank].set(size))[rank]
        chosen = (rank == 0) | (2 * end - size < 2 * count_kept(valid, self.fraction))
        return valid & chosen[batch]
