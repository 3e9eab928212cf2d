"""Define dropout of whole channels, and dropout that keeps mean and variance.

`dropout` itself, of single elements, stands with the other random ops.
"""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad.plugin import Tensor, composite


def _check_dropout(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _kept(name: str, input: Any, p: float, by_channel: bool) -> Any:
    """Draw a mask of ones and zeros: for each element, or for each channel of (N, C, ...).

    Raises:
        RuntimeError: if the input has no channels, or holds integers.
    """
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise RuntimeError(
            f"{name}: result type Float can't be cast to the desired output type {input.dtype}; "
            "convert the input with .to(dtype)"
        )
    if not by_channel:
        return tangrad.empty_like(input).detach().bernoulli_(1 - p)
    if input.ndim < 2:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input, but {name} got "
            f"{list(input.shape)}"
        )
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return input.detach().new_empty(shape).bernoulli_(1 - p)


def _channels_dropped(name: str, input: Any, p: float, training: bool) -> Any:
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input * tangrad.zeros_like(input)
    return input * (_kept(name, input, p, by_channel=True) / (1 - p))


def _warn_of_dimensions(name: str, dimensions: int, wanted: tuple[int, int]) -> None:
    if dimensions not in wanted:
        warnings.warn(
            f"{name}: Received a {dimensions}-D input to {name}, which is deprecated; it drops "
            f"channels of inputs with {wanted[0]} or {wanted[1]} dimensions. Use dropout for "
            "other inputs.",
            stacklevel=5,
        )


def _finished(input: Any, result: Any, inplace: bool) -> Any:
    return input.copy_(result) if inplace and result is not input else result


def _errors(*shape: int) -> Any:
    return lambda s: [
        (s(s.tensor(*shape), 1.5), ValueError, "has to be between 0 and 1"),
        (s(s.tensor(*shape), -0.5), ValueError, "has to be between 0 and 1"),
    ]


@composite(
    random=True,
    dtypes="floating complex",
    namespace="nn",
    oracle="nn.functional.dropout1d",
    samples=lambda s: [
        s(s.tensor(2, 3, 4, nonzero=True), 0.5, True),
        s(s.tensor(3, 4, nonzero=True), 0.25, True),
        s(s.tensor(3, 4), 0.5, False),
        s(s.tensor(2, 0, 3)),
    ],
    errors=lambda s: [
        *_errors(2, 3)(s),
        (s(s.tensor(2)), RuntimeError, "Expected 2D or 3D input"),
    ],
)
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero channels with probability p and scale the others by 1 / (1 - p), in training.

    Args:
        input: (N, C, L) or (C, L).
        p: probability that a channel is zeroed.
        training: whether to do anything.
        inplace: write into the input.
    """
    _check_dropout(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input of shape "
            f"{list(input.shape)}; it drops channels of (N, C, L) or (C, L)."
        )
    if input.ndim == 3:
        return _finished(input, _channels_dropped("dropout1d", input, p, training), inplace)
    dropped = _channels_dropped("dropout1d", input.unsqueeze(0), p, training).squeeze(0)
    return _finished(input, dropped, inplace)


@composite(
    random=True,
    dtypes="floating complex",
    namespace="nn",
    oracle="nn.functional.dropout2d",
    samples=lambda s: [
        s(s.tensor(2, 3, 2, 2, nonzero=True), 0.5, True),
        s(s.tensor(2, 3, 2, 2, strided=True), 0.5, False),
        s(s.tensor(2, 0, 3, 1)),
    ],
    errors=_errors(2, 3, 2, 2),
)
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero channels with probability p and scale the others by 1 / (1 - p), in training.

    Tompson, Goroshin, Jain, LeCun, Bregler: "Efficient object localization using convolutional
    networks", 2014.

    Args:
        input: (N, C, H, W); three dimensions are taken as (N, C, L), with a warning.
        p: probability that a channel is zeroed.
        training: whether to do anything.
        inplace: write into the input.
    """
    _check_dropout(p)
    _warn_of_dimensions("dropout2d", input.ndim, (3, 4))
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d, which is interpreted as (N, C, L), "
            "assuming that channel-wise 1D dropout behavior is desired; use dropout1d for that, "
            "or unsqueeze(0) an input (C, H, W).",
            stacklevel=4,
        )
    return _finished(input, _channels_dropped("dropout2d", input, p, training), inplace)


@composite(
    random=True,
    dtypes="floating complex",
    namespace="nn",
    oracle="nn.functional.dropout3d",
    samples=lambda s: [
        s(s.tensor(2, 3, 2, 1, 2, nonzero=True), 0.5, True),
        s(s.tensor(2, 2, 2, 3, nonzero=True), 0.5, True),
        s(s.tensor(2, 2, 2, 3), 0.5, False),
    ],
    errors=_errors(2, 3, 2, 2),
)
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero channels with probability p and scale the others by 1 / (1 - p), in training.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        p: probability that a channel is zeroed.
        training: whether to do anything.
        inplace: write into the input.
    """
    _check_dropout(p)
    _warn_of_dimensions("dropout3d", input.ndim, (4, 5))
    if input.ndim == 5:
        return _finished(input, _channels_dropped("dropout3d", input, p, training), inplace)
    dropped = _channels_dropped("dropout3d", input.unsqueeze(0), p, training).squeeze(0)
    return _finished(input, dropped, inplace)


# What SELU tends to for large negative numbers, without its sign: scale times alpha.
_SATURATION = 1.7580993408473766


def _alpha_dropped(name: str, input: Any, p: float, training: bool, by_channel: bool) -> Any:
    _check_dropout(p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input * tangrad.zeros_like(input)
    kept = _kept(name, input, p, by_channel)
    scale = ((_SATURATION**2 * p + 1) * (1 - p)) ** -0.5
    shift = (kept - 1) * (_SATURATION * scale) + _SATURATION * scale * p
    return input * (kept * scale) + shift


@composite(
    random=True,
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.alpha_dropout",
    samples=lambda s: [
        s(s.tensor(2, 3), 0.5, True),
        s(s.tensor(2, 3), 0.5),
        s(s.tensor(), 0.25, True),
        s(s.tensor(4), 1.0, True),
        s(s.tensor(0, 2), 0.5, True),
    ],
    errors=_errors(2, 3),
)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Replace elements with probability p by the limit of SELU, in training.

    The result is scaled and shifted such that mean 0 and variance 1 stay (Klambauer, Unterthiner,
    Mayr, Hochreiter: "Self-normalizing neural networks", 2017).
    """
    dropped = _alpha_dropped("alpha_dropout", input, p, training, by_channel=False)
    return _finished(input, dropped, inplace)


@composite(
    random=True,
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.feature_alpha_dropout",
    samples=lambda s: [
        s(s.tensor(2, 3, 2), 0.5, True),
        s(s.tensor(2, 3), 0.5),
        s(s.tensor(2, 3, 2, 2), 0.25, True),
    ],
    errors=lambda s: [
        *_errors(2, 3)(s),
        (s(s.tensor(2), 0.5, True), RuntimeError, "at least 2 dimensions"),
    ],
)
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Replace channels of (N, C, ...) with probability p by the limit of SELU, in training.

    The result is scaled and shifted as in `alpha_dropout`.
    """
    dropped = _alpha_dropped("feature_alpha_dropout", input, p, training, by_channel=True)
    return _finished(input, dropped, inplace)
