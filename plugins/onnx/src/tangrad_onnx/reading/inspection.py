"""Tell what an ONNX file holds, without building a module."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from onnx import TensorProto, defs

from tangrad_onnx.operators import OPERATORS
from tangrad_onnx.reading.constants import visited
from tangrad_onnx.reading.protobuf import read_model
from tangrad_onnx.values import NUMPY_TYPES

__all__ = ["describe"]


def describe(source: Any) -> dict[str, Any]:
    """Return operators, opsets, shapes, sizes and external files of a model.

    Args:
        source: a path, bytes or a `ModelProto`.

    Raises:
        OnnxError: it is no ONNX model.
    """
    model, folder = read_model(source)
    graphs = list(visited(model.graph))
    bodies = [*graphs, *model.functions]
    counts: Counter[tuple[str, str]] = Counter(
        (node.domain, node.op_type) for body in bodies for node in body.node
    )
    held = [tensor for graph in graphs for tensor in graph.initializer]
    names = {tensor.name for tensor in held}
    own = {(function.domain, function.name) for function in model.functions}
    external = sorted(
        {
            entry.value
            for tensor in held
            if tensor.data_location == TensorProto.EXTERNAL
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )
    return {
        "format": f"ONNX, IR version {model.ir_version}",
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "file": folder.path,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": {v.name: _type(v.type) for v in model.graph.input if v.name not in names},
        "outputs": {v.name: _type(v.type) for v in model.graph.output},
        "operators": {_title(*key): count for key, count in sorted(counts.items())},
        "functions": sorted(_title(*key) for key in own),
        "not supported": sorted(
            _title(*key) for key in counts if key not in own and not _is_supported(*key)
        ),
        "weights": {"tensors": len(held), "elements": sum(math.prod(t.dims) for t in held)},
        "external files": external,
    }


def _title(domain: str, operator: str) -> str:
    return operator if domain in ("", "ai.onnx") else f"{domain}.{operator}"


def _is_supported(domain: str, operator: str) -> bool:
    if domain in ("", "ai.onnx") and (operator in OPERATORS or operator == "Constant"):
        return True
    return defs.has(operator, domain) and defs.get_schema(operator, domain).has_function


def _type(kind: Any) -> str:
    if not kind.HasField("tensor_type"):
        return str(kind.WhichOneof("value") or "unknown").removesuffix("_type")
    tensor = kind.tensor_type
    dtype = str(NUMPY_TYPES.get(tensor.elem_type, "unknown")).replace("object", "string")
    if not tensor.HasField("shape"):
        return dtype
    sizes = [
        d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
        for d in tensor.shape.dim
    ]
    return f"{dtype}[{', '.join(sizes)}]"
