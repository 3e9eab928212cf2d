"""Small models for graph mode, as pairs of PyTorch's and ours."""

from __future__ import annotations

import torch
import torch.ao.quantization.quantize_fx as their_fx
from quantized_pairs import data, models, ours, quiet, theirs

import tangrad
import tangrad.ao.quantization.quantize_fx as our_fx


def maker(layers, forward):
    """Return a function `(nn, quantization) -> model` for `models`.

    Args:
        layers: name -> function of nn that makes the layer.
        forward: `(model, nn, framework, x)` or `(model, nn, framework, x, y)`.
    """

    def make(nn, _):
        framework = torch if nn is torch.nn else tangrad

        class One(nn.Module):
            def __init__(self):
                super().__init__()
                for name, layer in layers.items():
                    setattr(self, name, layer(nn))

            def forward(self, x):
                return forward(self, nn, framework, x)

        class Two(One):
            def forward(self, x, y):
                return forward(self, nn, framework, x, y)

        return One() if forward.__code__.co_argcount == 4 else Two()

    return make


def static(q):
    return q.get_default_qconfig_mapping("fbgemm")


def dynamic(q):
    return q.QConfigMapping().set_global(q.default_dynamic_qconfig)


def trained(q):
    return q.get_default_qat_qconfig_mapping("fbgemm")


def prepared(make, mapping, inputs, qat=False, **extra):
    """Return prepared models of both sides that have seen the inputs."""
    pair = []
    name = "prepare_qat_fx" if qat else "prepare_fx"
    sides = zip((theirs, ours), (their_fx, our_fx), models(make), strict=True)
    for q, fx, model in sides:
        model.train(qat)
        made = quiet(getattr(fx, name), model, mapping(q), (None,), **extra)
        for arrays in inputs:
            quiet(made, *map((torch if q is theirs else tangrad).from_numpy, arrays))
        pair.append(made.eval())
    return pair


def converted(pair, name="convert_fx", **extra):
    fxs = (their_fx, our_fx)
    return [quiet(getattr(fx, name), m, **extra) for fx, m in zip(fxs, pair, strict=True)]


def calls(model):
    """Return what a graph calls, by short names that both sides have."""
    same = {"add_scalar": "add", "add_scalar_relu": "add_relu", "mul_scalar": "mul"}
    made = []
    for node in model.graph.nodes:
        if node.op == "call_module":
            made.append(type(model.get_submodule(node.target)).__name__)
        elif node.op in ("call_method", "call_function"):
            name = getattr(node.target, "__name__", str(node.target)).split(".")[-1]
            made.append(same.get(name, name))
    return made


def first(result):
    return first(result[0]) if isinstance(result, tuple) else result.detach()


def batches(*shapes, count=3):
    return [[data(*shape, seed=7 * n + k) for k, shape in enumerate(shapes)] for n in range(count)]
