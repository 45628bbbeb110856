"""Checks of what strategies declare, before anything is traced: fields, methods, signals and examples for them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel import protocols
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.contract import check_bits, is_numeric, name_kind
from fedjax_sel.mistakes import check_accepts
from fedjax_sel.protocols import (
    Aggregator,
    ClientSelector,
    ClientSignal,
    CohortSignal,
    Correction,
    DataSelector,
    ExampleSignal,
    FeatureSignal,
    ServerSignal,
    Signals,
    Strategy,
    UpdateSignal,
    find_base,
    overrides,
)
from fedjax_sel.pytree import Range, is_key, show, show_value, title


def check_fields(name: str, strategy: Any) -> None:
    """Raises `ValueError` if a field of a strategy that is not static holds anything but numbers.

    Args:
      name: which part of the experiment it is.
      strategy: the strategy.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(strategy):
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        where = f"{name}: {type(strategy).__name__}: {field}"
        if not (is_numeric(leaf) or is_key(leaf)):
            raise ValueError(
                f"{where} is {show_value(leaf)}; it must be a number or an array, "
                f"as only a static field ({field}: ... = fs.static(default=...)) may be anything else"
            )
        check_bits(where, leaf)


def check_aggregator(aggregator: Aggregator) -> None:
    """Raises `ValueError` if only one of `combine` and `stacked` is there, or `server_optimizer` returns none."""
    name = type(aggregator).__name__
    if overrides(aggregator, "combine") and not aggregator.stacked:
        raise ValueError(f"{name}.combine needs all updates at once; give {name} the attribute stacked = True")
    if aggregator.stacked and not overrides(aggregator, "combine"):
        raise ValueError(f"{name} asks for all updates at once (stacked = True), but has no method combine to use them")
    if overrides(aggregator, "server_optimizer"):
        found = aggregator.server_optimizer()
        if not callable(getattr(found, "init", None)) or not callable(getattr(found, "update", None)):
            raise ValueError(
                f"{name}.server_optimizer returned {show(found, 60)}; it must return an optax.GradientTransformation, "
                "as optax.adam(0.1)"
            )


def check_correction(correction: Correction) -> None:
    """Raises `ValueError` if what a correction says it sends is not a number."""
    for name in ("down", "up"):
        Range(0, below=math.inf).check(f"{type(correction).__name__}: {name}", getattr(correction, name))


