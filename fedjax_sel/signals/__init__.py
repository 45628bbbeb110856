"""Measurements, each with its cost."""

from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.signals.accuracy import ValidationAccuracy as ValidationAccuracy
    from fedjax_sel.signals.confidence import Confidence as Confidence
    from fedjax_sel.signals.correct import Correct as Correct
    from fedjax_sel.signals.double_greedy import DoubleGreedy as DoubleGreedy
    from fedjax_sel.signals.entropy import Entropy as Entropy
    from fedjax_sel.signals.example_gradient import EL2N as EL2N
    from fedjax_sel.signals.example_gradient import ExampleGradientNorm as ExampleGradientNorm
    from fedjax_sel.signals.example_gradient import GraNd as GraNd
    from fedjax_sel.signals.example_gradient import LastLayerGradient as LastLayerGradient
    from fedjax_sel.signals.example_gradient import OutputGradient as OutputGradient
    from fedjax_sel.signals.example_gradient import ValidationGradient as ValidationGradient
    from fedjax_sel.signals.gradient import Gradient as Gradient
    from fedjax_sel.signals.gradient import GradientNoise as GradientNoise
    from fedjax_sel.signals.gradient_norm import GradientNorm as GradientNorm
    from fedjax_sel.signals.label_counts import LabelCounts as LabelCounts
    from fedjax_sel.signals.loss import Loss as Loss
    from fedjax_sel.signals.loss import MinibatchLoss as MinibatchLoss
    from fedjax_sel.signals.loss import ValidationLoss as ValidationLoss
    from fedjax_sel.signals.margin import Margin as Margin
    from fedjax_sel.signals.on_public import OnPublic as OnPublic
    from fedjax_sel.signals.output_update import OutputUpdate as OutputUpdate
    from fedjax_sel.signals.projection import Projection as Projection
    from fedjax_sel.signals.shapley import Shapley as Shapley
    from fedjax_sel.signals.sketch import Sketch as Sketch
    from fedjax_sel.signals.soft_labels import SoftLabels as SoftLabels
    from fedjax_sel.signals.training_loss import TrainingLoss as TrainingLoss
    from fedjax_sel.signals.training_loss import TrainingLossRMS as TrainingLossRMS
    from fedjax_sel.signals.update_norm import UpdateNorm as UpdateNorm

__getattr__, __dir__ = catalog.namespace(__name__)
