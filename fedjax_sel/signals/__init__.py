"""Measurements, one a file, each with its cost."""

from fedjax_sel.signals.accuracy import ValidationAccuracy
from fedjax_sel.signals.correct import Correct
from fedjax_sel.signals.entropy import Entropy
from fedjax_sel.signals.gradient_norm import GradientNorm
from fedjax_sel.signals.loss import Loss, MinibatchLoss, ValidationLoss
from fedjax_sel.signals.margin import Margin
from fedjax_sel.signals.projection import Projection
from fedjax_sel.signals.training_loss import TrainingLoss, TrainingLossRMS
from fedjax_sel.signals.update_norm import UpdateNorm

__all__ = [
    "Correct",
    "Entropy",
    "GradientNorm",
    "Loss",
    "Margin",
    "MinibatchLoss",
    "Projection",
    "TrainingLoss",
    "TrainingLossRMS",
    "UpdateNorm",
    "ValidationAccuracy",
    "ValidationLoss",
]
