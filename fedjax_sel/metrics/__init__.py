"""Metrics computed from a finished run."""

from fedjax_sel.metrics.curves import at_cost, cost_to, fill_missing, last_mean, mean_over_rounds, rounds_to
from fedjax_sel.metrics.participation import coverage, heat, jain, members
from fedjax_sel.metrics.verdict import Difference, adjust_holm, difference

__all__ = [
    "Difference",
    "adjust_holm",
    "at_cost",
    "cost_to",
    "coverage",
    "difference",
    "fill_missing",
    "heat",
    "jain",
    "last_mean",
    "mean_over_rounds",
    "members",
    "rounds_to",
]
