"""The driver: it runs rounds in scanned chunks, with runs side by side, and returns to the host between chunks."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fedjax_sel.catalog import check_name, see
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.engine.callback import needs_variables, tell
from fedjax_sel.engine.checkpoint import Point, leaves, to_host
from fedjax_sel.engine.contract import name_kind
from fedjax_sel.engine.distributed import (
    any_process,
    check_same,
    check_same_run,
    describe_device,
    fetch,
    is_distributed,
    wait_for_all,
)
from fedjax_sel.engine.eager import run_chunk_in_python
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.faults import warn_of_faults
from fedjax_sel.engine.forgetting import forget_many_programs
from fedjax_sel.engine.history import History
from fedjax_sel.engine.layout import ONE_BY_ONE
from fedjax_sel.engine.ledger import find_rates
from fedjax_sel.engine.mark import digest
from fedjax_sel.engine.metrics import complete_metrics
from fedjax_sel.engine.program import Program, plan_program
from fedjax_sel.engine.recorder import Recorder, split_history
from fedjax_sel.engine.resume import begin_or_resume, mark_program
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.engine.state import RoundState, flatten_record
from fedjax_sel.mistakes import name_operation
from fedjax_sel.pytree import is_whole, show, to_plain
from fedjax_sel.task.convolutions import warn_native_convolutions
from fedjax_sel.types import Variables

DRAWN_APART = (
    "the processes begin with different states: their processors round differently, or what a strategy does before "
    "round 0 differs from process to process; run them on machines of one kind"
)

LONG = 30.0
"""If what precedes round 0 takes more seconds than this, a checkpoint keeps its result, the state before round 0."""


def simulate(
    experiment: Experiment,
    data: Federation | FederatedData,
    seeds: int | Iterable[int] = 1,
    execution: Execution | None = None,
    **changes: Any,
) -> History:
    """Runs an experiment for every seed, all in one compiled program, and returns its history.

    Args:
      experiment: what to run.
      data: a federation, drawn afresh for every seed; or clients' examples, the same for all.
      seeds: how many (`k` means 0 to `k - 1`), or which. Each seed draws its own initial model and cohorts, and, unless
        `data` is the same for all seeds, its own partition and devices.
      execution: how to run; None: the defaults of `Execution`.
      changes: fields of `Execution` to change, as in `debug=True`.

    Raises:
      ValueError: it cannot run; raised before anything compiles.
    """
    return sweep([experiment], data, seeds, execution, **changes)[0]


@run_chunk.as_of_now()
def sweep(
    experiments: Sequence[Experiment],
    data: Federation | FederatedData,
    seeds: int | Iterable[int] = 1,
    execution: Execution | None = None,
    *,
    others: Sequence[Experiment] = (),
    **changes: Any,
) -> list[History]:
    """Runs several experiments that differ only in floats, in one compiled program, and returns their histories.

    Args:
      experiments: identical except for floats.
      data, seeds, execution, changes: as for `simulate`; callbacks see one history of all runs, with the first
        experiment's seeds first.
      others: experiments that the same program runs at another time; running as many of them compiles nothing again.

    Raises:
      ValueError: they cannot run; raised before anything compiles.
    """
    began = time.perf_counter()
    check_arguments(experiments, data, others)
    how = resolve_execution(execution, changes)
    seeds = check_seeds(seeds)
    federations = data.draws(seeds) if isinstance(data, Federation) else [data] * len(seeds)
    for one in {id(one): one for one in federations}.values():
        for experiment in experiments:
            experiment.check(one)
    experiments[0].warn_of_sizes(federations[0])
    for callback in how.callbacks:
        if hasattr(callback, "check_metrics"):
            callback.check_metrics({"loss", *complete_metrics(experiments[0].task, federations[0]).metrics})
    if how.checkpoints is not None and max(how.checkpoints.rounds(), default=0) < experiments[0].rounds:
        how.checkpoints.check_folder()
    forget_many_programs()
    program = settle_plan(experiments, federations, seeds, how, others)
    mark_at = mark_program(program) if how.checkpoints is not None or is_distributed() else lambda rounds: ""
    mark = mark_at(program.first.rounds)  # before the user's code runs, which may note something in what it reads
    if is_distributed():
        wait_for_all()
        check_same_run(f"{mark} {program.length} {program.examples_on}")
    point, upfront = begin_or_resume(program, how, mark, mark_at)
    if is_distributed():  # each process has read or computed it alone
        wait_for_all()
        check_same(point.round)
        check_same_run(digest({name: to_host(leaf) for name, leaf in leaves(point.state)}), DRAWN_APART)
    upfront = {name: value[: program.count] for name, value in upfront.items()}
    program = program.without_public_examples()
    memory = {}
    if not how.debug:
        warn_native_convolutions(program.first.task, federations[0].like)
        program, memory["memory"] = program.settle_program(point.state, how.memory, how.examples_on)
    about = describe(program, federations[0]) | memory
    rates = [one for experiment in experiments for one in [find_rates(experiment, federations[0])] * len(seeds)]
    recorder = Recorder(program, rates, upfront)
    history = run_rounds(program, point, recorder, about, how, mark, began)
    histories = split_history(history, len(experiments))
    for one in histories:
        warn_of_faults(one, alone=len(experiments) == 1)
    return histories


def settle_plan(
    experiments: Sequence[Experiment],
    federations: Sequence[FederatedData],
    seeds: Sequence[int],
    how: Execution,
    others: Sequence[Experiment],
) -> Program:
    """Returns the program of several experiments, with its layout and where it has its examples."""
    layout, mesh = (ONE_BY_ONE, None) if how.debug else (how.layout, how.mesh)
    program = plan_program(experiments, federations, seeds, layout=layout, mesh=mesh, chunk=how.chunk, others=others)
    return program.settle(how.memory, how.examples_on)


def check_checkpoints(
    experiments: Sequence[Experiment],
    data: Federation,
    seeds: Sequence[int],
    execution: Execution | None = None,
    *,
    others: Sequence[Experiment] = (),
    **changes: Any,
) -> None:
    """Raises `ValueError` if `sweep`, with these arguments, could not go on from its checkpoints; compiles nothing."""
    how = resolve_execution(execution, changes)
    program = settle_plan(experiments, data.draws(seeds), seeds, how, others)
    mark_at = mark_program(program)
    if how.checkpoints is not None:
        how.checkpoints.check(mark_at(program.first.rounds), mark_at)


def run_rounds(
    program: Program,
    point: Point,
    recorder: Recorder,
    about: dict[str, Any],
    how: Execution,
    mark: str,
    began: float,
) -> History:
    """Runs all rounds of a program, with callbacks and checkpoints between chunks, and returns the history.

    Args:
      program: what is run.
      point: from where it goes on.
      recorder: builds the history.
      about: what the history says about the run.
      how: its checkpoints, callbacks and `debug` are used.
      mark: mark of the run, for its checkpoints.
      began: when the run began, by `time.perf_counter`.
    """
    rounds, length = program.first.rounds, program.length
    first, spent, state = point.round, point.seconds, point.state
    if first:
        about = {**about, "seconds": spent, "resumed_at": first}
    recorder.restore(point.measured)
    history = recorder.build_history(about)
    wait_for_all()
    shows = any_process(needs_variables(how.callbacks))  # all processes take part in the transfer
    tell(how.callbacks, "on_train_begin", history)
    # A callback may have ended the run, which was then killed before the end was recorded: end it again here.
    known = replace(history, variables=copy_models(program, state.variables)) if shows else history
    ended = 0 < first < rounds and any_process(tell(how.callbacks, "after_central_iteration", known))
    took = time.perf_counter() - began
    *placed, state = program.place(state)
    try:
        if how.checkpoints is not None and how.checkpoints.saved is None and any_process(took > LONG):
            how.checkpoints.save(Point(0, state, {}, took), mark)
        if first < rounds and not (ended or how.debug):  # compiled here, run below
            with name_operation():
                lowered = run_chunk.lower(*placed, state, np.int32(first), **program.static)
            lowered.compile()
            wait_for_all()  # compiling may take one process longer than the others wait in a collective
            tell(how.callbacks, "on_compiled", history)
        for t in range(first, rounds, length):
            if ended:
                break
            count = min(length, rounds - t)
            state, arrays = advance(program, placed, state, t, count, debug=how.debug)
            recorder.add(arrays)
            about = {**about, "seconds": spent + time.perf_counter() - began}
            about.setdefault("seconds_of_first_chunk", about["seconds"] - spent)
            history = recorder.build_history(about)
            if shows:
                history = replace(history, variables=copy_models(program, state.variables))
            done = t + count
            reached = Point(done, state, recorder.arrays, about["seconds"])
            try:
                ended = any_process(tell(how.callbacks, "after_central_iteration", history))
            except Exception:
                if how.checkpoints is not None and jax.process_count() == 1:  # keep what was computed
                    how.checkpoints.save(reached, mark)
                raise
            if how.checkpoints is not None and any_process(how.checkpoints.due(done, now=ended or done == rounds)):
                how.checkpoints.save(reached, mark)
    finally:
        if how.checkpoints is not None:  # complete the pending write, whatever ended the run
            how.checkpoints.finish()
    variables, personal = (copy_models(program, models) for models in (state.variables, state.personal))
    history = replace(history, variables=variables, personal=personal)
    tell(how.callbacks, "on_train_end", history)
    return history


def advance(
    program: Program, placed: Sequence[Any], state: RoundState, t: int, count: int, *, debug: bool
) -> tuple[RoundState, dict[str, np.ndarray]]:
    """Runs `count` rounds from round `t` on; returns the state after them and their record, without padding runs.

    Args:
      program: what is run.
      placed: its experiments, examples and keys, on the devices.
      state: of all runs; its memory is reused.
      t, count: the first round, from 0, and how many.
      debug: whether to run without compilation.
    """
    if debug:
        state, record = run_chunk_in_python(program, state, t, count)
    else:
        state, record = run_chunk(*placed, state, np.int32(t), **program.static)
    arrays = flatten_record(fetch(record))
    return state, {name: value[: program.count, :count] for name, value in arrays.items()}


def copy_models(program: Program, models: Variables) -> Variables:
    """Copies the models of all runs, without padding runs, to the host; the device's memory is reused."""
    return jax.tree.map(lambda leaf: to_host(leaf)[: program.count], models)


