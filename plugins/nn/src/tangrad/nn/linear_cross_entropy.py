"""Cross entropy of a linear layer's scores, which need not exist all at once."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad.autograd.function import Function, once_differentiable
from tangrad.plugin import find_op, overridable

__all__ = ["LinearCrossEntropyOptions", "linear_cross_entropy"]

_POLICIES = ("auto", "accurate", "balanced", "compact")
_ACCUMULATORS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Say how `linear_cross_entropy` divides its work to save memory.

    The rows of the input are taken in chunks: only the scores of one chunk exist at a time, and
    backward computes them again.

    Args:
        allow_retain_graph: accepted; backward may always run several times.
        batch_chunk_size: rows of a chunk; not together with a `chunking_method` that gives another
            number.
        chunking_method: ``"aspect_ratio"`` makes the scores of a chunk about as large as the input,
            ``"aspect_ratio:N"`` an N-th of that; ``"auto"`` is the same for 2, unless
            `batch_chunk_size` is given; None: `batch_chunk_size`, or all rows.
        acc_policy: accepted; what ``"accurate"`` promises always holds.
        acc_dtype: dtype of the scores and of the sums; default: float32 for half precisions, else
            the input's.

    Raises:
        ValueError: if a value is none of these.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            _divisor(self.chunking_method)
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype is not None and self.acc_dtype.name not in (_ACCUMULATORS):
            raise ValueError(
                f"acc_dtype must be None or one of {', '.join(_ACCUMULATORS)}, got "
                f"{self.acc_dtype!r}"
            )


def _divisor(method: str) -> int:
    name, colon, number = method.partition(":")
    if name != "aspect_ratio" or (colon and not (number.isdigit() and int(number) > 0)):
        raise ValueError(f"invalid chunking_method: {method!r}")
    return int(number) if colon else 1


def _chunk_rows(options: Any, count: int, in_features: int, num_classes: int) -> int:
    """Return how many rows of `count` a chunk has.

    Raises:
        ValueError: if size and method contradict each other.
    """
    method, size = options.chunking_method, options.batch_chunk_size
    if method == "auto":
        method = "aspect_ratio:2" if size is None else None
    if method is None:
        return max(1, count if size is None else min(size, count))
    wanted = -(-count // max(1, -(-num_classes // max(1, in_features))))
    power: int = 1 << max(0, wanted - 1).bit_length()
    by_method = min(power // _divisor(method), count)
    if size is not None and size != by_method:
        raise ValueError(
            f"batch_chunk_size (={size}) and chunking_method ('{method}') give different chunk "
            f"sizes ({size} vs {by_method}); pass only one."
        )
    return max(1, by_method)


def _check(input: Any, linear_weight: Any, target: Any, linear_bias: Any, ignored: Any) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}"
        )
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    outputs = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != outputs:
        raise RuntimeError(f"expected linear_bias shape {outputs}, got {tuple(linear_bias.shape)}")
    if len(outputs) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {input.shape[-1]}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    if ignored is not None and tuple(target.shape) == (*input.shape[:-1], *outputs):
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")


class _Chunked(Function):
    """Losses of the rows, of which no more is kept than input, weights and targets."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: int, dtype: Any, ignored: int, *tensors: Any) -> Any:
        """Return the loss of each row."""
        input, weight, target, bias, class_weight = tensors
        losses = [
            _row_losses(input[part], weight, target[part], bias, class_weight, ignored, dtype)
            for part in _parts(input.shape[0], rows)
        ]
        return tangrad.cat(losses) if losses else input.new_zeros((0,), dtype=dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what backward computes the scores from."""
        ctx.rows, ctx.dtype, ctx.ignored = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        """Compute the scores of each chunk again, and add the gradients up."""
        input, weight, target, bias, class_weight = ctx.saved_tensors
        needs = ctx.needs_input_grad[3], ctx.needs_input_grad[4], ctx.needs_input_grad[6]
        by_input: list[Any] = []
        sums: list[Any] = [None, None]
        for part in _parts(input.shape[0], ctx.rows):
            given = (input[part], weight, bias)

            def losses(
                *wanted: Any, given: tuple[Any, ...] = given, target: Any = target[part]
            ) -> Any:
                left = iter(wanted)
                x, w, b = (next(left) if n else t for t, n in zip(given, needs, strict=True))
                return _row_losses(x, w, target, b, class_weight, ctx.ignored, ctx.dtype)

            wanted = [x for x, need in zip(given, needs, strict=True) if need]
            _, pull = tangrad.func.vjp(losses, *wanted)
            found = iter(pull(g[part]))
            if needs[0]:
                by_input.append(next(found))
            for i in (0, 1):
                if needs[i + 1]:
                    more = next(found).to(ctx.dtype)
                    sums[i] = more if sums[i] is None else sums[i] + more
        first = None
        if needs[0]:
            first = tangrad.cat(by_input) if by_input else tangrad.zeros_like(input)
        by_weight, by_bias = (
            s if s is None else s.to(x.dtype) for s, x in zip(sums, (weight, bias), strict=True)
        )
        return None, None, None, first, by_weight, None, by_bias, None


def _parts(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


def _row_losses(
    input: Any, weight: Any, target: Any, bias: Any, class_weight: Any, ignored: int, dtype: Any
) -> Any:
    given = (x if x is None else x.to(dtype) for x in (input, weight, bias))
    scores = find_op("linear")(*given)
    class_weight = class_weight if class_weight is None else class_weight.to(dtype)
    return find_op("cross_entropy")(
        scores, target, class_weight, ignore_index=ignored, reduction="none"
    )


def _in_chunks(
    options: LinearCrossEntropyOptions,
    input: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    reduction: str,
    ignored: int,
) -> Any:
    single = input.ndim == 1
    if single:
        input, target = input.unsqueeze(0), target.reshape((1,))
    rows = _chunk_rows(options, input.shape[0], input.shape[1], linear_weight.shape[0])
    half = tangrad.float32 if input.dtype.itemsize < 4 else input.dtype
    dtype = options.acc_dtype or half
    losses = _Chunked.apply(rows, dtype, ignored, input, linear_weight, target, linear_bias, weight)
    if reduction == "none":
        return (losses.squeeze(0) if single else losses).to(input.dtype)
    total = losses.sum()
    if reduction == "mean":
        counted = target != ignored
        if weight is None:
            total = total / counted.sum()
        else:
            scale = weight.to(dtype).index_select(0, target.masked_fill(~counted, 0))
            total = total / scale.masked_fill(~counted, 0).sum()
    return total.to(input.dtype)


@overridable
def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Any:
    """Return the cross entropy of a linear layer's scores against classes.

    Args:
        input: (N, in_features) or (in_features).
        linear_weight: (C, in_features), or (C, d1, ..., in_features) for targets (N, d1, ...).
        target: class numbers, or probabilities of the shape of the scores.
        linear_bias: of the shape of `linear_weight` without its last size.
        weight: weights of the classes (C).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: class number that does not count; default: -100.
        label_smoothing: share of the uniform distribution in the target.
        options: work in chunks to save memory: for class numbers, without smoothing, and once
            differentiable. Otherwise they are ignored with a warning.

    Raises:
        RuntimeError: if shapes do not fit.
    """
    _check(input, linear_weight, target, linear_bias, ignore_index)
    ignored = -100 if ignore_index is None else ignore_index
    outputs = tuple(linear_weight.shape[:-1])
    if options is not None:
        fits = (
            len(outputs) == 1
            and reduction in ("mean", "sum", "none")
            and label_smoothing == 0
            and target.dtype is tangrad.int64
        )
        if fits:
            return _in_chunks(
                options, input, linear_weight, target, linear_bias, weight, reduction, ignored
            )
        warnings.warn(
            "linear_cross_entropy: options ignored; chunks need reduction 'mean', 'sum' or 'none', "
            "label_smoothing 0, targets of dtype int64, and a linear_weight of two dimensions. Got "
            f"reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype="
            f"{target.dtype}, linear_weight {tuple(linear_weight.shape)}.",
            stacklevel=2,
        )
    count = math.prod(outputs)
    bias = None if linear_bias is None else linear_bias.reshape((count,))
    scores = find_op("linear")(input, linear_weight.reshape((count, -1)), bias)
    return find_op("cross_entropy")(
        scores.reshape((*input.shape[:-1], *outputs)),
        target,
        weight,
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
