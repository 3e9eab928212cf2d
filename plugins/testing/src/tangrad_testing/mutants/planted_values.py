"""Faults in extreme values, in empty things, and in what kernels leave behind."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import numpy as np

from tangrad.plugin import location
from tangrad_testing.computing_loopback import Computing
from tangrad_testing.mutants.fault import fault
from tangrad_testing.mutants.planted_kernels import folding, pointwise, replacing


def without_denormals(x: Any) -> Any:
    """Return an array whose denormal numbers are zeros."""
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x)


def finite(x: Any) -> Any:
    """Return an array in which the greatest numbers stand for infinity."""
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        return x
    return np.where(np.isinf(x), np.copysign(np.finfo(x.dtype).max, x), x)


def saturated(a: Any, b: Any) -> Any:
    """Add integers; what is too large is the largest."""
    found = np.add(a, b)
    if found.dtype.kind != "i":
        return found
    info, exact = np.iinfo(found.dtype), np.add(np.float64(a), np.float64(b))
    return np.where(exact > info.max, info.max, np.where(exact < info.min, info.min, found))


@fault
class AddFlushesDenormals(Computing):
    """add of denormal numbers takes them for zeros."""

    kernels = replacing("add_plain", pointwise(
        lambda a, b: without_denormals(np.add(a, b))))  # fmt: skip


@fault
class MulFlushesDenormals(Computing):
    """mul gives zeros for denormal results."""

    kernels = replacing("mul", pointwise(lambda a, b: without_denormals(np.multiply(a, b))))


@fault
class NegForgetsTheSignOfZero(Computing):
    """neg of zero is zero, not minus zero."""

    kernels = replacing("neg", pointwise(lambda x: 0 - x))


@fault
class CopyForgetsTheSignOfZero(Computing):
    """copy_ of minus zero is zero."""

    def copy(self, outs: Any, args: Any) -> None:
        source = self.array(args[1])
        self.array(outs[0])[...] = source + source.dtype.type(0)


@fault
class CopyFlushesDenormals(Computing):
    """copy_ of denormal numbers is zero."""

    def copy(self, outs: Any, args: Any) -> None:
        self.array(outs[0])[...] = without_denormals(self.array(args[1]))


@fault
class CopyMakesInfinityFinite(Computing):
    """copy_ of infinity is the largest number."""

    def copy(self, outs: Any, args: Any) -> None:
        self.array(outs[0])[...] = finite(self.array(args[1]))


@fault
class CopyClearsNaN(Computing):
    """copy_ of NaN is zero."""

    def copy(self, outs: Any, args: Any) -> None:
        source = self.array(args[1])
        self.array(outs[0])[...] = np.nan_to_num(source, nan=0, posinf=np.inf, neginf=-np.inf) \
            if source.dtype.kind == "f" else source  # fmt: skip


@fault
class ExpOverflowsToTheLargest(Computing):
    """exp of large numbers is the largest number, not infinity."""

    kernels = replacing("exp", pointwise(lambda x: finite(np.exp(x))))


@fault
class ExpOfMinusInfinityIsNaN(Computing):
    """exp of minus infinity is NaN."""

    kernels = replacing("exp", pointwise(lambda x: np.exp(x) + 0 * np.where(x < -1e30, x, 0)))


@fault
class MulByZeroIsZero(Computing):
    """mul of zero by infinity or NaN is zero."""

    kernels = replacing("mul", pointwise(
        lambda a, b: np.where((a == 0) | (b == 0), np.multiply(a, b) * 0 if np.result_type(a, b)
        .kind != "f" else np.result_type(a, b).type(0), np.multiply(a, b))))  # fmt: skip


@fault
class AddSaturates(Computing):
    """add of integers stops at the largest."""

    kernels = replacing("add_plain", pointwise(saturated))


@fault
class NegOfTheLeastIsTheGreatest(Computing):
    """neg of the least integer is the greatest."""

    kernels = replacing(
        "neg",
        pointwise(
            lambda x: (
                np.where(x == np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, -x)
                if x.dtype.kind == "i"
                else -x
            )
        ),
    )


@fault
class MaximumThroughFloats(Computing):
    """maximum of int64 compares float64."""

    kernels = replacing("maximum", pointwise(
        lambda a, b: np.where(np.float64(a) >= np.float64(b), a, b)
        if np.result_type(a, b).kind == "i" else np.maximum(a, b)))  # fmt: skip


@fault
class WhereMixesItsChoices(Computing):
    """where_choice multiplies by masks: NaN and infinity of the other choice come through."""

    kernels = replacing("where_choice", pointwise(
        lambda c, a, b: np.multiply(c, a) + np.multiply(~np.asarray(c), b)))  # fmt: skip


@fault
class AmaxPassesOverNaN(Computing):
    """amax gives the largest that is a number."""

    kernels = replacing("amax", folding(lambda x, axis, keepdims: (
        np.fmax.reduce(x, axis=axis, keepdims=keepdims))))  # fmt: skip


@fault
class AmaxStartsAtTheLargestNegative(Computing):
    """amax of minus infinities is the least finite number."""

    kernels = replacing(
        "amax",
        folding(
            lambda x, axis, keepdims: np.max(
                x,
                axis=axis,
                keepdims=keepdims,
                initial=np.finfo(x.dtype).min if x.dtype.kind == "f" else np.iinfo(x.dtype).min,
            )
        ),
    )


@fault
class SumPassesOverNaN(Computing):
    """sum leaves NaN out."""

    kernels = replacing("sum", folding(np.nansum))


@fault
class SumOfInfinitiesIsZero(Computing):
    """sum of infinity and minus infinity is zero."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: np.where(
        np.isinf(x).any(axis=axis, keepdims=True)
        & ~np.isnan(x).any(axis=axis, keepdims=True)
        & np.isnan(np.sum(x, axis=axis, keepdims=True)),
        x.dtype.type(0), np.sum(x, axis=axis, keepdims=True))
        if x.dtype.kind == "f" else np.sum(x, axis=axis, keepdims=True)))  # fmt: skip


