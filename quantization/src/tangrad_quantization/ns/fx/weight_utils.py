"""Where modules and functions have their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import fx, nn
from tangrad.nn import functional as F
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.intrinsic.quantized import dynamic as nniqd
from tangrad_quantization.nn.quantized import dynamic as nnqd
from tangrad_quantization.ns.fx.ns_types import NSSingleResultType, NSSingleResultValuesType
from tangrad_quantization.ns.fx.utils import (
    get_target_type_str,
    getattr_from_fqn,
    return_first_non_observer_node,
    target_type,
)

Readers = dict[str, dict[Any, Callable[..., Any]]]


def _own(mod: Any) -> Any:
    return mod.weight.detach()


def _of_first(mod: Any) -> Any:
    return mod[0].weight.detach()


def _packed(mod: Any) -> Any:
    return mod._weight_bias()[0]


def _recurrent(mod: Any) -> list[Any]:
    """Return the weights of inputs and hidden states, layer by layer."""
    return [p.detach() for name, p in mod.named_parameters() if name.startswith("weight_")]


def _packed_recurrent(mod: Any) -> list[Any]:
    halves = (half for held in mod._all_weight_values for half in (held.ih, held.hh))
    return [half._weight_bias()[0] for half in halves]


def _argument(node: fx.Node, gm: Any) -> Any:
    """Return the weight that a function is given, before observers and conversions."""
    given = return_first_non_observer_node(node.args[1], gm)  # type: ignore[arg-type]
    dtype = None
    while given.op == "call_method":  # to(float16), dequantize()
        dtype = given.args[1] if given.target == "to" else dtype
        given = given.args[0]  # type: ignore[assignment]
    if given.op != "get_attr":
        return None
    weight = getattr_from_fqn(gm, str(given.target)).detach()
    return weight if dtype is None else weight.to(dtype)


def get_op_to_type_to_weight_extraction_fn() -> Readers:
    """Return {kind of node: {type of module or function: what reads the weight}}."""
    places = (1, 2, 3)
    own = [
        *(nn.Linear, NonDynamicallyQuantizableLinear, nnqat.Linear),
        *(nniqat.LinearReLU, nniqat.LinearBn1d),
        *(getattr(nn, f"Conv{n}d") for n in places),
        *(getattr(nnqat, f"Conv{n}d") for n in places),
        *(getattr(nniqat, f"Conv{k}{n}d") for k in ("Bn", "BnReLU", "ReLU") for n in places),
    ]
    packed = [
        *(nnq.Linear, nniq.LinearReLU, nniq.LinearLeakyReLU, nniq.LinearTanh),
        *(nnqd.Linear, nniqd.LinearReLU, nniq.ConvAdd2d, nniq.ConvAddReLU2d),
        *(getattr(nnq, f"Conv{n}d") for n in places),
        *(getattr(nniq, f"ConvReLU{n}d") for n in places),
    ]
    of_first = [nni.LinearReLU, *(getattr(nni, f"ConvReLU{n}d") for n in places)]
    return {
        "call_module": {
            **dict.fromkeys(own, _own),
            **dict.fromkeys(of_first, _of_first),
            **dict.fromkeys(packed, _packed),
            nn.LSTM: _recurrent,
            nnqd.LSTM: _packed_recurrent,
        },
        "call_function": dict.fromkeys((F.linear, F.conv1d, F.conv2d, F.conv3d), _argument),
    }


def extract_weight_from_node(
    node: fx.Node, gm: Any, op_to_type_to_weight_extraction_fn: Readers | None = None
) -> NSSingleResultType | None:
    """Return the weight of a node with where it is from; None where there is none.

    Args:
        node: calls a module or a function.
        gm: the graph module.
        op_to_type_to_weight_extraction_fn: what reads weights, by kinds of nodes and what they
            call; of modules it is given the module, of functions the node and the graph module.
    """
    readers = op_to_type_to_weight_extraction_fn or get_op_to_type_to_weight_extraction_fn()
    read = readers.get(node.op, {}).get(target_type(node, gm))
    if read is None:
        return None
    of_module = node.op == "call_module"
    weight = read(getattr_from_fqn(gm, str(node.target))) if of_module else read(node, gm)
    kind = get_target_type_str(node, gm)
    return {
        "type": NSSingleResultValuesType.WEIGHT.value,
        "values": [weight],
        "prev_node_name": node.name,
        "prev_node_target_type": kind,
        "ref_node_name": node.name,
        "ref_node_target_type": kind,
        "index_within_arg": 0,
        "index_of_arg": 0,
    }
