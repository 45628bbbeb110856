"""LEFL: cohorts stratified over clusters of clients with like soft labels; and its baselines."""

from fedjax_sel.papers.lefl.cells import list_cells
from fedjax_sel.papers.lefl.claims import judge_claims
from fedjax_sel.papers.lefl.figures import make_figures
from fedjax_sel.papers.lefl.numbers import list_all_results
from fedjax_sel.papers.lefl.studies import study_ablation, study_clusters
from fedjax_sel.papers.lefl.tables import make_tables
from fedjax_sel.papers.paper import Paper
from fedjax_sel.papers.regime import FairRegime

__all__ = ["PAPER"]

OPEN = """
The source compares LEFL with FedAvg, FedProx, SCAFFOLD and FedNova "with learning rate of 0.01 and weight decay rate of
0.99". In its code LEFL's trainer has learning rate **0.1** written in, times 0.99 after each of the ten local epochs
and from anew in every round (there is no weight decay), while FedAvg trains with the rate it is given, 0.01 in its
configuration, times 0.99 after every epoch that a client has trained since the beginning of the run. Trainers of
FedProx, SCAFFOLD and FedNova were not released. Its quotas, `max(1, round(rate · size))` of each cluster, come to more
clients a round than the others have. So we run everything three times:

- **as published**: LEFL at 0.1 with its code's allocation and direction of the divergence, the others at 0.01, FedProx
  with μ = 1, the default of the code's program, which does not use it;
- **LEFL's rate**: all methods at 0.1 times 0.99 an epoch, LEFL with exactly m clients (largest remainder);
- **the baselines' rate**: all methods at 0.01, LEFL with exactly m clients.

At 0.01 the rate is constant here. A client that is selected five times, as one of 1000 is, would end with 0.6 of it in
the code of FedAvg. With one client of each of ten clusters, whatever its size, LEFL at 0.01 has not its text's quotas,
which were run at 0.1 alone.

At LEFL's rate it is also run with its text's quotas (*proportional*: every client equally often, where "at least one"
of ten clusters for ten slots is one of each, whatever its size), and under FedProx, SCAFFOLD and FedNova; FedProx with
μ = 0.01, 0.1 and 1 too, the best of which in hindsight is compared. Cohorts' labels are measured with both quotas and
both directions of the divergence, beside uniform cohorts of the same size. Conjectures 1 and 2 are tested by rank
correlation over pairs of clients. ResNet-18, the network of Fig. 2, is examined at `full` (`cifar10_resnet18_lefl`).

The verdict on a sampling method's advantage rests on the latter two.

E = 10, B = 64, 500 rounds, weights by size, β = 0.5 with at least 10 examples a client and full clients passed over
(the labeldir of NIID-Bench), ⌈log₂ N⌉ clusters, 1000 public examples, 10 epochs in the pre-phase, whose weights are
thrown away (the text has it "sandwiched" between rounds, the code has not). The divergence of two clients compares them
on the same examples, as the text has it, with batch statistics fixed; the code shuffles the public examples for each
client and does not put them in order again, so that it compares different ones, in training mode. FedProx with μ =
0.001 where not said otherwise. SCAFFOLD divides by N as its own source does (a fork that the code builds on divides by
the cohort). The mean of the text's equation (1) does not sum to 1 over a cohort; ours does.

**Stand-in, said plainly**: EMNIST is not on the machine that made the committed results, so its two experiments are run
on Fashion-MNIST (labeldir) and MNIST (label2: 2 of 10 labels, as 15 of 62), each with 1000 clients, ten a round, the
784-128-10 network beginning as PyTorch's does, and the other dataset's examples in public. Their accuracies are not
EMNIST's. A client has 60 examples, where one of EMNIST's would have some 700: 10 to 14 local steps a round for about
100. So FedProx has little to pull and FedNova little to normalise here, and a client's batch is kept where it has fewer
than 64 examples, which the code drops. Pixels are standardised; the code has them from 0 to 1, with which a step of the
first layer is five to nine times shorter: 0.01 here is nearer to its 0.1 than the numbers say. At scale `small`
CIFAR-10 with ResNet-20 is 500 training examples on 20 clients and 6 rounds of 2 epochs, public examples from
Tiny-ImageNet: it shows that everything runs and what clusters look like there, and judges nothing. `medium` is CIFAR-10
with ResNet-20 on 10,000 training examples, 100 clients, 60 rounds, two seeds. `full` holds the source's own eight
experiments for an accelerator; CIFAR-10 and Tiny-ImageNet are JPEG-compressed copies where the data pack of this
project is used. Public examples of Tiny-ImageNet are read from `tiny_imagenet_32.npz` in the folder of the data.
`smoke` runs scikit-learn's digits, which are their own public examples.

Models are compared by CKA on 100 test examples (the source: 1000). Accuracy is measured every second round and in each
of the last 10; rounds to a target are exact to that. Targets were set before the runs: 0.7, 0.75 and 0.8 on
Fashion-MNIST, 0.8, 0.9 and 0.95 on MNIST; claims are judged by the middle one.

An advantage of at most 0.005 of accuracy is negligible.
"""

REGIME = FairRegime(
    examples_per_client=50,
    local_epochs=10,
    rounds=60,
    seeds=5,
    above_chance=0.3,
    reason="the source's ten local epochs; LEFL reaches the targets of Table I in rounds 29 to 79",
)

PAPER = Paper(
    name="lefl",
    title="LEFL",
    reference='Waqwoya Abebe, Pablo Munoz and Ali Jannesari, "LEFL: Low Entropy Client Sampling in Federated '
    'Learning", 2023, https://arxiv.org/abs/2312.17430.',
    seeds={"smoke": 2, "small": 5, "medium": 2, "full": 5},
    settings=OPEN,
    regime=REGIME,
    cells=list_cells,
    results=list_all_results,
    claims=judge_claims,
    tables=make_tables,
    figures=make_figures,
    studies={"clusters": study_clusters, "ablation": study_ablation},
)
