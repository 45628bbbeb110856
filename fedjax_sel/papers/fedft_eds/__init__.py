"""FedFT-EDS: a pretrained backbone stays frozen; the rest is tuned on examples chosen by hardened entropy."""

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
The paper does not specify the number of rounds, the batch size, FedProx's μ, the weight decay, how it pretrains, its
augmentation, its seeds, how it rounds P_ds, what becomes of a last incomplete batch, how frozen layers normalise, or
which Dirichlet law divides the examples. We use batch size 32 and 50 rounds (`full`), μ = 0.01 and no weight decay in
fine-tuning. At `medium` and `full`, each class draws its clients from Dirichlet(α), skips clients that are full, and
gives every client at least ten examples, as in the code of FedML, one of the three works that the paper names for its
law. In another of them (Hsu, Qi and Brown, 2019), each client draws its mix of classes, which at the same α is far more
skewed: with ten clients and α = 0.1, a client has 1.3 classes (the exponential of its labels' entropy), and 2.4 where
each class draws. `smoke` and `small`, which have too few examples for FedML's law, use that of Hsu et al. All clients
take part in every round unless stated otherwise, weighted by the number of examples that they train on. A client with n
examples trains on max(1, round(P_ds n)) of them, chosen afresh in every round with the model that it receives; a last
incomplete batch is a step, too. The learning rate is 0.1; the momentum is 0.5 and starts from zero in every round. The
network is WRN-16-1, of which the third group, the last normalisation and the classifier are trained (132,298 of 175,066
parameters); normalisation in the frozen parts uses its statistics and does not update them. Examples are normalised by
the moments of their own data set. Fine-tuning uses no augmentation.

**Pretraining.** The source domain is Tiny-ImageNet at 32x32 (200 classes, JPEG-compressed) instead of the paper's
"Small ImageNet". Pretraining is centralised, by SGD with momentum 0.9, weight decay 5e-4, batch size 128 and a cosine
schedule over the epochs. The test images in our file are sharper than its training images: horizontally adjacent pixels
differ by 19.1 levels on average, in the training images by 14.3. `medium` starts from the library's model
(`tiny_imagenet`: all 100,000 training images, 30 epochs, random shifts and flips). Its accuracy is 26.65 % on the test
images as they are, and 35.72 % once they are blurred to the training images' sharpness (Gaussian, 0.483 pixels); the
second number is compared with the fair regime. `full` pretrains in the same way on nine tenths of the training examples
and measures accuracy on the rest. The classifier is reinitialised for the target.

**Scales.** `small` pretrains on 15,000 examples for 4 epochs. It has CIFAR-10 (JPEG-compressed copies) with 500
training and 1000 test examples, 10 clients (50 instead of 100), batch size 16, 1 local epoch (the paper has 5) and 10
rounds; and the spoken digits of six speakers, with 20 clients, instead of Speech Commands. Its accuracies are far from
the paper's, and its verdicts apply to that setting: choosing examples should matter most on a short budget, and so
should pretraining. Its ablations have ten clients and P_ds = 10 % (the paper: 100 clients, 50 %). `full` has the
paper's own experiments, including CIFAR-100 and Speech Commands (through tensorflow-datasets), and is meant for an
accelerator. `smoke` is a WRN-10-1 on scikit-learn's digits, pretrained on digits too: it shows that everything runs,
and no claim is judged by it.

`small` also runs FedAvg, FedProx, RDS and EDS with the paper's five local epochs, by which learning efficiency is
judged, and both Dirichlet laws: each client draws its mix of classes (equal sizes; used everywhere else), or each class
draws its share for every client (sizes differ too; no client is skipped, and each needs only one example). Claims rest
on the law that a scale uses everywhere else.

`medium` takes hours on two cores: the library's backbone and CIFAR-10, E = 5, B = 32, 50 rounds. RDS and EDS with a
tenth run on **all 50,000 examples** with ten clients and with 100 (five seeds each); half or all of the examples, other
choices of a tenth, FedAvg-RDS, and FedAvg with a tenth of 100 clients have three or five seeds there. Methods that
train the whole model on all examples of ten clients (FedAvg with α = 0.1: three seeds; with 0.5, from scratch,
centralised, FedProx: one), FedAvg-RDS and FedProx-RDS (five), the studies, the ablations (three) and the comparison of
both laws use **10,000 examples**, the same for every seed and stratified by class, so no interval covers the draw of
these. RDS and EDS run there, too, but a comparison on 10,000 examples counts only where none on all of them was run,
and no claim is judged there that depends on choice by entropy instead of chance: where examples are scarce, training on
the hardest is known to be worse (Sorscher et al., NeurIPS 2022). The spoken digits have all 3000 recordings and 8
clients (three seeds), so that a client has 300. The ablations (Fig. 10) are on CIFAR-100 with 100 clients in the paper,
all of which take part; here they are on 10,000 examples of CIFAR-10 with ten clients. Where comparisons have different
numbers of seeds, those with at least three are judged.

Clients' models are compared by minibatch CKA (Nguyen, Raghu and Kornblith, 2021, which the paper cites) on all test
examples, in batches of 100.

We report the best accuracy over the rounds, as the paper does for its learning efficiency; its tables say "top-1". It
is a maximum over measurements on test examples, so it is optimistic, and more so for methods whose accuracy varies more
from round to round. Beside each such effect stands that of the last evaluation, with the verdict that it would give.

Simulated client seconds count every FLOP of all clients at one rate, including the choice of examples and the
backbone's forward pass for every example of every step. The simulator itself runs a frozen backbone once for all
examples; the numbers come out the same. These seconds follow from the settings: with E = 5, FedFT-EDS (10 %) spends 8.3
times fewer FLOPs than FedAvg and 1.2 times as many as FedAvg-RDS, so its learning efficiency, over theirs, is the ratio
of the accuracies times 8.3 and 0.83.

An accuracy advantage of at most 0.005 counts as negligible (of 0.001 where the paper says "slightly").
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
