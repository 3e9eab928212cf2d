"""What is done with each channel of a convolution goes into its weight: batch norms, and sums and
products with constants.

Rule: with s = weight / sqrt(variance + eps), the norm of layer(x; W, b) is
layer(x; sW, s(b - mean) + shift). The last bits change, as the sum is rounded elsewhere. A linear
layer is left alone: the norm's channels are its last dimension for matrices only.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds

__all__ = ["fold_norms"]

# Layers -> the dimension of the weight that is that of the result's channels.
_LAYERS = {
    **{f"aten::conv{d}d": 0 for d in (1, 2, 3)},
    "aten::_convolution": 0,
    **{f"aten::conv_transpose{d}d": 1 for d in (1, 2, 3)},
}
_GROUPS = {**{f"aten::conv_transpose{d}d": 6 for d in (1, 2, 3)}, "aten::_convolution": 8}
_TRANSPOSED = 6
_ARITHMETIC = frozenset(("add", "sub", "mul", "div"))


def fold_norms(body: list[tree.Node]) -> int:
    """Fold what follows the convolutions of a method's block; return how often."""
    made: dict[str, tree.Assign] = {}
    counts: dict[str, int] = {}
    for node in tree.every(body):
        if isinstance(node, tree.Local):
            counts[node.name] = counts.get(node.name, 0) + 1
        for name in tree.assigned([node]) if isinstance(node, tree.Assign) else ():
            counts[name] = counts.get(name, 0) + 1
    count = 0
    for statement in body:
        if not isinstance(statement, (tree.Assign, tree.Return)):
            continue
        step = statement.value
        given = _channels_of(step)
        layer = made.get(given.name) if isinstance(given, tree.Local) else None
        # Twice: where it is stored, and where the step takes it.
        if layer is not None and counts[given.name] == 2:
            folded = _folded(layer.value, step)
            if folded is not None:
                layer.value, statement.value = folded, given
                count += 1
        if isinstance(statement, tree.Assign) and isinstance(statement.target, str):
            made[statement.target] = statement
            value = statement.value
            if isinstance(value, tree.Local) and value.name in made and counts[value.name] == 2:
                made[statement.target] = made[value.name]
    return count


def _channels_of(step: Any) -> Any:
    """Return what a step is given, if it does the same to all that is in a channel, or None."""
    if isinstance(step, tree.OpCall) and _is_constant_norm(step):
        return step.args[0]
    if isinstance(step, (tree.Apply, tree.OpCall)) and _arithmetic(step) is not None:
        return step.args[0]
    return None


def _arithmetic(step: Any) -> Any:
    """Return the name of an operation with a constant, and this, or None."""
    name = step.builtin.name if isinstance(step, tree.Apply) else step.name.partition("::")[2]
    if name not in _ARITHMETIC or step.type != kinds.TENSOR or len(step.args) != 2:
        return None
    if getattr(step, "kwargs", None) or not isinstance(step.args[1], tree.Const):
        return None
    value = step.args[1].value
    is_number = type(value) in (int, float)
    return (name, value) if is_number or isinstance(value, tangrad.Tensor) else None


def _parts(norm: tree.OpCall) -> dict[str, tree.Expr] | None:
    """Return the arguments of a norm by name."""
    inner = ("input", "weight", "bias", "mean", "variance", "training", "momentum", "eps")
    plain = ("input", "mean", "variance", "weight", "bias", "training", "momentum", "eps")
    if norm.inner and len(norm.args) >= len(inner):
        return dict(zip(inner, norm.args, strict=False))
    named = {"running_mean": "mean", "running_var": "variance"}
    if norm.inner or isinstance(norm.callee, str) or len(norm.args) > len(plain):
        return None
    found = dict(zip(plain, norm.args, strict=False))
    found |= {named.get(key, key): value for key, value in norm.kwargs.items()}
    return found


