"""LEFL: cohorts stratified over clusters of clients with similar soft labels; and its baselines."""

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
The paper compares LEFL with FedAvg, FedProx, SCAFFOLD and FedNova "with learning rate of 0.01 and weight decay rate of
0.99". In its code, LEFL's trainer has a hard-coded learning rate of **0.1**, multiplied by 0.99 after each of the ten
local epochs and reset in every round (there is no weight decay). FedAvg trains with the configured rate, 0.01,
multiplied by 0.99 after every epoch that a client has trained since the beginning of the run. The trainers of FedProx,
SCAFFOLD and FedNova were not released. So we run everything in three settings:

- **LEFL's rate**: all methods at 0.1, multiplied by 0.99 after each epoch and reset in every round.
- **the text's settings**: all methods at 0.01, multiplied by 0.99 after each epoch, with a decay that persists over
  rounds; FedProx with μ = 1, the default of the code's program, which does not use it.
- **as published**: LEFL as its code runs it, at LEFL's rate, with its code's quotas and direction of the divergence;
  the other methods with the text's settings (the same runs as above).

**Decay.** In FedAvg's code, each client has its own learning rate, which depends on how often the client was selected.
Here, all clients have the same rate in a round, which is the mean of theirs: if a client is selected with probability
m/N, the mean of 0.99^(epochs trained so far) after t rounds is (1 − m/N · (1 − 0.99^epochs))^t. With ten epochs, the
factor per round is 0.999044 with 10 of 1000 clients (0.62 after 500 rounds), 0.995219 with 10 of 200 (0.38 after 200),
0.990438 with 10 of 100 (0.56 after 60 rounds, 0.008 after 500), and 0.933 with 35 of 50 (0.001 after 100 rounds).

**Quotas.** LEFL has its text's quotas, "a proportional number of clients from each cluster": a cluster's share of the m
slots, rounded up or down at random, so that every client is selected equally often and a cohort has exactly m clients.
As published, it has its code's quotas, `max(1, round(rate · size))` for each cluster, which add up to more clients than
the other methods have. The labels of cohorts are also measured with at least one client from each cluster, and with
the code's direction of the divergence, beside uniform cohorts of the same size; those two claims are ours. On the
stand-ins for EMNIST, clusters are examined at LEFL's rate and with the text's settings.

**Pixels.** As in the code, those of EMNIST and its stand-ins range from 0 to 1. CIFAR's are standardised by the moments
of the training examples; the code uses those of ImageNet. On CIFAR, training images are shifted by up to four pixels
and mirrored at random, before round 0, too; the text does not say whether the paper's are.

**Labels of cohorts.** A cohort's labels are those of its clients' pooled examples, "the union of datasets" of the text,
in which larger clients weigh more.

At LEFL's rate, LEFL is also combined with FedProx, SCAFFOLD and FedNova, and FedProx also runs with μ = 0.1 and 1; the
comparison uses the μ, of these and 0.001, that is best in hindsight. FedProx has μ = 0.001 at LEFL's rate otherwise.
Conjectures 1 and 2 are tested by rank correlation over pairs of clients. The clusters of ResNet-18, the network of
Fig. 2, are examined at `full` (`cifar10_resnet18_lefl`).

Earlier results also had other server optimisers, FedProx with μ = 0.01, a constant rate of 0.01, standardised pixels,
and LEFL with at least one client from each cluster. No sentence of the paper is about these, so they are not run.

The verdict on LEFL's advantage as a sampling method rests on the two settings in which all rates are equal.

E = 10, B = 64, 500 rounds (the stand-ins: 200), aggregation weighted by size, β = 0.5 with at least 10 examples per
client and full clients skipped (the labeldir of NIID-Bench), ⌈log₂ N⌉ clusters as in the code (the text has "log(n)",
and five clusters of 20 clients), 1000 public examples, and 10 epochs in the pre-phase, whose weights are discarded (in
the text it is "sandwiched" between rounds, in the code it is not). The divergence of two clients compares their
predictions on the same examples, as in the text, with fixed batch statistics; the code shuffles the public examples for
each client and does not restore their order, so that it compares predictions on different examples, in training mode.
SCAFFOLD divides by N, as in its own paper (a fork that the code builds on divides by the cohort size). The weights of
the mean in the text's equation (1) do not sum to 1 over a cohort; ours do.

