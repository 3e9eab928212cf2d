"""Products of matrices by cuBLASLt, where a program chose it.

`tangrad.backends.cuda.preferred_blas_library("cublaslt")` is the switch. It is off, and nothing is
opened, until then: no GPU has shown yet that these products are right and faster. What cuBLASLt
does not take (other strides, integers, empty operands) stays with the kernels of this package.

The library counts by columns, so a product of rows, y = a b, is given to it as y' = b' a'.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import find_op, get_driver, location, register_kernel
from tangrad_cuda import _launch, libraries
from tangrad_cuda.backends.cuda import matmul
from tangrad_cuda.planned import Calls, DeviceHandle, handle_on

OPS = ("mm", "bmm", "linear")

_INT, _LONG, _SIZE, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_POINTER,),
    "cublasLtMatmulDescCreate": (_POINTER, _INT, _INT),
    "cublasLtMatmulDescDestroy": (_POINTER,),
    "cublasLtMatmulDescSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatrixLayoutCreate": (_POINTER, _INT, ctypes.c_uint64, ctypes.c_uint64, _LONG),
    "cublasLtMatrixLayoutDestroy": (_POINTER,),
    "cublasLtMatrixLayoutSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatmulPreferenceCreate": (_POINTER,),
    "cublasLtMatmulPreferenceSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatmulPreferenceDestroy": (_POINTER,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_POINTER,) * 7, _INT, _POINTER, _POINTER),
    "cublasLtMatmul": (*(_POINTER,) * 14, _SIZE, _POINTER),
}
_STATUSES = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
}
NOT_SUPPORTED = 15
# Numbers of the library's enumerations.
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MOST_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)
_TRANSPOSED, _WITH_BIAS = 1, 4
_TF32 = 77
# Of an operand whose address is a multiple of more, nobody asks.
_BEST_ALIGNMENT = 256


class _Type(NamedTuple):
    """How a dtype is stored, computed and scaled, by the library's numbers."""

    stored: int
    computed: int
    scaled: int
    number: Any


_TYPES = {
    "float32": _Type(0, 68, 0, ctypes.c_float),
    "float64": _Type(1, 70, 1, ctypes.c_double),
    "float16": _Type(2, 68, 0, ctypes.c_float),
    "bfloat16": _Type(14, 68, 0, ctypes.c_float),
}
WORKSPACE = 32 << 20
_WITHOUT = "tangrad.backends.cuda.preferred_blas_library('default')"


