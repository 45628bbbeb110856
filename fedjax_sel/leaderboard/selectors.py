"""The selectors of the leaderboard, each with its paper's parameters and its other requirements for a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

BASELINE = "uniform"
"""The selector that every other one is compared with."""

SIZE, CLIENT, COHORT = "size", "client", "cohort"
"""Weights of the mean: by examples, the same for each, or the cohort's own, which are unbiased."""

BATCH = 20
"""Examples of a minibatch, in local training and where a selector measures its noise."""


@dataclass(frozen=True)
class Competitor:
    """A selector of the leaderboard.

    Attributes:
      name: a selector of the library, or `module:Name`.
      weighting: the weighting of the aggregation, as in its source.
      settings: its parameters that differ from the defaults of the class, which are its paper's; "2m" is twice the
        cohort.
      cohort: slots of its cohort, as a multiple of the federation's.
      public: whether it needs public examples.
      grid: two values of one of its parameters that `full` tries, by the parameter's name; empty: none is tuned.
      rate: factor on the federation's learning rate.
      alias: its name in tables; "": `name`.
      varies: the selector of which it is a variant; "": it is none, and is ranked.
      horizon: how many times the scale's rounds its runs have.
    """

    name: str
    weighting: str = SIZE
    settings: Mapping[str, Any] = field(default_factory=dict)
    cohort: int = 1
    public: bool = False
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rate: float = 1.0
    alias: str = ""
    varies: str = ""
    horizon: float = 1.0

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.alias or self.name

    def configure(self, m: int) -> dict[str, Any]:
        """Returns the keys that it fixes in the configuration of a run with cohorts of `m`."""
        return {
            "client_selection": {"name": self.name, **{key: fill_in(value, m) for key, value in self.settings.items()}},
            "aggregation": {"name": "mean", "weighting": self.weighting},
            "cohort_size": self.cohort * m,
        }


def fill_in(value: Any, m: int) -> Any:
    """Returns a parameter in which `"2m"` stands for twice the cohort.

    >>> fill_in("2m", 10), fill_in("paper", 10), fill_in(0.1, 10)
    (20, 'paper', 0.1)
    """
    found = re.fullmatch(r"(\d+)m", value) if isinstance(value, str) else None
    return int(found[1]) * m if found else value


def list_competitors() -> list[Competitor]:
    """Returns all selectors of the library, controls first, then sorted by name."""
    return [
        Competitor(BASELINE),
        Competitor("round_robin"),
        Competitor("shuffled_round_robin"),
        Competitor("cyclic"),
        Competitor("age"),
        Competitor("gpfl", settings={"reward": "zero"}, alias="gpfl_without_rewards"),
        Competitor("by_size", CLIENT),
        Competitor("md", CLIENT),
        Competitor("active_fl", grid={"alpha2": (0.01, 0.1)}),
        Competitor("adapow_d", CLIENT, {"d": "2m"}),
        Competitor("clustered_sampling", CLIENT),
        Competitor("cpow_d", CLIENT, {"d": "2m", "batch_size": BATCH}),
        Competitor("critical_fl", settings={"smallest": "1m"}, cohort=2, grid={"threshold": (0.01, 0.1)}),
        Competitor("delta", COHORT, {"batch_size": BATCH}, grid={"alpha1": (0.8, 0.5)}),
        Competitor("device_heuristic", grid={"alpha": (0.25, 0.5)}),
        Competitor("divfl", settings={"weighting": "none"}),
        Competitor("e3cs", grid={"fairness": (0.5, 0.8)}),
        Competitor("entropy", CLIENT, grid={"epsilon": (0.1, 0.5)}),
        Competitor("epsilon_greedy", CLIENT, grid={"epsilon": (0.1, 0.5)}),
        Competitor("fed_cbs", grid={"exploration": (10.0, 1.0)}),
        Competitor("fed_ent_opt", grid={"buffer": (0.7, 0.3)}),
        Competitor("fed_entropy", grid={"epsilon": (0.2, 0.5)}),
        Competitor("fed_gs", grid={"alpha": (0.1, 1.0)}),
        Competitor("fed_lecc"),
        Competitor("fedcor", CLIENT, grid={"beta": (0.95, 0.75)}),
        Competitor("fedcs"),
        Competitor("fedis", COHORT),
        Competitor("filfl", CLIENT, settings={"members": "1m"}, cohort=2),
        Competitor("gpfl", grid={"alpha": (1.0, 0.5)}),
        Competitor("gradient_norm", CLIENT),
        Competitor("greedy_shapley", grid={"alpha": (0.75, 0.5)}),
        Competitor("haccs", CLIENT, grid={"rho": (0.5, 0.0)}),
        Competitor("hics_fl", CLIENT, grid={"temperature": (0.0025, 0.025)}),
        Competitor("importance", COHORT, grid={"uniform": (0.0, 0.5)}),
        Competitor("k_vib", COHORT),
        Competitor("lefl", public=True),
        Competitor("oort", CLIENT, grid={"penalty": (2.0, 0.0)}),
        Competitor("optimal_sampling", COHORT),
        Competitor("power_of_choice", CLIENT, {"d": "2m"}),
        Competitor("rpow_d", CLIENT, {"d": "2m"}),
        Competitor("tifl"),
        Competitor("ucb_cs", CLIENT, grid={"gamma": (0.7, 0.9)}),
    ]


SELECTORS: dict[str, Competitor] = {one.label: one for one in list_competitors()}
"""All selectors of the library, and controls, by their names in tables, in the order in which they run."""


def list_variants() -> list[Competitor]:
    """Returns controls and other settings of the leaderboard's selectors, which are compared with them, not ranked."""
    small = "fedjax_sel.leaderboard.controls:SmallCohortsFirst"
    clusters = replace(SELECTORS["clustered_sampling"], varies="clustered_sampling")
    by_rounds = ("adapow_d", "hics_fl", "k_vib", "tifl")  # their schedules depend on the number of rounds
    cheap = ("oort", "fedcs", "haccs", "device_heuristic", "optimal_sampling")  # many runs end before their budget
    return [
        Competitor(BASELINE, CLIENT, alias="uniform_client_weights", varies=BASELINE),
        Competitor(small, alias="uniform_small_first", varies="gpfl_without_rewards"),
        replace(clusters, settings={"by": "size"}, alias="clustered_by_size"),
        replace(clusters, settings={"by": "oracle"}, alias="clustered_oracle"),
        replace(SELECTORS["hics_fl"], settings={"temperature": 0.025}, alias="hics_fl_warmer", varies="hics_fl"),
        replace(SELECTORS["fedcs"], settings={"fraction": 0.2}, alias="fedcs_of_a_fifth", varies="fedcs"),
        *(replace(SELECTORS[name], alias=f"{name}_half", varies=name, horizon=0.5) for name in by_rounds),
        *(replace(SELECTORS[name], alias=f"{name}_longer", varies=name, horizon=4.0) for name in cheap),
    ]


VARIANTS: dict[str, Competitor] = {one.label: one for one in list_variants()}
"""The variants by their names in tables."""
