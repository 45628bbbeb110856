"""The theory of the library: four questions, and the signals by which they are answered.

A federated-learning round asks **who** trains (`ClientSelector`), **on what** (`SampleSelector`), **how**
(`LocalTrainer`, with a `Correction` of its steps), and how the results are **merged** (`Aggregator`). An answer is a
frozen value: its floats are leaves of a pytree, so that they can be traced and swept; its integers, strings and flags
are static. Nothing here is a base class. Any object with the right methods will do.

A strategy that wants to know something *declares* it: `before` and `after` hold signals, and the value of each arrives
as a keyword-only argument of the signal's name. A signal nobody declares generates no code and costs nothing; a
declared one is on the bill. There are four kinds of signal, by what they look at:

- `RowSignal`: one number a row, from its logits (loss, entropy, margin). A client's value is the mean over its rows,
  and since the global model is one model, all clients' values come from one flat pass over all rows.
- `ClientSignal`: one client's rows together (gradient norm).
- `UpdateSignal`: a finished update beside the cohort's aggregate (training loss, norm of the update).
- `ServerSignal`: the new global model on the server's validation rows (accuracy).

The life of a strategy in a run is `init` once on the host, then in every round `candidates`, `select`, `observe`, all
pure. State goes round; nothing else persists. Every random decision takes its key as first argument, and the same key
always gives the same decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Pytree, static
from fedjax_sel.types import Batch, Cohort, Context, PRNGKey, State, Update, Variables

if TYPE_CHECKING:
    from fedjax_sel.data.federated import FederatedData
    from fedjax_sel.task import Task


class Price(Pytree):
    """What one signal costs a client that is asked for it.

    Attributes:
      forward: forward passes a row.
      backward: backward passes a row; one costs twice a forward pass.
      model: whether the client must hold the current global model to answer (it is then sent to those outside the
        cohort).
      down: numbers sent to the client besides the model.
      up: numbers the client sends to the server.
      rows: at most so many of a client's rows are passed; None: all.
    """

    forward: float = 0.0
    backward: float = 0.0
    model: bool = static(default=False)
    down: float = 0.0
    up: float = 0.0
    rows: int | None = static(default=None)


@runtime_checkable
class RowSignal(Protocol):
    """A number a row, read off its logits."""

    name: ClassVar[str]
    price: ClassVar[Price]

    def rows(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Value of each row."""
        ...


@runtime_checkable
class ClientSignal(Protocol):
    """A number a client, which needs its rows together."""

    name: ClassVar[str]

    @property
    def price(self) -> Price:
        """What it costs; it may depend on the signal's parameters."""
        ...

    def client(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, ""]:
        """Value of the one client whose rows `batch` holds; `key` is for what it draws."""
        ...


