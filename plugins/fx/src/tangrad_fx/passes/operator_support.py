"""Say which nodes of a graph a device or a compiler can run."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad_fx.node import Node
from tangrad_fx.passes.shape_prop import TensorMetadata
from tangrad_fx.passes.tools_common import get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

# Of one node's target: dtypes of its arguments by place and of its keywords; None: any.
SupportedArgumentDTypes = tuple[list[list[Any]], dict[str, list[Any]]] | None
SupportDict = Mapping[str, SupportedArgumentDTypes]
IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Base class of what tells whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Return whether a node is supported.

        Args:
            submodules: the modules of the graph's module, by path.
            node: the node.
        """


class OperatorSupport(OperatorSupportBase):
    """Supports nodes by the names of what they call, and by the dtypes of their arguments.

    Args:
        support_dict: {name, as `get_node_target` gives it: (dtypes of each argument, dtypes of
            each keyword), or None if any will do}.
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Return whether what a node calls is in the table, with its dtypes."""
        if node.op not in ("call_function", "call_method", "call_module"):
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        dtypes = self._support_dict[target]
        if dtypes is None:
            return True
        places, keywords = dtypes
        given = [(list(allowed), node.args[k]) for k, allowed in enumerate(places)]
        given += [(list(allowed), node.kwargs.get(name)) for name, allowed in keywords.items()]
        return all(
            _dtype_of(argument) in allowed for allowed, argument in given if _is_node(argument)
        )


def _is_node(argument: Any) -> bool:
    return isinstance(argument, Node)


def _dtype_of(node: Node) -> Any:
    noted = node.meta.get("tensor_meta")
    if isinstance(noted, TensorMetadata):
        return noted.dtype
    value = node.meta.get("val")
    return value.dtype if isinstance(value, tangrad.Tensor) else None


class _Function(OperatorSupportBase):
    def __init__(self, function: IsNodeSupported) -> None:
        self._function = function

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        return self._function(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Return a function of submodules and a node as an object."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return what supports a node if all of several do."""
    return _Function(lambda mods, node: all(x.is_node_supported(mods, node) for x in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return what supports a node if one of several does."""
    return _Function(lambda mods, node: any(x.is_node_supported(mods, node) for x in op_support))


class OpSupports:
    """Objects that decline some nodes, to be combined by `chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Decline nodes that take a tensor of a dtype."""

        def supported(submodules: Mapping[str, Module], node: Node) -> bool:
            return all(_dtype_of(argument) != dtype for argument in node.all_input_nodes)

        return _Function(supported)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Decline nodes by name."""
        return _Function(lambda submodules, node: node.name not in disallow_set)
