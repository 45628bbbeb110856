"""A client of Flower's simulation; it is a module so that actors import it and do not receive it with all its rows."""
# pyright: reportMissingImports=false

import json
import os

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.common import Context
from nets import net, tensors, train

SOURCE = "FLOWER_WORK"
"""Environment variable with the path of the work's file."""

HELD = {}


def held():
    """Returns the rows, which are read once in each process."""
    if not HELD:
        torch.set_num_threads(1)
        file = np.load(os.environ[SOURCE])
        work = json.loads(str(file["work"]))
        HELD.update(file=dict(file), work=work, rows=tensors(file, work))
        HELD["net"] = net(file, work)
    return HELD


def load(model, arrays):
    """Loads parameters into a model."""
    names = model.state_dict().keys()
    model.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in zip(names, arrays, strict=True)})


class Client(NumPyClient):
    """One client."""

    def __init__(self, number):
        self.number = number

    def fit(self, parameters, config):
        """Trains locally."""
        here = held()
        file, (x, y, _, _) = here["file"], here["rows"]
        rows = file["order"][file["offset"][self.number] : file["offset"][self.number] + file["size"][self.number]]
        load(here["net"], parameters)
        train(here["net"], x[rows], y[rows], here["work"], torch.Generator().manual_seed(self.number))
        return [value.numpy() for value in here["net"].state_dict().values()], len(rows), {}


def client(context: Context):
    """Returns a client by its number."""
    return Client(int(context.node_config["partition-id"])).to_client()
