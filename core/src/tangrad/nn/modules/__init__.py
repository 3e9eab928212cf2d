"""The modules of `tangrad.nn`."""

from tangrad.nn.modules import (
    activation,
    batchnorm,
    channelshuffle,
    container,
    conv,
    dropout,
    flatten,
    fold,
    instancenorm,
    linear,
    loss,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    sparse,
    upsampling,
)
from tangrad.nn.modules.activation import *  # noqa: F403
from tangrad.nn.modules.batchnorm import *  # noqa: F403
from tangrad.nn.modules.channelshuffle import *  # noqa: F403
from tangrad.nn.modules.container import *  # noqa: F403
from tangrad.nn.modules.conv import *  # noqa: F403
from tangrad.nn.modules.dropout import *  # noqa: F403
from tangrad.nn.modules.flatten import *  # noqa: F403
from tangrad.nn.modules.fold import *  # noqa: F403
from tangrad.nn.modules.instancenorm import *  # noqa: F403
from tangrad.nn.modules.linear import *  # noqa: F403
from tangrad.nn.modules.loss import *  # noqa: F403
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.normalization import *  # noqa: F403
from tangrad.nn.modules.padding import *  # noqa: F403
from tangrad.nn.modules.pixelshuffle import *  # noqa: F403
from tangrad.nn.modules.pooling import *  # noqa: F403
from tangrad.nn.modules.sparse import *  # noqa: F403
from tangrad.nn.modules.upsampling import *  # noqa: F403

__all__ = [
    "Module",
    *activation.__all__,
    *batchnorm.__all__,
    *channelshuffle.__all__,
    *container.__all__,
    *conv.__all__,
    *dropout.__all__,
    *flatten.__all__,
    *fold.__all__,
    *instancenorm.__all__,
    *linear.__all__,
    *loss.__all__,
    *normalization.__all__,
    *padding.__all__,
    *pixelshuffle.__all__,
    *pooling.__all__,
    *sparse.__all__,
    *upsampling.__all__,
]
