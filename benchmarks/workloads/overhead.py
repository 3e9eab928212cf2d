"""What a call costs when the tensors are tiny."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from workloads import networks
from workloads.workload import Prepare, Workload, fill, inputs

FOUR = (4,)
SQUARE = (4, 4)
CHAIN = 1000
PARAMETERS = 20
LAYERS = 12
STEPS = 100
HIDDEN = 32

pair = inputs(a=FOUR, b=FOUR)
recorded = inputs(leaves="a", a=FOUR, b=FOUR)
square = inputs(m=SQUARE, n=SQUARE)


def values(fw: Any) -> dict[str, Any]:
    return {"values": [1.0, 2.0, 3.0, 4.0], "array": numpy.ones(4, "float32")}


def linear(fw: Any) -> dict[str, Any]:
    return {"layer": fill(fw, fw.nn.Linear(4, 4)), "x": inputs(x=SQUARE)(fw)["x"]}


def chained_adds(fw: Any) -> dict[str, Any]:
    def run(a: Any, b: Any) -> None:
        z = a
        for _ in range(CHAIN):
            z = z + b
        z.sum().backward()

    return {"run": run, **recorded(fw)}


def parameters(fw: Any) -> list[Any]:
    """Return small parameters with gradients."""
    made = []
    for seed in range(PARAMETERS):
        parameter = fw.nn.Parameter(inputs(**{f"p{seed}": (8, 8)})(fw)[f"p{seed}"])
        parameter.grad = fw.ones(8, 8)
        made.append(parameter)
    return made


def optimizer(name: str, **options: Any) -> Prepare:
    return lambda fw: {"optimizer": getattr(fw.optim, name)(parameters(fw), lr=1e-3, **options)}


def clipping(fw: Any) -> dict[str, Any]:
    made = parameters(fw)
    sgd = fw.optim.SGD(made, lr=1e-3)

    def run() -> None:
        fw.nn.utils.clip_grad_norm_(made, 1.0)
        sgd.zero_grad(set_to_none=False)

    return {"run": run}


def twelve(fw: Any) -> Callable[[], Any]:
    """Return what builds the twelve layers of a small transformer."""
    layer = networks.classes(fw).Block
    return lambda: fw.nn.Sequential(*(layer(32, 4) for _ in range(LAYERS)))


def state(fw: Any) -> dict[str, Any]:
    return {"layers": twelve(fw)()}


def recurrent(fw: Any) -> dict[str, Any]:
    layer = fill(fw, fw.nn.LSTM(HIDDEN, HIDDEN))
    return {"layer": layer, "x": inputs(x=(STEPS, 1, HIDDEN))(fw)["x"]}


def cell(fw: Any) -> dict[str, Any]:
    layer = fill(fw, fw.nn.LSTMCell(HIDDEN, HIDDEN))
    x = inputs(x=(STEPS, 1, HIDDEN))(fw)["x"]

    def run() -> Any:
        hidden = (fw.zeros(1, HIDDEN), fw.zeros(1, HIDDEN))
        for step in range(STEPS):
            hidden = layer(x[step], hidden)
        return hidden

    return {"run": run}


TINY_BY_HAND = (
    "h = x @ w + b; m = h > 0; r = h * m; y = r @ v; "
    "g = fw.ones_like(y); gv = r.T @ g; gh = (g @ v.T) * m; gb = gh.sum(0); gw = x.T @ gh"
)

WORKLOADS = [
    Workload("add, 4 floats", "a + b", pair, 0.25, numpy="a + b"),
    Workload("add, recorded", "a + b", recorded, 0.3),
    Workload("add, in place", "a.add_(b)", pair, 0.25, numpy="fw.add(a, b, a)"),
    Workload("add of a Python float", "a + 2.0", pair, 0.15, numpy="a + 2.0"),
    Workload("view", "m.view(16)", square, 0.3, numpy="m.reshape(16)"),
    Workload("x[0]", "a[0]", pair, 0.3, numpy="a[0]"),
    Workload("x[1:3]", "a[1:3]", pair, 0.3, numpy="a[1:3]"),
    Workload("t()", "m.t()", square, 0.3, numpy="m.T"),
    Workload("sum, 4 floats", "a.sum()", pair, 0.35, numpy="a.sum()"),
    Workload("relu, 4 floats", "fw.relu(a)", pair, 0.35, numpy="fw.maximum(a, 0)"),
    Workload("softmax 4×4", "fw.softmax(m, 1)", square, 0.35),
    Workload("matmul 4×4", "m @ n", square, 0.35, numpy="m @ n"),
    Workload("cat", "fw.cat((a, b))", pair, 0.35, numpy="fw.concatenate((a, b))"),
    Workload("empty", "fw.empty(3)", pair, 0.3, numpy="fw.empty(3)", checked=False),
    Workload("tensor(list)", "fw.tensor(values)", values, 0.3, numpy="fw.array(values)"),
    Workload("from_numpy + numpy", "fw.from_numpy(array).numpy()", values, 0.3),
    Workload("Linear(4, 4)", "layer(x)", linear, 0.3),
    Workload("tiny forward + backward", "(((x @ w + b).relu()) @ v).sum().backward()",
             inputs(leaves="w b v", x=SQUARE, w=SQUARE, b=FOUR, v=SQUARE), 0.25,
             numpy=TINY_BY_HAND),
    Workload("SGD, 20 of 8×8", "optimizer.step()", optimizer("SGD"), 0.25),
    Workload("SGD momentum, 20 of 8×8", "optimizer.step()", optimizer("SGD", momentum=0.9), 0.15),
    Workload("Adam, 20 of 8×8", "optimizer.step()", optimizer("Adam"), 0.1),
    Workload("AdamW, 20 of 8×8", "optimizer.step()", optimizer("AdamW"), 0.1),
    Workload("zero_grad + clip_grad_norm", "run()", clipping, 0.3),
    Workload("1,000 adds + backward", "run(a, b)", chained_adds, 0.3),
    Workload("state_dict + load, 12 layers", "layers.load_state_dict(layers.state_dict())",
             state, 0.5, checked=False),
    Workload("building 12 layers", "build()", lambda fw: {"build": twelve(fw)}, 0.5,
             checked=False),
    Workload("LSTM(32), 100 steps", "layer(x)", recurrent, 0.5),
    Workload("LSTM(32), 100 steps, fwd + bwd", "layer(x)[0].sum().backward()", recurrent, 0.5),
    Workload("LSTMCell(32), 100 steps", "run()", cell, 0.35),
]  # fmt: skip
