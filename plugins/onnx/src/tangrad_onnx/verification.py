"""Run a model's file, and find where its values leave the program's."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, helper

import tangrad
from tangrad import Tensor
from tangrad.fx import Interpreter
from tangrad.utils import _pytree
from tangrad_onnx.errors import OnnxExporterError
from tangrad_onnx.values import to_array
from tangrad_onnx.writing.graph import type_of
from tangrad_onnx.writing.program import Written

__all__ = ["close", "first_difference", "run_by_reference", "run_model"]

_TOLERANCES = {
    tangrad.float16: 1e-2,
    tangrad.bfloat16: 4e-2,
    tangrad.float32: 1e-3,
    tangrad.float64: 1e-6,
}


def run_model(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Run a model in onnxruntime, or in the reference evaluator where that is missing.

    Args:
        model: the message.
        feeds: {input: array}.

    Raises:
        OnnxExporterError: onnxruntime refuses the model.
    """
    try:
        import onnxruntime
    except ImportError:
        return run_by_reference(model, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, feeds))
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "Type Error" not in str(error):
            raise OnnxExporterError(f"onnxruntime refuses the model: {error}") from error
    return run_by_reference(model, feeds)


def run_by_reference(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Run a model in the reference evaluator of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, feeds))


def close(expected: Tensor, found: Any) -> bool:
    """Return whether an array is a tensor's within the rounding of its dtype."""
    if tuple(expected.shape) != found.shape:
        return False
    rtol = _TOLERANCES.get(expected.dtype)
    want = to_array(expected)
    if expected.dtype is tangrad.uint8:  # levels of pictures, or quantized: rounded at other steps
        return bool((np.abs(want.astype(np.int16) - found.astype(np.int16)) <= 1).all())
    if rtol is None:
        return bool(np.array_equal(want, found, equal_nan=want.dtype.kind == "c"))
    want, have = want.astype(np.float64), found.astype(np.float64)
    largest = float(np.abs(want[np.isfinite(want)]).max(initial=1.0))
    return bool(np.allclose(have, want, rtol=rtol, atol=rtol * 0.1 * largest, equal_nan=True))


class _Recorded(Interpreter):
    """Keeps a copy of each call's value, which a later call may write into."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.calls: list[Any] = []

    def run_node(self, n: Any) -> Any:
        value = super().run_node(n)
        if n.op.startswith("call"):
            self.calls.append(value.detach().clone() if isinstance(value, Tensor) else None)
        return value


def first_difference(written: Written, args: Any, kwargs: Any, feeds: dict[str, Any]) -> str | None:
    """Return the first value of the graph that is not the program's.

    Args:
        written: the model and its program.
        args, kwargs: arguments of the program.
        feeds: the same as {input of the model: array}.

    Returns:
        The value's name; None if none differs that both have.
    """
    recorded = _Recorded(written.program.module(check_guards=False))
    with tangrad.no_grad():
        leaves = _pytree.tree_leaves((args, kwargs))
        recorded.run(*leaves, enable_io_processing=False)
    wanted: dict[str, Tensor] = {}
    for name, value in zip(written.values, recorded.calls, strict=True):
        if name is not None and isinstance(value, Tensor) and not value.is_complex():
            wanted.setdefault(name, value)
    whole = ModelProto()
    whole.CopyFrom(written.model)
    computed = {name for node in whole.graph.node for name in node.output}
    names = [name for name in wanted if name in computed]
    del whole.graph.output[:]
    whole.graph.output.extend(
        helper.make_tensor_value_info(name, type_of(wanted[name].dtype), None) for name in names
    )
    found = run_model(whole, feeds)
    for name, array in zip(names, found, strict=True):
        if not close(wanted[name], np.asarray(array)):
            return name
    return None
