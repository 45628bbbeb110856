"""The abstractions of the library: the four questions of a round, and the signals that help to answer them.

A federated-learning round asks **who** trains (`ClientSelector`), **on what** (`DataSelector`), **how**
(`LocalTrainer`, its steps corrected by a `Correction`), and how the results are **merged** (`Aggregator`). An answer is
a frozen value, an instance of a subclass of one of these base classes: its floats are leaves of a pytree, so that they
can be traced and swept over; its integers, strings and flags are static. The base classes hold defaults and nothing
else.

A strategy that needs a measurement declares a signal for it and receives its value as a keyword-only argument. A
declared signal is billed; one that nobody declares generates no code and costs nothing. A signal is measured at one of
four moments:

- **before** training, of the candidates, on the global model (`ExampleSignal`, `ClientSignal`, `GradientSignal`);
- **trained**: of a member of the cohort, on the model that it has just trained (`ExampleSignal`, `ClientSignal`), or of
  its update (`UpdateSignal`), or of all updates together on the server's validation examples (`CohortSignal`), before
  anything is merged;
- **after** the merge: of an update, given the change of the global model (`UpdateSignal`), of all updates together
  (`CohortSignal`), or of the new global model on the server's validation examples (`ServerSignal`);
- **upfront**: of every client, once, before round 0 (`UpfrontSignal`).

A value may have any fixed shape: a number, a vector over classes, a sketch of an update.

A client selector's `init` runs once, on the host; every round then calls `candidates`, `select`, `accept` and
`observe`, all of them pure. State is carried from round to round; nothing else persists. The key always comes first
and the state second; the same key gives the same decision.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.arrays import add_weighted, widen
from fedjax_sel.pytree import Pytree, Scalar, param, show, static
from fedjax_sel.types import Batch, Cohort, Context, Plan, PRNGKey, StrategyState, Update, Updates, Variables

if TYPE_CHECKING:
    from fedjax_sel.data.federated import Examples, FederatedData
    from fedjax_sel.task import Task


class Strategy(Pytree, ABC):
    """A frozen value that answers one of the questions of a round."""

    @property
    def uses_rounds(self) -> bool:
        """Returns whether what it does in a round depends on the number of rounds, `T`; false by default.

        A finished run can be given more rounds only if this is false for all of its strategies.
        """
        return False


class Cost(Pytree):
    """What one client pays for one signal.

    Attributes:
      forward: forward passes per example.
      backward: backward passes per example; one costs twice a forward pass, or less where parts of the model are
        frozen.
      down: numbers sent to the client besides the model.
      up: numbers that the client sends to the server.
      models_up: numbers that it sends in addition, as multiples of the model's size without batch statistics.
      needs_model: whether the client must hold the current global model to answer (clients outside the cohort are then
        sent it, too).
      max_examples: the most examples of a client that are passed through the model; None: all.

    >>> Cost(forward=1.0, up=1.0, needs_model=True).backward  # as of `signals.Loss`
    0.0
    """

    forward: float = param(default=0.0, low=0)
    backward: float = param(default=0.0, low=0)
    down: float = param(default=0.0, low=0)
    up: float = param(default=0.0, low=0)
    models_up: float = param(default=0.0, low=0)
    needs_model: bool = static(default=False)
    max_examples: int | None = static(default=None, low=1)


class Signal(Strategy):
    """A measurement; its value has one fixed shape.

    Attributes:
      name: the keyword argument that receives its value, unless `Signals` is given another.
      public: whether it looks at the federation's public examples, which have no labels, instead of the client's own;
        only a `ClientSignal` can.
      needs_classes: whether targets must be classes; with others it is rejected before anything compiles.
    """

    name: ClassVar[str] = ""
    public: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False

    @property
    def cost(self) -> Cost:
        """Returns what a client pays for it; nothing by default."""
        return Cost()

    def count_up(self, classes: int) -> float:
        """Returns how many numbers a client sends for it if there are `C` classes; `cost.up` by default.

        Override it if the value has one entry per class.
        """
        return self.cost.up

    def of_task(self, task: Task) -> Signal:
        """Returns the signal as it is measured for `task`; itself by default."""
        return self


class ExampleSignal(Signal):
    """A value per example, from its logits, the model's outputs; a client's value is the mean over its examples.

    If all clients are asked and none keeps parts of the model for itself, they share the global model, so their values
    come from one flat pass over all examples.
    """

    @abstractmethod
    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b ..."]:
        """Returns the value of each example."""


class FeatureSignal(Signal):
    """A value per example, computed from its logits and its features, the inputs of the output layer.

    It is measured for data selectors, in one forward pass with their example signals. The output layer is the
    `nn.Dense` whose outputs the model returns, or all of a model that is one affine map, as logistic regression is.
    """

    def of_layer(self, has_bias: bool) -> FeatureSignal:
        """Returns the signal for an output layer with or without a bias; itself by default."""
        return self

    @abstractmethod
    def measure(
        self, logits: Float[Array, "b C"], y: Int[Array, "b"], features: Float[Array, "b H"]
    ) -> Float[Array, "b ..."]:
        """Returns the value of each example."""


class ClientSignal(Signal):
    """A value per client, computed from all its examples together.

    All client signals of a client get the same key in a round, so those that draw at random share their draw.

    Attributes:
      received: whether a `trained` signal looks at the model that the member received instead of the one it trained.
    """

    received: ClassVar[bool] = False

    @abstractmethod
    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, "..."]:
        """Returns the value of the client whose examples `batch` holds; `key` is for random draws."""


class GradientSignal(ClientSignal):
    """A value per client, computed from the gradient `∇F_i(w)` of its mean loss over all its examples, without dropout.

    The gradient's numbers have at least 32 bits, and are 0 in the parts that each client keeps for itself, since those
    are never sent. Before training, if no client keeps parts for itself, the engine sums gradients over blocks of each
    client's examples, so that a client takes time for its own examples only, not for `L` of them; all gradient signals
    of a round share these gradients.
    """

    @abstractmethod
    def measure_gradient(self, gradient: Variables) -> Float[Array, "..."]:
        """Returns the value of the client with this gradient."""

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, "..."]:
        """Returns the value of the client whose examples `batch` holds."""
        return self.measure_gradient(widen(task.hide_personal(task.gradient(variables, batch))))


class UpdateSignal(Signal):
    """A value per member of the cohort, computed from its update without batch statistics.

    Attributes:
      stacked: whether it looks at `update.delta`; if it is measured after the merge, the engine then keeps the updates
        of the whole cohort instead of their running sum.
    """

    stacked: ClassVar[bool] = False

    @property
    def reference(self) -> str:
        """Names the change that `measure` gets along with the update; `"none"` by default.

        `"aggregate"` is the change of the global model in this round, known only after the merge, and `"previous"` its
        change in the previous round (zeros in the first).
        """
        return "none"

    @abstractmethod
    def measure(self, update: Update, reference: Variables | None) -> Float[Array, "..."]:
        """Returns the value of one update; `reference` is the change that the property `reference` names."""


class ServerSignal(Signal):
    """A value for the whole round, measured with the new global model on the server's examples."""

    @property
    def split(self) -> str:
        """`"validation"`, or `"test"` for the test examples (a leak, for parity with code that has it)."""
        return "validation"

    @abstractmethod
    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "..."]:
        """Returns the value, from the logits of those examples."""


