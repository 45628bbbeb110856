"""How updates are merged: one strategy per file, each exporting one class that needs no arguments."""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.aggregation.dp_fedavg import DPFedAvg as DPFedAvg
    from fedjax_sel.aggregation.fedavgm import FedAvgM as FedAvgM
    from fedjax_sel.aggregation.fednova import FedNova as FedNova
    from fedjax_sel.aggregation.fedopt import FedOpt as FedOpt
    from fedjax_sel.aggregation.krum import Krum as Krum
    from fedjax_sel.aggregation.mean import Mean as Mean
    from fedjax_sel.aggregation.median import Median as Median
    from fedjax_sel.aggregation.trimmed_mean import TrimmedMean as TrimmedMean

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(__name__)
