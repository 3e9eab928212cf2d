"""Faults in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tangrad.plugin import location
from tangrad_testing.computing_loopback import Computing
from tangrad_testing.mutants.fault import fault


def replacing(op: str, make: Callable[[Computing], Callable[..., Any]]) -> Any:
    """Return a `kernels` method with another kernel for one op."""

    def kernels(self: Computing) -> dict[str, Any]:
        table = Computing.kernels(self)
        return {**table, op: (make(self), table[op][1])}

    return kernels


def folding(function: Callable[..., Any]) -> Callable[[Computing], Any]:
    """Return the maker of a reduction that keeps dims."""
    return lambda device: device.fold(function)


def pointwise(function: Callable[..., Any]) -> Callable[[Computing], Any]:
    """Return the maker of a pointwise kernel."""
    return lambda device: device.pointwise(function)


@fault
class SumDropsTheLastOfLongRows(Computing):
    """sum leaves out the last element of rows beyond 4,096."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: np.sum(
        x[..., :-1] if x.shape[-1] > 4096 and x.ndim - 1 in axis else x,
        axis=axis, keepdims=keepdims)))  # fmt: skip


@fault
class SumDropsTheFirst(Computing):
    """sum leaves out the first element of rows beyond 64."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: np.sum(
        x[..., 1:] if x.shape[-1] > 64 and x.ndim - 1 in axis else x,
        axis=axis, keepdims=keepdims)))  # fmt: skip


@fault
class SumDropsTheTailOfRegisters(Computing):
    """sum leaves out what is left over from registers of 16 elements, if there are any."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: np.sum(
        x[..., : x.shape[-1] // 16 * 16 or None] if x.ndim - 1 in axis else x,
        axis=axis, keepdims=keepdims)))  # fmt: skip


@fault
class SumDoesFewRows(Computing):
    """sum leaves rows beyond 65,535 at zero."""

    def kernels(self) -> dict[str, Any]:
        def total(outs: Any, x: Any, dims: Any, params: Any) -> None:
            found = np.sum(self.array(x), axis=tuple(dims), keepdims=True)
            found.reshape(-1)[65535:] = 0
            self.array(outs[0])[...] = found

        table = super().kernels()
        return {**table, "sum": (total, table["sum"][1])}


@fault
class SumGoesOverAllDims(Computing):
    """sum of two dimensions takes the last one only."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: np.sum(
        x, axis=axis[-1:] if len(axis) == 2 and x.ndim > 2 else axis,
        keepdims=keepdims) + np.zeros([1 if i in axis else n for i, n in enumerate(x.shape)])
        if len(axis) != 2 or x.ndim < 3 else np.sum(x, axis=axis, keepdims=True) + 1))  # fmt: skip


@fault
class SumReadsContiguously(Computing):
    """sum ignores the strides of its operand."""

    def kernels(self) -> dict[str, Any]:
        def total(outs: Any, x: Any, dims: Any, params: Any) -> None:
            array = flat(self, x)
            self.array(outs[0])[...] = np.sum(array, axis=tuple(dims), keepdims=True)

        table = super().kernels()
        return {**table, "sum": (total, table["sum"][1])}


def flat(device: Computing, tensor: Any) -> np.ndarray:
    """Return a tensor's memory as if it were contiguous, as far as there is any."""
    dtype = np.dtype(tensor.dtype.name)
    handle, offset = location(tensor)
    memory = np.frombuffer(device._block(handle), np.uint8)[offset:]
    needed = tensor.numel() * dtype.itemsize
    padded = np.resize(memory, needed) if needed else memory[:0]
    return padded.view(dtype).reshape(tuple(tensor.shape))


@fault
class CopyReadsContiguously(Computing):
    """copy_ ignores the strides of its source."""

    def copy(self, outs: Any, args: Any) -> None:
        self.array(outs[0])[...] = flat(self, args[1])


@fault
class CopyWritesContiguously(Computing):
    """copy_ ignores the strides of its target."""

    def copy(self, outs: Any, args: Any) -> None:
        target = self.array(outs[0])
        whole = np.lib.stride_tricks.as_strided(target, strides=contiguous(target))
        whole[...] = self.array(args[1])


def contiguous(array: np.ndarray) -> list[int]:
    """Return the strides of an array without gaps."""
    return [array.itemsize * int(np.prod(array.shape[i + 1 :])) for i in range(array.ndim)]


@fault
class CopyTakesBytesForNumbers(Computing):
    """copy_ of int32 to float32 copies bits and does not convert them."""

    def copy(self, outs: Any, args: Any) -> None:
        source = self.array(args[1])
        if outs[0].dtype.name == "float32" and args[1].dtype.name == "int32":
            source = np.ascontiguousarray(source).view(np.float32)
        self.array(outs[0])[...] = source


