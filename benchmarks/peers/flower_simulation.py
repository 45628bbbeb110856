"""Flower's simulation, an actor a core: python flower_simulation.py WORK.npz OUT.json."""

import json
import os
import sys
import time
from typing import ClassVar

import numpy as np

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import flwr
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from nets import accuracy, net, tensors, train

SOURCE, OUT = sys.argv[1:]
HELD = {}


def held():
    """The rows, read once in each process."""
    if not HELD:
        torch.set_num_threads(1)
        file = np.load(SOURCE)
        work = json.loads(str(file["work"]))
        HELD.update(file=dict(file), work=work, rows=tensors(file, work))
        HELD["net"] = net(work, file["x"].shape[1:], int(file["y"].max()) + 1)
    return HELD


def load(model, arrays):
    """Parameters into a model."""
    names = model.state_dict().keys()
    model.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in zip(names, arrays, strict=True)})


class Client(NumPyClient):
    """One client."""

    def __init__(self, number):
        self.number = number

    def fit(self, parameters, config):
        """Local training."""
        here = held()
        file, (x, y, _, _) = here["file"], here["rows"]
        rows = file["order"][file["offset"][self.number] : file["offset"][self.number] + file["size"][self.number]]
        load(here["net"], parameters)
        train(here["net"], x[rows], y[rows], here["work"], torch.Generator().manual_seed(self.number))
        return [value.numpy() for value in here["net"].state_dict().values()], len(rows), {}


class Timed(FedAvg):
    """FedAvg that notes when each round was over."""

    at: ClassVar[list] = []
    last = None

    def aggregate_fit(self, server_round, results, failures):
        """As the parent does."""
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        Timed.at.append(time.perf_counter())
        Timed.last = parameters
        return parameters, metrics


def server(context: Context) -> ServerAppComponents:
    """The server."""
    here = held()
    m, clients = here["file"]["cohorts"].shape[1], len(here["file"]["size"])
    first = ndarrays_to_parameters([value.numpy() for value in here["net"].state_dict().values()])
    strategy = Timed(
        fraction_fit=m / clients,
        min_fit_clients=m,
        fraction_evaluate=0.0,
        min_evaluate_clients=0,
        min_available_clients=clients,
        initial_parameters=first,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=here["work"]["rounds"]))


def client(context: Context):
    """A client by its number."""
    return Client(int(context.node_config["partition-id"])).to_client()


if __name__ == "__main__":
    here = held()
    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=len(here["file"]["size"]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    load(here["net"], parameters_to_ndarrays(Timed.last))
    _, _, test_x, test_y = here["rows"]
    found = {"seconds_a_round": float(np.median(np.diff(Timed.at))), "accuracy": accuracy(here["net"], test_x, test_y)}
    found |= {"rounds": len(Timed.at), "versions": {"flwr": flwr.__version__, "torch": torch.__version__}}
    with open(OUT, "w") as place:
        json.dump(found, place)
