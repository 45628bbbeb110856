"""On what a client trains: one strategy a file, each with one exported class that constructs without arguments."""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.data_selection.entropy import Entropy as Entropy
    from fedjax_sel.data_selection.entropy_batches import EntropyBatches as EntropyBatches
    from fedjax_sel.data_selection.everything import Everything as Everything
    from fedjax_sel.data_selection.high_loss import HighLoss as HighLoss
    from fedjax_sel.data_selection.margin import Margin as Margin
    from fedjax_sel.data_selection.random_subset import RandomSubset as RandomSubset

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(__name__)
