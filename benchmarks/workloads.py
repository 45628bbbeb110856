"""The six workloads behind every speed claim, a run with a million clients, and those behind other statements."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedjax_sel as fs
from benchmarks.measure import measured
from benchmarks.timing import fifth
from fedjax_sel import config, papers
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data_selection.entropy import Entropy
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.devices.laws import LogNormal
from fedjax_sel.engine import data_selection
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models import _conv
from fedjax_sel.models.cnn import CNN
from fedjax_sel.models.conv_dropout import ConvDropout
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.resnet import ResNet

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much of a workload is run.

    Attributes:
      quick: whether to run just enough to see that it works.
      accelerator: whether to run whole workloads, as an accelerator can.
    """

    quick: bool = False
    accelerator: bool = False

    def rounds(self, cpu: int, accelerator: int, quick: int = 4) -> int:
        """Returns the number of rounds of a run."""
        return quick if self.quick else accelerator if self.accelerator else cpu


def rows(name: str, shape: tuple[int, ...], count: int, scale: Scale) -> fs.Dataset:
    """Returns a dataset from tensorflow-datasets, or random rows of its shape, fewer, if the run is quick.

    Raises:
      SystemExit: it is missing.
    """
    if not scale.quick:
        try:
            return fs.load(f"tfds:{name}")
        except (FileNotFoundError, ValueError) as error:
            raise SystemExit(f"{error}; --quick runs on random rows, and measures nothing") from error
    rng = np.random.default_rng(0)
    count = count // 20
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    return fs.dataset(f"noise like {name}", x, rng.integers(0, 10, count), test=0.1, classes=10)


def flute_lr(scale: Scale) -> tuple[fs.Experiment, fs.Federation]:
    """FLUTE's benchmark: MNIST, logistic regression, 1000 clients, 10 per round, batches of 10."""
    data = rows("mnist", (28, 28, 1), 60_000, scale)
    rounds = scale.rounds(100, 100)
    task = fs.Task.on(LogisticRegression(10), data)
    experiment = fs.Experiment(
        task, local_training=SGD(0.03, batch_size=10), cohort_size=10, rounds=rounds, evaluate_every=rounds
    )
    return experiment, fs.Federation(data, fs.partition.Iid(clients=1000))


def gpfl_mlp(scale: Scale) -> tuple[fs.Experiment, fs.Federation]:
    """GPFL's benchmark: Fashion-MNIST, a perceptron with dropout, 100 clients of two shards, 5 per round."""
    data = rows("fashion_mnist", (28, 28, 1), 60_000, scale)
    rounds = scale.rounds(60, 500)
    task = fs.Task.on(MLP(10, (64, 30), 0.5), data)
    trainer = SGD(0.005, batch_size=64, epochs=3)
    experiment = fs.Experiment(task, local_training=trainer, cohort_size=5, rounds=rounds, evaluate_every=rounds)
    return experiment, fs.Federation(data, fs.partition.Shards(clients=100, shards_per_client=2), holdout=0.2)


def pfl_cifar(scale: Scale) -> tuple[fs.Experiment, fs.Federation]:
    """pfl-research's benchmark: CIFAR-10, 1000 users of 50 rows, 50 per round, batches of 10."""
    data = rows("cifar10", (32, 32, 3), 50_000, scale)
    rounds = scale.rounds(30, 1500, quick=2)
    task = fs.Task.on(ConvDropout(10), data)
    m = 4 if scale.quick else 50
    trainer = SGD(0.1, batch_size=10)
    experiment = fs.Experiment(
        task, local_training=trainer, cohort_size=m, rounds=rounds, evaluate_every=max(1, min(10, rounds))
    )
    return experiment, fs.Federation(data, fs.partition.Iid(clients=1000))


def blazefl_cifar(scale: Scale) -> tuple[fs.Experiment, fs.Federation]:
    """BlazeFL's benchmark: CIFAR-10, LeNet, 100 clients of two shards, all in each round, 5 epochs, batches of 50.

    Its random crops and flips are left out.
    """
    data = rows("cifar10", (32, 32, 3), 50_000, scale)
    rounds = scale.rounds(5, 5, quick=2)
    task = fs.Task.on(CNN(10, channels=(6, 16), hidden=(120, 84), kernel=5, pooled=2), data)
    clients = 4 if scale.quick else 100
    trainer = SGD(0.1, batch_size=50, epochs=5)
    experiment = fs.Experiment(task, local_training=trainer, cohort_size=clients, rounds=rounds, evaluate_every=rounds)
    return experiment, fs.Federation(data, fs.partition.Shards(clients, shards_per_client=2))


