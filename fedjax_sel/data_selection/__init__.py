"""What a client trains on: one strategy per file, each exporting one class that needs no arguments."""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.data_selection.craig import CRAIG as CRAIG
    from fedjax_sel.data_selection.el2n import EL2N as EL2N
    from fedjax_sel.data_selection.entropy import Entropy as Entropy
    from fedjax_sel.data_selection.entropy_batches import EntropyBatches as EntropyBatches
    from fedjax_sel.data_selection.everything import Everything as Everything
    from fedjax_sel.data_selection.fed_balancer import FedBalancer as FedBalancer
    from fedjax_sel.data_selection.fed_core import FedCore as FedCore
    from fedjax_sel.data_selection.fed_sampling import FedSampling as FedSampling
    from fedjax_sel.data_selection.grad_match import GradMatch as GradMatch
    from fedjax_sel.data_selection.grand import GraNd as GraNd
    from fedjax_sel.data_selection.high_loss import HighLoss as HighLoss
    from fedjax_sel.data_selection.importance import Importance as Importance
    from fedjax_sel.data_selection.kakurenbo import Kakurenbo as Kakurenbo
    from fedjax_sel.data_selection.margin import Margin as Margin
    from fedjax_sel.data_selection.random_subset import RandomSubset as RandomSubset
    from fedjax_sel.data_selection.tuor import Tuor as Tuor

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(__name__)
