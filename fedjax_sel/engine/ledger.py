"""The ledger: counts of what a round used, and one function that prices them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.protocols import ExampleSignal, FeatureSignal, GradientSignal, Signal, Signals
from fedjax_sel.pytree import Pytree, Range
from fedjax_sel.types import BYTES

if TYPE_CHECKING:
    from fedjax_sel.data.federated import FederatedData
    from fedjax_sel.engine.experiment import Experiment

COLUMNS = (
    "bytes_down",
    "bytes_up",
    "client_flops",
    "selection_bytes_down",
    "selection_bytes_up",
    "selection_flops",
)

ALL = "all"
"""The key in `signal_examples` and `measured_examples` of signals that pass all of a client's examples."""

BY_LIMIT = {"signal_examples": "before", "measured_examples": "trained"}
"""Counts of a ledger that are kept in the groups of `group_by_limit`, and the moment of their signals."""


class Ledger(Pytree):
    """Counts of what some part of a round used; parts add up. With leading axes for several seeds and rounds.

    Attributes:
      asked: clients asked for `before` signals.
      models_for_signals: those of them to which the model is sent only for that.
      signal_examples: examples that they measure signals on, by the most examples of a client that a signal passes.
      members: clients selected to train.
      models_sent: models sent to them.
      trained_examples: examples passed forward and backward, counting repetitions.
      screened_examples: examples on which members measured signals, to choose among them.
      reports: members that returned, and reported their `trained` signals.
      measured: members that measured them, also those that then failed or were late.
      measured_examples: examples that those signals passed, by the same limits.
      uploads: updates sent to the server.
      left_out: updates that came back but were not finite.
      seconds: simulated seconds; None without devices.
      joules: joules of all clients; None without devices.
    """

    asked: Int[Array, "..."]
    models_for_signals: Int[Array, "..."]
    signal_examples: dict[str, Int[Array, "..."]]
    members: Int[Array, "..."]
    models_sent: Int[Array, "..."]
    trained_examples: Int[Array, "..."]
    screened_examples: Int[Array, "..."]
    reports: Int[Array, "..."]
    measured: Int[Array, "..."]
    measured_examples: dict[str, Int[Array, "..."]]
    uploads: Int[Array, "..."]
    left_out: Int[Array, "..."]
    seconds: Float[Array, "..."] | None = None
    joules: Float[Array, "..."] | None = None

    def __add__(self, other: Ledger) -> Ledger:
        """Returns the sum of two ledgers, which ran one after the other."""
        return jax.tree.map(operator.add, self, other)


def empty_ledger(signals: Signals, *, devices: bool) -> Ledger:
    """Returns a ledger of zeros.

    Args:
      signals: of the selector.
      devices: whether seconds and joules are counted.
    """
    none, no_time = jnp.zeros((), jnp.int32), jnp.zeros(()) if devices else None
    counts: dict[str, Any] = dict.fromkeys((field.name for field in fields(Ledger)), none)
    for name, moment in BY_LIMIT.items():
        counts[name] = dict.fromkeys(group_by_limit(signals.at(moment).values()), none)
    return Ledger(**{**counts, "seconds": no_time, "joules": no_time})


def group_by_limit(signals: Iterable[Signal]) -> dict[str, tuple[Signal, ...]]:
    """Groups signals by the most examples of a client that they pass (`Cost.max_examples`)."""
    out: dict[str, tuple[Signal, ...]] = {}
    for signal in signals:
        limit = signal.cost.max_examples
        name = ALL if limit is None else str(limit)
        out[name] = (*out.get(name, ()), signal)
    return out


def count_passed(
    signals: Iterable[Signal], count: Int[Array, "k"], share: Bool[Array, "k"] | Float[Array, "k"]
) -> dict[str, Int[Array, ""]]:
    """Returns how many examples these signals pass in all, by `group_by_limit`.

    Args:
      signals: of some moment.
      count: examples of each client.
      share: whether each is asked, or the share of its examples that it passes.
    """
    return {limit: take_share(share, limit_examples(count, limit)).sum() for limit in group_by_limit(signals)}


def take_share(share: Bool[Array, "k"] | Float[Array, "k"], count: Int[Array, "k"]) -> Int[Array, "k"]:
    """Returns these shares of counts, rounded down; of large counts, 1 is all, which float32 may not hold."""
    return jnp.where(share >= 1, count, jnp.floor(share * count).astype(count.dtype))


