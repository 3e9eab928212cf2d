"""Whole networks for onnxruntime: PyTorch's, exported, and quantized by onnxruntime's own tools."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workloads.workload import Prepare, fill, normal, threads


def exported(build: Callable[[Any], Any], x: Any, path: Path) -> None:
    """Write a PyTorch model as an ONNX file.

    Every parameter differs from all others: the exporter would write what is equal once, and fewer
    weights are read faster.
    """
    import torch

    class OneInput(torch.nn.Module):  # type: ignore[misc]
        """The model, whose further arguments would become inputs too."""

        def __init__(self) -> None:
            super().__init__()
            self.whole = fill(torch, build(torch))

        def forward(self, x: Any) -> Any:
            return self.whole(x)

    model = OneInput().eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, parameter in enumerate(model.parameters()):
            parameter += 1e-6 * number
        torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17)


def asked(path: Path, x: Any) -> Callable[[], Any]:
    """Return what runs the model of a file on x."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feed)


def dynamic(build: Callable[[Any], Any], make: Prepare) -> Callable[[], Callable[[], Any]]:
    """Return what makes a model whose products are quantized in each call.

    Args:
        build: makes the model of a framework.
        make: makes what it is asked with.
    """

    def prepared() -> Callable[[], Any]:
        import torch
        from onnxruntime.quantization import QuantType, quantize_dynamic

        (x,) = make(torch).values()
        with tempfile.TemporaryDirectory() as folder:
            whole, small = Path(folder, "whole.onnx"), Path(folder, "small.onnx")
            exported(build, x, whole)
            quantize_dynamic(whole, small, weight_type=QuantType.QInt8)
            return asked(small, x.numpy())

    return prepared


def static(build: Callable[[Any], Any], shape: tuple[int, ...]) -> Callable[[], Callable[[], Any]]:
    """Return what makes a model quantized after it saw one batch.

    Args:
        build: makes the model of a framework.
        shape: of the batch.
    """

    def prepared() -> Callable[[], Any]:
        import torch
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

        x = normal(shape)

        class Batches(CalibrationDataReader):  # type: ignore[misc]
            """One batch, once."""

            def __init__(self, name: str) -> None:
                self.left: Iterator[Any] = iter([{name: x}])

            def get_next(self) -> Any:
                return next(self.left, None)

        with tempfile.TemporaryDirectory() as folder:
            whole, small = Path(folder, "whole.onnx"), Path(folder, "small.onnx")
            exported(build, torch.from_numpy(x), whole)
            quantize_static(
                whole,
                small,
                Batches(_input_of(whole)),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
            return asked(small, x)

    return prepared


def _input_of(path: Path) -> str:
    import onnx

    name: str = onnx.load(str(path), load_external_data=False).graph.input[0].name
    return name
