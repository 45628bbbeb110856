"""pfl-research (Granqvist et al., 2024) with PyTorch: python pfl_research.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false

import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from nets import measure, net
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel


class Wrapped(torch.nn.Module):
    """A model with the loss and metrics that pfl requires."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        """Returns logits."""
        return self.inner(x)

    def loss(self, inputs, targets, eval=False):
        """Returns the loss of a batch."""
        self.eval() if eval else self.train()
        return torch.nn.functional.cross_entropy(self(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs, targets, eval=True):
        """Returns the metrics of a batch."""
        self.eval()
        logits = self(inputs)
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        return {"loss": Weighted(loss.item(), len(targets))}


class Marks(TrainingProcessCallback):
    """Records when each round ended."""

    def __init__(self):
        self.at = [time.perf_counter()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Records the time."""
        self.at.append(time.perf_counter())
        return False, Metrics()


def run(file, work, rows, rounds):
    """Returns the seconds of each round, and the model after the last."""
    x, y, _, _ = rows
    order, offset, size = file["order"], file["offset"], file["size"]
    torch.manual_seed(0)
    model = Wrapped(net(file, work))

    def examples_of(user):
        rows = torch.from_numpy(order[offset[user] : offset[user] + size[user]]).long()
        return Dataset([x[rows], y[rows]], user_id=str(user))

    users = iter(file["cohorts"].ravel().tolist() * 2)
    data = FederatedDataset(examples_of, lambda: next(users))
    marks = Marks()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=file["cohorts"].shape[1],
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None, postprocessors=[]),
        model=PyTorchModel(
            model=model,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=work["learning_rate"],
            local_num_epochs=work["epochs"],
            local_batch_size=work["batch_size"],
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[marks],
    )
    return np.diff(marks.at).tolist(), model


if __name__ == "__main__":
    measure(run, *sys.argv[1:], pfl=version("pfl"))