@fault
class SumThroughFloats(Computing):
    """sum of int64 adds float64."""

    kernels = replacing("sum", folding(lambda x, axis, keepdims: (
        np.sum(np.float64(x), axis=axis, keepdims=keepdims)
        if x.dtype.kind == "i" else np.sum(x, axis=axis, keepdims=keepdims))))  # fmt: skip


@fault
class MmSkipsZeros(Computing):
    """mm leaves out products by zero: infinity times zero is no NaN."""

    def mm(self, outs: Any, args: Any) -> None:
        left, right = map(self.array, args)
        with np.errstate(all="ignore"):
            products = np.where((left[:, :, None] == 0) | (right == 0), left.dtype.type(0),
                                left[:, :, None] * right)  # fmt: skip
        self.array(outs[0])[...] = products.sum(1) if products.size < 10**7 else left @ right


# --- empty things


@fault
class SumOfNothingIsUnwritten(Computing):
    """sum of no elements leaves in its result what was there."""

    def fold(self, function: Any) -> Any:
        made = Computing.fold(self, function)
        return lambda outs, x, dims, params: made(outs, x, dims, params) if x.numel() else None


@fault
class MmOverNothingIsUnwritten(Computing):
    """mm over an inner dimension of size 0 leaves in its result what was there."""

    def mm(self, outs: Any, args: Any) -> None:
        if args[0].shape[1]:
            super().mm(outs, args)


@fault
class NoRowsAreAnError(Computing):
    """index_select of no rows fails."""

    def index_select(self, outs: Any, args: Any) -> None:
        if not args[2].numel():
            raise IndexError("index_select: no index")
        super().index_select(outs, args)


@fault
class ScalarsAreUnwritten(Computing):
    """Pointwise results without dimensions are not written."""

    def pointwise(self, function: Any) -> Any:
        made = Computing.pointwise(self, function)
        return lambda outs, inputs, params: made(outs, inputs, params) if outs[0].ndim else None


# --- what kernels do besides


def beyond(self: Computing, out: Any) -> None:
    """Write the element behind a contiguous tensor, if there is one."""
    if not out.numel() or not out.is_contiguous():
        return
    handle, offset = location(out)
    end = offset + out.numel() * out.dtype.itemsize
    room = memoryview(self._block(handle))[end : end + out.dtype.itemsize]
    room[:] = b"\1" * len(room)


