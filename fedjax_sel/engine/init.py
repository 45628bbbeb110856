"""Initialisation: the state of every run before round 0, and what it cost the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.arrays import stack_trees
from fedjax_sel.catalog import see
from fedjax_sel.compiled import jit
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.clock import joules, slowest, timing
from fedjax_sel.engine.contract import check_bits, check_init, check_upfront, name_kind
from fedjax_sel.engine.experiment import Experiment, stack_experiments
from fedjax_sel.engine.keys import OF_UPFRONT, Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.ledger import count_passes, count_sent, group_by_limit, limit_examples
from fedjax_sel.engine.personal import init_personal
from fedjax_sel.engine.round import make_context
from fedjax_sel.engine.signals import refers_to_previous
from fedjax_sel.engine.state import RoundState
from fedjax_sel.engine.undeclared import hide_rounds
from fedjax_sel.mistakes import NOT_REPEATED, is_built_in, refuse_global_random_numbers
from fedjax_sel.protocols import Host, Prepared, Strategy, Upfront, UpfrontSignal, overrides
from fedjax_sel.pytree import title
from fedjax_sel.task import Task
from fedjax_sel.types import BYTES, Context, PRNGKey, StrategyState, Variables


def init_runs(
    experiments: Sequence[Experiment],
    federations: Sequence[FederatedData],
    keys: PRNGKey,
    layout: Layout,
    *,
    only_like: bool = False,
) -> tuple[RoundState, dict[str, np.ndarray]]:
    """Returns the state of every run before round 0, with a leading `R`, and what it cost the clients, by metric.

    Args:
      experiments, federations: of every run.
      keys: Key["R"], of the seeds.
      layout: how the runs are laid out.
      only_like: whether the states may have any content, so that selectors that know their state's shape do no work.
    """
    variables = compiled_variables(experiments[0].task, keys, example=shape_example(federations[0]))
    selector_states, prepared, costs = [], [], []
    longest = max(data.longest for data in federations)  # states per example are equally long in all runs
    for i, (experiment, data) in enumerate(zip(experiments, federations, strict=True)):
        own, run_key = take_run((variables, keys), i)
        state, paid = init_selector(
            experiment, data, *selector_inputs(experiment, data, run_key, own, layout, longest), only_like=only_like
        )
        selector_states.append(state)
        prepared.append(prepare_data_selector(experiment, replace(data, longest=longest), run_key, own))
        if prepared[-1].cost is not None:
            add_costs(paid, price_upfront(prepared[-1].cost, data, "selection_"))
        costs.append(paid)
    stacked, ready = stack_runs(selector_states), stack_runs([replace(one, cost=None) for one in prepared])
    state = init_states(experiments, replace(federations[0], longest=longest), variables, stacked, ready)
    return state, {name: np.array([one[name] for one in costs]) for name in costs[0]}


def init_run(experiment: Experiment, data: FederatedData, run_key: PRNGKey, layout: Layout) -> RoundState:
    """Returns the state of one run before round 0, without the leading `R`."""
    states, _ = init_runs([experiment], [data], run_key[None], layout)
    return jax.tree.map(lambda leaf: leaf[0], states)


@jit()
def take_run(tree: Any, run: int) -> Any:
    """Returns what belongs to one run, from leaves with a leading `R`."""
    return jax.tree.map(lambda leaf: leaf[run], tree)


stack_runs = jit()(stack_trees)
"""Returns one pytree, whose leaves have a leading `R`, from the pytrees of all runs."""


def init_variables(task: Task, keys: PRNGKey, example: Any) -> Variables:
    """Returns the initial global model of every seed, with a leading `R`.

    Args:
      task: the task, for its model.
      keys: Key["R"], of the seeds.
      example: shape and type of examples as stored, with a leading axis.
    """
    x = jnp.zeros(example.shape, example.dtype)
    return jax.vmap(lambda key: task.init(key_for(key, Purpose.MODEL), x))(keys)


compiled_variables = jit(static_argnames=["example"], cpu_options={"xla_backend_optimization_level": 1})(init_variables)
"""`init_variables` as one program, which runs once: LLVM's higher optimisation levels are slow and change no bit."""


def shape_example(data: FederatedData) -> jax.ShapeDtypeStruct:
    """Returns the shape and type of one example as stored, with a leading 1."""
    return jax.ShapeDtypeStruct((1, *data.x.shape[1:]), data.x.dtype)