def limit_examples(count: Int[Array, "..."], limit: str) -> Int[Array, "..."]:
    """Returns how many of a client's examples signals with this limit pass."""
    return count if limit == ALL else jnp.minimum(count, int(limit))


def add_passes(count: Int[Array, "k"], passes: Mapping[str, float]) -> Float[Array, "k"]:
    """Returns the forward passes of clients with `count` examples each, if signals cost so many by `group_by_limit`."""
    return sum((per * limit_examples(count, limit) for limit, per in passes.items()), jnp.zeros(count.shape))


def count_passes(signals: Iterable[Signal], backward: float = 2.0) -> float:
    """Returns the forward passes per example that these signals cost together.

    Example signals share their passes, and signals of the same gradient that gradient: of the model that a member
    received, or of the one that it trained.

    Args:
      signals: the signals, with their costs.
      backward: a backward pass as a multiple of a forward pass.
    """
    signals = tuple(signals)
    each = (ExampleSignal, FeatureSignal)

    def cost(signal: Signal) -> float:
        return signal.cost.forward + backward * signal.cost.backward

    shared = max((cost(s) for s in signals if isinstance(s, each)), default=0.0)
    of = [signal for signal in signals if isinstance(signal, GradientSignal)]
    of_gradient = sum(max((cost(s) for s in of if s.received is at), default=0.0) for at in (False, True))
    alone = sum(cost(s) for s in signals if not isinstance(s, (*each, GradientSignal)))
    return shared + of_gradient + alone


@dataclass(frozen=True)
class Rates:
    """Unit costs of what a ledger counts.

    Attributes:
      model: bytes of a model.
      gradient: bytes of the part of it that is trained.
      flops: floating-point operations of an example's forward pass.
      backward: a backward pass as a multiple of a forward pass.
      correction_down, correction_up: what a correction sends besides each model, as multiples of `gradient`.
      needs_model: whether a `before` signal needs the model.
      before_down, before_up: bytes of the `before` signals of one client.
      before_passes: forward passes per example of the `before` signals, by `group_by_limit`.
      screening: forward passes for each example among which data selection chooses.
      choice_down, choice_up: bytes that data selection sends each member, and that each member reports.
      trained_down, trained_up: bytes of the `trained` signals of one member.
      trained_passes: forward passes per example of the `trained` signals, by `group_by_limit`.
      asked_public, trained_public: forward passes over public examples of one client, for `before` and `trained`
        signals.
      after_down, after_up: bytes of the `after` signals of one member.
    """

    model: float
    gradient: float
    flops: float
    backward: float = 2.0
    correction_down: float = 0.0
    correction_up: float = 0.0
    needs_model: bool = False
    before_down: float = 0.0
    before_up: float = 0.0
    before_passes: Mapping[str, float] = field(default_factory=dict)
    screening: float = 0.0
    choice_down: float = 0.0
    choice_up: float = 0.0
    trained_down: float = 0.0
    trained_up: float = 0.0
    trained_passes: Mapping[str, float] = field(default_factory=dict)
    asked_public: float = 0.0
    trained_public: float = 0.0
    after_down: float = 0.0
    after_up: float = 0.0

    @property
    def extra_down(self) -> float:
        """Bytes that a member receives besides model and correction."""
        return self.choice_down + self.trained_down + self.after_down

    @property
    def extra_up(self) -> float:
        """Bytes that a member sends whether or not it uploads its update."""
        return self.choice_up + self.trained_up

    @property
    def upload(self) -> float:
        """Bytes that a member sends if it uploads its update, with `extra_up`."""
        return self.model + self.gradient * self.correction_up + self.after_up + self.extra_up


