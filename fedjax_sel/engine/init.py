"""What there is before the first round: a state for every run, and what the clients gave for it."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.bill import NUMBER
from fedjax_sel.devices.clock import joules, slowest, timing
from fedjax_sel.engine.experiment import Experiment, side_by_side
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.round import State, context
from fedjax_sel.engine.signals import wants_previous
from fedjax_sel.protocols import Host, Upfront
from fedjax_sel.types import Context, PRNGKey, Variables


def start(
    experiments: Sequence[Experiment], drawn: Sequence[FederatedData], keys: PRNGKey, layout: Layout
) -> tuple[State, dict[str, np.ndarray]]:
    """The state of every run before the first round, with a leading `R`, and what the clients gave for it."""
    first, (together, differs) = experiments[0], side_by_side(experiments)
    variables = jax.vmap(lambda key: first.task.init(key_for(key, Purpose.MODEL), drawn[0].x))(keys)
    trained, _ = first.task.split(variables)
    memories, taken = [], []
    for i, (experiment, data) in enumerate(zip(experiments, drawn, strict=True)):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], variables)
        key, ctx, host = beginning(experiment, data, keys[i], own, layout.clients)
        memories.append(experiment.client_selection.init(key, ctx, host))
        upfront = getattr(experiment.client_selection, "upfront", None)
        costs = [] if upfront is None else [cost_upfront(upfront(ctx, host), data, "selection_")]
        if fixed := experiment.task.fixed_parameters(data.x):
            costs.append(cost_upfront(Upfront(np.zeros(data.num_clients), float(NUMBER * fixed), 0.0), data))
        taken.append({name: sum(cost.get(name, 0.0) for cost in costs) for cost in costs for name in cost})

    floats, tree = jax.tree.flatten(together)

    def kept(floats, own):
        experiment = tree.unflatten(floats)
        return experiment.aggregation.init(own), experiment.correction.init(own, drawn[0].num_clients)

    aggregator, correction = jax.vmap(kept, in_axes=([0 if own else None for own in differs], 0))(floats, trained)
    state = State(
        variables=variables,
        client_selection=jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories),
        aggregation=aggregator,
        correction=correction,
        change=jax.tree.map(jnp.zeros_like, variables) if wants_previous(first.client_selection.after) else None,
        alive=jnp.ones(len(keys), bool),
    )
    # A weakly typed leaf would come out of the first chunk settled, and the second chunk be compiled for it.
    state = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)
    return state, {name: np.array([one[name] for one in taken]) for name in taken[0]} if taken else {}


def beginning(
    experiment: Experiment, data: FederatedData, seed: PRNGKey, variables: Variables, side_by_side: int | None = None
) -> tuple[PRNGKey, Context, Host]:
    """What the client selector of one seed is given before the first round."""
    host = Host(experiment.task, data, variables, experiment.local_training, side_by_side)
    return key_for(seed, Purpose.SELECTOR), context(experiment, data, seed, jnp.int32(0)), host


def cost_upfront(taken: Upfront, data: FederatedData, kind: str = "") -> dict[str, float]:
    """What all clients received, did and sent before the first round, by the metric it is added to.

    Args:
      taken: of each client.
      data: with the devices.
      kind: `"selection_"`, or nothing for what belongs to training.
    """
    costs = {
        f"{kind}bytes_down": data.num_clients * taken.down,
        f"{kind}bytes_up": data.num_clients * taken.up,
        f"{kind or 'client_'}flops": float(np.sum(taken.flops)),
    }
    if data.devices is not None:
        turn = timing(data.devices, jnp.asarray(taken.flops, jnp.float32), taken.down, taken.up)
        costs["seconds"] = float(slowest(turn, jnp.ones(data.num_clients, bool)))
        costs["joules"] = float(joules(data.devices, turn).sum())
    return costs
