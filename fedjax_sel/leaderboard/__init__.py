"""The leaderboard: all client selectors on the same federations, under the same budgets, with the same seeds.

`selectors` and `federations` define what is compared, `cells` runs it, `measures` extracts numbers from the runs,
`statistics` compares them, `findings` judges the predictions, and `tables`, `figures` and `page` present the results.
"""

from fedjax_sel.leaderboard.board import run_leaderboard
from fedjax_sel.leaderboard.federations import FEDERATIONS
from fedjax_sel.leaderboard.selectors import SELECTORS

__all__ = ["FEDERATIONS", "SELECTORS", "run_leaderboard"]
