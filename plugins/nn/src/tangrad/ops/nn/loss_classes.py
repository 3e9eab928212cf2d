"""Define the likelihoods of class numbers: of each sample, and of all in one pass."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Ints, batched_front, get_intercept, op


def require_float_input(name: str, x: Any) -> None:
    """Refuse integers, bools and complex numbers, of which a loss has no meaning.

    Raises:
        NotImplementedError: for these.
    """
    if not x.dtype.is_floating_point:
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}; convert the input with .to(dtype)'
        )


def check_class_weight(name: str, weight: Any, classes: int) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"{name}: weight tensor should be defined either for all {classes} classes or no "
            f"classes but got weight tensor of shape: {list(weight.shape)}"
        )


def check_nll(self: Any, target: Any, weight: Any) -> None:
    require_float_input("nll_loss", self)
    if len(self.shape) < 2:
        raise RuntimeError(f"nll_loss: input must be (N, C, ...), got shape {list(self.shape)}")
    if target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(
            f"nll_loss: expected target dtype to be Long or Byte, but got {target.dtype}"
        )
    want = (self.shape[0], *self.shape[2:])
    if tuple(target.shape) != tuple(want):
        raise _wrong_target(self, target, want)
    check_class_weight("nll_loss", weight, self.shape[1])
    if weight is not None and weight.dtype != self.dtype:
        raise RuntimeError(
            f"nll_loss: expected scalar type {self.dtype} for weight but found {weight.dtype}"
        )


def _wrong_target(self: Any, target: Any, want: tuple[int, ...]) -> Exception:
    given = list(target.shape)
    if not given or given[0] != self.shape[0]:
        return ValueError(
            f"Expected input batch_size ({self.shape[0]}) to match target batch_size "
            f"({given[0] if given else 0}): input {list(self.shape)} needs a target of size "
            f"{list(want)}, got {given}"
        )
    if len(self.shape) == 2 and len(given) > 1:
        return RuntimeError(
            "nll_loss: 0D or 1D target tensor expected, multi-target not supported: input "
            f"{list(self.shape)}, target {given}"
        )
    return RuntimeError(f"nll_loss: Expected target size {list(want)}, got {given}")


def as_batch(scores: Any, target: Any) -> tuple[Any, Any]:
    """Bring scores (C) and their target to a batch of one."""
    if target.ndim > 1:
        raise RuntimeError(
            "0D or 1D target tensor expected, multi-target not supported: input "
            f"{list(scores.shape)}, target {list(target.shape)}"
        )
    if target.numel() != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.numel()}"
        )
    return scores.unsqueeze(0), target.reshape((1,))


def _nll_reference(
    np: Any, self: Any, target: Any, weight: Any, ignore_index: int
) -> tuple[Any, Any]:
    counted = target != ignore_index
    wrong = counted & ((target < 0) | (target >= self.shape[1]))
    if wrong.any():
        raise IndexError(
            f"Target {target[wrong].flat[0]} is out of bounds. (nll_loss of {self.shape[1]} "
            f"classes: targets are 0 to {self.shape[1] - 1}, or ignore_index, {ignore_index})"
        )
    safe = np.where(counted, target, 0).astype(np.int64)
    scale = counted.astype(self.dtype)
    if weight is not None:
        scale = np.where(counted, weight[safe], 0).astype(self.dtype)
    picked = np.take_along_axis(self, safe[:, None], 1)[:, 0]
    return np.where(counted, -picked * scale, 0).astype(self.dtype), scale


def _classes(target: Any, ignore_index: int) -> Any:
    """Replace ignored targets by class 0, so that they can be used as index."""
    return tangrad.where(target == ignore_index, 0, target).unsqueeze(1).to(tangrad.int64)


def _per_sample(per_class: Any, target: Any, ignore_index: int) -> Any:
    """Read a vector over the classes at the targets; zero where they are ignored."""
    picked = per_class.index_select(0, _classes(target, ignore_index).reshape((-1,)))
    return picked.reshape(target.shape).masked_fill(target == ignore_index, 0)


def _nll_vjp(g0: Any, self_meta: Any, target: Any, ignore_index: int, result1: Any) -> Any:
    return nll_gradient(g0 * result1, self_meta, target, ignore_index)


def nll_gradient(owed: Any, scores: Any, target: Any, ignore_index: int) -> Any:
    """Return zeros of the shape of scores, but for each sample's class what it owes, negated."""
    zeros = owed.new_zeros(scores.shape)
    # The mean of a batch that is ignored as a whole is 0 / 0, and no element owes anything.
    owed = -owed.masked_fill(target == ignore_index, 0).unsqueeze(1)
    if get_intercept() is None:  # nobody sees that what is new is written, which spares a copy
        return zeros.scatter_add_(1, _classes(target, ignore_index), owed)
    return zeros.scatter_add(1, _classes(target, ignore_index), owed)


