"""Faults: invalid values from strategies, counted in compiled rounds, and raised as errors in debug mode.

A compiled program cannot raise an error that depends on a number. It counts instead: clients that do not exist, weights
below 0, signals that are NaN. The counts leave the scan with the round's record, and a run that had any reports them at
its end, in a warning and in its summary, with the strategy, the rounds and the seeds. In debug mode the first fault
raises an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedjax_sel.engine.cohort import FEW
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import FAULT, History
from fedjax_sel.engine.timing import CohortWork
from fedjax_sel.pytree import Scalar, show
from fedjax_sel.types import PAD_CLIENT, Cohort, Context

Faults = dict[str, Int[Array, ""]]
"""Counts of faults, by their names in `WORDS`, or by `signal_NAME`."""

SIGNAL = "signal_"
"""Prefix of the names of signals' faults."""

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
    "deadline": ("data_selection", "deadlines from `choose_deadline` that are not above 0"),
    "update_weight": ("aggregation", "weights of updates that are negative or not finite"),
}
"""The part at fault, and a description, by name of the fault."""


def count_cohort_faults(cohort: Cohort, ctx: Context) -> Faults:
    """Counts members that do not exist, occur twice, are not available or have an invalid weight, and NaN scores."""
    there = cohort.mask & (cohort.client >= 0) & (cohort.client < ctx.num_clients)
    reached = ctx.available[jnp.where(there, cohort.client, 0)]
    return {
        "outside": count(cohort.mask & ~there),
        "twice": count_twice(jnp.where(there, cohort.client, PAD_CLIENT)),
        "unavailable": count(there & ~reached),
        "weight": count(cohort.mask & ~is_weight(cohort.weight)),
        "nan_score": jnp.asarray(cohort.nan_scores, jnp.int32),
    }


def count_twice(client: Int[Array, "m"]) -> Int[Array, ""]:
    """Counts the entries that repeat an earlier one, without `PAD_CLIENT`.

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
    """Counts candidates that do not exist."""
    if candidates is None:
        return {}
    return {"candidate": count((candidates < PAD_CLIENT) | (candidates >= num_clients))}


def count_accept_faults(accepted: Cohort, trained: Cohort) -> Faults:
    """Counts accepted members that did not train or were replaced by another client, and invalid weights.

    Args:
      accepted: the cohort that `accept` returned.
      trained: the cohort that it was given.
    """
    changed = accepted.mask & (~trained.mask | (accepted.client != trained.client))
    return {
        "accepted": count(changed),
        "accepted_weight": count(accepted.mask & ~is_weight(accepted.weight)),
    }


def count_example_faults(weight: Shaped[Array, "m L"], mask: Bool[Array, "m"], *, weighted: bool) -> Faults:
    """Counts invalid weights of the cohort's examples."""
    if weight.dtype == jnp.bool_:
        return {}
    fits = is_weight(weight) if weighted else (weight == 0) | (weight == 1)
    return {"example_weight": count(mask[:, None] & ~fits)}


def count_deadline_faults(seconds: Scalar) -> Faults:
    """Counts a deadline that is not above 0."""
    return {"deadline": count(~jnp.greater(seconds, 0))}


def count_update_faults(weight: Float[Array, "m"], cohort: Cohort) -> Faults:
    """Counts invalid weights of updates, if the cohort's weights, from which they were computed, are all valid."""
    return {"update_weight": count(~is_weight(weight) & is_weight(cohort.weight).all())}


def count_signal_faults(signals: Mapping[str, Array], asked: Mapping[str, Bool[Array, "d"]]) -> Faults:
    """Counts, for each signal, the clients whose value is not finite.

    Args:
      signals: values by name; one entry per client, or one number.
      asked: by name, which of a signal's entries count; all of them for other signals.
    """
    out = {}
    for name, value in signals.items():
        if jnp.issubdtype(value.dtype, jnp.inexact):
            bad = ~jnp.isfinite(value.reshape(*value.shape[:1], -1)).all(-1)
            out[SIGNAL + name] = count(bad & asked[name] if name in asked else bad)
    return out


def may_diverge(name: str) -> bool:
    """Returns whether a fault can result from a diverging model; a seed that ends reports its divergence instead."""
    return name == "nan_score" or name.startswith(SIGNAL)


def is_idle(work: CohortWork) -> Bool[Array, ""]:
    """Returns whether no member of the cohort took a step that counts."""
    return ~(work.returned & (work.plan.steps > 0)).any()


def is_weight(weight: Array) -> Bool[Array, "..."]:
    """Returns whether numbers are finite and not negative."""
    return jnp.isfinite(weight) & (weight >= 0)


def count(bad: Bool[Array, "..."]) -> Int[Array, ""]:
    """Returns how many entries are true."""
    return bad.sum(dtype=jnp.int32)