def init_states(
    experiments: Sequence[Experiment],
    data: FederatedData,
    variables: Variables,
    selector_states: StrategyState,
    prepared: Prepared,
) -> RoundState:
    """Returns the state of every run, with a leading `R`, from its initial model and its selectors' initial states.

    Args:
      experiments: one per run.
      data: of one of them, for its sizes.
      variables, selector_states, prepared: with a leading `R`.
    """
    first, (stacked, differs) = experiments[0], stack_experiments(experiments)
    model, _ = first.task.split(variables)
    floats, tree = jax.tree.flatten(stacked)

    def init(floats, own):
        one: Experiment = tree.unflatten(floats)
        clients = one.data_selection.init(data.num_clients, data.longest)
        aggregation, correction = one.aggregation.init(own), one.correction.init(own, data.num_clients)
        check_init(one.data_selection, clients, data.num_clients)
        check_init(one.aggregation, aggregation)
        check_init(one.correction, correction)
        return aggregation, correction, clients

    axes = ([0 if own else None for own in differs], 0)
    if not jax.tree.leaves(model):
        raise ValueError("task: the model has no parameters to train")
    runs = len(jax.tree.leaves(variables)[0])
    aggregation, correction, data_selection = jax.vmap(init, in_axes=axes, axis_size=runs)(floats, model)
    signals = first.client_selection.signals()
    looks_back = refers_to_previous(signals.at("after") | signals.at("trained"))
    state = RoundState(
        variables=variables,
        client_selection=selector_states,
        data_selection=data_selection if prepared.clients is None else prepared.clients,
        data_server=prepared.server,
        aggregation=aggregation,
        correction=correction,
        personal=jax.vmap(lambda own: init_personal(first.task, own, data.num_clients))(variables),
        change=jax.tree.map(jnp.zeros_like, variables) if looks_back else None,
        alive=jnp.ones(runs, bool),
    )
    # A weakly typed leaf would leave the first chunk with a strong type, and the second chunk would compile again.
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)


def init_selector(
    experiment: Experiment, data: FederatedData, key: PRNGKey, ctx: Context, host: Host, *, only_like: bool = False
) -> tuple[StrategyState, dict[str, float]]:
    """Returns the client selector's state for one seed, and what it cost the clients before round 0, by metric.

    Args:
      experiment, data: of one run.
      key, ctx, host: as returned by `selector_inputs`.
      only_like: as for `init_runs`.
    """
    selector, task = experiment.client_selection, experiment.task
    signals, upfront = selector.signals().at("upfront"), {}
    costs: dict[str, float] = {}
    for i, (name, signal) in enumerate(signals.items()):
        with refuse_global_random_numbers(NOT_REPEATED):
            value = signal.measure(jax.random.fold_in(key, OF_UPFRONT + i), host)
        check_bits(f"the upfront signal {name!r}", value)
        value = jnp.asarray(value)
        if value.ndim < 1 or value.shape[0] != data.num_clients:
            raise ValueError(
                f"the upfront signal {name!r} has shape {value.shape}; its first axis must be N = {data.num_clients}"
            )
        upfront[name] = value
    if signals:
        numbers = {name: value.size / data.num_clients for name, value in upfront.items()}
        add_costs(costs, price_upfront(charge_signals(signals, numbers, task, data), data, "selection_"))
    with see_strategy(selector), refuse_global_random_numbers(NOT_REPEATED):
        if only_like and overrides(selector, "state_shape"):
            like = selector.state_shape(key, ctx, host)
            state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        else:
            state = selector.init(key, hide_rounds(selector, "init", ctx), host, **upfront)
            check_init(selector, state)
    if (taken := selector.upfront(ctx, host)) is not None:
        taken = check_upfront(f"{type(selector).__name__}.upfront", taken, data.num_clients)
        add_costs(costs, price_upfront(taken, data, "selection_"))
    if fixed := task.fixed_parameters(data.like):
        add_costs(costs, price_upfront(Upfront(np.zeros(data.num_clients), float(BYTES * fixed), 0.0), data))
    return state, costs


def see_strategy(strategy: Strategy) -> AbstractContextManager[None]:
    """Points errors to the explanation of a strategy, or for a user's own to the page on writing one."""
    known = is_built_in(type(strategy))
    return see(f"`fedjax-sel explain {title(type(strategy))}`" if known else "docs/learn/own_selector.md")


