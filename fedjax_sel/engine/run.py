"""The driver: rounds in scanned chunks, seeds side by side, the host in between."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation, stack
from fedjax_sel.devices.bill import NUMBER, bill
from fedjax_sel.devices.clock import joules, slowest, timing
from fedjax_sel.engine.asking import wants_previous
from fedjax_sel.engine.checkpoint import Checkpoints, Point, mark_of
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.mapping import Mapping, chosen
from fedjax_sel.engine.round import State, context, round_step
from fedjax_sel.protocols import Host, Upfront
from fedjax_sel.types import Context, PRNGKey, Variables

Watch = Callable[[History], bool | None]
"""Called between chunks with the history so far; a true answer ends the run.

Where it also has `begin(history)`, that is called once before the first chunk, when `history.about` says how it will
be run.
"""


def simulate(
    experiment: Experiment,
    data: Federation | FederatedData,
    seeds: int | Iterable[int] = 1,
    *,
    mapping: Mapping | str | None = None,
    chunk: int | None = None,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
    debug: bool = False,
) -> History:
    """Run an experiment for every seed, all in one compiled program.

    Args:
      experiment: what to run.
      data: a recipe, drawn afresh for every seed; or clients' rows, the same for all.
      seeds: a count or numbers; each draws its partition, initial model and cohorts.
      mapping: `"auto"`, `"vmap"`, `"scan"` or a `Mapping`.
      chunk: rounds between two looks of the host; about a twentieth of the run by default.
      watch: called between chunks.
      checkpoints: saved between chunks; a run that has some goes on from the newest, to the same result bit for bit.
      debug: without compilation, one client at a time; an error names the round and the stage.

    Raises:
      ValueError: for what cannot run, before anything compiles.
    """
    began = time.perf_counter()
    seeds = checked_seeds(seeds)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; it must be at least 1 round, or None")
    drawn = data.draws(seeds) if isinstance(data, Federation) else [data] * len(seeds)
    for one in {id(one): one for one in drawn}.values():
        experiment.check(one)
    together, axes = stack(drawn)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))

    task, x = experiment.task, drawn[0].x
    parameters, flops = task.parameters(x), task.flops(x)
    batch = min(getattr(experiment.trainer, "batch_size", None) or together.longest, together.longest)
    m = experiment.cohort(together.clients)
    layout = Mapping(clients=1, seeds="scan") if debug else chosen(mapping, 3 * flops * batch, flops)
    check_memory(experiment, drawn[0], len(seeds))
    state, taken = start(experiment, drawn, keys, layout)
    drawn = [replace(one, public_x=None) for one in drawn]
    together = replace(together, public_x=None)
    length = chunk or max(1, -(-experiment.rounds // 20))

    about = {
        "device": describe_device(),
        "mapping": str(layout),
        "parameters": parameters,
        "forward_flops_per_row": flops,
        "backward_over_forward": task.backward(x),
        "clients": together.clients,
        "m": m,
    }
    first, spent, parts, mark = 0, 0.0, [], ""
    history = History(seeds, {}, np.zeros((len(seeds), 0, m), np.int32), together.clients, about)
    if checkpoints is not None:
        mark = mark_of(experiment, seeds, replace(together, x=0, test_x=0, validation_x=0), str(layout))
        if (point := checkpoints.restore(state, mark)) is not None:
            first, spent, state, parts = point.round, point.seconds, point.state, [point.measured]
            about = {**about, "seconds": spent, "resumed_at": first}
            history = recorded(experiment, seeds, parts[0], taken, together.clients, about)
    if (begin := getattr(watch, "begin", None)) is not None:
        begin(history)
    together = jax.device_put(together)
    for t in range(first, experiment.rounds, length):
        count = min(length, experiment.rounds - t)
        if debug:
            state, measured = chunk_in_python(experiment, drawn, seeds, keys, state, t, count, layout)
        else:
            state, measured = run_chunk(
                experiment, together, keys, state, jnp.int32(t), mapping=layout, length=length, axes=axes
            )
        parts.append({name: np.asarray(value)[:, :count] for name, value in measured.items()})
        whole = joined(parts)
        about = {**about, "seconds": spent + time.perf_counter() - began}
        about.setdefault("seconds_of_first_chunk", about["seconds"] - spent)
        history = recorded(experiment, seeds, whole, taken, together.clients, about)
        point = Point(t + count, state, whole, about["seconds"])
        if checkpoints is not None:
            checkpoints.save(point, mark, now=point.round == experiment.rounds)
        if watch is not None and watch(history):
            if checkpoints is not None:
                checkpoints.save(point, mark, now=True)
            break
    return replace(history, variables=jax.device_get(state.variables))


def start(
    experiment: Experiment, drawn: list[FederatedData], keys: PRNGKey, layout: Mapping
) -> tuple[State, dict[str, np.ndarray]]:
    """The state of every seed before the first round, with a leading `R`, and what the clients gave for it."""
    variables = jax.vmap(lambda key: experiment.task.init(key_for(key, Purpose.MODEL), drawn[0].x))(keys)
    trained, _ = experiment.task.split(variables)
    memories, taken = [], []
    upfront = getattr(experiment.selector, "upfront", None)
    for i, data in enumerate(drawn):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], variables)
        key, ctx, host = beginning(experiment, data, keys[i], own, layout.clients)
        memories.append(experiment.selector.init(key, ctx, host))
        costs = [] if upfront is None else [cost_upfront(upfront(ctx, host), data, "selection_")]
        if fixed := experiment.task.fixed_parameters(data.x):
            costs.append(cost_upfront(Upfront(np.zeros(data.clients), float(NUMBER * fixed), 0.0), data))
        taken.append({name: sum(cost.get(name, 0.0) for cost in costs) for cost in costs for name in cost})
    state = State(
        variables=variables,
        selector=jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories),
        aggregator=jax.vmap(experiment.aggregator.init)(trained),
        correction=jax.vmap(lambda own: experiment.correction.init(own, drawn[0].clients))(trained),
        change=jax.tree.map(jnp.zeros_like, variables) if wants_previous(experiment.selector.after) else None,
    )
    # A weakly typed leaf would come out of the first chunk settled, and the second chunk be compiled for it.
    state = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)
    return state, {name: np.array([one[name] for one in taken]) for name in taken[0]} if taken else {}


def beginning(
    experiment: Experiment, data: FederatedData, seed: PRNGKey, variables: Variables, side_by_side: int | None = None
) -> tuple[PRNGKey, Context, Host]:
    """What the client selector of one seed is given before the first round."""
    host = Host(experiment.task, data, variables, experiment.trainer, side_by_side)
    return key_for(seed, Purpose.SELECTOR), context(experiment, data, seed, jnp.int32(0)), host


def cost_upfront(taken: Upfront, data: FederatedData, kind: str = "") -> dict[str, float]:
    """What all clients received, did and sent before the first round, by the metric it is added to.

    Args:
      taken: of each client.
      data: with the devices.
      kind: `"selection_"`, or nothing for what belongs to training.
    """
    costs = {
        f"{kind}bytes_down": data.clients * taken.down,
        f"{kind}bytes_up": data.clients * taken.up,
        f"{kind or 'client_'}flops": float(np.sum(taken.flops)),
    }
    if data.devices is not None:
        turn = timing(data.devices, jnp.asarray(taken.flops, jnp.float32), taken.down, taken.up)
        costs["seconds"] = float(slowest(turn, jnp.ones(data.clients, bool)))
        costs["joules"] = float(joules(data.devices, turn).sum())
    return costs


@partial(jax.jit, static_argnames=("mapping", "length", "axes"), donate_argnames="state")
def run_chunk(
    experiment: Experiment,
    data: FederatedData,
    keys: PRNGKey,
    state: State,
    t0: jax.Array,
    *,
    mapping: Mapping,
    length: int,
    axes: FederatedData,
) -> tuple[State, dict[str, jax.Array]]:
    """Rounds `t0 … t0 + length - 1` of every seed; those after the last change nothing.

    Args:
      experiment: traced in its floats.
      data: leaves with a leading `R` where `axes` says 0.
      keys: Key["R"].
      state: with a leading `R`; its memory is used again.
      t0: first round.
      mapping: how.
      length: of the chunk; the last one of a run is not compiled for itself.
      axes: for `Mapping.over_seeds`.

    Returns:
      The state after, and what was measured, with leading `R`, `length`.
    """

    def one_seed(data, key, state):
        @jax.jit  # traced once for both uses below
        def go(state, t):
            return round_step(experiment, data, key, state, t, mapping)

        _, like = jax.eval_shape(go, state, t0)

        def stay(state, t):
            return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

        def step(state, t):
            return jax.lax.cond(t < experiment.rounds, go, stay, state, t)

        return jax.lax.scan(step, state, t0 + jnp.arange(length))

    return mapping.over_seeds(one_seed, (data, keys, state), (axes, 0, 0))


def chunk_in_python(experiment, drawn, seeds, keys, state, t0, count, mapping):
    """As `run_chunk`, without compilation: the tests' oracle, and where a user looks for an error."""
    states, measured = [], []
    with jax.disable_jit():
        for i, data in enumerate(drawn):
            own = jax.tree.map(lambda leaf, i=i: leaf[i], state)
            rounds = []
            for t in range(t0, t0 + count):
                with stage("simulate", seed=seeds[i]):
                    own, values = round_step(
                        experiment, jax.tree.map(jnp.asarray, data), keys[i], own, jnp.int32(t), mapping
                    )
                rounds.append(values)
            states.append(own)
            measured.append(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds))
        together = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
        return together(*states), together(*measured)


