"""Initial values of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import overridable

# Nonlinearities whose gain is 1.
_LINEAR = frozenset(
    {
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "sigmoid",
    }
)


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """Return the factor by which a layer before `nonlinearity` should widen its weights.

    Args:
        nonlinearity: name of the function in `nn.functional`.
        param: its parameter: the slope of ``"leaky_relu"``, 0.01 by default.

    Raises:
        ValueError: if the name is unknown or the slope no number.
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "selu":
        return 3.0 / 4
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if param is None:
        param = 0.01
    if isinstance(param, bool) or not isinstance(param, (int, float)):
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + param**2))


@overridable
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers drawn uniformly from [a, b)."""
    with tangrad.no_grad():
        return tensor.uniform_(a, b, generator=generator)


@overridable
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers drawn from the normal distribution."""
    with tangrad.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Fill with numbers drawn from the normal distribution cut off outside [a, b].

    Numbers outside are drawn again. Where most would be, uniform ones are drawn instead, each
    kept with the probability that its density is of the greatest (von Neumann's rejection).
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        import warnings

        warnings.warn(
            "trunc_normal_: the mean is more than 2 std from [a, b]; the distribution of the "
            "values may be incorrect",
            stacklevel=2,
        )
    if tensor.is_meta:
        return tensor
    low, high = (0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) for x in (a, b))
    with tangrad.no_grad():
        if high - low > _ENOUGH_INSIDE:
            return _redrawn(tensor, mean, std, a, b, generator)
        return _rejected(tensor, mean, std, a, b, generator)


# The part of a normal distribution above which its own numbers are drawn until they are inside.
_ENOUGH_INSIDE = 0.3


def _redrawn(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    # The bounds as the dtype has them: a number equal to one of these is inside.
    low, high = (tensor.new_full((), x) for x in (a, b))
    tensor.normal_(mean, std, generator=generator)
    while bool((outside := (tensor < low) | (tensor > high)).any()):
        again = tangrad.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(tangrad.where(outside, again, tensor))
    return tensor


def _rejected(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def too_unlikely(x: Any) -> Any:
        log_density = ((x - mean) / std).pow(2).mul(-0.5).sub(peak)
        return tangrad.empty_like(x).uniform_(generator=generator).log() > log_density

    tensor.uniform_(a, b, generator=generator)
    pending = too_unlikely(tensor)
    while bool(pending.any()):
        again = tangrad.empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(tangrad.where(pending, again, tensor))
        pending = pending & too_unlikely(again)
    return tensor


@overridable
def constant_(tensor: Any, val: float) -> Any:
    """Fill with `val`."""
    with tangrad.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Any) -> Any:
    """Fill a matrix with the identity.

    Raises:
        ValueError: if the tensor is not two-dimensional.
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with tangrad.no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Fill the filters of a convolution so that it passes as many channels as it can.

    Args:
        tensor: filters of shape (C_out, C_in, *), of one to three spatial dimensions.
        groups: number of groups of the convolution.

    Raises:
        ValueError: if the dimensions or the groups do not fit.
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    channels = tensor.shape[0] // groups
    center = tuple(size // 2 for size in tensor.shape[2:])
    with tangrad.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(channels, tensor.shape[1])):
                tensor[(group * channels + channel, channel, *center)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    """Return how many numbers a weight maps from, and to how many."""
    shape = tensor.shape
    if len(shape) < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    outputs, inputs, *field = shape
    size = math.prod(field)
    return inputs * size, outputs * size


_FANS = {"fan_in": 0, "fan_out": 1}


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in _FANS:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(_FANS)}")
    return _calculate_fan_in_and_fan_out(tensor)[_FANS[mode]]


def _xavier_std(tensor: Any, gain: float) -> float:
    return gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill uniformly, keeping the variance both ways (Glorot, Bengio 2010).

    Raises:
        ValueError: if the tensor has fewer than two dimensions.
    """
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill with normal numbers, keeping the variance both ways (Glorot, Bengio 2010).

    Raises:
        ValueError: if the tensor has fewer than two dimensions.
    """
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _nothing_to_fill(tensor: Any) -> bool:
    if tensor.numel():
        return False
    import warnings

    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


@overridable
def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Fill uniformly, keeping the variance one way (He et al. 2015, arXiv:1502.01852).

    Args:
        tensor: the weight.
        a: slope of the ``"leaky_relu"`` that follows.
        mode: ``"fan_in"`` to keep the variance forward, ``"fan_out"`` backward.
        nonlinearity: the function that follows.
        generator: where the random numbers come from.

    Raises:
        ValueError: if the tensor has fewer than two dimensions or a name is unknown.
    """
    if _nothing_to_fill(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Fill with normal numbers, keeping the variance one way; see `kaiming_uniform_`."""
    if _nothing_to_fill(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Fill a matrix with normal numbers and zeros (Martens 2010).

    Args:
        tensor: the matrix.
        sparsity: share of zeros in each column.
        std: standard deviation of the others.
        generator: where the random numbers come from.

    Raises:
        ValueError: if the tensor is not two-dimensional.
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with tangrad.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[tangrad.randperm(rows)[:zeros], column] = 0
    return tensor


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Fill with an orthogonal matrix, drawn uniformly, or part of one (Saxe et al. 2013).

    The Q of a matrix of normal numbers is uniform once R has a positive diagonal (Mezzadri 2006,
    arXiv:math-ph/0609050).

    Args:
        tensor: taken as a matrix of its first dimension and all others.
        gain: factor of the result.
        generator: where the random numbers come from.

    Raises:
        ValueError: if the tensor has fewer than two dimensions.
    """
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    with tangrad.no_grad():
        numbers = tensor.new_empty((rows, tensor.numel() // rows))
        numbers.normal_(0, 1, generator=generator)
        wide = rows < numbers.shape[1]
        q, r = tangrad.linalg.qr(numbers.t() if wide else numbers)
        q = q * r.diagonal().sign()
        tensor.copy_((q.t() if wide else q).reshape(tensor.shape))
        return tensor.mul_(gain)


def _deprecated(fill: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filler under its older name, without the underscore."""
    new = fill.__name__
    old = new[:-1]

    def older(*args: Any, **kwargs: Any) -> Any:
        import warnings

        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.",
            FutureWarning,
            stacklevel=2,
        )
        return fill(*args, **kwargs)

    older.__name__ = older.__qualname__ = old
    older.__doc__ = f"Do as `{new}` does; a deprecated name."
    return older


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)

# The names by which libraries call PyTorch's inner functions.
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