def resolve_execution(execution: Execution | None, changes: dict[str, Any]) -> Execution:
    """Returns an execution with some fields changed; raises `ValueError`, naming it, for an unknown field."""
    for name in changes:
        check_name("option", name, [field.name for field in dataclasses.fields(Execution)])
    if not isinstance(execution, Execution | None):
        raise ValueError(
            f"execution is {show(execution)}; it must be an Execution, or give its fields by name, as in layout='scan'"
        )
    return replace(execution or Execution(), **changes)


@see("docs/learn/tour.md")
def check_arguments(experiments: Any, data: Any, others: Any = ()) -> None:
    """Raises `ValueError` if arguments of `simulate` or `sweep` are of the wrong kind."""
    if not isinstance(experiments, Sequence) or isinstance(experiments, str):
        raise ValueError(
            f"the experiments are {name_kind(experiments)}; sweep takes a list of them, simulate takes one"
        )
    for experiment in (*experiments, *others):
        if isinstance(experiment, type):
            raise ValueError(f"the experiment is {experiment.__name__}, a class; give {experiment.__name__}(...)")
        if not isinstance(experiment, Experiment):
            hint = "; the experiment comes first, then the data" if isinstance(data, Experiment) else ""
            if isinstance(experiment, Sequence) and not isinstance(experiment, str):
                hint = "; several experiments are run by sweep"
            raise ValueError(f"the experiment is {name_kind(experiment)}; it must be an Experiment{hint}")
    if not experiments:
        raise ValueError("there are no experiments; give at least one")
    if isinstance(data, type):
        raise ValueError(f"the data is {data.__name__}, a class; give {data.__name__}(...)")
    if isinstance(data, Dataset):
        raise ValueError(
            "the data is a Dataset, whose examples belong to nobody; give Federation(dataset, partition), "
            "as in Federation(dataset, partition.Iid(clients=10))"
        )
    if not isinstance(data, Federation | FederatedData):
        raise ValueError(f"the data is {name_kind(data)}; it must be a Federation, as Federation(dataset, partition)")


