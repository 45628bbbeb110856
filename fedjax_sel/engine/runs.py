"""Experiments and seeds as the runs of one program: what is shared, what each has of its own, how they are laid out."""

from __future__ import annotations

from collections.abc import Mapping as Names
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import stack
from fedjax_sel.engine.autolayout import chosen
from fedjax_sel.engine.distributed import placed
from fedjax_sel.engine.experiment import Experiment, side_by_side
from fedjax_sel.engine.init import start
from fedjax_sel.engine.layout import Layout, owned
from fedjax_sel.engine.memory import check_kept, check_program
from fedjax_sel.engine.round import State
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.types import PRNGKey


@dataclass(frozen=True)
class Runs:
    """All seeds of the first experiment, then of the next.

    Where they do not divide among the devices, the last run is repeated; what the copies do is not looked at.

    Attributes:
      experiments, drawn, seeds: of each run.
      count: of those that are looked at.
      shared: the experiments as one; leaves that differ have a leading `R`.
      differs: which those are.
      together: the federations as one, as `data.federation.stack` has them.
      axes: which of its arrays have a leading `R`.
      layout: how they are run.
      length: rounds of a chunk.
    """

    experiments: list[Experiment]
    drawn: list[FederatedData]
    seeds: list[int]
    count: int
    shared: Experiment
    differs: tuple[bool, ...]
    together: FederatedData
    axes: FederatedData
    layout: Layout
    length: int

    @property
    def first(self) -> Experiment:
        """One of the experiments, for what all have in common."""
        return self.experiments[0]

    @property
    def keys(self) -> PRNGKey:
        """Key["R"], of the seeds."""
        return jax.vmap(jax.random.key)(jnp.asarray(self.seeds, jnp.uint32))

    @property
    def static(self) -> Names[str, Any]:
        """What `run_chunk` is compiled for."""
        return {"layout": self.layout, "length": self.length, "differs": self.differs, "axes": self.axes}

    def check_kept(self, memory: int | None) -> None:
        """Raise `ValueError` where rows and states do not fit a device."""
        check_kept(self.first, self.together, self.drawn[0].x, len(self.seeds), self.layout, memory)

    def check_program(self, state: State, memory: int | None) -> int:
        """Bytes that the program holds of a device, about; raises `ValueError` where it has not as many.

        Args:
          state: of all runs, or its shapes.
          memory: bytes that may be used; None: what a device has.
        """
        return check_program(
            run_chunk, (self.shared, self.together, self.keys, state, np.int32(0)), self.static, memory
        )

    def check_fits(self, memory: int | None) -> None:
        """As both checks, with the state of one run; nothing is compiled."""
        self.check_kept(memory)
        one, _ = start(self.experiments[:1], self.drawn[:1], self.keys[:1], self.layout)
        many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(self.seeds), *leaf.shape[1:]), leaf.dtype), one)
        self.without_public_examples().check_program(many, memory)

    def without_public_examples(self) -> Runs:
        """The same, after the beginning, which alone uses them."""
        drawn = [replace(one, public_x=None) for one in self.drawn]
        return replace(self, drawn=drawn, together=replace(self.together, public_x=None))

    def placed(self, state: State) -> tuple[Experiment, FederatedData, PRNGKey, State]:
        """Experiments, rows, keys and state on the devices that use them."""
        together, keys = placed(self.together, owned(self.axes, self.together), self.layout), self.keys
        keys, state = placed((keys, state), [True] * (1 + len(jax.tree.leaves(state))), self.layout)
        shared = self.shared if self.layout.mesh is None else placed(self.shared, list(self.differs), self.layout)
        return shared, together, keys, state


def laid_out(
    experiments: Sequence[Experiment],
    drawn: Sequence[FederatedData],
    seeds: Sequence[int],
    *,
    layout: Layout | str | None = None,
    mesh: tuple[int, int] | str | None = None,
    chunk: int | None = None,
    others: Sequence[Experiment] = (),
) -> Runs:
    """The runs of some experiments and seeds.

    Args:
      experiments: alike but for floats.
      drawn: the federation of each seed.
      seeds: as numbers.
      layout, mesh, chunk: as `engine.driver.simulate` takes them.
      others: experiments that the same program runs at another time.

    Raises:
      ValueError: they cannot share a program, or a layout or mesh that is none.
    """
    first, x, data = experiments[0], drawn[0].x, stack(drawn)[0]
    flops = first.task.flops(x)
    batch = min(getattr(first.local_training, "batch_size", None) or data.longest, data.longest)
    members = 1 if keeps_clients(first, data) else first.cohort(data.num_clients)
    pairs = [(i, j) for i in range(len(experiments)) for j in range(len(seeds))]
    count = len(pairs)
    layout = chosen(layout, 3 * flops * batch, flops, mesh, runs=count, members=members)
    pairs += [pairs[-1]] * (-count % layout.shares[0])
    each, of_runs = [experiments[i] for i, _ in pairs], [drawn[j] for _, j in pairs]
    shared, differs = side_by_side(each, others)
    together, axes = stack(of_runs)
    length = chunk or max(1, -(-first.rounds // 20))
    runs = [seeds[j] for _, j in pairs]
    return Runs(each, of_runs, runs, count, shared, differs, together, axes, layout, length)


def keeps_clients(experiment: Experiment, data: FederatedData) -> bool:
    """Whether something is kept of every client, which each device of a cohort would hold a copy of."""
    model, _ = experiment.task.split(jax.eval_shape(lambda: experiment.task.init(jax.random.key(0), data.x)))
    return bool(jax.tree.leaves(jax.eval_shape(lambda: experiment.correction.init(model, data.num_clients))))
