"""Networks that only answer, PyTorch's and onnxruntime's times beside ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy

from workloads import networks
from workloads.workload import Cost, Prepare, Workload, fill, inputs, integers, normal, threads

STACK = (1024, 4096, 1024, 4096, 1024)
DIGITS = (784, 256, 10)
# Products of one example: multiplications and additions.
RESNET_50_FLOPS = 2 * 4.09e9
BERT_FLOPS = 2.0 * 128 * 12 * (12 * 768**2 + 2 * 128 * 768)
GPT_FLOPS = 2.0 * 128 * (4 * (12 * 128**2 + 128 * 128) + 128 * networks.VOCABULARY)


def answering(build: Callable[[Any], Any], make: Prepare, int8: bool = False) -> Prepare:
    """Prepare a model in eval mode and what `make` makes, whose first value it is asked with."""

    def prepare(fw: Any) -> dict[str, Any]:
        model = fill(fw, build(fw)).eval()
        if int8:
            model = fw.ao.quantization.quantize_dynamic(model, {fw.nn.Linear}, fw.qint8)
        (x,) = make(fw).values()

        def run() -> Any:
            with fw.inference_mode():
                return model(x)

        return {"run": run}

    return prepare


def tokens(count: int) -> Prepare:
    return lambda fw: {"x": fw.tensor(integers(networks.VOCABULARY, (1, count)))}


def resnet(fw: Any) -> Any:
    return networks.resnet(fw, 50)


def bert(fw: Any) -> Any:
    return networks.classes(fw).Transformer(12, 768, 12, 30522, 512, causal=False)


def linear_stack(fw: Any) -> Any:
    return networks.perceptron(fw, *STACK)


def digits(fw: Any) -> Any:
    return networks.perceptron(fw, *DIGITS)


def decoding(
    layers: int, width: int, count: int, change: Callable[[Any, Any], None] | None = None
) -> Prepare:
    """Prepare a transformer that writes `count` tokens, keeping keys and values.

    Args:
        layers, width: of the transformer.
        count: of the tokens.
        change: what is done to the model first, given the framework and the model.
    """

    def prepare(fw: Any) -> dict[str, Any]:
        model = fill(fw, networks.gpt(fw, layers, width)).eval()
        if change is not None:
            change(fw, model)
        start = fw.tensor(integers(networks.VOCABULARY, (1, 1)))

        def run() -> Any:
            token, pasts = start, [[] for _ in range(layers)]
            with fw.inference_mode():
                for place in range(count):
                    logits = model(token, pasts, place)
                    token = logits[:, -1].argmax(-1, keepdim=True)
            return logits

        return {"run": run}

    return prepare


def recurrent_decoding(fw: Any) -> dict[str, Any]:
    model = fill(fw, networks.classes(fw).Language(128)).eval()
    start = fw.tensor(integers(networks.VOCABULARY, (1, 1)))

    def run() -> Any:
        token, state = start, None
        with fw.inference_mode():
            for _ in range(64):
                logits, state = model(token, state)
                token = logits[:, -1].argmax(-1, keepdim=True)
        return logits

    return {"run": run}


def onnx_perceptron(widths: tuple[int, ...], rows: int, int8: bool) -> Callable[[], Any]:
    """Return what makes onnxruntime's form of the perceptron."""

    def make() -> Callable[[], Any]:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper, save

        nodes, constants, name = [], [], "x"
        for layer, (inside, outside) in enumerate(pairwise(widths)):
            weight = normal((inside, outside)) * numpy.float32(inside**-0.5)
            bias = normal((outside,)) * numpy.float32(0.01)
            parts = {f"w{layer}": weight, f"b{layer}": bias}
            constants += [numpy_helper.from_array(value, key) for key, value in parts.items()]
            nodes.append(helper.make_node("MatMul", [name, f"w{layer}"], [f"p{layer}"]))
            nodes.append(helper.make_node("Add", [f"p{layer}", f"b{layer}"], [f"s{layer}"]))
            name = f"s{layer}"
            if layer < len(widths) - 2:
                nodes.append(helper.make_node("Relu", [name], [f"r{layer}"]))
                name = f"r{layer}"
        shapes = {"x": (rows, widths[0]), name: (rows, widths[-1])}
        ends = [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape)
                for key, shape in shapes.items()]  # fmt: skip
        graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads()
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            save(model, path)
            if int8:
                path = quantised(path)
            session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        feed = {"x": normal((rows, widths[0]))}
        return lambda: session.run(None, feed)

    return make


def quantised(path: str) -> str:
    """Write the int8 form of an ONNX file beside it; return its path."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    result = path.replace(".onnx", "-int8.onnx")
    quantize_dynamic(path, result, weight_type=QuantType.QInt8)
    return result


def perceptrons(int8: bool) -> list[Workload]:
    """Return stacks of linear layers, in float32 or in int8."""
    weights = sum(a * b for a, b in pairwise(STACK))
    goals = {1: (0.34, 0.34), 16: (0.41, 0.41), 128: (0.36, 1.0)}
    if int8:
        goals = {1: (0.6, 0.65), 16: (0.84, 0.5), 128: (0.86, 0.33)}
    return [
        Workload(f"linear 1024-4096 ×4 b{rows}{', int8' if int8 else ''}", "run()",
                 answering(linear_stack, inputs(x=(rows, STACK[0])), int8), amd, intel,
                 Cost(weights * (1 if int8 else 4), 2.0 * rows * weights,
                      "int8" if int8 else "float32"),
                 peers={"onnxruntime": onnx_perceptron(STACK, rows, int8)},
                 tolerance=0.1 if int8 else 0.01)
        for rows, (amd, intel) in goals.items()
    ]  # fmt: skip


def networks_asked() -> list[Workload]:
    """Return whole networks, asked once."""
    picture = (3, 224, 224)
    gpt = answering(networks.gpt, tokens(128))
    return [
        Workload("ResNet-50 224 b1", "run()", answering(resnet, inputs(x=(1, *picture))), 0.6,
                 0.55, Cost(0, RESNET_50_FLOPS)),
        Workload("ResNet-50 224 b8", "run()", answering(resnet, inputs(x=(8, *picture))), 0.37,
                 0.45, Cost(0, 8 * RESNET_50_FLOPS)),
        Workload("BERT-base 128 tokens b1", "run()", answering(bert, tokens(128)), 0.47, 0.9,
                 Cost(0, BERT_FLOPS)),
        Workload("char-GPT 4×128 T128 b1", "run()", gpt, 0.5, 0.7, Cost(0, GPT_FLOPS)),
        Workload("MLP 784-256-10 b1", "run()", answering(digits, inputs(x=(1, 784))), 0.38,
                 cost=Cost(4 * (784 * 256 + 2560)),
                 peers={"onnxruntime": onnx_perceptron(DIGITS, 1, False)}),
    ]  # fmt: skip


def decoders() -> list[Workload]:
    """Return models that write token by token: each token reads every weight."""
    small, large = 4 * 4 * 12 * 128**2, 4 * 12 * 12 * 768**2
    return [
        Workload("decode GPT 4×128, 64 tokens", "run()", decoding(4, 128, 64), 0.4,
                 cost=Cost(64 * small)),
        Workload("decode GPT 12×768, 8 tokens", "run()", decoding(12, 768, 8), 0.8,
                 cost=Cost(8 * large)),
        Workload("decode LSTM 128, 64 tokens", "run()", recurrent_decoding, 0.4,
                 cost=Cost(64 * 4 * 8 * 128**2)),
    ]  # fmt: skip


WORKLOADS = [*networks_asked(), *perceptrons(int8=False), *decoders()]
