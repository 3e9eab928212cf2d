"""Define the losses of classification: likelihoods of classes, of probabilities, of events."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.fusing import fuses, unseen
from tangrad.ops.nn.loss_classes import (
    as_batch,
    check_class_weight,
    nll_loss_elements,
    nll_loss_total,
    require_float_input,
)
from tangrad.ops.nn.loss_entropy import cross_entropy_elements
from tangrad.plugin import (
    Tensor,
    at_all_sizes,
    composite,
    find_op,
    get_intercept,
    pointwise,
    require,
)

logsigmoid = find_op("logsigmoid")


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """Translate the old arguments size_average and reduce, and check the new one."""
    if size_average is not None or reduce is not None:
        import warnings

        meant = "sum" if size_average is False else "mean"
        meant = "none" if reduce is False else meant
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{meant}' "
            "instead.",
            stacklevel=3,
        )
        return meant
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"{reduction} is not a valid value for reduction; choose 'none', 'mean' or 'sum'"
        )
    return reduction


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()


# Class numbers ---------------------------------------------------------------------------------


# Samples that one block of lanes adds up in less time than further launches take.
_MOST_IN_ONE = 1 << 16


@at_all_sizes
def _nll(self: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    if self.ndim == 0:
        raise ValueError("nll_loss: Expected 1 or more dimensions (got 0)")
    single = self.ndim == 1
    if single:
        self, target = as_batch(self, target)
    in_one = weight is None and reduction != "none" and target.numel() <= _MOST_IN_ONE
    if in_one and fuses(self, target):
        return nll_loss_total(self, target, ignore_index, reduction == "mean")[0]
    loss, scale = nll_loss_elements(self, target, weight, ignore_index)
    if reduction == "none":
        return loss.squeeze(0) if single else loss
    return _total(loss, scale, reduction)


def _total(loss: Any, scale: Any, reduction: str) -> Any:
    return loss.sum() if reduction == "sum" else loss.sum() / scale.sum()


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3)),
        s(s.tensor(3, 4), s.integers(0, 4, 3), s.tensor(4, low=0.5, high=2), ignore_index=1),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), reduction="sum"),
        s(s.tensor(2, 3, 2, 1), s.integers(0, 3, 2, 2, 1), reduction="none"),
        s(s.tensor(3), s.integers(0, 3)),
    ],
    oracle="nn.functional.nll_loss",
    errors=lambda s: [
        (s(s.tensor(3, 4), s.integers(4, 5, 3)), IndexError, "is out of bounds"),
        (s(s.tensor(3, 4), s.integers(0, 4, 2)), (ValueError, RuntimeError), "batch_size"),
        (s(s.tensor(3, 4), s.integers(0, 4, 3), reduction="avg"), ValueError, "not a valid value"),
        (
            s(s.tensor(3, 4), s.integers(0, 4, 3), s.tensor(3)),
            RuntimeError,
            "either for all 4 classes",
        ),
    ],
)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take the negative log-likelihood of the target classes.

    Args:
        input: log-probabilities (N, C, ...) or (C).
        target: class numbers (N, ...) or ().
        weight: weights of the classes (C); a mean is divided by the weights that occur.
        ignore_index: a target that counts nothing.
        reduction: "mean", "sum" or "none".
    """
    return _nll(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction))


def _smoothed_indices(
    logs: Any, target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float
) -> Any:
    """Mix the loss of the target class with the average of the losses of all classes."""
    single = logs.ndim == 1
    if single:
        logs, target = as_batch(logs, target)
    loss, scale = nll_loss_elements(logs, target, weight, ignore_index)
    shape = (-1,) + (1,) * (logs.ndim - 2)
    weighted = logs if weight is None else logs * weight.reshape(shape)
    spread = -weighted.sum((1,)).masked_fill(target == ignore_index, 0)
    mixed = (1 - smoothing) * loss + smoothing / max(logs.shape[1], 1) * spread
    if reduction == "none":
        return mixed.squeeze(0) if single else mixed
    return mixed.sum() if reduction == "sum" else mixed.sum() / scale.sum()


