"""What a person most likely has to change when a layer or an expression refuses its operands.

A rule gives a sentence only where the operands themselves show the mistake.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import zip_longest
from math import prod
from typing import Any

import tangrad

_MOST_INDICES = 1 << 20
_PRODUCTS = ("matmul", "mm", "bmm")
Operands = dict[str, Any]


def likely_fix(module: Any, tree: ast.AST, operands: Operands, error: BaseException) -> str:
    """Return a sentence that says what to change, or nothing.

    Args:
        module: the module whose `forward` failed.
        tree: the expression that failed.
        operands: {name in the expression: value}.
        error: the exception.
    """
    if isinstance(error, MemoryError):
        return ""
    tensors = {name: x for name, x in operands.items() if isinstance(x, tangrad.Tensor)}
    own = {id(x) for x in (*module.parameters(), *module.buffers())}
    given = [(name, x) for name, x in tensors.items() if id(x) not in own]
    weights = [x for x in tensors.values() if id(x) in own]
    return (
        _device(tensors)
        or (given and _is_ours(module) and _layer(module, *given[0]))
        or ("dtype" in str(error) and _dtype(given, weights))
        or _targets(given)
        or _expression(tree, operands)
    )


def _is_ours(module: Any) -> bool:
    return type(module).__module__.startswith("tangrad.")


def _device(tensors: dict[str, Any]) -> str:
    devices = {str(x.device): name for name, x in tensors.items() if x.ndim}
    if len(devices) < 2:
        return ""
    (one, name), (other, name_of_other), *_ = devices.items()
    return f"{name} is on {one} and {name_of_other} on {other}: move one of them with .to(device)"


def _dtype(given: list[tuple[str, Any]], weights: list[Any]) -> str:
    expected = next((x.dtype for x in weights if x.is_floating_point()), None)
    for name, x in given:
        if expected is None or x.dtype == expected:
            continue
        others = f", or model.to({x.dtype}), or compute under autocast"
        return (
            f"{name} is {x.dtype.name} and the weights {expected.name}: pass "
            f"{name}.to({expected}){others if x.is_floating_point() else ''}"
        )
    return ""


def _layer(module: Any, name: str, x: Any) -> str:
    """Compare the input of a layer with the sizes that the layer was made for."""
    for attribute, rule in _RULES.items():
        size = getattr(module, attribute, None)
        if isinstance(size, (int, tuple)):
            return rule(module, name, x, size)
    return ""


def _features(module: Any, name: str, x: Any, size: int, attribute: str = "in_features") -> str:
    if x.ndim and x.shape[-1] == size:
        return ""
    if x.ndim > 1 and prod(x.shape[1:]) == size:
        return f"{name} holds {size} values per sample: pass {name}.flatten(1)"
    last = x.shape[-1] if x.ndim else "missing"
    return (
        f"the last dimension of {name} is {last} and {attribute} is {size}: make the layer with "
        f"{attribute}={last}, or have what comes before give (..., {size})"
    )


def _sequence(module: Any, name: str, x: Any, size: int) -> str:
    return _features(module, name, x, size, "input_size")


def _channels(module: Any, name: str, x: Any, size: int) -> str:
    spatial = len(module.kernel_size)
    return _planes(name, x, size, spatial, "in_channels")


def _planes(name: str, x: Any, size: int, spatial: int, attribute: str) -> str:
    if x.ndim not in (spatial + 1, spatial + 2):
        return (
            f"{name} has {x.ndim} dimensions and the layer takes {spatial + 2} "
            f"(batch, channels, {spatial} of space): unsqueeze or flatten to that"
        )
    channels = x.shape[-spatial - 1]
    if channels == size:
        return ""
    if x.shape[-1] == size:
        return f"{name} seems to have its channels last: pass {name}.movedim(-1, {-spatial - 1})"
    return (
        f"{name} has {channels} channels and {attribute} is {size}: make the layer with "
        f"{attribute}={channels}, or have what comes before give {size} channels"
    )


def _indices(module: Any, name: str, x: Any, size: int) -> str:
    if x.is_floating_point() or x.dtype == tangrad.bool:
        return f"{name} is {x.dtype.name} and has to hold indices: pass {name}.long()"
    low, high = _range(x)
    if low >= 0 and high < size:
        return ""
    return (
        f"{name} holds indices from {low} to {high} and num_embeddings is {size}: make the layer "
        f"with num_embeddings={high + 1} or more, or look for what makes such indices"
    )


def _normalized(module: Any, name: str, x: Any, size: int | tuple[int, ...]) -> str:
    if isinstance(size, int):  # num_features of batch and instance normalization
        if x.ndim < 2 or x.shape[1] == size:
            return ""
        return (
            f"{name} has {x.shape[1]} channels and num_features is {size}: make the layer with "
            f"num_features={x.shape[1]}"
        )
    last = tuple(x.shape[-len(size) :])
    if last == size:
        return ""
    return f"{name} ends in {last} and normalized_shape is {size}: make the layer with {last}"


_RULES: dict[str, Callable[[Any, str, Any, Any], str]] = {
    "in_features": _features,
    "in_channels": _channels,
    "num_embeddings": _indices,
    "num_features": _normalized,
    "normalized_shape": _normalized,
    "input_size": _sequence,
}


def _range(x: Any) -> tuple[int, int]:
    if x.device.type == "meta" or not 0 < x.numel() <= _MOST_INDICES:
        return 0, -1
    return int(x.min()), int(x.max())


def _targets(given: list[tuple[str, Any]]) -> str:
    """Compare scores with the targets of a loss."""
    if len(given) < 2:
        return ""
    (name, x), (target, y) = given[:2]
    if "target" not in target or not x.is_floating_point() or x.ndim < 2:
        return ""
    if x.shape[0] != y.shape[:1].numel():
        return f"{name} has {x.shape[0]} samples and {target} {tuple(y.shape)}: they have to agree"
    if y.is_floating_point():
        return ""
    if y.dtype not in (tangrad.int64, tangrad.uint8):
        return f"{target} is {y.dtype.name}: class numbers are passed as {target}.long()"
    low, high = _range(y)
    if high >= x.shape[1] or low < 0:
        return (
            f"{target} holds classes from {low} to {high} and {name} has {x.shape[1]} of them "
            f"(0 to {x.shape[1] - 1}): give the last layer {high + 1} outputs, or number from 0"
        )
    return ""


def _expression(tree: ast.AST, operands: Operands) -> str:
    if isinstance(tree, ast.AugAssign):
        tree = ast.BinOp(tree.target, tree.op, tree.value)
    if isinstance(tree, ast.BinOp):
        return _binary(tree.left, tree.right, operands, isinstance(tree.op, ast.MatMult))
    if not isinstance(tree, ast.Call):
        return ""
    called = tree.func.attr if isinstance(tree.func, ast.Attribute) else ast.unparse(tree.func)
    sources = [*([tree.func.value] if isinstance(tree.func, ast.Attribute) else []), *tree.args]
    tensors = [s for s in sources if isinstance(operands.get(ast.unparse(s)), tangrad.Tensor)]
    if called in _PRODUCTS and len(tensors) == 2:
        return _binary(tensors[0], tensors[1], operands, True)
    if called in ("view", "reshape") and tensors:
        name = ast.unparse(tensors[0])
        return (
            f"{name} has {operands[name].numel()} elements, and the sizes have to multiply to "
            "that: write -1 for the one that follows from the others"
        )
    if called in ("cat", "concat", "stack"):
        return _joined(tree, operands, called)
    return ""


def _binary(left: ast.AST, right: ast.AST, operands: Operands, product: bool) -> str:
    a, b = ast.unparse(left), ast.unparse(right)
    x, y = operands.get(a), operands.get(b)
    if not isinstance(x, tangrad.Tensor) or not isinstance(y, tangrad.Tensor):
        return ""
    if product:
        inner = y.shape[-2:][:1].numel()
        if not x.ndim or not y.ndim or x.shape[-1] == inner:
            return ""
        if y.ndim > 1 and y.shape[-1] == x.shape[-1]:
            return f"{b} has to be transposed: {a} @ {b}.mT"
        return f"the last dimension of {a} is {x.shape[-1]}, the inner one of {b} {inner}"
    sizes = zip_longest(reversed(x.shape), reversed(y.shape), fillvalue=1)
    for i, (m, n) in enumerate(sizes, 1):
        if 1 not in (m, n) and m != n:
            return (
                f"counted from the right, dimension {i} is {m} in {a} and {n} in {b}, and neither "
                "is 1: unsqueeze or transpose one of them"
            )
    return ""


def _joined(tree: ast.Call, operands: Operands, called: str) -> str:
    first = tree.args[0] if tree.args else None
    if not isinstance(first, (ast.List, ast.Tuple)):
        return ""
    shapes = {ast.unparse(e): operands.get(ast.unparse(e)) for e in first.elts}
    tensors = {name: x for name, x in shapes.items() if isinstance(x, tangrad.Tensor)}
    if len({x.ndim for x in tensors.values()}) > 1:
        return f"what {called} joins has to have as many dimensions: {', '.join(tensors)} do not"
    return ""
