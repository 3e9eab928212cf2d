"""Ops that are made of several here and are one in PyTorch, or are made of others there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.compat.shown.forms import REDUCTIONS
from tangrad.compat.shown.packets import OFFERED, call, overload_of
from tangrad.nn import functional as F
from tangrad.plugin import handled_form

_RESIZED = {
    ("nearest", 1): "upsample_nearest1d",
    ("nearest", 2): "upsample_nearest2d",
    ("nearest", 3): "upsample_nearest3d",
    ("linear", 1): "upsample_linear1d",
    ("bilinear", 2): "upsample_bilinear2d",
    ("bicubic", 2): "upsample_bicubic2d",
    ("trilinear", 3): "upsample_trilinear3d",
}
_SAMPLED, _PADDED = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_Shown = Callable[[Any, tuple[Any, ...]], Any]
COMPOSITES: dict[str, _Shown] = {}
_CREATION = frozenset(("dtype", "layout", "device", "requires_grad", "pin_memory", "memory_format"))


def _composite(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for what handlers see of composites; it takes their arguments."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            COMPOSITES[name] = _unless_inference(name, function)
        return function

    return keep


def _unless_inference(name: str, function: Callable[..., Any]) -> _Shown:
    """Show a composite whole in inference mode, where PyTorch takes nothing apart either."""
    whole = {"cross_entropy": "cross_entropy_loss"}.get(name, name)
    overload = "int" if name in ("softmax", "log_softmax") else "default"

    def shown(op: Any, args: tuple[Any, ...]) -> Any:
        if whole in OFFERED and tangrad.is_inference_mode_enabled():
            return _as_one(whole, overload)(op, args)
        return function(*args)

    return shown


def _as_one(name: str, overload: str = "default") -> _Shown:
    """Return what offers a composite as one op of PyTorch with the same arguments."""

    def shown(op: Any, args: tuple[Any, ...]) -> Any:
        if name.endswith("_") and tangrad.is_grad_enabled() and args[0].requires_grad:
            return NotImplemented  # a write that is recorded
        given, kwargs = handled_form(op, args)
        return overload_of(name, overload)(*given, **kwargs)

    return shown


def _creation(name: str, overload: str = "default", *, own: bool = False) -> _Shown:
    """Return what offers a call that makes a tensor.

    Args:
        name: of the op.
        overload: of it.
        own: whether the device is the call's own, not that of another tensor.
    """

    def shown(op: Any, args: tuple[Any, ...]) -> Any:
        names = op.definition.parameter_names
        options = {n: v for n, v in zip(names, args, strict=True) if n in _CREATION}
        given, kwargs = handled_form(op, args)
        kwargs = {k: v for k, v in kwargs.items() if k not in _CREATION}
        kwargs |= {k: v for k, v in options.items() if v is not None and k != "requires_grad"}
        if own and "device" not in kwargs:
            kwargs["device"] = tangrad.get_default_device()
        with tangrad.no_grad():
            made = overload_of(name, overload)(*given, **kwargs)
        return made.requires_grad_() if options["requires_grad"] else made

    return shown


for _name in (
    "addmm baddbmm addmv addbmm addr stack repeat roll take trace nan_to_num gelu glu "
    "linalg_vector_norm native_batch_norm native_group_norm convolution_backward "
    "avg_pool3d pixel_shuffle pixel_unshuffle grid_sampler_2d grid_sampler_3d equal allclose "
    "diag_embed dist kthvalue mode histc renorm put index_reduce scatter_reduce linalg_inv_ex "
    "linalg_cholesky_ex block_diag channel_shuffle multinomial poisson"
).split():
    COMPOSITES[_name] = _as_one(_name)
for _name in "zeros ones full eye linspace logspace rand randn randperm scalar_tensor".split():
    COMPOSITES[_name] = _creation(_name, own=True)
for _name in (
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros "
    "new_ones new_empty new_full"
).split():
    COMPOSITES[_name] = _creation(_name)
COMPOSITES["empty"] = _creation("empty", "memory_format", own=True)
COMPOSITES["arange_end"] = _creation("arange", own=True)
COMPOSITES["arange_step"] = _creation("arange", "start_step", own=True)
COMPOSITES["randint_below"] = _creation("randint", own=True)
COMPOSITES["randint_between"] = _creation("randint", "low", own=True)
for _name, _overload in {
    "isin": "Tensor_Tensor",
    "searchsorted": "Tensor",
    "bucketize": "Tensor",
}.items():
    COMPOSITES[_name] = _as_one(_name, _overload)
COMPOSITES["zero_"] = _as_one("zero_")


@_composite("matmul")
def matmul(self: Any, other: Any) -> Any:
    """Multiply as PyTorch does: by `dot`, `mv`, `mm`, or `bmm` of what is batched."""
    m, n = self.ndim, other.ndim
    if 0 in (m, n):
        return NotImplemented
    if (m, n) == (1, 1):
        return tangrad.dot(self, other)
    if (m, n) == (2, 1):
        return tangrad.mv(self, other)
    if (m, n) == (1, 2):
        row = tangrad.mm(self.unsqueeze(0), other)
        # The sizes of a wrapper are its own: a write into them does not reach what it holds.
        return row.squeeze(0) if hasattr(type(row), "__torch_dispatch__") else row.squeeze_(0)
    if (m, n) == (2, 2):
        return tangrad.mm(self, other)
    if _folds(self, other):
        return _folded(self, other)
    return _batched(self, other)


def _folds(self: Any, other: Any) -> bool:
    """Return whether the batch of the larger operand becomes rows of one matrix."""
    larger, smaller = (self, other) if self.ndim >= other.ndim else (other.mT, self)
    if larger.ndim < 3 or smaller.ndim > 2:
        return False
    if smaller.requires_grad or larger.numel() == 0:
        return True
    if self.ndim == 2:
        return False
    sizes, strides = larger.shape, larger.stride()
    return all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(larger.ndim - 2))


def _folded(self: Any, other: Any) -> Any:
    turned = self.ndim < other.ndim
    larger, smaller = (other.mT, self.t() if self.ndim == 2 else self) if turned else (self, other)
    sizes = tuple(larger.shape[:-1])
    rows = larger.reshape(-1, larger.shape[-1])
    if smaller.ndim == 1:
        return tangrad._unsafe_view(tangrad.mv(rows, smaller), sizes)
    result = tangrad._unsafe_view(tangrad.mm(rows, smaller), (*sizes, smaller.shape[1]))
    return result.mT.contiguous() if turned else result


def _batched(self: Any, other: Any) -> Any:
    n, m = (1 if self.ndim == 1 else self.shape[-2]), self.shape[-1]
    p = 1 if other.ndim == 1 else other.shape[-1]
    inner = other.shape[-1] if other.ndim == 1 else other.shape[-2]
    batch = tangrad.broadcast_shapes(tuple(self.shape[:-2]), tuple(other.shape[:-2]))
    left = self.unsqueeze(0) if self.ndim == 1 else self
    right = other.unsqueeze(1) if other.ndim == 1 else other
    left = left.expand(*batch, n, m).reshape(-1, n, m)
    right = right.expand(*batch, inner, p).reshape(-1, inner, p)
    kept = ((n,) if self.ndim > 1 else ()) + ((p,) if other.ndim > 1 else ())
    return tangrad._unsafe_view(tangrad.bmm(left, right), (*batch, *kept))


def _several(value: Any, count: int) -> list[int]:
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values * count if len(values) == 1 else values


def _convolution(n: int) -> Callable[..., Any]:
    def shown(
        input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Any:
        stride, dilation = _several(stride, n), _several(dilation, n)
        if input.ndim not in (n + 1, n + 2) or weight.ndim != n + 2:
            return NotImplemented
        if padding == "valid":
            padding = 0
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
            if any(s != 1 for s in stride) or any(total % 2 for total in totals):
                return NotImplemented
            padding = [total // 2 for total in totals]
        if isinstance(padding, str):
            return NotImplemented
        x = input if input.ndim == n + 2 else input.unsqueeze(0)
        result = call(
            "convolution", x, weight, bias, stride, _several(padding, n), dilation, False, [0] * n,
            groups,
        )  # fmt: skip
        return result if input.ndim == n + 2 else result.squeeze(0)

    return shown


def _transposed_convolution(n: int) -> Callable[..., Any]:
    def shown(
        input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any,
        groups: int, dilation: Any,
    ) -> Any:  # fmt: skip
        if input.ndim not in (n + 1, n + 2) or weight.ndim != n + 2:
            return NotImplemented
        x = input if input.ndim == n + 2 else input.unsqueeze(0)
        windows = [_several(given, n) for given in (stride, padding, dilation)]
        result = call(
            "convolution", x, weight, bias, *windows, True, _several(output_padding, n), groups
        )
        return result if input.ndim == n + 2 else result.squeeze(0)

    return shown


for _n in (1, 2, 3):
    _composite(f"conv{_n}d")(_convolution(_n))
    _composite(f"conv_transpose{_n}d")(_transposed_convolution(_n))


@_composite("batch_norm")
def _batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    return call(
        "native_batch_norm", input, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


@_composite("group_norm")
def _group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    if input.ndim < 2:
        return NotImplemented
    n, c = input.shape[:2]
    area = input.numel() // max(1, n * c)
    return call("native_group_norm", input, weight, bias, n, c, area, num_groups, eps)[0]


@_composite("softmax")
def _softmax(self: Any, dim: int, dtype: Any) -> Any:
    return call("_softmax", self if dtype is None else self.to(dtype), dim, False)


@_composite("log_softmax")
def _log_softmax(self: Any, dim: int, dtype: Any) -> Any:
    return call("_log_softmax", self if dtype is None else self.to(dtype), dim, False)


@_composite("cross_entropy")
def _cross_entropy(
    input: Any, target: Any, weight: Any, size_average: Any, ignore_index: int, reduce: Any,
    reduction: str, label_smoothing: float,
) -> Any:  # fmt: skip
    if label_smoothing or target.is_floating_point() or not size_average is reduce is None:
        return NotImplemented
    scores = tangrad.log_softmax(input, 1 if input.ndim > 1 else 0)
    return F.nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)


@_composite("nll_loss")
def _nll_loss(
    input: Any, target: Any, weight: Any, size_average: Any, ignore_index: int, reduce: Any,
    reduction: str,
) -> Any:  # fmt: skip
    if input.ndim not in (1, 2, 4) or not size_average is reduce is None:
        return NotImplemented
    if reduction not in REDUCTIONS:
        return NotImplemented
    name = "nll_loss2d_forward" if input.ndim == 4 else "nll_loss_forward"
    return call(name, input, target, weight, REDUCTIONS.index(reduction), ignore_index)[0]


def _loss(name: str, function: Callable[..., Any]) -> None:
    """Show a loss as one op, whose reduction is a number, where it is called as everybody does."""

    @_composite(name)
    def shown(input: Any, target: Any, *more: Any) -> Any:
        options = function(*more)
        if options is None or input.shape != target.shape:
            return NotImplemented
        reduction, kept = options
        if reduction not in REDUCTIONS:
            return NotImplemented
        number = REDUCTIONS.index(reduction)
        given = () if number == 1 and not kept else (number, *kept)
        return call(name, input, target, *given)


_loss("mse_loss", lambda a, b, how, w: (how, ()) if a is b is w is None else None)
_loss(
    "smooth_l1_loss",
    lambda a, b, how, beta: (how, () if beta == 1 else (beta,)) if a is b is None else None,
)
_loss(
    "huber_loss", lambda how, delta, w: (how, () if delta == 1 else (delta,)) if w is None else None
)


@_composite("embedding")
def _embedding(
    input: Any, weight: Any, padding_idx: Any, max_norm: Any, norm_type: float,
    scale_grad_by_freq: bool, sparse: bool,
) -> Any:  # fmt: skip
    if max_norm is not None or sparse or scale_grad_by_freq:
        return NotImplemented
    given = () if padding_idx is None else (padding_idx % weight.shape[0],)
    return call("embedding", weight, input, *given)


@_composite("max_pool2d", "max_pool2d_with_indices")
def _max_pool2d(
    input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    if input.ndim != 4:
        return NotImplemented
    given: list[Any] = [_several(kernel_size, 2)]
    more = [_several(stride or (), 2), _several(padding, 2), _several(dilation, 2), ceil_mode]
    usual = [[], [0, 0], [1, 1], False]
    if more != usual:
        last = max(k for k in range(4) if more[k] != usual[k])
        given += more[: last + 1]
    result = call("max_pool2d_with_indices", input, *given)
    return tuple(result) if return_indices else result[0]


@_composite("avg_pool2d")
def _avg_pool2d(
    input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: Any,
) -> Any:  # fmt: skip
    window = [_several(stride or (), 2), _several(padding, 2)]
    given = (*window, ceil_mode, count_include_pad, divisor_override)
    usual: tuple[Any, ...] = ([], [0, 0], False, True, None)
    while given and given[-1] == usual[len(given) - 1]:
        given = given[:-1]
    return call("avg_pool2d", input, _several(kernel_size, 2), *given)


@_composite("adaptive_avg_pool2d")
def _adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    sizes = _several(output_size, 2)
    if None in sizes or input.ndim != 4:
        return NotImplemented
    if sizes == [1, 1]:
        return input.mean((-1, -2), True)
    return call("_adaptive_avg_pool2d", input, sizes)


def _pool1d(name: str) -> Callable[..., Any]:
    """Return a pooling of sequences by that of pictures of one row."""

    def row(value: Any, one: int) -> Any:
        return value if value in (None, ()) else (one, *_several(value, 1))

    def shown(input: Any, kernel_size: Any, stride: Any, padding: Any, *more: Any) -> Any:
        if input.ndim not in (2, 3) or (name == "max_pool1d" and more[2]):
            return NotImplemented
        size, by = row(kernel_size, 1), row(stride or kernel_size, 1)
        x = input.unsqueeze(-2)
        if name == "max_pool1d":
            dilation, ceil_mode, _ = more
            result = _max_pool2d(x, size, by, row(padding, 0), row(dilation, 1), ceil_mode, False)
        else:
            result = F.avg_pool2d(x, size, by, row(padding, 0), *more)
        return NotImplemented if result is NotImplemented else result.squeeze(-2)

    return shown


for _name in ("max_pool1d", "avg_pool1d"):
    _composite(_name)(_pool1d(_name))


@_composite("interpolate")
def _interpolate(
    input: Any, size: Any, scale_factor: Any, mode: str, align_corners: Any,
    recompute_scale_factor: Any, antialias: bool,
) -> Any:  # fmt: skip
    n = input.ndim - 2
    name = _RESIZED.get((mode, n))
    if (
        name is None
        or antialias
        or recompute_scale_factor
        or (size is None) is (scale_factor is None)
    ):
        return NotImplemented
    scales: list[float] = []
    if size is not None:
        sizes = _several(size, n)
    else:
        scales = [float(s) for s in _several(scale_factor, n)]
        sizes = [int(d * s) for d, s in zip(input.shape[2:], scales, strict=True)]
    corners = () if mode == "nearest" else (bool(align_corners),)
    return call(name, input, sizes, *corners, *scales)


@_composite("grid_sample")
def _grid_sample(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: Any) -> Any:
    if input.ndim not in (4, 5) or mode not in _SAMPLED or padding_mode not in _PADDED:
        return NotImplemented
    numbers = _SAMPLED.index(mode), _PADDED.index(padding_mode)
    return call(f"grid_sampler_{input.ndim - 2}d", input, grid, *numbers, bool(align_corners))


@_composite("nonzero")
def _nonzero(input: Any, as_tuple: bool) -> Any:
    return NotImplemented if as_tuple else call("nonzero", input)


@_composite("binary_cross_entropy")
def _binary_cross_entropy(
    input: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str
) -> Any:
    if not size_average is reduce is None or reduction not in REDUCTIONS:
        return NotImplemented
    number = REDUCTIONS.index(reduction)
    given = (weight, number) if number != 1 else () if weight is None else (weight,)
    return call("binary_cross_entropy", input, target, *given)


@_composite("binary_cross_entropy_with_logits")
def _binary_cross_entropy_of_logits(
    input: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str,
    pos_weight: Any,
) -> Any:  # fmt: skip
    if not size_average is reduce is None or reduction not in REDUCTIONS:
        return NotImplemented
    number = REDUCTIONS.index(reduction)
    given: tuple[Any, ...] = (weight, pos_weight, number)
    usual = (None, None, 1)
    while given and given[-1] is usual[len(given) - 1]:
        given = given[:-1]
    return call("binary_cross_entropy_with_logits", input, target, *given)


@_composite("pad")
def _pad(input: Any, pad: Any, mode: str, value: Any) -> Any:
    name = {"reflect": "reflection_pad", "replicate": "replication_pad"}.get(mode)
    n = len(pad) // 2
    if name is None or input.ndim not in (n + 1, n + 2):
        return NotImplemented
    return call(f"{name}{n}d", input, list(pad))


@_composite("masked_fill")
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    kind = "Tensor" if isinstance(value, tangrad.Tensor) else "Scalar"
    return overload_of("masked_fill", kind)(self, mask, value)


@_composite("prelu")
def _prelu(self: Any, weight: Any) -> Any:
    if self.ndim < 2 or weight.ndim > 1:
        return NotImplemented
    return call("_prelu_kernel", self, weight.view(1, weight.numel(), *(1,) * (self.ndim - 2)))