class _Found(ctypes.Structure):
    """What the library proposes: an algorithm, and the workspace that it needs."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", _SIZE),
        ("state", _INT),
        ("waves", ctypes.c_float),
        ("reserved", _INT * 4),
    ]


class Operand(NamedTuple):
    """A matrix, or a batch of them, as the library reads its memory: by columns."""

    rows: int
    columns: int
    step: int
    transposed: bool
    batch_step: int


@cache
def library() -> ctypes.CDLL:
    """Open cuBLASLt.

    Raises:
        RuntimeError: it is not installed, or cannot be loaded.
    """
    return libraries.opened("libcublasLt.so", _FUNCTIONS, "cuBLASLt", "nvidia-cublas", _WITHOUT)


_call = Calls(library, lambda status: f"CUBLAS_STATUS_{_STATUSES.get(status, status)}", _WITHOUT)


def choose(chosen: bool) -> None:
    """Let products be computed by cuBLASLt from now on, or by this package's kernels again.

    Raises:
        RuntimeError: cuBLASLt, or a GPU, is not there.
    """
    driver = get_driver("cuda")
    if chosen:
        library()
    for name in OPS:
        for dtype in _TYPES:
            own = driver.kernel_for(find_op(name), getattr(tangrad, dtype))
            kernel = Product(driver, own) if chosen else own
            register_kernel(name, kernel, device="cuda", dtypes=[dtype])


class Product:
    """The kernel of mm, bmm or linear.

    Args:
        driver: of device `cuda`.
        own: the kernel for what cuBLASLt does not take.
    """

    def __init__(self, driver: Any, own: Callable[..., None]) -> None:
        self._driver, self._own = driver, own

    def __call__(self, outs: Any, args: Any) -> None:
        """Compute the op: the kernel, as the core calls it."""
        laid = _laid_out(outs, args)
        if laid is None or not self._on(outs[0].device.index).multiply(*laid):
            self._own(outs, args)

    def _on(self, index: int) -> Handle:
        handle: Handle = handle_on(Handle, self._driver, index)
        return handle


def _laid_out(outs: Any, args: Any) -> tuple[Any, Any, Any, Any] | None:
    """Return (y, a, b, bias) with y = a b + bias, None where cuBLASLt has no name for them."""
    (y,), (a, b, *rest) = outs, args
    bias = rest[0] if rest else None
    if not a.numel() or not b.numel():
        return None
    if rest:  # linear: the weight lies transposed, rows may have any number of dimensions
        if b.ndim != 2 or not a.is_contiguous() or not y.is_contiguous():
            return None
        a, y, b = a.view(-1, a.shape[-1]), y.view(-1, y.shape[-1]), b.t()
    bias_fits = bias is None or (bias.ndim == 1 and bias.is_contiguous())
    if not bias_fits or operand(y) is None or operand(y).transposed:
        return None
    return None if operand(a) is None or operand(b) is None else (y, a, b, bias)


def operand(matrix: Any) -> Operand | None:
    """Describe the transpose of a matrix, or of each of a batch; None for strides of no such kind.

    A matrix that lies by rows is its transpose by columns; one that lies by columns has to be
    turned around.
    """
    (rows, columns), (down, right) = matrix.shape[-2:], matrix.stride()[-2:]
    batch_step = matrix.stride(0) if matrix.ndim == 3 else 0
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return Operand(columns, rows, max(down, columns), False, batch_step)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return Operand(rows, columns, max(right, rows), True, batch_step)
    return None


class _Plan(NamedTuple):
    description: int
    layouts: tuple[int, ...]
    found: _Found


class Handle(DeviceHandle):
    """cuBLASLt on one device, with what it proposed for the products met so far."""

    calls, creates = _call, "cublasLtCreate"

    def forget(self, plan: _Plan | None) -> None:
        """Give back the descriptions of a plan."""
        if plan is not None:
            _call("cublasLtMatmulDescDestroy", plan.description)
            for layout in plan.layouts:
                _call("cublasLtMatrixLayoutDestroy", layout)

    def multiply(self, y: Any, a: Any, b: Any, bias: Any) -> bool:
        """Write a b + bias into y; False where the library has no algorithm for them.

        Raises:
            RuntimeError: the library refuses.
        """
        self.driver.contexts.enter(self.index)
        # The launches that the library makes are not among those that can be replayed.
        _launch.spoil()
        operands = tuple(operand(t) for t in (b, a, y))
        addresses = tuple(sum(location(t)) for t in (b, a, y))
        batches = y.shape[0] if y.ndim == 3 else 1
        alignments = tuple(min(_BEST_ALIGNMENT, at & -at) for at in addresses)
        tf32 = matmul.allow_tf32
        key = (y.dtype.name, operands, batches, alignments, bias is not None, tf32)
        with self.lock:
            plan = self.plan_for(key, lambda: self._plan(*key))
            if plan is not None:
                self._run(plan, y, addresses, bias)
        return plan is not None

    def _run(self, plan: _Plan, y: Any, addresses: Sequence[int], bias: Any) -> None:
        number = _TYPES[y.dtype.name].number
        if bias is not None:
            _set("cublasLtMatmulDesc", plan.description, _BIAS_POINTER,
                 ctypes.c_uint64(sum(location(bias))))  # fmt: skip
        size = plan.found.workspace
        workspace = tangrad.empty(size, dtype=tangrad.uint8, device=y.device) if size else None
        first, second, result = plan.layouts
        _call(
            "cublasLtMatmul", self.number, plan.description,
            ctypes.byref(number(1)), addresses[0], first, addresses[1], second,
            ctypes.byref(number(0)), addresses[2], result, addresses[2], result,
            ctypes.byref(plan.found.algorithm),
            None if workspace is None else sum(location(workspace)), size, self.stream(),
        )  # fmt: skip

    def _plan(
        self,
        dtype: str,
        operands: tuple[Operand, ...],
        batches: int,
        alignments: tuple[int, ...],
        biased: bool,
        tf32: bool,
    ) -> _Plan | None:
        kind = _TYPES[dtype]
        computed = _TF32 if tf32 and dtype == "float32" else kind.computed
        description = _call.made("cublasLtMatmulDescCreate", computed, kind.scaled)
        for attribute, given in zip((_TRANSPOSE_A, _TRANSPOSE_B), operands, strict=False):
            if given.transposed:
                _set("cublasLtMatmulDesc", description, attribute, ctypes.c_int32(_TRANSPOSED))
        if biased:
            _set("cublasLtMatmulDesc", description, _EPILOGUE, ctypes.c_int32(_WITH_BIAS))
        layouts = tuple(_layout(kind.stored, given, batches) for given in operands)
        preference = _call.made("cublasLtMatmulPreferenceCreate")
        _set("cublasLtMatmulPreference", preference, _MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE))
        for attribute, alignment in zip(_ALIGNMENTS, (*alignments, alignments[2]), strict=True):
            _set("cublasLtMatmulPreference", preference, attribute, ctypes.c_uint32(alignment))
        found, count = _Found(), _INT()
        status = library().cublasLtMatmulAlgoGetHeuristic(
            self.number, description, *layouts, layouts[2], preference, 1,
            ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        _call("cublasLtMatmulPreferenceDestroy", preference)
        plan = _Plan(description, layouts, found)
        if status or not count.value:
            self.forget(plan)
            _call.check(0 if status == NOT_SUPPORTED else status, "cublasLtMatmulAlgoGetHeuristic")
            return None
        return plan


def _layout(stored: int, given: Operand, batches: int) -> int:
    made = _call.made("cublasLtMatrixLayoutCreate", stored, given.rows, given.columns, given.step)
    if batches > 1:
        _set("cublasLtMatrixLayout", made, _BATCH_COUNT, ctypes.c_int32(batches))
        _set("cublasLtMatrixLayout", made, _BATCH_OFFSET, ctypes.c_int64(given.batch_step))
    return made


def _set(kind: str, handle: int, attribute: int, value: Any) -> None:
    _call(f"{kind}SetAttribute", handle, attribute, ctypes.byref(value), ctypes.sizeof(value))