def lefl_resnet(scale: Scale) -> tuple[fs.Experiment, fs.Federation]:
    """LEFL's benchmark: CIFAR-10, ResNet-20, 100 clients, 10 per round, 10 epochs; 1 of each on a CPU.

    All rounds do the same work, so 20 of the 500 are run.
    """
    data = rows("cifar10", (32, 32, 3), 50_000, scale)
    rounds = scale.rounds(4, 20, quick=2)
    task = fs.Task.on(ResNet(10), data)
    epochs, m = (10, 10) if scale.accelerator else (1, 1)
    trainer = SGD(0.1, batch_size=64, epochs=epochs)
    experiment = fs.Experiment(task, local_training=trainer, cohort_size=m, rounds=rounds, evaluate_every=rounds)
    return experiment, fs.Federation(data, fs.partition.Iid(clients=100))


def chunk_of(experiment: fs.Experiment) -> int:
    """Returns the rounds per chunk: the interval between two evaluations if there are several, else a fifth."""
    if 1 < experiment.evaluate_every < experiment.rounds:
        return experiment.evaluate_every
    return fifth(experiment.rounds)


def one_by_one(
    make: Callable[[Scale], tuple[fs.Experiment, fs.Federation]], counts: tuple[int, ...] = (1,)
) -> Callable[[Scale, float], Iterator[Row]]:
    """Returns the workload with one seed; on an accelerator, with each of these counts of seeds."""

    def run(scale: Scale, peak: float) -> Iterator[Row]:
        experiment, data = make(scale)
        for seeds in counts if scale.accelerator else (1,):
            yield measured(experiment, data, chunk=chunk_of(experiment), seeds=seeds, peak=peak)

    return run


WAYS = {"vmap": fs.Layout(), "blocks of 5": fs.Layout(clients=5), "scan": fs.Layout(clients=1, seeds="scan")}
"""Layouts of the clients of a cohort."""


def layouts(scale: Scale, peak: float) -> Iterator[Row]:
    """Measures what the automatic choice of a layout, and of a convolution's lowering, is based on.

    On a CPU, XLA's own convolutions are only scanned: side by side they take minutes per round.
    """
    cases = [(flute_lr, (10,)), (gpfl_mlp, (5,)), (pfl_cifar, (5, 10, 50, 100) if scale.accelerator else (4,))]
    for make, cohorts in cases[:1] if scale.quick else cases:
        experiment, data = make(scale)
        name = make.__name__.replace("_", "-")
        rounds = 20 if scale.accelerator or make is not pfl_cifar else 4
        experiment = replace(experiment, rounds=rounds, evaluate_every=rounds)
        for (m, way), native in itertools.product(itertools.product(cohorts, WAYS), (False, True)):
            if native and (make is not pfl_cifar or not (scale.accelerator or way == "scan")):
                continue
            with lowered(native):
                found = measured(
                    replace(experiment, cohort_size=m), data, chunk=rounds // 4, layout=WAYS[way], peak=peak
                )
            convolution = {"convolution": "native" if native else "patches"} if make is pfl_cifar else {}
            yield {"what": name, "cohort_size": m, "clients": way, **convolution, **found}


ORDERS = {
    "all side by side": fs.Layout(),
    "seeds in turn": fs.Layout(seeds="scan"),
    "clients in turn": fs.Layout(clients=1, balanced=True),
    "both in turn": fs.Layout(clients=1, seeds="scan", balanced=True),
    "auto": None,
}
"""Layouts of unequal clients."""


