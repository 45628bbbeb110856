"""All clients of a round at once by PyTorch's `vmap`: python torch_func.py WORK.npz OUT.json.

With one thread or one for each core, whichever is faster. All clients must have equally many rows.
"""
# pyright: reportMissingImports=false

import sys
import time

import torch
from nets import measure, net
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


def run(file, work, rows, rounds):
    """Returns the seconds of each round, and the model after the last."""
    if len(set(file["size"][file["cohorts"]].ravel().tolist())) > 1:
        raise SystemExit("clients have different numbers of rows")
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
    measure(run, *sys.argv[1:])