def stack_rates(rates: Sequence[Rates]) -> Rates:
    """Returns the unit costs of all runs: those of one if all are equal, else numbers with leading `R`, 1."""
    first = rates[0]
    if all(one == first for one in rates):
        return first

    def stack(values: Sequence[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {key: stack([one[key] for one in values]) for key in values[0]}
        return np.asarray(values)[:, None]

    return Rates(**{one.name: stack([getattr(of, one.name) for of in rates]) for one in fields(Rates)})


def find_rates(experiment: Experiment, data: FederatedData) -> Rates:
    """Returns the unit costs of an experiment on such data."""
    x, num_public = data.like, 0 if data.public_x is None else len(data.public_x)
    task, correction, signals = experiment.task, experiment.correction, experiment.client_selection.signals()
    before, trained, after = (tuple(signals.at(moment).values()) for moment in ("before", "trained", "after"))
    backward, classes = task.backward(x), task.outputs(x)[-1]
    model, gradient = (float(BYTES * count) for count in (task.shared_parameters(x), task.gradient_parameters(x)))

    def passed(signals: Iterable[Signal]) -> dict[str, float]:
        groups = group_by_limit(signals).items()
        return {limit: count_passes([s for s in some if not s.public], backward) for limit, some in groups}

    def passed_public(signals: Iterable[Signal]) -> float:
        return num_public * count_passes([s for s in signals if s.public], backward)

    def received(signals: Iterable[Signal]) -> float:
        return sum((BYTES * s.cost.down for s in signals), 0.0)

    def sent(signals: Iterable[Signal]) -> float:
        return sum((BYTES * count_sent(s, "count_up", classes) + gradient * s.cost.models_up for s in signals), 0.0)

    return Rates(
        model=model,
        gradient=gradient,
        flops=task.flops(x),
        backward=backward,
        correction_down=correction.down,
        correction_up=correction.up,
        needs_model=any(s.cost.needs_model for s in before),
        before_down=received(before),
        before_up=sent(before),
        before_passes=passed(before),
        screening=count_passes(experiment.data_selection.signals().values(), backward),
        choice_down=1.0 * BYTES * count_sent(experiment.data_selection, "count_down", classes),
        choice_up=1.0 * BYTES * count_sent(experiment.data_selection, "count_up", classes),
        trained_down=received(trained),
        trained_up=sent(trained),
        trained_passes=passed(trained),
        asked_public=passed_public(before),
        trained_public=passed_public(trained),
        after_down=received(after),
        after_up=sent(after),
    )


def count_sent(part: Any, method: str, classes: int) -> float:
    """Returns how many numbers a client sends or receives, as a strategy or a signal says.

    Raises:
      ValueError: it says something else than a finite number of at least 0.
    """
    value = getattr(part, method)(classes)
    Range(0, below=math.inf).check(f"{type(part).__name__}.{method}({classes})", value)
    return value


def price(ledger: Ledger, rates: Rates) -> dict[str, np.ndarray]:
    """Returns the exact bytes and floating-point operations of a ledger: `COLUMNS`, float64 of the counts' shape.

    Training: every member receives a model (4 bytes per parameter), returns one if its update is uploaded, and sends
    and receives what the correction adds; each example of a local step takes a forward and a backward pass, which costs
    twice a forward pass if the whole model is trained. Selection is counted separately: a client that must hold the
    model to answer a signal but does not train is still sent it (one that trains receives it only once); the numbers of
    the signals themselves; and the passes over the examples measured, in which example signals share one forward pass.
    """
    n: Any = jax.tree.map(lambda count: np.asarray(count, np.float64), ledger)
    looked = n.screened_examples * rates.screening
    looked = looked + sum(n.signal_examples[limit] * k for limit, k in rates.before_passes.items())
    looked = looked + sum(n.measured_examples[limit] * k for limit, k in rates.trained_passes.items())
    looked = looked + n.asked * rates.asked_public + n.measured * rates.trained_public
    return {
        "bytes_down": n.models_sent * rates.model + n.members * (rates.correction_down * rates.gradient),
        "bytes_up": n.uploads * (rates.model + rates.gradient * rates.correction_up),
        "client_flops": n.trained_examples * ((1 + rates.backward) * rates.flops),
        "selection_bytes_down": n.models_for_signals * rates.model * rates.needs_model
        + n.asked * rates.before_down
        + n.reports * rates.trained_down
        + n.uploads * rates.after_down
        + n.members * rates.choice_down,
        "selection_bytes_up": n.asked * rates.before_up + n.reports * rates.extra_up + n.uploads * rates.after_up,
        "selection_flops": looked * rates.flops,
    }


def count_as_selection(priced: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the costs of a probe, all of which count as selection."""
    return {
        "selection_bytes_down": priced["bytes_down"] + priced["selection_bytes_down"],
        "selection_bytes_up": priced["bytes_up"] + priced["selection_bytes_up"],
        "selection_flops": priced["client_flops"] + priced["selection_flops"],
    }
