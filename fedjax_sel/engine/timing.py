"""A round on the clients' devices: which members return, after how many steps, seconds and joules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.availability import Always
from fedjax_sel.devices.clock import Timing, joules, slowest, timing
from fedjax_sel.engine.availability import draw_available
from fedjax_sel.engine.contract import check_plan
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.keys import Purpose
from fedjax_sel.engine.ledger import add_passes, find_rates, take_share
from fedjax_sel.engine.undeclared import hide_round_count
from fedjax_sel.protocols import overrides
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Cohort, Context, Plan, PRNGKey


class CohortWork(Pytree):
    """The cohort's work on its devices.

    Attributes:
      plan: what each member does that counts; no steps if it returns nothing.
      returned: which members return something.
      looked: examples on which each member measured signals, to choose among them, until the deadline.
      measured: share of its examples on which each measured its `trained` signals, also if it fails or is late then.
      wasted: examples passed forward and backward by members that do not.
      spent: seconds that each member was busy.
    """

    plan: Plan
    returned: Bool[Array, "m"]
    looked: Int[Array, "m"]
    measured: Float[Array, "m"]
    wasted: Int[Array, "m"]
    spent: Timing


def plan_steps(
    experiment: Experiment, data: FederatedData, ctx: Context, num_examples: Int[Array, "*m"], **limits: Any
) -> Plan:
    """Returns what clients with so many examples do in a round; `limits` are `max_steps` of the trainer's `plan`."""
    trainer = experiment.local_training
    return trainer.plan(num_examples, data.longest, ctx.round, hide_round_count(trainer, "plan", ctx.rounds), **limits)


def expect_turns(experiment: Experiment, data: FederatedData, ctx: Context) -> tuple[Timing | None, Timing | None]:
    """Returns seconds of every client's turn if it trained on all its examples, Float["N"], and for one epoch at most.

    None without devices.
    """
    if data.devices is None:
        return None, None
    count = jnp.asarray(data.num_examples)  # a selector is initialised on the host
    plan = plan_steps(experiment, data, ctx, count)
    flops = training_flops(experiment, data, plan, jnp.arange(data.num_clients))
    rates = find_rates(experiment, data)
    down, up = rates.model + rates.gradient * rates.correction_down + rates.extra_down, rates.upload
    passes = jnp.maximum(plan.examples_seen / jnp.maximum(count, 1), 1.0)
    once = flops._replace(trained=flops.trained / passes)
    return timing(data.devices, flops.total, down, up), timing(data.devices, once.total, down, up)


def count_affordable(
    experiment: Experiment, data: FederatedData, ctx: Context, client: Int[Array, ""], has_model: Bool[Array, ""]
) -> Int[Array, ""] | None:
    """Returns how many of its examples a client can train on before the deadline, if it measures signals on all.

    0 if not even one example fits; None without devices.
    """
    if data.devices is None:
        return None
    longest = data.longest
    count = jnp.arange(1, longest + 1)
    plan = plan_steps(experiment, data, ctx, count)
    rates = find_rates(experiment, data)
    own = jnp.full(longest, client)
    flops = training_flops(experiment, data, plan, own).total
    down = jnp.where(jnp.full(longest, has_model), 0.0, rates.model) + rates.gradient * rates.correction_down
    turn = timing(data.devices.take(own), flops, down + rates.extra_down, rates.upload)
    fits = (turn.total <= experiment.deadline.seconds) & (count <= jnp.asarray(data.num_examples)[client])
    return jnp.where(fits, count, 0).max()  # with a number of steps, more examples may take less time


def plan_cohort(
    experiment: Experiment,
    data: FederatedData,
    ctx: Context,
    cohort: Cohort,
    num_examples: Int[Array, "m"],
    screened: Int[Array, "m"],
    has_model: Bool[Array, "N"],
) -> CohortWork:
    """Returns the cohort's work on its devices, up to the deadline; all of its work without devices.

    Args:
      experiment: with its deadline.
      data: of the clients, with their devices.
      ctx: of the round.
      cohort: the clients that train.
      num_examples: number of examples that each member trains on.
      screened: number of examples on which each measured signals, to choose among them.
      has_model: which clients already received the global model when they were asked for signals.
    """
    plan_up_to = partial(plan_steps, experiment, data, ctx, num_examples)
    plan = plan_up_to()
    check_plan(experiment.local_training, plan, ctx.m)
    if data.devices is None:
        none = jnp.zeros(cohort.mask.shape)
        returned = cohort.mask & (plan.steps > 0)  # without anything to train on, there is nothing to send
        measured = returned.astype(jnp.float32)
        return CohortWork(plan, returned, screened, measured, jnp.zeros_like(plan.steps), Timing(none, none, none))
    devices, deadline, rates = data.devices.take(cohort.client), experiment.deadline, find_rates(experiment, data)
    flops = training_flops(experiment, data, plan, cohort.client, screened)
    down = jnp.where(has_model[cohort.client], 0.0, rates.model) + rates.gradient * rates.correction_down
    up = jnp.where(plan.steps > 0, rates.upload, 0.0)
    whole = timing(devices, flops.total, down + rates.extra_down, up)
    looking, after = flops.looked / devices.compute, flops.after / devices.compute
    fixed = (flops.looked + flops.after) / devices.compute
    share = deadline.share(whole, fixed)
    done = jnp.floor(share * plan.steps).astype(plan.steps.dtype)
    if deadline.late == "partial":  # the last step of an epoch may be smaller, so one step too many may be counted
        seen = plan_up_to(max_steps=done).examples_seen
        done = done - (seen > share * plan.examples_seen * (1 + 1e-6)).astype(done.dtype)
    returned = cohort.mask & (done > 0)
    counted = plan_up_to(max_steps=jnp.where(returned, done, 0))
    share = jnp.where(returned, counted.examples_seen / jnp.maximum(plan.examples_seen, 1), 0.0)
    spent = deadline.spent(whole, share, fixed)
    looked = share_done(spent.compute, looking)
    trained = share_done(spent.compute - looking, whole.compute - fixed)
    measured = share_done(spent.compute - (whole.compute - after), after)
    measured = jnp.where(returned | (spent.compute >= whole.compute), 1.0, measured)  # or too late to send it
    return CohortWork(
        plan=counted,
        returned=returned,
        looked=take_share(jnp.where(returned, 1.0, looked), screened),
        measured=jnp.where(cohort.mask & (plan.steps > 0), measured, 0.0),
        wasted=jnp.where(cohort.mask & ~returned, take_share(trained, plan.examples_seen), 0),
        spent=spent,
    )


