"""What is learnt: a model, how its inputs are normalised, a loss and metrics.

`Task` is in `task`. Three files stand beside it: `freezing` (parts of the model that are not trained), `features` (the
backbone, run once) and `costs` (parameters and floating-point operations); `convolutions` looks for slow layers.
"""

from fedjax_sel.task.task import Task, accuracy, cross_entropy

__all__ = ["Task", "accuracy", "cross_entropy"]