def refuse_faults(experiment: Experiment, faults: Faults, shown: Any = None) -> Faults:
    """Returns the counts unchanged; in debug mode, where they are known, raises `ValueError` for the first fault.

    Args:
      experiment: the experiment whose strategies are at fault.
      faults: counts of one round.
      shown: the values at fault, for the error message.
    """
    for name, number in faults.items():
        if not isinstance(number, Tracer) and int(number):
            values = ", ".join(
                f"{jax.tree_util.keystr(path, simple=True)} {show(np.asarray(leaf).tolist(), 120)}".strip()
                for path, leaf in jax.tree_util.tree_leaves_with_path(shown)
            )
            part, words = describe_fault(name)
            culprit = type(getattr(experiment, part)).__name__
            raise ValueError(f"{culprit}: {int(number)} {words}" + (f": {values}" if values else ""))
    return faults


def describe_fault(name: str) -> tuple[str, str]:
    """Returns the part at fault, and the fault in words."""
    if name.startswith(SIGNAL):
        return WORDS["signal"][0], f"values of the signal {name.removeprefix(SIGNAL)!r} that are not finite"
    return WORDS[name]


def find_faults(history: History) -> list[dict[str, Any]]:
    """Returns the faults of a run: `strategy`, `what`, `count`, `seeds`, their first `rounds` (from 1), `of_rounds`."""
    found = []
    for metric in (name for name in history.metrics if name.startswith(FAULT)):
        counts = np.nan_to_num(history[metric])
        part, words = describe_fault(metric.removeprefix(FAULT))
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


MOST_SHOWN = 4
"""The most seeds that a fault's line of text names."""


def say_fault(fault: Mapping[str, Any]) -> str:
    """Returns a fault as one line of text.

    >>> say_fault({"strategy": "Mine", "what": "scores that are NaN", "count": 8, "seeds": [3], "rounds": [2],
    ...            "of_rounds": [4]})
    'Mine: 8 scores that are NaN (seed 3 in 4 rounds, first in round 2)'
    """
    each = [
        f"seed {seed} in {many} round{'s' * (many != 1)}, first in round {first}"
        for seed, first, many in zip(fault["seeds"], fault["rounds"], fault["of_rounds"], strict=True)
    ]
    shown = "; ".join(each[:MOST_SHOWN] + ["..."] * (len(each) > MOST_SHOWN))
    return f"{fault['strategy']}: {fault['count']} {fault['what']} ({shown})"


def find_diverged(history: History) -> dict[str, Any]:
    """Returns the diverged `seeds`, the `rounds` in which they ended, and `of` how many; empty if none diverged."""
    ended = history.diverged
    if not ended.any():
        return {}
    seeds = [int(seed) for seed, round in zip(history.seeds, ended, strict=True) if round]
    return {"seeds": seeds, "rounds": ended[ended > 0].tolist(), "of": len(history.seeds)}


def say_diverged(seeds: list[int], rounds: list[int], of: int, most: int = 8) -> str:
    """Returns one line of text on which seeds diverged, and when.

    >>> say_diverged([3], [17], of=5)
    '1 of 5 seeds diverged: seed 3 in round 17'
    >>> say_diverged([0, 1], [2, 1], of=2, most=1)
    '2 of 2 seeds diverged: seed 0 in round 2, ...'
    """
    each = [f"seed {seed} in round {round}" for seed, round in zip(seeds, rounds, strict=True)]
    shown = ", ".join(each[:most] + ["..."] * (len(each) > most))
    return f"{len(each)} of {of} seed{'s' * (of != 1)} diverged: {shown}"


def list_seeds(history: History, which: Sequence[bool] | np.ndarray) -> dict[str, Any]:
    """Returns the `seeds` of which something is true, and `of` how many; {} if it is true of none."""
    seeds = [int(seed) for seed, true in zip(history.seeds, which, strict=True) if true]
    return {"seeds": seeds, "of": len(history.seeds)} if seeds else {}


def find_untrained(history: History) -> dict[str, Any]:
    """Returns the seeds in which no client trained in any round, as `list_seeds` does."""
    known = "idle" in history.metrics and history.rounds
    return list_seeds(history, np.all(history["idle"], axis=1).tolist()) if known else {}


def say_untrained(seeds: list[int], of: int) -> str:
    """Returns one line of text that says that no update ever came back.

    >>> say_untrained([0, 1], 2).split(";")[0]
    'no update came back in any round of all seeds, so nothing was learnt'
    """
    causes = "availability, volatility, deadline, candidates, data_selection"
    return f"no update came back in any round of {name_seeds(seeds, of)}, so nothing was learnt; see {causes}"


def find_lost(history: History) -> dict[str, Any]:
    """Returns how many clients' losses were not finite, at the most, in which seed and round; {} if all were.

    Seeds that diverged are left out, as they say so themselves.
    """
    losses = history.client_metrics.get("loss")
    if losses is None or not losses.size:
        return {}
    lost = np.isposinf(losses).sum(-1) * (history.diverged == 0)[:, None]
    seed, at = np.unravel_index(lost.argmax(), lost.shape)
    if not lost[seed, at]:
        return {}
    where = {"seed": int(history.seeds[seed]), "round": int(history.client_rounds[at])}
    return {"clients": int(lost[seed, at]), "of": history.num_clients, **where}