def share_done(spent: Float[Array, "m"], whole: Float[Array, "m"]) -> Float[Array, "m"]:
    """Returns which share of some work is done in these seconds, of the seconds that it takes."""
    return jnp.clip(spent / jnp.maximum(whole, jnp.finfo(jnp.float32).tiny), 0, 1)


def fail_members(
    experiment: Experiment,
    data: FederatedData,
    run_key: PRNGKey,
    ctx: Context,
    cohort: Cohort,
    num_examples: Int[Array, "m"],
    work: CohortWork,
) -> CohortWork:
    """Returns the work of a cohort in which some members fail after training, and so return nothing.

    Args:
      experiment, data, ctx, cohort, num_examples: as for `plan_cohort`.
      run_key: key of the run's seed, which determines which members fail.
      work: work of the members if none failed.
    """
    if type(experiment.volatility) is Always:  # a class derived from it may say otherwise
        return work
    drawn = draw_available(experiment.volatility, Purpose.VOLATILITY, run_key, ctx.round, ctx.num_clients)
    comes_back = drawn[cohort.client]
    returned = work.returned & comes_back
    failed = work.returned & ~returned
    steps = jnp.where(returned, work.plan.steps, 0)
    plan = plan_steps(experiment, data, ctx, num_examples, max_steps=steps)
    # One that is late would not have uploaded, either.
    spent = replace(work.spent, upload=jnp.where(comes_back, work.spent.upload, 0.0))
    wasted = jnp.where(failed, work.plan.examples_seen, work.wasted)
    return CohortWork(plan, returned, work.looked, work.measured, wasted, spent)


def time_cohort(
    data: FederatedData, cohort: Cohort, work: CohortWork
) -> tuple[Float[Array, ""] | None, Float[Array, ""] | None]:
    """Returns seconds until the last member is done, and joules of all members; None without devices."""
    if data.devices is None:
        return None, None
    energy = jnp.where(cohort.mask, joules(data.devices.take(cohort.client), work.spent), 0).sum()
    return slowest(work.spent, cohort.mask), energy


def time_signals(
    experiment: Experiment, data: FederatedData, asked: Bool[Array, "N"]
) -> tuple[Float[Array, ""] | None, Float[Array, ""] | None]:
    """Returns seconds until the last client asked has sent its `before` signals, and joules; None without devices."""
    if data.devices is None:
        return None, None
    rates = find_rates(experiment, data)
    count = data.count_examples(holdout=experiment.measures_holdout)
    passed = add_passes(count, rates.before_passes)
    if rates.asked_public:
        passed += rates.asked_public
    answer = timing(
        data.devices, passed * rates.flops, rates.model * rates.needs_model + rates.before_down, rates.before_up
    )
    return slowest(answer, asked), jnp.where(asked, joules(data.devices, answer), 0).sum()


class TurnFlops(NamedTuple):
    """Floating-point operations of clients' turns.

    Attributes:
      looked: for choosing among their examples, before training.
      trained: for all local steps.
      after: for the `trained` signals.
    """

    looked: Float[Array, "k"]
    trained: Float[Array, "k"]
    after: Float[Array, "k"]

    @property
    def total(self) -> Float[Array, "k"]:
        """All operations of a turn."""
        return self.trained + (self.looked + self.after)


def training_flops(
    experiment: Experiment,
    data: FederatedData,
    plan: Plan,
    client: Int[Array, "k"],
    screened: Int[Array, "k"] | None = None,
) -> TurnFlops:
    """Returns the operations of clients' turns if they choose among `screened` examples (None: all they have)."""
    rates = find_rates(experiment, data)
    size = jnp.asarray(data.num_examples)[client]
    among = size if screened is None or not overrides(experiment.data_selection, "asks") else screened
    measured = jnp.asarray(data.count_examples(holdout=experiment.measures_holdout))[client]
    after = add_passes(measured, rates.trained_passes) + rates.trained_public
    return TurnFlops(
        looked=among * (rates.screening * rates.flops),
        trained=plan.examples_seen * ((1 + rates.backward) * rates.flops),
        after=jnp.where(plan.steps > 0, after * rates.flops, 0.0),  # without an example, nothing is measured
    )
