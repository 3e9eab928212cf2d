"""Derivatives of functions by the graph: vjp, jvp, Jacobians and Hessians and their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import enable_grad
from tangrad.autograd import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_STRICT = ". This is not allowed in strict mode."
_INDEPENDENT = "The output of the user-provided function is independent of input {}" + _STRICT
_CONSTANT = "The jacobian of the user-provided function is independent of input {}" + _STRICT
_LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with "
    "respect to input {} is independent of the input" + _STRICT
)
_NO_GRADIENT = (
    "Output {} of the user-provided function does not require gradients. Compute it from the "
    "inputs by differentiable ops."
)
_ONE_INPUT = "input to the user-provided function is"


def _demand_gradients(values: tuple[Any, ...], strict: bool, message: str) -> None:
    """Raise RuntimeError in strict mode, with the place of a value without a gradient."""
    for i, value in enumerate(values if strict else ()):
        if value is None:
            raise RuntimeError(_INDEPENDENT.format(i))
        if not value.requires_grad:
            raise RuntimeError(message.format(i))


def _tuple_of_tensors(value: Any, what: str, name: str) -> tuple[tuple[Any, ...], bool]:
    """Return (tensors as a tuple, whether they came as one).

    Raises:
        TypeError: something is no tensor.
    """
    came_as_tuple = isinstance(value, (tuple, list))
    values = tuple(value) if came_as_tuple else (value,)
    for i, v in enumerate(values):
        if not isinstance(v, tangrad.Tensor):
            where = f"the value at index {i}" if came_as_tuple else "what was given"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors, but "
                f"{where} is a {type(v).__name__}"
            )
    return values, came_as_tuple


def _fresh(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Return inputs that require gradients: views of the given ones, or leaves."""
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in inputs
    )


def _released(values: Any, create_graph: bool) -> Any:
    if isinstance(values, tuple):
        return tuple(_released(v, create_graph) for v in values)
    return values if create_graph else values.detach()


def _unpacked(values: tuple[Any, ...], as_tuple: bool) -> Any:
    return values if as_tuple else values[0]


def _filled(
    grads: Any, likes: tuple[Any, ...], strict: bool = False, message: str = _INDEPENDENT
) -> tuple[Any, ...]:
    if strict and None in (missing := [g if g is None else 0 for g in grads]):
        raise RuntimeError(message.format(missing.index(None)))
    return tuple(
        tangrad.zeros_like(x) if g is None else g for g, x in zip(grads, likes, strict=True)
    )


def _vectors(v: Any, likes: tuple[Any, ...], name: str, what: str) -> tuple[Any, ...]:
    """Return the vectors of a product: given ones checked, one for a scalar.

    Raises:
        RuntimeError: a vector is missing or has another shape.
    """
    if v is None:
        if len(likes) != 1 or likes[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if the {what} a single Tensor with a single "
                "element."
            )
        return (tangrad.ones_like(likes[0]),)
    found, _ = _tuple_of_tensors(v, "v", name)
    if len(likes) == 1 != len(found):
        raise RuntimeError("The given v should contain a single Tensor.")
    if len(found) != len(likes):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(likes)} but got {len(found)}."
        )
    for i, (a, b) in enumerate(zip(found, likes, strict=True)):
        if a.shape != b.shape:
            where = f"Entry {i} in " if len(likes) > 1 else ""
            raise RuntimeError(
                f"{where}v has invalid size: should be torch.Size({list(b.shape)}) but got "
                f"torch.Size({list(a.shape)})."
            )
    return found


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """Return (outputs, v · Jacobian).

    Args:
        func: tensors -> tensor(s). inputs: tensor(s).
        v: like the outputs; may be None for one scalar output.
        create_graph: record the computation of the result.
        strict: raise where an output does not depend on an input.
    """
    with enable_grad():
        given, as_tuple = _tuple_of_tensors(inputs, "inputs", "vjp")
        xs = _fresh(given, create_graph)
        outputs, out_tuple = _tuple_of_tensors(
            func(*xs), "outputs of the user-provided function", "vjp"
        )
        _demand_gradients(outputs, strict, _NO_GRADIENT)
        vectors = _vectors(v, outputs, "vjp", "user-provided function returns")
        found = _safe_grad(outputs, xs, vectors, create_graph)
    if create_graph:
        _demand_gradients(found, strict, _CONSTANT)
    products = _filled(found, xs, strict)
    return (
        _unpacked(_released(outputs, create_graph), out_tuple),
        _unpacked(_released(products, create_graph), as_tuple),
    )