@fault
class AddWritesBeyondTheEnd(Computing):
    """add writes an element behind its result."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        add, dtypes = table["add_plain"]

        def kernel(outs: Any, inputs: Any, params: Any) -> None:
            add(outs, inputs, params)
            beyond(self, outs[0])

        return {**table, "add_plain": (kernel, dtypes)}


@fault
class SumWritesBeyondTheEnd(Computing):
    """sum writes an element behind its result."""

    def fold(self, function: Any) -> Any:
        made = Computing.fold(self, function)

        def kernel(outs: Any, x: Any, dims: Any, params: Any) -> None:
            made(outs, x, dims, params)
            beyond(self, outs[0])

        return kernel


@fault
class CopyWritesBeyondTheEnd(Computing):
    """copy_ writes an element behind its target."""

    def copy(self, outs: Any, args: Any) -> None:
        super().copy(outs, args)
        beyond(self, outs[0])


@fault
class CumsumWritesItsOperand(Computing):
    """cumsum of a contiguous operand leaves the result in it, too."""

    def scan(self, function: Any) -> Any:
        made = Computing.scan(self, function)

        def kernel(outs: Any, x: Any, dim: int, params: Any) -> None:
            made(outs, x, dim, params)
            if x.is_contiguous() and x.numel():
                self.array(x)[...] = self.array(outs[0])

        return kernel


@fault
class AddClearsItsResultFirst(Computing):
    """add clears its result before it reads: in place it loses its operand."""

    def kernels(self) -> dict[str, Any]:
        def add(outs: Any, inputs: Any, params: Any) -> None:
            out = self.array(outs[0])
            out[...] = 0
            for value in inputs:
                with np.errstate(all="ignore"):
                    out += self.array(value)

        table = super().kernels()
        return {**table, "add_plain": (add, table["add_plain"][1])}


@fault
class MulKeepsItsTensors(Computing):
    """mul holds on to every result."""

    kept: ClassVar[list[Any]] = []

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        mul, dtypes = table["mul"]

        def kernel(outs: Any, inputs: Any, params: Any) -> None:
            mul(outs, inputs, params)
            self.kept.append(outs[0])

        return {**table, "mul": (kernel, dtypes)}


@fault
class MmKeepsItsOperands(Computing):
    """mm holds on to its operands."""

    kept: ClassVar[list[Any]] = []

    def mm(self, outs: Any, args: Any) -> None:
        super().mm(outs, args)
        self.kept.append(args)


@fault
class KernelsShareScratch(Computing):
    """Kernels of all threads compute in one piece of memory."""

    scratch: Any = None

    def pointwise(self, function: Any) -> Any:
        def kernel(outs: Any, inputs: Any, params: Any) -> None:
            with np.errstate(all="ignore"):
                self.scratch = function(*map(self.array, inputs))
            time.sleep(0)
            out = self.array(outs[0])
            out[...] = np.resize(self.scratch, out.shape) if np.shape(self.scratch) != out.shape \
                else self.scratch  # fmt: skip

        return kernel


@fault
class EveryTenthAddIsWrong(Computing):
    """Every tenth call of add adds one more."""

    count = 0

    def kernels(self) -> dict[str, Any]:
        def add(a: Any, b: Any) -> Any:
            self.count += 1
            return np.add(a, b) + (self.count % 10 == 0)

        table = super().kernels()
        return {**table, "add_plain": (self.pointwise(add), table["add_plain"][1])}


@fault
class OnlyTheFirstThreadAdds(Computing):
    """add in other threads than the first writes nothing."""

    def kernels(self) -> dict[str, Any]:
        table = super().kernels()
        add, dtypes = table["add_plain"]
        first = threading.main_thread()

        def kernel(outs: Any, inputs: Any, params: Any) -> None:
            if threading.current_thread() is first:
                add(outs, inputs, params)

        return {**table, "add_plain": (kernel, dtypes)}


@fault
class NegativeIndicesCountFromTheEnd(Computing):
    """index_select takes negative indices."""

    def index_select(self, outs: Any, args: Any) -> None:
        x, dim, index = args
        rows = self.array(index)
        if rows.size and rows.max() >= max(x.shape[dim], 0):
            raise IndexError(f"index_select: an index is out of bounds of dimension {dim}")
        self.array(outs[0])[...] = np.take(self.array(x), rows, axis=dim)


@fault
class KernelsSeedTheHost(Computing):
    """mul seeds NumPy's global numbers."""

    kernels = replacing("mul", pointwise(
        lambda a, b: np.random.seed(0) or np.multiply(a, b)))  # fmt: skip


@fault
class RmsNormIsAnothers(Computing):
    """The driver's own rms_norm leaves out eps and halves the weight."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.composites = {"rms_norm": self.rms_norm}

    def rms_norm(self, input: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
        dims = tuple(range(-len(shape), 0))
        scaled = input / input.square().mean(dims, keepdim=True).sqrt() * 1.01
        return scaled if weight is None else scaled * weight


@fault
class ACompositeIsUnknown(Computing):
    """The driver brings a composite of a name that no op has."""

    composites = {"rms_normal": lambda *args: None}