def _is_constant_norm(norm: tree.OpCall) -> bool:
    if norm.name != "aten::batch_norm":
        return False
    found = _parts(norm)
    if found is None or not isinstance(found.get("variance"), tree.Const):
        return False
    training = found.get("training")
    if training is not None and not (isinstance(training, tree.Const) and not training.value):
        return False
    rest = (value for name, value in found.items() if name != "input")
    constant = all(isinstance(value, tree.Const) for value in rest)
    return constant and isinstance(found["variance"].value, tangrad.Tensor)  # type: ignore[attr-defined]


def _folded(layer: Any, step: Any) -> tree.OpCall | None:
    """Return a layer with the weight and bias that make it do what a step does, too, or None."""
    if not isinstance(layer, tree.OpCall) or layer.name not in _LAYERS or layer.kwargs:
        return None
    weight = layer.args[1]
    bias = layer.args[2] if len(layer.args) > 2 else tree.Const(layer.place, kinds.NONE, None)
    if not isinstance(weight, tree.Const) or not isinstance(bias, tree.Const):
        return None
    dim = _channels(layer)
    if dim is None:
        return None
    old = weight.value
    with tangrad.no_grad():
        found = _scale_and_shift(step, old.shape[dim], old.dim(), bias.value)
        if found is None:
            return None
        scale, added = found
        shape = [1] * old.dim()
        shape[dim] = -1
        made = old * scale.reshape(shape)
    if made.dtype != old.dtype or added.dtype != old.dtype or made.device != old.device:
        return None
    constants = [tree.Const(layer.place, kinds.TENSOR, item) for item in (made, added)]
    args = [layer.args[0], *constants, *layer.args[3:]]
    return tree.OpCall(layer.place, layer.type, layer.name, layer.callee, args, {}, layer.inner)


def _channels(layer: tree.OpCall) -> int | None:
    """Return which dimension of a layer's weight the result's channels are; None of several."""
    dim = _LAYERS[layer.name]
    if layer.name == "aten::_convolution":
        flag = layer.args[_TRANSPOSED]
        if not isinstance(flag, tree.Const):
            return None
        dim = int(bool(flag.value))
    if dim == 1:
        at = _GROUPS[layer.name]
        groups = layer.args[at] if len(layer.args) > at else tree.Const(layer.place, kinds.INT, 1)
        if not isinstance(groups, tree.Const) or groups.value != 1:
            return None
    return dim


def _scale_and_shift(step: Any, channels: int, rank: int, bias: Any) -> Any:
    """Return by what a step multiplies channels, and the bias that then holds, or None."""
    if isinstance(step, tree.OpCall) and step.name == "aten::batch_norm":
        parts = _parts(step)
        assert parts is not None
        found: dict[str, Any] = {
            name: value.value for name, value in parts.items() if isinstance(value, tree.Const)
        }
        scale = (found["variance"] + found.get("eps", 1e-5)).rsqrt()
        if found.get("weight") is not None:
            scale = scale * found["weight"]
        added = -found["mean"] * scale if bias is None else (bias - found["mean"]) * scale
        return scale, added if found.get("bias") is None else added + found["bias"]
    name, value = _arithmetic(step)
    by = _of_channels(value, channels, rank)
    if by is None:
        return None
    one = tangrad.ones(channels, dtype=by.dtype)
    old = tangrad.zeros(channels, dtype=by.dtype) if bias is None else bias
    if name == "mul":
        return by, old * by
    if name == "div":
        return one / by, old / by
    return one, old + by if name == "add" else old - by


def _of_channels(value: Any, channels: int, rank: int) -> Any:
    """Return a constant as one number for each channel, or None where it has more."""
    if not isinstance(value, tangrad.Tensor):
        return tangrad.full((channels,), float(value))
    if value.dim() == 0 and not value.is_complex():
        return tangrad.full((channels,), float(value))
    shape = [1] * (rank - value.dim()) + list(value.shape)
    if len(shape) != rank or any(n != 1 for k, n in enumerate(shape) if k != 1):
        return None
    return value.reshape(-1).expand(channels).contiguous() if shape[1] in (1, channels) else None
