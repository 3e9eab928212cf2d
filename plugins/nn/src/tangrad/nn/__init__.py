"""Building blocks of neural networks."""

from typing import TYPE_CHECKING, Any

from tangrad.nn import _reduction as _reduction
from tangrad.nn import attention as attention
from tangrad.nn import common_types as common_types
from tangrad.nn import functional as functional
from tangrad.nn import holdings as _holdings  # noqa: F401
from tangrad.nn import init as init
from tangrad.nn import modules as modules
from tangrad.nn import parallel as parallel
from tangrad.nn import parameter as parameter
from tangrad.nn import utils as utils
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
from tangrad.nn.modules.module import Module as Module
from tangrad.nn.modules.normalization import *  # noqa: F403
from tangrad.nn.modules.padding import *  # noqa: F403
from tangrad.nn.modules.pixelshuffle import *  # noqa: F403
from tangrad.nn.modules.pooling import *  # noqa: F403
from tangrad.nn.modules.rnn import *  # noqa: F403
from tangrad.nn.modules.rnn_cell import *  # noqa: F403
from tangrad.nn.modules.sparse import *  # noqa: F403
from tangrad.nn.modules.transformer import *  # noqa: F403
from tangrad.nn.modules.upsampling import *  # noqa: F403
from tangrad.nn.parallel import DataParallel as DataParallel
from tangrad.nn.parameter import Buffer as Buffer
from tangrad.nn.parameter import Parameter as Parameter
from tangrad.nn.parameter import UninitializedBuffer as UninitializedBuffer
from tangrad.nn.parameter import UninitializedParameter as UninitializedParameter


def factory_kwargs(kwargs: Any) -> dict[str, Any]:
    """Return the arguments of factory functions among those of a module.

    Args:
        kwargs: `device`, `dtype` and `memory_format`, also inside of `factory_kwargs`; or None.

    Raises:
        TypeError: there is another argument, or one is given twice.
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    if unknown := kwargs.keys() - simple - {"factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in simple & kwargs.keys():
        if name in found:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        found[name] = kwargs[name]
    return found


if TYPE_CHECKING:  # an attribute of any name would hide mistakes from a type checker
    from tangrad.nn import grad as grad
else:

    def __getattr__(name: str) -> Any:
        # Few programs want it, and it brings the definitions of the convolutions.
        if name != "grad":
            from tangrad.plugin import resolve

            return resolve(f"nn.{name}")
        from importlib import import_module

        return import_module("tangrad.nn.grad")
