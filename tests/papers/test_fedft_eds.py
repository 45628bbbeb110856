"""FedFT-EDS: what it runs, its studies by definition, its claims in planted worlds whose answers are known."""

import dataclasses
import json
from itertools import pairwise

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats
from scipy.ndimage import gaussian_filter

import fedjax_sel as fs
from fedjax_sel import History, config, papers, partition
from fedjax_sel.config.build import build_problem
from fedjax_sel.data.federated import Examples
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.metrics import difference
from fedjax_sel.metrics.cka import minibatch_cka
from fedjax_sel.models.wide_resnet import WideResNet
from fedjax_sel.papers.fedft_eds import REGIME
from fedjax_sel.papers.fedft_eds import studies as fedft_studies
from fedjax_sel.papers.fedft_eds.cells import list_cells
from fedjax_sel.papers.fedft_eds.comparisons import HALF_OF_THEM, judge_pairs, keep_seeded
from fedjax_sel.papers.fedft_eds.convergence_claims import find_best_within
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    ALPHAS,
    BACKBONE,
    BATCHES,
    CENTRAL,
    CIFAR10,
    CIFAR100,
    DIGITS,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    FROM_CIFAR100,
    LESS,
    LOSS,
    MARGIN,
    PARTS,
    PRETRAINING,
    RDS,
    RDS50,
    RHOS,
    SCRATCH,
    SOURCES,
    SPEECH,
    STRONG,
    TINY,
    WEAK,
    name_ablation,
    name_by_class,
    name_by_client,
    name_fedavg,
    name_few,
    name_many,
)
from fedjax_sel.papers.fedft_eds.numbers import find_published, list_all_results, measure
from fedjax_sel.papers.fedft_eds.scales import (
    BLUR,
    SHARPNESS,
    SHIPPED,
    SHIPPED_ACCURACY,
    choose_source,
    divide_by_class,
    divide_by_client,
    list_targets,
)
from fedjax_sel.papers.fedft_eds.studies import (
    LEVELS,
    SHOWN,
    TIMED,
    build_cell,
    compare_clients,
    find_cell,
    measure_label_entropy,
    measure_levels,
    replay_choices,
    split_batches,
    study_entropies,
)
from fedjax_sel.papers.fedft_eds.tables import tabulate_laws
from fedjax_sel.papers.judging import make_claim, need_rivals
from fedjax_sel.papers.measures import find_best, settle_history
from fedjax_sel.papers.paper import Cell, Evidence, NotRun, StoredCell, locate_cell
from fedjax_sel.papers.report import render_report
from fedjax_sel.papers.running import identify_runs
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.pytree import Pytree
from fedjax_sel.runs import pretrained
from fedjax_sel.runs.files import to_jsonable
from fedjax_sel.task.costs import count_numbers
from fedjax_sel.task.freezing import FrozenParams

R, T = 3, 8
YES, NO, OPEN = "reproduced", "not reproduced", "undecided"
JITTER = np.array([-1.0, 0.0, 1.0])
SCALES = ["smoke", "small", "full"]


@dataclasses.dataclass
class Method:
    """A method's runs: their best accuracy, what they cost."""

    accuracy: float = 0.6
    apart: float = 0.001  # how far seeds are from each other
    seconds: float = 40.0  # of all clients, at 1 GFLOP/s
    early: float = 0.0  # of the 0.2 that are missing in the first rounds
    of_selection: float = 0.0  # share of them

    def history(self, runs=R):
        accuracy = np.tile(self.accuracy + self.apart * np.resize(JITTER, runs)[:, None], (1, T))
        accuracy[:, : round(0.4 * T)] += self.early - 0.2
        accuracy[:, 0], accuracy[:, 1], accuracy[:, -1] = 0.1, np.nan, accuracy[:, -1] - 0.05
        a_round = np.full((runs, T), 1e9 * self.seconds / T)
        costs = {"client_flops": (1 - self.of_selection) * a_round, "selection_flops": self.of_selection * a_round}
        costs |= dict.fromkeys(("bytes_down", "bytes_up"), np.full((runs, T), 1e6))
        costs |= dict.fromkeys(("selection_bytes_down", "selection_bytes_up"), np.zeros((runs, T)))
        return History(tuple(range(runs)), {"accuracy": accuracy, **costs}, np.zeros((runs, T, 1), int), 10)


def studies(scale, *, scratch=0.6, begun=0.8, noise=0.001, correlation=0.999, overlap=0.95, seconds=1.0):
    """What the studies find, as JSON has it; seeds differ a little.

    Args:
      scale: of the reproduction.
      scratch, begun: CKA without and with pretraining.
      noise: how far the seeds of the model that began pretrained are from each other.
      correlation, overlap: of entropy at the smallest temperature and margin.
      seconds: of a round of FedFT-EDS, beside 4 of every other method.
    """
    rng, rows = np.random.default_rng(0), {}
    for alpha in (STRONG,) if scale == "smoke" else (STRONG, WEAK):
        for method, value, by in ((SCRATCH, scratch, 0.001), (FEDAVG, begun, noise)):
            mean = np.tile(value + by * JITTER[:, None], (1, len(LEVELS)))
            rows[f"{method}, α = {alpha:g}"] = {"heat": rng.random((len(LEVELS), 5, 5)), "mean": mean}
    found = {"1": (0.8, 0.3), "0.5": (0.95, 0.5), "0.1": (correlation, overlap)}
    there = {cell.method for cell in list_cells(scale)}
    planted = {
        "alike": {"levels": LEVELS, "cells": rows},
        "entropies": {
            "most": np.log(10),
            "rho": {
                rho: {
                    "histogram": rng.integers(0, 50, 40),
                    "correlation": one + 0.0001 * JITTER,
                    "overlap": two + 0.001 * JITTER,
                }
                for rho, (one, two) in found.items()
            },
        },
        "chosen": {
            "rounds": T,
            "methods": {
                method: {"times": np.full((R, T + 1), 1 / (T + 1)), "never": [0.2] * R, "labels": rng.random(T)}
                for method in (RDS, EDS)
            },
        },
        "time": {
            "rounds": 1,
            "seconds": {m: [seconds if m == EDS else 4.0] * 2 for m in TIMED if m in there},
        },
    }
    return json.loads(json.dumps(to_jsonable(planted)))


def world(changes=(), scale="small", own_seeds=False, **study):
    """Evidence in which all cells are alike but those of `changes`, by key, or by method.

    Args:
      changes: other methods.
      scale: of the reproduction.
      own_seeds: whether cells have as many seeds as they ask for, not three.
      study: for `studies`.
    """
    changes, histories = dict(changes), {}
    unknown = set(changes) - {cell.key for cell in list_cells(scale)} - {cell.method for cell in list_cells(scale)}
    assert not unknown
    for cell in list_cells(scale):
        method = changes.get(cell.key, changes.get(cell.method, Method()))
        histories[cell.key] = method.history(cell.config.get("seeds", R) if own_seeds else R)
    return Evidence(histories, studies(scale, **study))


def judged(changes=(), scale="small", **study):
    return {claim.id: claim for claim in papers.load("fedft_eds").claims(scale, world(changes, scale, **study))}


def verdicts(changes=(), scale="small", **study):
    return {name: claim.verdict for name, claim in judged(changes, scale, **study).items()}


EVERYWHERE = {
    "entropy-beats-chance",
    "entropy-converges-faster",
    "pretraining-raises-accuracy",
    "pretraining-raises-alikeness",
    "partial-training-beats-whole",
    "random-partial-training-beats-whole",
    "three-times-the-efficiency",
    "partial-training-converges-faster",
    "random-partial-training-converges-faster",
    "scratch-converges-slowest",
    "as-accurate-in-a-third-of-the-time",
    "hardened-entropy-is-the-margin",
    "scratch-is-the-lower-bound",
}
BEYOND_SMOKE = {
    "entropy-helps-most-early",
    "half-beats-all",
    "half-beats-a-tenth",
    "half-beats-the-baselines",
    "random-partial-training-beats-whole-on-a-tenth",
    "entropy-beats-chance-with-many-clients",
    "entropy-converges-faster-with-many-clients",
    "partial-training-alone-pays",
    "partial-training-beats-whole-on-a-tenth",
    "pretraining-raises-accuracy-on-speech",
    "entropy-beats-chance-on-speech",
    "entropy-beats-chance-whatever-is-trained",
    "entropy-helps-most-with-most-trained",
    "entropy-beats-chance-under-any-skew",
    "entropy-helps-most-under-skew",
    "examples-beat-batches",
    "pretraining-helps-most-under-skew",
    "alikeness-gains-most-under-skew",
    "beats-stragglers",
    "stragglers-widen-the-gap",
    "centralised-is-the-upper-bound",
    "closes-the-gap",
    "fedavg-rds-is-as-efficient",
    "entropy-costs-little-efficiency",
    "few-clients-are-most-efficient",
    "more-efficient-with-many-clients",
    "classifier-alone-is-best",
    "soft-is-worse-than-chance",
    "hard-is-better-than-chance",
    "sharp-is-better-than-soft",
    "margin-is-as-good",
}
AT_FULL = {"pretraining-on-cifar-100-raises-accuracy", "tiny-imagenet-is-the-better-source"}