def unequal(scale: Scale, peak: float) -> Iterator[Row]:
    """Measures clients of unequal sizes: what the layout depends on, and choice by entropy with and without padding."""
    data = rows("fashion_mnist", (28, 28, 1), 60_000, scale)
    models = {"logistic regression": LogisticRegression(10), "perceptron": MLP(10, (64, 30))}
    for (name, model), alpha in itertools.product(models.items(), (0.1, 0.5)):
        federation = fs.Federation(data, fs.partition.Dirichlet(clients=100, alpha=alpha))
        rounds = scale.rounds(20, 100)
        experiment = fs.Experiment(
            fs.Task.on(model, data),
            local_training=SGD(0.01, batch_size=10),
            cohort_size=10,
            rounds=rounds,
            evaluate_every=rounds,
        )
        for seeds, order in itertools.product((1,) if scale.quick else (1, 5, 16), ORDERS):
            if seeds == 1 and order in ("seeds in turn", "clients in turn"):
                continue
            found = measured(experiment, federation, chunk=rounds // 4, seeds=seeds, layout=ORDERS[order], peak=peak)
            yield {"what": f"{name}, α = {alpha}", "order": order, **found}
    rounds = scale.rounds(8, 40)
    for alpha, padded in itertools.product((0.1, 0.5), (True, False)):
        experiment = fs.Experiment(
            fs.Task.on(MLP(10, (400, 200)), data),
            data_selection=Entropy(0.1),
            local_training=SGD(0.01, batch_size=32, epochs=5),
            cohort_size=100,
            rounds=rounds,
            evaluate_every=rounds,
        )
        with examined(padded):
            federation = fs.Federation(data, fs.partition.Dirichlet(clients=100, alpha=alpha))
            found = measured(experiment, federation, chunk=rounds // 4, peak=peak)
        how = "padded to the longest" if padded else "as they are"
        yield {"what": f"a tenth by entropy of all of 100 clients, α = {alpha}", "order": how, **found}


PLACES = ("on the device", "in the host's memory", "mapped from a file")
"""Where a run's training examples are."""


def places(scale: Scale, peak: float) -> Iterator[Row]:
    """Measures in three turns what it costs if no device holds the examples, so that clients wait for the host."""
    turns, makers = (1, {flute_lr: 4}) if scale.quick else (3, {flute_lr: 100, pfl_cifar: 10})
    with tempfile.TemporaryDirectory() as folder:
        for make, rounds in makers.items():
            experiment, federation = make(scale)
            experiment = replace(experiment, rounds=rounds, evaluate_every=rounds)
            mapped = map_examples(federation, Path(folder, f"{make.__name__}.npy"))
            for turn, place in itertools.product(range(turns), PLACES):
                found = measured(
                    experiment,
                    mapped if place == PLACES[2] else federation,
                    chunk=fifth(experiment.rounds),
                    examples_on="device" if place == PLACES[0] else "host",
                    peak=peak,
                )
                yield {"what": make.__name__.replace("_", "-"), "examples": place, "turn": turn, **found}


def map_examples(federation: fs.Federation, file: Path) -> fs.Federation:
    """Returns a federation whose training examples are read from this file as they are needed, which it writes."""
    data = federation.source
    assert isinstance(data, fs.Dataset)
    np.save(file, data.x)
    return replace(federation, source=replace(data, x=np.load(file, mmap_mode="r")))


@contextlib.contextmanager
def examined(padded: bool):
    """Lets clients measure their examples one by one, padded to the longest, within the context, or together."""
    before = data_selection.UNEVEN
    data_selection.UNEVEN = float("inf") if padded else before
    try:
        yield
    finally:
        data_selection.UNEVEN = before
        jax.clear_caches()


@contextlib.contextmanager
def lowered(native: bool):
    """Lowers convolutions to XLA's own, or to patches, within the context."""
    before = _conv.NATIVE
    _conv.NATIVE = frozenset([jax.default_backend()]) if native else frozenset()
    jax.clear_caches()
    try:
        yield
    finally:
        _conv.NATIVE = before
        jax.clear_caches()


POPULATION = {
    "uniform": Uniform(),
    "power_of_choice": PowerOfChoice(d=200),
    "oort": Oort(),
    "gpfl": GPFL(),
    "fedcor": FedCor(warm_up=1, first_steps=1, interval=10**6),
    "fedcor, a fit each round": FedCor(warm_up=1, first_steps=1, interval=1, history=10),
}
"""Selectors that keep state for every client; FedCor's fits, by default every tenth round, are separate."""

MOST = {"fedcor, a fit each round": 1_000_000}
"""The most clients for cases in which more would take minutes per round."""


def populated(name: str, clients: int, rounds: int) -> tuple[fs.Experiment, fs.Federation]:
    """Returns a run that selects 100 of many clients with one row of two numbers each, to time selection alone."""
    rng = np.random.default_rng(0)
    y = np.arange(clients) % 2
    x = rng.normal(size=(clients, 2)).astype(np.float32) + y[:, None]
    few = x[:100], y[:100]
    data = fs.dataset("points", x, y, test=few, validation=few, owner=np.arange(clients))
    task = fs.Task(LogisticRegression(2))
    experiment = fs.Experiment(
        task, client_selection=POPULATION[name], cohort_size=100, rounds=rounds, evaluate_every=rounds
    )
    devices = LogNormal() if name == "oort" else None
    return experiment, fs.Federation(data, fs.partition.Natural(), devices=devices)


def population(scale: Scale, peak: float) -> Iterator[Row]:
    """Measures how a round's time grows with the number of clients."""
    sizes = (1000, 10_000) if scale.quick else (1000, 10_000, 100_000, 1_000_000, 10_000_000)
    for name, clients in itertools.product(POPULATION, sizes):
        if clients > MOST.get(name, clients):
            continue
        rounds = 8 if scale.quick or clients > 100_000 else 40
        try:
            found = measured(*populated(name, clients, rounds), chunk=rounds // 4, peak=peak)
        except ValueError as error:  # the selector says how many clients are too many for it
            yield {"client_selection": name, "N": clients, "refused": str(error)}
            continue
        yield {"client_selection": name, "N": clients, **found}


def crowd(name: str, clients: int, rounds: int) -> tuple[fs.Experiment, fs.Federation]:
    """Returns a whole run among many clients, with 1 to 5 examples of 32 numbers each, devices, and half available."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(clients), rng.integers(1, 6, clients))
    y = rng.integers(0, 10, len(owner))
    x = rng.normal(size=(len(y), 32)).astype(np.float32) + rng.normal(size=(10, 32)).astype(np.float32)[y] * 0.3
    data = fs.dataset("crowd", x, y, test=(x[:1000], y[:1000]), owner=owner)
    experiment = fs.Experiment(
        fs.Task(LogisticRegression(10)),
        client_selection=POPULATION[name],
        local_training=SGD(0.05, batch_size=4, epochs=2),
        availability=Bernoulli(0.5),
        cohort_size=100,
        rounds=rounds,
        evaluate_every=rounds,
    )
    return experiment, fs.Federation(data, fs.partition.Natural(), devices=LogNormal())


def million(scale: Scale, peak: float) -> Iterator[Row]:
    """Runs with a million clients, set-up included; memory is the peak so far, so the smallest run comes first."""
    clients = 10_000 if scale.quick else 1_000_000
    for name in ("uniform", "power_of_choice", "oort"):
        experiment, data = crowd(name, clients, 20)
        began = time.perf_counter()
        found = measured(experiment, data, chunk=5, peak=peak)
        yield {"client_selection": name, "N": clients, **found, "seconds_in_all": time.perf_counter() - began}


def uacs(scale: Scale, seeds: int) -> tuple[str, fs.Experiment, fs.Federation]:
    """Returns the name, experiment and federation of the first experiment of UACS-FL."""
    cell = papers.load("uacs").cells("smoke" if scale.quick else "full")[0]
    run = config.build(config.resolve({**cell.config, "seeds": seeds}))
    return f"UACS: {cell.experiment}, {cell.method}", run.experiment, run.data


def sweep(scale: Scale, peak: float) -> Iterator[Row]:
    """Runs seeds side by side, to measure what one more costs."""
    counts = (1, 4) if scale.quick else (1, 4, 16, 64)
    for count in counts:
        experiment, data = flute_lr(scale)
        found = measured(experiment, data, chunk=chunk_of(experiment), seeds=count, peak=peak)
        yield {"what": "flute-lr", **found}
    for count in counts:
        what, experiment, data = uacs(scale, count)
        found = measured(experiment, data, chunk=chunk_of(experiment), seeds=count, peak=peak)
        yield {"what": what, **found}


WORKLOADS: dict[str, Callable[[Scale, float], Iterator[Row]]] = {
    "flute-lr": one_by_one(flute_lr, (1, 16)),
    "gpfl-mlp": one_by_one(gpfl_mlp, (1, 16)),
    "pfl-cifar": one_by_one(pfl_cifar),
    "lefl-resnet": one_by_one(lefl_resnet),
    "population": population,
    "million": million,
    "sweep": sweep,
    "layouts": layouts,
    "unequal": unequal,
    "places": places,
}
"""The six workloads, a million clients, and what the automatic choices are based on."""


def scale_here(quick: bool) -> Scale:
    """Returns the scale for this machine: whole workloads if JAX has an accelerator."""
    return Scale(quick, accelerator=not quick and jax.default_backend() != "cpu")
