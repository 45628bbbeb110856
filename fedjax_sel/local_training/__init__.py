"""How a client trains: one trainer per file, learning-rate schedules over rounds, and augmentation."""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.local_training._augment import CropFlip as CropFlip
    from fedjax_sel.local_training._minibatch import MinibatchTrainer as MinibatchTrainer
    from fedjax_sel.local_training._schedule import Constant as Constant
    from fedjax_sel.local_training._schedule import Cosine as Cosine
    from fedjax_sel.local_training._schedule import Exponential as Exponential
    from fedjax_sel.local_training._schedule import Steps as Steps
    from fedjax_sel.local_training.alternating import Alternating as Alternating
    from fedjax_sel.local_training.dp_sgd import DPSGD as DPSGD
    from fedjax_sel.local_training.optax import Optax as Optax
    from fedjax_sel.local_training.sgd import SGD as SGD

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
SCHEDULES = dict.fromkeys(["Constant", "Cosine", "Exponential", "Steps"], "_schedule")
__getattr__, __dir__ = catalog.namespace(__name__, **SCHEDULES, CropFlip="_augment", MinibatchTrainer="_minibatch")
