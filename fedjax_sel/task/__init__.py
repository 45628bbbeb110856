"""Tasks: a model, the normalisation of its inputs, a loss and metrics.

`Task` is in `task`, its losses and metrics in `losses` and `metrics`. Four more modules support it: `freezing` (parts
of the model that are not trained), `features` (the backbone, run once), `costs` (parameters and floating-point
operations) and `convolutions` (which finds slow layers).
"""

from fedjax_sel.task.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Focal,
    Huber,
    LabelSmoothing,
    Loss,
    NextToken,
    SquaredError,
    cross_entropy,
)
from fedjax_sel.task.metrics import (
    AUC,
    F1,
    R2,
    AbsoluteError,
    Accuracy,
    CalibrationError,
    ClassAccuracy,
    LabelAccuracy,
    MeanOf,
    Metric,
    TokenAccuracy,
    accuracy,
)
from fedjax_sel.task.task import Task

__all__ = [
    "AUC",
    "F1",
    "R2",
    "AbsoluteError",
    "Accuracy",
    "BinaryCrossEntropy",
    "CalibrationError",
    "ClassAccuracy",
    "CrossEntropy",
    "Focal",
    "Huber",
    "LabelAccuracy",
    "LabelSmoothing",
    "Loss",
    "MeanOf",
    "Metric",
    "NextToken",
    "SquaredError",
    "Task",
    "TokenAccuracy",
    "accuracy",
    "cross_entropy",
]
