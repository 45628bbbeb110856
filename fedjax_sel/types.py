"""The types of a round: what the server knows, whom it chose, what the clients returned.

Axis legend, used in every docstring and annotation:

====  =========================  ====  ==================
`N`   clients                    `S`   local steps
`m`   cohort                     `B`   batch
`d`   candidates                 `C`   classes
`n`   examples in total          `P`   parameters
`L`   most examples of a client  `T`   rounds
`b`   examples of a flat pass    `R`   seeds
====  =========================  ====  ==================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from fedjax_sel.arrays import add_weighted
from fedjax_sel.pytree import Pytree, static

if TYPE_CHECKING:
    from fedjax_sel.devices.clock import Timing
    from fedjax_sel.devices.profile import DeviceProfile

Variables = Any
"""A pytree of arrays that make up a model, `P` numbers in total."""

StrategyState = Any
"""A pytree of arrays that a strategy carries from round to round."""

Rows = Shaped[Array, "b ..."] | Shaped[np.ndarray, "b ..."]
"""Rows as stored, on a device or on the host."""

TARGETS = ("classes", "continuous", "multilabel", "tokens")
"""The kinds of targets.

- `classes`: Int[n], one of `C` classes per example;
- `continuous`: Float[n] or Float["n C"], one or several numbers (regression);
- `multilabel`: Int["n C"], for each of `C` labels whether an example has it, 0 or 1;
- `tokens`: Int["n L"], one of a vocabulary of `C` tokens at each position of a sequence; here `L` is its length.
"""

PRNGKey = Key[Array, ""]
"""A typed JAX random key."""

BYTES = 4
"""Bytes of one number on the wire (float32)."""

PAD_CLIENT = -1
"""The client number in the empty slots of a cohort with fewer than `m` members."""

DROPPED = np.iinfo(np.int32).max
"""The index that empty slots write to: beyond the end of every array, so that `mode="drop"` writes nothing."""


class Undeclared(Pytree):
    """Stands in for the number of rounds in what a strategy gets, unless it declares that it reads this number.

    Attributes:
      owner: the strategy's class and method.
    """

    owner: str = static(default="")

    def refuse(self, *_: Any) -> NoReturn:
        """Raises `ValueError`, whatever is computed with it."""
        raise ValueError(
            f"{self.owner} reads the number of rounds; its class must say so (uses_rounds = True), as a finished run "
            "of it cannot be given more rounds"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __lt__ = __le__ = refuse
    __gt__ = __ge__ = __eq__ = __ne__ = __abs__ = __and__ = __rand__ = __divmod__ = __rdivmod__ = refuse
    __float__ = __int__ = __index__ = __bool__ = __array__ = __jax_array__ = refuse

    def __getattr__(self, name: str) -> NoReturn:
        """Raises `ValueError`; `AttributeError` for what Python asks any value for."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()


class Context(Pytree):
    """What the server knows for free when round `round` of `rounds` begins.

    Attributes:
      round: number of this round, from 0.
      rounds: how many rounds the run has, `T`; only for a strategy that says so in `Strategy.uses_rounds`.
      num_examples: training examples of each client.
      available: which clients can be reached this round.
      candidates: the clients that the selector asks for signals; None: all.
      devices: what each client's device can do; None: the run has no devices.
      timing: seconds of each client's turn if it trained on all its examples; None without devices.
      epoch: seconds of each client's turn if it trained for one epoch, or for all its steps if these are fewer; None
        without devices.
      cohort_size: how many clients the cohort holds, `m`.
    """

    round: Int[Array, ""]
    rounds: Int[Array, ""] | Any  # or `Undeclared`
    num_examples: Int[Array, "N"]
    available: Bool[Array, "N"]
    candidates: Int[Array, "d"] | None = None
    devices: DeviceProfile | None = None
    timing: Timing | None = None
    epoch: Timing | None = None
    cohort_size: int = static(default=1)

    @property
    def num_clients(self) -> int:
        """`N`."""
        return self.num_examples.shape[0]

    @property
    def reached(self) -> Bool[Array, "d"]:
        """Which candidates can be reached, or which clients if everyone is asked."""
        if self.candidates is None:
            return self.available
        there = self.available.at[jnp.maximum(self.candidates, 0)].get(mode="fill", fill_value=False)
        return (self.candidates >= 0) & there

    @property
    def m(self) -> int:
        """`cohort_size`, as formulas write it."""
        return self.cohort_size