def prepare_data_selector(
    experiment: Experiment, data: FederatedData, run_key: PRNGKey, variables: Variables
) -> Prepared:
    """Returns what the data selector starts with for one seed."""
    selector = experiment.data_selection
    if not overrides(selector, "prepare"):
        return Prepared()
    _, ctx, host = selector_inputs(experiment, data, run_key, variables)
    told = hide_rounds(selector, "prepare", ctx)
    prepared = selector.prepare(key_for(run_key, Purpose.DATA_SERVER), told, host)
    if not isinstance(prepared, Prepared):
        raise ValueError(
            f"{type(selector).__name__}.prepare returned {name_kind(prepared)}; it must return Prepared(server=...)"
        )
    check_init(selector, prepared.server, method="prepare")
    check_init(selector, prepared.clients, data.num_clients, method="prepare")
    cost = prepared.cost
    if cost is not None:
        cost = check_upfront(f"{type(selector).__name__}.prepare: cost", cost, data.num_clients)
    return jax.tree.map(jnp.asarray, replace(prepared, cost=None)).replace(cost=cost)


def shape_prepared(experiment: Experiment, data: FederatedData, run_key: PRNGKey, variables: Variables) -> Prepared:
    """Returns the shapes and types of what the data selector starts with, with a leading 1."""

    def prepare(run_key: PRNGKey) -> Prepared:
        return replace(prepare_data_selector(experiment, data, run_key, variables), cost=None)

    try:
        like = jax.eval_shape(prepare, run_key)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # `prepare` needs concrete numbers, so it is run
        like = prepare(run_key)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), like)


def selector_inputs(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    variables: Variables,
    layout: Layout | None = None,
    longest: int | None = None,
) -> tuple[PRNGKey, Context, Host]:
    """Returns the arguments of a selector's initialisation before round 0, for one seed.

    Args:
      experiment, data, run_key, variables: of one run.
      layout: how the run is laid out; None: nobody trains before round 0.
      longest: the most examples of any client of any run; None: of this run.
    """
    at_once, devices = (None, ()) if layout is None else (layout.clients, layout.own_devices())
    host = Host(experiment.task, data, variables, experiment.local_training, at_once, devices)
    alike = replace(data, longest=longest or data.longest)  # the context is the same, and seeds share a program
    return key_for(run_key, Purpose.SELECTOR), compiled_context(experiment, alike, run_key, jnp.int32(0)), host


compiled_context = jit()(make_context)
"""`make_context` as one program instead of sixty, of which each takes some 25 ms to compile."""


def charge_signals(
    signals: Mapping[str, UpfrontSignal], numbers: Mapping[str, float], task: Task, data: FederatedData
) -> Upfront:
    """Returns what signals before round 0 cost each client; the model is sent once for all that need it.

    Args:
      signals: by name.
      numbers: how many numbers the value of each client has; that many are sent if the signal declares none.
      task: with the model.
      data: of the clients.
    """
    model, size = BYTES * task.shared_parameters(data.like), jnp.asarray(data.num_examples)
    gradient = BYTES * task.gradient_parameters(data.like)
    passed = np.zeros(data.num_clients)
    for limit, some in group_by_limit(signals.values()).items():
        passed += count_passes(some, task.backward(data.like)) * np.asarray(limit_examples(size, limit))
    declared = {name: count_sent(one, "count_up", data.classes) for name, one in signals.items()}
    sent = sum(
        BYTES * (declared[name] or (0 if one.cost.models_up else numbers[name])) for name, one in signals.items()
    )
    return Upfront(
        flops=passed * task.flops(data.like),
        down=sum(BYTES * one.cost.down for one in signals.values())
        + model * any(one.cost.needs_model for one in signals.values()),
        up=sent + sum(gradient * one.cost.models_up for one in signals.values()),
    )


def price_upfront(taken: Upfront, data: FederatedData, kind: str = "") -> dict[str, float]:
    """Returns what all clients received, computed and sent before round 0, by the metric that it is added to.

    Args:
      taken: costs of each client.
      data: with the devices.
      kind: `"selection_"`, or `""` for costs of training.
    """
    every = (np.asarray(amount, np.float64) for amount in (taken.flops, taken.down, taken.up))
    flops, down, up = (np.broadcast_to(amount, (data.num_clients,)) for amount in every)
    costs = {
        f"{kind}bytes_down": float(down.sum()),
        f"{kind}bytes_up": float(up.sum()),
        f"{kind or 'client_'}flops": float(flops.sum()),
    }
    if data.devices is not None:
        turn = timing(data.devices, *(jnp.asarray(amount, jnp.float32) for amount in (flops, down, up)))
        costs["seconds"] = float(slowest(turn, jnp.ones(data.num_clients, bool)))
        costs["joules"] = float(joules(data.devices, turn).sum())
    return costs


def add_costs(total: dict[str, Any], costs: dict[str, float]) -> None:
    """Adds costs to a total, by metric."""
    for name, value in costs.items():
        total[name] = total.get(name, 0.0) + value