@runtime_checkable
class UpdateSignal(Protocol):
    """A number a cohort member, read off its update.

    `stacked` says whether it looks at `update.delta`: the engine then keeps the whole cohort's models at once instead
    of their running sum. A signal whose `against` is `"previous"` is shown the change of the global model in the round
    before (zeros in the first) instead of this round's.
    """

    name: ClassVar[str]
    price: ClassVar[Price]
    stacked: ClassVar[bool]

    def update(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """Value of one update; `aggregate` is the change of the global model this round (or `against`)."""
        ...


@runtime_checkable
class ServerSignal(Protocol):
    """A number for the whole round, from the new global model on the server's validation rows.

    A signal whose `on` is `"test"` is measured on the test rows instead: a leak, for parity with codes that have it.
    """

    name: ClassVar[str]
    price: ClassVar[Price]

    def server(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, ""]:
        """Value from the validation rows' logits."""
        ...


Signal = RowSignal | ClientSignal | UpdateSignal | ServerSignal


class Host:
    """What `ClientSelector.init` may use, on the host, before the first round of one seed.

    Anything may be computed there: scikit-learn is welcome.

    Attributes:
      task: what is learnt.
      data: the clients' rows, and public rows where the federation has some.
      variables: the initial global model.
      trainer: how clients train in the run.
      side_by_side: how many clients' models the run trains at once; None: a cohort's.
    """

    def __init__(
        self,
        task: Task,
        data: FederatedData,
        variables: Variables,
        trainer: Any = None,
        side_by_side: int | None = None,
    ):
        self.task, self.data, self.variables = task, data, variables
        self.trainer, self.side_by_side = trainer, side_by_side


class Upfront(Pytree):
    """What a selector took from the clients before the first round; it is on the bill of that round, as selection.

    Attributes:
      flops: of each client, Float[N].
      down, up: bytes sent to, and by, each client.
    """

    flops: Any
    down: float
    up: float


@runtime_checkable
class ClientSelector(Protocol):
    """Who trains.

    A selector may also have `asks(round) -> Bool`, which says in which rounds it wants its `before` signals; in the
    others it gets zeros and pays nothing. It may have `rehearses(round) -> Bool`: in those rounds a uniform cohort
    trains before the round begins, the `before` signals are measured on the model it makes as well, and that model is
    thrown away; `observe` gets them as `rehearsed_NAME` (zeros in other rounds), and the bill has it all under
    selection. And it may have `upfront(ctx, host) -> Upfront`, what `init` took from the clients. `asks` and
    `rehearses` depend on the round alone, so that they stay branches when seeds are vmapped.
    """

    @property
    def before(self) -> tuple[RowSignal | ClientSignal, ...]:
        """Signals asked of the candidates before training, on the current global model."""
        ...

    @property
    def after(self) -> tuple[UpdateSignal | ServerSignal, ...]:
        """Signals read off the finished round."""
        ...

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> State:
        """State before the first round. Raises `ValueError` for parameters that cannot serve `ctx`."""
        ...

    def candidates(self, key: PRNGKey, state: State, ctx: Context) -> Int[Array, "d"] | None:
        """Whom to ask for the `before` signals; None: everyone."""
        ...

    def select(self, key: PRNGKey, state: State, ctx: Context, *_: Any, **before: Any) -> Cohort:
        """The cohort. Signals are keyword-only, one entry a candidate (`ctx.candidates`)."""
        ...

    def observe(self, key: PRNGKey, state: State, ctx: Context, cohort: Cohort, *_: Any, **signals: Any) -> State:
        """State after the round, from all declared signals.

        `cohort` names everybody who was selected; its mask says who returned an update.
        """
        ...


@runtime_checkable
class SampleSelector(Protocol):
    """On what a client trains; written for one client."""

    @property
    def needs(self) -> tuple[RowSignal, ...]:
        """Row signals of the client's own rows, on the model it received."""
        ...

    def keep(self, key: PRNGKey, valid: Bool[Array, "L"], *_: Any, **rows: Any) -> Bool[Array, "L"]:
        """Which of its rows it trains on this round; never one that is not `valid`."""
        ...


@runtime_checkable
class LocalTrainer(Protocol):
    """How a client trains; written for one client."""

    @property
    def schedule(self) -> Callable[[Int[Array, ""], Int[Array, ""]], Float[Array, ""]]:
        """Factor on the learning rate in a round, `schedule(round, rounds)`."""
        ...

    def local_steps(self, rows: Int[Array, "m"], longest: int) -> Int[Array, "m"]:
        """How many steps a client with so many rows takes, where none has more than `longest`; 0 for no rows."""
        ...

    def rows_seen(self, rows: Int[Array, "m"], steps: Int[Array, "m"], longest: int) -> Int[Array, "m"]:
        """How many rows, with repetition, a client with so many rows passes in its first `steps` steps."""
        ...

    def way(
        self, rows: Int[Array, "m"], steps: Int[Array, "m"], longest: int, factor: Float[Array, ""]
    ) -> Float[Array, "m"]:
        """Sum of the learning rates of the first `steps` steps of a client with so many rows."""
        ...

    def train(
        self,
        task: Task,
        received: Variables,
        data: FederatedData,
        index: Int[Array, "L"],
        keep: Bool[Array, "L"],
        key: PRNGKey,
        factor: Float[Array, ""],
        steps: Int[Array, ""],
        bound: Int[Array, ""],
        correct: Callable[[Variables, Variables], Variables] | None = None,
    ) -> Update:
        """The update of the client whose rows are `index[keep]`, in a loop of `bound` steps of which `steps` count.

        `correct(gradient, variables)` is the gradient that each step takes; None: the gradient itself.
        """
        ...


@runtime_checkable
class Correction(Protocol):
    """What is added to the gradient of every local step; written for one client.

    Its state may hold something for each client, with a leading `N`; it goes round like all states. `down` and `up` say
    what a member of the cohort receives and returns besides the model, as multiples of the model.
    """

    @property
    def down(self) -> float:
        """Models' worth of numbers sent to a member besides the model."""
        ...

    @property
    def up(self) -> float:
        """Models' worth of numbers returned by a member besides its update."""
        ...

    def init(self, variables: Variables, clients: int) -> State:
        """State before the first round."""
        ...

    def held(self, state: State, client: Int[Array, ""]) -> State:
        """What one client holds while it trains."""
        ...

    def gradient(self, held: State, gradient: Variables, variables: Variables, received: Variables) -> Variables:
        """The gradient of a step from `variables`, in a round that began with `received`."""
        ...

    def upload(self, held: State, delta: Variables, way: Float[Array, ""]) -> State:
        """What the client returns besides its update `delta`, after steps whose learning rates sum up to `way`."""
        ...

    def merge(self, state: State, cohort: Cohort, uploads: State) -> State:
        """State after the round, from the uploads of those who came back, with a leading `m`."""
        ...


@runtime_checkable
class Aggregator(Protocol):
    """How updates are merged: a weighted sum of the cohort's deltas, then a step of the server.

    The weights depend on what is known before training, so that the sum can be accumulated client by client and a
    cohort's models need never be in memory at once.
    """

    def init(self, variables: Variables) -> State:
        """State before the first round."""
        ...

    def weights(self, cohort: Cohort, rows: Int[Array, "m"], steps: Int[Array, "m"]) -> Float[Array, "m"]:
        """Weight of each delta, 0 for empty slots."""
        ...

    def step(self, state: State, variables: Variables, delta: Variables) -> tuple[Variables, State]:
        """New global model from the weighted sum `delta`."""
        ...
