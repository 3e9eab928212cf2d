"""Define softmax, its logarithm and their gradients."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, DType, Tensor
from tangrad.ops.views.geometry import numel_of


def require_floating(name: str, x: Any) -> None:
    """Refuse other dtypes, as soon as there is an element to compute."""
    if not x.dtype.is_floating_point and numel_of(x.shape):
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}; convert the input or give dtype'
        )


def _softmax_reference(np: Any, self: Any, dim: int) -> Any:
    if self.size == 0:
        return self
    if self.ndim == 0:
        return np.exp(self - self)
    with np.errstate(invalid="ignore"):
        powers = np.exp(self - self.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


def _log_softmax_reference(np: Any, self: Any, dim: int) -> Any:
    if self.size == 0:
        return self
    if self.ndim == 0:
        return self - self
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = self - self.max(dim, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def _softmax_tangent(x_t: Any, result: Any, dim: int) -> Any:
    return result * (x_t - (x_t * result).sum((dim,), keepdim=True))


def _log_softmax_tangent(x_t: Any, result: Any, dim: int) -> Any:
    return x_t - (x_t * result.exp()).sum((dim,), keepdim=True)


_softmax = op(
    "_softmax(Tensor self, dim dim) -> Tensor",
    c_implementation="same_shape",
    dtypes="floating",
    check=lambda self: require_floating("softmax", self),
    shape=lambda self: self.shape,
    reference=_softmax_reference,
    vjp={"self": lambda g, result, dim: _softmax_backward_data(g, result, dim)},
    jvp=lambda self_t, result, dim: _softmax_tangent(self_t, result, dim),
    batch=lambda size, dims, self, dim: _softmax_batch(_softmax, dims, self, dim),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 1), s(s.tensor(2, 3, strided=True), 0)],
    oracle="softmax",
    doc="Compute softmax in the dtype of the input.",
)

_log_softmax = op(
    "_log_softmax(Tensor self, dim dim) -> Tensor",
    c_implementation="same_shape",
    dtypes="floating",
    check=lambda self: require_floating("log_softmax", self),
    shape=lambda self: self.shape,
    reference=_log_softmax_reference,
    vjp={"self": lambda g, result, dim: _log_softmax_backward_data(g, result, dim)},
    jvp=lambda self_t, result, dim: _log_softmax_tangent(self_t, result, dim),
    batch=lambda size, dims, self, dim: _softmax_batch(_log_softmax, dims, self, dim),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 1), s(s.tensor(2, 3, strided=True), 0)],
    oracle="log_softmax",
    doc="Compute log_softmax in the dtype of the input.",
)


def _softmax_batch(rule: Any, dims: Any, self: Any, dim: int) -> Any:
    x = self.movedim(dims[0], 0)
    if x.ndim == 1:
        return rule(x.unsqueeze(1), 1).squeeze(1), 0
    return rule(x, dim + 1), 0


# Their gradients are ops of their own, so that a device computes them in one pass.


def _softmax_backward_reference(np: Any, grad_output: Any, output: Any, dim: int) -> Any:
    products = grad_output * output
    total = products.sum(dim, keepdims=True) if products.ndim else products
    return output * (grad_output - total)


def _log_softmax_backward_reference(np: Any, grad_output: Any, output: Any, dim: int) -> Any:
    total = grad_output.sum(dim, keepdims=True) if grad_output.ndim else grad_output
    return grad_output - np.exp(output) * total


def _oracle(backward: Any, grad_output: Any, output: Any, dim: int) -> Any:
    """Call torch's op; under its transforms it would take complex numbers, which it refuses."""
    if output.is_complex():
        raise NotImplementedError(f"not implemented for {output.dtype}")
    return backward(grad_output, output, dim, output.dtype)


def _check_gradient(name: str, grad_output: Any, output: Any) -> None:
    if grad_output.shape != output.shape or grad_output.dtype != output.dtype:
        raise RuntimeError(
            f"{name}: grad_output and output must have the same shape and dtype, got "
            f"{tuple(grad_output.shape)} of {grad_output.dtype} and {tuple(output.shape)} of "
            f"{output.dtype}"
        )
    require_floating(name, output)


def _softmax_backward_vjp(
    g: Any, grad_output: Any, output: Any, dim: int, needs: Any
) -> tuple[Any, Any]:
    """Differentiate y (c - sum(c y)) by the cotangent c and by y."""
    shared = (grad_output * output).sum((dim,), keepdim=True)
    by_output = None
    if needs[1]:
        weight = (g * output).sum((dim,), keepdim=True)
        by_output = g * (grad_output - shared) - grad_output * weight
    return _softmax_backward_data(g, output, dim) if needs[0] else None, by_output


