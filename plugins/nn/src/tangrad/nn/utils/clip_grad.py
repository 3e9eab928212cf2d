"""Keeping gradients small."""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import tangrad
from tangrad.plugin import find_op


def _gradients(parameters: Any) -> list[Any]:
    if isinstance(parameters, tangrad.Tensor):
        parameters = [parameters]
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Return the norm of all tensors taken as one vector.

    Args:
        tensors: a tensor, or several.
        norm_type: the norm's exponent; may be infinity.
        error_if_nonfinite: refuse NaN and infinity.
        foreach: ignored.

    Raises:
        RuntimeError: if the norm is not finite and `error_if_nonfinite` is set.
    """
    tensors = [tensors] if isinstance(tensors, tangrad.Tensor) else list(tensors)
    if not tensors:
        return tangrad.tensor(0.0)
    norm_type = float(norm_type)
    with tangrad.no_grad():
        device = tensors[0].device
        if all(tensor.device == device for tensor in tensors):
            total = find_op("_total_norm")(tensors, norm_type)
        else:
            norms = [tensor.norm(norm_type).to(device) for tensor in tensors]
            total = tangrad.stack(norms).norm(norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale all gradients by max_norm / total_norm, if that is less than 1.

    Args:
        parameters: a tensor, or several, whose gradients are scaled in place.
        max_norm: the norm allowed.
        total_norm: the norm they have.
        foreach: ignored.
    """
    with tangrad.no_grad():
        # No branch on the value: the device need not be waited for.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        gradients = _gradients(parameters)
        device = factor.device
        if gradients and all(gradient.device == device for gradient in gradients):
            tangrad._foreach_mul_(gradients, factor)
            return
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale the gradients in place so that their norm, as one vector, is at most `max_norm`.

    Args:
        parameters: a tensor, or several.
        max_norm: the norm allowed.
        norm_type: the norm's exponent; may be infinity.
        error_if_nonfinite: refuse NaN and infinity.
        foreach: ignored.

    Returns:
        The norm before.

    Raises:
        RuntimeError: if the norm is not finite and `error_if_nonfinite` is set.
    """
    if not isinstance(parameters, tangrad.Tensor):
        drawn = isinstance(parameters, GeneratorType)
        parameters = list(parameters)
        if drawn and not parameters:
            import warnings

            warnings.warn(
                "`parameters` is an empty generator, no gradient clipping will occur.",
                stacklevel=2,
            )
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Do as `clip_grad_norm_` does; a deprecated name."""
    import warnings

    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(
    parameters: Iterable[Any] | Any, clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp the elements of the gradients to [-clip_value, clip_value], in place.

    Args:
        parameters: a tensor, or several.
        clip_value: the largest absolute value allowed.
        foreach: ignored.
    """
    bound = float(clip_value)
    with tangrad.no_grad():
        for gradient in _gradients(parameters):
            gradient.clamp_(min=-bound, max=bound)
