"""Who trains: one strategy per file, each with one exported class that can be constructed without arguments.

`top_m`, `uniform_m`, `gumbel_m` draw cohorts of fixed shape; `cohort_of` makes one. `draw_candidates` draws the clients
to ask for signals, and `top_candidates` selects among them.
"""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog
from fedjax_sel.client_selection._ops import cohort_of as cohort_of
from fedjax_sel.client_selection._ops import gumbel_m as gumbel_m
from fedjax_sel.client_selection._ops import top_m as top_m
from fedjax_sel.client_selection._ops import uniform_m as uniform_m
from fedjax_sel.client_selection._power_of_choice import draw_candidates as draw_candidates
from fedjax_sel.client_selection._power_of_choice import top_candidates as top_candidates

if TYPE_CHECKING:
    from fedjax_sel.client_selection.active_fl import ActiveFL as ActiveFL
    from fedjax_sel.client_selection.adapow_d import AdaPowD as AdaPowD
    from fedjax_sel.client_selection.age import Age as Age
    from fedjax_sel.client_selection.by_size import BySize as BySize
    from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling as ClusteredSampling
    from fedjax_sel.client_selection.cpow_d import CPowD as CPowD
    from fedjax_sel.client_selection.critical_fl import CriticalFL as CriticalFL
    from fedjax_sel.client_selection.cyclic import Cyclic as Cyclic
    from fedjax_sel.client_selection.delta import Delta as Delta
    from fedjax_sel.client_selection.device_heuristic import DeviceHeuristic as DeviceHeuristic
    from fedjax_sel.client_selection.divfl import DivFL as DivFL
    from fedjax_sel.client_selection.e3cs import E3CS as E3CS
    from fedjax_sel.client_selection.entropy import Entropy as Entropy
    from fedjax_sel.client_selection.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
    from fedjax_sel.client_selection.fed_cbs import FedCBS as FedCBS
    from fedjax_sel.client_selection.fed_ent_opt import FedEntOpt as FedEntOpt
    from fedjax_sel.client_selection.fed_entropy import FedEntropy as FedEntropy
    from fedjax_sel.client_selection.fed_gs import FedGS as FedGS
    from fedjax_sel.client_selection.fed_lecc import FedLECC as FedLECC
    from fedjax_sel.client_selection.fedcor import FedCor as FedCor
    from fedjax_sel.client_selection.fedcs import FedCS as FedCS
    from fedjax_sel.client_selection.fedis import FedIS as FedIS
    from fedjax_sel.client_selection.filfl import FilFL as FilFL
    from fedjax_sel.client_selection.gpfl import GPFL as GPFL
    from fedjax_sel.client_selection.gradient_norm import GradientNorm as GradientNorm
    from fedjax_sel.client_selection.greedy_shapley import GreedyShapley as GreedyShapley
    from fedjax_sel.client_selection.haccs import HACCS as HACCS
    from fedjax_sel.client_selection.hics_fl import HiCSFL as HiCSFL
    from fedjax_sel.client_selection.importance import Importance as Importance
    from fedjax_sel.client_selection.k_vib import KVib as KVib
    from fedjax_sel.client_selection.lefl import LEFL as LEFL
    from fedjax_sel.client_selection.md import MD as MD
    from fedjax_sel.client_selection.oort import Oort as Oort
    from fedjax_sel.client_selection.optimal_sampling import OptimalSampling as OptimalSampling
    from fedjax_sel.client_selection.power_of_choice import PowerOfChoice as PowerOfChoice
    from fedjax_sel.client_selection.round_robin import RoundRobin as RoundRobin
    from fedjax_sel.client_selection.rpow_d import RPowD as RPowD
    from fedjax_sel.client_selection.shuffled_round_robin import ShuffledRoundRobin as ShuffledRoundRobin
    from fedjax_sel.client_selection.tifl import TiFL as TiFL
    from fedjax_sel.client_selection.ucb_cs import UCBCS as UCBCS
    from fedjax_sel.client_selection.uniform import Uniform as Uniform

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(__name__)
