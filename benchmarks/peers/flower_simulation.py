"""Flower's simulation, with one actor per core: python flower_simulation.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false

import json
import os
import sys
import time

import numpy as np

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import flwr
import torch
from flower_client import SOURCE, client, held
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from nets import accuracy

ENDED = []
"""When each round ended."""

server = ServerApp()


class Timed(FedAvg):
    """FedAvg that records when each round ended."""

    def aggregate_train(self, server_round, replies):
        """Aggregates as the parent does, and records the time."""
        found = super().aggregate_train(server_round, replies)
        ENDED.append(time.perf_counter())
        return found


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rounds, and leaves the last model in the held network."""
    here = held()
    m, clients = here["file"]["cohorts"].shape[1], len(here["file"]["size"])
    strategy = Timed(
        fraction_train=m / clients,
        min_train_nodes=m,
        fraction_evaluate=0.0,
        min_evaluate_nodes=0,
        min_available_nodes=clients,
    )
    first = ArrayRecord(here["net"].state_dict())
    done = strategy.start(grid=grid, initial_arrays=first, num_rounds=here["work"]["rounds"])
    here["net"].load_state_dict(done.arrays.to_torch_state_dict())


if __name__ == "__main__":
    os.environ[SOURCE], out = sys.argv[1:]
    here = held()
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(here["file"]["size"]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    _, _, test_x, test_y = here["rows"]
    found = {"seconds": np.diff(ENDED).tolist(), "accuracy": accuracy(here["net"], test_x, test_y)}
    found["versions"] = {"flwr": flwr.__version__, "torch": torch.__version__}
    with open(out, "w") as place:
        json.dump(found, place)