def _safe_grad(
    outputs: tuple[Any, ...], inputs: tuple[Any, ...], vectors: tuple[Any, ...], create_graph: bool
) -> tuple[Any, ...]:
    pairs = [
        (o, v) for o, v in zip(outputs, vectors, strict=True) if o is not None and o.requires_grad
    ]
    if not pairs:
        return (None,) * len(inputs)
    return grad(
        [o for o, _ in pairs],
        inputs,
        [v for _, v in pairs],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """Return (outputs, Jacobian · v), computed by differentiating the vjp.

    Args:
        func, inputs, create_graph, strict: as for `vjp`. v: like the inputs.
    """
    with enable_grad():
        given, _ = _tuple_of_tensors(inputs, "inputs", "jvp")
        xs = _fresh(given, create_graph)
        vectors = _vectors(v, xs, "jvp", _ONE_INPUT)
        outputs, out_tuple = _tuple_of_tensors(
            func(*xs), "outputs of the user-provided function", "jvp"
        )
        _demand_gradients(outputs, strict, _NO_GRADIENT)
        us = tuple(tangrad.zeros_like(o).requires_grad_() for o in outputs)
        pulled = _safe_grad(outputs, xs, us, True)
        _demand_gradients(pulled, strict, _INDEPENDENT)
        pushed = _safe_grad(_filled(pulled, xs), us, vectors, create_graph)
    if create_graph:
        _demand_gradients(pushed, strict, _CONSTANT)
    products = _filled(pushed, outputs)
    return (
        _unpacked(_released(outputs, create_graph), out_tuple),
        _unpacked(_released(products, create_graph), out_tuple),
    )


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of a function.

    Args:
        func, inputs, create_graph, strict: as for `vjp`.
        vectorize: compute all rows at once by vmap.
        strategy: "reverse-mode", or with vectorize "forward-mode".

    Returns:
        A tensor of shape (*output.shape, *input.shape), in tuples where outputs or inputs are:
        outputs first.

    Raises:
        NotImplementedError: forward mode without vectorize.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        if not vectorize or create_graph:
            raise NotImplementedError(
                'torch.autograd.functional.jacobian: `strategy="forward-mode"` needs '
                "vectorize=True and create_graph=False"
            )
        return _forward_jacobian(func, inputs)
    with enable_grad():
        given, as_tuple = _tuple_of_tensors(inputs, "inputs", "jacobian")
        xs = _fresh(given, create_graph)
        outputs, out_tuple = _tuple_of_tensors(
            func(*xs), "outputs of the user-provided function", "jacobian"
        )
        _demand_gradients(outputs, strict, _NO_GRADIENT)
        rows_of = _vectorized_rows if vectorize else _rows
        jac = tuple(rows_of(o, xs, create_graph, strict) for o in outputs)
    jac = _released(jac, create_graph)
    per_output = tuple(_unpacked(row, as_tuple) for row in jac)
    return _unpacked(per_output, out_tuple)


def _rows(
    output: Any, inputs: tuple[Any, ...], create_graph: bool, strict: bool
) -> tuple[Any, ...]:
    flat = output.reshape((-1,))
    rows: list[list[Any]] = [[] for _ in inputs]
    for k in range(flat.numel()):
        found = _safe_grad((flat[k],), inputs, (tangrad.ones_like(flat[k]),), create_graph)
        message = f"Output {k} of the user-provided function is independent of input {{}}{_STRICT}"
        filled = _filled(found, inputs, strict, message)
        if create_graph:
            _demand_gradients(filled, strict, _CONSTANT)
        for row, g in zip(rows, filled, strict=True):
            row.append(g)
    return tuple(
        tangrad.stack(row).reshape((*output.shape, *x.shape))
        if row
        else x.new_zeros((*output.shape, *x.shape))
        for row, x in zip(rows, inputs, strict=True)
    )


def _vectorized_rows(
    output: Any, inputs: tuple[Any, ...], create_graph: bool, strict: bool
) -> tuple[Any, ...]:
    if strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorize=True` are not "
            "supported together."
        )
    n = output.numel()
    if not output.requires_grad or n == 0:
        return tuple(x.new_zeros((*output.shape, *x.shape)) for x in inputs)
    basis = tangrad.eye(n, dtype=output.dtype, device=output.device).reshape((n, *output.shape))
    found = grad(
        output,
        inputs,
        basis,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        is_grads_batched=True,
    )
    return tuple(
        x.new_zeros((*output.shape, *x.shape))
        if g is None
        else g.reshape((*output.shape, *x.shape))
        for g, x in zip(found, inputs, strict=True)
    )


def _forward_jacobian(func: Callable[..., Any], inputs: Any) -> Any:
    from tangrad.func import jacfwd

    given, as_tuple = _tuple_of_tensors(inputs, "inputs", "jacobian")
    points = tuple(x.detach() for x in given)
    found = jacfwd(func, tuple(range(len(points))))(*points)
    if as_tuple:
        return found
    several = bool(found) and isinstance(found[0], tuple)
    return tuple(row[0] for row in found) if several else found[0]


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of a function with one scalar output.

    Args:
        func, inputs, create_graph, strict, vectorize: as for `jacobian`.

    Returns:
        A tensor of shape (*input.shape, *input.shape), in tuples of tuples where inputs are a
        tuple.

    Raises:
        RuntimeError: the output is no single element.
    """
    given, as_tuple = _tuple_of_tensors(inputs, "inputs", "hessian")

    def gradients(*xs: Any) -> Any:
        xs = tuple(x if x.requires_grad else x.detach().requires_grad_() for x in xs)
        output = _scalar_output(func(*xs), "hessian", strict)
        found = _safe_grad((output,), xs, (tangrad.ones_like(output),), True)
        _demand_gradients(found, strict, _LINEAR)
        return _unpacked(_filled(found, xs), as_tuple)

    return jacobian(gradients, given if as_tuple else given[0], create_graph, strict, vectorize)


def _scalar_output(output: Any, name: str, strict: bool) -> Any:
    outputs, out_tuple = _tuple_of_tensors(output, "outputs of the user-provided function", name)
    _demand_gradients(outputs, strict, _NO_GRADIENT)
    if out_tuple:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return outputs[0].reshape(())


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """Return (output, v · Hessian) of a function with one scalar output.

    Args:
        func, inputs, create_graph, strict: as for `hessian`. v: like the inputs.
    """
    with enable_grad():
        given, as_tuple = _tuple_of_tensors(inputs, "inputs", "vhp")
        xs = _fresh(given, create_graph)
        vectors = _vectors(v, xs, "vhp", _ONE_INPUT)
        output = _scalar_output(func(*xs), "vhp", strict)
        first = _safe_grad((output,), xs, (tangrad.ones_like(output),), True)
        _demand_gradients(first, strict, _LINEAR)
        second = _safe_grad(_filled(first, xs), xs, vectors, create_graph)
    products = _filled(second, xs, strict, _CONSTANT)
    return _released(output, create_graph), _unpacked(_released(products, create_graph), as_tuple)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """Return (output, Hessian · v) of a function with one scalar output.

    Args:
        func, inputs, create_graph, strict: as for `hessian`. v: like the inputs.
    """
    with enable_grad():
        given, as_tuple = _tuple_of_tensors(inputs, "inputs", "hvp")
        xs = _fresh(given, create_graph)
        vectors = _vectors(v, xs, "hvp", _ONE_INPUT)
        output = _scalar_output(func(*xs), "hvp", strict)
        first = _safe_grad((output,), xs, (tangrad.ones_like(output),), True)
        _demand_gradients(first, strict, _LINEAR)
        second = _safe_grad(_filled(first, xs), xs, vectors, create_graph)
    products = _filled(second, xs, strict, _CONSTANT)
    return _released(output, create_graph), _unpacked(_released(products, create_graph), as_tuple)
