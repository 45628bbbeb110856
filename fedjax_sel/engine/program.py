"""Experiments and seeds as the runs of one program: what they share, what differs, and how they are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import stack
from fedjax_sel.data.host_array import keep_on_host
from fedjax_sel.engine.autolayout import choose_layout
from fedjax_sel.engine.distributed import is_distributed, place, place_shapes
from fedjax_sel.engine.experiment import Experiment, stack_experiments
from fedjax_sel.engine.init import init_states, init_variables, selector_inputs, shape_example, shape_prepared
from fedjax_sel.engine.keys import make_key
from fedjax_sel.engine.layout import Layout, has_leading_axis
from fedjax_sel.engine.memory import DoesNotFit, check_kept, check_program
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.engine.state import RoundState
from fedjax_sel.protocols import LocalTrainer, overrides
from fedjax_sel.types import PRNGKey


@dataclass(frozen=True)
class Program:
    """The runs of a program: all seeds of the first experiment, then of the next, and so on.

    If they do not divide evenly among the devices, the last run is repeated as padding, whose results are dropped.

    Attributes:
      experiments, federations, seeds: experiment, federation and seed of each run.
      count: number of runs without padding.
      experiment: the experiments as one; leaves that differ have a leading `R`.
      differs: which leaves those are.
      data: the federations as one, by `data.federation.stack`.
      data_axes: which of its arrays have a leading `R`.
      layout: how the runs are laid out.
      length: rounds per chunk.
      examples_on: where the training examples are stored, and why, as reported by the run.
    """

    experiments: list[Experiment]
    federations: list[FederatedData]
    seeds: list[int]
    count: int
    experiment: Experiment
    differs: tuple[bool, ...]
    data: FederatedData
    data_axes: FederatedData
    layout: Layout
    length: int
    examples_on: str = "on the device"

    @property
    def first(self) -> Experiment:
        """The first experiment, for what all experiments have in common."""
        return self.experiments[0]

    @property
    def keys(self) -> PRNGKey:
        """Key["R"], of the seeds."""
        return jax.vmap(make_key)(jnp.asarray(self.seeds, jnp.uint32))

    @property
    def static(self) -> Mapping[str, Any]:
        """The static arguments of `run_chunk`."""
        return {"layout": self.layout, "length": self.length, "differs": self.differs, "axes": self.data_axes}

    def settle(self, memory: int | None, examples_on: str | None) -> Program:
        """Returns the program with its examples stored as requested, or where examples and states fit on a device.

        Args:
          memory: bytes that may be used; None: all that a device has.
          examples_on: as in `Execution`.

        Raises:
          ValueError: they do not fit, or several processes were to keep examples on their hosts.
        """
        return self.where_it_fits(lambda program: program.check_kept(memory), examples_on)[0]

    def check_kept(self, memory: int | None) -> None:
        """Raises `ValueError` if examples and states do not fit on a device."""
        placed = place_shapes(self.data, has_leading_axis(self.data_axes, self.data), self.layout)
        check_kept(self.first, placed, self.federations[0].like, len(self.seeds), self.layout, memory)

    def settle_program(self, state: RoundState, memory: int | None, examples_on: str | None) -> tuple[Program, int]:
        """Like `settle`, for all that the program holds; also returns the approximate bytes it holds on a device.

        Args:
          state: state of all runs, or its shapes.
          memory, examples_on: as for `settle`.
        """

        def check(program: Program) -> int:
            arguments = (*program._put(place_shapes, state), np.int32(0))
            return check_program(run_chunk, arguments, program.static, memory)

        return self.where_it_fits(check, examples_on)

    def where_it_fits(self, check: Callable[[Program], Any], examples_on: str | None) -> tuple[Program, Any]:
        """Returns the program and what `check` returns; moves examples to the host if needed, unless a place is set."""
        if examples_on in ("device", "host") or self.data.stays_on_host or is_distributed():
            program = self.on_host("as asked") if examples_on == "host" else self
            return program, check(program)
        try:
            return self, check(self)
        except DoesNotFit as error:
            program = self.on_host(f"because {str(error).split(';')[0]}")
        return program, check(program)

    def on_host(self, why: str) -> Program:
        """Returns the program with training examples kept on the host, and their targets, too, if they are tokens."""
        if is_distributed():
            raise ValueError(
                f"examples_on is 'host', which is for one process, but there are {jax.process_count()}; "
                "set examples_on=device"
            )
        if self.data.stays_on_host:
            return self
        names = ("x",) if self.data.targets != "tokens" else ("x", "y")
        kept = {name: keep_on_host([getattr(one, name) for one in self.federations]) for name in names}
        places = {id(one): {name: of[i] for name, of in kept.items()} for i, one in enumerate(self.federations)}
        moved = {id(one): replace(one, **places[id(one)]) for one in self.federations}
        federations = [moved[id(one)] for one in self.federations]
        data, data_axes = stack(federations)
        return replace(self, federations=federations, data=data, data_axes=data_axes, examples_on=f"on the host, {why}")

    def check_fits(self, memory: int | None, examples_on: str | None = None) -> None:
        """Runs both checks of memory without compiling, and without running a selector's `init` unless it must."""
        program = self.settle(memory, examples_on)
        program.without_public_examples().settle_program(program.state_shape(), memory, examples_on)

    def state_shape(self) -> RoundState:
        """Returns the shapes and types of the state of all runs."""
        experiment, data, runs = self.first, self.federations[0], len(self.seeds)
        example = shape_example(data)
        variables = jax.eval_shape(lambda keys: init_variables(experiment.task, keys, example), self.keys[:1])
        own = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), variables)
        key, ctx, host = selector_inputs(experiment, data, self.keys[0], own, self.layout)
        selector = experiment.client_selection.state_shape(key, ctx, host)
        stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), selector)
        data = replace(data, longest=self.data.longest)
        ready = shape_prepared(experiment, data, self.keys[0], own)
        one = jax.eval_shape(lambda v, s, p: init_states([experiment], data, v, s, p), variables, stacked, ready)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((runs, *leaf.shape[1:]), leaf.dtype), one)

    def without_public_examples(self) -> Program:
        """Returns the program without public examples, unless signals after `init` still look at them."""
        signals = self.first.client_selection.signals()
        if any(one.public for moment in ("before", "trained") for one in signals.at(moment).values()):
            return self
        federations = [replace(one, public_x=None) for one in self.federations]
        return replace(self, federations=federations, data=replace(self.data, public_x=None))

    def place(self, state: RoundState) -> tuple[Experiment, FederatedData, PRNGKey, RoundState]:
        """Places experiments, examples, keys and state on the devices that use them."""
        return self._put(place, state)

    def _put(self, put: Callable[..., Any], state: RoundState) -> tuple[Experiment, FederatedData, PRNGKey, RoundState]:
        data = put(self.data, has_leading_axis(self.data_axes, self.data), self.layout)
        keys, state = put((self.keys, state), [True] * (1 + len(jax.tree.leaves(state))), self.layout)
        experiment = self.experiment
        if self.layout.mesh is not None:
            experiment = put(experiment, list(self.differs), self.layout)
        return experiment, data, keys, state


