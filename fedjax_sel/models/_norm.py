"""Normalisation inside networks."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.catalog import check_name

KINDS = ("batch", "group")


class Norm(nn.Module):
    """Batch or group normalisation of channels, with scale and bias.

    Batch normalisation uses the moments of the batch's examples that count in training, and running averages in
    evaluation; clients update these, and the server averages them like the model. Group normalisation uses each
    example's own moments, so there is nothing to average.

    Attributes:
      kind: `"batch"` or `"group"`.
      groups: groups of channels, in group normalisation.
      momentum: weight of the old running average.
      epsilon: added to the variance; `None` for Flax's default, 1e-5 with batches and 1e-6 with groups.
    """

    kind: str = "batch"
    groups: int = 2
    momentum: float = 0.9
    epsilon: float | None = None

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b h w c"]:
        """Returns the normalised examples."""
        check_name("norm", self.kind, list(KINDS))
        epsilon: dict[str, Any] = {} if self.epsilon is None else {"epsilon": self.epsilon}
        if self.kind == "group":
            return nn.GroupNorm(num_groups=self.groups, **epsilon)(x)
        counted = None if mask is None or not train else jnp.broadcast_to(mask[:, None, None, None], x.shape)
        return nn.BatchNorm(use_running_average=not train, momentum=self.momentum, **epsilon)(x, mask=counted)
