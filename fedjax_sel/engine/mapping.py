"""How an axis is run: everything at once, one after another, in blocks, on many devices. Only this file knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from fedjax_sel.types import Update, Variables

SEEDS, CLIENTS = "seeds", "clients"
"""Axes of a mesh of devices."""

SIDE_BY_SIDE = "seeds side by side"
"""The axis of the seeds that one device runs by vmap."""


@dataclass(frozen=True)
class Mapping:
    """How a compiled run is laid out. Results agree between mappings to float tolerance.

    Attributes:
      clients: how many clients' models train side by side (vmap) before the next block (scan); None: the whole cohort.
      seeds: `"vmap"`, all seeds side by side, or `"scan"`, one after another, still in one program.
      rows: rows in one flat forward pass over the global model.
      mesh: over how many devices the seeds, and the clients of each seed's cohort, are divided; None: one device.
    """

    clients: int | None = None
    seeds: str = "vmap"
    rows: int = 8192
    mesh: tuple[int, int] | None = None

    def __post_init__(self):
        """Refuse what is no mapping."""
        if self.seeds not in ("vmap", "scan"):
            raise ValueError(f"mapping: seeds is {self.seeds!r}; it must be 'vmap' or 'scan'")
        for name in ("clients", "rows"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"mapping: {name} is {value!r}; it must be a whole number, at least 1")

    def __str__(self) -> str:
        """As printed when a run starts."""
        clients = {None: "vmap", 1: "scan"}.get(self.clients, f"scan over vmap of {self.clients}")
        mesh = "" if self.mesh is None else ", on a mesh of {} x {} devices (seeds, clients)".format(*self.mesh)
        return f"seeds by {self.seeds}, clients by {clients}{mesh}"

    @property
    def shares(self) -> tuple[int, int]:
        """Among how many devices seeds, and clients, are divided."""
        return self.mesh or (1, 1)

    def devices(self) -> jax.sharding.Mesh:
        """The mesh of the devices in use, of all hosts."""
        axes = (jax.sharding.AxisType.Auto,) * 2
        return jax.make_mesh(self.shares, (SEEDS, CLIENTS), axes, devices=jax.devices()[: math.prod(self.shares)])

    def sharding(self, has_own: bool) -> NamedSharding:
        """Where an array lies on the mesh: divided by its leading seeds, or a copy everywhere."""
        divided = has_own and self.shares[0] > 1  # what one device has all of comes back from a program as a copy
        return NamedSharding(self.devices(), PartitionSpec(SEEDS) if divided else PartitionSpec())

    def over_seeds(self, f: Callable, args: tuple, axes: tuple) -> Any:
        """`f(*args)` for every seed; `axes` as in `jax.vmap`: 0 for what has a leading `R`, None for what is shared."""
        if self.mesh is None:
            return self._on_one_device(f, args, axes)
        leaves, tree = jax.tree.flatten(args)
        specs = [PartitionSpec(SEEDS) if own else PartitionSpec() for own in owned(axes, args)]
        return jax.shard_map(
            lambda *leaves: self._on_one_device(f, tree.unflatten(leaves), axes),
            mesh=self.devices(),
            in_specs=tuple(specs),
            out_specs=PartitionSpec(SEEDS),
            check_vma=False,  # what clients' devices compute alike is alike because each does the same
        )(*leaves)

    def _on_one_device(self, f: Callable, args: tuple, axes: tuple) -> Any:
        if self.seeds == "vmap":
            return jax.vmap(f, in_axes=axes, axis_name=SIDE_BY_SIDE)(*args)
        leaves, tree = jax.tree.flatten(args)
        has_own = owned(axes, args)

        def one(mine):
            mine = iter(mine)
            chosen = [next(mine) if has else leaf for leaf, has in zip(leaves, has_own, strict=True)]
            return f(*tree.unflatten(chosen))

        mapped = [leaf for leaf, has in zip(leaves, has_own, strict=True) if has]
        return jax.lax.map(one, mapped)

    def longest_of(self, steps: Int[Array, "k"]) -> Int[Array, ""]:
        """Steps that clients side by side must run to: one number for all vmapped seeds, whose loop stays one loop."""
        bound = steps.max()
        return jax.lax.pmax(bound, SIDE_BY_SIDE) if self.seeds == "vmap" else bound

    def train(
        self,
        one: Callable[[Any, Int[Array, ""]], Update],
        members: Any,
        steps: Int[Array, "m"],
        weight: Float[Array, "m"],
        like: Variables,
        *,
        stacked: bool,
    ) -> tuple[Variables, Update]:
        """Train a cohort.

        Args:
          one: trains one member, in a loop of so many steps.
          members: pytree with a leading `m`: what `one` gets of each member.
          steps: what each member needs.
          weight: of each delta in the sum.
          like: variables of one client.
          stacked: keep every delta.

        Returns:
          `Σ_i weight_i delta_i`, and the updates with a leading `m`, their `delta` None unless `stacked`.
        """

        def mine(part):
            members, steps, weight = part
            return self._train(one, members, steps, weight, like, stacked=stacked)

        if self.shares[1] == 1:
            return mine((members, steps, weight))
        return exchanged(*mine(share((members, steps, weight), self.shares[1])), weight.shape[0])

    def _train(self, one, members, steps, weight, like, *, stacked):
        m = weight.shape[0]
        k = min(self.clients or m, m)
        blocks = -(-m // k)

        def in_blocks(leaf):  # the last block is filled up with members that take no steps and weigh nothing
            extra = jnp.zeros((blocks * k - m, *leaf.shape[1:]), leaf.dtype)
            return jnp.concatenate([leaf, extra]).reshape(blocks, k, *leaf.shape[1:])

        def block(total, xs):
            members, steps, weight = xs
            bound = self.longest_of(steps)
            if k == 1:
                update = one(jax.tree.map(lambda a: a[0], members), bound)
                update = jax.tree.map(lambda a: a[None], update)
            else:
                update = jax.vmap(one, in_axes=(0, None))(members, bound)
            total = jax.tree.map(lambda a, d: a + jnp.tensordot(weight, d, 1), total, update.delta)
            return total, update if stacked else replace(update, delta=None)

        zero = jax.tree.map(jnp.zeros_like, like)
        if blocks == 1:
            return block(zero, (members, steps, weight))
        total, updates = jax.lax.scan(block, zero, jax.tree.map(in_blocks, (members, steps, weight)))
        return total, jax.tree.map(lambda a: a.reshape(blocks * k, *a.shape[2:])[:m], updates)

    def over_clients(self, f: Callable, clients: Any) -> Any:
        """`f` of each of a leading axis of clients, as many side by side as train side by side."""

        def mine(part):
            return jax.lax.map(f, part, batch_size=self.clients) if self.clients else jax.vmap(f)(part)

        return self._divided(mine, clients)

    def over_rows(self, f: Callable, *rows: Array) -> Any:
        """`f` of flat rows, which gives outputs a row, in passes of at most `self.rows`."""
        return self._divided(lambda part: self._over_rows(f, *part), rows)

    def _divided(self, f: Callable, part: Any) -> Any:
        """`f`, which keeps a leading axis, of this device's share of it, and what came of all shares."""
        if self.shares[1] == 1:
            return f(part)
        return gathered(f(share(part, self.shares[1])), jax.tree.leaves(part)[0].shape[0])

    def _over_rows(self, f: Callable, *rows: Array) -> Any:
        n = rows[0].shape[0]
        whole = n // self.rows
        if whole <= 1 and n <= self.rows:
            return f(*rows)
        cut = whole * self.rows
        blocks = [r[:cut].reshape(whole, self.rows, *r.shape[1:]) for r in rows]
        done = jax.tree.map(lambda a: a.reshape(cut, *a.shape[2:]), jax.lax.map(lambda b: f(*b), blocks))
        if cut == n:
            return done
        rest = f(*(r[cut:] for r in rows))
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), done, rest)