def _probabilities(logs: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    dim = 0 if logs.ndim == 1 else 1
    classes = logs.shape[dim]
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / max(classes, 1)
    product = logs * target
    if weight is not None:
        product = product * weight.reshape((-1,) + (1,) * (logs.ndim - 1 - dim))
    loss = -product.sum((dim,))
    if reduction == "mean":
        return loss.sum() / loss.new_tensor(loss.numel())
    return _reduced(loss, reduction)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3)),
        s(s.tensor(3, 4), s.integers(0, 4, 3), s.tensor(4, low=0.5, high=2), ignore_index=1),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), reduction="sum", label_smoothing=0.1),
        s(s.tensor(2, 3), s.tensor(2, 3, low=0, high=1), label_smoothing=0.2),
        s(
            s.tensor(2, 3, 2),
            s.tensor(2, 3, 2, low=0, high=1),
            s.tensor(3, low=0.5, high=2),
            reduction="none",
        ),
        s(s.tensor(3), s.integers(0, 3)),
    ],
    oracle="nn.functional.cross_entropy",
    errors=lambda s: [
        (s(s.tensor(3, 4), s.integers(4, 5, 3)), IndexError, "is out of bounds"),
        (s(s.tensor(3, 4), s.integers(0, 4, 2)), (ValueError, RuntimeError), "batch_size"),
        (
            s(s.tensor(3, 4), s.integers(0, 4, 3), label_smoothing=2.0),
            RuntimeError,
            "between 0.0 and 1.0",
        ),
    ],
)
@at_all_sizes
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Take the cross entropy of the softmax of scores relative to targets.

    Args:
        input: scores (N, C, ...) or (C).
        target: class numbers (N, ...), or probabilities of the shape of `input`.
        weight: weights of the classes (C).
        ignore_index: a class number that counts nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of every target is spread evenly over the classes.
    """
    reduction = _reduction(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    require_float_input("cross_entropy", input)
    by_probability = target.shape == input.shape
    if by_probability and not target.dtype.is_floating_point:
        raise RuntimeError(
            "Expected floating point type for target with class probabilities, got "
            f"{target.dtype} in the input's shape {list(input.shape)}"
        )
    if by_probability and ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    if input.ndim == 0:
        raise IndexError("cross_entropy: Expected 1 or more dimensions (got 0)")
    if weight is None and not by_probability and not label_smoothing:
        takes = unseen("cross_entropy", input, target)
        if takes is not None and takes(input, target):
            loss, scale, _ = cross_entropy_elements(input, target, ignore_index)
            return loss if reduction == "none" else _total(loss, scale.detach(), reduction)
    check_class_weight("cross_entropy", weight, input.shape[min(input.ndim - 1, 1)])
    logs = input.log_softmax(0 if input.ndim == 1 else 1)
    if by_probability:
        return _probabilities(logs, target, weight, reduction, label_smoothing)
    if label_smoothing > 0:
        return _smoothed_indices(logs, target, weight, ignore_index, reduction, label_smoothing)
    return _nll(logs, target, weight, ignore_index, reduction)


# Events ----------------------------------------------------------------------------------------


def _require_probabilities(name: str, x: Any) -> None:
    """Refuse numbers outside [0, 1], where numbers can be seen: not of shapes, nor under vmap."""
    stack = get_intercept()
    if x.is_meta or (stack is not None and stack.levels):
        return
    held = ((x >= 0) & (x <= 1)).all()
    require(held, f"binary_cross_entropy: all elements of {name} should be between 0 and 1")


def _check_same_shape(name: str, input: Any, target: Any) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(
            f"{name}: Using a target size ({list(target.shape)}) other than the input's: Target "
            f"size ({list(target.shape)}) must be the same as input size ({list(input.shape)})"
        )


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3, low=0.1, high=0.9), s.tensor(2, 3, low=0, high=1)),
        s(
            s.tensor(3, low=0.1, high=0.9),
            s.tensor(3, low=0, high=1),
            s.tensor(3, low=0, high=1),
            reduction="none",
        ),
    ],
    oracle="nn.functional.binary_cross_entropy",
    errors=lambda s: [
        (
            s(s.tensor(2, low=0.1, high=0.9), s.tensor(3, low=0, high=1)),
            ValueError,
            "target size|Target size",
        )
    ],
)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take the cross entropy of probabilities of events; logarithms are cut off at -100."""
    reduction = _reduction(size_average, reduce, reduction)
    _check_same_shape("binary_cross_entropy", input, target)
    require_float_input("binary_cross_entropy", input)
    if target.dtype != input.dtype:
        raise RuntimeError(
            f"binary_cross_entropy: Found dtype {target.dtype} for target but expected "
            f"{input.dtype}"
        )
    _require_probabilities("input", input)
    _require_probabilities("target", target)
    loss = cross_entropy_of_event(input, target)
    return _reduced(loss if weight is None else loss * weight.to(loss.dtype), reduction)


