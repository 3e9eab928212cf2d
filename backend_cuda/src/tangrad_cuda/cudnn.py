"""Convolutions by cuDNN, where a program chose it.

`tangrad.backends.cudnn.enabled = True` is the switch. It is off, and nothing is opened, until
then: no GPU has shown yet that these convolutions are right and faster. What cuDNN does not take
(complex numbers, no elements, a transposed convolution with places that no window ends at) stays
with the kernels of this package.

Called are the functions of convolutions that cuDNN 8 and 9 have, for tensors that lie by rows
(NCHW). A signal is an image one element high.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import location
from tangrad_cuda import _launch
from tangrad_cuda.backends import cudnn as settings
from tangrad_cuda.cudnn_library import KINDS, OPS, TYPES, Type, call, library
from tangrad_cuda.planned import DeviceHandle, handle_on

_INT = ctypes.c_int
# Numbers of the library's enumerations.
_CROSS_CORRELATION, _BY_ROWS, _DETERMINISTIC = 1, 0, 1
_DEFAULT_MATH, _TENSOR_MATH, _FMA_MATH = 0, 1, 3
# More elements than its 32-bit sizes count, and more dimensions than it convolves.
_MOST_ELEMENTS, _MOST_SPATIAL = 2**31 - 1, 3
WORKSPACE = 256 << 20


class _Found(ctypes.Structure):
    """An algorithm that the library proposes, and what it needs."""

    _fields_ = [
        ("algorithm", _INT),
        ("status", _INT),
        ("time", ctypes.c_float),
        ("workspace", ctypes.c_size_t),
        ("determinism", _INT),
        ("math", _INT),
        ("reserved", _INT * 3),
    ]


def kernel_for(driver: Any, op: Any, dtype: Any, own: Callable[..., None]) -> Callable[..., None]:
    """Return cuDNN's kernel of an op that it computes, else, or where it is not there, `own`.

    Where it cannot be loaded, a warning says so once.
    """
    takes = op.name in OPS and dtype.name in TYPES
    if takes and settings.is_available(warn=True):
        return Convolution(driver, own, op.name)
    return own


class Work(NamedTuple):
    """A convolution or one of its gradients.

    Attributes:
        tensors: x, w and y, contiguous; what is written is one of them.
        sizes: theirs, with two spatial dimensions or three.
        window: padding, stride and dilation of as many.
    """

    kind: str
    tensors: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, ...]]
    bias: Any
    window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    groups: int


class Convolution:
    """The kernel of an op of `OPS`.

    Args:
        driver: of device `cuda`.
        own: the kernel for what cuDNN does not take.
        name: of the op.
    """

    def __init__(self, driver: Any, own: Callable[..., None], name: str) -> None:
        self._driver, self._own, self._name = driver, own, name

    def __call__(self, outs: Any, args: Any) -> None:
        """Compute the op: the kernel, as the core calls it."""
        work = _laid_out(self._name, outs, args)
        if work is None or not self._on(outs[0].device.index).convolve(work):
            self._own(outs, args)

    def _on(self, index: int) -> Handle:
        handle: Handle = handle_on(Handle, self._driver, index)
        return handle


def _laid_out(name: str, outs: Any, args: Any) -> Work | None:
    """Return what is to be computed, None where cuDNN has no name for it."""
    kind, places = OPS[name]
    given = (*outs, *args)
    x, w, y, *biases = (given[place] for place in places)
    stride, padding, dilation, groups = args[-4:]
    if len(stride) > _MOST_SPATIAL or not all(out.is_contiguous() for out in outs):
        return None
    window = _two(padding, 0), _two(stride, 1), _two(dilation, 1)
    named = {"x": x, "w": w, "y": y}
    sizes = {n: (*t.shape[:2], *_two(t.shape[2:], 1)) for n, t in named.items()}
    counts = [t.numel() for t in named.values()]
    if not all(0 < count <= _MOST_ELEMENTS for count in counts) or not _fits(sizes, window):
        return None
    tensors = {n: t.contiguous() for n, t in named.items()}
    bias = biases[0].contiguous() if biases else None
    return Work(kind, tensors, sizes, bias, window, groups)


def _two(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (fill,) * (2 - len(values)) + tuple(values)


def _fits(sizes: Mapping[str, tuple[int, ...]], window: Sequence[tuple[int, ...]]) -> bool:
    """Whether the result has a place for each window, which a transposed convolution may lack."""
    spatial = zip(*(sizes[n][2:] for n in "xwy"), *window, strict=True)
    return all(
        out == (n + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
        for n, taps, out, padding, stride, dilation in spatial
    )


class _Plan(NamedTuple):
    tensors: Mapping[str, int]
    window: int
    found: _Found


class Handle(DeviceHandle):
    """cuDNN on one device, with what it proposed for the convolutions met so far."""

    calls, creates = call, "cudnnCreate"

    def forget(self, plan: _Plan | None) -> None:
        """Give back the descriptions of a plan."""
        if plan is not None:
            call("cudnnDestroyConvolutionDescriptor", plan.window)
            for name, tensor in plan.tensors.items():
                kind = "Filter" if name == "w" else "Tensor"
                call(f"cudnnDestroy{kind}Descriptor", tensor)

    def convolve(self, work: Work) -> bool:
        """Compute what is to be written; False where the library has no algorithm for it.

        Raises:
            RuntimeError: the library refuses.
        """
        self.driver.contexts.enter(self.index)
        # The launches that the library makes are not among those that can be replayed.
        _launch.spoil()
        told = settings.allow_tf32, settings.deterministic, settings.benchmark
        dtype = work.tensors["x"].dtype.name
        key = work.kind, dtype, *work.sizes.values(), work.window, work.groups, told
        with self.lock:
            call("cudnnSetStream", self.number, self.stream())
            plan = self.plan_for(key, lambda: self._plan(work, TYPES[dtype]))
            return plan is not None and self._run(plan, work, TYPES[dtype])

    def _run(self, plan: _Plan, work: Work, kind: Type) -> bool:
        one, zero = ctypes.byref(kind.number(1)), ctypes.byref(kind.number(0))
        (first, second), out, _ = KINDS[work.kind]
        given = {n: (plan.tensors[n], sum(location(t))) for n, t in work.tensors.items()}
        try:
            workspace = self._workspace(plan.found.workspace)
        except tangrad.OutOfMemoryError:
            return False  # the own kernels need none
        call(
            f"cudnnConvolution{work.kind}", self.number, one, *given[first], *given[second],
            plan.window, plan.found.algorithm, *workspace.given, zero, *given[out],
        )  # fmt: skip
        if work.bias is not None:
            bias = plan.tensors["bias"], sum(location(work.bias))
            if work.kind == "Forward":
                call("cudnnAddTensor", self.number, one, *bias, one, *given["y"])
            else:
                call("cudnnConvolutionBackwardBias", self.number, one, *given["y"], zero, *bias)
        return True

    def _workspace(self, size: int) -> _Workspace:
        return _Workspace(size, f"cuda:{self.index}")

    def _largest_workspace(self) -> _Workspace:
        for halved in range(WORKSPACE.bit_length()):
            with contextlib.suppress(tangrad.OutOfMemoryError):
                return self._workspace(WORKSPACE >> halved)
        return self._workspace(0)

    def _plan(self, work: Work, kind: Type) -> _Plan | None:
        tensors = {n: described(n, kind.stored, sizes) for n, sizes in work.sizes.items()}
        # As the library broadcasts it: one number for each channel.
        channels = (1, work.sizes["w"][0], *(1,) * len(work.window[0]))
        tensors["bias"] = described("bias", kind.stored, channels)
        window = described_window(work.window, work.groups, kind, _math(kind))
        found = self._algorithm(work, tensors, window)
        plan = _Plan(tensors, window, found or _Found())
        if found is None:
            self.forget(plan)
            return None
        call("cudnnSetConvolutionMathType", window, found.math)
        return plan

    def _algorithm(self, work: Work, tensors: Mapping[str, int], window: int) -> _Found | None:
        """Return the first algorithm that may be taken: by rules, or by trying all of them."""
        kind = KINDS[work.kind]
        found, count = (_Found * kind.algorithms)(), _INT()
        (first, second), out = kind.read, kind.written
        if settings.benchmark:
            asked = min(settings.benchmark_limit or kind.algorithms, kind.algorithms)
            given = {n: (tensors[n], sum(location(t))) for n, t in work.tensors.items()}
            workspace = self._largest_workspace()
            status = getattr(library(), f"cudnnFindConvolution{work.kind}AlgorithmEx")(
                self.number, *given[first], *given[second], window, *given[out], asked,
                ctypes.byref(count), found, *workspace.given,
            )  # fmt: skip
        else:
            status = getattr(library(), f"cudnnGetConvolution{work.kind}Algorithm_v7")(
                self.number, tensors[first], tensors[second], window, tensors[out],
                kind.algorithms, ctypes.byref(count), found,
            )  # fmt: skip
        if _is_not_supported(status):
            return None
        call.check(status, f"the choice of an algorithm for cudnnConvolution{work.kind}")
        for each in found[: count.value]:
            exact = each.determinism == _DETERMINISTIC or not settings.deterministic
            if each.status == 0 and each.workspace <= WORKSPACE and exact:
                return each
        return None


class _Workspace:
    """Memory for the time of a call; `given` is its address and its size."""

    def __init__(self, size: int, device: str) -> None:
        self._kept = tangrad.empty(size, dtype=tangrad.uint8, device=device) if size else None
        self.given = (None if self._kept is None else sum(location(self._kept)), size)


def _math(kind: Type) -> int:
    """Say which instructions may be used: as PyTorch, TF32 only where it is allowed."""
    if kind.stored == TYPES["float16"].stored:
        return _TENSOR_MATH
    of_float32 = kind.stored == TYPES["float32"].stored
    return _FMA_MATH if of_float32 and not settings.allow_tf32 else _DEFAULT_MATH


def _integers(values: Sequence[int]) -> Any:
    return (_INT * len(values))(*values)


def described(name: str, stored: int, sizes: tuple[int, ...]) -> int:
    """Return the library's description of a contiguous tensor, or of the filter "w"."""
    if name == "w":
        made = call.made("cudnnCreateFilterDescriptor")
        call("cudnnSetFilterNdDescriptor", made, stored, _BY_ROWS, len(sizes), _integers(sizes))
        return made
    steps = [1]
    for size in reversed(sizes[1:]):
        steps.insert(0, steps[0] * size)
    made = call.made("cudnnCreateTensorDescriptor")
    call("cudnnSetTensorNdDescriptor", made, stored, len(sizes), _integers(sizes), _integers(steps))
    return made


def described_window(window: Sequence[tuple[int, ...]], groups: int, kind: Type, math: int) -> int:
    """Return the library's description of padding, stride and dilation, and of how to compute."""
    made = call.made("cudnnCreateConvolutionDescriptor")
    call(
        "cudnnSetConvolutionNdDescriptor", made, len(window[0]), *map(_integers, window),
        _CROSS_CORRELATION, kind.computed,
    )  # fmt: skip
    call("cudnnSetConvolutionGroupCount", made, groups)
    call("cudnnSetConvolutionMathType", made, math)
    return made


def _is_not_supported(status: int) -> bool:
    """Whether a status says so: 9 in cuDNN 8, and in cuDNN 9 one of those from 3000 on."""
    return status == 9 or 3000 <= status < 4000
