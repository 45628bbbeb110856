"""Execution of an axis: all at once, sequentially, in blocks, or on many devices. No other module knows which."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from fedjax_sel.arrays import add_weighted, fill_to, take, widen
from fedjax_sel.collectives import CLIENTS, exchange, gather, share, unite
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.pytree import is_whole, to_plain
from fedjax_sel.types import Update, Variables

SEEDS = "seeds"
"""The mesh axis over which seeds are divided; `collectives.CLIENTS` is the other axis."""

SIDE_BY_SIDE = "seeds side by side"
"""The vmap axis of the seeds that run on one device."""


@dataclass(frozen=True)
class Layout:
    """How a compiled run is laid out. Results agree between layouts to float tolerance.

    Attributes:
      clients: how many clients' models run side by side (vmap), block after block (scan); None: the whole cohort, or
        all clients where all are measured or evaluated.
      seeds: `"vmap"`, all seeds side by side, or `"scan"`, one after another, still in one program.
      examples: examples in one flat forward pass through the global model.
      mesh: over how many devices the seeds, and the clients of each seed's cohort, are divided; None: one device.
      members: how many members of a cohort train side by side; None: as `clients` says.
      balanced: whether members are dealt to devices by their steps, and train the longest first, so that devices wait
        less for each other, and members side by side end together; otherwise in the order of the cohort. It has no
        effect on a cohort that trains side by side. None: if clients' steps differ. Always false in a run that keeps
        all updates of a cohort, which would have to be put back in order.
    """

    clients: int | None = None
    seeds: str = "vmap"
    examples: int = 8192
    mesh: tuple[int, int] | None = None
    members: int | None = None
    balanced: bool | None = None

    def __post_init__(self):
        """Raises `ValueError` for an unknown way of running seeds, or a field of another type or below 1."""
        if self.seeds not in ("vmap", "scan"):
            raise ValueError(f"layout: seeds is {self.seeds!r}; it must be 'vmap' or 'scan'")
        if not isinstance(self.balanced, bool | None):
            raise ValueError(f"layout: balanced is {self.balanced!r}; it must be true, false or null")
        if isinstance(self.mesh, list | tuple):
            object.__setattr__(self, "mesh", tuple(map(to_plain, self.mesh)))  # hashable, with Python numbers
        for name in ("clients", "examples", "members"):
            value = to_plain(getattr(self, name))
            object.__setattr__(self, name, value)
            if not (name != "examples" and value is None) and (not is_whole(value) or value < 1):
                raise ValueError(f"layout: {name} is {value!r}; it must be a whole number, at least 1")

    def __str__(self) -> str:
        """Describes the layout as printed when a run starts."""
        ways = {None: "vmap", 1: "scan"}
        clients, members = (ways.get(k, f"scan over vmap of {k}") for k in (self.clients, self.members))
        mesh = "" if self.mesh is None else ", on a mesh of {} x {} devices (seeds, clients)".format(*self.mesh)
        training = f", training by {members}" if self.members else ""
        order = ", the longest first" if self.balanced and (self.members or self.clients) else ""
        return f"seeds by {self.seeds}, clients by {clients}{training}{order}{mesh}"

    @property
    def shares(self) -> tuple[int, int]:
        """The numbers of devices over which seeds, and clients, are divided."""
        return self.mesh or (1, 1)

    def devices(self) -> jax.sharding.Mesh:
        """Returns the mesh of the devices in use, on all hosts."""
        axes = (jax.sharding.AxisType.Auto,) * 2
        return jax.make_mesh(self.shares, (SEEDS, CLIENTS), axes, devices=jax.devices()[: math.prod(self.shares)])

    def own_devices(self) -> tuple[Any, ...]:
        """Returns the devices in use, if this process has all of them; otherwise none."""
        found = tuple(self.devices().devices.flat)
        return found if {one.process_index for one in found} == {jax.process_index()} else ()

    def sharding(self, has_own: bool) -> NamedSharding:
        """Returns the sharding of an array on the mesh: divided along its leading seeds, or replicated."""
        divided = has_own and self.shares[0] > 1  # programs return what is whole on one device as replicated
        return NamedSharding(self.devices(), PartitionSpec(SEEDS) if divided else PartitionSpec())

    def over_seeds(self, f: Callable, args: tuple, axes: tuple) -> Any:
        """Returns `f(*args)` for every seed; `axes`, as in `jax.vmap`: 0 for a leading `R`, None for shared arrays."""
        if self.mesh is None:
            return self._on_one_device(f, args, axes)
        leaves, tree = jax.tree.flatten(args)
        specs = [PartitionSpec(SEEDS) if own else PartitionSpec() for own in has_leading_axis(axes, args)]
        return jax.shard_map(
            lambda *leaves: self._on_one_device(f, tree.unflatten(leaves), axes),
            mesh=self.devices(),
            in_specs=tuple(specs),
            out_specs=PartitionSpec(SEEDS),
            check_vma=False,  # values replicated over clients' devices agree, as each computes the same
        )(*leaves)

    def _on_one_device(self, f: Callable, args: tuple, axes: tuple) -> Any:
        leaves, tree = jax.tree.flatten(args)
        has_own = has_leading_axis(axes, args)
        mapped = [leaf for leaf, has in zip(leaves, has_own, strict=True) if has]

        def one(mine):
            mine = iter(mine)
            chosen = [next(mine) if has else leaf for leaf, has in zip(leaves, has_own, strict=True)]
            return f(*tree.unflatten(chosen))

        if {leaf.shape[0] for leaf in mapped} == {1}:  # a seed alone: its program is smaller without the axis
            return jax.tree.map(lambda a: jnp.expand_dims(a, 0), one([leaf[0] for leaf in mapped]))
        if self.seeds == "vmap":
            return jax.vmap(f, in_axes=axes, axis_name=SIDE_BY_SIDE)(*args)
        return jax.lax.map(one, mapped)

    def train(
        self,
        one: Callable[[Any, Int[Array, ""]], tuple[Update, Any]],
        members: Any,
        steps: Int[Array, "m"],
        weight: Float[Array, "m"],
        like: Variables,
        *,
        stacked: bool,
    ) -> tuple[Variables, tuple[Update, Any], Variables | None]:
        """Trains a cohort.

        Args:
          one: trains one member, in a loop of the given number of steps, and reports on it.
          members: pytree with a leading `m`: what `one` gets for each member.
          steps: steps that each member needs.
          weight: weight of each delta in the sum.
          like: variables of one client.
          stacked: whether to keep every delta.

        Returns:
          `Σ_i weight_i delta_i`; the updates without their `delta`, and the reports, with a leading `m`; every `delta`
          with a leading `m` if `stacked`, otherwise None.
        """

        def mine(part):
            members, steps, weight = part
            return self._train(one, members, steps, weight, like, stacked=stacked)

        m, devices = weight.shape[0], self.shares[1]
        side = self.members or self.clients or m
        dealt = deal(steps, devices) if self.balanced and side < m else None
        part = members, steps, weight
        part = part if dealt is None else jax.tree.map(lambda a: fill_to(a, len(dealt))[dealt], part)
        total, each = mine(part) if devices == 1 else exchange(*mine(share(part, devices)), len(part[-1]))
        if dealt is not None:
            place = jnp.argsort(dealt)[:m]
            each = jax.tree.map(lambda a: take(a, place), each)
        update, report, deltas = each
        return total, (update, report), deltas

    def _train(self, one, members, steps, weight, like, *, stacked):
        m = weight.shape[0]
        k = min(self.members or self.clients or m, m)
        blocks = -(-m // k)

        def in_blocks(leaf):  # pad the last block with members of no steps and zero weight
            return fill_to(leaf, blocks * k).reshape(blocks, k, *leaf.shape[1:])

        def block(total, xs):
            members, steps, weight = xs
            bound = share_bound(steps)
            if k == 1:
                trained = one(jax.tree.map(lambda a: a[0], members), bound)
                update, report = jax.tree.map(lambda a: a[None], trained)
            else:
                update, report = jax.vmap(one, in_axes=(0, None))(members, bound)
            total = jax.tree.map(lambda a, d: a + add_weighted(weight, d), total, update.delta)
            return total, (replace(update, delta=None), report, update.delta if stacked else None)

        zero = jax.tree.map(jnp.zeros_like, widen(like))
        if blocks == 1:
            return block(zero, (members, steps, weight))
        total, updates = jax.lax.scan(block, zero, jax.tree.map(in_blocks, (members, steps, weight)))
        return total, jax.tree.map(lambda a: a.reshape(blocks * k, *a.shape[2:])[:m], updates)

    def over_clients(self, f: Callable, clients: Any) -> Any:
        """Maps `f` over a leading axis of clients, `self.clients` side by side, or all of them."""

        def mine(part):
            return jax.lax.map(f, part, batch_size=self.clients) if self.clients else jax.vmap(f)(part)

        return self._divide(mine, clients)

    def size_of_blocks(self, longest: int, mean: float) -> int:
        """Returns the size of the blocks of a client's examples; clients have at most `longest`, on average `mean`.

        >>> Layout().size_of_blocks(30, 20.0), Layout().size_of_blocks(500, 20.0)
        (30, 24)
        """
        usual = longest if longest <= 2 * mean else 8 * math.ceil(mean / 8)
        return min(usual, self.examples)

    def over_blocks(
        self,
        f: Callable[[Any, Int[Array, "b"]], Any],
        finish: Callable[[Any], Any],
        clients: Any,
        count: Int[Array, "k"],
        longest: int,
        size: int,
        like: Any,
    ) -> Any:
        """Sums over clients' examples in blocks, as many as the examples need, instead of the longest client's for all.

        Args:
          f: returns what the examples at these places, 0 to `count - 1` of a client, add to its sum; places beyond add
            nothing.
          finish: turns a client's sum into what is returned of it.
          clients: pytree with a leading `k`: what `f` gets of each client.
          count: number of each client's examples.
          longest: the most that a client can have.
          size: places of a block; as many blocks are side by side as clients in training.
          like: a sum, for its structure, shapes and types.

        Returns:
          What `finish` returned, with a leading `k`.
        """
        if size == longest:
            return self.over_clients(lambda client: finish(f(client, jnp.arange(longest))), clients)
        return self._divide(lambda part: self._over_blocks(f, finish, part, longest, size, like), (clients, count))

    def _over_blocks(self, f, finish, part, longest, size, like):
        clients, count = part
        k = count.shape[0]
        width = min(self.clients or k, k)  # blocks side by side
        blocks = -(-count // size)
        ends = jnp.cumsum(blocks)
        zero = jax.tree.map(jnp.zeros_like, like)

        def step(i, carry):
            kept, done = carry
            block = i * width + jnp.arange(width)
            owner = jnp.searchsorted(ends, block, side="right")  # k: there is no such block
            own = jax.tree.map(lambda a: take(a, jnp.minimum(owner, k - 1)), (clients, blocks, ends))
            mine, blocks_of, end = own
            before = jnp.where(owner < k, block - end + blocks_of, longest)  # blocks of the same client before this one
            place = before[:, None] * size + jnp.arange(size)[None]
            if width == 1:
                added = jax.tree.map(lambda a: a[None], f(jax.tree.map(lambda a: a[0], mine), place[0]))
            else:
                added = jax.vmap(f)(mine, place)
            rank = jnp.cumsum(owner != jnp.concatenate([owner[:1], owner[:-1]]))
            sums = jax.tree.map(lambda a: jax.ops.segment_sum(a, rank, width, indices_are_sorted=True), added)
            sums = jax.tree.map(lambda a, b: a.at[0].add(jnp.where(before[0] == 0, 0, b)), sums, kept)
            who = jnp.full(width, k).at[rank].set(owner)
            done = jax.tree.map(lambda a, b: a.at[who].set(b, mode="drop"), done, jax.vmap(finish)(sums))
            return jax.tree.map(lambda a: a[rank[-1]], sums), done

        nothing = jax.tree.map(lambda a: jnp.broadcast_to(a, (k, *jnp.shape(a))), finish(zero))
        steps = share_bound(-(-ends[-1:] // width))
        return jax.lax.fori_loop(0, steps, step, (zero, nothing))[1]

    def over_examples(self, f: Callable, *arrays: Any) -> Any:
        """Applies `f`, which returns outputs per example, to flat examples in passes of at most `self.examples`."""
        return self._divide(lambda part: self._over_examples(f, *part), arrays)

    def over_filled(
        self, f: Callable[[Int[Array, "b"]], Any], index: Int[Array, "k L"], count: Int[Array, "k"], usual: float
    ) -> Any:
        """Applies `f` to the examples that clients have, in as many passes as these need, whatever `L` is.

        Devices get equal numbers of examples, whichever client owns them.

        Args:
          f: returns a number, or several, of each of these examples, given as indices.
          index: each client's examples; those after its `count` repeat its last one.
          count: number of each client's examples.
          usual: number of examples that a client has on average.

        Returns:
          What `f` returned, with leading `k L`; 0 of a client without examples.
        """
        k, longest = index.shape
        devices, ends = self.shares[1], jnp.cumsum(count)
        own = -(-ends[-1:] // devices)
        begin = own * jax.lax.axis_index(CLIENTS) if devices > 1 else 0 * own
        end = jnp.minimum(begin + own, ends[-1:])
        size = min(self.examples, 8 * math.ceil(k * usual / devices / 16))  # two passes, usually

        def step(i, done):
            place = begin + i * size + jnp.arange(size)
            owner = jnp.searchsorted(ends, place, side="right")  # k: there is no such example
            place_of_own = place - take(ends - count, owner)
            found = f(index.at[owner, place_of_own].get(mode="clip"))
            owner = jnp.where(place < end, owner, k)
            return jax.tree.map(lambda a, b: a.at[owner, place_of_own].set(b, mode="drop"), done, found)

        like = jax.eval_shape(f, index[0, :size])
        nothing = jax.tree.map(lambda a: jnp.zeros((k, longest, *a.shape[1:]), a.dtype), like)
        done = jax.lax.fori_loop(0, share_bound(-(-(end - begin) // size)), step, nothing)
        done = unite(done) if devices > 1 else done
        last = jnp.minimum(jnp.arange(longest)[None], jnp.maximum(count, 1)[:, None] - 1)
        return jax.tree.map(lambda a: jax.vmap(take)(a, last), done)

    def over_own_examples(self, f: Callable, *arrays: Any) -> Any:
        """Applies `f`, which returns outputs per example, to one client's examples; in passes if clients take turns.

        Clients that run side by side have small models, and so hold little at once.
        """
        return self._over_examples(f, *arrays) if self.clients == 1 else f(*arrays)

    def over_examples_of(self, f: Callable, data: FederatedData, index: Int[Array, "b"] | None = None) -> Any:
        """Applies `f(x, y)` by `over_examples` to the clients' examples at `index`; None: to all.

        If examples stay on the host, a device holds those of one pass at a time.
        """
        if data.stays_on_host:
            index = jnp.arange(len(data.x)) if index is None else index
            return self.over_examples(lambda some: f(data.x[some], data.y[some]), index)
        return self.over_examples(f, *((data.x, data.y) if index is None else (data.x[index], data.y[index])))

    def _divide(self, f: Callable, part: Any) -> Any:
        """Applies `f`, which keeps the leading axis, to this device's share of it, and gathers all shares' results."""
        if self.shares[1] == 1:
            return f(part)
        return gather(f(share(part, self.shares[1])), jax.tree.leaves(part)[0].shape[0])

    def _over_examples(self, f: Callable, *arrays: Array) -> Any:
        n = arrays[0].shape[0]
        if n <= self.examples:
            return f(*arrays)
        passes = -(-n // self.examples)
        size = min(self.examples, 8 * -(-n // (8 * passes)))  # a multiple of 8, for convolutions in equal blocks

        def one(start):
            return f(*(jax.lax.dynamic_slice_in_dim(a, start, size) for a in arrays))

        # The last pass starts early enough to be as long as the others, so that `f` is compiled once.
        last = n - size
        done = jax.lax.map(one, jnp.minimum(jnp.arange(passes) * size, last))
        known = (passes - 1) * size
        return jax.tree.map(
            lambda a: jnp.concatenate([a[:-1].reshape(known, *a.shape[2:]), a[-1, known - last :]]), done
        )


ONE_BY_ONE = Layout(clients=1, seeds="scan")
"""The layout of least memory: one run and one client at a time."""


def deal(load: Int[Array, "m"], among: int) -> Int[Array, "q"]:
    """Returns an order of members whose `among` equal parts have similar loads, each part with its largest loads first.

    The largest loads go first, one to each part; then the next largest, the largest of them to the least loaded part.
    The order's length is `m`, rounded up to a multiple of `among`; numbers from `m` on, at the ends of parts, stand for
    nobody.

    >>> deal(jnp.array([1, 9, 5, 4, 2]), 2)
    Array([1, 4, 5, 2, 3, 0], dtype=int32)
    """
    load = fill_to(load, among * -(-len(load) // among))

    def give(total, members):
        part = jnp.argsort(total)
        return total.at[part].add(load[members]), jnp.zeros_like(members).at[part].set(members)

    in_turn = jnp.argsort(-load).reshape(-1, among)
    return jax.lax.scan(give, jnp.zeros(among, load.dtype), in_turn)[1].T.ravel()


def has_leading_axis(axes: Any, args: Any) -> list[bool]:
    """Returns whether each array of `args` has a leading `R`, according to `axes` in the form of `jax.vmap`."""
    own = jax.tree.map(
        lambda axis, part: jax.tree.map(lambda _: axis is not None, part), axes, args, is_leaf=lambda a: a is None
    )
    return jax.tree.leaves(own)


def share_bound(steps: Int[Array, "k"]) -> Int[Array, ""]:
    """Returns the bound of a loop of clients side by side: one for all vmapped seeds, so that they share the loop."""
    bound = steps.max()
    try:
        return jax.lax.pmax(bound, SIDE_BY_SIDE)
    except NameError:  # seeds in turn, or one alone: there is no such axis
        return bound
