"""The state carried from round to round, and the record of each round, which leaves the scan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.engine.ledger import BY_LIMIT, Ledger
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Cohort, StrategyState, Variables

Values = dict[str, Array]
"""Signals by name."""


class RoundState(Pytree):
    """What is carried from round to round.

    Attributes:
      variables: the global model.
      client_selection, data_selection, correction, aggregation: states of the strategies.
      data_server: what the data selector keeps on the server.
      change: change of the global model in the previous round; None if no signal refers to it.
      personal: parts of the model that each client keeps for itself, with a leading `N`; `()` if all parts are shared.
      alive: true until the seed diverges (`engine.nonfinite`); from then on nothing changes.
    """

    variables: Variables
    client_selection: StrategyState
    aggregation: StrategyState
    alive: Bool[Array, ""]
    correction: StrategyState = ()
    data_selection: StrategyState = ()
    data_server: StrategyState = ()
    personal: Variables = ()
    change: Variables | None = None


def keep_returned(states: Any, back: Cohort, new: Any) -> Any:
    """Returns what every client keeps, replaced for the members that returned.

    Args:
      states: before the round, with a leading `N`.
      back: the cohort, its mask that of the members that returned.
      new: of each member after the round, with a leading `m`.
    """
    return jax.tree.map(lambda old, leaf: old.at[back.returned].set(leaf, mode="drop"), states, new)


class FaultCounts(Pytree):
    """Counts of each fault (`engine.faults`) in a round, as one array: each array that leaves a scan takes time.

    Attributes:
      counts: counts, with an axis of faults as the last.
      names: names of the faults.
    """

    counts: Int[Array, "*rounds k"]
    names: tuple[str, ...] = static(default=())


def pack_faults(faults: dict[str, Any]) -> FaultCounts:
    """Packs counts by name into one array.

    >>> pack_faults({"twice": jnp.int32(2), "outside": jnp.int32(0)}).counts.tolist()
    [2, 0]
    """
    return FaultCounts(jnp.stack([jnp.asarray(n, jnp.int32) for n in faults.values()]), tuple(faults))


class RoundRecord(Pytree):
    """What one round measured; with leading axes for several seeds and rounds.

    Attributes:
      loss, accuracy: of the new global model on the test examples (loss in nats); NaN if it was not evaluated. Accuracy
        is None if targets are not classes.
      training_loss: weighted mean, in nats, of the losses that the merged members report from their training.
      client: the cohort; `PAD_CLIENT` in empty slots.
      ledger: what the round used.
      probe: what its probe used; None if the selector never probes.
      alive: whether the seed is still finite after the round.
      faults: counts of invalid values from strategies, as `FaultCounts`; or by name, in a record that was flattened.
      idle: whether no update came back.
      metrics: the task's other metrics by name, on the test examples, a number or one for each class; NaN if they were
        not measured.
      clients: all metrics by name, on every client's own examples, with an axis `N`; NaN if they were not measured,
        None if none are requested.
    """

    loss: Float[Array, ""]
    training_loss: Float[Array, ""]
    client: Int[Array, "m"]
    ledger: Ledger
    probe: Ledger | None = None
    alive: Bool[Array, ""] | None = None
    faults: Any = None
    idle: Bool[Array, ""] | None = None
    metrics: dict[str, Float[Array, "..."]] | None = None
    accuracy: Float[Array, ""] | None = None
    clients: dict[str, Float[Array, "N ..."]] | None = None


def flatten_record(record: RoundRecord) -> dict[str, Any]:
    """Returns the arrays of a record by dotted name, as in `ledger.members`, `faults.twice`, for `unflatten_record`."""
    if isinstance(record.faults, FaultCounts):
        packed = record.faults
        record = record.replace(faults={name: packed.counts[..., i] for i, name in enumerate(packed.names)})
    leaves = jax.tree_util.tree_leaves_with_path(record)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def unflatten_record(arrays: dict[str, np.ndarray]) -> RoundRecord:
    """Returns the record whose arrays have these dotted names."""
    nested: dict[str, Any] = traverse_util.unflatten_dict(arrays, sep=".")
    no_signals: dict[str, Any] = {name: {} for name in BY_LIMIT}
    ledgers = {name: Ledger(**no_signals | nested[name]) for name in ("ledger", "probe") if name in nested}
    return RoundRecord(**{"faults": {}, "metrics": {}, **nested, **ledgers})
