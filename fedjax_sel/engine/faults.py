"""What strategies returned that cannot be: counted in compiled rounds, refused at once in debug mode, named at the end.

A compiled program cannot raise an error for a number. It counts instead: clients that do not exist, weights below 0,
signals that are NaN. The counts leave the scan with the round's record, and a run that had any says so when it ends, by
a warning and in its summary, with the strategy, the rounds and the seeds. In debug mode the first one is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.engine.timing import CohortWork
from fedjax_sel.pytree import show
from fedjax_sel.types import PAD_CLIENT, Cohort, Context

Faults = dict[str, Int[Array, ""]]
"""How many of each fault there were, by its name in `WORDS`, or `signal_NAME`."""

SIGNAL, PREFIX = "signal_", "fault_"
"""What the name of a fault of a signal begins with, and the name of a metric that counts one."""

WORDS: dict[str, tuple[str, str]] = {
    "candidate": ("client_selection", "candidates that do not exist, from `candidates`"),
    "outside": ("client_selection", "selected clients that do not exist"),
    "twice": ("client_selection", "clients selected twice in a round, without `replacement = True`"),
    "unavailable": ("client_selection", "selected clients that are not available"),
    "weight": ("client_selection", "weights from `select` that are negative or not finite"),
    "nan_score": ("client_selection", "scores that are NaN, by which clients were to be ranked (they came last)"),
    "accepted": ("client_selection", "members from `accept` that did not return an update"),
    "accepted_weight": ("client_selection", "weights from `accept` that are negative or not finite"),
    "signal": ("client_selection", "values that are not finite"),
    "example_weight": (
        "data_selection",
        "weights of examples that are negative, not finite, or neither 0 nor 1 without `weighted = True`",
    ),
    "update_weight": ("aggregation", "weights of updates that are negative or not finite"),
}
"""Which part is at fault, and how."""


def count_cohort_faults(cohort: Cohort, ctx: Context) -> Faults:
    """How many members do not exist, stand in the cohort twice, are not available, or have a weight that is none."""
    there = cohort.mask & (cohort.client >= 0) & (cohort.client < ctx.num_clients)
    reached = ctx.available[jnp.where(there, cohort.client, 0)]
    return {
        "outside": count(cohort.mask & ~there),
        "twice": count_twice(jnp.where(there, cohort.client, PAD_CLIENT)),
        "unavailable": count(there & ~reached),
        "weight": count(cohort.mask & ~is_weight(cohort.weight)),
        "nan_score": jnp.asarray(cohort.nan_scores, jnp.int32),
    }


FEW = 64
"""Members up to which comparing each with each takes less time than sorting them."""


def count_twice(client: Int[Array, "m"]) -> Int[Array, ""]:
    """How many members stand at a later place again; `PAD_CLIENT` is nobody.

    >>> [int(count_twice(jnp.array(client))) for client in ([3, 1, 3, 3], [-1, -1, 2])]
    [2, 0]
    """
    m = client.shape[0]
    if m <= FEW:
        same = (client[:, None] == client[None]) & (np.arange(m)[:, None] > np.arange(m)[None])
        return count(same.any(1) & (client >= 0))
    in_order = jnp.sort(client)
    return count((in_order[1:] == in_order[:-1]) & (in_order[1:] >= 0))


def count_candidate_faults(candidates: Int[Array, "d"] | None, num_clients: int) -> Faults:
    """How many candidates do not exist."""
    if candidates is None:
        return {}
    return {"candidate": count((candidates < PAD_CLIENT) | (candidates >= num_clients))}


def count_accept_faults(accepted: Cohort, trained: Cohort) -> Faults:
    """How many members were accepted that did not train, under whatever name, or with a weight that is none.

    Args:
      accepted: what `accept` returned.
      trained: what it was given.
    """
    changed = accepted.mask & (~trained.mask | (accepted.client != trained.client))
    return {
        "accepted": count(changed),
        "accepted_weight": count(accepted.mask & ~is_weight(accepted.weight)),
    }


def count_example_faults(weight: Shaped[Array, "m L"], mask: Bool[Array, "m"], *, weighted: bool) -> Faults:
    """How many weights of the cohort's examples are none."""
    if weight.dtype == jnp.bool_:
        return {}
    fits = is_weight(weight) if weighted else (weight == 0) | (weight == 1)
    return {"example_weight": count(mask[:, None] & ~fits)}


def count_update_faults(weight: Float[Array, "m"], cohort: Cohort) -> Faults:
    """How many weights of updates are none, where those of the cohort, from which they were made, are."""
    return {"update_weight": count(~is_weight(weight) & is_weight(cohort.weight).all())}


def count_signal_faults(signals: Mapping[str, Array], asked: Mapping[str, Bool[Array, "d"]]) -> Faults:
    """How many clients' values of each signal are not finite.

    Args:
      signals: by name; with one entry a client, or a number.
      asked: by the name of a signal, of whose entries only these count.
    """
    out = {}
    for name, value in signals.items():
        if jnp.issubdtype(value.dtype, jnp.inexact):
            bad = ~jnp.isfinite(value.reshape(*value.shape[:1], -1)).all(-1)
            out[SIGNAL + name] = count(bad & asked[name] if name in asked else bad)
    return out


def may_diverge(name: str) -> bool:
    """Whether a fault is what a model that diverges brings about; a seed that ends for it says that instead."""
    return name == "nan_score" or name.startswith(SIGNAL)


def is_idle(work: CohortWork) -> Bool[Array, ""]:
    """Whether no member of the cohort took a step that counts."""
    return ~(work.returned & (work.plan.steps > 0)).any()


