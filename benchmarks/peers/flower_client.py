"""A client of Flower's simulation; it is a module so that actors import it and do not receive it with all its rows."""
# pyright: reportMissingImports=false

import json
import os

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
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


client = ClientApp()


@client.train()
def fit(message: Message, context: Context) -> Message:
    """Trains a client, known by its number, locally."""
    here, number = held(), int(context.node_config["partition-id"])
    file, (x, y, _, _) = here["file"], here["rows"]
    rows = file["order"][file["offset"][number] : file["offset"][number] + file["size"][number]]
    here["net"].load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(here["net"], x[rows], y[rows], here["work"], torch.Generator().manual_seed(number))
    found = {
        "arrays": ArrayRecord(here["net"].state_dict()),
        "metrics": MetricRecord({"num-examples": len(rows)}),
    }
    return Message(content=RecordDict(found), reply_to=message)
