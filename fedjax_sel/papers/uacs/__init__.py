"""UACS-FL: the clients whose data the model is least sure of."""

from fedjax_sel.papers.paper import Paper
from fedjax_sel.papers.regime import FairRegime
from fedjax_sel.papers.uacs.cells import list_cells
from fedjax_sel.papers.uacs.claims import judge_claims
from fedjax_sel.papers.uacs.figures import make_figures
from fedjax_sel.papers.uacs.numbers import list_all_results
from fedjax_sel.papers.uacs.studies import study_distances, study_generator
from fedjax_sel.papers.uacs.tables import make_tables

__all__ = ["PAPER"]

OPEN = """
The paper gives ε ∈ {0, 0.1}, 100 clients, two classes, 6 boundary clients (elsewhere "6-10"), three settings as
pictures, and results as curves without numbers. It leaves open the cohort size, the model, the learning rate, the
epochs, the batch size, the rounds, the seeds and the law of the data.

Our examples lie in [-1, 1]², with the boundary x₂ = 0.5 sin(π x₁) and 50 examples per client. Boundary clients draw
examples within 0.15 of the curve's height. The other clients draw examples more than 0.25 from it; half of these
clients have one class, and half the other (`fedjax_sel.data.uacs`). The model is an MLP 2-32-2. Runs have m = 6 and 150
rounds (15 at scale `smoke`) of 5 local epochs of SGD with batch size 10 and learning rate 0.1. Examples are normalised
to deviation 1, aggregation is 1/m, and accuracy is measured on 2000 examples that are uniform on the square. A seed
draws the data, the initial model and the cohorts. Every method sees the same data and initial model, and a client
shuffles its examples in the same way under all of them.

Every client measures entropy or gradient norm on the global model in every round. The paper does not count this cost;
we do: the model goes to all 100 clients instead of 6, and all examples are passed through it.

The curve's amplitude, the strip, the margin and the boxes are ours: `full` changes one at a time. It also changes the
cohort size, the learning rate, the epochs, the boundary clients and the model. Logistic regression also runs with a
boundary that is straight, or nearly so: at the default amplitude, random selection is about as accurate as the best
straight line. Controls are round-robin and, at `full`, all clients in every round.

An advantage of at most 0.001 in accuracy, or of 1 round, counts as negligible. The target accuracy, 0.95, is ours, too.
A run that never reaches the target counts as reaching it in the round after the last.
"""

REGIME = FairRegime(
    examples_per_client=50,
    local_epochs=1,
    rounds=100,
    seeds=5,
    above_chance=0.5,
    reason="the source gives none of these; by round 100 the best method is above 0.95 in its three experiments",
)

PAPER = Paper(
    name="uacs",
    title="UACS-FL",
    reference='"Active Client Selection for Federated Learning" (Uncertainty-based Active Client Selection, UACS-FL).',
    seeds={"smoke": 2, "small": 20, "full": 20},
    settings=OPEN,
    regime=REGIME,
    studies={"generator": study_generator, "distances": study_distances},
    cells=list_cells,
    results=list_all_results,
    claims=judge_claims,
    tables=make_tables,
    figures=make_figures,
)