def is_weight(weight: Array) -> Bool[Array, "..."]:
    """Whether numbers are finite and not negative."""
    return jnp.isfinite(weight) & (weight >= 0)


def count(bad: Bool[Array, "..."]) -> Int[Array, ""]:
    """How many are true."""
    return bad.sum(dtype=jnp.int32)


def refuse_faults(experiment: Experiment, faults: Faults, shown: Any = None) -> Faults:
    """The same counts; where they are known, which is in debug mode, raises `ValueError` for the first fault.

    Args:
      experiment: whose strategies they are of.
      faults: of one round.
      shown: what they are in, for the error.
    """
    for name, number in faults.items():
        if not isinstance(number, Tracer) and int(number):
            values = ", ".join(
                f"{jax.tree_util.keystr(path, simple=True)} {show(np.asarray(leaf).tolist(), 120)}".strip()
                for path, leaf in jax.tree_util.tree_leaves_with_path(shown)
            )
            part, words = say(name)
            culprit = type(getattr(experiment, part)).__name__
            raise ValueError(f"{culprit}: {int(number)} {words}" + (f": {values}" if values else ""))
    return faults


def say(name: str) -> tuple[str, str]:
    """The part that a fault is of, and the fault in words."""
    if name.startswith(SIGNAL):
        return WORDS["signal"][0], f"values of the signal {name.removeprefix(SIGNAL)!r} that are not finite"
    return WORDS[name]


def find_faults(history: History) -> list[dict[str, Any]]:
    """Every fault of a run: `strategy`, `what`, `count`, and the `seeds` with the first of the `rounds` (from 1)."""
    found = []
    for metric in (name for name in history.metrics if name.startswith(PREFIX)):
        counts = np.nan_to_num(history[metric])
        part, words = say(metric.removeprefix(PREFIX))
        seeds = [i for i in range(len(history.seeds)) if counts[i].any()]
        if seeds:
            strategy = history.about.get("strategies", {}).get(part, part)
            found.append(
                {
                    "strategy": strategy,
                    "what": words,
                    "count": int(counts.sum()),
                    "seeds": [int(history.seeds[i]) for i in seeds],
                    "rounds": [int(np.flatnonzero(counts[i])[0]) + 1 for i in seeds],
                    "of_rounds": [int((counts[i] > 0).sum()) for i in seeds],
                }
            )
    return found


def say_fault(fault: Mapping[str, Any], most: int = 4) -> str:
    """A fault in a line.

    >>> say_fault({"strategy": "Mine", "what": "scores that are NaN", "count": 8, "seeds": [3], "rounds": [2],
    ...            "of_rounds": [4]})
    'Mine: 8 scores that are NaN (seed 3 in 4 rounds, first in round 2)'
    """
    each = [
        f"seed {seed} in {many} round{'s' * (many != 1)}, first in round {first}"
        for seed, first, many in zip(fault["seeds"], fault["rounds"], fault["of_rounds"], strict=True)
    ]
    shown = "; ".join(each[:most] + ["..."] * (len(each) > most))
    return f"{fault['strategy']}: {fault['count']} {fault['what']} ({shown})"


def find_diverged(history: History) -> dict[str, Any]:
    """The `seeds` that were not finite any more, the `rounds` in which they ended, `of` how many seeds; or nothing."""
    ended = history.diverged
    if not ended.any():
        return {}
    seeds = [int(seed) for seed, round in zip(history.seeds, ended, strict=True) if round]
    return {"seeds": seeds, "rounds": ended[ended > 0].tolist(), "of": len(history.seeds)}


def say_diverged(diverged: Mapping[str, Any], most: int = 8) -> str:
    """Which seeds diverged, and when, in a line.

    >>> say_diverged({"seeds": [3], "rounds": [17], "of": 5})
    '1 of 5 seeds diverged: seed 3 in round 17'
    >>> say_diverged({"seeds": [0, 1], "rounds": [2, 1], "of": 2}, most=1)
    '2 of 2 seeds diverged: seed 0 in round 2, ...'
    """
    each = [f"seed {seed} in round {round}" for seed, round in zip(diverged["seeds"], diverged["rounds"], strict=True)]
    shown = ", ".join(each[:most] + ["..."] * (len(each) > most))
    return f"{len(each)} of {diverged['of']} seed{'s' * (diverged['of'] != 1)} diverged: {shown}"


def find_untrained(history: History) -> list[int]:
    """The seeds in none of whose rounds anybody trained."""
    if "idle" not in history.metrics or not history.rounds:
        return []
    return [int(seed) for seed, idle in zip(history.seeds, history["idle"], strict=True) if idle.all()]


def say_untrained(seeds: list[int], of: int) -> str:
    """That no update ever came back, in a line.

    >>> say_untrained([0, 1], 2).split(";")[0]
    'no update came back in any round of all seeds: the model is as it began'
    """
    which = "all seeds" if len(seeds) == of else f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"
    causes = "availability, volatility, deadline, candidates"
    return f"no update came back in any round of {which}: the model is as it began; see {causes}"


def warn_of_faults(history: History, *, alone: bool) -> None:
    """Warns of every fault of a finished run, of seeds that diverged, and of those in which nobody ever trained.

    Args:
      history: of the run.
      alone: whether it is one experiment. Among several some are expected to diverge: their histories say so.
    """
    lines = [say_fault(fault) for fault in find_faults(history)]
    if alone and (ended := find_diverged(history)):
        lines.append(f"{say_diverged(ended)}; their numbers are NaN from there on")
    if untrained := find_untrained(history):
        lines.append(say_untrained(untrained, len(history.seeds)))
    for line in lines:
        warnings.warn(line, stacklevel=4)
