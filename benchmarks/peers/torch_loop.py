"""The loop over clients that everyone writes first, in PyTorch: python torch_loop.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false

import copy
import json
import sys
import time

import numpy as np
import torch
from nets import accuracy, net, tensors, train


def main(source, out):
    """Runs the loop."""
    file = np.load(source)
    work = json.loads(str(file["work"]))
    x, y, test_x, test_y = tensors(file, work)
    order, offset, size = (torch.from_numpy(file[key]).long() for key in ("order", "offset", "size"))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = net(file, work)
    if work["model"] == "cnn":
        model = model.to(memory_format=torch.channels_last)
    local, spent = copy.deepcopy(model), []
    for cohort in file["cohorts"]:
        began = time.perf_counter()
        received = {key: value.clone() for key, value in model.state_dict().items()}
        total = {key: torch.zeros_like(value) for key, value in received.items()}
        for client in cohort:
            rows = order[offset[client] : offset[client] + size[client]]
            local.load_state_dict(received)
            train(local, x[rows], y[rows], work, generator)
            for key, value in local.state_dict().items():
                total[key] += value / len(cohort)
        model.load_state_dict(total)
        spent.append(time.perf_counter() - began)
    found = {"seconds": spent, "accuracy": accuracy(model, test_x, test_y), "versions": {"torch": torch.__version__}}
    with open(out, "w") as place:
        json.dump(found, place)


main(*sys.argv[1:])
