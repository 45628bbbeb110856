"""Random augmentation of training images, drawn for each example of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Shaped

from fedjax_sel.pytree import Pytree, static
from fedjax_sel.task import Task
from fedjax_sel.types import PRNGKey


class CropFlip(Pytree):
    """Randomly shifts images by up to `padding` pixels in each direction, and mirrors half of them.

    It is applied to examples as stored, before they are normalised: zero is black.

    Attributes:
      padding: pixels.
      flip: whether half of the images are mirrored, left to right.
      border: what fills the padding: None: zeros; `"reflect"`: the image, reflected at the middle of its outermost
        pixels.

    Source: He et al., "Deep Residual Learning for Image Recognition", 2016, https://arxiv.org/abs/1512.03385, section
    4.2: "4 pixels are padded on each side, and a 32×32 crop is randomly sampled from the padded image or its horizontal
    flip".

    >>> CropFlip(padding=1)(jax.random.key(0), jnp.ones((2, 3, 3, 1))).shape
    (2, 3, 3, 1)
    """

    padding: int = static(default=4, low=0)
    flip: bool = static(default=True)
    border: str | None = static(default=None, choices=["reflect"])

    def __call__(self, key: PRNGKey, x: Shaped[Array, "b ..."]) -> Shaped[Array, "b h w c"]:
        """Returns the augmented images.

        Raises:
          ValueError: examples are not images, or too small to be reflected.
        """
        if x.ndim != 4:
            raise ValueError(
                f"crop_flip: an example has shape {x.shape[1:]}; it must be an image, (height, width, channels) "
                "(features of a frozen trunk are not images: model.cached=false trains on the images themselves)"
            )
        if self.border and min(x.shape[1:3]) <= self.padding:
            raise ValueError(
                f"crop_flip: an example has shape {x.shape[1:]}; to be reflected, its sides must be larger than the "
                f"padding, {self.padding}"
            )
        key_crop, key_flip = jax.random.split(key)
        corner = jax.random.randint(key_crop, (len(x), 2), 0, 2 * self.padding + 1)
        mirrored = jax.random.bernoulli(key_flip, 0.5, (len(x),)) & self.flip
        sides = (self.padding, self.padding)
        padded = jnp.pad(x, ((0, 0), sides, sides, (0, 0)), self.border or "constant")
        return jax.vmap(crop_one, in_axes=(0, 0, 0, None))(padded, corner, mirrored, (x.shape[1], x.shape[2]))


def check_images(augment: Callable[..., Any], task: Task) -> None:
    """Raises `ValueError` if the examples that would be changed are features of a frozen backbone, not images."""
    if task.frozen.begin:
        raise ValueError(
            f"augment is {type(augment).__name__}, which changes images, but the examples are features of the frozen "
            "parts, computed once (model.cached); model.cached=false trains on the images themselves"
        )


def crop_one(
    image: Shaped[Array, "H W c"], corner: Shaped[Array, "2"], mirrored: Bool[Array, ""], size: tuple[int, int]
) -> Shaped[Array, "h w c"]:
    """Returns the part of an image of this size that starts at a corner, or its mirror image."""
    part = lax.dynamic_slice(image, (*corner, 0), (*size, image.shape[-1]))
    return jnp.where(mirrored, part[:, ::-1], part)