def describe(program: Program, data: FederatedData) -> dict[str, Any]:
    """Describes a run: device, layout, what its model costs, and how many examples its clients have (first seed)."""
    experiment, num_clients, x = program.first, program.data.num_clients, data.like
    own = {}
    if experiment.evaluate_clients_every is not None:
        own_models = experiment.has_own_models
        has_some = own_models or np.max(data.num_holdout) > 0  # of every seed, or of none
        held = f"{'hold-out' if has_some else 'training'} examples" + (", each by its own model" if own_models else "")
        without = max(np.sum(one.num_holdout == 0) for one in program.federations) if has_some else 0
        lacking = f" (up to {without} of {num_clients} clients have none, and count nowhere)" if without else ""
        own = {"clients_evaluated_on": f"their own {held}{lacking}; nobody is billed for it"}
    return {
        "device": describe_device(),
        "layout": str(program.layout),
        "examples_on": program.examples_on,
        "parameters": experiment.task.parameters(x),
        "forward_flops_per_example": experiment.task.flops(x),
        "backward_over_forward": experiment.task.backward(x),
        "clients": num_clients,
        "cohort_size": experiment.count_cohort(num_clients),
        "strategies": {name: type(part).__name__ for name, part in experiment.parts.items()},
        "examples_per_client": float(np.mean(data.num_examples)),
        "classes": data.classes,
        **own,
    }


def to_whole(value: Any) -> int:
    """Converts a whole number to a Python integer; raises `TypeError` for any other value."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


MOST_SEEDS = 2**20
"""The largest count of seeds; a larger number was probably meant as a seed."""


def check_seeds(seeds: Any) -> tuple[int, ...]:
    """Returns seeds as integers; a count `k` stands for the seeds 0 to `k - 1`.

    >>> check_seeds(3)
    (0, 1, 2)
    """
    try:
        seeds = to_plain(seeds)
        if is_whole(seeds) and seeds > MOST_SEEDS:
            raise ValueError(f"seeds are {seeds}; a count of them is at most {MOST_SEEDS:,}")
        out = () if isinstance(seeds, bool) else tuple(range(seeds) if is_whole(seeds) else map(to_whole, seeds))
    except TypeError:  # do not round a seed that is not a whole number: it would be another run's
        out = ()
    if not out or min(out) < 0 or max(out) >= 2**32 or len(set(out)) < len(out):
        raise ValueError(
            f"seeds are {show(seeds)}; give how many (at least 1), or which: different whole numbers from 0 to 2^32 - 1"
        )
    return out
