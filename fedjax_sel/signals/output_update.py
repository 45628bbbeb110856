"""How a client's training changed the output layer."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import traverse_util
from jaxtyping import Array, Float

from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.pytree import static
from fedjax_sel.types import Update, Variables

__all__ = ["OutputUpdate"]


class OutputUpdate(UpdateSignal):
    """`Δb`, the change of the output layer's bias, or of its weights, in `C` numbers; or that of the whole layer.

    A class with many examples on the client pulls its entry up; a class that the client lacks has its entry pushed
    down. The server reads the change off the update it received, so it costs the client nothing.

    Attributes:
      part: `"bias"`; `"weights"`, the mean change of the weights into each class; or `"layer"`, both, flattened.
      layer: path of the output layer, such as `"head"` or `"block/out"`; None: the one called `head`; else, of the
        outermost layers `Dense_0`, `Dense_1`, ... whose outputs no other of them takes, the one with the highest
        number; else the model itself.

    Source: Chen and Vikalo, "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated
    Learning", 2024, https://arxiv.org/abs/2310.00198, section 3.

    >>> OutputUpdate(layer="head")
    OutputUpdate(part='bias', layer='head')
    """

    name: ClassVar[str] = "output_update"
    stacked: ClassVar[bool] = True

    part: str = static(default="bias", choices=["bias", "weights", "layer"])
    layer: str | None = static(default=None)

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, "k"]:
        """Returns the change of `part` in one update.

        Raises:
          ValueError: the model has no such layer, or it has no bias.
        """
        layer = find_output_layer(update.delta, self.layer)
        kernel, bias = layer["kernel"], layer["bias"].astype(jnp.float32)
        if self.part == "bias":
            return bias
        if self.part == "layer":
            return jnp.concatenate([kernel.ravel(), bias])
        return kernel.reshape(-1, bias.shape[0]).mean(0)


def is_taken(flat: dict[Any, Any], path: tuple[str, ...], others: list[tuple[str, ...]]) -> bool:
    """Returns whether another of these layers has as many inputs as this one has outputs."""
    return any(flat[(*other, "kernel")].shape[0] == len(flat[(*path, "bias")]) for other in others if other != path)


def find_output_layer(variables: Variables, name: str | None) -> dict[str, Any]:
    """Returns kernel and bias of the output layer, with the classes on the kernel's last axis.

    Args:
      variables: of a model, or their change.
      name: its path; None: found by layer names.

    Raises:
      ValueError: there is none, or it has no bias.
    """
    flat: dict[Any, Any] = dict(traverse_util.flatten_dict(variables["params"]))
    layers = {path[:-1] for path in flat if path[-1] == "bias" and (*path[:-1], "kernel") in flat}
    if name is None:
        dense = [path for path in layers if len(path) == 1 and re.fullmatch(r"Dense_\d+", path[0])]
        # In Dense(3)(relu(Dense(8)(x))), Python makes the outer layer first, so that it is Dense_0.
        dense = sorted(dense, key=lambda path: (not is_taken(flat, path, dense), int(path[0].rpartition("_")[2])))
        found = [path for path in ((),) if path in layers] + dense + [path for path in (("head",),) if path in layers]
    else:
        found = [path for path in layers if path == tuple(name.split("/"))]
    if not found:
        raise ValueError(
            f"output_update: layer is {name!r}, which is not the name of a layer with kernel and bias that may be the "
            f"output layer; it must be one of {', '.join(sorted('/'.join(path) for path in layers)) or '(none)'}"
        )
    kernel, bias = (flat[(*found[-1], part)] for part in ("kernel", "bias"))
    is_class_first = kernel.shape[0] == len(bias) and (found[-1] == () or kernel.shape[-1] != len(bias))
    return {"kernel": kernel.T if is_class_first else kernel, "bias": bias}  # as `LogisticRegression` has them