def _nll_weight_vjp(
    g0: Any, g1: Any, self: Any, target: Any, weight_meta: Any, ignore_index: int
) -> Any:
    classes = _classes(target, ignore_index)
    owed = g1 - g0 * self.gather(1, classes).squeeze(1)
    owed = owed.masked_fill(target == ignore_index, 0)
    return g0.new_zeros(weight_meta.shape).index_add(0, classes.reshape((-1,)), owed.reshape((-1,)))


def _nll_jvp(
    self: Any,
    self_t: Any,
    target: Any,
    weight_t: Any,
    ignore_index: int,
    result0: Any,
    result1: Any,
) -> Any:
    classes = _classes(target, ignore_index)
    loss_t, scale_t = tangrad.zeros_like(result0), tangrad.zeros_like(result1)
    if self_t is not None:
        loss_t = -self_t.gather(1, classes).squeeze(1) * result1
    if weight_t is not None:
        scale_t = _per_sample(weight_t, target, ignore_index)
        loss_t = loss_t - self.gather(1, classes).squeeze(1) * scale_t
    return loss_t, scale_t


def _nll_batch(size: int, dims: Any, self: Any, target: Any, weight: Any, ignore_index: int) -> Any:
    def front(x: Any, dim: int | None) -> Any:
        return x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)

    x, t = front(self, dims[0]), front(target, dims[1])
    shared = weight if dims[2] is None else None
    loss, scale = (
        y.unflatten(0, (size, x.shape[1]))
        for y in nll_loss_elements(x.flatten(0, 1), t.flatten(0, 1), shared, ignore_index)
    )
    if dims[2] is not None:
        classes = t.masked_fill(t == ignore_index, 0).to(tangrad.int64).reshape((size, -1))
        picked = weight.movedim(dims[2], 0).gather(1, classes).reshape(scale.shape)
        loss, scale = loss * picked, scale * picked
    return (loss, scale), (0, 0)


nll_loss_elements = op(
    "nll_loss_elements(Tensor self, Tensor target, Tensor? weight, int ignore_index)"
    " -> (Tensor loss, Tensor scale)",
    c_implementation="nll_loss",
    dtypes="floating",
    check=check_nll,
    shape=lambda self: [(self.shape[0], *self.shape[2:])] * 2,
    dtype=lambda self: [self.dtype] * 2,
    reference=_nll_reference,
    vjp={"self": _nll_vjp, "weight": _nll_weight_vjp},
    jvp=_nll_jvp,
    batch=_nll_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3), None, -100),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), s.tensor(3, low=0.5, high=2), 1),
    ],
    oracle=lambda torch, x, target, weight, ignore_index: (
        torch.nn.functional.nll_loss(
            x, target, weight, ignore_index=ignore_index, reduction="none"
        ),
        torch.nn.functional.nll_loss(
            -torch.ones_like(x), target, weight, ignore_index=ignore_index, reduction="none"
        ),
    ),
    doc="""Give for each sample the negative log-likelihood of its class, and its weight.

    Both are zero where the target is ignored.
    """,
)


def _total_reference(
    np: Any, self: Any, target: Any, ignore_index: int, mean: bool
) -> tuple[Any, Any]:
    loss, scale = _nll_reference(np, self, target, None, ignore_index)
    total, count = loss.sum(dtype=self.dtype), (scale != 0).sum()
    with np.errstate(all="ignore"):
        return (total / self.dtype.type(count) if mean else total), count


def _total_of(torch: Any, x: Any, target: Any, ignored: int, mean: bool) -> Any:
    reduction = "mean" if mean else "sum"
    loss = torch.nn.functional.nll_loss(x, target, ignore_index=ignored, reduction=reduction)
    return loss, (target != ignored).sum()


