"""Integers: convolutions and networks, statically and dynamically quantized, and weights alone.

The float rows that these stand beside are in `inference.py`. `run.py --only quantization` takes
them all; `TANGRAD_CPU_ISA=avx2` shows our times without AVX-512.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy

from workloads import inference, onnx_models
from workloads.workload import Cost, Prepare, Workload, fill, normal, threads

# name: channels in and out, kernel, stride, padding, groups, size of the picture
CONVOLUTIONS = {
    "conv 3×3 64→64 56²": (64, 64, 3, 1, 1, 1, 56),
    "conv 1×1 64→256 56²": (64, 256, 1, 1, 0, 1, 56),
    "conv 1×1 256→64 56²": (256, 64, 1, 1, 0, 1, 56),
    "conv 3×3 512→512 7²": (512, 512, 3, 1, 1, 1, 7),
    "conv 7×7/2 3→64 224²": (3, 64, 7, 2, 3, 1, 224),
    "conv 3×3 128 depthwise 56²": (128, 128, 3, 1, 1, 128, 56),
}
STEP, MIDDLE = 0.03, 128
DECODING = (768, 3072)


def quiet(function: Callable[..., Any], *args: Any) -> Any:
    """Call without the warnings of deprecated names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args)


def weight_of(case: tuple[int, ...]) -> numpy.ndarray:
    """Return integers of a convolution's weight, below 64: PyTorch's depthwise sums saturate."""
    inside, outside, kernel, _, _, groups, _ = case
    numbers = normal((outside, inside // groups, kernel, kernel), 1)
    return (numbers * 20).round().clip(-63, 63).astype("int8")


def convolving(case: tuple[int, ...]) -> Prepare:
    """Prepare a quantized convolution, channels last."""

    def prepare(fw: Any) -> dict[str, Any]:
        inside, outside, kernel, stride, padding, groups, size = case
        nnq = fw.ao.nn.quantized
        module = quiet(nnq.Conv2d, inside, outside, kernel, stride, padding, 1, groups)
        scales = fw.full((outside,), 0.003, dtype=fw.float64)
        zeros = fw.zeros(outside, dtype=fw.int64)
        weight = fw.from_numpy(weight_of(case)).to(fw.float32) * 0.003
        quantized = quiet(fw.quantize_per_channel, weight, scales, zeros, 0, fw.qint8)
        module.set_weight_bias(quantized, None)
        module.scale, module.zero_point = 0.1, MIDDLE
        x = fw.from_numpy(normal((1, inside, size, size)))
        x = quiet(fw.quantize_per_tensor, x, STEP, MIDDLE, fw.quint8)
        x = x.contiguous(memory_format=fw.channels_last)
        return {"run": lambda: module(x).dequantize()}

    return prepare


def onnx_convolution(case: tuple[int, ...]) -> Callable[[], Any]:
    """Return what makes onnxruntime's form of a quantized convolution."""

    def make() -> Callable[[], Any]:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        inside, outside, kernel, stride, padding, groups, size = case
        out = (size + 2 * padding - kernel) // stride + 1
        constants = {
            "step": numpy.float32(STEP),
            "middle": numpy.uint8(MIDDLE),
            "w": weight_of(case),
            "steps": numpy.full(outside, 0.003, "float32"),
            "zeros": numpy.zeros(outside, "int8"),
            "end": numpy.float32(0.1),
        }
        node = helper.make_node(
            "QLinearConv",
            ["x", "step", "middle", "w", "steps", "zeros", "end", "middle"],
            ["y"],
            strides=[stride] * 2,
            pads=[padding] * 4,
            group=groups,
        )
        ends = [
            helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
            for name, shape in (
                ("x", (1, inside, size, size)),
                ("y", (1, outside, out, out)),
            )
        ]
        held = [numpy_helper.from_array(numpy.asarray(v), k) for k, v in constants.items()]
        graph = helper.make_graph([node], "convolution", ends[:1], ends[1:], held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads()
        options.log_severity_level = 3
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        numbers = normal((1, inside, size, size)) / numpy.float32(STEP) + MIDDLE
        feed = {"x": numbers.round().clip(0, 255).astype("uint8")}
        return lambda: session.run(None, feed)

    return make


def static_network(batch: int) -> Prepare:
    """Prepare ResNet-50, quantized by its graph after it saw one image."""

    def prepare(fw: Any) -> dict[str, Any]:
        import importlib

        graphs = importlib.import_module(f"{fw.__name__}.ao.quantization.quantize_fx")
        model = fill(fw, inference.resnet(fw)).eval()
        x = fw.from_numpy(normal((batch, 3, 224, 224)))
        mapping = quiet(fw.ao.quantization.get_default_qconfig_mapping, "x86")
        made = quiet(graphs.prepare_fx, model, mapping, (x[:1],))
        with fw.no_grad():
            quiet(made, x[:1])
        made = quiet(graphs.convert_fx, made)

        def run() -> Any:
            with fw.inference_mode():
                return made(x)

        return {"run": run}

    return prepare


def layers_of_decoding(change: Callable[[Any, Any], None] | None = None) -> Prepare:
    """Prepare the layers of a transformer at one token."""

    def prepare(fw: Any) -> dict[str, Any]:
        width, wide = DECODING
        layers = [
            fw.nn.Linear(*((width, wide) if n % 2 == 0 else (wide, width))) for n in range(12)
        ]
        model = fill(fw, fw.nn.Sequential(*layers)).eval()
        if change is not None:
            change(fw, model)
        x = fw.from_numpy(normal((1, width)))

        def run() -> Any:
            with fw.inference_mode():
                return model(x)

        return {"run": run}

    return prepare


def our_float(prepare: Prepare) -> Callable[[], Callable[[], Any]]:
    """Return what makes our own float form, for the ratio that the goal is about."""

    def make() -> Callable[[], Any]:
        import tangrad

        run: Callable[[], Any] = prepare(tangrad)["run"]
        return run

    return make


def in_few_bits(bits: int) -> Callable[[Any, Any], None]:
    """Return what quantizes the weights of our model, and leaves PyTorch's alone."""

    def change(fw: Any, model: Any) -> None:
        if fw.__name__ == "tangrad":
            from tangrad_quantization import weights_only

            four, eight = weights_only.Int4WeightOnlyConfig(), weights_only.Int8WeightOnlyConfig()
            weights_only.quantize_(model, four if bits == 4 else eight)

    return change


def products(case: tuple[int, ...]) -> float:
    """Return the multiplications and additions of a convolution."""
    inside, outside, kernel, stride, padding, groups, size = case
    out = (size + 2 * padding - kernel) // stride + 1
    return 2.0 * outside * out * out * kernel * kernel * inside / groups


def weights_alone(name: str, make: Callable[..., Prepare], weights: float) -> list[Workload]:
    """Return rows of few bits: PyTorch has float, as what they are measured by has too."""
    return [
        Workload(f"{name}, weights of {bits} bits", "run()", make(in_few_bits(bits)), 0.4,
                 cost=Cost(weights * bits // 8, 2.0 * weights), checked=False,
                 peers={"our float": our_float(make(None))})
        for bits in (8, 4)
    ]  # fmt: skip


WORKLOADS = [
    *(
        Workload(f"{name}, int8", "run()", convolving(case), 1.0,
                 cost=Cost(0, products(case), "int8"),
                 peers={"onnxruntime": onnx_convolution(case)}, tolerance=0.1)
        for name, case in CONVOLUTIONS.items()
    ),
    *(
        Workload(f"ResNet-50 224 b{batch}, static int8", "run()", static_network(batch), 1.0,
                 cost=Cost(0, batch * inference.RESNET_50_FLOPS, "int8"), tolerance=0.3,
                 peers={"onnxruntime": onnx_models.static(inference.resnet, (batch, 3, 224, 224))})
        for batch in (1, 8)
    ),
    Workload("BERT-base 128 tokens b1, int8", "run()",
             inference.answering(inference.bert, inference.tokens(128), True), 0.95, 0.6,
             Cost(0, inference.BERT_FLOPS, "int8"), tolerance=0.2,
             peers={"onnxruntime": onnx_models.dynamic(inference.bert, inference.tokens(128))}),
    *inference.perceptrons(int8=True),
    *weights_alone("linear 768-3072 ×12 b1", layers_of_decoding, 12 * DECODING[0] * DECODING[1]),
    *weights_alone("decode GPT 12×768, 8 tokens",
                   lambda change: inference.decoding(12, 768, 8, change), 8.0 * 12 * 12 * 768**2),
]  # fmt: skip