def _log_softmax_backward_vjp(
    g: Any, grad_output: Any, output: Any, dim: int, needs: Any
) -> tuple[Any, Any]:
    """Differentiate c - exp(y) sum(c) by the cotangent c and by y."""
    powers = output.exp()
    by_grad = g - (g * powers).sum((dim,), keepdim=True) if needs[0] else None
    by_output = -g * powers * grad_output.sum((dim,), keepdim=True) if needs[1] else None
    return by_grad, by_output


def _softmax_backward_jvp(
    grad_output: Any, output: Any, dim: int, grad_output_t: Any, output_t: Any
) -> Any:
    tangent = 0
    if grad_output_t is not None:
        tangent = _softmax_backward_data(grad_output_t, output, dim)
    if output_t is not None:
        shared = (grad_output * output).sum((dim,), keepdim=True)
        moved = (grad_output * output_t).sum((dim,), keepdim=True)
        tangent = tangent + output_t * (grad_output - shared) - output * moved
    return tangent


def _log_softmax_backward_jvp(
    grad_output: Any, output: Any, dim: int, grad_output_t: Any, output_t: Any
) -> Any:
    tangent = 0
    if grad_output_t is not None:
        tangent = _log_softmax_backward_data(grad_output_t, output, dim)
    if output_t is not None:
        total = grad_output.sum((dim,), keepdim=True)
        tangent = tangent - output.exp() * output_t * total
    return tangent


def _gradient_batch(
    rule: Any, size: int, dims: Any, grad_output: Any, output: Any, dim: int
) -> Any:
    g, y = (
        x.expand((size, *x.shape)) if at is None else x.movedim(at, 0)
        for x, at in ((grad_output, dims[0]), (output, dims[1]))
    )
    if y.ndim == 1:
        return rule(g.unsqueeze(1), y.unsqueeze(1), 1).squeeze(1), 0
    return rule(g, y, dim + 1), 0


def _gradient_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(2, 3), s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), s.tensor(2, 3), -2),
        s(s.tensor(), s.tensor(), 0),
        s(s.tensor(2, 0), s.tensor(2, 0), 1),
    ]


_softmax_backward_data = op(
    "_softmax_backward_data(Tensor grad_output, Tensor output, dim dim) -> Tensor",
    c_implementation="alike",
    dtypes="floating",
    check=lambda grad_output, output: _check_gradient(
        "_softmax_backward_data", grad_output, output
    ),
    shape=lambda output: output.shape,
    reference=_softmax_backward_reference,
    vjp={("grad_output", "output"): _softmax_backward_vjp},
    jvp=_softmax_backward_jvp,
    batch=lambda size, dims, grad_output, output, dim: _gradient_batch(
        _softmax_backward_data, size, dims, grad_output, output, dim
    ),
    function=False,
    method=False,
    samples=_gradient_samples,
    errors=lambda s: [(s(s.tensor(2), s.tensor(3), 0), RuntimeError, "same shape")],
    oracle=lambda torch, grad_output, output, dim: _oracle(
        torch.ops.aten._softmax_backward_data, grad_output, output, dim
    ),
    doc="Compute the gradient of softmax from its result.",
)

_log_softmax_backward_data = op(
    "_log_softmax_backward_data(Tensor grad_output, Tensor output, dim dim) -> Tensor",
    c_implementation="alike",
    dtypes="floating",
    check=lambda grad_output, output: _check_gradient(
        "_log_softmax_backward_data", grad_output, output
    ),
    shape=lambda output: output.shape,
    reference=_log_softmax_backward_reference,
    vjp={("grad_output", "output"): _log_softmax_backward_vjp},
    jvp=_log_softmax_backward_jvp,
    batch=lambda size, dims, grad_output, output, dim: _gradient_batch(
        _log_softmax_backward_data, size, dims, grad_output, output, dim
    ),
    function=False,
    method=False,
    samples=_gradient_samples,
    errors=lambda s: [(s(s.tensor(2), s.tensor(3), 0), RuntimeError, "same shape")],
    oracle=lambda torch, grad_output, output, dim: _oracle(
        torch.ops.aten._log_softmax_backward_data, grad_output, output, dim
    ),
    doc="Compute the gradient of log_softmax from its result.",
)


@composite(
    c_implementation="softmax",
    method=True,
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), -2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.tensor(0, 2), 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 2), IndexError, "Dimension out of range")],
)
def softmax(self: Tensor, dim: Dim, dtype: DType | None = None) -> Tensor:
    """Scale exp(x) along a dimension so that it sums to one.

    Args:
        dtype: convert the input to this first.
    """
    return _softmax(self if dtype is None else self.to(dtype), dim)


@composite(
    c_implementation="log_softmax",
    method=True,
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), -2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.tensor(0, 2), 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 2), IndexError, "Dimension out of range")],
)
def log_softmax(self: Tensor, dim: Dim, dtype: DType | None = None) -> Tensor:
    """Compute log(softmax(x)) along a dimension without overflow.

    Args:
        dtype: convert the input to this first.
    """
    return _log_softmax(self if dtype is None else self.to(dtype), dim)
