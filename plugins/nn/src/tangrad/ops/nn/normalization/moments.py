"""Define the moments of channels over a batch, and how running ones follow them."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Ints, at_all_sizes, numel_of, op


@at_all_sizes
def channel_axes(x: Any) -> Ints:
    """Return all dimensions but that of the channels."""
    return (0, *range(2, len(x.shape)))


def statistics_dtype(input: Any) -> Any:
    """Return what means and variances are kept in: halves have float32 ones."""
    return tangrad.float32 if input.dtype.itemsize < 4 else input.dtype


def check_vectors(input: Any, **vectors: Any) -> None:
    if len(input.shape) < 2:
        raise RuntimeError(f"batch_norm: expected at least 2D input, got {list(input.shape)}")
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f'"batch_norm" not implemented for {input.dtype}; convert it with .to(dtype)'
        )
    for name, vector in vectors.items():
        if vector is not None and tuple(vector.shape) != (input.shape[1],):
            raise RuntimeError(
                f"batch_norm: {name} should contain {input.shape[1]} elements not "
                f"{numel_of(vector.shape)}: input has shape {list(input.shape)}, {name} "
                f"{list(vector.shape)}"
            )


def count_per_channel(input: Any) -> int:
    return int(numel_of([input.shape[d] for d in channel_axes(input)]))


def _batch_moments(input: Any, written: Any, momentum: float) -> None:
    x = input.to(statistics_dtype(input))
    variance, mean = tangrad.var_mean(x, channel_axes(x), correction=0)
    written[0].copy_(mean)
    written[1].copy_(variance)
    count = count_per_channel(input)
    for running, seen in zip(
        written[2:4], (mean, variance * (count / max(count - 1, 1))), strict=False
    ):
        running.mul_(1 - momentum).add_(seen, alpha=momentum)
    for counter in written[4:]:
        counter.add_(1)


def _check_moments(input: Any, written: Any) -> None:
    check_vectors(input)
    vector = (input.shape[1],)
    if len(written) not in (2, 4, 5) or any(tuple(t.shape) != vector for t in written[:4]):
        raise RuntimeError(
            f"_batch_moments_: expected 2 or 4 vectors over {vector[0]} channels to write to, "
            f"and a counter, but got {[list(t.shape) for t in written]}"
        )


def _moments_of(torch: Any, x: Any, written: Any, momentum: float) -> Any:
    if not x.is_floating_point():
        raise NotImplementedError("batch_norm is of floats")
    wide = x.to(torch.float32) if x.dtype.itemsize < 4 else x
    variance, mean = torch.var_mean(wide, channel_axes(x), correction=0)
    seen = [mean, variance, mean, torch.var(wide, channel_axes(x))]
    shares = [1, 1, momentum, momentum]
    for place, found, share in zip(written, seen, shares, strict=False):
        place.copy_(found if share == 1 else (1 - share) * place + share * found)
    for counter in written[4:]:
        counter.add_(1)


_batch_moments_ = op(
    "_batch_moments_(Tensor input, Tensor[]! written, float momentum) -> ()",
    dtypes="floating",
    check=_check_moments,
    decompose=_batch_moments,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle=_moments_of,
    samples=lambda s: [
        s(s.tensor(4, 2), [s.tensor(2, dtype=_kept(s)), s.tensor(2, dtype=_kept(s))], 0.1),
        s(
            s.tensor(2, 3, 4),
            [*[s.tensor(3, dtype=_kept(s)) for _ in range(4)], s.integers(0, 9)],
            0.25,
        ),
    ],
    errors=lambda s: [(s(s.tensor(4, 2), [s.tensor(2)], 0.1), RuntimeError, "2 or 4 vectors")],
    doc="""Write mean and variance of each channel.

    Where there are more, move running ones, the variance unbiased, and count the batch.
    """,
)


def _kept(s: Any) -> str:
    return "float64" if s.dtype in ("float64", "complex128") else "float32"
