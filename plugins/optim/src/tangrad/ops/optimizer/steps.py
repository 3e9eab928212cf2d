"""Define the whole steps of optimizers, with all parameters at once.

Each op that writes lists is defined by its tensor code, one tensor after the other; a device may
have a kernel that takes all of them in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.plugin import op

_HALVES = ("float16", "bfloat16")


def _widened(tensor: Any) -> Any:
    """Return a half as float32, in which a step is computed before it is rounded once."""
    return tensor.float() if tensor.dtype.name in _HALVES else tensor


def _put_back(tensors: Sequence[Any], computed: Sequence[Any]) -> None:
    for tensor, value in zip(tensors, computed, strict=True):
        if value is not tensor:
            tensor.copy_(value)


def _check_lists(name: str, **lists: Any) -> None:
    """Refuse lists that differ in length from the first, or tensors in shape."""
    (first, parameters), *others = lists.items()
    for key, members in others:
        if len(members) != len(parameters):
            raise RuntimeError(
                f"{name}: expected as many tensors in '{key}' as in '{first}', but got "
                f"{len(members)} and {len(parameters)}"
            )
        for parameter, member in zip(parameters, members, strict=True):
            if member.shape != parameter.shape:
                raise RuntimeError(
                    f"{name}: expected tensors of one shape at the same place of '{key}' and "
                    f"'{first}', but got {tuple(member.shape)} and {tuple(parameter.shape)}"
                )


def _skips(found_inf: Any) -> bool:
    return found_inf is not None and bool(found_inf)


# Gradient descent ------------------------------------------------------------------------------


def sgd_update(
    parameter: Any,
    grad: Any,
    buffer: Any,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> None:
    """Update a parameter and its momentum (None without) in place; see `tangrad.optim.SGD`."""
    given = [parameter] if buffer is None else [parameter, buffer]
    computed = [_widened(tensor) for tensor in given]
    wide, grad = computed[0], _widened(grad)
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(wide, alpha=weight_decay)
    if buffer is not None:
        momenta = computed[1]
        if is_first_step:
            momenta.copy_(grad)
        else:
            momenta.mul_(momentum).add_(grad, alpha=1 - dampening)
        grad = grad.add(momenta, alpha=momentum) if nesterov else momenta
    wide.add_(grad, alpha=-lr)
    _put_back(given, computed)


def _fused_sgd_tensors(
    self: Any,
    grads: Any,
    momentum_buffer_list: Any,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any,
    found_inf: Any,
) -> None:
    lists = {"self": self, "grads": grads}
    if momentum != 0:
        lists["momentum_buffer_list"] = momentum_buffer_list
    _check_lists("_fused_sgd_", **lists)
    if _skips(found_inf):
        return
    for i, (parameter, grad) in enumerate(zip(self, grads, strict=True)):
        if grad_scale is not None:
            grad.div_(grad_scale)
        sgd_update(
            parameter,
            grad,
            momentum_buffer_list[i] if momentum != 0 else None,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=lr,
            dampening=dampening,
            nesterov=nesterov,
            maximize=maximize,
            is_first_step=is_first_step,
        )


def _tensors(s: Any, lists: int, count: int, *shape: int, **how: Any) -> list[Any]:
    return [[s.tensor(*shape, **how) for _ in range(count)] for _ in range(lists)]


def _sgd_samples(s: Any) -> Any:
    how = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    how |= {"maximize": False, "is_first_step": False}
    return [
        s(*_tensors(s, 2, 2, 3, 4), [], **how),
        s(*_tensors(s, 3, 2, 3, 4), **how | {"momentum": 0.9, "weight_decay": 0.1}),
        s(*_tensors(s, 3, 1, 5), **how | {"momentum": 0.9, "nesterov": True, "maximize": True}),
        s(*_tensors(s, 3, 1, 5), **how | {"momentum": 0.9, "dampening": 0.5}),
        s(*_tensors(s, 3, 1, 5), **how | {"momentum": 0.9, "is_first_step": True}),
        s(*_tensors(s, 3, 1), **how | {"momentum": 0.5}),
        s(*_tensors(s, 3, 1, 0), **how | {"momentum": 0.5}),
    ]


_fused_sgd_ = op(
    "_fused_sgd_(Tensor[]! self, Tensor[]! grads, Tensor[]! momentum_buffer_list, *,"
    " float weight_decay, float momentum, float lr, float dampening, bool nesterov, bool maximize,"
    " bool is_first_step, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()",
    dtypes="floating",
    decompose=_fused_sgd_tensors,
    vjp="none: its arguments are overwritten",
    method=False,
    samples=_sgd_samples,
    errors=lambda s: [
        (
            s(
                [s.tensor(2)],
                [],
                [],
                weight_decay=0.0,
                momentum=0.0,
                lr=0.1,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            ),
            RuntimeError,
            "as many|length|size|empty",
        )
    ],
    doc="Take a step of `tangrad.optim.SGD` with all parameters at once.",
)


# Adam ------------------------------------------------------------------------------------------


def _root(number: Any) -> Any:
    """Return a number's square root; what stands for a number in a recorded run has its own."""
    return number.__sym_sqrt__() if hasattr(number, "__sym_sqrt__") else math.sqrt(number)


