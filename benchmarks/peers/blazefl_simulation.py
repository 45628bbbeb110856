"""BlazeFL's simulation in the fastest of its three ways: python blazefl_simulation.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import copy
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.multiprocessing
from blazefl.contrib.fedavg import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from nets import accuracy, few, net, tensors
from torch.utils.data import DataLoader, Dataset

CORES = len(os.sched_getaffinity(0))
SOURCE = sys.argv[1]
torch.set_num_threads(1)
FILE = dict(np.load(SOURCE))
WORK = json.loads(str(FILE["work"]))
ROWS = tensors(FILE, WORK)
"""The rows, which forked processes find here."""
MODEL = net(FILE, WORK)
"""The model with the initial parameters of all peers."""


class Models:
    """A model selector for BlazeFL that returns the work's model."""

    def select_model(self, model_name):
        """Returns a copy, which BlazeFL asks for in every client's turn."""
        return copy.deepcopy(MODEL)


class Client(Dataset):
    """A client's rows, read a batch at a time."""

    def __init__(self, number):
        first, count = FILE["offset"][number], FILE["size"][number]
        rows = torch.from_numpy(FILE["order"][first : first + count]).long()
        self.x, self.y = ROWS[0][rows], ROWS[1][rows]

    def __len__(self):
        return len(self.y)

    def __getitems__(self, rows):
        """Returns a batch with a single indexing operation."""
        return self.x[rows], self.y[rows]


class Clients:
    """BlazeFL's partitioned dataset."""

    def get_dataset(self, type_, cid):
        """Returns a client's dataset."""
        return Client(cid)

    def set_dataset(self, type_, cid, dataset):
        """Does nothing."""

    def get_dataloader(self, type_, cid, batch_size=None, generator=None):
        """Returns a client's shuffled loader."""
        return DataLoader(Client(cid), batch_size, shuffle=True, generator=generator, collate_fn=lambda batch: batch)


class Server(FedAvgBaseServerHandler):
    """FedAvg with the cohorts that all peers share."""

    def sample_clients(self):
        """Returns the cohort of the round."""
        return [int(client) for client in FILE["cohorts"][self.round]]


def trainer(way, scratch):
    """Returns a trainer of the clients, one after the other, by threads, or by processes."""
    shared = {
        "model_selector": Models(),
        "model_name": WORK["model"],
        "dataset": Clients(),
        "device": "cpu",
        "num_clients": len(FILE["size"]),
        "epochs": WORK["epochs"],
        "batch_size": WORK["batch_size"],
        "lr": WORK["learning_rate"],
        "seed": 0,
    }
    if way == "single":
        return FedAvgBaseClientTrainer(**shared)
    shared["num_parallels"] = CORES
    if way == "threads":
        return FedAvgThreadPoolClientTrainer(**shared)
    return FedAvgProcessPoolClientTrainer(**shared, state_dir=Path(scratch))


def run(way, rounds):
    """Returns the seconds of each round, and the model after the last."""
    with tempfile.TemporaryDirectory() as scratch:
        share = FILE["cohorts"].shape[1] / len(FILE["size"])
        server = Server(Models(), WORK["model"], Clients(), rounds, len(FILE["size"]), share, "cpu", 500, 0)
        server.num_clients_per_round = FILE["cohorts"].shape[1]  # BlazeFL rounds the share down
        clients, spent = trainer(way, scratch), []
        while not server.is_stopped():
            began = time.perf_counter()
            clients.local_process(server.downlink_package(), server.sample_clients())
            for package in clients.uplink_package():
                server.load(package)
            spent.append(time.perf_counter() - began)
    return spent, server.model


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("fork")
    rounds = len(FILE["cohorts"])
    tried = {way: median(run(way, few(rounds))[0]) for way in ("single", "threads", "processes")}
    way = min(tried, key=tried.__getitem__)
    seconds, model = run(way, rounds)
    found = {"seconds": seconds, "accuracy": accuracy(model, ROWS[2], ROWS[3]), "way": way}
    found["versions"] = {"blazefl": version("blazefl"), "torch": torch.__version__, "python": sys.version.split()[0]}
    found["without_gil"] = not sys._is_gil_enabled()
    with open(sys.argv[2], "w") as place:
        json.dump(found, place)
