"""Flax modules that map examples to logits; each takes `train` by keyword.

`from_nnx` and `from_functions` adapt models that are not Linen modules.
"""

from functools import partial
from typing import TYPE_CHECKING

from fedjax_sel import catalog

if TYPE_CHECKING:
    from fedjax_sel.models._adapters import from_functions as from_functions
    from fedjax_sel.models._adapters import from_nnx as from_nnx
    from fedjax_sel.models._fast_conv import Conv as Conv
    from fedjax_sel.models._fast_conv import fast_convolution as fast_convolution
    from fedjax_sel.models._fast_conv import fast_convolutions as fast_convolutions
    from fedjax_sel.models.cnn import CNN as CNN
    from fedjax_sel.models.conv_dropout import ConvDropout as ConvDropout
    from fedjax_sel.models.efficientnet import EfficientNet as EfficientNet
    from fedjax_sel.models.logistic import LogisticRegression as LogisticRegression
    from fedjax_sel.models.mlp import MLP as MLP
    from fedjax_sel.models.mobilenet import MobileNetV3 as MobileNetV3
    from fedjax_sel.models.resnet import ResNet as ResNet
    from fedjax_sel.models.transformer import Transformer as Transformer
    from fedjax_sel.models.vit import ViT as ViT
    from fedjax_sel.models.wide_resnet import WideResNet as WideResNet

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
__getattr__, __dir__ = catalog.namespace(
    __name__,
    Conv="_fast_conv",
    fast_convolution="_fast_conv",
    fast_convolutions="_fast_conv",
    from_functions="_adapters",
    from_nnx="_adapters",
)
