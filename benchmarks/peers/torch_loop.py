"""The loop over clients that everyone writes first, in PyTorch: python torch_loop.py WORK.npz OUT.json.

With one thread or one for each core, whichever is faster: steps of a few rows are too small for two.
"""
# pyright: reportMissingImports=false

import copy
import sys
import time

import torch
from nets import measure, net, train


def run(file, work, rows, rounds):
    """Returns the seconds of each round, and the model after the last."""
    x, y, _, _ = rows
    order, offset, size = (torch.from_numpy(file[key]).long() for key in ("order", "offset", "size"))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = net(file, work)
    if work["model"] == "cnn":
        model = model.to(memory_format=torch.channels_last)
    local, spent = copy.deepcopy(model), []
    for cohort in file["cohorts"][:rounds]:
        began = time.perf_counter()
        received = {key: value.clone() for key, value in model.state_dict().items()}
        total = {key: torch.zeros_like(value) for key, value in received.items()}
        for client in cohort:
            mine = order[offset[client] : offset[client] + size[client]]
            local.load_state_dict(received)
            train(local, x[mine], y[mine], work, generator)
            for key, value in local.state_dict().items():
                total[key] += value / len(cohort)
        model.load_state_dict(total)
        spent.append(time.perf_counter() - began)
    return spent, model


if __name__ == "__main__":
    measure(run, *sys.argv[1:])