def _counted(target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Return which samples of a batch of calls count, and their classes along dimension 2."""
    counted = target != ignore_index
    classes = tangrad.where(counted, target, 0).to(tangrad.int64)
    return counted, classes.unsqueeze(2)


def _total_batched(
    size: int, dims: Any, self: Any, target: Any, ignore_index: int, mean: bool
) -> tuple[Any, Any]:
    x, target = batched_front(self, dims[0], size), batched_front(target, dims[1], size)
    counted, classes = _counted(target, ignore_index)
    found = tangrad.where(counted, x.gather(2, classes).squeeze(2), 0).flatten(1)
    total, count = -found.sum(1), counted.flatten(1).sum(1)
    return (total / count if mean else total, count), (0, 0)


nll_loss_total = op(
    "nll_loss_total(Tensor self, Tensor target, int ignore_index, bool mean)"
    " -> (Tensor loss, Tensor total_weight)",
    dtypes="floating",
    check=lambda self, target: check_nll(self, target, None),
    shape=lambda: [(), ()],
    dtype=lambda self: [self.dtype, "int64"],
    reference=_total_reference,
    vjp={
        "self": lambda g0, self_meta, target, ignore_index, mean, result1: nll_loss_total_backward(
            g0, result1, target, ignore_index, mean, self_meta.shape
        )
    },
    jvp=lambda self_t, target, ignore_index, mean: (
        nll_loss_total(self_t, target, ignore_index, mean)[0],
        None,
    ),
    batch=_total_batched,
    node="nll_loss",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3), -100, True),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), 1, False),
    ],
    oracle=_total_of,
    doc="Give the negative log-likelihood of all samples' classes, and how many count.",
)


def _owed_reference(
    np: Any, grad: Any, count: Any, target: Any, ignore_index: int, mean: bool, shape: Ints
) -> Any:
    counted = target != ignore_index
    with np.errstate(all="ignore"):
        owed = -(grad / grad.dtype.type(count) if mean else grad)
    places = np.where(counted, target, 0).astype(np.int64)[:, None]
    found = np.zeros(shape, grad.dtype)
    np.put_along_axis(found, places, np.where(counted, owed, 0)[:, None], 1)
    return found


def _owed_of(
    torch: Any, g: Any, count: Any, target: Any, ignored: int, mean: bool, shape: Ints
) -> Any:
    kept = target != ignored
    if not g.is_floating_point():
        return torch.nn.functional.layer_norm(g, g.shape)
    found = torch.zeros(shape, dtype=g.dtype).scatter(
        1, (target * kept).unsqueeze(1), -kept.to(g.dtype).unsqueeze(1)
    )
    return found * (g / count if mean else g)


def _owed_batched(
    size: int,
    dims: Any,
    grad: Any,
    count: Any,
    target: Any,
    ignore_index: int,
    mean: bool,
    shape: Ints,
) -> tuple[Any, int]:
    g, count, target = (
        batched_front(x, d, size) for x, d in zip((grad, count, target), dims, strict=False)
    )
    counted, classes = _counted(target, ignore_index)
    owed = -(g / count if mean else g).reshape(size, *(1,) * (target.ndim - 1))
    owed = tangrad.where(counted, owed, 0).to(grad.dtype).unsqueeze(2)
    zeros = tangrad.zeros((size, *shape), dtype=grad.dtype, device=grad.device)
    return zeros.scatter(2, classes, owed), 0


nll_loss_total_backward = op(
    "nll_loss_total_backward(Tensor grad, Tensor count, Tensor target, int ignore_index,"
    " bool mean, int[] shape) -> Tensor",
    dtypes="floating",
    check=lambda grad: require_float_input("nll_loss", grad),
    shape=lambda shape: shape,
    dtype=lambda grad: grad.dtype,
    reference=_owed_reference,
    vjp={
        "grad": lambda g, count, target, ignore_index, mean: _owed_by(
            g, count, target, ignore_index, mean
        )
    },
    linear=("grad",),
    batch=_owed_batched,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(), s.integers(3, 4), s.integers(0, 4, 3), -100, True, (3, 4)),
        s(s.tensor(), s.integers(4, 5), s.integers(0, 3, 2, 2), 1, False, (2, 3, 2)),
    ],
    oracle=_owed_of,
    doc="Give each sample's class its part of the gradient of `nll_loss_total`.",
)


def _owed_by(g: Any, count: Any, target: Any, ignore_index: int, mean: bool) -> Any:
    total = nll_loss_total(g, target, ignore_index, False)[0]
    return total / count if mean else total