class CohortSignal(Signal):
    """A value per member of the cohort, computed from all updates together on the server's validation examples.

    The engine keeps the updates of the whole cohort for it. The server measures it, so it costs the clients nothing.
    """

    @abstractmethod
    def measure(
        self, key: PRNGKey, round: Int[Array, ""], task: Task, updates: Updates, batch: Batch
    ) -> Float[Array, "m ..."]:
        """Returns the value of each slot.

        Args:
          key: for random draws.
          round: number of the round.
          task: what is learnt.
          updates: the cohort's updates, and the model that they started from.
          batch: the server's validation examples.
        """


class UpfrontSignal(Signal):
    """A value per client, measured once on the host, before round 0."""

    @abstractmethod
    def measure(self, key: PRNGKey, host: Host) -> Shaped[Array, "N ..."]:
        """Returns the value of each client."""


Named = Mapping[str, Signal] | Iterable[Signal]

MOMENTS: dict[str, tuple[type[Signal], ...]] = {
    "before": (ExampleSignal, ClientSignal),
    "trained": (ExampleSignal, ClientSignal, UpdateSignal, CohortSignal),
    "after": (UpdateSignal, ServerSignal, CohortSignal),
    "upfront": (UpfrontSignal,),
}
"""The kinds of signal that can be measured at each moment."""


