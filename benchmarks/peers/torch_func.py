"""All clients of a round at once by PyTorch's `vmap`: python torch_func.py WORK.npz OUT.json.

With one thread or one for each core, whichever is faster. All clients must have equally many rows.
"""
# pyright: reportMissingImports=false

import json
import sys
import time

import numpy as np
import torch
from nets import accuracy, choose_threads, net, tensors
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


def main(source, out):
    """Runs the rounds."""
    file = np.load(source)
    work = json.loads(str(file["work"]))
    if len(set(file["size"][file["cohorts"]].ravel().tolist())) > 1:
        raise SystemExit("clients have different numbers of rows")
    rows = tensors(file, work)
    threads = choose_threads(lambda rounds: run(file, work, rows, rounds)[0], len(file["cohorts"]))
    spent, model = run(file, work, rows, len(file["cohorts"]))
    found = {"seconds": spent, "accuracy": accuracy(model, *rows[2:]), "threads": threads}
    found["versions"] = {"torch": torch.__version__}
    with open(out, "w") as place:
        json.dump(found, place)


def run(file, work, rows, rounds):
    """Returns the seconds of each round, and the model after the last."""
    x, y, _, _ = rows
    order, offset = (torch.from_numpy(file[key]).long() for key in ("order", "offset"))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = net(file, work)
    model.train()
    shared, spent = {name: value.detach() for name, value in model.named_parameters()}, []

    def loss(parameters, x, y):
        return cross_entropy(functional_call(model, parameters, (x,)), y)

    step = vmap(grad(loss), randomness="different")
    for cohort in file["cohorts"][:rounds]:
        began = time.perf_counter()
        size, batch = int(file["size"][cohort[0]]), work["batch_size"]
        owned = torch.stack([order[offset[client] : offset[client] + size] for client in cohort])
        local = {name: value.expand(len(cohort), *value.shape).clone() for name, value in shared.items()}
        for _ in range(work["epochs"]):
            shuffled = torch.stack([torch.randperm(size, generator=generator) for _ in cohort])
            epoch = owned.gather(1, shuffled)
            for first in range(0, size, batch):
                mine = epoch[:, first : first + batch]
                for name, gradient in step(local, x[mine], y[mine]).items():
                    local[name].sub_(gradient, alpha=work["learning_rate"])
        shared = {name: value.mean(0) for name, value in local.items()}
        spent.append(time.perf_counter() - began)
    model.load_state_dict(shared)
    return spent, model


if __name__ == "__main__":
    main(*sys.argv[1:])
