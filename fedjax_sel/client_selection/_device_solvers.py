"""Three solvers for the set of `s` devices with the largest `H`.

`exact` finds the optimum for any `N`, `exhaustive` for small `N`; `greedy` is the source's algorithm, which nearly
always finds it. Among equally good sets, the first one wins. All are pure functions, traced in `f`, the weights, `s`
and `available`.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection._device_heuristic import Choice, Weights, heuristic

MOST_ENUMERATED = 16
"""Largest `N` for which all subsets are enumerated."""


@partial(jax.jit, static_argnames=("starts", "reading", "block"))
def greedy(
    f: Float[Array, "4 N"],
    weights: Weights,
    s: Int[Array, ""] | int,
    available: Bool[Array, "N"] | None = None,
    *,
    starts: str = "every",
    reading: str = "union",
    block: int = 256,
) -> Choice:
    """Returns the set of Algorithm 1, which grows a set greedily from each first device and keeps the best one.

    Takes `O(N² s)` time.

    Args:
      f: properties.
      weights: α, β, γ, δ.
      s: devices to select; all available ones if fewer are available.
      available: which devices may be chosen; None: all.
      starts: `"every"` starts once from each device; `"best"` starts only from the best single device, which the source
        advises against: it finds the optimum far less often.
      reading: what the next device maximises: `"union"`, `H(S ∪ {n})`, as in the source's prose; `"alone"`, `H({n})`,
        the literal reading of the pseudocode's `argmax H(S~)` over the remaining devices, which ignores the devices
        chosen so far.
      block: number of first devices tried in parallel; memory is `O(block N)`.

    Source: section 4.2. We read `S_j ∪ n_max` in the pseudocode as an assignment, and F, which is H plus a constant, as
    H.
    """
    if starts not in ("every", "best") or reading not in ("union", "alone"):
        raise ValueError(
            f"greedy: starts is {starts!r} and reading {reading!r}; "
            "allowed are 'every' or 'best', and 'union' or 'alone'"
        )
    n = f.shape[1]
    worth, network, delta = weights.worth(f), f[3], weights.delta
    available = jnp.ones(n, bool) if available is None else available
    count = jnp.minimum(s, available.sum())
    place = jnp.arange(n)

    def grow(first):
        def add(k, carry):  # the k members have the sum of worths `total` and the worst network `weakest`
            # Alg. 1, the inner loop: n_max = argmax H(S ∪ {n}), then S_j ← S_j ∪ {n_max}
            free, total, weakest = carry
            if reading == "union":
                score = (total + worth) / (k + 1) + delta * jnp.minimum(weakest, network)
            else:
                score = worth + delta * network
            score = jnp.where(free, score, -jnp.inf)
            best = jnp.where(score == score.max(), place, n - 1).min()  # argmax, in reductions that vectorise
            return free & (place != best), total + worth[best], jnp.minimum(weakest, network[best])

        start = available & (place != first), worth[first], network[first]
        free, total, weakest = jax.lax.fori_loop(1, count, add, start)
        value = total / jnp.maximum(count, 1) + delta * weakest
        return available & ~free, jnp.where(available[first], value, -jnp.inf)

    if starts == "best":
        first = jnp.argmax(jnp.where(available, worth + delta * network, -jnp.inf))
    else:
        # Alg. 1, the outer loop and its result: argmax_j F(S_j)
        first = jnp.argmax(jax.lax.map(lambda j: grow(j)[1], place, batch_size=min(block, n)))
    mask = grow(first)[0]
    return Choice(mask, heuristic(f, weights, mask))


@jax.jit
def exact(
    f: Float[Array, "4 N"],
    weights: Weights,
    s: Int[Array, ""] | int,
    available: Bool[Array, "N"] | None = None,
) -> Choice:
    """Returns the optimal set, in `O(N log N)` time and `O(N)` memory.

    If `j` has the worst network in `S`, the other members are the devices of highest worth among those whose network is
    no worse. With the devices sorted by descending f4, therefore, `S = {j} ∪ top-(s-1) worths before j` for some `j`;
    all `j` are evaluated at once. The top worths of each prefix depend on ranks alone (`rank_in_prefix`), and from one
    prefix to the next their sum changes by at most one exchange.

    Args:
      f: properties.
      weights: α, β, γ, δ, of any sign.
      s: devices to select; all available ones if fewer are available.
      available: which devices may be chosen; None: all.
    """
    n = f.shape[1]
    available = jnp.ones(n, bool) if available is None else available
    count = jnp.minimum(s, available.sum())
    others = count - 1

    order = jnp.argsort(jnp.where(available, -f[3], jnp.inf), stable=True)  # unavailable devices come last
    network, worth = f[3][order], weights.worth(f)[order]
    by_worth = jnp.argsort(-worth, stable=True)
    rank = jnp.zeros(n, jnp.int32).at[by_worth].set(jnp.arange(n, dtype=jnp.int32))

    # The other members for place j are the devices before it of rank <= last[j], if enough devices precede it.
    last = rank_in_prefix(rank, others)
    place = jnp.arange(n)
    newcomer, worst = jnp.roll(rank, 1), jnp.roll(last, 1)  # the device right before j, and the one it has to beat
    enters = (place > others) & (newcomer < worst)
    gain = jnp.where(enters, worth[by_worth[newcomer]] - worth[by_worth[worst]], 0)
    total = jnp.where(place < others, worth, 0).sum() + jnp.cumsum(gain)

    value = (worth + jnp.where(others > 0, total, 0)) / jnp.maximum(count, 1) + weights.delta * network
    j = jnp.argmax(jnp.where((place >= others) & available[order], value, -jnp.inf))
    chosen = (place == j) | ((place < j) & (rank <= last[j]) & (others > 0))
    mask = jnp.zeros(n, bool).at[order].set(chosen) & available
    return Choice(mask, heuristic(f, weights, mask))


def rank_in_prefix(rank: Int[Array, "N"], k: Int[Array, ""] | int) -> Int[Array, "N"]:
    """Returns the `k`-th smallest (from 1) of `rank[:e]` for every `e` in `0..N-1`; meaningless where `e < k`.

    All prefixes descend the `⌈log2 N⌉` levels of a wavelet matrix together. Each level partitions the numbers stably by
    one bit, so a prefix stays an interval.

    Args:
      rank: a permutation of `0..N-1`.
      k: which smallest number, from 1.

    Source: Claude and Navarro, "The Wavelet Matrix", 2012, https://doi.org/10.1007/978-3-642-34109-0_18.
    """
    n = rank.shape[0]
    bits = max(1, (n - 1).bit_length())
    place = jnp.arange(n, dtype=jnp.int32)

    def level(i, carry):
        sequence, low, high, left, found = carry
        bit = bits - 1 - i
        one = (sequence >> bit) & 1
        zeros = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(1 - one, dtype=jnp.int32)])  # before each place
        inside = zeros[high] - zeros[low]
        up = left > inside
        low, high = (jnp.where(up, zeros[-1] + end - zeros[end], zeros[end]) for end in (low, high))
        parted = jnp.where(one == 1, zeros[-1] + place - zeros[:-1], zeros[:-1])
        sequence = jnp.zeros_like(sequence).at[parted].set(sequence, unique_indices=True)
        return sequence, low, high, left - jnp.where(up, inside, 0), found | (up.astype(jnp.int32) << bit)

    none = jnp.zeros(n, jnp.int32)
    start = rank.astype(jnp.int32), none, place, jnp.broadcast_to(jnp.asarray(k, jnp.int32), (n,)), none
    return jnp.minimum(jax.lax.fori_loop(0, bits, level, start)[-1], n - 1)


def exhaustive(
    f: Float[Array, "4 N"],
    weights: Weights,
    s: Int[Array, ""] | int,
    available: Bool[Array, "N"] | None = None,
) -> Choice:
    """Returns the optimal set by enumerating all sets ("set-based selection"); for `N <= 16`.

    Args:
      f: properties.
      weights: α, β, γ, δ.
      s: devices to select; all available ones if fewer are available.
      available: which devices may be chosen; None: all.

    Raises:
      ValueError: `N` is larger; the message gives the number of sets.
    """
    check_enumerable(f.shape[1], s if isinstance(s, int) else None)
    return _exhaustive(f, weights, s, available)


@jax.jit
def _exhaustive(f, weights, s, available):
    n = f.shape[1]
    available = jnp.ones(n, bool) if available is None else available
    count = jnp.minimum(s, available.sum())
    sets = ((jnp.arange(2**n)[:, None] >> jnp.arange(n)[None]) & 1).astype(bool)
    allowed = (sets.sum(1) == count) & ~(sets & ~available[None]).any(1)
    values = jax.vmap(heuristic, in_axes=(None, None, 0))(f, weights, sets)
    mask = sets[jnp.argmax(jnp.where(allowed, values, -jnp.inf))] & (count > 0)
    return Choice(mask, heuristic(f, weights, mask))


SOLVERS = {"exact": exact, "greedy": greedy, "exhaustive": exhaustive}
"""Solvers by name; the first and the last are certain to find the best set."""


def check_enumerable(clients: int, s: int | None) -> None:
    """Raises `ValueError` if `N` devices have too many subsets of size `s` to enumerate."""
    if clients > MOST_ENUMERATED:
        sets = f"2^{clients}" if s is None else f"{math.comb(clients, s):,}"
        wanted = "" if s is None else f" of {s}"
        raise ValueError(
            f"exhaustive search over N = {clients} devices would look at {sets} subsets{wanted}; at most "
            f"N = {MOST_ENUMERATED} are searched. The solver 'exact' finds the same optimum in O(N log N)"
        )
