"""Random small models: what a loaded one computes is what the reference evaluator computes.

A script, too: `python random_onnx_models.py FIRST COUNT` tries the seeds from FIRST on.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tangrad
from tangrad_onnx.values import to_array

_KINDS = {"f": np.float32, "d": np.float64, "i": np.int64, "n": np.int32, "b": np.bool_}
_TYPES = {kind: helper.np_dtype_to_tensor_dtype(np.dtype(t)) for kind, t in _KINDS.items()}
_UNARY = {
    "fd": "Abs Neg Floor Ceil Round Sqrt Exp Sin Tanh Sigmoid Relu Erf Sign Softplus Softsign Elu "
    "LeakyRelu HardSigmoid Selu Reciprocal Identity",
    "i": "Abs Neg Sign Identity",
    "n": "Abs Neg Sign Identity",
    "b": "Not Identity",
}
_BINARY = {"fd": "Add Sub Mul Div Max Min", "in": "Add Sub Mul Max Min", "b": "And Or Xor"}
_COMPARE = "Equal Less Greater LessOrEqual GreaterOrEqual".split()
_REDUCE = "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2".split()


class Builder:
    """A graph that grows.

    Args:
        seed: of the choices.
    """

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.held: list[Any] = []
        self.inputs: list[Any] = []
        self.given: list[Any] = []
        self.values: list[tuple[str, str, tuple[int, ...]]] = []
        self.opset = int(self.draw.choice([13, 15, 18, 20, 22]))
        for _ in range(int(self.draw.integers(1, 4))):
            self._input()

    def pick(self, choices: Any) -> Any:
        """Return one of some choices."""
        return choices[int(self.draw.integers(len(choices)))]

    def array(self, kind: str, shape: tuple[int, ...]) -> Any:
        """Return random elements."""
        if kind == "b":
            return self.draw.random(shape) < 0.5
        if kind in "in":
            return self.draw.integers(-5, 6, shape).astype(_KINDS[kind])
        return (self.draw.standard_normal(shape) * 2).astype(_KINDS[kind])

    def _input(self) -> None:
        kind, rank = self.pick("fffdinb"), int(self.draw.integers(0, 4))
        shape = tuple(int(n) for n in self.draw.integers(1, 5, rank))
        name = f"x{len(self.inputs)}"
        declared = [None if self.draw.random() < 0.3 else n for n in shape]
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], declared))
        self.given.append(self.array(kind, shape))
        self.values.append((name, kind, shape))

    def constant(self, array: Any) -> str:
        """Return the name of a constant."""
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, names: list[str], kind: str, shape: Any, **attributes: Any) -> None:
        """Add a node of one result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        self.values.append((name, kind, tuple(int(n) for n in shape)))

    def grow(self) -> None:
        """Add a node of a random operator, if one fits."""
        self.pick(_STEPS)(self)

    def model(self) -> Any:
        """Return the model, whose outputs are the last values."""
        made = self.values[len(self.inputs) :]
        if not made:
            self.node("Identity", [self.values[0][0]], *self.values[0][1:])
            made = self.values[len(self.inputs) :]
        outputs = [
            helper.make_tensor_value_info(name, _TYPES[kind], [None] * len(shape))
            for name, kind, shape in made[-3:]
        ]
        graph = helper.make_graph(self.nodes, "random", self.inputs, outputs, self.held)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _of(table: dict[str, str], kind: str) -> list[str]:
    return next((ops.split() for kinds, ops in table.items() if kind in kinds), [])


