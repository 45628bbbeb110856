"""Whole batches of examples about which the global model is uncertain."""

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
    """The batches of highest mean entropy on the received model, before training.

    In every round, the client's examples are shuffled and split into batches; the last one may be smaller. Batches are
    kept in descending order of their mean `H(x) = -Σ_c p_c log p_c`, where `p = softmax(z)`, until another one would
    bring the number of examples no closer to `max(1, round(fraction · n_i))`. At least one batch is kept, and batches
    are kept whole, so the number is off by at most half a batch, or by less than a batch if only one is kept. Training
    shuffles the kept examples and forms its own batches.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      batch_size: examples per batch.

    Source: FedAvg-BE as FedFT-EDS describes it in section II-B, Shi, Radu and Yang, 2024,
    https://arxiv.org/abs/2501.00170: batches of the examples with the highest entropy; the mean and the fraction are
    ours. FedAvg-BE itself uses another rule: Orlandi et al., "Entropy to Mitigate Non-IID Data Problem on Federated
    Learning for the Edge Intelligence Environment", IEEE Access, 2023,
    https://doi.org/10.1109/ACCESS.2023.3298704; its code, https://github.com/fernanda-orlandi/dm-nvflare-fedavg-entropy,
    trains on the batches whose label entropy is below the clients' average, and does not use the model.

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
        """Returns 1 for the batches whose midpoint, in examples ranked by batch mean, lies within the count."""
        batch = places(valid, jax.random.uniform(key, valid.shape, jnp.float32)) // self.batch_size
        batches = -(-valid.shape[0] // self.batch_size)
        size = jax.ops.segment_sum(valid.astype(jnp.int32), batch, batches)
        total = jax.ops.segment_sum(jnp.where(valid, entropy, 0.0), batch, batches)
        rank = places(size > 0, total / jnp.maximum(size, 1))
        end = jnp.cumsum(jnp.zeros_like(size).at[rank].set(size))[rank]
        chosen = (rank == 0) | (2 * end - size < 2 * count_kept(valid, self.fraction))
        return valid & chosen[batch]
