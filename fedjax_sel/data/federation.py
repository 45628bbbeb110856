"""Federations: recipes that make clients with examples from a seed, and stacks of the federations of several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Int, Shaped

from fedjax_sel.catalog import see
from fedjax_sel.data.checks import warn_of_shared, warn_of_units
from fedjax_sel.data.convert import convert_examples
from fedjax_sel.data.dataset import Dataset, Pair
from fedjax_sel.data.federated import FederatedData, federate
from fedjax_sel.data.own import from_arrays, from_frame
from fedjax_sel.data.partition.natural import Natural
from fedjax_sel.data.picture import plot_clients
from fedjax_sel.mistakes import NOT_REPEATED, refuse_global_random_numbers
from fedjax_sel.pytree import is_real, is_whole, show, to_plain

if TYPE_CHECKING:
    import pandas as pd

    from fedjax_sel.devices.profile import DeviceProfile

FROM_RNG = "draw them from rng, so that every seed has a partition of its own, and always the same"
"""What a partition does instead of drawing random numbers from `np.random`."""

# The first word of each random stream, so that no two uses of a seed draw the same numbers.
PARTITION, EXAMPLE_ORDER = 0x9A57, 0x05DE


@runtime_checkable
class Partition(Protocol):
    """Any object that assigns examples to clients; `data.partition` has the usual ones."""

    @property
    def clients(self) -> int | None:
        """`N`; None: as many clients as `assign` returns."""
        ...

    def assign(
        self, y: Shaped[np.ndarray, "n ..."], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example, in `0..N-1`, or -1 for an example of no client."""
        ...


@runtime_checkable
class DeviceLaw(Protocol):
    """Any object that draws the clients' devices; `devices.laws` has the usual ones."""

    def draw(self, seed: int, clients: int) -> DeviceProfile:
        """Returns the devices of `N` clients. Raises `ValueError` for parameters that no device can have."""
        ...