def owned(axes: Any, args: Any) -> list[bool]:
    """Whether each array of `args` has a leading `R`, by `axes` as `jax.vmap` takes them."""
    own = jax.tree.map(
        lambda axis, part: jax.tree.map(lambda _: axis is not None, part), axes, args, is_leaf=lambda a: a is None
    )
    return jax.tree.leaves(own)


def share(part: Any, among: int) -> Any:
    """The part of one device of a leading axis that is divided among the clients' devices, filled up with zeros."""

    def mine(leaf):
        size = -(-leaf.shape[0] // among)
        filled = jnp.concatenate([leaf, jnp.zeros((among * size - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])
        return jax.lax.dynamic_slice_in_dim(filled, jax.lax.axis_index(CLIENTS) * size, size)

    return jax.tree.map(mine, part)


def gathered(part: Any, length: int) -> Any:
    """The parts of all clients' devices behind each other, without what they were filled up with."""
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, CLIENTS, tiled=True)[:length], part)


def exchanged(total: Variables, part: Any, length: int) -> tuple[Variables, Any]:
    """The sum of all clients' devices' totals, and their parts as `gathered` has them.

    Each message makes every device wait for the slowest, so arrays of one number a client travel with the total: as
    two halves of 16 bits, to which float32 adds the other devices' zeros exactly.
    """
    leaves, tree = jax.tree.flatten(part)
    short = [i for i, leaf in enumerate(leaves) if leaf.ndim == 1 and leaf.dtype in WORDS]
    words = jnp.stack([as_word(leaves[i]) for i in short], axis=1)
    mine = jnp.concatenate([words & 0xFFFF, words >> 16], axis=1).astype(jnp.float32)
    size, columns = mine.shape
    of_all = jnp.zeros((size * jax.lax.axis_size(CLIENTS), columns))
    of_all = jax.lax.dynamic_update_slice_in_dim(of_all, mine, jax.lax.axis_index(CLIENTS) * size, axis=0)
    total, of_all = jax.lax.psum((total, of_all), CLIENTS)
    low, high = jnp.split(of_all[:length].astype(jnp.uint32), 2, axis=1)
    for leaf, column in zip(short, (low | high << 16).T, strict=True):
        leaves[leaf] = from_word(column, leaves[leaf].dtype)
    rest = [i for i in range(len(leaves)) if i not in short]
    for i, leaf in zip(rest, gathered([leaves[i] for i in rest], length), strict=True):
        leaves[i] = leaf
    return total, tree.unflatten(leaves)


WORDS = (jnp.bool, jnp.int32, jnp.uint32, jnp.float32)
"""What fits a word of 32 bits."""


def as_word(numbers: Array) -> Array:
    """The bits of each number."""
    numbers = numbers.astype(jnp.uint32) if jnp.isdtype(numbers.dtype, "bool") else numbers
    return jax.lax.bitcast_convert_type(numbers, jnp.uint32)


def from_word(words: Array, dtype: Any) -> Array:
    """The numbers with these bits."""
    return words != 0 if jnp.isdtype(dtype, "bool") else jax.lax.bitcast_convert_type(words, dtype)


def chosen(
    mapping: Mapping | str | None,
    work: float,
    row: float,
    mesh: tuple[int, int] | str | None = None,
    *,
    runs: int = 1,
    members: int = 1,
) -> Mapping:
    """The mapping to use.

    Args:
      mapping: a `Mapping`, or None or `"auto"`, `"vmap"`, `"scan"`.
      work: floating-point operations of one client's forward and backward step.
      row: of one row's forward pass.
      mesh: of devices; `"auto"`: as `among_cores` has it; None: the mapping's own.
      runs, members: what there is to divide: seeds, and clients of a cohort.

    Raises:
      ValueError: another name, or a mesh of other devices than there are.
    """
    if mesh in (None, "auto") and isinstance(mapping, Mapping) and mapping.mesh is not None:
        mesh = mapping.mesh
    if isinstance(mesh, str) and mesh != "auto":
        raise ValueError(f"mesh is {mesh!r}; it must be 'auto', or two numbers of devices (seeds, clients)")
    if mesh == "auto" and jax.process_count() == 1:
        mesh = among_cores(runs, members)
    else:
        mesh = None if isinstance(mesh, str) else mesh
        check_mesh(mesh)
    if isinstance(mapping, Mapping):
        return replace(mapping, mesh=mesh)
    on_cpu = jax.default_backend() == "cpu"
    least, work_at_once = (LEAST_ROWS, LARGE_PASS) if on_cpu else (4 * LEAST_ROWS, 10 * LARGE_PASS)
    rows = int(min(MOST_ROWS, max(least, work_at_once / max(row, 1.0))))
    known = {"vmap": Mapping(rows=rows, mesh=mesh), "scan": Mapping(clients=1, seeds="scan", rows=rows, mesh=mesh)}
    if mapping in known:
        return known[mapping]
    if mapping not in (None, "auto"):
        raise ValueError(f"mapping is {mapping!r}; it must be 'auto', 'vmap', 'scan' or a Mapping")
    # On a CPU a large step keeps the cores busy by itself and stacking costs memory; a small one drowns in overhead.
    if on_cpu and work >= SMALL_STEP:
        return known["scan"]
    # Seeds as well, but on a CPU not more than what they touch in a step stays in the caches.
    runs, members = (-(-whole // share) for whole, share in zip((runs, members), mesh or (1, 1), strict=True))
    in_turn = on_cpu and runs > 1 and work * runs * members > LARGE_STEP
    return replace(known["vmap"], seeds="scan") if in_turn else known["vmap"]


def among_cores(runs: int, members: int) -> tuple[int, int] | None:
    """The mesh by which a CPU that JAX sees as several devices has least to do after one another; else None.

    A core that has its own clients needs not wait for another in every operation: rounds of small models took .6 to
    .8 of the time, of convolutions .7 to .9, seeds side by side .5 to .65 (2 cores, `benchmarks/NOTES.md`).

    Args:
      runs: seeds.
      members: clients that train in a round.
    """
    if jax.default_backend() != "cpu":
        return None
    devices = jax.local_device_count()
    shapes = [(seeds, clients) for seeds in range(1, devices + 1) for clients in range(1, devices // seeds + 1)]
    best = min(shapes, key=lambda mesh: (-(-runs // mesh[0]) * -(-members // mesh[1]), math.prod(mesh), -mesh[0]))
    return None if best == (1, 1) else best


def check_mesh(mesh: tuple[int, int] | None) -> None:
    """Raise `ValueError` where a mesh does not take all devices, or several processes have none."""
    there = jax.device_count()
    if mesh is None:
        if jax.process_count() > 1:
            raise ValueError(
                f"{jax.process_count()} processes would all do the same; divide the run among their {there} devices, "
                f"as in --mesh seeds={there},clients=1"
            )
        return
    if len(mesh) != 2 or any(not isinstance(k, int) or k < 1 for k in mesh) or mesh[0] * mesh[1] != there:
        wanted = " x ".join(map(str, mesh))
        devices = "is 1 device" if there == 1 else f"are {there} devices"
        raise ValueError(
            f"the mesh is {wanted} (seeds, clients), but there {devices}; "
            f"the product of two whole numbers must be {there}, as in --mesh seeds={there},clients=1"
        )


MOST_ROWS = 8192
"""Rows in one flat forward pass over the global model."""

LARGE_STEP = 2e7
"""Floating-point operations of all clients' steps of all seeds of a device beyond which a CPU takes seeds in turn.

16 seeds on 2 cores, time by scan over time by vmap: 1.9 at 1.7e4 (Iris), 1.1 at 1.7e6 and 1.0 at 1.6e7 (digits,
logistic regression and 64-64-30-10), 0.6 to 0.9 at 4.3e7 (MNIST, logistic regression).
"""

LARGE_PASS, LEAST_ROWS = 1e9, 64
"""Floating-point operations of a flat pass on a CPU beyond which it has fewer rows, but not fewer than so many.

What a pass holds at once grows with its work, and falls out of the caches: 10,000 rows of 32x32x3 through two
convolutions (1.7e7 a row) took 3.4 s in passes of 64 or 128, 4.3 in passes of 590, 3.6 of 16 (2 cores); ResNet-20 (8e7)
12.4 s in passes of 64, 13.3 of 256. An accelerator holds ten times as much, unmeasured.
"""

SMALL_STEP = 5e7
"""Floating-point operations of a step up to which a CPU gains by stacking clients and seeds.

Measured on 2 cores that were one device: scanning took 1.2 to 1.7 times as long as stacking at 5e5 (logistic
regression, 784 features, B = 10), 1.2 to 1.3 times at 2e7 (784-64-30-10, B = 64). Larger steps are scanned, unmeasured.
`python -m benchmarks --only mappings` measures all of it again.
"""