@dataclass(frozen=True)
class Signals:
    """The signals that a client selector needs, by moment: listed under their own names, or mapped from other names.

    Attributes:
      before: signals of the candidates, on the global model.
      trained: of the members of the cohort, before the merge.
      after: of the finished round.
      upfront: of every client, once.

    Raises:
      ValueError: two signals have the same name, or one cannot be measured at its moment.

    >>> from fedjax_sel import signals
    >>> Signals(before=[signals.Loss()], after={"norm": signals.UpdateNorm()}).after.keys()
    dict_keys(['norm'])
    """

    before: Named = ()
    trained: Named = ()
    after: Named = ()
    upfront: Named = ()

    def __post_init__(self):
        """Gives every signal its name; raises `ValueError` for invalid signals."""
        at: dict[str, str] = {}
        for moment, kinds in MOMENTS.items():
            given = getattr(self, moment)
            if isinstance(given, Signal | type | str) or not isinstance(given, Iterable):
                raise ValueError(
                    f"{moment} is {show(given)}; it must be a list of signals, or a mapping from names to signals"
                )
            named = (
                list(given.items())
                if isinstance(given, Mapping)
                else [(s.name if isinstance(s, Signal) else "", s) for s in given]
            )
            for name, signal in named:
                check_signal(moment, name, signal, kinds)
                if name in at:
                    raise ValueError(
                        f"two signals are called {name!r} ({at[name]} and {moment}); "
                        "rename one, as in Signals(before={'my_loss': Loss()})"
                    )
                at[name] = moment
            object.__setattr__(self, moment, dict(named))

    def at(self, moment: str) -> dict[str, Any]:
        """Returns the signals of a moment, by name."""
        return getattr(self, moment)


def check_signal(moment: str, name: str, signal: Any, kinds: tuple[type[Signal], ...]) -> None:
    """Raises `ValueError` if a signal cannot be measured at a moment."""
    allowed = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(signal, type):
        raise ValueError(f"signal {name or signal.__name__!r}: {signal.__name__} is a class; give {signal.__name__}()")
    if not isinstance(signal, kinds):
        what = f"{name!r}" if name else show(signal)
        raise ValueError(
            f"signal {what} is of class {type(signal).__name__}; measured {moment}, it must be of class {allowed}, as "
            "those of fedjax_sel.signals"
        )
    if not name:
        raise ValueError(
            f"{type(signal).__name__} has no name; set it in the class, or give one, as in "
            f"Signals({moment}={{'my_signal': {type(signal).__name__}()}})"
        )
    if not str(name).isidentifier():
        valid = re.sub(r"\W", "_", str(name))
        raise ValueError(f"signal {name!r}: methods get its value as an argument of this name; call it {valid!r}")
    if moment == "trained" and isinstance(signal, UpdateSignal) and signal.reference == "aggregate":
        raise ValueError(
            f"signal {name!r} compares an update with the aggregate, which is not known before the merge; "
            "measure it after, or set reference='previous'"
        )


@dataclass(frozen=True)
class Host:
    """What `ClientSelector.init` may use, on the host, before the first round of one seed.

    Any Python code may run there, such as scikit-learn.

    Attributes:
      task: what is learnt.
      data: the clients' examples, and public examples where the federation has some.
      variables: the initial global model.
      trainer: how clients train in the run.
      side_by_side: how many clients' models a device trains at once; None: those of a whole cohort.
      devices: the devices among which `collectives.map_parts` divides work over clients; empty: the first device does
        all of it.
    """

    task: Task
    data: FederatedData
    variables: Variables
    trainer: Any = None
    side_by_side: int | None = None
    devices: tuple[Any, ...] = ()


