"""Define losses that ask for a margin: between scores of classes, or of pairs and triplets."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.loss import _reduced, _reduction
from tangrad.plugin import Tensor, composite, difference_plus, find_op

logsigmoid = find_op("logsigmoid")

# Scores of classes -------------------------------------------------------------------------------


def _as_rows(name: str, input: Any, target: Any, per_class: bool) -> tuple[Any, Any]:
    """Bring scores to (N, C), and targets to (N), or per class to (N, C)."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}; convert the scores with .to(dtype)'
        )
    shape = tuple(input.shape)
    if len(shape) > 2 or (len(shape) == 2 and shape[1] == 0) or shape == (0,):
        raise RuntimeError(
            f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but "
            f"got: {list(shape)}"
        )
    rows = input.reshape((-1, shape[-1] if shape else 1)) if len(shape) < 2 else input
    wanted = tuple(rows.shape) if per_class else (rows.shape[0],)
    given = tuple(target.shape)
    fits = given == (wanted if len(shape) == 2 else (shape if per_class else ()))
    single = (len(shape) < 2 or (per_class and shape[0] == 1)) and given in ((), (1,))
    if not fits and not (single and (not per_class or target.numel() == rows.shape[1])):
        raise RuntimeError(
            f"{name}: inconsistent target size, expected {list(wanted)} for input of size "
            f"{list(shape)} but got {list(given)}"
        )
    return rows, target.reshape(wanted)


def _above_zero(missed: Any) -> Any:
    """Give margins that are missed; one that is just kept, or is NaN, owes nothing."""
    return tangrad.where(missed > 0, missed, 0)


@composite(
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.multi_margin_loss",
    samples=lambda s: (
        [
            s(s.tensor(3, 4), s.integers(0, 4, 3)),
            s(s.tensor(3, 4, strided=True), s.integers(0, 4, 3), p=2, reduction="sum"),
            s(s.tensor(3, 4), s.integers(0, 4, 3), 2, 0.5, s.tensor(4, low=0.5), reduction="none"),
            s(s.tensor(4), s.integers(0, 4), reduction="none"),
            s(s.tensor(4), s.integers(0, 4, 1), reduction="none"),
            # Reduced, PyTorch returns what lay in the memory before.
            s(s.tensor(0, 4), s.integers(0, 4, 0), reduction="none"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(3, 4), s.integers(0, 4, 3), 3), ValueError, "only p == 1 and p == 2"),
        (
            s(s.tensor(3, 4), s.integers(0, 4, 3), weight=s.tensor(2, 2)),
            ValueError,
            "weight must be one-dimensional",
        ),
        (
            s(s.tensor(3, 4), s.integers(0, 4, 3), weight=s.tensor(3)),
            RuntimeError,
            "inconsistent weight size",
        ),
        (s(s.tensor(3, 4), s.integers(0, 4, 2)), RuntimeError, "inconsistent target size"),
        (s(s.tensor(3, 4), s.integers(4, 5, 3)), RuntimeError, "out of"),
        (s(s.tensor(2, 3, 4), s.integers(0, 3, 2)), RuntimeError, "non-empty vector or matrix"),
    ],
)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Ask the score of the target class to exceed all others by a margin.

    The mean over the classes i of max(0, margin - x[target] + x[i])^p, the target's own left out
    (Crammer, Singer: "On the algorithmic implementation of multiclass kernel-based vector
    machines", 2001).

    Args:
        input: scores (N, C) or (C).
        target: class numbers (N) or ().
        p: 1 or 2.
        margin: what the target's score should be greater by.
        weight: weights of the classes (C).
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight must be one-dimensional, got shape {list(weight.shape)}")
    rows, classes = _as_rows("multi_margin_loss", input, target, per_class=False)
    count = rows.shape[1]
    if weight is not None and weight.numel() != count:
        raise RuntimeError(
            f"multi_margin_loss: inconsistent weight size, expected {count} but got "
            f"{list(weight.shape)}"
        )
    index = classes.unsqueeze(1)
    missed = _above_zero(margin - rows.gather(1, index) + rows)
    missed = missed * missed if p == 2 else missed
    if weight is not None:
        missed = missed * weight.index_select(0, classes).unsqueeze(1)
    loss = missed.scatter(1, index, 0).sum(1) / count
    if reduction == "none" and target.ndim == 0:
        return loss.squeeze(0)
    return _reduced(loss, reduction)


@composite(
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.multilabel_margin_loss",
    samples=lambda s: (
        [
            s(s.tensor(2, 4), s.values([[3, 0, -1, 1], [2, -1, 0, 1]], dtype="int64")),
            s(s.tensor(2, 3), s.values([[2, 1, 0], [-1, 1, 0]], dtype="int64"), reduction="none"),
            s(s.tensor(3), s.values([1, 1, -1], dtype="int64"), reduction="sum"),
            s(s.tensor(3), s.values([1, -1, 2], dtype="int64"), reduction="none"),
            s(s.tensor(0, 3), s.integers(0, 3, 0, 3), reduction="none"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3), s.integers(0, 3, 2)), RuntimeError, "inconsistent target size"),
        (s(s.tensor(2, 3), s.integers(3, 4, 2, 3)), RuntimeError, "out of"),
    ],
)
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Ask the scores of several target classes to exceed all others by 1.

    Args:
        input: scores (N, C) or (C).
        target: of the same shape: class numbers up to the first -1.
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    rows, classes = _as_rows("multilabel_margin_loss", input, target, per_class=True)
    counts = (classes == -1).cumsum(1) == 0
    places = classes.masked_fill(counts.logical_not(), 0)
    hits = counts.to(tangrad.int64)
    is_target = tangrad.zeros_like(hits).scatter_add(1, places, hits) > 0
    # (N, targets, classes): what each other class lacks to each target.
    missed = _above_zero(1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1))
    takes_part = counts.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    loss = missed.masked_fill(takes_part.logical_not(), 0).sum((1, 2)) / rows.shape[1]
    if reduction == "none" and input.ndim < 2:
        return loss.squeeze(0)
    return _reduced(loss, reduction)