@pytest.mark.parametrize("scale", SCALES)
def test_where_all_are_alike_nothing_is_reproduced_but_what_the_studies_say(scale):
    got = verdicts(scale=scale)
    asked = {"smoke": EVERYWHERE, "small": EVERYWHERE | BEYOND_SMOKE, "full": EVERYWHERE | BEYOND_SMOKE | AT_FULL}
    assert set(got) == asked[scale]
    said = {"pretraining-raises-alikeness", "hardened-entropy-is-the-margin", "margin-is-as-good"} & set(got)
    said |= {"fedavg-rds-is-as-efficient", "entropy-costs-little-efficiency"} & set(got)
    assert {name for name, verdict in got.items() if verdict == YES} == said
    nothing_to_close = {"closes-the-gap"} & set(got)
    assert {name for name, verdict in got.items() if verdict == OPEN} == nothing_to_close
    assert {name for name, verdict in got.items() if verdict == NO} == set(got) - said - nothing_to_close


GOOD, BETTER, BAD, NOISY = Method(0.7), Method(0.8), Method(0.5), Method(apart=0.05)
SOON = Method(early=0.1)  # ahead in the first rounds alone
AT = name_few(CIFAR10, STRONG)
CHANCE = (name_ablation("α =", "0.1"), "RDS")
RHO_01, RHO_2, RHO_10 = ((name_ablation("ρ =", rho), "EDS") for rho in ("0.1", "2", "10"))
CLASSIFIER = name_ablation("trained:", "classifier")
BY_ALPHA = [(name_ablation("α =", f"{alpha:g}"), "EDS") for alpha in ALPHAS]
BY_PART = [(name_ablation("trained:", part), "EDS") for part in PARTS]
SPOKEN, MANY = name_many(SPEECH["small"], STRONG), name_many(CIFAR10, STRONG)


@pytest.mark.parametrize(
    ("changes", "claim", "expected"),
    [
        ({EDS: GOOD, EDS50: GOOD}, "entropy-beats-chance", YES),
        ({EDS: GOOD}, "entropy-beats-chance", NO),
        ({EDS: GOOD, EDS50: GOOD, (SPOKEN, EDS50): Method()}, "entropy-beats-chance", YES),
        ({EDS: GOOD, EDS50: GOOD, (SPOKEN, EDS50): Method()}, "entropy-beats-chance-on-speech", NO),
        ({EDS: GOOD, EDS50: GOOD}, "entropy-beats-chance-on-speech", YES),
        ({EDS: GOOD, EDS50: GOOD, (AT, RDS): Method(0.7, 0.05)}, "entropy-beats-chance", OPEN),
        ({EDS: GOOD, EDS50: GOOD, RDS: GOOD, RDS50: GOOD}, "entropy-beats-chance", NO),
        ({EDS: SOON}, "entropy-converges-faster", YES),
        ({(MANY, EDS): SOON}, "entropy-converges-faster", NO),
        ({EDS: SOON, EDS50: SOON}, "entropy-beats-chance", NO),
        ({(MANY, EDS): SOON, (MANY, EDS50): SOON}, "entropy-helps-most-early", YES),
        ({EDS: SOON, EDS50: SOON, (MANY, EDS): Method()}, "entropy-helps-most-early", NO),
        ({EDS: GOOD}, "entropy-converges-faster", YES),
        ({EDS: GOOD, EDS50: GOOD}, "entropy-helps-most-early", NO),
        (
            {EDS: SOON, EDS50: SOON, RDS: GOOD, RDS50: GOOD},
            "entropy-helps-most-early",
            NO,
        ),  # a smaller deficit is no lead
        ({EDS: Method(0.7, 0.1, early=-0.1)}, "entropy-converges-faster", OPEN),
        (
            {EDS: Method(0.7, 0.1, early=-0.1), EDS50: GOOD},
            "entropy-helps-most-early",
            NO,
        ),  # surely less than at its best
        ({(MANY, EDS): GOOD, (MANY, EDS50): GOOD}, "entropy-beats-chance-with-many-clients", YES),
        ({(MANY, EDS): GOOD}, "entropy-beats-chance-with-many-clients", NO),
        ({EDS: GOOD, EDS50: GOOD, (MANY, EDS50): Method()}, "entropy-beats-chance-with-many-clients", NO),
        ({(MANY, EDS): NOISY, (MANY, EDS50): GOOD}, "entropy-beats-chance-with-many-clients", OPEN),
        ({(MANY, EDS): SOON, (MANY, EDS50): SOON}, "entropy-beats-chance-with-many-clients", NO),
        ({(MANY, EDS): SOON, (MANY, EDS50): SOON}, "entropy-converges-faster-with-many-clients", YES),
        ({EDS: SOON, EDS50: SOON, (MANY, EDS): Method()}, "entropy-converges-faster-with-many-clients", NO),
        ({RDS: GOOD}, "partial-training-alone-pays", YES),
        ({FEDAVG_RDS: GOOD}, "partial-training-alone-pays", NO),
        (dict.fromkeys(BY_ALPHA[1:3], GOOD), "entropy-helps-most-under-skew", YES),
        (dict.fromkeys(BY_ALPHA[1:3], GOOD), "entropy-beats-chance-under-any-skew", NO),
        (dict.fromkeys(BY_ALPHA, GOOD), "entropy-helps-most-under-skew", NO),
        (dict.fromkeys(BY_ALPHA[1:], GOOD), "entropy-beats-chance-under-any-skew", YES),
        ({EDS50: GOOD, RDS50: GOOD}, "half-beats-a-tenth", YES),
        ({EDS50: GOOD}, "half-beats-a-tenth", NO),
        (dict.fromkeys(BY_PART, GOOD), "entropy-beats-chance-whatever-is-trained", YES),
        (dict.fromkeys(BY_PART[:2], GOOD), "entropy-beats-chance-whatever-is-trained", NO),
        (dict.fromkeys(BY_PART[:2], GOOD), "entropy-helps-most-with-most-trained", YES),
        (dict.fromkeys(BY_PART, GOOD), "entropy-helps-most-with-most-trained", NO),
        ({BATCHES: BAD}, "examples-beat-batches", YES),
        ({BATCHES: GOOD}, "examples-beat-batches", NO),
        ({EDS50: GOOD}, "half-beats-all", YES),
        ({EDS50: GOOD, (MANY, ALL): BETTER}, "half-beats-all", NO),
        ({EDS50: GOOD, (AT, ALL): BETTER}, "half-beats-all", YES),  # the paper has halves with many clients alone
        ({EDS50: GOOD}, "half-beats-the-baselines", YES),
        ({EDS50: GOOD, (MANY, FEDAVG): BETTER}, "half-beats-the-baselines", NO),
        ({EDS50: GOOD, RDS50: GOOD, (AT, RDS): BETTER}, "half-beats-a-tenth", YES),
        ({RDS: GOOD}, "random-partial-training-beats-whole-on-a-tenth", YES),
        ({RDS: GOOD, FEDPROX_RDS: BETTER}, "random-partial-training-beats-whole-on-a-tenth", NO),
        ({EDS: GOOD, EDS50: GOOD, (AT, EDS50): BAD}, "entropy-beats-chance", YES),
        ({EDS: SOON}, "partial-training-converges-faster", YES),
        ({EDS: SOON, FEDPROX_RDS: SOON}, "partial-training-converges-faster", NO),
        ({EDS: SOON}, "random-partial-training-converges-faster", NO),
        ({RDS: SOON}, "random-partial-training-converges-faster", YES),
        ({SCRATCH: Method(early=-0.05)}, "scratch-converges-slowest", YES),
        ({SCRATCH: Method(early=-0.05), (AT, FEDAVG): Method(early=-0.1)}, "scratch-converges-slowest", NO),
        ({EDS: Method(seconds=13)}, "as-accurate-in-a-third-of-the-time", YES),
        ({EDS: Method(0.59, seconds=13)}, "as-accurate-in-a-third-of-the-time", NO),
        ({EDS: Method(seconds=13), FEDPROX: Method(seconds=12)}, "as-accurate-in-a-third-of-the-time", NO),
        ({EDS: Method(seconds=26)}, "as-accurate-in-a-third-of-the-time", YES),  # it is there after half of its rounds
        ({EDS: Method(seconds=36)}, "as-accurate-in-a-third-of-the-time", NO),
        ({EDS50: NOISY}, "half-beats-all", OPEN),
        ({RDS50: GOOD}, "half-beats-all", NO),
        ({SCRATCH: BAD}, "pretraining-raises-accuracy", YES),
        ({SCRATCH: BAD, (SPOKEN, SCRATCH): GOOD}, "pretraining-raises-accuracy", YES),
        ({SCRATCH: BAD, (SPOKEN, SCRATCH): GOOD}, "pretraining-raises-accuracy-on-speech", NO),
        ({SCRATCH: BAD}, "pretraining-raises-accuracy-on-speech", YES),
        ({SCRATCH: NOISY}, "pretraining-raises-accuracy", OPEN),
        ({(AT, SCRATCH): BAD}, "pretraining-helps-most-under-skew", YES),
        ({SCRATCH: BAD}, "pretraining-helps-most-under-skew", NO),
        ({(name_few(CIFAR10, WEAK), SCRATCH): BAD}, "pretraining-helps-most-under-skew", NO),
        ({(AT, SCRATCH): NOISY}, "pretraining-helps-most-under-skew", OPEN),
        ({EDS: GOOD}, "partial-training-beats-whole", YES),
        ({EDS: GOOD, FEDPROX: BETTER}, "partial-training-beats-whole", NO),
        ({EDS: GOOD, FEDPROX_RDS: BETTER}, "partial-training-beats-whole", YES),
        ({EDS: GOOD}, "partial-training-beats-whole-on-a-tenth", YES),
        ({EDS: GOOD, FEDPROX_RDS: BETTER}, "partial-training-beats-whole-on-a-tenth", NO),
        ({EDS: GOOD, (AT, FEDAVG_RDS): BETTER}, "partial-training-beats-whole-on-a-tenth", NO),
        ({EDS: GOOD}, "random-partial-training-beats-whole", NO),
        ({RDS: GOOD}, "random-partial-training-beats-whole", YES),
        ({EDS: GOOD, (name_many(CIFAR10, STRONG), FEDAVG): BETTER}, "partial-training-beats-whole", YES),
        ({EDS: NOISY}, "partial-training-beats-whole", OPEN),
        ({EDS: GOOD}, "beats-stragglers", YES),
        ({EDS: GOOD, name_fedavg("20 %"): BETTER}, "beats-stragglers", NO),
        ({(name_many(CIFAR10, STRONG), name_fedavg("10 %")): NOISY, EDS: Method(0.601)}, "beats-stragglers", OPEN),
        ({name_fedavg("20 %"): BAD, name_fedavg("10 %"): BAD}, "stragglers-widen-the-gap", YES),
        ({name_fedavg("10 %"): BAD}, "stragglers-widen-the-gap", NO),
        ({name_fedavg("20 %"): BAD, name_fedavg("10 %"): NOISY}, "stragglers-widen-the-gap", OPEN),
        ({SCRATCH: BAD}, "scratch-is-the-lower-bound", YES),
        ({SCRATCH: BAD, (AT, FEDPROX_RDS): Method(0.4)}, "scratch-is-the-lower-bound", NO),
        ({SCRATCH: BAD, (name_many(CIFAR10, STRONG), FEDAVG): Method(0.4)}, "scratch-is-the-lower-bound", YES),
        ({CENTRAL: GOOD}, "centralised-is-the-upper-bound", YES),
        ({CENTRAL: GOOD, (AT, RDS): BETTER}, "centralised-is-the-upper-bound", NO),
        ({CENTRAL: NOISY}, "centralised-is-the-upper-bound", OPEN),
        ({RDS: Method(0.7), CENTRAL: Method(0.9)}, "closes-the-gap", YES),
        ({RDS: Method(0.68), CENTRAL: Method(0.9)}, "closes-the-gap", NO),
        ({RDS: Method(0.68), CENTRAL: Method(0.9), SCRATCH: Method(0.5)}, "closes-the-gap", YES),
        ({RDS: Method(0.7), CENTRAL: Method(0.9), (AT, RDS): Method(0.68)}, "closes-the-gap", NO),
        ({RDS: Method(0.7, 0.05), CENTRAL: Method(0.9)}, "closes-the-gap", OPEN),
        ({RDS: Method(0.7), CENTRAL: Method(0.5)}, "closes-the-gap", OPEN),
        ({FEDAVG_RDS: Method(seconds=20)}, "fedavg-rds-is-as-efficient", NO),
        ({RDS50: Method(seconds=20)}, "entropy-costs-little-efficiency", NO),
        ({RDS50: Method(seconds=36)}, "entropy-costs-little-efficiency", YES),
        ({name_fedavg("10 %"): Method(seconds=20)}, "few-clients-are-most-efficient", YES),
        ({name_fedavg("10 %"): Method(seconds=50)}, "few-clients-are-most-efficient", NO),
        ({name_fedavg("10 %"): Method(seconds=20), RDS: Method(seconds=10)}, "few-clients-are-most-efficient", NO),
        ({name_fedavg("10 %"): Method(seconds=20), ALL: Method(seconds=10)}, "few-clients-are-most-efficient", NO),
        ({EDS: Method(seconds=20)}, "more-efficient-with-many-clients", YES),
        ({EDS: Method(seconds=20), ALL: Method(seconds=10)}, "more-efficient-with-many-clients", NO),
        ({EDS: Method(seconds=20), (AT, FEDAVG): Method(seconds=10)}, "more-efficient-with-many-clients", YES),
        ({(CLASSIFIER, "EDS"): GOOD, (CLASSIFIER, "RDS"): GOOD}, "classifier-alone-is-best", YES),
        ({(CLASSIFIER, "EDS"): GOOD}, "classifier-alone-is-best", NO),
        ({(CLASSIFIER, "EDS"): NOISY, (CLASSIFIER, "RDS"): GOOD}, "classifier-alone-is-best", OPEN),
        ({RHO_2: BAD, RHO_10: BAD}, "soft-is-worse-than-chance", YES),
        ({RHO_2: BAD}, "soft-is-worse-than-chance", NO),
        ({RHO_2: BAD, RHO_10: NOISY}, "soft-is-worse-than-chance", OPEN),
        ({CHANCE: GOOD}, "soft-is-worse-than-chance", YES),
        ({CHANCE: BAD}, "hard-is-better-than-chance", YES),
        ({CHANCE: BAD, RHO_01: Method(0.4)}, "hard-is-better-than-chance", NO),
        ({CHANCE: BAD, RHO_01: Method(0.5, 0.05)}, "hard-is-better-than-chance", OPEN),
        ({CHANCE: BAD, (name_ablation("ρ =", "1"), "EDS"): Method(0.3)}, "hard-is-better-than-chance", YES),
        ({RHO_2: BAD, RHO_10: BAD}, "sharp-is-better-than-soft", YES),
        ({RHO_01: BAD}, "sharp-is-better-than-soft", NO),
        ({RHO_2: NOISY}, "sharp-is-better-than-soft", OPEN),
        ({MARGIN: Method(0.61)}, "margin-is-as-good", YES),
        ({MARGIN: BAD}, "margin-is-as-good", NO),
        ({MARGIN: GOOD}, "margin-is-as-good", NO),
        ({MARGIN: NOISY}, "margin-is-as-good", OPEN),
    ],
)
def test_claims_on_accuracy_are_judged_by_what_was_planted(changes, claim, expected):
    assert verdicts(changes)[claim] == expected


