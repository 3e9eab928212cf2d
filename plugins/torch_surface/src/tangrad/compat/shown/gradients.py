"""Steps of backward that are one fused op here: as the ops that PyTorch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tangrad
from tangrad.compat.shown.forms import SELU, SOURCES
from tangrad.compat.shown.packets import call
from tangrad.compat.shown.recorded import RULES
from tangrad.plugin import current

_Named = Mapping[str, Any]


def _power(n: _Named) -> Any:
    exponent = n["exponent"]
    if isinstance(exponent, tangrad.Tensor):
        return n["g"] * tangrad.where(exponent == 0, 0, n["self"] ** (exponent - 1) * exponent)
    if exponent == 0:
        return tangrad.zeros_like(n["g"])
    return n["g"] * (n["self"] ** (exponent - 1) * exponent)


def _chosen(n: _Named) -> Any:
    return tangrad.where(n["condition"], n["g"], 0)


def _left(n: _Named) -> Any:
    return tangrad.where(n["condition"], 0, n["g"])


def _within(n: _Named) -> Any:
    return tangrad.where((n["self"] >= n["min"]) & (n["self"] <= n["max"]), n["g"], 0)


def _quotient(n: _Named) -> Any:
    return -n["g"] * ((n["self"] / n["other"]) / n["other"])


def _of_result(name: str) -> Callable[[_Named], Any]:
    """Return the gradient that PyTorch computes of the result; ours is of the input."""

    def gradient(n: _Named) -> Any:
        stack, x = current(), n["self"]
        hidden = not hasattr(type(x), "__torch_dispatch__")  # the program makes no such call
        stack.dispatch_disabled += hidden
        try:
            result = getattr(x, name)()
        finally:
            stack.dispatch_disabled -= hidden
        if hidden:
            SOURCES[result] = x
        return call(f"{name}_backward", n["g"], result)

    return gradient


# {op: {input: function of what the fused gradient is given, by name}}
_RULES: dict[str, dict[str, Callable[[_Named], Any]]] = {
    "abs": {"self": lambda n: n["g"] * n["self"].sgn()},
    "addcmul": {
        "tensor1": lambda n: n["g"] * (n["tensor2"] * n["value"]),
        "tensor2": lambda n: n["g"] * (n["tensor1"] * n["value"]),
    },
    "add_scaled": {"other": lambda n: n["g"] * n["alpha"]},
    "celu": {"self": lambda n: call(
        "elu_backward", n["g"], n["alpha"], 1.0, 1.0 / n["alpha"], False, n["self"])},
    "clamp_both": {"self": _within},
    "clamp_high": {"self": lambda n: tangrad.where(n["self"] <= n["max"], n["g"], 0)},
    "clamp_low": {"self": lambda n: tangrad.where(n["self"] >= n["min"], n["g"], 0)},
    "clamp_max": {"self": lambda n: tangrad.where(n["self"] <= n["max"], n["g"], 0)},
    "clamp_min": {"self": lambda n: tangrad.where(n["self"] >= n["min"], n["g"], 0)},
    "cos": {"self": lambda n: n["g"] * -n["self"].sin()},
    "elu": {"self": lambda n: call(
        "elu_backward", n["g"], n["alpha"], 1.0, 1.0, False, n["self"])},
    "exp": {"self": lambda n: n["g"] * n["result"]},
    "gelu_none": {"self": lambda n: call("gelu_backward", n["g"], n["self"])},
    "gelu_tanh": {"self": lambda n: call(
        "gelu_backward", n["g"], n["self"], approximate="tanh")},
    "hardtanh": {"self": lambda n: call(
        "hardtanh_backward", n["g"], n["self"], n["min_val"], n["max_val"])},
    "floor_divide": dict.fromkeys(("self", "other"), lambda n: tangrad.zeros_like(n["g"])),
    "lerp": {
        "self": lambda n: n["g"] * (1 - n["weight"]),
        "end": lambda n: n["g"] * n["weight"],
        "weight": lambda n: n["g"] * (n["end"] - n["self"]),
    },
    "leaky_relu": {"self": lambda n: call(
        "leaky_relu_backward", n["g"], n["self"], n["negative_slope"], False)},
    "log": {"self": lambda n: n["g"] / n["self"]},
    "logsigmoid": {"self": lambda n: call(
        "log_sigmoid_backward", n["g"], n["self"], n["self"].new_empty(0))},
    "_masked_fill": {"self": lambda n: n["g"].masked_fill(n["mask"], 0)},
    "mul": {"self": lambda n: n["g"] * n["other"], "other": lambda n: n["g"] * n["self"]},
    "neg": {"self": lambda n: -n["g"]},
    "pow": {"self": _power},
    "reciprocal": {"self": lambda n: -n["g"] * (n["result"] * n["result"])},
    "relu": {"self": lambda n: call("threshold_backward", n["g"], n["result"], 0)},
    "relu6": {"self": lambda n: call("hardtanh_backward", n["g"], n["self"], 0.0, 6.0)},
    "rsqrt": {"self": lambda n: n["g"] * -0.5 * n["result"] ** 3},
    "selu": {"self": lambda n: call("elu_backward", n["g"], *SELU, 1.0, False, n["self"])},
    "sigmoid": {"self": _of_result("sigmoid")},
    "sin": {"self": lambda n: n["g"] * n["self"].cos()},
    "softsign": {"self": lambda n: n["g"] / (n["self"].abs() + 1) ** 2},
    "tanh": {"self": _of_result("tanh")},
    "tanhshrink": {"self": lambda n: n["g"] * n["self"].tanh() ** 2},
    "prelu_elements": {
        "self": lambda n: tangrad.where(n["self"] > 0, n["g"], n["g"] * n["weight"]),
        "weight": lambda n: tangrad.where(n["self"] > 0, 0, n["g"] * n["self"]),
    },
    "sqrt": {"self": lambda n: n["g"] / (n["result"] * 2)},
    "sub_plain": {"other": lambda n: -n["g"]},
    "sub_scaled": {"other": lambda n: -n["g"] * n["alpha"]},
    "true_divide": {"self": lambda n: n["g"] / n["other"], "other": _quotient},
    "where_choice": {"self": _chosen, "other": _left},
}  # fmt: skip


def _taken_apart(op: Any, args: tuple[Any, ...]) -> Any:
    definition = op.definition
    derivation = definition.derivation
    if derivation is None or derivation.kind != "gradient" or derivation.missing:
        return NotImplemented
    rules = _RULES[derivation.parent.name]
    if any(isinstance(a, tangrad.Tensor) and a.is_complex() for a in args):
        return NotImplemented  # whose gradients are conjugated
    named = dict(zip(definition.parameter_names, args, strict=True))
    if any(name not in rules for name in derivation.inputs):
        return NotImplemented
    try:
        found = [rules[name](named) for name in derivation.inputs]
    except KeyError:  # the formula has no use for an argument that PyTorch's has
        return NotImplemented
    return found[0] if len(found) == 1 else tuple(found)


GRADIENTS = {f"{name}_backward": _taken_apart for name in _RULES}


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for the derivative of a call that is recorded as one."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return keep


@_rule("convolution")
def _convolution(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    input, weight, bias, *window = args
    sizes = None if bias is None else list(bias.shape)
    mask = [bool(asked) for asked in wanted[:3]]
    found = call("convolution_backward", grads[0], input, weight, sizes, *window, mask)
    return dict(enumerate(found))


@_rule("native_batch_norm")
def _batch_norm(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    input, weight, _, mean, var, training, _, eps = args
    mask = [bool(asked) for asked in wanted[:3]]
    found = call(
        "native_batch_norm_backward", grads[0], input, weight, mean, var, *results, training,
        eps, mask,
    )  # fmt: skip
    return dict(enumerate(found))


@_rule("embedding")
def _embedding(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    weight, indices, *padding = args
    row = padding[0] if padding else -1
    return {0: call("embedding_dense_backward", grads[0], indices, weight.shape[0], row, False)}


@_rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    name = "nll_loss2d_backward" if args[0].ndim == 4 else "nll_loss_backward"
    return {0: call(name, grads[0], *args, results[0])}


@_rule("mse_loss")
def _mse_loss(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    self, target, *given = args
    reduction = given[0] if given else 1
    pairs = (self, target), (target, self)
    return {
        k: call("mse_loss_backward", grads[0], *pairs[k], reduction) for k in (0, 1) if wanted[k]
    }


@_rule("max_pool2d_with_indices")
def _max_pool2d(args: Any, results: Any, grads: Any, wanted: Any) -> dict[int, Any]:
    usual: tuple[Any, ...] = (None, None, [], [0, 0], [1, 1], False)
    window = [*args[1:], *usual[len(args) :]]
    return {0: call("max_pool2d_with_indices_backward", grads[0], args[0], *window, results[0])}
