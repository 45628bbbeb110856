"""Convolutional layers that are fast inside a compiled loop on a CPU, and their use in any Linen module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
from jax import lax
from jaxtyping import Array, Float

from fedjax_sel.models._conv import convolution, is_lowered

__all__ = ["Conv", "FastConvolutions", "fast_convolution", "fast_convolutions", "is_native"]


def fast_convolution(
    lhs: Float[Array, "b *space i"],
    rhs: Float[Array, "*kernel j o"],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    **options: Any,
) -> Float[Array, "b *out o"]:
    """Returns what `jax.lax.conv_general_dilated` computes: lowered for images and sequences, natively for all else.

    Sequences are treated as images of height 1. Other dimensions, channels that are not last, an `lhs_dilation` above
    1, and `options` other than `precision` run natively.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if not is_lowered(lhs.shape, rhs.shape, lhs_dilation, dimension_numbers) or options.keys() - {"precision"}:
        return lax.conv_general_dilated(
            lhs,
            rhs,
            window_strides,
            padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers,
            feature_group_count=feature_group_count,
            **options,
        )
    if lhs.ndim == 4:
        return convolution(
            lhs,
            rhs,
            window_strides,
            padding,
            rhs_dilation=rhs_dilation,
            feature_group_count=feature_group_count,
            **options,
        )
    out = convolution(
        lhs[:, None],
        rhs[None],
        (1, *window_strides),
        padding if isinstance(padding, str) else ((0, 0), *padding),
        rhs_dilation=(1, *(rhs_dilation or (1,))),
        feature_group_count=feature_group_count,
        **options,
    )
    return out[:, 0]


class Conv(nn.Conv):
    """`flax.linen.Conv` for images and sequences, fast inside a compiled loop on a CPU.

    Its fields and its parameters' names and shapes are those of `flax.linen.Conv`, so either can load the other's
    checkpoints; results agree to float tolerance. What the fast lowering does not cover (volumes, `input_dilation`)
    runs natively. It has no forward-mode derivative (`jax.jvp`), and its operations include products with padding,
    which XLA does not count for a native convolution.

    >>> import jax, jax.numpy as jnp
    >>> variables = Conv(8, (3, 3)).init(jax.random.key(0), jnp.zeros((1, 9, 9, 2)))
    >>> jax.tree.map(jnp.shape, variables["params"])
    {'bias': (8,), 'kernel': (3, 3, 2, 8)}
    """

    conv_general_dilated: Callable[..., Array] | None = fast_convolution


class FastConvolutions(nn.Module):
    """A module whose native convolutions are replaced; constructed by `fast_convolutions`.

    Attributes:
      module: the wrapped module; its variables keep their names.
    """

    module: nn.Module

    def setup(self) -> None:
        """Lets the module's variables keep their names, without another level."""
        nn.share_scope(self, self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of the module."""
        with nn.intercept_methods(lower_layer):
            return self.module(*args, **kwargs)

    @property
    def stages(self) -> tuple[str, ...]:
        """The module's stages, if it has any."""
        return getattr(self.module, "stages", ())


def fast_convolutions(module: nn.Module) -> FastConvolutions:
    """Wraps any Linen module so that its `flax.linen.Conv` layers, at any depth, compute as `Conv` does.

    Variables keep their names and shapes; initial values and checkpoints are the module's own. Inside a compiled loop
    on a CPU, where every local step runs, XLA's own convolutions take several times as long.

    >>> import jax, jax.numpy as jnp
    >>> class Small(nn.Module):
    ...     '''Somebody's network.'''
    ...     @nn.compact
    ...     def __call__(self, x, *, train=False):
    ...         return nn.Dense(10)(nn.Conv(8, (3, 3))(x).mean((1, 2)))
    >>> model, x = fast_convolutions(Small()), jnp.zeros((1, 9, 9, 2))
    >>> sorted(model.init(jax.random.key(0), x)["params"])
    ['Conv_0', 'Dense_0']
    """
    return FastConvolutions(module)


def lower_layer(layer: Callable, args: tuple, kwargs: dict[str, Any], context: nn.module.InterceptorContext) -> Any:
    """Interceptor for `flax.linen.intercept_methods` that calls native convolutions with `fast_convolution`."""
    if isinstance(context.module, nn.Conv) and is_native(context.module):
        # A bound module is a copy made for this one call of `apply`, which nothing else holds.
        object.__setattr__(context.module, "conv_general_dilated", fast_convolution)
    return layer(*args, **kwargs)


def is_native(layer: nn.Conv) -> bool:
    """Returns whether a layer calls XLA's own convolution and `fast_convolution` could replace it."""
    kernel, dilation = layer.kernel_size, layer.input_dilation
    sides = 1 if isinstance(kernel, int) else len(kernel)
    plain = dilation in (None, 1) or (isinstance(dilation, Sequence) and set(dilation) == {1})
    native = layer.conv_general_dilated in (None, lax.conv_general_dilated) and layer.conv_general_dilated_cls is None
    return native and plain and sides in (1, 2)