def test_stragglers_are_asked_about_under_strong_skew_alone_where_there_are_both():
    """The paper's own table has FedAvg with fewer clients ahead at α = 0.5."""
    drop = [name_fedavg(share) for share in ("20 %", "10 %")]
    strong, weak = (
        {(name_many(data, alpha), method): BAD for data in (CIFAR10, CIFAR100) for method in drop}
        for alpha in (STRONG, WEAK)
    )
    claim = "stragglers-widen-the-gap"
    assert verdicts(strong, scale="full")[claim] == YES
    assert verdicts(weak, scale="full")[claim] == NO


def test_an_advantage_that_nobody_would_notice_is_none():
    assert verdicts({EDS50: Method(apart=0.0015)})["half-beats-all"] == NO
    assert verdicts({EDS50: Method(apart=0.004)})["half-beats-all"] == OPEN
    assert verdicts({EDS50: Method(0.602)})["half-beats-all"] == YES, "always there, if small"


@pytest.mark.parametrize("method", [FEDAVG, FEDPROX])
def test_efficiency_is_three_times_where_it_is_planted(method):
    claim = "three-times-the-efficiency"
    assert verdicts({EDS: Method(seconds=12)})[claim] == YES
    assert verdicts({EDS: Method(seconds=14)})[claim] == NO
    assert verdicts({EDS: Method(0.7, seconds=15)})[claim] == YES, "0.7 / 15 is 3.1 times 0.6 / 40"
    assert verdicts({EDS: Method(seconds=12), method: Method(seconds=30)})[claim] == NO
    assert verdicts({EDS: Method(seconds=40 / 3, apart=0.05)})[claim] == OPEN
    assert verdicts({EDS: Method(seconds=12), (name_many(CIFAR10, STRONG), FEDAVG): Method(seconds=1)})[claim] == YES
    measured = judged({(AT, EDS): Method(0.9)}, seconds=2.0)[claim].statistic[
        "ratio by measured seconds of the simulator"
    ]
    assert measured == {FEDAVG: pytest.approx(3.0), FEDPROX: pytest.approx(3.0)}, "0.9 / 0.6 times 4 / 2"


