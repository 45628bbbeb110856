"""Runs on a mesh of devices beside the same on one; as a script, for eight devices in a process of their own."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, simulate
from fedjax_sel.aggregation.fedavgm import FedAvgM
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.filfl import FilFL
from fedjax_sel.client_selection.gpfl import GPFL
from fedjax_sel.client_selection.gradient_norm import GradientNorm
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.data_selection.margin import Margin
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.devices.laws import Uniform as Law
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP

CLOSE = {"rtol": 5e-4, "atol": 5e-5}
SEEDS = [3, 8, 5]
SCAN = Layout(clients=1, seeds="scan", examples=50)
BLOCKS = Layout(clients=2, examples=70)


def blobs():
    """Three classes in the plane, 210 training rows, 60 test rows."""
    rng = np.random.default_rng(7)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    return dataset("blobs", x.astype(np.float32), y, test=0.2, validation=0.1)


ROWS = blobs()
CLIENTS = Federation(ROWS, partition.Dirichlet(clients=9, alpha=0.5))
BASE = Experiment(
    Task.on(MLP(classes=3, hidden=(5,)), ROWS),
    local_training=SGD(0.1, batch_size=8, momentum=0.9),
    cohort_size=5,
    rounds=3,
)
CASES = {
    "row signals over all clients": (BASE.replace(client_selection=Entropy(0.3), aggregation=FedAvgM(0.5)), CLIENTS),
    "candidates, and control variates": (
        BASE.replace(client_selection=PowerOfChoice(d=6), correction=Scaffold()),
        CLIENTS,
    ),
    "stacked updates": (BASE.replace(client_selection=GPFL(), data_selection=Margin(0.5)), CLIENTS),
    "client signals on rows held out": (
        BASE.replace(client_selection=GradientNorm(), signal_split="holdout"),
        Federation(ROWS, partition.Unequal(clients=9, min_examples=4), holdout=0.3),  # gradients in blocks of examples
    ),
    "devices with a deadline": (
        BASE.replace(client_selection=Oort(), deadline=Deadline(seconds=3e-4, late="partial"), cohort_size=3),
        replace(CLIENTS, devices=Law()),
    ),
    "updates together, and members that fail": (
        BASE.replace(client_selection=FilFL(members=2, interval=2), volatility=Bernoulli(0.7)),
        CLIENTS,
    ),
}


def compare(case: str, mesh: tuple[int, int], layout: Layout) -> None:
    """Raise `AssertionError` where a mesh changes who is selected, or a number by more than rounding."""
    experiment, data = CASES[case]
    one = simulate(experiment, data, SEEDS, layout=layout)
    many = simulate(experiment, data, SEEDS, layout=layout, mesh=mesh)
    np.testing.assert_array_equal(many.selections, one.selections)
    assert many.metrics.keys() == one.metrics.keys()
    for metric in one.metrics:
        np.testing.assert_allclose(many[metric], one[metric], **CLOSE, err_msg=f"{case}, {metric}")


EIGHT = [
    ("row signals over all clients", (2, 4), Layout(examples=100)),
    ("candidates, and control variates", (4, 2), SCAN),
    ("stacked updates", (1, 8), Layout()),
    ("client signals on rows held out", (2, 4), BLOCKS),
    ("devices with a deadline", (8, 1), Layout()),
]

if __name__ == "__main__":
    import jax

    assert jax.device_count() == 8
    for case in EIGHT:
        compare(*case)
        print("alike:", *case, file=sys.stderr)