class Turn(Pytree):
    """What a client knows, besides its signals, when it chooses its examples.

    Attributes:
      round: number of this round, from 0.
      rounds: how many rounds the run has, `T`; only for a strategy that says so in `Strategy.uses_rounds`.
      y: labels of its examples.
      server: what the data selector keeps on the server.
      affordable: how many examples it can train on before the deadline, 0 to `L`; None without devices.
      validation: values of the server signals that the data selector declares, by name.
      classes: number of classes, `C`.
    """

    round: Int[Array, ""]
    rounds: Int[Array, ""] | Any  # or `Undeclared`
    y: Int[Array, "L"]
    server: StrategyState
    affordable: Int[Array, ""] | None
    validation: dict[str, Array]
    classes: int = static(default=2)


class Cohort(Pytree):
    """The clients that train this round; its shape is always the same.

    Attributes:
      client: number of each member, `PAD_CLIENT` where `mask` is false.
      mask: which slots are filled.
      weight: importance correction, at least 0: a factor on the weight of each slot's update in the mean. 1 for each
        member if the selector does not claim that the mean is unbiased.
      nan_scores: how many available clients had a NaN score when the cohort was drawn; if any had, the run warns.
      num_examples: how many examples each member trained on; None except in the cohort that `Correction.merge` gets.
    """

    client: Int[Array, "m"]
    mask: Bool[Array, "m"]
    weight: Float[Array, "m"]
    nan_scores: Int[Array, ""] | int = 0
    num_examples: Int[Array, "m"] | None = None

    @property
    def selected(self) -> Int[Array, "m"]:
        """The selected clients as indices: `numbers.at[cohort.selected].set(..., mode="drop")` skips empty slots."""
        return jnp.where(self.client >= 0, self.client, DROPPED)

    @property
    def returned(self) -> Int[Array, "m"]:
        """The clients whose update came back, as indices like `selected`; before training, all selected clients."""
        return jnp.where(self.mask, self.client, DROPPED)


class Updates(Pytree):
    """All updates of a cohort, and the model that they started from.

    Attributes:
      received: the global model that the cohort received.
      delta: the updates, with a leading `m`.
      weight: of each update in the merge; 0 if there is none.
    """

    received: Variables
    delta: Variables
    weight: Float[Array, "m"]

    def merge(self, weight: Float[Array, "m"]) -> Variables:
        """Returns the model plus the weighted mean of the updates; the model itself if all weights are 0."""
        total = weight.sum()
        share = weight / jnp.where(total > 0, total, 1.0)
        return jax.tree.map(lambda leaf, delta: leaf + add_weighted(share, delta), self.received, self.delta)


class Batch(Pytree):
    """Examples as stored, and which of them count.

    Attributes:
      x: examples.
      y: labels in `0..C-1`, or targets of another kind (`TARGETS`).
      mask: false where an example is padding or was not selected.
      weight: weight of each example in the loss; None: 1.
    """

    x: Array
    y: Shaped[Array, "B ..."]
    mask: Bool[Array, "B"]
    weight: Float[Array, "B"] | None = None


class Plan(Pytree):
    """What a client does in a round; with leading axes for several clients.

    Attributes:
      steps: local steps.
      examples_seen: examples passed forward and backward in these steps, counting repetitions.
      step_size_sum: sum, over the steps, of the factors by which their gradients enter the update; without momentum,
        of the learning rates.
      rate_factor: factor on the learning rates in this round; None if the trainer has no schedule.
      rate_sum: sum of the learning rates of the steps; None if the trainer does not say.
    """

    steps: Int[Array, "*m"]
    examples_seen: Int[Array, "*m"]
    step_size_sum: Float[Array, "*m"]
    rate_factor: Float[Array, "*m"] | None = None
    rate_sum: Float[Array, "*m"] | None = None


class Update(Pytree):
    """What one client sends back; with a leading `m` for a cohort.

    Attributes:
      delta: its variables minus those it received; None where only the sum over the cohort was kept. A user's signal
        that reads it there raises `ValueError`: set `UpdateSignal.stacked`, or measure it as `trained`.
      num_examples: how many distinct examples it chose to train on, even if its steps did not reach all of them.
      steps: how many local steps it took.
      examples_seen: examples passed forward and backward in these steps, counting repetitions.
      loss: its training loss in nats, the mean over all the examples of its steps.
      mean_sq_loss: mean square of the same losses.
      upload: what the correction sends back in addition; None if it sends nothing.
      finite: whether all its numbers are finite; set by the engine, which leaves out updates that are not.
    """

    delta: Variables | None
    num_examples: Int[Array, ""]
    steps: Int[Array, ""]
    examples_seen: Int[Array, ""]
    loss: Float[Array, ""]
    mean_sq_loss: Float[Array, ""]
    upload: Any = None
    finite: Bool[Array, ""] = None  # type: ignore[assignment]
