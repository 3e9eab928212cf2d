"""Run a graph once on examples and note the shape of every value."""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad
from tangrad_fx.interpreter import Interpreter
from tangrad_fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is noted of a tensor.

    Attributes:
        shape, dtype, requires_grad, stride, memory_format: as the tensor has them.
        is_quantized, qparams: of a quantized tensor how it is scaled.
    """

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS = (tangrad.contiguous_format, tangrad.channels_last, tangrad.channels_last_3d)


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    memory_format = None
    if include_contiguity:
        memory_format = next((f for f in _FORMATS if _is_of(result, f)), None)
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride(),
        memory_format,
        result.is_quantized,
        _scaling(result) if result.is_quantized else {},
    )


def _is_of(t: Any, memory_format: Any) -> bool:
    dimensions = {tangrad.channels_last: 4, tangrad.channels_last_3d: 5}.get(memory_format)
    if dimensions is not None and t.dim() != dimensions:
        return False
    return bool(t.is_contiguous(memory_format=memory_format))


def _scaling(t: Any) -> dict[str, Any]:
    if "per_tensor" in str(t.qscheme()):
        return {"qscheme": t.qscheme(), "scale": t.q_scale(), "zero_point": t.q_zero_point()}
    return {
        "qscheme": t.qscheme(),
        "scale": t.q_per_channel_scales().tolist(),
        "zero_point": t.q_per_channel_zero_points().tolist(),
        "axis": t.q_per_channel_axis(),
    }


class ShapeProp(Interpreter):
    """Run a module's graph on examples; nodes get `meta["tensor_meta"]` and `meta["type"]`.

    Args:
        gm: the module.
        fake_mode: mode in which nothing is computed, or None.
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n: Node) -> Any:
        """Run one node and note its value's shape."""
        if self.fake_mode is None:
            result = super().run_node(n)
        else:
            with self.fake_mode:
                result = super().run_node(n)
        found = False

        def noted(value: Any) -> Any:
            nonlocal found
            if isinstance(value, tangrad.Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, noted)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on examples and return what it returns."""
        if self.fake_mode is not None:
            args = tuple(
                self.fake_mode.from_tensor(a) if isinstance(a, tangrad.Tensor) else a for a in args
            )
        return super().run(*args)
