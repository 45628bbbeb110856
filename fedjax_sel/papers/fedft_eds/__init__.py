"""FedFT-EDS: a pretrained backbone stays fixed, the rest is tuned on examples chosen by hardened entropy."""

from fedjax_sel.papers.fedft_eds.cells import list_cells
from fedjax_sel.papers.fedft_eds.claims import judge_claims
from fedjax_sel.papers.fedft_eds.figures import make_figures
from fedjax_sel.papers.fedft_eds.numbers import list_all_results
from fedjax_sel.papers.fedft_eds.studies import study_alikeness, study_choices, study_entropies, study_time
from fedjax_sel.papers.fedft_eds.tables import make_tables
from fedjax_sel.papers.paper import Paper
from fedjax_sel.papers.regime import FairRegime

__all__ = ["PAPER"]

OPEN = """
The source leaves open how many rounds it runs, the batch, FedProx's μ, weight decay, how it pretrains, its seeds, and
which Dirichlet law divides the examples. Ours: batch 32 and 50 rounds (`full`), μ = 0.01, no weight decay in
fine-tuning, each client's mix of classes from Dirichlet(α) with equal sizes (Hsu, Qi and Brown, 2019, one of the three
works that it names; in the code of another, FedML, each class draws its share for every client, passes over clients
that are full, and asks for ten examples a client), all clients in every round unless said, weights by the examples
trained on, max(1, round(P_ds n)) of them chosen afresh every round on the model received, learning rate 0.1 and
momentum 0.5 from zero every round. WRN-16-1; trained are the third group, the last normalisation and the classifier
(132,298 of 175,066 parameters); normalisation in fixed parts uses its statistics and does not move them. Examples are
normalised by their own data's moments. No augmentation in fine-tuning.

**Pretraining.** The source domain is Tiny-ImageNet at 32x32 (200 classes, JPEG-compressed) in the place of the source's
"Small ImageNet"; SGD with momentum 0.9, weight decay 5e-4, batch 128, a cosine over the epochs, in one place. The test
images of the file that we have are sharper than its training images: neighbours in a row differ by 19.1 levels on
average, and by 14.3. `medium` begins with the library's model (`tiny_imagenet`: all 100,000 training images, 30 epochs,
shifted and mirrored at random). It is right about 26.65 % of the test images as they are, and 35.72 % of them blurred
to the training images' sharpness (Gaussian, 0.483 pixels), which is the accuracy that the fair regime is compared with.
`full` pretrains in the same way on nine tenths of the training examples and measures accuracy on the rest. The
classifier is drawn afresh for the target.

**Scales.** `small` is small: pretraining with 15,000 examples for 4 epochs; CIFAR-10 (JPEG-compressed copies) with 500
training and 1000 test examples, 10 clients (50 in the place of 100), batch 16, 1 local epoch (the source has 5), 10
rounds; the spoken digits of six speakers, 20 clients, in the place of Speech Commands. Its accuracies are far from the
source's, and its verdicts are of that setting: a short budget is where choosing examples should matter most, and where
pretraining does. Ablations are among ten clients with P_ds = 10 % there (the source: 100 clients, 50 %). `full` holds
the source's own experiments, CIFAR-100 and Speech Commands (through tensorflow-datasets) included, for an accelerator.
`smoke` is a WRN-10-1 on scikit-learn's digits, pretrained on digits too: it shows that everything runs, and judges
nothing.

`small` also has FedAvg, FedProx, RDS and EDS with the source's five local epochs, by which learning efficiency is
judged, and both Dirichlet laws: each client draws its mix of classes (equal sizes, elsewhere), or each class draws its
share for every client (sizes differ too; nobody is passed over, and none is asked for).

`medium` takes hours on two cores: the library's backbone; CIFAR-10 with all 50,000 examples, ten clients, E = 5, B =
32, 50 rounds. A tenth of the examples has five seeds; half of them, all of them, and FedAvg-RDS two. What trains the
whole model on all examples (FedAvg, FedProx, from scratch, in one place) is run on **10,000 examples with one seed**,
with FedFT-ALL (one seed), RDS and EDS (three) beside it; so are the studies, and both laws. 100 clients, of whom all, a
fifth or a tenth take part, for the methods with a tenth of the examples (two seeds); spoken digits, all 3000
recordings, 20 clients (three seeds); the ablations among ten clients with a tenth of 10,000 examples (three seeds).
Where comparisons have different numbers of seeds, those with at least three are judged.

Clients' models are compared by minibatch CKA (Nguyen, Raghu and Kornblith, 2021, which the source cites) on all test
examples in batches of 100.

Best accuracy over the rounds is reported, as in the source; it is a maximum over measurements on test examples, so it
is optimistic for all methods alike. Simulated client seconds count every FLOP of all clients at one rate, the
backbone's forward pass for every example of every step and the choice of examples included. The simulator itself runs a
fixed backbone once for all examples, to the same numbers.

An advantage of at most 0.005 of accuracy is negligible.
"""

REGIME = FairRegime(
    examples_per_client=300,
    local_epochs=5,
    rounds=50,
    seeds=3,
    above_chance=0.3,
    pretrained_accuracy=0.3,
    reason="a tenth of a client's examples is a batch of 32 at least; the source's five epochs, and 50 rounds; a model "
    "that knows its own 200 classes",
)

PAPER = Paper(
    name="fedft_eds",
    title="FedFT-EDS",
    reference='Hongrui Shi, Valentin Radu and Po Yang, "Federated Learning with Workload Reduction through Partial '
    'Training of Client Models and Entropy-Based Data Selection", 2024, https://arxiv.org/abs/2501.00170.',
    seeds={"smoke": 2, "small": 3, "medium": 5, "full": 3},
    settings=OPEN,
    regime=REGIME,
    cells=list_cells,
    results=list_all_results,
    claims=judge_claims,
    tables=make_tables,
    figures=make_figures,
    studies={
        "alike": study_alikeness,
        "entropies": study_entropies,
        "chosen": study_choices,
        "time": study_time,
    },
)
