"""Heuristic device selection: devices with the best mean compute, energy and memory and the best worst network."""

from fedjax_sel.papers.device_heuristic.cells import list_cells
from fedjax_sel.papers.device_heuristic.changing import study_changing
from fedjax_sel.papers.device_heuristic.claims import judge_claims
from fedjax_sel.papers.device_heuristic.enumeration import study_enumeration
from fedjax_sel.papers.device_heuristic.figures import make_figures
from fedjax_sel.papers.device_heuristic.numbers import list_all_results
from fedjax_sel.papers.device_heuristic.studies import study_solvers
from fedjax_sel.papers.device_heuristic.tables import make_tables
from fedjax_sel.papers.device_heuristic.weights import study_weights
from fedjax_sel.papers.paper import Paper
from fedjax_sel.papers.regime import FairRegime

__all__ = ["PAPER"]

OPEN = """
The source gives 30 devices, Iris, an MLP with 32 hidden units, 5 local epochs, sparse categorical cross-entropy,
aggregation by sample counts, α = β = γ = δ = 0.25, ε ∈ {1, 0.75, 0.5}, and accuracies without a deviation. It leaves
open the number of rounds, the optimiser, the learning rate, the batch size, the activation, the test examples, the
partition, the seeds, and the law and the units of the properties f.

We use 30 of the 150 examples, in proportion to their classes, as test examples; every seed draws others. Each device
has 4 of the 120 training examples: dealt at random (IID), or of a mix of classes that the device draws from
Dirichlet(0.3 × the shares of the classes). Runs have 50 rounds of 5 epochs of SGD with learning rate 0.1; a batch is a
device's 4 examples. Examples are normalised. A seed draws the test examples, the partition, the devices, the initial
model and the cohorts; all methods see the same.

Each property is U(0, 1] of its largest value, independently (the source shows a picture without units); f is the
property divided by the largest among the devices. A device is a microcontroller with at most 20 MFLOP/s, 200 MFLOP/J, 1
MB/s up and 4 MB/s down, and 0.1 W of radio. These levels are ours. With them, the best device spends half of a round's
time and half of its energy on computing, so f1, f2 and f4 all have an effect. Memory has none in the simulation.
Seconds and joules are simulated: a round lasts as long as its slowest device.

Properties are drawn independently of the data and the initial model, and only time and energy depend on them. If
equally many devices are trained in every round, it therefore makes no difference to accuracy, except by chance, which
devices they are.

*Proposed* is Algorithm 1: greedy search from every first device, with the evident corrections (the next device
maximises H(S ∪ {n}), and the minimum of f4 is over S, not over the product with the mask, which is 0). *Set-based* is
the optimum of H, found by an exact solver; a study enumerates all 155,117,520 sets of 15 of 30 devices in other
instances. *Random* draws equally many devices afresh in every round. Beyond the source, we run ε = 0.1, H with one
property alone, logistic regression, telephones (which spend nearly all time and energy on the transfer), f scaled to
its range, a grid over the weights, and devices that change between rounds. The four numbers that each device reports
about itself are billed in the first round, and in every round if devices change. f(φ) of equation (3.3), a constant in
F, is taken as a rule that ends training.

An accuracy advantage of at most 0.001 counts as negligible. A difference at equal cost is the final accuracy of the
proposed algorithm, minus the accuracy of the other method when it has spent as much. A run that never reaches the
target counts as reaching it in the round after the last, and the interval is open on its side.
"""

REGIME = FairRegime(
    examples_per_client=4,
    local_epochs=5,
    rounds=50,
    seeds=5,
    above_chance=0.5,
    reason="the source's own Iris on 30 devices and 5 epochs; enough rounds for training all devices to reach 0.9",
)

PAPER = Paper(
    name="device_heuristic",
    title="Heuristic device selection",
    reference='Kartik Kailas Mouli, "Device Selection Algorithm for Federated Learning", B.Tech. thesis, Indian '
    "Institute of Technology Patna, May 2024.",
    seeds={"smoke": 2, "small": 20, "full": 100},
    settings=OPEN,
    regime=REGIME,
    cells=list_cells,
    results=list_all_results,
    claims=judge_claims,
    tables=make_tables,
    figures=make_figures,
    studies={
        "solvers": study_solvers,
        "enumeration": study_enumeration,
        "weights": study_weights,
        "changing": study_changing,
    },
)