def plan_program(
    experiments: Sequence[Experiment],
    federations: Sequence[FederatedData],
    seeds: Sequence[int],
    *,
    layout: Layout | str | None = None,
    mesh: tuple[int, int] | str | None = None,
    chunk: int | None = None,
    others: Sequence[Experiment] = (),
) -> Program:
    """Returns the program that runs the experiments for the seeds.

    Args:
      experiments: identical except for floats.
      federations: the federation of each seed.
      seeds: seeds, as numbers.
      layout, mesh, chunk: as in `Execution`.
      others: experiments that the same program runs at another time.

    Raises:
      ValueError: they cannot share a program, or the layout or mesh is invalid.
    """
    first = experiments[0]
    pairs = [(i, j) for i in range(len(experiments)) for j in range(len(seeds))]
    count = len(pairs)
    chosen = plan_layout(first, federations, count, layout, mesh)
    pairs += [pairs[-1]] * (-count % chosen.shares[0])
    each, of_runs = [experiments[i] for i, _ in pairs], [federations[j] for _, j in pairs]
    experiment, differs = stack_experiments(each, others)
    data, data_axes = stack(of_runs)
    length = chunk or max(1, -(-first.rounds // 20))
    runs = [seeds[j] for _, j in pairs]
    return Program(each, of_runs, runs, count, experiment, differs, data, data_axes, chosen, length)


def plan_layout(
    experiment: Experiment,
    federations: Sequence[FederatedData],
    runs: int,
    layout: Layout | str | None = None,
    mesh: tuple[int, int] | str | None = None,
) -> Layout:
    """Returns the layout of so many runs of an experiment on these federations, which are padded alike."""
    data, trainer = federations[0], experiment.local_training
    flops, longest = experiment.task.flops(data.like), max(one.longest for one in federations)
    cohort = experiment.count_cohort(data.num_clients)
    members = 1 if keeps_client_state(experiment, data) else cohort
    steps = [count_steps(trainer, np.asarray(one.num_examples)) for one in federations]
    work = 3 * flops * trainer.step_examples(longest)
    chosen = choose_layout(layout, work, flops, mesh, runs=runs, members=members, cohort=cohort, steps=steps)
    return replace(chosen, balanced=False) if experiment.keeps_updates else chosen


def count_steps(trainer: LocalTrainer, num_examples: Int[np.ndarray, "N"]) -> Int[np.ndarray, "N"]:
    """Returns about how many local steps clients with so many examples take, if they train on all of them."""

    def count(n: int) -> int:
        seen, size = trainer.most_examples(n), trainer.step_examples(n)
        passes, rest = divmod(n if seen is None else seen, n)
        return passes * -(-n // size) - (-rest // size)

    sizes, place = np.unique(num_examples, return_inverse=True)
    return np.array([count(int(n)) for n in sizes])[place]


def keeps_client_state(experiment: Experiment, data: FederatedData) -> bool:
    """Returns whether state is kept for every client, of which each device of a cohort would hold a copy."""
    if experiment.task.personal:
        return True
    model, _ = experiment.task.split(experiment.task.shapes(data.like))
    kept = jax.eval_shape(lambda: experiment.correction.init(model, data.num_clients))
    selector = experiment.data_selection
    return overrides(selector, "prepare") or bool(
        jax.tree.leaves((kept, selector.init(data.num_clients, data.longest)))
    )
