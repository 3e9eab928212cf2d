"""The vocabulary of the numeric suite of graphs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from tangrad import fx


class NSSingleResultValuesType(str, Enum):  # noqa: UP042 (as PyTorch's: its text is the member's)
    """What was kept: weights, or what came out of a node or went in."""

    WEIGHT = "weight"
    NODE_OUTPUT = "node_output"
    NODE_INPUT = "node_input"


class NSSubgraph(NamedTuple):
    """Nodes that are compared as one: from the first to the last; the base says of what type."""

    start_node: fx.Node
    end_node: fx.Node
    base_op_node: fx.Node


# What was kept at one place: "type", "values", "fqn", names and types of nodes, comparisons.
NSSingleResultType = dict[str, Any]
# {place: {type of what was kept: {name of the model: what was kept}}}
NSResultsType = dict[str, dict[str, dict[str, list[NSSingleResultType]]]]
# A function, a type of module, or the name of a method.
NSNodeTargetType = Callable[..., Any] | str
