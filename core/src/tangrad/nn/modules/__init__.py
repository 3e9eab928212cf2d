"""The modules of `tangrad.nn`."""

from tangrad.nn.modules import (
    activation,
    batchnorm,
    container,
    conv,
    dropout,
    flatten,
    linear,
    loss,
    normalization,
    pooling,
    rnn,
    rnn_cell,
    sparse,
)
from tangrad.nn.modules.activation import *  # noqa: F403
from tangrad.nn.modules.batchnorm import *  # noqa: F403
from tangrad.nn.modules.container import *  # noqa: F403
from tangrad.nn.modules.conv import *  # noqa: F403
from tangrad.nn.modules.dropout import *  # noqa: F403
from tangrad.nn.modules.flatten import *  # noqa: F403
from tangrad.nn.modules.linear import *  # noqa: F403
from tangrad.nn.modules.loss import *  # noqa: F403
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.normalization import *  # noqa: F403
from tangrad.nn.modules.pooling import *  # noqa: F403
from tangrad.nn.modules.rnn import *  # noqa: F403
from tangrad.nn.modules.rnn_cell import *  # noqa: F403
from tangrad.nn.modules.sparse import *  # noqa: F403

__all__ = [
    "Module",
    *activation.__all__,
    *batchnorm.__all__,
    *container.__all__,
    *conv.__all__,
    *dropout.__all__,
    *flatten.__all__,
    *linear.__all__,
    *loss.__all__,
    *normalization.__all__,
    *pooling.__all__,
    *rnn.__all__,
    *rnn_cell.__all__,
    *sparse.__all__,
]
