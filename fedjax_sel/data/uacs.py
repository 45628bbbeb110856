"""The synthetic federation of UACS-FL: a few clients at a curved boundary, the others far from it.

Examples lie in the square [-1, 1]². The label says on which side of the curve `g(x) = x₂ - a sin(π x₁) = 0` an example
lies. The first `boundary` clients hold examples of both classes around the curve; every other client holds examples of
one class only.

The paper shows its three settings as pictures and gives no numbers; the generator and its numbers are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from fedjax_sel.catalog import check_name
from fedjax_sel.data.checks import check_wholes
from fedjax_sel.data.dataset import Dataset, dataset

PURPOSE = 0x0AC5


@dataclass(frozen=True)
class Shape:
    """The numbers that the paper's pictures do not give.

    Attributes:
      amplitude: `a` of the curve; 0: a straight boundary.
      strip: half the height of the strip around the curve from which boundary clients draw.
      margin: the value that |g| exceeds for every example of a client that is not at the boundary.
      box: half the side of the box of a client that is not at the boundary, in setting 3.
    """

    amplitude: float = 0.5
    strip: float = 0.15
    margin: float = 0.25
    box: float = 0.1


SHAPE = Shape()


def uacs(
    setting: int = 1,
    seed: int = 0,
    *,
    boundary: int = 6,
    clients: int = 100,
    num_examples: int = 50,
    num_test_examples: int = 2000,
    amplitude: float = SHAPE.amplitude,
    keep: str | None = None,
) -> Dataset:
    """Returns one draw of a setting; client `i` owns its examples (partition: natural).

    1. The boundary clients draw from disjoint boxes along the curve; the others from the whole side of their class.
    2. The boundary clients each draw along the whole curve; the others draw as in 1.
    3. The boundary clients draw as in 1; each of the others draws from a small box of its own.

    Test examples are uniform on the square.

    Args:
      setting: 1, 2 or 3, the paper's experiments.
      seed: seed of all draws.
      boundary: clients at the boundary, 1 to `clients - 1` (the paper: 6, elsewhere "6-10").
      clients: `N`.
      num_examples: examples of each client.
      num_test_examples: test examples of the server.
      amplitude: `a` of the curve, 0 (a straight boundary) to 0.75, beyond which little of the square is left beside it.
      keep: which clients' examples to return: those of the clients `"at the boundary"`, or of the `"others"`, numbered
        anew from 0; None: all clients'.

    Raises:
      ValueError: a parameter is out of range.

    Source: UACS-FL, "Active Client Selection for Federated Learning", experiments 1 to 3.

    >>> uacs(setting=2, clients=20, num_examples=10)
    Dataset('uacs-2': 200 training, 2000 test, 0 validation examples of 2 float32, 2 classes, 20 owners)
    """
    if setting not in (1, 2, 3):
        raise ValueError(f"uacs: setting is {setting!r}; it must be 1, 2 or 3, the paper's experiments")
    numbers = {"boundary": boundary, "clients": clients}
    check_wholes("uacs", **numbers, num_examples=num_examples, num_test_examples=num_test_examples)
    if not 1 <= boundary < clients:
        raise ValueError(f"uacs: {boundary} boundary clients of {clients}; there must be 1 to {clients - 1}")
    if num_examples < 1 or num_test_examples < 1:
        raise ValueError(
            f"uacs: num_examples is {num_examples}, num_test_examples is {num_test_examples}; both must be at least 1"
        )
    if not 0 <= amplitude <= 0.75:
        raise ValueError(f"uacs: amplitude is {amplitude}; it must be from 0 to 0.75")
    if keep is not None:
        check_name("keep", keep, KEPT)
    shape = replace(SHAPE, amplitude=amplitude)
    return draw_clients(shape, setting, seed, boundary, clients, num_examples, num_test_examples, keep)


KEPT = ("at the boundary", "others")
"""The groups of clients to which a draw can be restricted."""


def draw_clients(
    shape: Shape,
    setting: int,
    seed: int,
    boundary: int = 6,
    clients: int = 100,
    num_examples: int = 50,
    num_test_examples: int = 2000,
    keep: str | None = None,
) -> Dataset:
    """Returns one draw of a setting with the given shape; the other arguments are as for `uacs`, but not checked."""
    rng = np.random.default_rng((PURPOSE, setting, seed))
    at_curve = draw_along_curve if setting == 2 else draw_in_boxes
    near = [at_curve(rng, shape, i, boundary, num_examples) for i in range(boundary)]
    sides = np.where(np.arange(clients - boundary) % 2 == 0, 1, -1)
    far = [(draw_box if setting == 3 else draw_anywhere)(rng, shape, side, num_examples) for side in sides]
    kept = {None: [*near, *far], "at the boundary": near, "others": far}[keep]
    x = np.concatenate(kept)
    test = rng.uniform(-1, 1, (num_test_examples, 2))
    return dataset(
        f"uacs-{setting}",
        x,
        label_side(x, shape),
        test=(test.astype(np.float32), label_side(test, shape)),
        owner=np.repeat(np.arange(len(kept)), num_examples),
        classes=2,
    )


def curve(x1: Float[np.ndarray, "*n"], shape: Shape = SHAPE) -> Float[np.ndarray, "*n"]:
    """Returns the height of the boundary at `x1`."""
    return shape.amplitude * np.sin(np.pi * x1)


def g(x: Float[np.ndarray, "n 2"], shape: Shape = SHAPE) -> Float[np.ndarray, "n"]:
    """Returns the height of each example above the boundary."""
    return x[:, 1] - curve(x[:, 0], shape)


def label_side(x: Float[np.ndarray, "n 2"], shape: Shape = SHAPE) -> np.ndarray:
    """Returns the label of each example: 1 above the boundary, 0 below."""
    return (g(x, shape) > 0).astype(np.int32)


def draw_in_boxes(
    rng: np.random.Generator, shape: Shape, i: int, boundary: int, count: int
) -> Float[np.ndarray, "n 2"]:
    """Returns examples of boundary client `i` around the curve, in its own interval of `x1`; intervals do not touch."""
    width = 2 / boundary
    x1 = -1 + width * (i + rng.uniform(0.1, 0.9, count))
    return draw_around_curve(rng, shape, x1)


def draw_along_curve(
    rng: np.random.Generator, shape: Shape, i: int, boundary: int, count: int
) -> Float[np.ndarray, "n 2"]:
    """Returns examples of any boundary client around the whole curve."""
    return draw_around_curve(rng, shape, rng.uniform(-1, 1, count))


def draw_around_curve(rng: np.random.Generator, shape: Shape, x1: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n 2"]:
    """Returns examples at `x1`, within `shape.strip` of the curve's height."""
    return np.stack([x1, curve(x1, shape) + rng.uniform(-shape.strip, shape.strip, x1.shape)], axis=1)


