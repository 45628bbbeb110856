"""How a run of the FedFT-EDS reproduction is made from settings, and its ablations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedjax_sel.papers.fedft_eds.methods import (
    ALPHAS,
    METHODS,
    OTHERS,
    PARTLY,
    PARTS,
    PRETRAINING,
    RHOS,
    SCRATCH,
    name_ablation,
    select_by_entropy,
    select_randomly,
)
from fedjax_sel.papers.fedft_eds.scales import SHIPPED, SHIPPED_ACCURACY, choose_source
from fedjax_sel.papers.paper import Cell
from fedjax_sel.papers.settings import merge_settings


def make_cell(
    experiment: str, method: str, base: dict[str, Any], changes: Iterable[dict[str, Any]], begins: str | None
) -> Cell:
    """Returns one run; `begins` names its initial model as `choose_source` does, None for a fresh one."""
    config = merge_settings(base, *changes)
    if begins is None:
        return Cell(experiment, method, config)
    if begins == SHIPPED:
        config = merge_settings(config, {"model": {"pretrained": SHIPPED}})
        return Cell(experiment, method, config, pretrained_accuracy=SHIPPED_ACCURACY)
    config = merge_settings(config, {"model": {"pretrained": f"the cell {PRETRAINING}, {begins}"}})
    return Cell(experiment, method, config, (PRETRAINING, begins))


def make_method_cell(scale: str, experiment: str, method: str, base: dict[str, Any]) -> Cell:
    """Returns one run of one of the methods; all except the one from scratch begin with the pretrained model."""
    begins = None if method == SCRATCH else choose_source(scale)
    return make_cell(experiment, method, base, {**METHODS, **OTHERS}[method], begins)


def vary(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns the ablations of some settings, in the order of Fig. 10.

    Args:
      base: settings in which the whole model is trained.
      fraction: of the examples to select.
      source: data on which the model is pretrained.
    """
    return [way for change in (vary_part, vary_alpha, vary_rho) for way in change(base, fraction, source)]


def vary_part(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs that train more or less of the model (Fig. 10a); see `vary`."""
    return [
        make_cell(name_ablation("trained:", part), way, base, [{"model": {"frozen": list(frozen)}}, selection], source)
        for part, frozen in PARTS.items()
        for way, selection in list_selections(fraction).items()
    ]


def vary_alpha(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs with other Dirichlet concentrations (Fig. 10b); see `vary`."""
    return [
        make_cell(
            name_ablation("α =", f"{alpha:g}"), way, base, [PARTLY, {"partition": {"alpha": alpha}}, selection], source
        )
        for alpha in ALPHAS
        for way, selection in list_selections(fraction).items()
    ]


def vary_rho(base: dict[str, Any], fraction: float, source: str) -> list[Cell]:
    """Returns runs with other temperatures (Fig. 10c); see `vary`."""
    return [
        make_cell(name_ablation("ρ =", f"{rho:g}"), "EDS", base, [PARTLY, select_by_entropy(fraction, rho)], source)
        for rho in RHOS
    ]


def list_selections(fraction: float) -> dict[str, dict[str, Any]]:
    """Returns the settings of random and of entropy selection, by their names in the ablations."""
    return {"RDS": select_randomly(fraction), "EDS": select_by_entropy(fraction)}