def say_lost(clients: int, of: int, seed: int, round: int) -> str:
    """Returns one line of text on clients whose losses were not finite.

    >>> say_lost(2, 6, seed=0, round=3)
    'the losses of up to 2 of 6 clients are not finite (seed 0, round 3): they count in no mean of losses'
    """
    return (
        f"the losses of up to {clients} of {of} clients are not finite (seed {seed}, round {round}): they count in no "
        "mean of losses"
    )


def find_unweighted(history: History) -> dict[str, Any]:
    """Returns the seeds in which finite updates came back, but always with the weight 0, as `list_seeds` does.

    Empty if a strategy is at fault, since a weight may then not be a number.
    """
    known = {"training_loss", "idle"} <= history.metrics.keys() and history.rounds
    if not known or any(name.startswith(FAULT) for name in history.metrics):
        return {}
    empty = np.isnan(history["training_loss"]).all(axis=1) & ~history["idle"].all(axis=1) & (history.diverged == 0)
    if "left_out" in history.metrics:
        empty &= ~history["left_out"].any(axis=1)
    return list_seeds(history, empty)


def say_unweighted(seeds: list[int], of: int) -> str:
    """Returns one line of text that says that no update ever had a weight.

    >>> say_unweighted([1], 2).split(";")[0]
    'all updates had the weight 0 in every round of seed 1: nothing was merged'
    """
    where = name_seeds(seeds, of)
    causes = "the weights of `select`, and whom `accept` takes"
    return f"all updates had the weight 0 in every round of {where}: nothing was merged; see {causes}"


def find_unmoved(history: History) -> dict[str, Any]:
    """Returns the seeds in which updates were merged, but the test loss was the same to the bit, as `list_seeds` does.

    Updates must have been merged in two rounds at least between the first evaluation and the last. Seeds that diverged
    are left out, as they say so themselves.
    """
    if not {"loss", "training_loss"} <= history.metrics.keys():
        return {}

    def is_unmoved(losses: np.ndarray, training: np.ndarray) -> bool:
        rounds = np.flatnonzero(~np.isnan(losses))
        if len(rounds) < 2 or (losses[rounds] != losses[rounds[0]]).any():
            return False
        return (~np.isnan(training[rounds[0] + 1 : rounds[-1] + 1])).sum() > 1

    each = map(is_unmoved, history["loss"], history["training_loss"])
    return list_seeds(history, (history.diverged == 0) & np.fromiter(each, bool))


def say_unmoved(seeds: list[int], of: int) -> str:
    """Returns one line of text that says that training changed nothing.

    >>> say_unmoved([1], 2).split(":")[0]
    'the loss is the same after every evaluated round of seed 1'
    """
    causes = "whether the loss has a gradient, the learning rate, frozen parts"
    return f"the loss is the same after every evaluated round of {name_seeds(seeds, of)}: see {causes}"


def name_seeds(seeds: list[int], of: int) -> str:
    """Names seeds in words, all of them together as such."""
    return "all seeds" if len(seeds) == of else f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


PROBLEMS: dict[str, tuple[Callable[[History], dict[str, Any]], Callable[..., str]]] = {
    "diverged": (find_diverged, say_diverged),
    "untrained": (find_untrained, say_untrained),
    "unweighted": (find_unweighted, say_unweighted),
    "unmoved": (find_unmoved, say_unmoved),
    "lost": (find_lost, say_lost),
}
"""What can go wrong in a run besides faults of strategies: how it is found in its history, and said."""


def find_problems(history: History) -> dict[str, dict[str, Any]]:
    """Returns what went wrong in a run, by its name in `PROBLEMS`; `faults` are those of strategies."""
    found = {name: find(history) for name, (find, _) in PROBLEMS.items()}
    found["faults"] = {"found": faults} if (faults := find_faults(history)) else {}
    return {name: one for name, one in found.items() if one}


def say_problems(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a line of text on each of the problems among what was found; anything else in it is ignored."""
    lines = [tell(**found[name]) for name, (_, tell) in PROBLEMS.items() if name in found]
    return lines + [say_fault(fault) for fault in found.get("faults", {}).get("found", ())]


def warn_of_faults(history: History, *, alone: bool) -> None:
    """Warns of all that went wrong in a finished run.

    Args:
      history: history of the run.
      alone: whether it is the only experiment. Of several, some are expected to diverge; their histories say so.
    """
    found = find_problems(history)
    if not alone:
        found = {name: one for name, one in found.items() if name not in ("diverged", "lost")}
    lines = say_problems(found)
    if "diverged" in found:
        lines[0] += "; their numbers are NaN from there on"
    for line in lines:
        warnings.warn(line, stacklevel=4)
