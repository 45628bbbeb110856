"""What a round takes on the clients' devices: who returns, after how many steps, in how many seconds and joules."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.bill import NUMBER, passes, sharing
from fedjax_sel.devices.clock import Timing, joules, slowest, timing
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.metrics import Values
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Cohort


class Turns(Pytree):
    """The cohort's work.

    Attributes:
      steps: local steps of each member that count; 0 where it returns nothing.
      returned: who returns something.
      wasted: rows passed forward and backward by those who do not.
      spent: seconds each was busy.
    """

    steps: Int[Array, "m"]
    returned: Bool[Array, "m"]
    wasted: Int[Array, "m"]
    spent: Timing


def expected(experiment: Experiment, data: FederatedData) -> Timing | None:
    """Seconds of every client's turn if it trained on all its rows, Float["N"]; None where there are no devices."""
    if data.devices is None:
        return None
    size = jnp.asarray(data.num_examples)  # a selector begins on the host
    steps = experiment.local_training.local_steps(size, data.longest)
    flops = training_flops(experiment, data, size, size, steps)
    model = float(NUMBER * experiment.task.parameters(data.x))
    correction = experiment.correction
    return timing(data.devices, flops, model * (1 + correction.down), model * (1 + correction.up))


def take_turns(
    experiment: Experiment,
    data: FederatedData,
    cohort: Cohort,
    rows: Int[Array, "m"],
    steps: Int[Array, "m"],
    holds_model: Bool[Array, "N"],
) -> Turns:
    """The cohort's work on its devices, up to the deadline; all of it where there are no devices.

    Args:
      experiment: with its deadline.
      data: of the clients, with their devices.
      cohort: who trains.
      rows: each member trains on.
      steps: each would take.
      holds_model: who received the global model already when it was asked for signals.
    """
    if data.devices is None:
        none = jnp.zeros(cohort.mask.shape)
        return Turns(steps, cohort.mask, jnp.zeros_like(steps), Timing(none, none, none))
    devices, deadline = data.devices.take(cohort.client), experiment.deadline
    model = float(NUMBER * experiment.task.parameters(data.x))
    flops = training_flops(experiment, data, rows, data.num_examples[cohort.client], steps)
    down = jnp.where(holds_model[cohort.client], 0.0, model) + model * experiment.correction.down
    whole = timing(devices, flops, down, model * (1 + experiment.correction.up))
    share = deadline.share(whole)
    done = jnp.floor(share * steps).astype(steps.dtype)
    returned = cohort.mask & (done > 0)
    share = jnp.where(returned, done / jnp.maximum(steps, 1), 0.0)
    spent = deadline.spent(whole, share)
    part = spent.compute / jnp.maximum(whole.compute, jnp.finfo(jnp.float32).tiny)
    wasted = jnp.floor(part * experiment.local_training.examples_seen(rows, steps, data.longest)).astype(steps.dtype)
    return Turns(jnp.where(returned, done, 0), returned, jnp.where(cohort.mask & ~returned, wasted, 0), spent)


def only_those(cohort: Cohort, count: Bool[Array, "m"]) -> Cohort:
    """The cohort in which only those members count; it still names the others."""
    return Cohort(cohort.client, count, jnp.where(count, cohort.weight, 0.0))


def simulated(
    experiment: Experiment, data: FederatedData, cohort: Cohort, polled: Bool[Array, "N"], turns: Turns
) -> Values:
    """Seconds the round lasts, asking included, and joules of all clients; nothing without devices."""
    devices = data.devices
    if devices is None:
        return {}
    before = [signal.cost for signal in experiment.client_selection.before]
    rows = data.num_holdout if experiment.signal_split == "holdout" else data.num_examples
    passed = jnp.zeros(data.num_clients)
    for limit, together in sharing(experiment.client_selection.before).items():
        passed += passes(together, experiment.task.backward(data.x)) * (
            rows if limit is None else jnp.minimum(rows, limit)
        )
    model = NUMBER * experiment.task.parameters(data.x) * any(p.model for p in before)
    asking = timing(
        devices,
        passed * experiment.task.flops(data.x),
        float(model + NUMBER * sum(p.down for p in before)),
        float(NUMBER * sum(p.up for p in before)),
    )
    energy = jnp.where(polled, joules(devices, asking), 0).sum()
    energy += jnp.where(cohort.mask, joules(devices.take(cohort.client), turns.spent), 0).sum()
    return {"seconds": slowest(asking, polled) + slowest(turns.spent, cohort.mask), "joules": energy}


def training_flops(
    experiment: Experiment,
    data: FederatedData,
    rows: Int[Array, "k"],
    size: Int[Array, "k"],
    steps: Int[Array, "k"],
) -> Float[Array, "k"]:
    """Forward and backward pass for each row of each step, and the choice among `size` rows."""
    flops, backward = experiment.task.flops(data.x), experiment.task.backward(data.x)
    seen = experiment.local_training.examples_seen(rows, steps, data.longest)
    return seen * ((1 + backward) * flops) + size * (passes(experiment.data_selection.needs, backward) * flops)