@dataclass(frozen=True, eq=False)
class Federation:
    """The recipe of a federation: the examples, and how they are divided among clients.

    Attributes:
      source: the examples, or a function that makes them from a seed (synthetic data).
      partition: assigns the examples to clients.
      holdout: share of each client's examples, drawn at random, that it keeps out of training.
      data_seed: fixes examples, partition and devices while the seed of a run varies; None: every seed draws its own.
      devices: the clients' devices, or the law that draws them; None: rounds take no simulated time.
      public: unlabelled examples that all clients may see, like those of the source, or a dataset whose training
        examples are used; None: none.
    """

    source: Dataset | Callable[[int], Dataset]
    partition: Partition
    holdout: float = 0.0
    data_seed: int | None = None
    devices: DeviceLaw | DeviceProfile | None = None
    public: Dataset | np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for a field of the wrong type or out of range."""
        if isinstance(self.source, type) or not (isinstance(self.source, Dataset) or callable(self.source)):
            raise ValueError(
                f"federation: source is {describe_kind(self.source)}; it must be a Dataset, as `dataset` and `load` "
                "return, or a function from a seed to one"
            )
        check_kind("partition", self.partition, Partition, "a partition, as partition.Iid(100)")
        if self.devices is not None and not hasattr(self.devices, "num_clients"):  # as a DeviceProfile has
            check_kind("devices", self.devices, DeviceLaw, "a DeviceProfile, or a law, as devices.laws.Uniform()")
        if isinstance(self.devices, type):
            check_kind("devices", self.devices, DeviceLaw, "")
        if not is_real(self.holdout) or np.ndim(self.holdout) or not 0 <= self.holdout < 1:
            raise ValueError(
                f"federation: holdout is {show(self.holdout)}; it must be a share of each client's examples, in [0, 1)"
            )
        seed = to_plain(self.data_seed)
        if seed is not None and (not is_whole(seed) or seed < 0):
            raise ValueError(f"federation: data_seed is {show(seed)}; it must be a whole number, 0 or above, or None")
        if isinstance(self.public, type):
            raise ValueError(f"federation: public is {describe_kind(self.public)}; it must be examples, or a Dataset")

    def plot(self, seed: int = 0, ax: Any = None) -> Any:
        """Plots the training examples of each client, as `seed` draws them, and returns the matplotlib axes.

        They are drawn by class if targets are classes.

        Args:
          seed: seed of the run.
          ax: axes to draw on; None: new ones.
        """
        return plot_clients(self.draw(seed), ax)

    @classmethod
    def from_arrays(
        cls,
        clients: Sequence[Pair] | Mapping[str, Pair],
        *,
        test: Pair | float | None = 0.2,
        validation: Pair | float | None = None,
        name: str = "own",
        targets: str = "classes",
        classes: int | None = None,
        **given: Any,
    ) -> Federation:
        """Returns the federation in which every client has its own examples and labels.

        Args:
          clients: `(x, y)` of each client.
          test: test examples of the server, or the share of all examples that is set apart for it.
          validation: the same for validation examples.
          name: name of the data in reports.
          targets, classes: as for `dataset`; `"continuous"`, `"multilabel"` or `"tokens"` if labels are not classes.
          given: other fields of `Federation`: `holdout`, `devices`, `public`.

        Raises:
          ValueError: as for `data.own.from_arrays`.

        >>> made = Federation.from_arrays([(np.eye(4), np.arange(4) % 2), (np.ones((6, 4)), np.arange(6) % 2)])
        >>> made.source
        Dataset('own': 8 training, 2 test, 0 validation examples of 4 float32, 2 classes, 2 owners)
        """
        made = from_arrays(clients, test=test, validation=validation, name=name, targets=targets, classes=classes)
        return cls(made, Natural(), **given)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        client: str,
        label: str,
        features: Iterable[str] | None = None,
        test: pd.DataFrame | float | None = 0.2,
        validation: pd.DataFrame | float | None = None,
        name: str = "table",
        classes: int | None = None,
        targets: str = "classes",
        **given: Any,
    ) -> Federation:
        """Returns the federation whose clients are the values of a column of a table.

        Args:
          frame: the table, with one example per row.
          client, label: the columns of the clients and of the labels.
          features: columns of numbers; None: all others.
          test, validation: a table, or a share.
          name: name of the data in reports.
          classes: how many there are, if some have no example.
          targets: `"continuous"` if the label is a number to be learnt, not a class.
          given: other fields of `Federation`.

        Raises:
          ValueError: as for `data.own.from_frame`.
        """
        made = from_frame(
            frame,
            client=client,
            label=label,
            features=features,
            test=test,
            validation=validation,
            name=name,
            classes=classes,
            targets=targets,
        )
        return cls(made, Natural(), **given)

    @see("docs/how-to/data.md")
    def draw(self, seed: int) -> FederatedData:
        """Returns the federation of one seed.

        Raises:
          ValueError: the federation cannot be drawn; a partition's message ends with the seed that was tried.
        """
        seed = seed if self.data_seed is None else self.data_seed
        if seed < 0:
            raise ValueError(f"seed is {seed}; seeds are 0 or above")
        data = self.source if isinstance(self.source, Dataset) else self.source(seed)
        if not isinstance(data, Dataset):
            raise ValueError(f"federation: source({seed}) returned {describe_kind(data)}; it must return a Dataset")
        try:
            rng = np.random.default_rng((PARTITION, seed))
            owner = None if data.owner is None else lock(data.owner)
            with refuse_global_random_numbers(FROM_RNG):
                client = np.asarray(self.partition.assign(lock(data.y), rng, owner))
            clients = int(client.max()) + 1 if self.partition.clients is None else self.partition.clients
            order = np.random.default_rng((EXAMPLE_ORDER, seed))
            drawn = federate(data, client, clients, holdout=self.holdout, rng=order)
            if self.holdout > 0 and not np.any(drawn.num_holdout):
                raise ValueError(
                    f"holdout is {self.holdout:g}, of which no client keeps an example (the largest has "
                    f"{np.max(drawn.num_examples)}); give a larger share, or 0"
                )
        except ValueError as error:
            raise ValueError(f"{data.name}, {self.partition}: {error} (data seed {seed})") from error
        with see("docs/how-to/devices.md"):
            devices = self.devices
            if isinstance(devices, DeviceLaw):
                with refuse_global_random_numbers(NOT_REPEATED):
                    devices = devices.draw(seed, clients)
                if not hasattr(devices, "check"):  # data does not import devices
                    raise ValueError(
                        f"{type(self.devices).__name__}.draw returned {describe_kind(devices)}; it must return a "
                        "DeviceProfile"
                    )
        return replace(drawn, devices=devices, public_x=self.public_examples(data))

    def public_examples(self, data: Dataset) -> np.ndarray | None:
        """Returns the public examples; raises `ValueError` if there are none, or they are unlike those of `data`."""
        if self.public is None:
            return None
        examples = self.public.x if isinstance(self.public, Dataset) else np.asarray(self.public)
        if not examples.ndim or examples.dtype.kind not in "iubf":
            raise ValueError(f"federation: public is {show(self.public)}; it must be examples, or a Dataset")
        if not isinstance(self.public, Dataset):
            examples = convert_examples("federation: public", examples)
        mine, theirs = (data.x.shape[1:], data.x.dtype), (examples.shape[1:], examples.dtype)
        if not len(examples) or mine != theirs:
            raise ValueError(
                f"there are {len(examples)} public examples of shape {theirs[0]} and type {theirs[1]}; at least one is "
                f"needed, like the examples of {data.name}, of shape {mine[0]} and type {mine[1]}"
            )
        warn_of_shared(data.name, examples, data.test_x)
        warn_of_units(data.name, "public", data.x, examples)
        return examples

    def draws(self, seeds: Sequence[int]) -> list[FederatedData]:
        """Returns one federation per seed; they are the same object if `data_seed` is set."""
        if self.data_seed is not None:
            return [self.draw(self.data_seed)] * len(seeds)
        return [self.draw(seed) for seed in seeds]


def describe_kind(value: object) -> str:
    """Returns a description of a value's type, for errors."""
    return f"{value.__name__}, a class" if isinstance(value, type) else f"a {type(value).__name__}"