def draw_anywhere(rng: np.random.Generator, shape: Shape, side: int, count: int) -> Float[np.ndarray, "n 2"]:
    """Returns examples uniform on one side of the curve, beyond `shape.margin`, drawn by rejection sampling."""
    kept = np.empty((0, 2))
    while len(kept) < count:  # each side beyond the margin covers over a third of the square, so this terminates
        x = rng.uniform(-1, 1, (4 * count, 2))
        kept = np.concatenate([kept, x[is_far_from_curve(x, side, shape)]])
    return kept[:count]


def draw_box(rng: np.random.Generator, shape: Shape, side: int, count: int) -> Float[np.ndarray, "n 2"]:
    """Returns examples uniform in a small square of the client's own, all of it beyond `shape.margin`."""
    box = shape.box
    grid = np.linspace(-box, box, 21)
    within = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    while True:  # as in `draw_anywhere`
        centre = rng.uniform(-1 + box, 1 - box, 2)
        if is_far_from_curve(centre + within, side, shape).all():
            break
    return centre + rng.uniform(-box, box, (count, 2))


def is_far_from_curve(x: Float[np.ndarray, "n 2"], side: int, shape: Shape = SHAPE) -> Bool[np.ndarray, "n"]:
    """Returns which examples lie beyond `shape.margin` on the given side."""
    return side * g(x, shape) > shape.margin
