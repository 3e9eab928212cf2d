"""Whole training steps: forward, loss, backward, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads import networks
from workloads.workload import Cost, Prepare, Workload, fill, inputs, integers, normal

DIGITS = (64, 64)
PICTURES = (64, 1, 28, 28)
SMALL_PICTURES = (16, 3, 32, 32)
VOCABULARY = networks.VOCABULARY


def classifying(
    build: Callable[[Any], Any], shape: tuple[int, ...], optimizer: str, **options: float
) -> Prepare:
    """Prepare steps of a classifier of `shape` into ten classes."""

    def prepare(fw: Any) -> dict[str, Any]:
        x = inputs(x=shape)(fw)["x"]
        labels = fw.tensor(integers(10, shape[:1]))
        return {"step": stepping(fw, build(fw), optimizer, options, lambda model: model(x), labels)}

    return prepare


def predicting(
    build: Callable[[Any], Any],
    batch: int,
    length: int,
    optimizer: str,
    pick: Callable[[Any], Any] = lambda result: result,
) -> Prepare:
    """Prepare steps of a model that predicts the next token; `pick` takes the logits."""

    def prepare(fw: Any) -> dict[str, Any]:
        text = fw.tensor(integers(VOCABULARY, (batch, length + 1)))
        x, labels = text[:, :-1].contiguous(), text[:, 1:].reshape(-1)

        def logits(model: Any) -> Any:
            return pick(model(x)).reshape(-1, VOCABULARY)

        return {"step": stepping(fw, build(fw), optimizer, {"lr": 1e-3}, logits, labels)}

    return prepare


def autoencoding(fw: Any) -> dict[str, Any]:
    """Prepare steps of a variational autoencoder by Adam."""
    model = fill(fw, networks.classes(fw).Autoencoder())
    x = fw.tensor(abs(normal((128, 784))) % 1)
    update = fw.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Any:
        update.zero_grad()
        loss = model(x)
        loss.backward()
        update.step()
        return loss

    return {"step": step}


def stepping(
    fw: Any,
    model: Any,
    optimizer: str,
    options: dict[str, float],
    logits: Callable[[Any], Any],
    labels: Any,
) -> Callable[[], Any]:
    """Return a function that trains by one step and returns the loss before it."""
    fill(fw, model)
    update = getattr(fw.optim, optimizer)(model.parameters(), **options)
    criterion = fw.nn.CrossEntropyLoss()

    def step() -> Any:
        update.zero_grad()
        loss = criterion(logits(model), labels)
        loss.backward()
        update.step()
        return loss

    return step


def mlp(fw: Any) -> Any:
    return networks.perceptron(fw, 64, 128, 10)


def resnet(fw: Any) -> Any:
    return networks.resnet(fw, 18)


def language(fw: Any) -> Any:
    return networks.classes(fw).Language(128)


def first(result: tuple[Any, Any]) -> Any:
    return result[0]


# Three products per weight and example: the result, the input's gradient, the weight's.
MLP_FLOPS = 6.0 * 64 * (64 * 128 + 128 * 10)
LENET_FLOPS = 6.0 * 64 * (784 * 25 * 32 + 196 * 32 * 25 * 64 + 3136 * 256 + 2560)
RESNET_FLOPS = 6.0 * 16 * 555e6
GPT_FLOPS = 6.0 * 8 * 128 * (4 * (12 * 128**2 + 128 * 128) + 128 * VOCABULARY)
LSTM_FLOPS = 6.0 * 16 * 64 * (8 * 128**2 + 128 * VOCABULARY)

PREPARED = {
    "MLP on digits b64, SGD": classifying(mlp, DIGITS, "SGD", lr=0.1),
    "MLP on digits b64, AdamW": classifying(mlp, DIGITS, "AdamW"),
    "LeNet 28×28 b64": classifying(networks.lenet, PICTURES, "SGD", lr=0.01),
    "ResNet-18 32×32 b16": classifying(resnet, SMALL_PICTURES, "SGD", lr=0.01),
    "char-GPT 4×128 T128 b8, SGD": predicting(networks.gpt, 8, 128, "SGD"),
    "char-GPT 4×128 T128 b8, AdamW": predicting(networks.gpt, 8, 128, "AdamW"),
    "LSTM LM 128 T64 b16": predicting(language, 16, 64, "SGD", first),
}
REACH = {  # goals on AMD and Intel, flops
    "MLP on digits b64, SGD": (0.4, 0.35, MLP_FLOPS),
    "MLP on digits b64, AdamW": (0.3, 0.25, MLP_FLOPS),
    "LeNet 28×28 b64": (0.25, 0.3, LENET_FLOPS),
    "ResNet-18 32×32 b16": (0.6, 0.75, RESNET_FLOPS),
    "char-GPT 4×128 T128 b8, SGD": (0.45, 0.7, GPT_FLOPS),
    "char-GPT 4×128 T128 b8, AdamW": (0.45, 0.7, GPT_FLOPS),
    "LSTM LM 128 T64 b16": (0.6, 0.6, LSTM_FLOPS),
}

WORKLOADS = [
    Workload(name, "step()", prepare, *REACH[name][:2], Cost(0, REACH[name][2]))
    for name, prepare in PREPARED.items()
]