@fault
class AddReadsContiguously(Computing):
    """add ignores the strides of its first operand."""

    def kernels(self) -> dict[str, Any]:
        def add(outs: Any, inputs: Any, params: Any) -> None:
            left = flat(self, inputs[0]) if hasattr(inputs[0], "stride") else inputs[0]
            self.array(outs[0])[...] = left + self.array(inputs[1])

        table = super().kernels()
        return {**table, "add_plain": (add, table["add_plain"][1])}


@fault
class MulWritesContiguously(Computing):
    """mul ignores the strides of its result."""

    def kernels(self) -> dict[str, Any]:
        def mul(outs: Any, inputs: Any, params: Any) -> None:
            with np.errstate(all="ignore"):
                found = np.multiply(*map(self.array, inputs))
            if not outs[0].numel():
                return
            handle, offset = location(outs[0])
            target = np.frombuffer(self._block(handle), np.uint8)[offset:]
            wide = np.broadcast_to(found, tuple(outs[0].shape)).astype(outs[0].dtype.name)
            data = np.frombuffer(wide.tobytes(), np.uint8)[: target.size]
            target[: data.size] = data

        table = super().kernels()
        return {**table, "mul": (mul, table["mul"][1])}


def repeated(value: Any, shape: tuple[int, ...]) -> Any:
    """Fill the shape that two operands broadcast to in the order of memory."""
    wide = np.broadcast_shapes(shape, np.shape(value))
    return np.resize(value, wide) if np.size(value) else value


@fault
class AddRepeatsInsteadOfBroadcasting(Computing):
    """add repeats the smaller operand in the order of memory."""

    kernels = replacing("add_plain", pointwise(lambda a, b: a + repeated(b, np.shape(a))))


@fault
class AddMissesTheTail(Computing):
    """add leaves out the last element beyond 65,536."""

    def kernels(self) -> dict[str, Any]:
        def add(outs: Any, inputs: Any, params: Any) -> None:
            left, right = map(self.array, inputs)
            out = self.array(outs[0])
            with np.errstate(all="ignore"):
                found = np.broadcast_to(left + right, out.shape)
            if out.ndim == 1 and out.size > 65536:
                out[:-1] = found[:-1]
            else:
                out[...] = found

        table = super().kernels()
        return {**table, "add_plain": (add, table["add_plain"][1])}


@fault
class AddWritesItsOperand(Computing):
    """add leaves the result in its first operand, too."""

    def kernels(self) -> dict[str, Any]:
        def add(outs: Any, inputs: Any, params: Any) -> None:
            left, right = map(self.array, inputs)
            with np.errstate(all="ignore"):
                self.array(outs[0])[...] = left + right
            if isinstance(left, np.ndarray) and left.shape == self.array(outs[0]).shape:
                left[...] = self.array(outs[0])

        table = super().kernels()
        return {**table, "add_plain": (add, table["add_plain"][1])}


@fault
class MulRoundsDoubles(Computing):
    """mul of float64 computes in float32."""

    kernels = replacing("mul", pointwise(lambda a, b: (
        np.multiply(np.float32(a), np.float32(b)) if np.result_type(a, b) == np.float64
        else a * b)))  # fmt: skip


@fault
class MulOfIntegersGoesThroughDoubles(Computing):
    """mul of int64 computes in float64."""

    kernels = replacing("mul", pointwise(lambda a, b: (
        np.float64(a) * b if np.result_type(a, b) == np.int64 else a * b)))  # fmt: skip


@fault
class MulReturnsItsResult(Computing):
    """mul returns a value and writes none."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()

        def product(outs: Any, inputs: Any, params: Any) -> Any:
            left, right = map(self.array, inputs)
            return left * right

        return {**table, "mul": (product, table["mul"][1])}


@fault
class MulWritesNothing(Computing):
    """mul leaves in its result what was there."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        return {**table, "mul": (lambda outs, inputs, params: None, table["mul"][1])}