class Upfront(Pytree):
    """What a selector cost the clients before the first round, besides its `upfront` signals; billed to round 0.

    Attributes:
      flops: floating-point operations of each client, Float["N"]; one number: of every client.
      down, up: bytes sent to, and by, each client, likewise.
    """

    flops: Any
    down: Any
    up: Any


class ClientSelector(Strategy):
    """Who trains. Only `select` is abstract.

    Attributes:
      accepts_before_upload: if `accept` is overridden, whether a member first sends its `trained` signals, and uploads
        its update only if it is accepted (as in optimal client sampling); otherwise every member uploads its update.
      replacement: whether a client may be drawn into a cohort more than once; it trains once and its weights add up.
      needs_classes: whether targets must be classes, for a reason other than a signal.
      ordered: whether a cohort's slots are in some order that is not a ranking, such as by stratum; a selector that
        wraps this one and keeps part of its cohort then draws that part at random instead of keeping the first slots.
      counts_examples: whether its draws or weights are already in proportion to the clients' numbers of examples, so
        that aggregating without regard to size represents all clients by size; an aggregation by size would count the
        examples twice, and the run warns.
    """

    accepts_before_upload: ClassVar[bool] = True
    replacement: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    counts_examples: ClassVar[bool] = False

    @property
    def accepts(self) -> bool:
        """Returns whether it may reject updates, so that all must be kept: whether `accept` is overridden."""
        return overrides(self, "accept")

    def signals(self) -> Signals:
        """Returns the signals that it needs; none by default."""
        return Signals()

    def init(self, key: PRNGKey, ctx: Context, host: Host, **upfront: Any) -> StrategyState:
        """Returns the state before round 0, from the `upfront` signals; none by default.

        Raises:
          ValueError: its parameters do not fit `ctx`.
        """
        return ()

    def state_shape(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns the shapes and types of the state of `init`; override it if `init` does much work on the host.

        A run that resumes then asks for this instead of calling `init` again.
        """

        def begin(key: PRNGKey) -> StrategyState:
            upfront = {name: signal.measure(key, host) for name, signal in self.signals().at("upfront").items()}
            return self.init(key, ctx, host, **upfront)

        try:
            return jax.eval_shape(begin, key)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # `init` needs concrete numbers, so it is run
            return jax.tree.map(jnp.asarray, begin(key))

    def upfront(self, ctx: Context, host: Host) -> Upfront | None:
        """Returns what `init` cost the clients besides `upfront` signals; nothing by default."""
        return None

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""] | bool:
        """Returns whether it needs its `before` signals in a round; in other rounds they are zeros and cost nothing.

        The answer must depend on nothing but the round, so that it stays a branch when seeds are vmapped.
        """
        return True

    def probes(self, round: Int[Array, ""]) -> Bool[Array, ""] | bool:
        """Returns whether a round has a probe: a uniform cohort trains only to measure `before` signals on its model.

        That model is discarded; `observe` gets the values as `probed_NAME` (NaN for clients that cannot be reached,
        zeros in other rounds), and the whole probe is billed as selection, apart from the round's own models. It must
        depend on the round alone.
        """
        return False

    def candidates(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Int[Array, "d"] | None:
        """Returns the clients to ask for the `before` signals, -1 in an empty place; None, the default: all."""
        return None

    @abstractmethod
    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, **before: Any) -> Cohort:
        """Returns the cohort; signals have one entry per candidate (`ctx.candidates`), or per client if that is None.

        For a client that cannot be reached, the entry is NaN, or 0 in a signal of whole numbers or truth values.
        """

    def accept(self, key: PRNGKey, state: StrategyState, ctx: Context, cohort: Cohort, **trained: Any) -> Cohort:
        """Returns the cohort whose updates are merged, with its weights; by default all that returned an update.

        Args:
          key, state, ctx: of the round.
          cohort: its mask says who returned a finite update.
          trained: the `trained` signals, one entry per slot; 0 where the mask is false, except in a `CohortSignal`,
            whose values are as it returned them.
        """
        return cohort

    def observe(
        self, key: PRNGKey, state: StrategyState, ctx: Context, cohort: Cohort, **signals: Any
    ) -> StrategyState:
        """Returns the state after the round, unchanged by default.

        `cohort` names all selected clients; its mask says whose update was merged. `signals` holds the `before`,
        `trained` and `after` signals by name; `upfront` signals go to `init` only.
        """
        return state


class Prepared(Pytree):
    """What a data selector starts with.

    Attributes:
      server: what the server keeps.
      clients: what each client keeps, with a leading `N`; None: as `DataSelector.init` makes it.
      cost: what that cost the clients; None: nothing.
    """

    server: StrategyState = ()
    clients: StrategyState | None = None
    cost: Upfront | None = None


class DataSelector(Strategy):
    """What a client trains on; written for one client. Only `select` is abstract.

    A selector may keep state for each client (`init`, `observe`), and on the server (`prepare`, `merge`), which learns
    of the clients' choices only what they `report`. A round calls `choose_deadline` on the server, then `asks`,
    `select`, `observe` and `report` on each member, then `merge` on the server.

    Attributes:
      weighted: whether weights other than 0 and 1 occur. A client minimises the mean of the weighted losses over the
        selected examples.
      represents_all: whether the selected examples represent all of a client's, as a coreset or an unbiased sample
        does; an aggregator that weights clients by size then counts all their examples, otherwise the selected ones.
      uses_turn: whether `select`, `observe` and `report` take a keyword-only `turn`, the client's `Turn`.
    """

    weighted: ClassVar[bool] = False
    represents_all: ClassVar[bool] = False
    uses_turn: ClassVar[bool] = False

    def signals(self) -> Mapping[str, ExampleSignal | FeatureSignal | ClientSignal]:
        """Returns the signals measured on the client's own examples with the model it received; none by default."""
        return {}

    def validation_signals(self) -> Mapping[str, ServerSignal]:
        """Returns signals of the global model on the server's validation examples, for `Turn.validation`.

        They cost the clients only what `count_down` says; none by default.
        """
        return {}

    def count_down(self, classes: int) -> float:
        """Returns how many numbers the server sends a member besides the model, if there are `C` classes."""
        return 0.0

    def count_up(self, classes: int) -> float:
        """Returns how many numbers a member's report has, if there are `C` classes."""
        return 0.0

    def prepare(self, key: PRNGKey, ctx: Context, host: Host) -> Prepared:
        """Returns what it starts with, computed on the host before round 0 of one seed; nothing by default.

        Raises:
          ValueError: its parameters do not fit `ctx`.
        """
        return Prepared()

    def init(self, num_clients: int, longest: int) -> StrategyState:
        """Returns the state of every client before round 0, with a leading `N`; none by default."""
        return ()

    def choose_deadline(
        self, server: StrategyState, ctx: Context, cohort: Cohort, seconds: Scalar
    ) -> Float[Array, ""] | Scalar:
        """Returns the deadline of a round in seconds, by default the experiment's; called only if there are devices.

        `ctx.timing` holds the seconds of each client's turn if it trained on all its examples.
        """
        return seconds

    def asks(self, state: StrategyState, round: Int[Array, ""]) -> Bool[Array, ""] | bool:
        """Returns whether a client measures its signals in a round; otherwise they are zeros and cost nothing."""
        return True

    @abstractmethod
    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], **known: Any) -> Shaped[Array, "L"]:
        """Returns each example's weight: 0 leaves it out, 1 trains on it, and any other number multiplies its loss.

        An example that is not `valid` gets weight 0. A boolean mask is accepted. `known` holds the signals by name, and
        `turn` if `uses_turn`.
        """

    def observe(self, key: PRNGKey, state: StrategyState, weight: Shaped[Array, "L"], **known: Any) -> StrategyState:
        """Returns the client's state after a round in which it trained and came back; unchanged by default."""
        return state

    def report(self, state: StrategyState, valid: Bool[Array, "L"], weight: Shaped[Array, "L"], **known: Any) -> Any:
        """Returns what the client tells the server about its choice, a pytree of `count_up` numbers; none by default.

        `state` is the state that `select` was given.
        """
        return ()

    def merge(self, key: PRNGKey, server: StrategyState, ctx: Context, cohort: Cohort, reports: Any) -> StrategyState:
        """Returns what the server keeps after a round; unchanged by default.

        Args:
          key, server, ctx: of the round.
          cohort: its mask says which members returned.
          reports: of all members, with a leading `m`; those outside the mask do not count.
        """
        return server


