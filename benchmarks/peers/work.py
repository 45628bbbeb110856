"""The work that all peers get (rows, owners, cohorts, steps), and our own run of it.

A file `NAME.npz` holds `x` (uint8), `y`, `test_x`, `test_y`, `order`, `offset`, `size` (client `i`'s rows are
`order[offset[i] : offset[i] + size[i]]`), `cohorts` (round by round), `mean`, `std` (of all pixels), the initial
parameters of all peers, layer by layer (`kernel_0`, `bias_0`, ...; affine maps `[in, out]`, convolutions `[height,
width, in, out]`, flattened images `[height, width, channel]`), and `work`, JSON: model, learning rate, batch size,
epochs, rounds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedjax_sel as fs
from benchmarks.measure import measured, peak_flops
from benchmarks.timing import fifth
from benchmarks.workloads import Scale, blazefl_cifar, flute_lr, gpfl_mlp, pfl_cifar
from fedjax_sel.report.environment import environment

MAKES = {
    "flute-lr": (flute_lr, "logistic", 500),
    "gpfl-mlp": (gpfl_mlp, "mlp", 60),
    "pfl-cifar": (pfl_cifar, "cnn", 6),
    "blazefl-cifar": (blazefl_cifar, "lenet", 5),
}
"""The workload, model and rounds of each work."""


def made(name: str, quick: bool) -> tuple[fs.Experiment, fs.FederatedData, str]:
    """Returns the experiment, the clients' rows and the model's name, at the size for comparison."""
    make, model, rounds = MAKES[name]
    experiment, federation = make(Scale(quick=quick))
    rounds = 4 if quick else rounds
    task = fs.Task(experiment.task.model, *moments(federation.source))
    return replace(experiment, task=task, rounds=rounds, evaluate_every=rounds), federation.draw(0), model


def moments(data: Any) -> tuple[float, float]:
    """Returns the mean and inverse deviation of all pixels, one pair of numbers that every peer can use."""
    sample = np.asarray(data.x[:2000], np.float32)
    return float(sample.mean()), 1 / float(sample.std())


def export(name: str, folder: Path, quick: bool) -> Path:
    """Writes the work's file."""
    experiment, data, model = made(name, quick)
    trainer: Any = experiment.local_training
    still = replace(
        experiment, local_training=replace(trainer, epochs=None, steps=1, learning_rate=0.0)
    )  # a uniform cohort sees no model
    history = fs.simulate(still, data)
    begin = jax.tree.map(lambda leaf: np.asarray(leaf[0]), history.variables)["params"]
    if model == "logistic":  # our kernel has the classes first
        begin = {"Dense_0": {**begin, "kernel": begin["kernel"].T}}
    layers = [begin[name] for name in sorted(begin)]  # in these models, convolutions also come first by name
    first = {f"{part}_{i}": layer[part] for i, layer in enumerate(layers) for part in ("kernel", "bias")}
    mean, std = moments_of(experiment)
    work = {
        "name": name,
        "model": model,
        "learning_rate": float(trainer.learning_rate),
        "batch_size": trainer.batch_size,
        "epochs": trainer.epochs or 1,
        "rounds": experiment.rounds,
    }
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name}.npz"
    arrays = {key: np.asarray(getattr(data, key)) for key in ("x", "y", "test_x", "test_y", "order", "offset")}
    arrays |= {"size": np.asarray(data.num_examples), "cohorts": history.selections[0]}
    np.savez(place, **arrays, **first, mean=mean, std=std, work=json.dumps(work))
    return place


def moments_of(experiment: fs.Experiment) -> tuple[float, float]:
    """Returns the mean and deviation that the task normalises with."""
    return float(experiment.task.shift), 1 / float(experiment.task.scale)


def ours(name: str, quick: bool) -> dict[str, Any]:
    """Returns our own result on a work."""
    experiment, data, _ = made(name, quick)
    rounds = experiment.rounds
    found = measured(experiment, data, chunk=fifth(rounds), peak=peak_flops())
    here = environment()
    return {**found, "accuracy": found["final_accuracy"], "commit": here["commit"], "environment": here}
