"""The four models in PyTorch, for the peers that use it."""
# pyright: reportMissingImports=false

import json
import os
from statistics import median

import numpy as np
import torch
from torch import nn


def few(rounds):
    """Returns the rounds in which ways of running are tried: three, but no more than a fifth of all."""
    return max(1, min(3, rounds // 5))


def net(file, work):
    """Returns the model of a work, with the initial parameters of all peers."""
    model = layers(work, file["x"].shape[1:], int(file["y"].max()) + 1)
    places = [layer for layer in model if hasattr(layer, "weight")]
    for i, layer in enumerate(places):
        kernel = file[f"kernel_{i}"]
        if kernel.ndim == 4:
            kernel = kernel.transpose(3, 2, 0, 1)
        else:
            if i and places[i - 1].weight.dim() == 4:  # kernel rows of images that were flattened channels-last
                channels = len(places[i - 1].weight)
                side = round((len(kernel) // channels) ** 0.5)
                kernel = kernel.reshape(side, side, channels, -1).transpose(2, 0, 1, 3).reshape(len(kernel), -1)
            kernel = kernel.T
        layer.weight.data = torch.from_numpy(np.ascontiguousarray(kernel))
        layer.bias.data = torch.from_numpy(np.array(file[f"bias_{i}"]))
    return model


def layers(work, shape, classes):
    """Returns the layers of a work's model, for rows of a shape (channels last)."""
    height, width, channels = (*shape, 1)[:3]
    if work["model"] == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(height * width * channels, classes))
    if work["model"] == "mlp":
        return nn.Sequential(
            *(nn.Flatten(), nn.Linear(height * width * channels, 64), nn.Dropout(0.5), nn.ReLU()),
            *(nn.Linear(64, 30), nn.Dropout(0.5), nn.ReLU(), nn.Linear(30, classes)),
        )
    if work["model"] == "lenet":
        inner = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2) * 16
        return nn.Sequential(
            *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(inner, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)),
        )
    inner = (height - 4) // 2 * ((width - 4) // 2) * 64
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(inner, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)),
    )


def tensors(file, work):
    """Returns the rows as normalised floats, channels first, and the labels."""
    mean, std = float(file["mean"]), float(file["std"])
    out = []
    for key in ("x", "test_x"):
        x = (torch.from_numpy(file[key]).float() - mean) / std
        x = x.unsqueeze(-1) if x.dim() == 3 else x
        x = x.permute(0, 3, 1, 2)
        layout = torch.channels_last if work["model"] == "cnn" else torch.contiguous_format
        out.append(x.contiguous(memory_format=layout))
    return out[0], torch.from_numpy(file["y"]).long(), out[1], torch.from_numpy(file["test_y"]).long()


def train(model, x, y, work, generator):
    """Trains one client locally."""
    optimiser = torch.optim.SGD(model.parameters(), lr=work["learning_rate"])
    loss = nn.CrossEntropyLoss()
    model.train()
    for _ in range(work["epochs"]):
        order = torch.randperm(len(y), generator=generator)
        for first in range(0, len(y), work["batch_size"]):
            rows = order[first : first + work["batch_size"]]
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()


@torch.no_grad()
def accuracy(model, x, y):
    """Returns the accuracy on test rows."""
    model.eval()
    right = sum(int((model(x[i : i + 500]).argmax(1) == y[i : i + 500]).sum()) for i in range(0, len(y), 500))
    return right / len(y)


def measure(run, source, out, **versions):
    """Writes the seconds of all rounds and the last accuracy, with one thread or one a core, whichever is faster.

    Args:
      run: takes the work's file, its settings and rows and a number of rounds; returns the seconds of each round, and
        the model after the last.
      source: the path of the work.
      out: that of the result.
      versions: of other packages than PyTorch.
    """
    file = np.load(source)
    work = json.loads(str(file["work"]))
    rows, rounds, tried = tensors(file, work), len(file["cohorts"]), {}
    for threads in dict.fromkeys((1, len(os.sched_getaffinity(0)))):
        torch.set_num_threads(threads)
        tried[threads] = median(run(file, work, rows, few(rounds))[0])
    best = min(tried, key=tried.__getitem__)
    torch.set_num_threads(best)
    spent, model = run(file, work, rows, rounds)
    found = {"seconds": spent, "accuracy": accuracy(model, *rows[2:]), "threads": best}
    found["versions"] = {**versions, "torch": torch.__version__}
    with open(out, "w") as place:
        json.dump(found, place)