def check_kind(what: str, value: object, kind: type, allowed: str) -> None:
    """Raises `ValueError` if a value is not an instance of `kind`, or is a class instead of an instance."""
    if isinstance(value, type):
        raise ValueError(f"federation: {what} is the class {value.__name__}; give a value, as {value.__name__}(...)")
    if not isinstance(value, kind):
        hint = "; the clients of examples are given by dataset(..., owner=...) and partition.Natural()"
        raise ValueError(
            f"federation: {what} is {show(value)}; it must be {allowed}{hint if what == 'partition' else ''}"
        )


def stack(federations: Sequence[FederatedData]) -> tuple[FederatedData, FederatedData]:
    """Stacks the federations of several seeds into one that can be mapped over.

    Arrays that are the same object in all seeds (shared examples) stay as they are; the others get a leading axis `R`.
    `order` and `owner` are padded to the longest with example 0, owned by client `N`, which a segment sum over `N`
    clients drops.

    Args:
      federations: one per seed, `R` in all, alike in their number of clients, classes, kind of targets, and the shapes
        and types of examples.

    Returns:
      The stacked federation, and the same structure with the axes for `jax.vmap(in_axes=...)`: 0 for a stacked array,
      None for a shared one.

    Raises:
      ValueError: `federations` is empty, or they are not alike.
    """
    if not federations:
        raise ValueError("nothing to stack; at least one federation is needed")
    first = federations[0]
    for seed, other in enumerate(federations):
        for what, mine, theirs in _likeness(first, other):
            if mine != theirs:
                raise ValueError(
                    f"federations of several seeds must be alike to run side by side: {what} is {mine} in federation "
                    f"0, but {theirs} in federation {seed}"
                )
    places = max(len(f.order) for f in federations)
    filler = {"order": 0, "owner": first.num_clients}
    leaves, axes = {}, {}
    for name in ARRAYS:
        values = [getattr(f, name) for f in federations]
        if all(value is values[0] for value in values):
            leaves[name], axes[name] = values[0], None
            continue
        if name in filler:
            values = [np.pad(v, (0, places - len(v)), constant_values=filler[name]) for v in values]
        leaves[name], axes[name] = jax.tree.map(lambda *each: np.stack(each), *values), 0
    devices = [f.devices for f in federations]
    if all(d is devices[0] for d in devices):
        leaves["devices"], axes["devices"] = devices[0], jax.tree.map(lambda _: None, devices[0])
    else:
        leaves["devices"] = jax.tree.map(lambda *values: np.stack(values), *devices)
        axes["devices"] = jax.tree.map(lambda _: 0, devices[0])
    longest = max(f.longest for f in federations)
    leaves["public_x"] = first.public_x
    axes["public_x"] = None
    same: dict = {"classes": first.classes, "longest": longest, "targets": first.targets}
    return FederatedData(**leaves, **same), FederatedData(**axes, **same)


EXAMPLES = ("x", "y", "test_x", "test_y", "validation_x", "validation_y")
ARRAYS = (*EXAMPLES, "order", "owner", "offset", "num_examples", "num_holdout")


def _likeness(a: FederatedData, b: FederatedData) -> list[tuple[str, object, object]]:
    """Returns the properties that must be equal for two federations to be stacked, each with both values."""
    pairs: list[tuple[str, object, object]] = [
        ("clients", a.num_clients, b.num_clients),
        ("classes", a.classes, b.classes),
        ("the kind of targets", a.targets, b.targets),
    ]
    for name in EXAMPLES:
        mine, theirs = getattr(a, name), getattr(b, name)
        pairs += [(f"the shape of {name}", mine.shape, theirs.shape), (f"the type of {name}", mine.dtype, theirs.dtype)]
    return pairs


def lock(values: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "n ..."]:
    """Returns the values, which a partition can read but not change."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view
