"""Define the normalizations of channels that are not over the batch."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.normalization.batch import native_batch_norm
from tangrad.ops.nn.pooling.average import avg_pool2d
from tangrad.plugin import Ints, Tensor, composite, find_op, numel_of

constant_pad_nd = find_op("constant_pad_nd")


def _averaged(running: Any, repeated: Any, samples: int) -> None:
    """Set running statistics to the mean over the samples of those of each sample."""
    if running is not None:
        running.copy_(repeated.reshape((samples, -1)).mean(0))


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3, 4)),
        s(s.tensor(2, 2, 3, 2, strided=True), None, None, s.tensor(2), s.tensor(2), eps=0.1),
        s(s.tensor(2, 2, 3), s.tensor(2), s.tensor(2, low=1, high=2), use_input_stats=False),
        s(s.tensor(1, 2, 2, 2, 2), None, None, s.tensor(2)),
        s(s.tensor(2, 3, 4), eps=0.0),
    ],
    oracle="nn.functional.instance_norm",
    errors=lambda s: [
        (s(s.tensor(2, 3, 1)), ValueError, "more than 1 spatial element"),
        (s(s.tensor(2, 3, 4), use_input_stats=False), RuntimeError, "running"),
    ],
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Normalize each channel of each sample, then scale and shift it.

    Ulyanov, Vedaldi, Lempitsky: "Instance normalization", 2016. The input is (N, C, ...). It is
    the normalization over a batch of one sample with N C channels.

    Args:
        running_mean: moved towards the mean of the samples' means; used without
            `use_input_stats`.
        running_var: the same for the variances, without bias.
    """
    shape = tuple(input.shape)
    if use_input_stats and len(shape) > 2 and numel_of(shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{list(shape)} (instance_norm)"
        )
    if len(shape) < 2:
        raise RuntimeError(f"instance_norm: expected at least 2D input, got {list(shape)}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false "
            "(instance_norm)"
        )
    samples, channels = shape[:2]

    def each(x: Any) -> Any:
        return None if x is None else x.repeat(samples)

    mean, var = each(running_mean), each(running_var)
    flat = input.reshape((1, samples * channels, *shape[2:]))
    # Unlike batch_norm, PyTorch takes an eps of 0 here.
    result = native_batch_norm(
        flat, each(weight), each(bias), mean, var, use_input_stats, momentum, eps
    )[0]
    if use_input_stats:
        _averaged(running_mean, mean, samples)
        _averaged(running_var, var, samples)
    return result.reshape(shape)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 4, 3), 2),
        s(s.tensor(1, 5, 2, 2, strided=True), 3, 0.5, 0.6, 2.0),
        s(s.tensor(1, 3, 2, 1, 2), 4, 0.1),
        s(s.tensor(0, 3, 2), 2),
    ],
    oracle="nn.functional.local_response_norm",
    errors=lambda s: [
        (s(s.tensor(2, 3), 2), ValueError, "3D or higher"),
        (s(s.tensor(1, 3, 2), 0), RuntimeError, "size|greater than zero"),
    ],
)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square of neighbouring channels.

    y = x / (k + alpha m)^beta, m the mean of x² over `size` channels around (Krizhevsky,
    Sutskever, Hinton: "ImageNet classification with deep convolutional neural networks", 2012).
    The input is (N, C, ...).
    """
    if input.ndim < 3:
        raise ValueError(
            f"local_response_norm: Expected 3D or higher dimensionality input (got {input.ndim} "
            "dimensions)"
        )
    if input.numel() == 0:
        return input
    squares = (input * input).flatten(2).unsqueeze(1)
    around: Ints = (0, 0, size // 2, (size - 1) // 2)
    mean = avg_pool2d(constant_pad_nd(squares, around, 0), (size, 1), 1)
    divisor = tangrad.pow(mean.squeeze(1) * alpha + k, beta)
    return input / divisor.reshape(tuple(input.shape))
