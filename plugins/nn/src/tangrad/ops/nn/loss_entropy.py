"""Define the cross entropy of each sample's class as one op, and its gradient."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.loss_classes import (
    check_nll,
    nll_gradient,
    nll_loss_elements,
    require_float_input,
)
from tangrad.plugin import find_op, op

log_softmax_gradient = find_op("_log_softmax_backward_data")


def _composed(self: Any, target: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    logs = self.log_softmax(1)
    return (*nll_loss_elements(logs, target, None, ignore_index), logs)


def _vjp(g0: Any, g2: Any, target: Any, ignore_index: int, result2: Any) -> Any:
    by_logs = None if g2 is None else log_softmax_gradient(g2, result2, 1)
    if g0 is None:
        return by_logs
    owed = cross_entropy_elements_backward(g0, result2, target, ignore_index)
    return owed if by_logs is None else owed + by_logs


def _jvp(self_t: Any, target: Any, ignore_index: int, result2: Any) -> tuple[Any, None, Any]:
    logs_t = self_t - (result2.exp() * self_t).sum((1,), keepdim=True)
    return nll_loss_elements(logs_t, target, None, ignore_index)[0], None, logs_t


def _of_torch(torch: Any, x: Any, target: Any, ignored: int) -> tuple[Any, Any, Any]:
    f = torch.nn.functional
    loss = f.cross_entropy(x, target, ignore_index=ignored, reduction="none")
    return loss, (target != ignored).to(x.dtype), x.log_softmax(1)


cross_entropy_elements = op(
    "cross_entropy_elements(Tensor self, Tensor target, int ignore_index)"
    " -> (Tensor loss, Tensor scale, Tensor logs)",
    dtypes="floating",
    check=lambda self, target: check_nll(self, target, None),
    shape=lambda self: [(self.shape[0], *self.shape[2:])] * 2 + [self.shape],
    dtype=lambda self: [self.dtype] * 3,
    decompose=_composed,
    vjp={"self": _vjp},
    jvp=_jvp,
    node="nll_loss",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 4, 3), -100),
        s(s.tensor(3, 40, strided=True), s.integers(0, 40, 3), 2),
        s(s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), s.integers(4, 5, 3), -100), IndexError, "is out of bounds")
    ],
    oracle=_of_torch,
    doc="""Give each sample's cross entropy, its weight, and the logarithms of softmax.

    Args:
        self: scores (N, C, ...).
        target: class numbers (N, ...).
        ignore_index: a class number that counts nothing.
    """,
)

# Programs see the losses alone: zeros as large as the scores would cost more than the gradient.
cross_entropy_elements.definition.accepts_missing_grads = True


def _owed(grad: Any, logs: Any, target: Any, ignore_index: int) -> Any:
    return log_softmax_gradient(nll_gradient(grad, logs, target, ignore_index), logs, 1)


def _owed_by_logs(g: Any, grad: Any, logs: Any, target: Any, ignore_index: int) -> Any:
    total = nll_gradient(grad, logs, target, ignore_index).sum((1,), keepdim=True)
    return -g * logs.exp() * total


def _owed_by_grad(g: Any, logs: Any, target: Any, ignore_index: int) -> Any:
    kept = g - (g * logs.exp()).sum((1,), keepdim=True)
    return nll_loss_elements(kept, target, None, ignore_index)[0]


def _owed_jvp(
    grad: Any, grad_t: Any, logs: Any, logs_t: Any, target: Any, ignore_index: int
) -> Any:
    rest = (target, ignore_index)
    found = None
    if grad_t is not None:
        found = cross_entropy_elements_backward(grad_t, logs, *rest)
    if logs_t is not None:
        moved = _owed_by_logs(logs_t, grad, logs, *rest)
        found = moved if found is None else found + moved
    return found


def _owed_of_torch(torch: Any, g: Any, logs: Any, target: Any, ignored: int) -> Any:
    if not g.is_floating_point():
        return torch.nn.functional.layer_norm(g, g.shape)
    kept = target != ignored
    chosen = torch.zeros_like(logs).scatter(1, (target * kept).unsqueeze(1), 1)
    return (logs.exp() - chosen) * (kept * g).unsqueeze(1)


cross_entropy_elements_backward = op(
    "cross_entropy_elements_backward(Tensor grad, Tensor logs, Tensor target,"
    " int ignore_index) -> Tensor",
    dtypes="floating",
    check=lambda grad: require_float_input("cross_entropy", grad),
    shape=lambda logs: logs.shape,
    dtype=lambda logs: logs.dtype,
    decompose=_owed,
    vjp={"grad": _owed_by_grad, "logs": _owed_by_logs},
    jvp=_owed_jvp,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3), s.tensor(3, 4), s.integers(0, 4, 3), -100),
        s(s.tensor(3), s.tensor(3, 40), s.integers(0, 40, 3), 2),
        s(s.tensor(2, 2), s.tensor(2, 3, 2), s.integers(0, 3, 2, 2), 1),
    ],
    oracle=_owed_of_torch,
    doc="""Give the gradient of the losses of `cross_entropy_elements` by the scores.

    Args:
        grad: of the losses (N, ...).
        logs: logarithms of softmax (N, C, ...).
        target: class numbers (N, ...).
        ignore_index: a class number that counts nothing.
    """,
)
