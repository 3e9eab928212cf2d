"""The modules of `tangrad.nn`."""

from tangrad.nn.modules import (
    activation,
    activation_smooth,
    adaptive,
    attention,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    linear,
    linear_cross_entropy,
    loss,
    loss_likelihood,
    loss_margin,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    rnn_cell,
    sparse,
    transformer,
    upsampling,
)
from tangrad.nn.modules.activation import *  # noqa: F403
from tangrad.nn.modules.activation_smooth import *  # noqa: F403
from tangrad.nn.modules.adaptive import *  # noqa: F403
from tangrad.nn.modules.attention import *  # noqa: F403
from tangrad.nn.modules.batchnorm import *  # noqa: F403
from tangrad.nn.modules.channelshuffle import *  # noqa: F403
from tangrad.nn.modules.container import *  # noqa: F403
from tangrad.nn.modules.conv import *  # noqa: F403
from tangrad.nn.modules.distance import *  # noqa: F403
from tangrad.nn.modules.dropout import *  # noqa: F403
from tangrad.nn.modules.flatten import *  # noqa: F403
from tangrad.nn.modules.fold import *  # noqa: F403
from tangrad.nn.modules.instancenorm import *  # noqa: F403
from tangrad.nn.modules.linear import *  # noqa: F403
from tangrad.nn.modules.linear_cross_entropy import *  # noqa: F403
from tangrad.nn.modules.loss import *  # noqa: F403
from tangrad.nn.modules.loss_likelihood import *  # noqa: F403
from tangrad.nn.modules.loss_margin import *  # noqa: F403
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.normalization import *  # noqa: F403
from tangrad.nn.modules.padding import *  # noqa: F403
from tangrad.nn.modules.pixelshuffle import *  # noqa: F403
from tangrad.nn.modules.pooling import *  # noqa: F403
from tangrad.nn.modules.rnn import *  # noqa: F403
from tangrad.nn.modules.rnn_cell import *  # noqa: F403
from tangrad.nn.modules.sparse import *  # noqa: F403
from tangrad.nn.modules.transformer import *  # noqa: F403
from tangrad.nn.modules.upsampling import *  # noqa: F403

__all__ = [
    "Module",
    *activation.__all__,
    *activation_smooth.__all__,
    *adaptive.__all__,
    *attention.__all__,
    *batchnorm.__all__,
    *channelshuffle.__all__,
    *container.__all__,
    *conv.__all__,
    *distance.__all__,
    *dropout.__all__,
    *flatten.__all__,
    *fold.__all__,
    *instancenorm.__all__,
    *linear.__all__,
    *linear_cross_entropy.__all__,
    *loss.__all__,
    *loss_likelihood.__all__,
    *loss_margin.__all__,
    *normalization.__all__,
    *padding.__all__,
    *pixelshuffle.__all__,
    *pooling.__all__,
    *rnn.__all__,
    *rnn_cell.__all__,
    *sparse.__all__,
    *transformer.__all__,
    *upsampling.__all__,
]

# Files that are parts of one in PyTorch: `torch.nn.modules.loss.KLDivLoss` is there too.
for _part, _whole in (
    (activation_smooth, activation),
    (attention, activation),
    (loss_likelihood, loss),
    (loss_margin, loss),
    (rnn_cell, rnn),
):
    for _name in _part.__all__:
        setattr(_whole, _name, getattr(_part, _name))
