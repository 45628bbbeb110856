"""What is added to every step of local training: one correction per file, each exporting one class.

`none` is the default and costs nothing.
"""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.correction.feddyn import FedDyn as FedDyn
    from fedjax_sel.correction.none import NoCorrection as NoCorrection
    from fedjax_sel.correction.proximal import Proximal as Proximal
    from fedjax_sel.correction.scaffold import Scaffold as Scaffold

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(__name__)