cross_entropy_of_event = pointwise(
    "cross_entropy_of_event(Tensor input, Tensor target) -> Tensor",
    "(target - 1) * maximum(log1p(-input), -100) - target * maximum(log(input), -100)",
    dtypes="floating",
    # Where a logarithm is cut off its slope is not, or a network that is sure and wrong would
    # not learn; times a sigmoid's slope, which is 0 there, an unbounded one would be NaN.
    partials={
        "input": "(input - target) / maximum((1 - input) * input, 1e-12)",
        "target": "maximum(log1p(-input), -100) - maximum(log(input), -100)",
    },
    function=False,
    method=False,
    oracle=lambda torch, x, y: torch.nn.functional.binary_cross_entropy(
        *torch.broadcast_tensors(x, y), reduction="none"
    ),
    samples=lambda s: [
        s(s.tensor(3, 4, low=0.1, high=0.9), s.tensor(3, 4, low=0, high=1)),
        s(s.tensor(3, 4, low=0.1, high=0.9, strided=True), s.tensor(4, low=0, high=1)),
        s(s.tensor(low=0.1, high=0.9), s.tensor(low=0, high=1)),
        s(s.tensor(0, 3, low=0.1, high=0.9), s.tensor(3, low=0, high=1)),
    ],
    doc="Take the cross entropy of probabilities of events; logarithms are cut off at -100.",
)


_LOGARITHM = "s = log1p(exp(-abs(input)));"

cross_entropy_of_score = pointwise(
    "cross_entropy_of_score(Tensor input, Tensor target, Operand pos_weight) -> Tensor",
    f"{_LOGARITHM} (1 - target) * (maximum(input, 0) + s)"
    " + target * pos_weight * (maximum(-input, 0) + s)",
    dtypes="floating",
    # Apart for both events: what is small of one is not the rest of what is large of the other.
    partials={
        "input": "(1 - target) * sigmoid(input) - target * pos_weight * sigmoid(-input)",
        "target": f"{_LOGARITHM} pos_weight * (maximum(-input, 0) + s) - (maximum(input, 0) + s)",
        "pos_weight": f"{_LOGARITHM} target * (maximum(-input, 0) + s)",
    },
    beyond="wrapped",
    function=False,
    method=False,
    oracle=lambda torch, x, y, w: torch.nn.functional.binary_cross_entropy_with_logits(
        *torch.broadcast_tensors(x, y), reduction="none", pos_weight=torch.as_tensor(w)
    ),
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4, low=0, high=1), 1),
        s(s.tensor(3, 4, strided=True), s.tensor(4, low=0, high=1), s.tensor(4, low=0.5, high=2)),
        s(s.tensor(), s.tensor(low=0, high=1), 2.0),
        s(s.tensor(0, 3), s.tensor(0, 3, low=0, high=1), 1),
    ],
    doc="Take the cross entropy of the sigmoid of scores of events; true ones count `pos_weight`.",
)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3, low=0, high=1)),
        s(s.values([0.0, 0.0]), s.values([0.0, 1.0])),
        s(
            s.tensor(2, 3),
            s.tensor(2, 3, low=0, high=1),
            s.tensor(3, low=0, high=1),
            reduction="sum",
            pos_weight=s.tensor(3, low=0.5, high=2),
        ),
    ],
    oracle="nn.functional.binary_cross_entropy_with_logits",
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(3, low=0, high=1)), ValueError, "must be the same as input size")
    ],
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Take the cross entropy of the sigmoid of scores of events, without overflow.

    Args:
        pos_weight: how much more a positive target counts.
    """
    reduction = _reduction(size_average, reduce, reduction)
    _check_same_shape("binary_cross_entropy_with_logits", input, target)
    require_float_input("binary_cross_entropy_with_logits", input)
    if not target.dtype.is_floating_point:
        raise RuntimeError(
            "binary_cross_entropy_with_logits: result type Float can't be cast to the desired "
            f"output type {target.dtype}; convert the target with .to(dtype)"
        )
    loss = cross_entropy_of_score(input, target, 1 if pos_weight is None else pos_weight)
    return _reduced(loss if weight is None else loss * weight, reduction)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3, low=0.1, high=1), reduction="sum"),
        s(s.tensor(2, 3), s.tensor(2, 3), reduction="batchmean", log_target=True),
        s(s.tensor(2, 3), s.tensor(2, 3, low=0.1, high=1), reduction="none"),
    ],
    oracle="nn.functional.kl_div",
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2, low=0.1), reduction="avg"), ValueError, "not a valid value")
    ],
)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Take the divergence of Kullback and Leibler of log-probabilities from a distribution.

    target * (log(target) - input), where 0 log 0 is 0.

    Args:
        reduction: also "batchmean": the sum divided by the size of the first dimension.
        log_target: the target is given as log-probabilities.
    """
    for x in (input, target):
        if not x.dtype.is_floating_point:
            kind = "Complex" if x.dtype.is_complex else "Integral"
            raise RuntimeError(f"kl_div: {kind} inputs not supported, got {x.dtype}")
    if reduction == "mean" and size_average is None and reduce is None:
        import warnings

        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides only by the batch size, and aligns with the KL math "
            "definition.",
            stacklevel=2,
        )
    mean_of_batch = reduction == "batchmean"
    reduction = _reduction(size_average, reduce, "sum" if mean_of_batch else reduction)
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    total = _reduced(loss, reduction)
    return total / input.shape[0] if mean_of_batch and input.ndim else total
