"""Which client owns which example: one partition per file, each of which states its law.

A partition is a frozen value with the number of clients (`clients`; None: as many as there are natural owners) and
`assign(y, rng, owner) -> Int[n]`, the client of every example, -1 for an example that no client owns. Every partition
terminates, and raises an error with the reason if it cannot be drawn. Any object with these two members works.
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