def recorded(
    experiment: Experiment, seeds, whole: dict[str, np.ndarray], taken: dict[str, np.ndarray], clients: int, about: dict
) -> History:
    """The history of what was measured so far, with the bill written; what was taken upfront is the first round's."""
    quality = {
        name: whole[name] for name in ("accuracy", "loss", "training_loss", "seconds", "joules") if name in whole
    }
    costs = bill(
        whole,
        experiment.selector,
        experiment.samples,
        experiment.correction,
        parameters=about["parameters"],
        flops=about["forward_flops_per_row"],
        backward=about["backward_over_forward"],
    )
    metrics = {**quality, **costs}
    for name, value in taken.items():
        first = np.arange(metrics[name].shape[1]) == 0
        metrics[name] = metrics[name] + value[:, None] * first
    return History(seeds, metrics, whole["client"], clients, about)


def joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What was measured in all chunks."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def checked_seeds(seeds: Any) -> tuple[int, ...]:
    """Seeds as integers; a count stands for the first so many.

    >>> checked_seeds(3)
    (0, 1, 2)
    """
    try:
        out = tuple(range(seeds) if isinstance(seeds, int | np.integer) else map(operator.index, seeds))
    except TypeError:  # a seed that is no whole number must not be rounded to another run's
        out = ()
    if not out or min(out) < 0 or max(out) >= 2**32 or len(set(out)) < len(out):
        raise ValueError(
            f"seeds are {seeds!r}; there must be at least one, all different whole numbers from 0 to 2^32 - 1"
        )
    return out


def check_memory(experiment: Experiment, data: FederatedData, seeds: int) -> None:
    """Raise `ValueError` where what is kept for each client cannot fit."""

    def kept():
        variables = experiment.task.init(jax.random.key(0), data.x)
        return experiment.correction.init(experiment.task.split(variables)[0], data.clients)

    size = seeds * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(kept)))
    if size > (memory := device_memory()):
        raise ValueError(
            f"the state of {type(experiment.correction).__name__.lower()} takes {size / 2**30:.3g} GiB for {seeds} "
            f"seeds, N = {data.clients} clients and a model of {experiment.task.parameters(data.x)} parameters, "
            f"but there are {memory / 2**30:.3g} GiB; lower seeds or clients, or take a smaller model"
        )


def device_memory() -> int:
    """Bytes of memory of a device; of the machine, on a CPU."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def describe_device() -> str:
    """Kind, number and memory of the devices JAX uses."""
    devices = jax.devices()
    return f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform}), {device_memory() / 2**30:.1f} GiB"