def _unary(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    b.node(b.pick(_of(_UNARY, kind)), [name], kind, shape)


def _partner(b: Builder, kind: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return an operand that broadcasts with a shape, and the shape of both."""
    for name, other, size in (b.pick(b.values) for _ in range(4)):
        try:
            both = np.broadcast_shapes(shape, size)
        except ValueError:
            continue
        if other == kind:
            return name, both
    small = tuple(n if b.draw.random() < 0.7 else 1 for n in shape)
    return b.constant(b.array(kind, small)), shape


def _binary(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    other, both = _partner(b, kind, shape)
    b.node(b.pick(_of(_BINARY, kind)), [name, other], kind, both)


def _compare(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    other, both = _partner(b, kind, shape)
    op = "Equal" if kind == "b" else b.pick(_COMPARE)
    b.node(op, [name, other], "b", both)


def _where(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    other, both = _partner(b, kind, shape)
    mask = b.constant(b.array("b", tuple(both)))
    b.node("Where", [mask, name, other], kind, both)


def _cast(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    target = b.pick("fdinb")
    if kind in "fd" and target in "in":  # what does not fit is not defined
        b.node("Clip", [name, *map(b.constant, map(_KINDS[kind], (-9, 9)))], kind, shape)
        name = b.values[-1][0]
        b.node("IsNaN", [name], "b", shape)
        mask = b.values[-1][0]
        b.node("Where", [mask, b.constant(_KINDS[kind](0)), name], kind, shape)
        name = b.values[-1][0]
    b.node("Cast", [name], target, shape, to=_TYPES[target])


def _reduce(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    op = b.pick(_REDUCE)
    if kind == "b" or not shape or (kind in "in" and op in ("ReduceMean", "ReduceL2")):
        return
    axes = sorted(b.draw.choice(len(shape), int(b.draw.integers(1, len(shape) + 1)), replace=False))
    keep = int(b.draw.integers(2))
    left = [1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes]
    named = [int(a) - (len(shape) if b.draw.random() < 0.4 else 0) for a in axes]
    if b.opset >= 18 or op == "ReduceSum":
        b.node(op, [name, b.constant(np.array(named))], kind, left, keepdims=keep)
    else:
        b.node(op, [name], kind, left, keepdims=keep, axes=named)


def _matmul(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if kind not in "fd" or not shape:
        return
    columns = int(b.draw.integers(1, 4))
    weight = b.constant(b.array(kind, (shape[-1], columns)))
    b.node("MatMul", [name, weight], kind, (*shape[:-1], columns))


def _transpose(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    order = [int(d) for d in b.draw.permutation(len(shape))]
    if order:
        b.node("Transpose", [name], kind, [shape[d] for d in order], perm=order)


def _reshape(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    count = int(np.prod(shape))
    first = int(b.pick([n for n in range(1, count + 1) if count % n == 0]))
    sizes = [first, count // first]
    told = [first, -1] if b.draw.random() < 0.5 else sizes
    b.node("Reshape", [name, b.constant(np.array(told))], kind, sizes)


def _slice(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if not shape:
        return
    axis = int(b.draw.integers(len(shape)))
    size, step = shape[axis], int(b.pick([1, 2, -1]))
    start, end = (int(x) for x in np.sort(b.draw.integers(0, size + 1, 2)))
    if step < 0:
        start, end = size - 1, -size - 1
    count = len(range(*slice(start, None if step < 0 else end, step).indices(size)))
    if not count:
        return
    parts = [b.constant(np.array([n])) for n in (start, end, axis, step)]
    b.node("Slice", [name, *parts], kind, [*shape[:axis], count, *shape[axis + 1 :]])


def _gather(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if not shape:
        return
    axis = int(b.draw.integers(len(shape)))
    size = tuple(int(n) for n in b.draw.integers(1, 4, int(b.draw.integers(0, 3))))
    at = b.constant(b.draw.integers(-shape[axis], shape[axis], size))
    b.node("Gather", [name, at], kind, [*shape[:axis], *size, *shape[axis + 1 :]], axis=axis)


def _concat(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if not shape:
        return
    axis = int(b.draw.integers(len(shape)))
    more = int(b.draw.integers(1, 3))
    other = b.constant(b.array(kind, (*shape[:axis], more, *shape[axis + 1 :])))
    total = [*shape[:axis], shape[axis] + more, *shape[axis + 1 :]]
    b.node("Concat", [name, other], kind, total, axis=axis - len(shape) * int(b.draw.integers(2)))


def _squeeze(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    axis = int(b.draw.integers(len(shape) + 1))
    wide = [*shape[:axis], 1, *shape[axis:]]
    if len(shape) < 4:
        b.node("Unsqueeze", [name, b.constant(np.array([axis]))], kind, wide)
    elif 1 in shape:
        axis = shape.index(1)
        b.node("Squeeze", [name, b.constant(np.array([axis]))], kind, np.delete(shape, axis))


def _softmax(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if kind in "fd" and shape:
        axis = int(b.draw.integers(-len(shape), len(shape)))
        b.node(b.pick(["Softmax", "LogSoftmax"]), [name], kind, shape, axis=axis)


def _cumulated(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if kind != "b" and shape:
        axis = b.constant(np.array(int(b.draw.integers(-len(shape), len(shape)))))
        ways = {key: int(b.draw.integers(2)) for key in ("exclusive", "reverse")}
        b.node("CumSum", [name, axis], kind, shape, **ways)


def _best(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if kind == "b" or not shape:
        return
    axis, keep = int(b.draw.integers(len(shape))), int(b.draw.integers(2))
    left = [1 if d == axis else n for d, n in enumerate(shape) if keep or d != axis]
    given = {"axis": axis, "keepdims": keep, "select_last_index": int(b.draw.integers(2))}
    b.node(b.pick(["ArgMax", "ArgMin"]), [name], "i", left, **given)


def _pad(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    if kind not in "fd" or not shape:
        return
    mode = b.pick(["constant", "edge", "reflect"])
    most = [n - 1 if mode == "reflect" else 2 for n in shape]
    ends = [int(b.draw.integers(0, m + 1)) for m in most * 2]
    total = [n + ends[d] + ends[d + len(shape)] for d, n in enumerate(shape)]
    names = [name, b.constant(np.array(ends))]
    names += [b.constant(_KINDS[kind](1.5))] * (mode == "constant")
    b.node("Pad", names, kind, total, mode=mode)


def _tile(b: Builder) -> None:
    name, kind, shape = b.pick(b.values)
    repeats = b.draw.integers(1, 3, len(shape))
    if len(shape) and np.prod(shape) < 200:
        b.node("Tile", [name, b.constant(repeats)], kind, np.array(shape) * repeats)


_STEPS: tuple[Callable[[Builder], None], ...] = (
    *(_unary, _unary, _binary, _binary, _compare, _where, _cast, _reduce, _matmul, _transpose),
    *(_reshape, _slice, _gather, _concat, _squeeze, _softmax, _cumulated, _best, _pad, _tile),
)


def told(seed: int) -> str:
    """Return how a loaded random model differs, "" if it does not."""
    builder = Builder(seed)
    for _ in range(int(builder.draw.integers(2, 12))):
        builder.grow()
    model = builder.model()
    onnx.checker.check_model(model, full_check=True)
    feed = {info.name: x for info, x in zip(builder.inputs, builder.given, strict=True)}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            wanted = ReferenceEvaluator(model).run(None, feed)
        except Exception:  # what it does not do itself
            return ""
        try:
            module = tangrad.onnx.load(model)
            found = module(*(tangrad.tensor(x) for x in builder.given))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        found = found if isinstance(found, tuple) else (found,)
        for k, (got, want) in enumerate(zip(map(to_array, found), wanted, strict=True)):
            want = np.asarray(want)
            if got.shape != want.shape or got.dtype != want.dtype:
                return f"output {k}: {got.dtype}{got.shape} is not {want.dtype}{want.shape}"
            if not np.allclose(got, want, rtol=1e-3, atol=1e-3, equal_nan=True):
                return f"output {k}: {got.ravel()[:6]} is not {want.ravel()[:6]}"
    return ""


def main() -> None:
    """Try seeds and print what differs."""
    first, count = map(int, sys.argv[1:3])
    wrong = 0
    for seed in range(first, first + count):
        try:
            text = told(seed)
        except Exception as error:
            text = f"not a model: {type(error).__name__}: {error}"
        if text:
            wrong += 1
            print(seed, text.replace("\n", " ")[:300], flush=True)
    print(f"{wrong} of {count} differ")


if __name__ == "__main__":
    main()