@pytest.mark.parametrize(
    ("study", "claim", "expected"),
    [
        ({"begun": 0.61}, "pretraining-raises-alikeness", YES),
        ({"begun": 0.6}, "pretraining-raises-alikeness", NO),
        ({"begun": 0.5}, "pretraining-raises-alikeness", NO),
        ({"begun": 0.61, "noise": 0.1}, "pretraining-raises-alikeness", OPEN),
        ({"correlation": 0.991, "overlap": 0.91}, "hardened-entropy-is-the-margin", YES),
        ({"correlation": 0.98}, "hardened-entropy-is-the-margin", NO),
        ({"overlap": 0.89}, "hardened-entropy-is-the-margin", NO),
        ({"overlap": 0.9}, "hardened-entropy-is-the-margin", OPEN),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_studies_are_judged_by_what_was_planted(scale, study, claim, expected):
    assert verdicts(scale=scale, **study)[claim] == expected


@pytest.mark.parametrize(
    ("accuracies", "raises", "better"),
    [
        ({SCRATCH: BAD, FEDAVG: GOOD}, YES, YES),
        ({SCRATCH: BAD, FROM_CIFAR100: GOOD}, YES, NO),
        ({SCRATCH: GOOD, FEDAVG: GOOD}, NO, YES),
        ({FROM_CIFAR100: NOISY}, OPEN, OPEN),
    ],
    ids=str,
)
def test_the_sources_of_pretraining_are_compared_at_full(accuracies, raises, better):
    got = judged(accuracies, "full")
    assert got["pretraining-on-cifar-100-raises-accuracy"].verdict == raises
    claim = got["tiny-imagenet-is-the-better-source"]
    assert claim.verdict == better
    assert claim.rests_on == (name_few(CIFAR10, STRONG), name_few(CIFAR10, WEAK)), "not CIFAR-100 on itself"


def test_one_level_that_is_less_alike_refutes():
    evidence = world()
    row = evidence.studies["alike"]["cells"][f"{FEDAVG}, α = 0.5"]
    row["mean"] = [[*values[:-1], 0.3] for values in row["mean"]]
    claims = {claim.id: claim for claim in papers.load("fedft_eds").claims("small", evidence)}
    claim = claims["pretraining-raises-alikeness"]
    assert claim.verdict == NO
    (found,) = claim.statistic.values()
    assert {name for name, d in found.items() if d["mean"] < 0} == {"α = 0.5, up"}
    assert len(found) == 6


@pytest.mark.parametrize(("alpha", "expected"), [(0.1, YES), (0.5, NO)])
def test_the_gap_in_alikeness_is_compared_between_the_skews(alpha, expected):
    evidence = world()
    row = evidence.studies["alike"]["cells"][f"{FEDAVG}, α = {alpha}"]
    row["mean"] = [[value + 0.1 for value in values] for values in row["mean"]]
    claims = {claim.id: claim for claim in papers.load("fedft_eds").claims("small", evidence)}
    claim = claims["alikeness-gains-most-under-skew"]
    assert claim.verdict == expected
    assert claim.effect["pooled"]["mean"] == pytest.approx(0.1 if alpha == 0.1 else -0.1)


def test_the_pooled_gain_of_entropy_is_its_mean_over_experiments():
    claim = judged({EDS: GOOD}, "small")["entropy-beats-chance"]
    assert len(claim.statistic["EDS - RDS, best accuracy"]) == 6, (
        "a tenth with few clients, twice, with five epochs, twice, and with many clients; a half with many clients"
    )
    assert claim.effect["over"] == HALF_OF_THEM
    assert claim.effect["pooled"]["mean"] == pytest.approx(0.0)


def test_measures_of_a_run_by_hand():
    nan = np.nan
    metrics = {
        "accuracy": np.array([[0.2, 0.5, nan], [0.1, nan, 0.4]]),
        "client_flops": np.array([[1e9, 2e9, 3e9], [4e9, 4e9, 4e9]]),
        "selection_flops": np.array([[1e9, 1e9, 2e9], [0.0, 0.0, 4e9]]),
        "bytes_down": np.array([[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        "bytes_up": np.ones((2, 3)),
        "selection_bytes_down": np.zeros((2, 3)),
        "selection_bytes_up": np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]),
    }
    value = measure(History((0, 1), metrics, np.zeros((2, 3, 1), int), 1))
    np.testing.assert_allclose(value["best_accuracy"], [0.5, 0.4])
    np.testing.assert_allclose(value["accuracy_last"], [0.5, 0.4])
    np.testing.assert_allclose(value["client_seconds"], [10, 16])
    np.testing.assert_allclose(value["efficiency"], [5.0, 2.5], err_msg="points of accuracy a second")
    np.testing.assert_allclose(value["bytes"], [12, 6])
    np.testing.assert_allclose(value["selection_share"], [0.4, 0.25])


# Copied from the source line by line, in per cent.
TABLE_1 = {"na": (67.46, 79.53), "CIFAR-100": (70.46, 80.70), "Small ImageNet": (75.18, 81.73)}
TABLE_2 = """
FedAvg w/o pt 67.46 79.53 44.66 51.44
FedAvg 75.18 81.73 51.18 55.83
FedAvg-RDS 75.05 81.37 50.22 53.27
FedProx 78.48 80.96 50.80 55.43
FedProx-RDS 76.41 80.28 50.18 53.44
FedFT-RDS 81.11 85.51 53.66 56.57
FedFT-EDS 83.82 86.24 54.04 57.03
Centralised 87.47 87.47 58.79 58.79
"""
TABLE_3 = """
FedAvg w/o pret. 55.79 72.00 25.97 30.66
FedAvg 100% 77.54 80.00 46.60 49.78
FedAvg 20% 77.03 80.77 45.94 49.80
FedAvg 10% 75.20 80.49 44.17 49.20
FedFT-RDS 10% 78.20 80.25 47.64 50.23
FedFT-EDS 10% 78.92 81.74 48.22 50.74
FedFT-ALL 78.96 81.26 50.39 53.23
FedFT-RDS 50% 79.02 81.57 50.51 53.33
FedFT-EDS 50% 79.80 82.46 51.54 54.22
"""
TABLE_4 = {SCRATCH: 41.33, FEDAVG: 55.40, RDS: 54.96, EDS: 55.60, RDS50: 55.56, EDS50: 59.32, CENTRAL: 91.22}
ORDER_2 = (SCRATCH, FEDAVG, FEDAVG_RDS, FEDPROX, FEDPROX_RDS, RDS, EDS, CENTRAL)
ORDER_3 = (SCRATCH, FEDAVG, name_fedavg("20 %"), name_fedavg("10 %"), RDS, EDS, ALL, RDS50, EDS50)


def in_the_source():
    """Every number of Tables I to IV, by key."""
    columns = [(CIFAR10, STRONG), (CIFAR10, WEAK), (CIFAR100, STRONG), (CIFAR100, WEAK)]
    out = {}
    for naming, text, order in ((name_few, TABLE_2, ORDER_2), (name_many, TABLE_3, ORDER_3)):
        for method, line in zip(order, text.strip().splitlines(), strict=True):
            for column, value in zip(columns, line.split()[-4:], strict=True):
                out[naming(*column), method] = float(value) / 100
    for source, method in zip(TABLE_1, (SCRATCH, FROM_CIFAR100, FEDAVG), strict=True):
        for alpha, value in zip((STRONG, WEAK), TABLE_1[source], strict=True):
            assert out.setdefault((name_few(CIFAR10, alpha), method), value / 100) == value / 100
    return out | {(name_many(SPEECH["full"], STRONG), method): value / 100 for method, value in TABLE_4.items()}


def test_published_numbers_are_those_of_the_source():
    theirs = in_the_source()
    assert len(theirs) == 32 + 36 + 2 + 7
    for key, value in theirs.items():
        assert find_published(*key) == pytest.approx(value, abs=1e-12), key
    mine = {cell.key for cell in list_cells("full") if find_published(*cell.key) is not None}
    assert mine == set(theirs), "all of it is run at `full`, and nothing else stands beside a number"


@pytest.mark.parametrize("scale", SCALES)
def test_results_hold_every_measure_and_the_published_accuracies(scale):
    evidence = world({EDS: GOOD}, scale)
    rows = list_all_results(scale, evidence)
    keys = [(row.experiment, row.method, row.metric, row.round) for row in rows]
    assert len(set(keys)) == len(keys)
    assert {row.metric for row in rows if row.published is not None} <= {"best_accuracy"}
    for row in rows:
        assert len(row.per_seed) == R
        if row.metric == "best_accuracy":
            assert row.published == find_published(row.experiment, row.method)
            np.testing.assert_allclose(row.per_seed, evidence.histories[row.experiment, row.method]["accuracy"][:, 3])
    assert {row.metric for row in rows} == {*measure(GOOD.history()), "cka", "correlation", "overlap"}
    cka = [row for row in rows if row.metric == "cka"]
    assert len(cka) == len(LEVELS) * len(evidence.studies["alike"]["cells"])


def resolved(scale):
    return {cell.key: config.resolve(cell.config) for cell in list_cells(scale)}


@pytest.mark.parametrize("scale", SCALES)
def test_cells_are_configurations_with_a_folder_each(scale):
    every = list_cells(scale)
    whole = resolved(scale)
    assert len(whole) == len(every), "no cell stands for two"
    assert len({cell.slug for cell in every}) == len(every)
    for key, one in whole.items():
        assert config.resolve(one) == one, key
        assert one["data"]["name"] != "", key
        assert one["cohort_size"] <= one["partition"]["clients"], key


@pytest.mark.parametrize("scale", SCALES)
def test_a_cell_begins_with_one_that_stands_before_it(scale):
    before, begun = {}, set()
    for cell in list_cells(scale):
        if cell.begins is None:
            assert cell.config["model"].get("pretrained") is None
            assert cell.method == SCRATCH or cell.experiment == PRETRAINING
        else:
            assert cell.begins in before
            other = config.resolve(before[cell.begins].config)["model"]
            mine = config.resolve(cell.config)["model"]
            assert {k: v for k, v in mine.items() if k not in ("frozen", "pretrained")} == {
                k: v for k, v in other.items() if k not in ("frozen", "pretrained")
            }
            assert mine["pretrained"] == "the cell " + ", ".join(cell.begins)
            begun.add(cell.begins)
        before[cell.key] = cell
    assert begun == {cell.key for cell in list_cells(scale) if cell.experiment == PRETRAINING}
    elsewhere = {
        cell.method for cell in list_cells(scale) if cell.begins not in (None, (PRETRAINING, choose_source(scale)))
    }
    assert elsewhere == ({FROM_CIFAR100} if scale == "full" else set())


PARTLY = {"model.frozen"}
CHANGES = {
    SCRATCH: {"model.pretrained"},
    FEDAVG_RDS: {"data_selection"},
    FEDPROX: {"correction"},
    FEDPROX_RDS: {"correction", "data_selection"},
    ALL: PARTLY,
    FROM_CIFAR100: {"model.pretrained"},
    CENTRAL: {"partition", "cohort_size"},
    name_fedavg("20 %"): {"cohort_size"},
    name_fedavg("10 %"): {"cohort_size"},
    **dict.fromkeys((RDS, EDS, RDS50, EDS50, MARGIN, LOSS, BATCHES), PARTLY | {"data_selection"}),
}
"""What a method changes of FedAvg that begins pretrained."""

SAMPLES = {
    **{method: {"name": "random_subset", "fraction": 0.1} for method in (FEDAVG_RDS, FEDPROX_RDS, RDS)},
    RDS50: {"name": "random_subset", "fraction": 0.5},
    EDS: {"name": "entropy", "fraction": 0.1, "temperature": 0.1},
    EDS50: {"name": "entropy", "fraction": 0.5, "temperature": 0.1},
    MARGIN: {"name": "margin", "fraction": 0.1},
    LOSS: {"name": "high_loss", "fraction": 0.1},
}


def differing(one, other):
    """Keys in which configurations differ: of a model by parameter, of all else by component."""
    keys = other.differences(one)
    return {key if key.startswith("model.") else key.split(".")[0] for key in keys}


@pytest.mark.parametrize("scale", SCALES)
def test_methods_of_an_experiment_differ_only_in_what_they_are(scale):
    whole = resolved(scale)
    for (experiment, method), one in whole.items():
        if experiment == PRETRAINING or experiment.startswith("ablation"):
            continue
        fedavg = whole[experiment, FEDAVG]
        assert differing(fedavg, one) == CHANGES.get(method, set()), (experiment, method)
        assert one["client_selection"] == {"name": "uniform"}
        assert one["aggregation"] == {"name": "mean", "weighting": "size"}
        if method in SAMPLES:
            assert one["data_selection"] == SAMPLES[method]
        if "model.frozen" in CHANGES.get(method, set()):
            assert tuple(one["model"]["frozen"]) == BACKBONE
        if "correction" in CHANGES.get(method, set()):
            assert one["correction"] == {"name": "proximal", "mu": 0.01}
        if method == CENTRAL:
            assert (one["partition"]["clients"], one["cohort_size"]) == (1, 1)
        elif "cohort_size" not in CHANGES.get(method, set()):
            assert one["cohort_size"] == one["partition"]["clients"], "all take part"
    for name in list_targets(scale) if scale != "smoke" else []:
        clients = whole[name_many(name, STRONG), FEDAVG]["cohort_size"]
        stragglers = [whole[name_many(name, STRONG), name_fedavg(share)]["cohort_size"] for share in ("20 %", "10 %")]
        assert stragglers == [clients // 5, clients // 10]
        assert whole[name_few(name, STRONG), CENTRAL] == whole[name_few(name, WEAK), CENTRAL]


@pytest.mark.parametrize("scale", ["small", "full"])
def test_an_ablation_changes_what_it_is_called_after(scale):
    whole = resolved(scale)
    base = whole[name_ablation("trained:", "moderate"), "EDS"]
    fraction = {"small": 0.1, "full": 0.5}[scale]
    assert base["data_selection"] == {"name": "entropy", "fraction": fraction, "temperature": 0.1}
    assert tuple(base["model"]["frozen"]) == BACKBONE
    assert base["partition"]["alpha"] == STRONG
    for part, frozen in PARTS.items():
        one = whole[name_ablation("trained:", part), "EDS"]
        assert tuple(one["model"]["frozen"]) == frozen
        assert differing(base, one) <= {"model.frozen"}
    for alpha in ALPHAS:
        one = whole[name_ablation("α =", f"{alpha:g}"), "EDS"]
        assert one["partition"]["alpha"] == alpha
        assert set(one.differences(base)) <= {"partition.alpha"}
    for rho in RHOS:
        one = whole[name_ablation("ρ =", f"{rho:g}"), "EDS"]
        assert one["data_selection"]["temperature"] == rho
        assert set(one.differences(base)) <= {"data_selection.temperature"}
    there = [key for key in whole if key[0].startswith("ablation")]
    assert len(there) == 2 * len(PARTS) + 2 * len(ALPHAS) + len(RHOS)
    for experiment, way in there:
        if way == "RDS":
            entropy, random = whole[experiment, "EDS"], whole[experiment, "RDS"]
            assert differing(entropy, random) == {"data_selection"}
            assert random["data_selection"] == {"name": "random_subset", "fraction": fraction}
    frozen = [set(frozen) for frozen in PARTS.values()]
    assert all(one < other for one, other in pairwise(frozen)), "less and less is trained"


def test_full_is_what_the_source_says():
    whole = resolved("full")
    for (experiment, method), one in whole.items():
        if experiment == PRETRAINING:
            continue
        trainer = one["local_training"]
        assert (trainer["learning_rate"], trainer["momentum"], trainer["epochs"]) == (0.1, 0.5, 5)
        assert (one["model"]["depth"], one["model"]["width"]) == (16, 1)
        assert (one["data"]["num_examples"], one["data"]["num_test_examples"]) == (None, None)
        clients = 1 if method == CENTRAL else 10 if "few" in experiment else 100
        assert one["partition"]["clients"] == clients, (experiment, method)
    assert whole[name_many(SPEECH["full"], STRONG), EDS]["data"]["name"] == "tfds:speech_commands"
    assert whole[name_ablation("ρ =", "2"), "EDS"]["data"]["name"] == "tfds:cifar100"
    assert whole[PRETRAINING, TINY]["data"]["name"].startswith("npz:tiny_imagenet")


def test_so_many_parameters_are_trained_as_the_report_says():
    model = WideResNet(classes=10, depth=16)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))["params"]
    trained, _ = FrozenParams(names=BACKBONE).split({"params": params})
    said = f"{count_numbers(trained):,} of {count_numbers(params):,} parameters"
    assert said == "132,298 of 175,066 parameters"
    assert said in " ".join(papers.load("fedft_eds").settings.split())


@pytest.mark.parametrize("scale", SCALES)
def test_the_report_has_all_tables_and_figures(scale):
    evidence = world({EDS: Method(0.7, of_selection=0.25, seconds=20)}, scale, seconds=1.0)
    paper = papers.load("fedft_eds")
    tables, figures = paper.tables(scale, evidence), paper.figures(scale, evidence)
    text = render_report(paper, scale, range(R), paper.claims(scale, evidence), tables, figures, {}, "command")
    assert len(tables) == {"smoke": 4, "small": 6, "full": 5}[scale]
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
    at = name_few(list_targets(scale)[0], STRONG)
    theirs = "—" if scale == "smoke" else "0.8382"
    assert f"| {at} | {EDS} | 0.700 ± 0.001 | 0.650 ± 0.001 | {theirs} |" in text
    assert f"| {at} | {EDS} | 20 | 3.5 | 0.25 | 16 | 25.0 % |" in text
    assert f"| {at} | {FEDAVG} | 40 | 1.5 | 1.00 | 16 | 0.0 % |" in text
    assert "| ρ = 0.1 | 0.9990 ± 0.0001 | 0.950 ± 0.001 |" in text
    assert f"| {FEDAVG}, α = 0.1 | 0.800 ± 0.001 | 0.800 ± 0.001 | 0.800 ± 0.001 |" in text
    if scale != "smoke":
        assert "| ablation, ρ = 0.01 | 0.600 ± 0.001 | — |" in text
    assert len({figure.name for figure in figures}) == len(figures) == (7 if scale == "smoke" else 8)
    for figure in figures:
        drawn = figure.draw()
        assert drawn.axes
        plt.close(drawn)
    json.dumps([claim.statistic for claim in paper.claims(scale, evidence)], allow_nan=False)


def test_label_entropy_by_hand():
    y = np.array([0, 0, 1, 2, 2])
    index = np.array([[0, 1, 2], [3, 4, 0], [2, 0, 1]])
    keep = np.array([[True, False, True], [True, True, False], [False, False, False]])
    assert measure_label_entropy(index, keep, y, 3) == pytest.approx(np.log(2) / 2), (
        "one of two labels, one of one, one idle"
    )
    keep[2] = True
    one_and_two = -(np.log(1 / 3) + 2 * np.log(2 / 3)) / 3
    assert measure_label_entropy(index, keep, y, 3) == pytest.approx((np.log(2) + one_and_two) / 3)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The smallest cell of the smallest scale, with fewer rows."""
    few_rows = {"data": {"name": SOURCES[DIGITS], "num_examples": 60, "num_test_examples": 30}, "cohort_size": 3}
    few_rows |= {"partition": {"name": "client_dirichlet", "clients": 3, "alpha": 0.5}}
    return build_cell(
        find_cell("smoke", name_few(DIGITS, STRONG), SCRATCH), [2], "smoke", tmp_path_factory.mktemp("no"), **few_rows
    )


def features(task, variables, x):
    """What the model makes of rows up to each level, from its stages instead of what it notes."""
    applied = jax.jit(task.model.apply, static_argnames="end")
    stages = [applied(variables, task.normalize(x), end=end) for end in (2, 3, 4)]
    return [np.asarray(made, np.float64).reshape(len(x), -1) for made in stages]


def test_levels_are_the_outputs_of_the_groups(images):
    (data,) = images.data.draws(images.seeds)
    task = images.experiment.task
    variables = task.init(jax.random.key(5), data.x)
    got = measure_levels(task, variables, jnp.asarray(data.test_x))
    assert got.shape == (3, 30, 30)
    for products, made in zip(got, features(task, variables, data.test_x), strict=True):
        wanted = made @ made.T
        np.testing.assert_allclose(products, wanted, atol=1e-4 * np.abs(wanted).max())


def test_models_are_compared_after_each_client_trained_as_in_the_first_round(images):
    (data,) = images.data.draws(images.seeds)
    got = compare_clients(images, data, images.seeds[0])
    assert got.shape == (3, 3, 3)
    np.testing.assert_allclose(np.diagonal(got, axis1=1, axis2=2), 1, atol=1e-6)
    np.testing.assert_allclose(got, got.transpose(0, 2, 1), atol=1e-12)
    assert (got < 1 - 1e-4)[:, ~np.eye(3, dtype=bool)].all()

    task, trainer, key = images.experiment.task, images.experiment.local_training, jax.random.key(images.seeds[0])
    here = jax.tree.map(jnp.asarray, data)
    variables = task.init(key_for(key, Purpose.MODEL), here.x)

    @jax.jit
    def trained(client):
        index, valid = here.examples_of(client)
        own, examples = key_for(key, Purpose.TRAIN, 0, client), Examples(here, index, valid)
        plan = trainer.plan(valid.sum(), here.longest, jnp.int32(0), jnp.int32(images.experiment.rounds))
        delta = trainer.train(own, task, variables, examples, plan, num_steps=plan.steps).delta
        return jax.tree.map(jnp.add, variables, delta)

    models = [features(task, trained(client), data.test_x) for client in range(3)]
    for level, value in enumerate(got):
        wanted = [[minibatch_cka([(one[level], other[level])]) for other in models] for one in models]
        np.testing.assert_allclose(value, wanted, atol=5e-4)


def test_a_study_begins_with_the_model_of_the_cell_that_its_cell_names(images, tmp_path):
    cell, of_rows = (
        find_cell("smoke", name_few(DIGITS, STRONG), EDS),
        {"data": {"name": SOURCES[DIGITS], "num_examples": 60, "num_test_examples": 30}},
    )
    with pytest.raises(FileNotFoundError, match=r"^model\.pretrained: "):
        build_cell(cell, [2], "smoke", tmp_path, **of_rows)
    (data,) = images.data.draws(images.seeds)
    variables = jax.device_get(images.experiment.task.init(jax.random.key(7), data.x))
    place = locate_cell(tmp_path, find_cell("smoke", PRETRAINING, DIGITS))
    place.mkdir(parents=True)
    pretrained.save(place / pretrained.FILE, variables)
    run = build_cell(cell, [2], "smoke", tmp_path, **of_rows)
    assert run.seeds == (2,)
    (mine,) = run.data.draws(run.seeds)
    task = run.experiment.task
    begun = task.init(jax.random.key(0), mine.x)
    assert set(begun["params"]) == {"group3", "norm", "head"}
    wanted = {kind: {name: whole[name] for name in begun[kind]} for kind, whole in variables.items()}
    jax.tree.map(np.testing.assert_array_equal, begun, wanted)
    backbone = images.experiment.task.model.apply(variables, images.experiment.task.normalize(data.x), end=3)
    np.testing.assert_allclose(
        mine.x, backbone, rtol=1e-4, atol=1e-4, err_msg="rows are what the pretrained backbone makes"
    )


FLAT = {
    "data": {"name": "digits", "num_examples": 90, "num_test_examples": 30},
    "partition": {"name": "client_dirichlet", "clients": 4, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [8]},
    "local_training": {"name": "sgd", "learning_rate": 0.1, "momentum": 0.5, "batch_size": 8, "epochs": 2},
    "aggregation": {"name": "mean", "weighting": "size"},
    "cohort_size": 4,
    "rounds": 3,
    "layout": {"clients": 1, "seeds": "scan"},
}


def flat(samples, **changes):
    """A run of a model that compiles at once."""
    return config.build(config.resolve({**merge_settings(FLAT, {"data_selection": samples}), "seeds": [3], **changes}))


NOTED, ENTROPIES = [], []  # rows of each client in each round, and the entropy of their labels


class Watched(SGD, Pytree):
    """Notes on which rows a client trains."""

    def train(self, key, task, params, examples, plan, **rest):
        def note(index, keep, y):
            NOTED.append(index[keep])
            counts = np.unique(y[index[keep]], return_counts=True)[1]
            ENTROPIES.append(stats.entropy(counts))

        jax.debug.callback(note, examples.index, examples.mask, examples.data.y)
        return SGD.train(self, key, task, params, examples, plan, **rest)


@pytest.mark.parametrize(
    "samples",
    [
        {"name": "random_subset", "fraction": 0.3},
        {"name": "random_subset", "fraction": 1.0},
        {"name": "entropy", "fraction": 0.3, "temperature": 0.1},
    ],
    ids=["random", "all", "entropy"],
)
def test_the_rows_said_to_be_chosen_are_those_that_the_run_trains_on(samples):
    run = flat(samples)
    (data,) = run.data.draws(run.seeds)
    times, mixes = replay_choices(run, data, run.seeds[0])
    NOTED.clear()
    ENTROPIES.clear()
    fields = {f.name: getattr(run.experiment.local_training, f.name) for f in dataclasses.fields(SGD)}
    watched = dataclasses.replace(run.experiment, local_training=Watched(**fields))
    history = dataclasses.replace(run, experiment=watched).simulate()
    jax.effects_barrier()
    assert len(NOTED) == 3 * 4
    size, owned = np.asarray(data.num_examples), np.sort(np.asarray(data.order))
    assert times.shape == owned.shape == (size.sum(),), "equal sizes leave some rows with nobody"
    np.testing.assert_array_equal(times, np.bincount(np.concatenate(NOTED), minlength=90)[owned])
    assert mixes.shape == (3,)
    assert mixes.mean() == pytest.approx(np.mean(ENTROPIES))

    task = run.experiment.task
    epochs, each = 2, (1 + task.backward(data.x)) * task.flops(data.x)
    np.testing.assert_allclose(history["client_flops"], times.sum() / 3 * epochs * each, rtol=1e-6)
    assert times.sum() == 3 * np.maximum(1, np.round(samples["fraction"] * size)).sum()
    if samples["fraction"] == 1.0:
        np.testing.assert_array_equal(times, 3)
    else:
        assert times.max() <= 3
        assert (times == 0).any()


@pytest.fixture
def on_flat_rows(monkeypatch):
    """Studies of a model that compiles at once, with the samples of the cell that was asked for."""

    def of(cell, seeds, scale, out, **changes):
        own = merge_settings(FLAT, {"data_selection": cell.config.get("data_selection", "everything")})
        return config.build(config.resolve({**own, "seeds": seeds, **changes}))

    monkeypatch.setattr(fedft_studies, "build_cell", of)


def keys_of(found, planted):
    """That a study has the form of what was planted: the same keys, arrays of the same number of axes."""
    if isinstance(planted, dict):
        assert found.keys() == planted.keys()
        for key, value in planted.items():
            keys_of(found[key], value)
    else:
        assert np.ndim(found) == np.ndim(planted)


def as_kept(found):
    return json.loads(json.dumps(to_jsonable(found), allow_nan=False))


def test_entropies_of_all_rows_are_those_of_the_final_model(on_flat_rows, tmp_path):
    found = study_entropies("smoke", [0, 4], tmp_path)
    keys_of(as_kept(found), studies("smoke")["entropies"])
    assert found["most"] == pytest.approx(np.log(10))
    assert tuple(found["rho"]) == tuple(f"{rho:g}" for rho in SHOWN)
    run = flat("everything", seeds=[4])
    (data,) = run.data.draws([4])
    first = jax.tree.map(lambda leaf: leaf[0], run.simulate().variables)
    logits = run.experiment.task.logits(first, data.x[data.order])
    logits = np.asarray(logits, np.float64)
    two = np.sort(logits, axis=1)[:, -2:]
    margin = two[:, 1] - two[:, 0]
    for rho in SHOWN:
        row = found["rho"][f"{rho:g}"]
        entropy = stats.entropy(np.exp((logits - logits.max(1, keepdims=True)) / rho), axis=1)
        assert row["correlation"][1] == pytest.approx(stats.spearmanr(entropy, -margin)[0], abs=1e-3)
        tenth = len(set(np.argsort(-entropy)[:8]) & set(np.argsort(margin)[:8])) / 8
        assert row["overlap"][1] == pytest.approx(tenth, abs=0.13), "one of eight may be a tie"
        assert row["histogram"].sum() == len(data.order) < 90, "rows that nobody owns are not looked at"
    assert found["rho"]["0.1"]["correlation"][0] > found["rho"]["1"]["correlation"][0]


def test_how_often_rows_are_chosen_is_counted_for_both_methods(on_flat_rows, tmp_path):
    found = fedft_studies.study_choices("smoke", [0, 4], tmp_path)
    keys_of(as_kept(found), studies("smoke")["chosen"])
    assert found["rounds"] == 3
    for row in found["methods"].values():
        np.testing.assert_allclose(row["times"].sum(1), 1)
        np.testing.assert_allclose(row["times"][:, 0], row["never"])
        assert row["labels"].shape == (3,)
    share = [(row["times"] * np.arange(4)).sum(1).mean() / 3 for row in found["methods"].values()]
    assert share[0] == pytest.approx(share[1], abs=0.05), "both choose a tenth"


def test_seconds_are_measured_for_every_method_there_is(on_flat_rows, tmp_path):
    found = fedft_studies.study_time("smoke", [0, 4], tmp_path)
    keys_of(as_kept(found), studies("smoke")["time"])
    assert set(found["seconds"]) == {FEDAVG, ALL, EDS50, RDS, EDS}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in found["seconds"].values())


def test_alikeness_is_the_mean_over_pairs_of_clients(on_flat_rows, monkeypatch, tmp_path):
    heat = np.array([[[1, a, b], [a, 1, c], [b, c, 1]] for a, b, c in [(0.1, 0.2, 0.3), (0.5, 0.5, 0.8), (0, 0, 0.9)]])
    monkeypatch.setattr(fedft_studies, "compare_clients", lambda run, data, seed: heat * (1 + seed))
    for scale in ("smoke", "small"):
        found = fedft_studies.study_alikeness(scale, [0, 1], tmp_path)
        keys_of(as_kept(found), studies(scale)["alike"])
        for row in found["cells"].values():
            np.testing.assert_allclose(row["mean"], [[0.2, 0.6, 0.3], [0.4, 1.2, 0.6]])
            np.testing.assert_array_equal(row["heat"], heat)


def test_a_cell_is_found_by_its_key():
    cell = find_cell("small", name_few(CIFAR10, WEAK), EDS)
    assert isinstance(cell, Cell)
    assert cell.key == (name_few(CIFAR10, WEAK), EDS)
    assert cell.begins == (PRETRAINING, TINY)


def test_whole_batches_of_all_test_examples_are_compared():
    x = np.arange(460).reshape(230, 2)
    assert split_batches(x).shape == (2, 100, 2)
    np.testing.assert_array_equal(split_batches(x)[1], x[100:200])
    assert split_batches(x[:30]).shape == (1, 30, 2)


def test_medium_has_the_seeds_that_its_report_says_and_begins_with_the_librarys_model():
    cells = list_cells("medium")
    assert len({cell.slug for cell in cells}) == len(cells) == len({cell.key for cell in cells})
    seeds = {cell.key: cell.config["seeds"] for cell in cells}
    for alpha in (STRONG, WEAK):
        for method in (EDS, RDS):
            assert seeds[name_few(CIFAR10, alpha), method] == 5
        for method in (EDS50, RDS50, ALL, FEDAVG_RDS, MARGIN, LOSS, BATCHES):
            assert seeds[name_few(CIFAR10, alpha), method] == 3
        for method in (EDS, RDS):
            assert seeds[name_many(CIFAR10, alpha), method] == 5
        assert seeds[name_many(CIFAR10, alpha), name_fedavg("10 %")] == 3
        for method in (SCRATCH, CENTRAL):
            assert seeds[name_few(LESS, alpha), method] == 1
        assert seeds[name_few(LESS, alpha), FEDAVG] == (3 if alpha == STRONG else 1)
        for method in (EDS, RDS, FEDAVG_RDS, FEDPROX_RDS):
            assert seeds[name_few(LESS, alpha), method] == 5
        for method in (MARGIN, BATCHES):
            assert seeds[name_few(LESS, alpha), method] == 3
        assert seeds[name_few(LESS, alpha), FEDPROX] == 1
    assert [cell.experiment for cell in cells[:4]] == [
        name_few(CIFAR10, alpha) for alpha in (STRONG, WEAK) for _ in "12"
    ]
    runs = dict(zip(seeds, identify_runs(cells, [config.resolve(cell.config) for cell in cells]), strict=True))
    same = [(name_ablation("α =", "0.1"), "EDS"), (name_ablation("ρ =", "0.1"), "EDS")]
    assert len({runs[key] for key in [*same, (name_ablation("trained:", "moderate"), "EDS")]}) == 1, "run once for all"
    assert {cell.begins for cell in cells} == {None}
    for cell in cells:
        one = config.resolve(cell.config)
        begins = None if cell.method == SCRATCH else SHIPPED
        assert (one["model"]["pretrained"], cell.pretrained_accuracy) == (begins, begins and SHIPPED_ACCURACY)
        assert (one["rounds"], one["local_training"]["epochs"], one["local_training"]["batch_size"]) == (50, 5, 32)
        whole = cell.experiment.startswith("CIFAR-10, ")
        assert one["data"].get("num_examples") == (None if whole or "spoken" in cell.experiment else 10_000), cell.key
        if cell.method != CENTRAL:
            law = one["partition"]
            by_client = cell.experiment.endswith(", drawn by client")
            assert law["name"] == ("client_dirichlet" if by_client else "dirichlet"), cell.key
            assert by_client or (law["balance"], law["min_examples"]) == (True, 10)


def test_the_backbone_of_full_is_pretrained_on_nine_tenths_of_tiny_imagenet():
    first = config.resolve(list_cells("full")[0].config)
    assert (first["data"]["name"], first["data"].get("num_examples")) == (SOURCES[TINY], None)
    assert (first["data"]["test_from"], first["data"]["test"]) == ("training", 0.1)
    assert (first["rounds"], first["local_training"]["augment"]["name"]) == (30, "crop_flip")


def test_the_librarys_backbone_is_as_often_right_on_images_as_sharp_as_those_it_was_trained_on():
    """The blur is chosen by horizontal differences alone; it gives vertical ones as well."""
    try:
        data = fs.load("npz:tiny_imagenet_32.npz")
    except FileNotFoundError as error:
        pytest.skip(f"needs the data: {error}")
    blurred = gaussian_filter(data.test_x.astype(np.float32), sigma=(0, BLUR, BLUR, 0)).round().astype(np.uint8)

    def measure_sharpness(images, axis):
        return np.abs(np.diff(images.astype(np.int16), axis=axis)).mean()

    assert abs(measure_sharpness(data.x[::10], 2) - SHARPNESS) < 0.001
    for axis in (1, 2):
        assert abs(measure_sharpness(blurred, axis) - measure_sharpness(data.x[::10], axis)) < 0.05
    given = {"data": "iris", "model": {"name": "wide_resnet", "depth": 16, "pretrained": SHIPPED}}
    task = build_problem(config.resolve(given), source=data).task
    predict = jax.jit(lambda x: task.logits(task.init(jax.random.key(0), x[:1]), x).argmax(-1))
    right = [np.asarray(predict(blurred[i : i + 100])) == data.test_y[i : i + 100] for i in range(0, 10_000, 100)]
    assert abs(np.mean(right) - SHIPPED_ACCURACY) < 0.001


def test_comparisons_with_fewer_than_three_seeds_are_left_out_where_others_have_as_many():
    few, many = (difference(np.arange(n) / 10, np.zeros(n)) for n in (2, 5))
    assert set(keep_seeded({"a": few, "b": many})) == {"b"}
    assert set(keep_seeded({"a": few})) == {"a"}
    assert keep_seeded({}) == {}


def test_medium_is_reported_and_its_small_comparisons_are_not_judged():
    evidence = world(scale="medium")
    paper = papers.load("fedft_eds")
    assert paper.results("medium", evidence)
    assert {"entropy-beats-chance", "margin-is-as-good"} <= {c.id for c in paper.claims("medium", evidence)}
    tables = {table.title for table in paper.tables("medium", evidence)}
    assert any(title.startswith("The law by which examples are divided") for title in tables)
    for figure in paper.figures("medium", evidence):
        plt.close(figure.draw())


@pytest.mark.parametrize(
    ("scale", "data", "other", "methods"),
    [("small", CIFAR10, name_by_class, (SCRATCH, FEDAVG, RDS, EDS)), ("medium", LESS, name_by_client, (RDS, EDS))],
)
def test_the_law_that_fits_is_the_one_whose_fall_is_the_published_one(scale, data, other, methods):
    falls = {name_few(data, STRONG): 0.4, name_few(data, WEAK): 0.6}
    falls |= {other(data, STRONG): 0.4, other(data, WEAK): 0.44}
    changes = {(name, method): Method(value) for name, value in falls.items() for method in methods}
    (table,) = tabulate_laws(scale, world(changes, scale).histories)
    closer = "class draws its clients" if scale == "small" else "client draws its classes"
    assert table.note.endswith(f"if each {closer}.")
    assert len(table.rows) == 2 * len(methods)


@pytest.mark.parametrize(("scale", "other"), [("small", name_by_class), ("medium", name_by_client)])
def test_claims_rest_on_one_dirichlet_law(scale, other):
    data = {"small": CIFAR10, "medium": LESS}[scale]
    changes = {(other(data, alpha), EDS): BAD for alpha in (STRONG, WEAK)}
    assert verdicts({EDS: GOOD, EDS50: GOOD, **changes}, scale)["entropy-beats-chance"] == YES
    changes = {(name_few(CIFAR10, WEAK), EDS): BAD}
    assert verdicts({EDS: GOOD, EDS50: GOOD, **changes}, scale)["entropy-beats-chance"] != YES


def test_comparisons_on_few_examples_count_only_where_there_are_none_on_all():
    changes = {EDS: GOOD, EDS50: GOOD, (name_few(LESS, STRONG), EDS): BAD}
    got = judged(changes, "medium")
    assert got["entropy-beats-chance"].verdict == YES
    assert not any(name.startswith(LESS) for name in got["entropy-beats-chance"].rests_on)
    assert got["partial-training-beats-whole"].verdict == NO
    assert set(got["partial-training-beats-whole"].rests_on) == {name_few(LESS, alpha) for alpha in (STRONG, WEAK)}


def test_ablations_on_few_examples_do_not_judge_what_is_chosen():
    claims = judged({}, "medium")
    ablated = {name for name, claim in claims.items() if "Fig. 10" in claim.source or "IV-H" in claim.source}
    lacking = {name for name, claim in claims.items() if claim.lacks}
    assert len(ablated) == 8
    assert ablated <= lacking
    with_whole = {"three-times-the-efficiency", "as-accurate-in-a-third-of-the-time", "partial-training-beats-whole"}
    on_a_tenth = {"partial-training-beats-whole-on-a-tenth", "random-partial-training-beats-whole-on-a-tenth"}
    on_a_tenth |= {"partial-training-converges-faster"}
    bounds = {"scratch-is-the-lower-bound", "centralised-is-the-upper-bound", "scratch-converges-slowest"}
    by_chance = {"random-partial-training-beats-whole", "random-partial-training-converges-faster", "closes-the-gap"}
    pretrained = {"pretraining-raises-accuracy", "pretraining-helps-most-under-skew"}
    assert lacking - ablated == with_whole | on_a_tenth | bounds | by_chance | pretrained
    assert not any(claim.lacks for claim in judged({}, "full").values())


@pytest.mark.parametrize(("verdict", "run", "lacks"), [(YES, "ab", ""), (YES, "a", "also about b"), (NO, "a", "")])
def test_a_claim_about_rivals_is_not_reproduced_before_all_were_run(verdict, run, lacks):
    claim = need_rivals(make_claim("c", "It is better.", "Fig. 1", verdict, {}), "ab", run)
    assert (lacks in claim.lacks) == bool(claim.lacks or not lacks)
    assert bool(claim.lacks) == bool(lacks)


def test_runs_that_leave_time_can_support_that_a_third_suffices_but_not_refute_it():
    name = "as-accurate-in-a-third-of-the-time"
    for method, early in (
        (Method(0.5, seconds=13), True),
        (Method(0.5, seconds=36), False),
        (Method(seconds=13), False),
    ):
        claim = judged({EDS: method})[name]
        assert claim.lacks.startswith("runs of FedFT-EDS end before") == early, method
        assert (claim.verdict == YES) == (method == Method(seconds=13))


def test_the_best_accuracy_within_a_time_is_read_from_the_rounds_or_from_a_whole_run_that_is_short_enough():
    history = Method(seconds=30).history()
    np.testing.assert_allclose(find_best_within(history, np.array([30.0, 16.0, 0.1])), [0.599, 0.6, 0.0])
    np.testing.assert_allclose(find_best_within(history, np.array([12.5])), [0.399])
    stored = {"best_accuracy": np.array([0.5, 0.6]), "client_seconds": np.array([30.0, 30.0])}
    whole = StoredCell((0, 1), {}, np.zeros((2, 0, 0), int), 0, stored=stored, stored_rounds=T)
    np.testing.assert_array_equal(find_best_within(whole, np.array([30.0, 31.0, 1.0])), [0.5, 0.6])
    with pytest.raises(NotRun, match="rounds of a run"):
        find_best_within(whole, np.array([30.0, 29.0]))


def test_a_seed_that_diverged_counts_within_a_time_as_in_the_whole_run():
    """Both sides of the claim on time give such a seed what it has at its end, whenever it diverged."""
    history = Method(seconds=30).history()
    alive = np.ones_like(history["accuracy"])
    alive[1, -2:] = 0
    history = dataclasses.replace(history, metrics={**history.metrics, "alive": alive}, about={"classes": 10})
    history = settle_history(history)
    assert history.diverged[1]
    found = find_best_within(history, np.array([16.0, 16.0, 16.0]))
    np.testing.assert_allclose(found[1], find_best(history)[1])
    assert found[1] < found[0]


def test_medium_is_judged_with_the_seeds_that_its_cells_have():
    """Seeds are paired, rivals with one seed are left out, and no claim names a rival that it leaves out."""
    evidence = world({EDS: GOOD, FEDPROX: BETTER}, "medium", own_seeds=True)
    claims = {claim.id: claim for claim in papers.load("fedft_eds").claims("medium", evidence)}
    assert set(claims) == (EVERYWHERE | BEYOND_SMOKE) - {"half-beats-the-baselines", "stragglers-widen-the-gap"}, (
        "its FedAvg has a tenth of the clients"
    )
    few = {name for name, claim in claims.items() if claim.effect.get("pooled", {}).get("seeds", 3) < REGIME.seeds}
    assert few == {
        *("scratch-converges-slowest", "scratch-is-the-lower-bound", "centralised-is-the-upper-bound"),
        *("pretraining-raises-accuracy", "pretraining-helps-most-under-skew"),
    }
    assert all(claims[name].lacks for name in few), "they are not judged, as examples are scarce"
    for name in ("partial-training-beats-whole", "three-times-the-efficiency"):
        assert FEDAVG in claims[name].text
        assert FEDPROX not in claims[name].text
    assert claims["partial-training-beats-whole"].verdict == YES
    assert claims["entropy-beats-chance"].effect["pooled"]["seeds"] == 3
    assert "with a tenth of the clients" in claims["beats-stragglers"].text


LAWS = {"dirichlet": partition.Dirichlet, "client_dirichlet": partition.ClientDirichlet}


def test_the_laws_differ_by_a_factor_of_ten_at_the_same_alpha():
    """With ten clients and ten classes, a client's own draw at α = 1 is as skewed as each class's draw at 0.1."""

    def count_classes(settings):
        made = LAWS[settings.pop("name")](**settings)
        y = np.repeat(np.arange(10), 1000)
        many = []
        for seed in range(20):
            client = made.assign(y, np.random.default_rng(seed))
            share = np.array([np.bincount(y[client == i], minlength=10) / (client == i).sum() for i in range(10)])
            many.append(np.exp(stats.entropy(share, axis=1)).mean())
        return np.mean(many)

    by_class, by_client = count_classes(divide_by_class(10, 0.1)), count_classes(divide_by_client(10, 0.1))
    assert (round(by_class, 1), round(by_client, 1)) == (2.4, 1.3), "as the report says"
    assert abs(count_classes(divide_by_client(10, 1.0)) - by_class) < 0.3


def test_a_comparison_with_some_of_its_rivals_can_refute_but_not_reproduce():
    for sign, verdict in ((1, YES), (-1, NO)):
        found = {"a": {"x": difference(sign * np.array([0.1, 0.11, 0.12, 0.1, 0.11]), np.zeros(5))}}
        some, every = (
            judge_pairs("c", "{}", "Fig. 1", "l", of, lambda metric, found=found: found)[0] for of in ("ab", "a")
        )
        assert (some.verdict, every.verdict) == (verdict, verdict)
        assert bool(some.lacks) == (verdict == YES)
        assert not every.lacks


@pytest.mark.parametrize(
    ("claim", "changes", "missing"),
    [
        ("entropy-beats-chance", {EDS: GOOD}, (EDS50, RDS50)),
        ("entropy-beats-chance-with-many-clients", {EDS: GOOD}, (EDS50, RDS50)),
        ("entropy-converges-faster-with-many-clients", {EDS: SOON}, (EDS50, RDS50)),
        ("entropy-helps-most-early", {EDS: SOON}, (EDS50, RDS50)),
        ("half-beats-a-tenth", {EDS50: GOOD}, (RDS50,)),
        ("more-efficient-with-many-clients", {EDS: Method(seconds=20)}, (ALL,)),
        ("few-clients-are-most-efficient", {name_fedavg("10 %"): Method(seconds=20)}, (ALL,)),
        ("random-partial-training-beats-whole-on-a-tenth", {RDS: GOOD}, (FEDPROX_RDS,)),
        ("three-times-the-efficiency", {EDS: Method(seconds=12)}, (FEDPROX,)),
    ],
)
def test_no_claim_is_reproduced_while_one_of_its_rivals_was_not_run(claim, changes, missing):
    evidence = world(changes)
    some = {at: one for at, one in evidence.histories.items() if at[0] == SPOKEN or at[1] not in missing}
    claims = papers.load("fedft_eds").claims("small", dataclasses.replace(evidence, histories=some))
    found = next(one for one in claims if one.id == claim)
    assert found.verdict == YES
    assert found.lacks.startswith("the sentence is also about")


def test_what_the_hardened_entropy_ranks_by_is_asked_of_each_measure_alone():
    """A correlation far above its bound does not make up for an overlap at its own."""
    assert verdicts(correlation=1.0, overlap=0.9)["hardened-entropy-is-the-margin"] == OPEN
    assert judged(correlation=1.0, overlap=0.89)["hardened-entropy-is-the-margin"].effect["over"].startswith("overlap")


def test_measured_times_stand_beside_the_experiment_that_was_timed():
    evidence = world({}, "medium")
    table = next(t for t in papers.load("fedft_eds").tables("medium", evidence) if t.title.startswith("Cost"))
    measured = {row[0] for row in table.rows if row[4] != "—"}
    assert measured == {name_few(LESS, STRONG)}