class LocalTrainer(Strategy):
    """How a client trains; written for one client.

    Attributes:
      takes_offset: whether `train` takes an `offset` and `plan` returns `rate_sum`.
    """

    takes_offset: ClassVar[bool] = False

    def step_examples(self, longest: int) -> int:
        """Returns the largest number of examples in a local step if no client has more than `longest`; by default all.

        From it the engine estimates how many clients are worth training side by side.
        """
        return longest

    def most_examples(self, longest: int) -> int | None:
        """Returns the largest number of examples that a client with at most `longest` passes in a round; None: unknown.

        Repetitions count. If it is known, experiments in which 32 bits could not count a round's examples are refused.
        """
        return None

    @property
    def linear(self) -> bool:
        """Returns whether an update is the sum of the gradients that were followed, weighted as the plan says.

        SCAFFOLD and FedNova need it, and divide by the plan's `step_size_sum`. False by default.
        """
        return False

    @abstractmethod
    def plan(
        self,
        num_examples: Int[Array, "*m"],
        longest: int,
        round: Int[Array, ""],
        rounds: Int[Array, ""],
        max_steps: Int[Array, "*m"] | None = None,
    ) -> Plan:
        """Returns what clients with `num_examples` examples do in a round, if none has more than `longest`.

        Args:
          num_examples: examples of each client; a client with none takes no step.
          longest: `L`.
          round, rounds: number of the round, and of all rounds.
          max_steps: number of steps after which each client must stop; None: no limit.
        """

    @abstractmethod
    def train(
        self,
        key: PRNGKey,
        task: Task,
        variables: Variables,
        examples: Examples,
        plan: Plan,
        *,
        num_steps: Int[Array, ""],
        transform: Callable[[Variables, Variables], Variables] | None = None,
    ) -> Update:
        """Returns the update of one client.

        Args:
          key: of this client in this round.
          task: what is learnt.
          variables: of the model that it received.
          examples: what it trains on.
          plan: of this client.
          num_steps: number of steps of the loop, the same for all clients side by side; steps beyond `plan.steps`
            change nothing.
          transform: maps the gradient at some variables to the one that the step follows; None: the identity.

        A trainer that `takes_offset` has one more argument, `offset`: every step also subtracts it times the learning
        rate, regardless of the momentum; None: nothing.
        """


