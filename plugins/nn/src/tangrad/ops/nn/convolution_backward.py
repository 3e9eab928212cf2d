"""Define the three gradients of a convolution as one op, by PyTorch's name and arguments."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.convolution import (
    SAMPLES,
    convolution,
    convolution_input,
    convolution_weight,
    repeated,
)
from tangrad.plugin import Ints, Tensor, composite


def _beyond(x: Ints, w: Ints, y: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """Return the output padding by which a transposed convolution of y has the sizes of x."""
    sizes = zip(x[2:], w[2:], y[2:], stride, padding, dilation, strict=True)
    return tuple(n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, k, m, s, p, d in sizes)


@composite(
    function=False,
    method=False,
    dtypes="floating complex",
    samples=lambda s: [
        *(
            s(s.tensor(*y), s.tensor(*x), s.tensor(*w), (w[0],), *window[:3], False,
              (0,) * len(window[0]), window[3], (True, True, True))
            for x, w, y, window in SAMPLES
        ),
        *(
            s(s.tensor(*x), s.tensor(*y), s.tensor(*w), (x[1],), *window[:3], True,
              _beyond(x, w, y, *window[:3]), window[3], (True, True, True))
            for x, w, y, window in SAMPLES
        ),
    ],
    oracle=lambda torch, *args: torch.ops.aten.convolution_backward(*args),
    errors=lambda s: [
        (
            s(s.tensor(1, 1, 3), s.tensor(1, 1, 3), s.tensor(1, 1, 1), None, (1,), (0,), (1,),
              False, (0,), 1, (True,)),
            RuntimeError,
            "output_mask",
        )
    ],
)  # fmt: skip
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a convolution by input, weight and bias.

    Args:
        grad_output: the gradient of the result, (N, O, sizes...).
        input: (N, C, sizes...).
        weight: (O, C / groups, kernel...); of a transposed convolution (C, O / groups, kernel...).
        bias_sizes: unused: a bias is (O,).
        stride, padding, dilation, groups: those of the convolution, one number or one for each
            dimension.
        transposed: whether the convolution was a transposed one.
        output_padding: unused: the sizes of `grad_output` tell it.
        output_mask: three flags, one for each gradient; None stands for those not asked for.

    Raises:
        RuntimeError: `output_mask` has not three flags.
    """
    if len(output_mask) != 3:
        raise RuntimeError(
            "convolution_backward: output_mask has three flags, for the gradients of input, "
            f"weight and bias, got {list(output_mask)}"
        )
    spatial = input.ndim - 2
    stride, padding, dilation = (
        repeated("convolution_backward", given, spatial) for given in (stride, padding, dilation)
    )
    window = (stride, padding, dilation, groups)
    of_input, of_weight, of_bias = output_mask
    found: list[Any] = [None, None, None]
    if of_input and transposed:
        found[0] = convolution(grad_output, weight.conj(), *window)
    elif of_input:
        found[0] = convolution_input(weight.conj(), grad_output, tuple(input.shape), *window)
    if of_weight:
        seen, unknown = (grad_output, input) if transposed else (input, grad_output)
        seen, unknown = (seen, unknown.conj()) if transposed else (seen.conj(), unknown)
        found[1] = convolution_weight(seen, unknown, tuple(weight.shape), *window)
    if of_bias:
        found[2] = grad_output.sum((0, *range(2, grad_output.ndim)))
    return tuple(found)