**Incomplete batches.** The code drops every incomplete batch, so that a client with fewer than 64 examples never trains
there. We keep them: at `medium`, 16 % of clients have fewer than 64.

**Stand-in for EMNIST.** EMNIST is not on the machine that made the committed results, so its two experiments run on
Fashion-MNIST (labeldir) and MNIST (label2: 2 of 10 labels, in place of 15 of 62), with the 784-128-10 network with
PyTorch's initialisation, and public examples from the other data set. Their accuracies are not EMNIST's. These data
sets have a twelfth of EMNIST's examples, so they are divided among 200 clients instead of 1000, ten per round, for 200
rounds instead of 500: a client has 300 examples, where one of EMNIST's would have some 700, and takes some 50 local
steps per round instead of about 100; it is drawn ten times in a run instead of five. LEFL's pre-phase, in which all
clients take part, sends a fifth of what it does with 1000 clients: as much as 30 rounds of FedAvg.

At scale `small`, the source's section V also runs with ResNet-20, as at `medium`: 24 clients with planted groups and
500 examples of CIFAR-10 on average, with public examples from Tiny-ImageNet. `medium` is CIFAR-10 with ResNet-20 on
10,000 training examples, 100 clients and 60 rounds: all methods at LEFL's rate, and FedAvg, SCAFFOLD and LEFL in the
other settings. Its claims are about the state after 60 rounds, and each, except the one that compares rates, is about
one of the settings. It also examines the clusters of 20 clients without planted groups. `full` has the paper's own
eight experiments, and is meant for an accelerator; CIFAR-10 and Tiny-ImageNet are JPEG-compressed copies where the data
pack of this project is used. Public examples of Tiny-ImageNet are read from `tiny_imagenet_32.npz` in the data folder.
`smoke` runs scikit-learn's digits, which are their own public examples; their pixels are standardised.

All scales except `smoke` have five seeds. If two runs have different numbers of seeds, they are compared on the seeds
that both have.

Models are compared on 100 test examples, by CKA and by distance in latent space (the paper: 1000). Accuracy is measured
in every round on the stand-ins and the digits; elsewhere in every second round and in each of the last 10, so there,
rounds to a target are known to within two rounds. How noisy training is, is measured by the standard deviation of the
last 10 accuracies, which includes any trend in these rounds. Targets were set before the runs: 0.7, 0.75 and 0.8 on
Fashion-MNIST, 0.8, 0.9 and 0.95 on MNIST, and 0.3, 0.4 and 0.5 on CIFAR-10 at `medium`; claims are judged by the middle
one.

An accuracy advantage of at most 0.005 counts as negligible.
"""

REGIME = FairRegime(
    examples_per_client=100,
    local_epochs=10,
    rounds=60,
    seeds=5,
    above_chance=0.3,
    reason="the source's ten local epochs; LEFL reaches Table I's target on EMNIST in round 29, but those on CIFAR in "
    "rounds 69 and 79, so that claims on CIFAR after 60 rounds say so; 100 examples are our choice, two batches "
    "an epoch for a client of average size; the source has 500 on CIFAR and some 700 on EMNIST",
)

PAPER = Paper(
    name="lefl",
    title="LEFL",
    reference='Waqwoya Abebe, Pablo Munoz and Ali Jannesari, "LEFL: Low Entropy Client Sampling in Federated '
    'Learning", 2023, https://arxiv.org/abs/2312.17430.',
    seeds={"smoke": 2, "small": 5, "medium": 5, "full": 5},
    settings=OPEN,
    regime=REGIME,
    cells=list_cells,
    results=list_all_results,
    claims=judge_claims,
    tables=make_tables,
    figures=make_figures,
    studies={"clusters": study_clusters, "ablation": study_ablation},
)
