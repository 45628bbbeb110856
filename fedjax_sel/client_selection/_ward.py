"""Ward's hierarchical clustering by nearest-neighbour chains, in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.kernels.facility_location import pairwise_distances


class Tree(NamedTuple):
    """The merges of a clustering in the order found; a merge comes after those that formed its two clusters.

    A cluster is identified by the largest index of its points; a merge puts cluster `left` into cluster `right`.

    Attributes:
      left, right: the merged clusters; `left < right`.
      height: their distance, at least that of the merges below it.
    """

    left: Int[Array, "merges"]
    right: Int[Array, "merges"]
    height: Float[Array, "merges"]


def build_ward_tree(distance: Float[Array, "N N"]) -> Tree:
    """Returns Ward's tree of points at these distances, in `3 N` steps of `N` operations.

    The distance of a merged cluster `x ∪ y` from another, `z`, is
    `sqrt(((n_x + n_z) D_xz² + (n_y + n_z) D_yz² - n_z D_xy²) / (n_x + n_y + n_z))`; for Euclidean distances, this is
    Ward's criterion.

    Source: Ward, "Hierarchical Grouping to Optimize an Objective Function", 1963,
      https://doi.org/10.1080/01621459.1963.10500845; Müllner, "Modern hierarchical, agglomerative clustering
      algorithms", 2011, https://arxiv.org/abs/1109.2378, Figure 3 (chains of nearest neighbours).
    """
    n = distance.shape[0]
    place, none = jnp.arange(n), jnp.zeros(n - 1, jnp.int32)
    square = jnp.where(jnp.eye(n, dtype=bool), jnp.inf, jnp.square(distance))
    if n == 1:
        return Tree(none, none, jnp.zeros(0))
    start = (square, jnp.ones(n), jnp.zeros(n, jnp.int32), 0, 0, jnp.zeros(n), Tree(none, none, jnp.zeros(n - 1)))

    def step(_, carry):
        square, size, chain, length, count, top, tree = carry
        busy = count < n - 1
        empty = length == 0
        end = jnp.where(empty, jnp.argmax(size > 0), chain[jnp.maximum(length - 1, 0)])
        before = chain[jnp.maximum(length - 2, 0)]
        row = jnp.where((size > 0) & (place != end), square[end], jnp.inf)
        near = jnp.argmin(row)
        near = jnp.where((length > 1) & (row[before] <= row[near]), before, near)
        mutual = busy & (length > 1) & (near == before)

        # If the two are not each other's nearest, the chain grows; if they are, they are merged.
        grow = busy & ~mutual
        chain = chain.at[jnp.where(grow, jnp.where(empty, 0, length - 1), n)].set(end.astype(jnp.int32), mode="drop")
        chain = chain.at[jnp.where(grow, jnp.where(empty, 1, length), n)].set(near.astype(jnp.int32), mode="drop")
        length = jnp.where(grow, jnp.where(empty, 2, length + 1), jnp.where(mutual, length - 2, length))

        x, y = jnp.minimum(end, near), jnp.maximum(end, near)
        sizes = size[x] + size[y] + size
        merged = ((size[x] + size) * square[x] + (size[y] + size) * square[y] - size * square[x, y]) / sizes
        merged = jnp.where((size > 0) & (place != x) & (place != y), merged, jnp.inf)
        to = jnp.where(mutual, y, n)
        height = jnp.maximum(jnp.sqrt(jnp.maximum(square[x, y], 0.0)), jnp.maximum(top[x], top[y]))
        at = jnp.where(mutual, count, n)
        tree = Tree(
            tree.left.at[at].set(x.astype(jnp.int32), mode="drop"),
            tree.right.at[at].set(y.astype(jnp.int32), mode="drop"),
            tree.height.at[at].set(height, mode="drop"),
        )
        square = square.at[to, :].set(merged, mode="drop").at[:, to].set(merged, mode="drop")
        size = size.at[to].add(size[x], mode="drop").at[jnp.where(mutual, x, n)].set(0.0, mode="drop")
        return square, size, chain, length, count + mutual, top.at[to].set(height, mode="drop"), tree

    return jax.lax.fori_loop(0, 3 * n, step, start)[-1]


def merge_some(tree: Tree, use: Bool[Array, "merges"]) -> Int[Array, "N"]:
    """Returns the cluster of each point after some of the merges, as the largest index in it.

    Args:
      tree: of all merges.
      use: which merges are made; a merge requires all those below it.
    """

    def step(label, merge):
        left, right, made = merge
        return jnp.where(made & (label == left), right, label), None

    start = jnp.arange(tree.left.shape[0] + 1, dtype=jnp.int32)
    return jax.lax.scan(step, start, (tree.left, tree.right, use))[0]


def cut_to_count(tree: Tree, clusters: int) -> Int[Array, "N"]:
    """Returns the cluster of each point when `clusters` are left, as the largest index in it."""
    rank = jnp.argsort(jnp.argsort(tree.height, stable=True))
    return merge_some(tree, rank < tree.left.shape[0] + 1 - clusters)


def cut_to_weight(tree: Tree, weight: Float[Array, "N"], most: Float[Array, ""]) -> Int[Array, "N"]:
    """Returns the cluster of each point in the largest clusters of the tree whose points weigh at most `most`."""

    def step(total, merge):
        left, right = merge
        total = total.at[right].add(total[left])
        return total, total[right] <= most

    return merge_some(tree, jax.lax.scan(step, weight, (tree.left, tree.right))[1])


def number_clusters(label: Int[Array, "N"]) -> Int[Array, "N"]:
    """Returns the cluster of each point, numbered from 0 in the order of the largest indices."""
    n = label.shape[0]
    used = jnp.zeros(n, jnp.int32).at[label].set(1)
    return (jnp.cumsum(used) - 1)[label].astype(jnp.int32)


def measure_dissimilarity(point: Float[Array, "N k"], kind: str) -> Float[Array, "N N"]:
    """Returns the dissimilarity of each pair of points.

    Args:
      point: one per row.
      kind: `"cosine"`, the angle in radians, 0 where either point is 0; `"l1"`, `"l2"` or `"l2_squared"`.
    """
    if kind == "cosine":
        length = jnp.linalg.norm(point, axis=1)
        unit = point / jnp.where(length > 0, length, 1.0)[:, None]
        angle = jnp.arccos(jnp.clip(unit @ unit.T, -1.0, 1.0))
        known = (length > 0)[:, None] & (length > 0)[None, :] & ~jnp.eye(point.shape[0], dtype=bool)
        return jnp.where(known, angle, 0.0)
    if kind == "l1":
        return jax.lax.map(lambda own: jnp.abs(point - own[None]).sum(1), point)
    distance = pairwise_distances(point)
    return jnp.square(distance) if kind == "l2_squared" else distance
