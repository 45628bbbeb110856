"""Flower's simulation, with one actor per core: python flower_simulation.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false

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
from flower_client import SOURCE, client, held, load
from flwr.client import ClientApp
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from nets import accuracy


class Timed(FedAvg):
    """FedAvg that records when each round ended."""

    at: ClassVar[list] = []
    last = None

    def aggregate_fit(self, server_round, results, failures):
        """Aggregates as the parent does, and records the time."""
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        Timed.at.append(time.perf_counter())
        Timed.last = parameters
        return parameters, metrics


def server(context: Context) -> ServerAppComponents:
    """Returns the server."""
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


if __name__ == "__main__":
    os.environ[SOURCE], out = sys.argv[1:]
    here = held()
    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=len(here["file"]["size"]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    load(here["net"], parameters_to_ndarrays(Timed.last))
    _, _, test_x, test_y = here["rows"]
    found = {"seconds": np.diff(Timed.at).tolist(), "accuracy": accuracy(here["net"], test_x, test_y)}
    found["versions"] = {"flwr": flwr.__version__, "torch": torch.__version__}
    with open(out, "w") as place:
        json.dump(found, place)
