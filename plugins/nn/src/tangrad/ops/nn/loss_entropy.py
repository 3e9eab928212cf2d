"""Define the cross entropy of scores and class numbers as one op, and its gradient."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.loss_classes import (
    check_nll,
    nll_loss_total,
    nll_loss_total_backward,
    require_float_input,
)
from tangrad.plugin import op


def _composed(self: Any, target: Any, ignore_index: int, mean: bool) -> tuple[Any, Any, Any]:
    logs = self.log_softmax(1)
    return (*nll_loss_total(logs, target, ignore_index, mean), logs)


def _less_shared(g: Any, logs: Any) -> Any:
    """Pull a gradient back through log-softmax."""
    return g - logs.exp() * g.sum((1,), keepdim=True)


def _vjp(
    g0: Any, g2: Any, target: Any, ignore_index: int, mean: bool, result1: Any, result2: Any
) -> Any:
    by_logs = None if g2 is None else _less_shared(g2, result2)
    if g0 is None:
        return by_logs
    owed = cross_entropy_total_backward(g0, result1, result2, target, ignore_index, mean)
    return owed if by_logs is None else owed + by_logs


def _jvp(
    self_t: Any, target: Any, ignore_index: int, mean: bool, result2: Any
) -> tuple[Any, None, Any]:
    logs_t = self_t - (result2.exp() * self_t).sum((1,), keepdim=True)
    return nll_loss_total(logs_t, target, ignore_index, mean)[0], None, logs_t


def _of_torch(torch: Any, x: Any, target: Any, ignored: int, mean: bool) -> tuple[Any, Any, Any]:
    f = torch.nn.functional
    reduction = "mean" if mean else "sum"
    loss = f.cross_entropy(x, target, ignore_index=ignored, reduction=reduction)
    return loss, (target != ignored).sum(), x.log_softmax(1)


cross_entropy_total = op(
    "cross_entropy_total(Tensor self, Tensor target, int ignore_index, bool mean)"
    " -> (Tensor loss, Tensor count, Tensor logs)",
    dtypes="floating",
    check=lambda self, target: check_nll(self, target, None),
    shape=lambda self: [(), (), self.shape],
    dtype=lambda self: [self.dtype, "int64", self.dtype],
    decompose=_composed,
    vjp={"self": _vjp},
    jvp=_jvp,
    node="nll_loss",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3), -100, True),
        s(s.tensor(3, 4, strided=True), s.integers(0, 4, 3), 2, True),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), 1, False),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), s.integers(4, 5, 3), -100, True), IndexError, "is out of bounds")
    ],
    oracle=_of_torch,
    doc="""Give the cross entropy of all samples, how many count, and the logarithms of softmax.

    Args:
        self: scores (N, C, ...).
        target: class numbers (N, ...).
        ignore_index: a class number that counts nothing.
        mean: divide by how many count.
    """,
)

# Programs see the loss alone: zeros as large as the scores would cost more than the gradient does.
cross_entropy_total.definition.accepts_missing_grads = True


def _owed(grad: Any, count: Any, logs: Any, target: Any, ignore_index: int, mean: bool) -> Any:
    shape = tuple(logs.shape)
    return nll_loss_total_backward(grad, count, target, ignore_index, mean, shape)


def _owed_by_logs(
    g: Any, grad: Any, count: Any, logs: Any, target: Any, ignore_index: int, mean: bool
) -> Any:
    total = _owed(grad, count, logs, target, ignore_index, mean).sum((1,), keepdim=True)
    return -g * logs.exp() * total


def _owed_by_grad(g: Any, count: Any, logs: Any, target: Any, ignore_index: int, mean: bool) -> Any:
    kept = g - (g * logs.exp()).sum((1,), keepdim=True)
    total = nll_loss_total(kept, target, ignore_index, False)[0]
    return total / count if mean else total


def _owed_jvp(
    grad: Any,
    grad_t: Any,
    count: Any,
    logs: Any,
    logs_t: Any,
    target: Any,
    ignore_index: int,
    mean: bool,
) -> Any:
    rest = (target, ignore_index, mean)
    found = None
    if grad_t is not None:
        found = cross_entropy_total_backward(grad_t, count, logs, *rest)
    if logs_t is not None:
        moved = _owed_by_logs(logs_t, grad, count, logs, *rest)
        found = moved if found is None else found + moved
    return found


def _owed_of_torch(
    torch: Any, g: Any, count: Any, logs: Any, target: Any, ignored: int, mean: bool
) -> Any:
    if not g.is_floating_point():
        return torch.nn.functional.layer_norm(g, g.shape)
    kept = target != ignored
    chosen = torch.zeros_like(logs).scatter(1, (target * kept).unsqueeze(1), 1)
    found = (logs.exp() - chosen) * kept.to(g.dtype).unsqueeze(1)
    return found * (g / count if mean else g)


cross_entropy_total_backward = op(
    "cross_entropy_total_backward(Tensor grad, Tensor count, Tensor logs, Tensor target,"
    " int ignore_index, bool mean) -> Tensor",
    dtypes="floating",
    check=lambda grad: require_float_input("cross_entropy", grad),
    shape=lambda logs: logs.shape,
    dtype=lambda logs: logs.dtype,
    decompose=lambda grad, count, logs, target, ignore_index, mean: _less_shared(
        _owed(grad, count, logs, target, ignore_index, mean), logs
    ),
    vjp={"grad": _owed_by_grad, "logs": _owed_by_logs},
    jvp=_owed_jvp,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(), s.integers(3, 4), s.tensor(3, 4), s.integers(0, 4, 3), -100, True),
        s(s.tensor(), s.integers(4, 5), s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), 1, False),
    ],
    oracle=_owed_of_torch,
    doc="Give the gradient of `cross_entropy_total` by the scores.",
)
