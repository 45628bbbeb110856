"""The runs of the scale `medium`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedjax_sel.papers.fedft_eds.making import make_cell, make_method_cell, vary
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    BATCHES,
    CENTRAL,
    CIFAR10,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    FRACTIONS,
    HALF,
    LESS,
    LOSS,
    MARGIN,
    METHODS,
    RDS,
    RDS50,
    SCRATCH,
    SPEECH,
    STRONG,
    WEAK,
    name_by_client,
    name_fedavg,
    name_few,
    name_many,
    name_stragglers,
)
from fedjax_sel.papers.fedft_eds.scales import SCALES, choose_source, divide_by_client, list_alphas
from fedjax_sel.papers.paper import Cell


def list_medium() -> list[Cell]:
    """Returns runs on all examples and on 10,000, those that settle most claims an hour first."""
    scale, out = "medium", []
    size, source = SCALES[scale], choose_source(scale)

    def add(
        data: str,
        methods: Iterable[str],
        seeds: int,
        law: Callable[..., str] = name_few,
        alphas: Iterable[float] = list_alphas(scale),
    ) -> None:
        for alpha in alphas:
            base = {**size.describe_base(data, size.few, alpha), "seeds": seeds}
            if law is name_by_client:
                base["partition"] = divide_by_client(size.few, alpha)
            out.extend(make_method_cell(scale, law(data, alpha), method, base) for method in methods)

    add(CIFAR10, (RDS, EDS), 5)
    add(LESS, (RDS, EDS), 5)
    add(LESS, (RDS, EDS), 3, name_by_client)
    add(LESS, (ALL,), 1, name_by_client)
    add(LESS, (FEDAVG_RDS, FEDPROX_RDS), 5)
    add(LESS, (MARGIN, BATCHES), 3)
    out += list_medium_many((RDS, EDS), list_alphas(scale), 5)
    out += vary({**size.describe_base(LESS, size.few, STRONG), "seeds": 3}, HALF, source)
    out += list_medium_many((EDS50, RDS50, ALL), (STRONG,), 3)
    out += list_medium_stragglers((FEDAVG,), 3, "10 %")
    add(LESS, (FEDAVG,), 3, alphas=(STRONG,))
    add(LESS, (FEDAVG,), 1, alphas=(WEAK,))
    add(LESS, (SCRATCH,), 1)
    for alpha in list_alphas(scale):  # the same run, listed in both
        central = {**size.describe_central(LESS, WEAK), "seeds": 1}
        out.append(make_cell(name_few(LESS, alpha), CENTRAL, central, [], source))
    add(CIFAR10, (EDS50, RDS50, ALL, FEDAVG_RDS), 3)
    base = {**size.describe_base(SPEECH[scale], SPEAKING, STRONG), "seeds": 3}
    shown = (SCRATCH, FEDAVG, RDS, EDS, RDS50, EDS50)
    out += [make_method_cell(scale, name_many(SPEECH[scale], STRONG), method, base) for method in shown]
    add(CIFAR10, (MARGIN, LOSS, BATCHES), 3)
    out += list_medium_stragglers((EDS, RDS), 3, "20 %", "10 %")
    add(LESS, (FEDPROX,), 1)
    return out


SPEAKING = 8
"""Clients that share the spoken digits at `medium`, so that each has 300 examples."""


def list_medium_many(methods: Iterable[str], alphas: Iterable[float], seeds: int) -> list[Cell]:
    """Returns methods with many clients on all examples."""
    size, out = SCALES["medium"], []
    for alpha in alphas:
        base = {**size.describe_base(CIFAR10, size.many, alpha), "seeds": seeds}
        out += [make_method_cell("medium", name_many(CIFAR10, alpha), method, base) for method in methods]
    return out


def list_medium_stragglers(methods: Iterable[str], seeds: int, *fractions: str) -> list[Cell]:
    """Returns methods with many clients of which only these fractions take part."""
    size, out = SCALES["medium"], []
    for alpha in list_alphas("medium"):
        base = {**size.describe_base(CIFAR10, size.many, alpha), "seeds": seeds}
        for fraction in fractions:
            changes = {"cohort_size": round(FRACTIONS[fraction] * size.many)}
            for method in methods:
                name = name_fedavg(fraction) if method == FEDAVG else name_stragglers(method, fraction)
                settings = [*METHODS[method], changes]
                out.append(make_cell(name_many(CIFAR10, alpha), name, base, settings, choose_source("medium")))
    return out