class Correction(Strategy):
    """How the gradient of every local step is corrected; written for one client. Only `correct` is abstract.

    Its state may hold something for each client, with a leading `N`.

    Attributes:
      down: numbers sent to a member besides the model, as multiples of the model's size without batch statistics.
      up: numbers returned by a member besides its update, likewise.
      pulls: whether the correction grows with a client's distance from where it started, so that its steps do not
        simply add up.
    """

    down: ClassVar[float] = 0.0
    up: ClassVar[float] = 0.0
    pulls: ClassVar[bool] = False

    def check(self, trainer: LocalTrainer) -> None:
        """Raises `ValueError` for a trainer that it does not work with; accepts all by default."""

    def init(self, variables: Variables, num_clients: int) -> StrategyState:
        """Returns the state before round 0; none by default."""
        return ()

    def client_state(self, state: StrategyState, client: Int[Array, ""]) -> StrategyState:
        """Returns what one client holds while it trains; nothing by default."""
        return ()

    @abstractmethod
    def correct(
        self, client_state: StrategyState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient that a step from `variables` follows, in a round that began with `received`."""

    def offset(self, client_state: StrategyState) -> Variables | None:
        """Returns what is added to the direction of every step after the momentum, so that the momentum excludes it.

        None, the default: nothing. Otherwise the trainer must take it (`LocalTrainer.takes_offset`).
        """
        return None

    def upload(self, client_state: StrategyState, delta: Variables, step_size_sum: Float[Array, ""]) -> StrategyState:
        """Returns what a client sends besides its update `delta`; nothing by default.

        Args:
          client_state: what it held while it trained.
          delta: its update.
          step_size_sum: of its plan; with an `offset`, the sum of the learning rates (`Plan.rate_sum`).
        """
        return ()

    def merge(self, state: StrategyState, cohort: Cohort, uploads: StrategyState) -> StrategyState:
        """Returns the state after the round, from the uploads of the members in the mask; unchanged by default.

        `cohort.num_examples` says how many examples each trained on.
        """
        return state

    def adjust(self, state: StrategyState, variables: Variables) -> Variables:
        """Returns the new global model, from that of the aggregator; unchanged by default.

        It follows `merge`, in rounds in which an update has a weight.

        Args:
          state: after the round.
          variables: the trained parameters after the aggregator's step.
        """
        return variables


class Aggregator(Strategy):
    """How updates are merged: a weighted sum of the cohort's deltas, then a step of the server's optimiser.

    The weights depend on what is known before training, so the sum can be accumulated client by client and a cohort's
    models need never be in memory all at once. A robust rule sets `stacked`, and gets all deltas in `combine`.

    Attributes:
      stacked: whether it needs all deltas at once.
    """

    stacked: ClassVar[bool] = False

    @property
    def counts_examples(self) -> bool:
        """Returns whether it weighs members by their numbers of examples; by default, if `weighting` is `"size"`."""
        return getattr(self, "weighting", None) == "size"

    def check(self, trainer: LocalTrainer, correction: Correction) -> None:
        """Raises `ValueError` for local training or a correction that it does not work with; accepts all by default."""

    def check_size(self, m: int) -> None:
        """Raises `ValueError`, or warns, if `m`, the most members a cohort has, is too few; accepts all by default."""

    @abstractmethod
    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns the weight of each delta, 0 for empty slots.

        Without `combine`, only the sum of a cohort's updates is kept. If a member is left out of the sum, because its
        update is not finite, the weights of the others must all change by the same factor.

        Args:
          cohort: its mask says which members have a delta.
          num_examples: number of examples that each member trained on.
          plan: what each member did.
        """

    def receive(self, delta: Variables) -> Variables:
        """Returns one member's update as it is sent and merged, for example clipped; unchanged by default."""
        return delta

    def perturb(self, key: PRNGKey, change: Variables, slots: int) -> Variables:
        """Returns the cohort's change as the server's optimiser gets it, for example with noise; unchanged by default.

        Args:
          key: of this round.
          change: the sum of the updates, or what `combine` made of them.
          slots: `m`.
        """
        return change

    def combine(self, deltas: Variables, weights: Float[Array, "m"]) -> Variables:
        """Returns the cohort's change, from all deltas with a leading `m`; their weighted sum by default."""
        return jax.tree.map(lambda leaf: add_weighted(weights, leaf), deltas)

    def server_optimizer(self) -> optax.GradientTransformation:
        """Returns the server's optimiser, whose gradient is minus the change; by default it adds the change."""
        return optax.scale(-1.0)

    def init(self, variables: Variables) -> StrategyState:
        """Returns the optimiser's state before round 0."""
        return self.server_optimizer().init(widen(variables))  # as the sum of the updates is

    def step(self, state: StrategyState, variables: Variables, delta: Variables) -> tuple[Variables, StrategyState]:
        """Returns the new global model and state, from the change `delta`.

        If no update has a weight above 0, the engine keeps the old model and state, whatever this returns, unless
        `perturb` is overridden.
        """
        gradient = jax.tree.map(jnp.negative, delta)
        change, state = self.server_optimizer().update(gradient, state, variables)
        return optax.apply_updates(variables, change), state


class Availability(Strategy):
    """Which clients can be reached in each round."""

    @abstractmethod
    def available(self, key: PRNGKey, round: Int[Array, ""], num_clients: int) -> Bool[Array, "N"]:
        """Returns whether each client can be reached."""

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` if it does not fit the number of clients; accepts any number by default."""


def overrides(strategy: Strategy, method: str) -> bool:
    """Returns whether a strategy overrides a method of its base class."""
    return getattr(type(strategy), method) is not getattr(find_base(strategy), method)


def find_base(strategy: Strategy) -> type[Strategy]:
    """Returns the base class of a strategy's kind, as `ClientSelector`."""
    return next(cls for cls in type(strategy).__mro__ if Strategy in cls.__bases__)