def adam_update(
    parameter: Any,
    grad: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    max_exp_avg_sq: Any,
    step: float,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    decoupled: bool,
) -> None:
    """Update a parameter and its running means in place; see `tangrad.optim.Adam`.

    Args:
        max_exp_avg_sq: the largest second moment so far, or None.
        step: how many steps were taken, this one included.
        decoupled: whether the weights decay apart from the gradient.
    """
    given = [parameter, exp_avg, exp_avg_sq]
    if max_exp_avg_sq is not None:
        given.append(max_exp_avg_sq)
    computed = [_widened(tensor) for tensor in given]
    wide, grad = computed[0], _widened(grad)
    if maximize:
        grad = -grad
    if weight_decay != 0 and decoupled:
        wide.mul_(1 - lr * weight_decay)
    elif weight_decay != 0:
        grad = grad.add(wide, alpha=weight_decay)
    # Real and imaginary part are optimized like two real numbers.
    real = [
        tangrad.view_as_real(t) if t.is_complex() else t for t in (*computed, grad.resolve_conj())
    ]
    target, first, second, *largest, grad = real
    first.lerp_(grad, 1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if largest:
        # Recorded, the maximum keeps what is about to be written.
        before = largest[0].clone() if tangrad.is_grad_enabled() else largest[0]
        largest[0].copy_(tangrad.maximum(before, second))
        second = largest[0]
    denominator = (second.sqrt() / _root(1 - beta2**step)).add_(eps)
    target.addcdiv_(first, denominator, value=-lr / (1 - beta1**step))
    _put_back(given, computed)


def _fused_adam_tensors(decoupled: bool) -> Callable[..., None]:
    def decompose(
        self: Any,
        grads: Any,
        exp_avgs: Any,
        exp_avg_sqs: Any,
        max_exp_avg_sqs: Any,
        state_steps: Any,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Any,
        found_inf: Any,
    ) -> None:
        lists = {"self": self, "grads": grads, "exp_avgs": exp_avgs, "exp_avg_sqs": exp_avg_sqs}
        if amsgrad:
            lists["max_exp_avg_sqs"] = max_exp_avg_sqs
        _check_lists("_fused_adam_", **lists)
        if len(state_steps) != len(self):
            raise RuntimeError(
                "_fused_adam_: expected as many tensors in 'state_steps' as in 'self', but got "
                f"{len(state_steps)} and {len(self)}"
            )
        if _skips(found_inf):
            return
        for i, (parameter, grad) in enumerate(zip(self, grads, strict=True)):
            if grad_scale is not None:
                grad.div_(grad_scale)
            adam_update(
                parameter,
                grad,
                exp_avgs[i],
                exp_avg_sqs[i],
                max_exp_avg_sqs[i] if amsgrad else None,
                state_steps[i].item(),
                lr=lr,
                beta1=beta1,
                beta2=beta2,
                weight_decay=weight_decay,
                eps=eps,
                maximize=maximize,
                decoupled=decoupled,
            )

    return decompose


def _adam_samples(s: Any) -> Any:
    how = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-3}
    how |= {"amsgrad": False, "maximize": False}

    def lists(count: int, *shape: int, largest: bool = False) -> list[Any]:
        moments = _tensors(s, 4 if largest else 3, count, *shape)
        squares = [[s.tensor(*shape, low=0.1) for _ in range(count)] for _ in range(1 + largest)]
        steps = [s.values(3.0 + i, dtype="float32") for i in range(count)]
        return [*moments[:3], squares[0], squares[1] if largest else [], steps]

    return [
        s(*lists(2, 3, 4), **how),
        s(*lists(2, 3, 4), **how | {"weight_decay": 0.1}),
        s(*lists(1, 5, largest=True), **how | {"amsgrad": True, "maximize": True}),
        s(*lists(1), **how),
        s(*lists(1, 0), **how),
    ]


_fused_adam_ = op(
    "_fused_adam_(Tensor[]! self, Tensor[]! grads, Tensor[]! exp_avgs, Tensor[]! exp_avg_sqs,"
    " Tensor[]! max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2,"
    " float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None,"
    " Tensor? found_inf=None) -> ()",
    dtypes="floating",
    decompose=_fused_adam_tensors(decoupled=False),
    mixes_devices="cpu",  # where steps are counted
    vjp="none: its arguments are overwritten",
    method=False,
    samples=_adam_samples,
    doc="Take a step of `tangrad.optim.Adam` with all parameters at once; the steps are counted.",
)

_fused_adamw_ = op(
    "_fused_adamw_(Tensor[]! self, Tensor[]! grads, Tensor[]! exp_avgs, Tensor[]! exp_avg_sqs,"
    " Tensor[]! max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2,"
    " float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None,"
    " Tensor? found_inf=None) -> ()",
    dtypes="floating",
    decompose=_fused_adam_tensors(decoupled=True),
    mixes_devices="cpu",  # where steps are counted
    vjp="none: its arguments are overwritten",
    method=False,
    samples=_adam_samples,
    doc="Take a step of `tangrad.optim.AdamW` with all parameters at once; the steps are counted.",
)
