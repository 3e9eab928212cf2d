"""Programs as graphs: trace, transform, print and run them, as `torch.fx` does."""

from __future__ import annotations

from tangrad.plugin import submodules_on_demand
from tangrad_fx._symbolic_trace import (
    PH,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)
from tangrad_fx.graph import CodeGen, Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.interpreter import Interpreter, Transformer
from tangrad_fx.node import Node, has_side_effect, map_arg
from tangrad_fx.proxy import Proxy
from tangrad_fx.subgraph_rewriter import replace_pattern

API = 1

__getattr__ = submodules_on_demand(__name__)

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
