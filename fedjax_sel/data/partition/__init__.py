"""Which client owns which example: one partition a file, and each says which law it means.

A partition is a frozen value with the number of clients (`clients`; None: as many as there are natural owners) and
`assign(y, rng, owner) -> Int[n]`, the client of every example, -1 where an example is nobody's. All of them end, and
refuse with a reason what cannot be drawn. Any object with these two will do.
"""

from fedjax_sel.data.partition._own import Flower, Function, Indices
from fedjax_sel.data.partition.client_dirichlet import ClientDirichlet
from fedjax_sel.data.partition.dirichlet import Dirichlet
from fedjax_sel.data.partition.iid import Iid
from fedjax_sel.data.partition.label_count import LabelCount
from fedjax_sel.data.partition.label_groups import LabelGroups
from fedjax_sel.data.partition.label_skew import LabelSkew
from fedjax_sel.data.partition.natural import Natural
from fedjax_sel.data.partition.quadratic_dirichlet import QuadraticDirichlet
from fedjax_sel.data.partition.shards import Shards
from fedjax_sel.data.partition.unequal import Unequal

__all__ = [
    "ClientDirichlet",
    "Dirichlet",
    "Flower",
    "Function",
    "Iid",
    "Indices",
    "LabelCount",
    "LabelGroups",
    "LabelSkew",
    "Natural",
    "QuadraticDirichlet",
    "Shards",
    "Unequal",
]