def check_methods(part: Strategy, leave_out: Sequence[str] = ()) -> None:
    """Raises `ValueError` if a method cannot be called as its contract declares it, or a property is a method.

    Methods that get signals are left to `check_signals`, which knows which.

    Args:
      part: a strategy or a signal.
      leave_out: arguments by keyword that it does not get.
    """
    contracts = [cls for cls in type(part).__mro__ if cls.__module__ == protocols.__name__]
    for name in dir(type(part)):
        declared = next((vars(cls)[name] for cls in contracts if name in vars(cls)), None)
        mine = inspect.getattr_static(type(part), name)
        if name.startswith("_") or mine is declared or not inspect.isfunction(mine):
            continue
        where = f"{type(part).__name__}.{name}"
        if isinstance(declared, property):
            raise ValueError(f"{where} is a method; it must be a property: write @property in the line above it")
        if inspect.isfunction(declared):
            taken = [*inspect.signature(declared).parameters.values()][1:]
            if not any(one.kind is one.VAR_KEYWORD for one in taken):
                needed = [one for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
                named = [one for one in taken if one.kind is one.KEYWORD_ONLY and one.name not in leave_out]
                by_place, by_name = ([one.name for one in some] for some in (needed, named))
                check_accepts(where, getattr(part, name), by_place, by_name)


def list_strategies(part: Strategy) -> Iterator[Strategy]:
    """Yields a strategy, and the strategies in its fields, which it wraps.

    >>> from fedjax_sel.client_selection import CriticalFL
    >>> [type(one).__name__ for one in list_strategies(CriticalFL())]
    ['CriticalFL', 'Uniform']
    """
    yield part
    for field in dataclasses.fields(part):
        if isinstance(inner := getattr(part, field.name), Strategy):
            yield from list_strategies(inner)


def warn_of_misspelt_methods(strategy: Any) -> None:
    """Warns of a public method or class attribute that overrides nothing, but is named almost like one that could be.

    >>> class Last(ClientSelector):
    ...     def select(self, key, state, ctx): ...
    ...     def obsrve(self, key, state, ctx, cohort): ...
    >>> with warnings.catch_warnings(record=True, action="always") as found:
    ...     warn_of_misspelt_methods(Last())
    >>> print(found[0].message)
    Last.obsrve overrides nothing; did you mean Last.observe?
    """
    ancestors = type(strategy).__mro__
    known = find_base(strategy)
    names = [name for name in dir(known) if not name.startswith("_")]
    for cls in ancestors[: ancestors.index(known)]:
        fields = inspect.get_annotations(cls)
        for name in vars(cls):
            if name.startswith("_") or name in names or name in fields:
                continue
            for near in difflib.get_close_matches(name, names, n=1, cutoff=0.8):
                if getattr(cls, near) is getattr(known, near):
                    where = cls.__name__
                    warnings.warn(f"{where}.{name} overrides nothing; did you mean {where}.{near}?", stacklevel=2)


def check_signals(selector: Any) -> None:
    """Raises `ValueError` if `signals` returned anything else, or a method does not take what is declared."""
    signals, name = selector.signals(), type(selector).__name__
    if not isinstance(signals, Signals):
        raise ValueError(
            f"{name}.signals returned {name_kind(signals)}; it must return Signals(before=..., trained=..., after=...)"
        )
    for moment in protocols.MOMENTS:
        for signal in signals.at(moment).values():
            check_methods(signal)
            if not isinstance(signal.cost, protocols.Cost):
                raise ValueError(
                    f"{type(signal).__name__}.cost is {show_value(signal.cost)}; it must be a fedjax_sel.protocols.Cost"
                )
    for signal in signals.at("after").values():
        cost = signal.cost
        if isinstance(signal, UpdateSignal) and (cost.forward or cost.backward or cost.needs_model):
            raise ValueError(
                f"{name}: the signal {type(signal).__name__} passes examples, which is not billed after the round; "
                "ask for it as `trained`"
            )
    before, trained, after = (tuple(signals.at(moment)) for moment in ("before", "trained", "after"))
    probed = tuple(f"probed_{one}" for one in before) if overrides(selector, "probes") else ()
    if taken := [one for one in probed if one in (*before, *trained, *after)]:
        raise ValueError(f"{name} has a signal called {taken[0]!r}, as a probe's values are; rename it")
    check_takes(selector, "select", ("key", "state", "ctx"), before)
    check_takes(selector, "init", ("key", "ctx", "host"), tuple(signals.at("upfront")))
    idle = tuple(after) if overrides(selector, "accept") else (*trained, *after)
    if idle and not overrides(selector, "observe"):
        takers = "observe" if overrides(selector, "accept") else "accept or observe"
        warnings.warn(
            f"{name} declares the signal {idle[0]!r}, which is measured and billed, but has no method {takers} that "
            "would take it",
            stacklevel=2,
        )
    if overrides(selector, "accept"):
        check_sent(selector, signals)
        check_takes(selector, "accept", ("key", "state", "ctx", "cohort"), trained)
    if overrides(selector, "observe"):
        check_takes(selector, "observe", ("key", "state", "ctx", "cohort"), (*before, *trained, *after, *probed))


def check_sent(selector: Any, signals: Signals) -> None:
    """Raises `ValueError` if members are accepted by what the server computes from updates that it never received."""
    for signal in signals.at("trained").values():
        of_updates = isinstance(signal, protocols.CohortSignal | UpdateSignal)
        told = signal.cost.up or signal.cost.models_up or signal.count_up(1)
        if selector.accepts_before_upload and of_updates and not told:
            raise ValueError(
                f"{type(selector).__name__} accepts members before they upload, by the signal {type(signal).__name__}, "
                "which is of their updates but sends nothing; set accepts_before_upload = False, or let the signal's "
                "cost say what members send"
            )


def check_examples(
    selector: ClientSelector, data_selection: DataSelector, data: FederatedData, *, holdout: bool
) -> None:
    """Raises `ValueError` if there are no examples to evaluate on, or none of those that a signal is measured on."""
    if not len(data.test_y):
        raise ValueError("there are no test examples to evaluate on; load the data with a test share")
    name, signals = title(type(selector)), selector.signals()
    measured = {**signals.at("before"), **signals.at("trained")}
    own = [n for n, s in measured.items() if isinstance(s, ExampleSignal | ClientSignal) and not s.public]
    if holdout and own and (without := np.flatnonzero(data.num_holdout == 0)).size:
        first, of = int(without[0]), data.num_clients
        some = f"{len(without)} of {of} clients have no hold-out examples (the first is client {first})"
        raise ValueError(
            f"signal_split is 'holdout', and {name} wants {', '.join(own)}, but "
            + (
                "no client has hold-out examples; give the federation a holdout"
                if len(without) == of
                else f"{some}; give it a larger holdout, or only clients that have enough examples (min_examples)"
            )
        )
    public = [n for n, s in measured.items() if s.public]
    if public and data.public_x is None:
        raise ValueError(
            f"{name} wants {', '.join(public)} on public examples, but the federation has none; give it some "
            "(public=...)"
        )
    known = {**signals.at("trained"), **signals.at("after")}
    for_clients = [n for n, s in known.items() if isinstance(s, ServerSignal) and s.split == "validation"]
    for_clients += [n for n, s in known.items() if isinstance(s, CohortSignal)]
    by_data = data_selection.validation_signals()
    for_data = list(by_data) if any(s.split == "validation" for s in by_data.values()) else []
    for part, wanted in ((name, for_clients), (title(type(data_selection)), for_data)):
        if wanted and not len(data.validation_y):
            raise ValueError(
                f"{part} wants {', '.join(wanted)}, but the server has no validation examples; load the data with a "
                "share of them (validation=0.1, or in a configuration data.validation=0.1)"
            )


def check_data_signals(selector: DataSelector) -> None:
    """Raises `ValueError` if a data selector's signals are invalid, or a method does not take what is declared."""
    examples, name = selector.signals(), type(selector).__name__
    kinds = (ExampleSignal, FeatureSignal, ClientSignal)
    if not isinstance(examples, Mapping) or not all(isinstance(one, kinds) for one in examples.values()):
        raise ValueError(
            f"{name}.signals returned {show(examples, 80)}; it must be a mapping from names to signals of examples, "
            "as in {'loss': Loss()}"
        )
    if public := [one for one, signal in examples.items() if signal.public]:
        raise ValueError(f"{name} wants {', '.join(public)} on public examples; a client chooses among its own")
    server = selector.validation_signals()
    if not isinstance(server, Mapping) or not all(isinstance(one, ServerSignal) for one in server.values()):
        raise ValueError(
            f"{name}.validation_signals returned {show(server, 80)}; it must be a mapping from names to signals of the "
            "server, as in {'gradient': ValidationGradient()}"
        )
    for signal in (*examples.values(), *server.values()):
        check_methods(signal)
    if limited := [one for one, signal in examples.items() if signal.cost.max_examples is not None]:
        raise ValueError(
            f"{name} wants {', '.join(limited)}, which looks at a part of a client's examples; a data selector chooses "
            "among all of them"
        )
    if selector.uses_turn and "turn" in examples:
        raise ValueError(f"{name} has a signal 'turn', and uses_turn gives it another value of this name; rename it")
    known = (*examples, *(("turn",) if selector.uses_turn else ()))
    check_takes(selector, "select", ("key", "state", "valid"), known)
    if overrides(selector, "observe"):
        check_takes(selector, "observe", ("key", "state", "weight"), known)
    if overrides(selector, "report"):
        check_takes(selector, "report", ("state", "valid", "weight"), known)


def check_takes(strategy: Any, method: str, arguments: tuple[str, ...], signals: tuple[str, ...]) -> None:
    """Raises `ValueError` if a method cannot be called with these arguments, and these signals by keyword."""
    where, function = f"{type(strategy).__name__}.{method}", getattr(strategy, method)
    check_accepts(where, function, arguments, signals)
    taken = inspect.signature(function).parameters
    given = tuple(name for name, one in taken.items() if one.kind is one.POSITIONAL_OR_KEYWORD)
    if given[: len(arguments)] != arguments and sorted(given[: len(arguments)]) == sorted(arguments):
        raise ValueError(f"{where} takes ({', '.join(given)}); it must take ({', '.join(arguments)}), in this order")