@composite(
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.multilabel_soft_margin_loss",
    samples=lambda s: (
        [
            s(s.tensor(2, 4), s.tensor(2, 4, low=0, high=1)),
            s(s.tensor(2, 4), s.tensor(2, 4, low=0, high=1), s.tensor(4, low=0), reduction="sum"),
            s(s.tensor(2, 3, strided=True), s.tensor(2, 3, low=0, high=1), reduction="none"),
            s(s.tensor(3), s.tensor(3, low=0, high=1), reduction="none"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), reduction="avg"), ValueError, "not a valid value"),
    ],
)
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Average over the classes the cross entropy of the sigmoid of scores.

    Args:
        input: scores (..., C).
        target: of the same shape: 1 for the classes that apply, 0 for the others.
        weight: weights of the classes (C).
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    loss = loss if weight is None else loss * weight
    if input.ndim == 0:
        raise IndexError("multilabel_soft_margin_loss: input has no dimension of classes: shape []")
    return _reduced(loss.sum(input.ndim - 1) / input.shape[-1], reduction)


@composite(
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.soft_margin_loss",
    samples=lambda s: (
        [
            s(s.tensor(2, 4), s.tensor(2, 4)),
            s(s.tensor(2, 4, strided=True), s.values([1, -1, 1, -1]), reduction="sum"),
            s(s.tensor(), s.tensor(), reduction="none"),
            s(s.tensor(0, 2), s.tensor(0, 2), reduction="sum"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), reduction="avg"), ValueError, "not a valid value"),
    ],
)
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take log(1 + exp(-target * input)), for targets 1 and -1, without overflow."""
    reduction = _reduction(size_average, reduce, reduction)
    loss = -logsigmoid(target * input)
    if tuple(loss.shape) != tuple(input.shape):
        raise RuntimeError(
            f"soft_margin_loss: output with shape {list(input.shape)} doesn't match the broadcast "
            f"shape {list(loss.shape)} of input and target"
        )
    return _reduced(loss.to(input.dtype), reduction)


# Pairs and triplets ------------------------------------------------------------------------------


def _check_dimensions(name: str, **tensors: Any) -> None:
    if len({t.ndim for t in tensors.values()}) > 1:
        sizes = ", ".join(f"{key} {list(t.shape)}" for key, t in tensors.items())
        raise RuntimeError(
            f"{name} : All input tensors should have same dimension but got sizes: {sizes}"
        )


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.margin_ranking_loss",
    samples=lambda s: (
        [
            s(s.tensor(4), s.tensor(4), s.values([1, -1, 1, -1])),
            s(s.tensor(2, 3), s.tensor(2, 3, strided=True), s.tensor(2, 3), 0.5, reduction="none"),
            s(s.tensor(2, 1), s.tensor(1, 3), s.tensor(2, 3), reduction="sum"),
            s(s.tensor(), s.tensor(), s.values(1)),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), s.tensor(1, 2)), RuntimeError, "same dimension"),
        (s(s.tensor(2), s.tensor(2), s.tensor(2), reduction="avg"), ValueError, "not a valid"),
    ],
)
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Ask the first score to exceed the second by a margin where the target is 1.

    Where it is -1 the other way round: max(0, -target * (input1 - input2) + margin).
    """
    reduction = _reduction(size_average, reduce, reduction)
    _check_dimensions("margin_ranking_loss", input1=input1, input2=input2, target=target)
    return _reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.hinge_embedding_loss",
    samples=lambda s: (
        [
            s(s.tensor(4), s.values([1, -1, 1, -1])),
            s(s.tensor(2, 3), s.values([[1, -1, 1]]), 2.5, reduction="none"),
            s(s.tensor(2, 3, strided=True), s.values([[1, -1, 0], [-1, 1, 0.5]]), reduction="sum"),
            s(s.tensor(), s.values(-1)),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), reduction="avg"), ValueError, "not a valid value"),
    ],
)
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take a distance where the target is 1, and where it is -1 what it lacks to a margin."""
    reduction = _reduction(size_average, reduce, reduction)
    far = (margin - input).clamp(min=0).to(input.dtype)
    loss = tangrad.where(target != 1, far, 0) + tangrad.where(target != -1, input, 0)
    return _reduced(loss, reduction)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.cosine_embedding_loss",
    samples=lambda s: (
        [
            s(s.tensor(4, 3), s.tensor(4, 3), s.values([1, -1, 1, -1])),
            s(s.tensor(4, 3, strided=True), s.tensor(4, 3), s.values([1, -1, 1, 2]), 0.25),
            s(s.tensor(2, 3), s.tensor(2, 3), s.values([1, -1]), reduction="none"),
            s(s.tensor(3), s.tensor(3), s.values(-1), reduction="sum"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 1)), RuntimeError, "multi-target"),
        (s(s.tensor(3), s.tensor(3), s.tensor(1)), RuntimeError, "expects 2D input"),
        (s(s.tensor(2, 3), s.tensor(2, 3), s.tensor()), RuntimeError, "expects 1D input"),
    ],
)
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take 1 - cos of two vectors where the target is 1, max(0, cos - margin) where it is -1.

    Args:
        input1: vectors (N, D) or (D).
        input2: vectors (N, D) or (D).
        target: 1 or -1 for each pair (N) or ().
        margin: cosine up to which other vectors cost nothing.
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    if target.ndim > 1:
        raise RuntimeError(
            f"0D or 1D target tensor expected, multi-target not supported: {list(target.shape)}"
        )
    wanted = target.ndim + 1
    if input1.ndim != wanted or input2.ndim != wanted:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {wanted}D input tensors, but found inputs with "
            f"sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    # Halved precisions and integers could not hold a smaller number.
    floor = 1e-12
    squares = [(x * x).sum(-1) + floor for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    near = tangrad.where(target == 1, 1 - cosine, 0)
    far = tangrad.where(target == -1, (cosine - margin).clamp(min=0), 0)
    return _reduced(near + far, reduction)


def _distance(x: Any, y: Any, p: float, eps: float) -> Any:
    return difference_plus(x, y, eps).norm(p, -1)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.triplet_margin_loss",
    samples=lambda s: (
        [
            s(s.tensor(4, 3), s.tensor(4, 3), s.tensor(4, 3)),
            s(s.tensor(4, 3), s.tensor(4, 3), s.tensor(4, 3, strided=True), 3.0, 3, swap=True),
            s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 3), p=1, eps=0.1, reduction="none"),
            s(s.tensor(3), s.tensor(3), s.tensor(3), reduction="sum"),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3), s.tensor(2, 3)), RuntimeError, "same dimension|rank"),
        (s(s.tensor(3), s.tensor(3), s.tensor(3), 0.0), ValueError, "must be greater than 0"),
    ],
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Ask a negative to be farther from the anchor than the positive is, by a margin.

    max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is the p-norm of the
    difference (Balntas, Riba, Ponsa, Mikolajczyk: "Learning local feature descriptors with
    triplets and shallow convolutional neural networks", 2016).

    Args:
        anchor: vectors (N, D) or (D).
        positive: vectors like the anchor.
        negative: vectors unlike the anchor.
        margin: greater than 0.
        p: exponent of the norm.
        eps: added to each difference.
        swap: take the distance of positive and negative where that is less.
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    _check_dimensions("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    near, far = _distance(anchor, positive, p, eps), _distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(_distance(positive, negative, p, eps))
    return _reduced((near - far + margin).clamp(min=0), reduction)