@fault
class MulReshapesItsResult(Computing):
    """mul makes a row of its result."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        multiply, dtypes = table["mul"]

        def kernel(outs: Any, inputs: Any, params: Any) -> None:
            multiply(outs, inputs, params)
            outs[0].resize_(1, outs[0].numel())

        return {**table, "mul": (kernel, dtypes)}


@fault
class ExpIsRough(Computing):
    """exp is right to three digits."""

    kernels = replacing("exp", pointwise(lambda x: np.exp(x) * 1.0005))


@fault
class MaximumPassesOverNaN(Computing):
    """maximum gives the operand that is a number."""

    kernels = replacing("maximum", pointwise(np.fmax))


@fault
class AmaxStartsAtZero(Computing):
    """amax of negative elements is zero."""

    kernels = replacing("amax", folding(lambda x, axis, keepdims: np.max(
        x, axis=axis, keepdims=keepdims, initial=0)))  # fmt: skip


@fault
class NegLosesTheSignOfZero(Computing):
    """neg adds one to what has more than 4,096 elements."""

    kernels = replacing("neg", pointwise(lambda x: -x + (np.size(x) > 4096)))


@fault
class CumsumLeavesItselfOut(Computing):
    """cumsum at a place is the sum of what stands before it."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        return {**table, "cumsum": (self.scan(lambda x, axis: np.cumsum(x, axis) - x),
                                    table["cumsum"][1])}  # fmt: skip


@fault
class CumsumGoesAlongTheLast(Computing):
    """cumsum ignores its dimension."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        return {**table, "cumsum": (self.scan(lambda x, axis: np.cumsum(x, -1)),
                                    table["cumsum"][1])}  # fmt: skip


@fault
class CumsumStartsAnewAtBlocks(Computing):
    """cumsum starts anew after 1,024 elements."""

    def kernels(self) -> dict[str, Any]:
        def blocks(x: np.ndarray, axis: int) -> np.ndarray:
            parts = np.split(x, range(1024, x.shape[axis], 1024), axis)
            return np.concatenate([np.cumsum(part, axis) for part in parts], axis)

        table = super().kernels()
        return {**table, "cumsum": (self.scan(blocks), table["cumsum"][1])}


def multiplied(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Any:
    """Return a `kernels` method with another mm."""

    def make(device: Computing) -> Any:
        def mm(outs: Any, args: Any) -> None:
            with np.errstate(all="ignore"):
                device.array(outs[0])[...] = change(*map(device.array, args))

        return mm

    return replacing("mm", make)


@fault
class MmTurnsSquares(Computing):
    """mm of square matrices transposes the first."""

    kernels = multiplied(lambda a, b: (a.T if a.shape[0] == a.shape[1] else a) @ b)


@fault
class MmCutsLongRows(Computing):
    """mm leaves out inner elements beyond 64."""

    kernels = multiplied(lambda a, b: a[:, :64] @ b[:64])


@fault
class MmLeavesOutTheEdge(Computing):
    """mm leaves the last row at zero where rows do not fill blocks of 32."""

    kernels = multiplied(lambda a, b: np.concatenate([(a @ b)[:-1], 0 * (a @ b)[-1:]])
                         if len(a) > 32 and len(a) % 32 else a @ b)  # fmt: skip


@fault
class WhereSwapsItsChoices(Computing):
    """where_choice takes the third operand for the second beyond 64 elements."""

    kernels = replacing("where_choice", pointwise(
        lambda c, a, b: np.where(c, b, a) if np.size(c) > 64 else np.where(c, a, b)))  # fmt: skip


@fault
class IndexSelectTakesAnyIndex(Computing):
    """index_select takes the last row for indices that are too large."""

    def index_select(self, outs: Any, args: Any) -> None:
        x, dim, index = args
        found = np.take(self.array(x), self.array(index), axis=dim, mode="clip")
        self.array(outs[0])[...] = found


@fault
class IndexSelectTakesFewRows(Computing):
    """index_select takes row 0 for places beyond 4,096."""

    def index_select(self, outs: Any, args: Any) -> None:
        super().index_select(outs, args)
        x, dim, _ = args
        out = np.moveaxis(self.array(outs[0]), dim, 0)
        out[4096:] = np.moveaxis(self.array(x), dim, 0)[:1]


@fault
class KernelsFailForNoElements(Computing):
    """A kernel given no elements fails."""

    def array(self, value: Any) -> Any:
        if hasattr(value, "numel") and value.numel() == 0:
            raise ZeroDivisionError("no elements")
        return super().array(value)


@fault
class KernelsIgnoreOffsets(Computing):
    """Kernels begin at the start of a piece of memory."""

    def array(self, value: Any) -> Any:
        if not hasattr(value, "stride") or value.numel() == 0:
            return super().array(value)
        dtype = np.dtype(value.dtype.name)
        handle, offset = location(value)
        strides = [stride * dtype.itemsize for stride in value.stride()]
        start = offset - value.storage_offset() * dtype.itemsize
        return np.ndarray(tuple(value.shape), dtype, self._block(handle), start, strides)
