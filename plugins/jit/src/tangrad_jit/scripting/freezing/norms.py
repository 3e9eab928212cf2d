"""Batch norms of constant statistics go into the layers before them.

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


def fold_norms(body: list[tree.Node]) -> int:
    """Fold the norms of a method's block; return how many there were."""
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
        norm = statement.value
        if isinstance(norm, tree.OpCall) and _is_constant_norm(norm):
            given = norm.args[0]
            layer = made.get(given.name) if isinstance(given, tree.Local) else None
            # Twice: where it is stored, and where the norm takes it.
            if layer is not None and counts[given.name] == 2:
                folded = _folded(layer.value, norm)
                if folded is not None:
                    layer.value, statement.value = folded, given
                    count += 1
        if isinstance(statement, tree.Assign) and isinstance(statement.target, str):
            made[statement.target] = statement
            if isinstance(statement.value, tree.Local) and statement.value.name in made:
                made[statement.target] = made[statement.value.name]
    return count


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


def _folded(layer: Any, norm: tree.OpCall) -> tree.OpCall | None:
    """Return a layer with the weight and bias that make it do what the norm does, or None."""
    if not isinstance(layer, tree.OpCall) or layer.name not in _LAYERS or layer.kwargs:
        return None
    weight = layer.args[1]
    bias = layer.args[2] if len(layer.args) > 2 else tree.Const(layer.place, kinds.NONE, None)
    if not isinstance(weight, tree.Const) or not isinstance(bias, tree.Const):
        return None
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
    parts = _parts(norm)
    assert parts is not None
    found: dict[str, Any] = {
        name: value.value for name, value in parts.items() if isinstance(value, tree.Const)
    }
    eps = found.get("eps", 1e-5)
    with tangrad.no_grad():
        scale = (found["variance"] + eps).rsqrt()
        if found.get("weight") is not None:
            scale = scale * found["weight"]
        shape = [1] * weight.value.dim()
        shape[dim] = -1
        made = weight.value * scale.reshape(shape)
        mean = found["mean"]
        added = -mean * scale if bias.value is None else (bias.value - mean) * scale
        if found.get("bias") is not None:
            added = added + found["bias"]
    if made.dtype != weight.value.dtype:
        return None
    constants = [tree.Const(layer.place, kinds.TENSOR, item) for item in (made, added)]
    args = [layer.args[0], *constants, *layer.args[3:]]
    return tree.OpCall(layer.place, layer.type, layer.name, layer.callee, args, {}, layer.inner)
