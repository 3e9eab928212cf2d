"""Test what is registered for a custom op on sample arguments: `opcheck`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.library import operator
from tangrad.library.binding import bind
from tangrad.library.definitions import CustomOpDef
from tangrad.plugin import flat_tensors

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(Exception):
    """A test of `opcheck` failed."""


class _FakeCtx:
    """Answer for sizes that depend on data: any will do, and the comparison leaves them out."""

    def __init__(self) -> None:
        self.asked = False

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Return a size that is not known without data."""
        self.asked = True
        return min

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> int:
        """Do what `new_dynamic_size` does, under its old name."""
        return self.new_dynamic_size(min=min, max=max)


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Test an op's registrations on sample arguments.

    `test_schema`: it writes to the arguments that its schema says, no others, and its results
    share no memory that the schema does not tell of. `test_autograd_registration`: the
    derivative is registered where recording comes by. `test_faketensor`: on tensors without data
    it gives results of the shapes, dtypes and strides that it gives on real ones.
    `test_aot_dispatch_static` and `_dynamic`: recorded twice, it gives the same results and
    gradients.

    Args:
        op: the op.
        args, kwargs: arguments of a call.
        test_utils: names of the tests.
        raise_exception: whether to raise the first failure.
        atol, rtol: tolerances of comparisons; both or neither.

    Returns:
        {test: "SUCCESS" or the exception}.

    Raises:
        OpCheckError: a test failed and `raise_exception` holds.
        ValueError: there is no such test, or `op` is no op, or only one tolerance is given.
    """
    if (atol is None) is not (rtol is None):
        raise ValueError("opcheck(op, ...): atol and rtol must be given both or not at all")
    if isinstance(op, CustomOpDef):
        found = op._opoverload
    elif isinstance(op, operator.OpOverloadPacket):
        found = op._overloads[op.overloads()[0]]
    elif isinstance(op, operator.OpOverload):
        found = op
    else:
        raise ValueError(
            f"opcheck(op, ...): op must be an OpOverload, an OpOverloadPacket or a CustomOpDef, "
            f"got {type(op)}"
        )
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(_TESTS):
        raise ValueError(
            f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of "
            f"{tuple(_TESTS)} but it was not"
        )
    values, named = bind(found._schema, args, kwargs or {})
    tolerance = {} if atol is None else {"atol": atol, "rtol": rtol}
    results: dict[str, Any] = {}
    for name in names:
        try:
            _TESTS[name](found, values, named, tolerance)
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
        else:
            results[name] = "SUCCESS"
    return results


def _copied(value: Any) -> Any:
    """Return arguments with tensors of their own, leaves as these are."""
    if isinstance(value, tangrad.Tensor):
        copy = value.detach().clone()
        return copy.requires_grad_() if value.requires_grad else copy
    if isinstance(value, list):
        return [_copied(v) for v in value]
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return value


def _outputs(result: Any) -> list[Any]:
    return flat_tensors(([result],)) if not isinstance(result, tuple) else flat_tensors(result)


def _same(a: Any, b: Any, tolerance: dict[str, Any]) -> bool:
    if not tolerance:
        tolerance = {"rtol": 1e-4, "atol": 1e-5} if a.dtype.itemsize < 8 else {}
    return bool(a.shape == b.shape and a.dtype == b.dtype) and bool(
        tangrad.allclose(a, b, equal_nan=True, **tolerance)
        if a.dtype.is_floating_point or a.dtype.is_complex
        else tangrad.equal(a, b)
    )


def _test_schema(
    op: operator.OpOverload, values: list[Any], named: dict[str, Any], tolerance: dict[str, Any]
) -> None:
    values, named = _copied(values), _copied(named)
    before = _copied([*values, *named.values()])
    result = op(*values, **named)
    after = [*values, *named.values()]
    written = {id(s): a for s, a in zip(after, _in_order(op), strict=True) if a.is_write}
    told = [t.untyped_storage() for s in after if id(s) in written for t in flat_tensors(([s],))]
    inputs = [t.untyped_storage() for t in flat_tensors((after,))]
    for old, new, argument in zip(before, after, _in_order(op), strict=True):
        pairs = zip(flat_tensors(([old],)), flat_tensors(([new],)), strict=True)
        exact = {"atol": 0.0, "rtol": 0.0}
        if not argument.is_write and any(
            not _same(o.detach(), n.detach(), exact)
            for o, n in pairs
            if not any(n.untyped_storage() is s for s in told)
        ):
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )
    aliasing = any(r.alias for r in op._schema.returns)
    for t in _outputs(result):
        if not aliasing and any(t.untyped_storage() is s for s in inputs):
            raise RuntimeError(
                f"an output of {op.name()} is not defined to alias an input but does"
            )


def _in_order(op: operator.OpOverload) -> list[Any]:
    arguments = op._schema.arguments
    return [a for a in arguments if not a.kwarg_only] + [a for a in arguments if a.kwarg_only]


def _test_autograd_registration(
    op: operator.OpOverload, values: list[Any], named: dict[str, Any], tolerance: dict[str, Any]
) -> None:
    if not any(t.requires_grad for t in flat_tensors((values, list(named.values())))):
        return
    if op._has_rules() or {operator.AUTOGRAD, operator.COMPOSITE} & set(op.kernels):
        return
    values, named = _copied(values), _copied(named)
    given = flat_tensors((values, list(named.values())))
    results = _outputs(op(*values, **named))
    if any(r.requires_grad and not any(r is t for t in given) for r in results):
        raise RuntimeError(
            f"{op.name()}: a result requires gradients, but no derivative is registered: what "
            "the kernel calls was recorded. Register it as CompositeImplicitAutograd if it is "
            "written of differentiable ops, or its derivative by tangrad.library.register_autograd."
        )


def _test_faketensor(
    op: operator.OpOverload, values: list[Any], named: dict[str, Any], tolerance: dict[str, Any]
) -> None:
    real = _outputs(op(*_copied(values), **_copied(named)))
    ctx = _FakeCtx()
    with operator.ctx_getter(lambda: ctx):
        fake = _outputs(op(*_without_data(values), **_without_data(named)))
    if len(real) != len(fake):
        raise RuntimeError(f"{op.name()}: {len(real)} results on data, {len(fake)} without")
    for k, (r, f) in enumerate(zip(real, fake, strict=True)):
        same = r.dtype == f.dtype and r.dim() == f.dim()
        if not ctx.asked:
            same = same and r.shape == f.shape and r.stride() == f.stride()
        if not same:
            raise RuntimeError(
                f"{op.name()}: result {k} is of shape {tuple(r.shape)}, strides {r.stride()} and "
                f"{r.dtype}, but of shape {tuple(f.shape)}, strides {f.stride()} and {f.dtype} by "
                "its fake implementation"
            )


def _without_data(value: Any) -> Any:
    if isinstance(value, tangrad.Tensor):
        return value.detach().to("meta").requires_grad_(value.requires_grad)
    if isinstance(value, list):
        return [_without_data(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_data(v) for k, v in value.items()}
    if isinstance(value, tangrad.device):
        return tangrad.device("meta")
    return value


def _test_recorded(
    op: operator.OpOverload, values: list[Any], named: dict[str, Any], tolerance: dict[str, Any]
) -> None:
    if op._schema.is_mutable:
        _test_faketensor(op, values, named, tolerance)
        return
    first, second = (_recorded(op, values, named) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        if (a is None) is not (b is None) or (a is not None and not _same(a, b, tolerance)):
            raise RuntimeError(f"{op.name()}: two calls with the same arguments differ")
    _test_faketensor(op, values, named, tolerance)


def _recorded(op: operator.OpOverload, values: list[Any], named: dict[str, Any]) -> list[Any]:
    """Return results and the gradients of their sum."""
    values, named = _copied(values), _copied(named)
    leaves = [t for t in flat_tensors((values, list(named.values()))) if t.requires_grad]
    results = _outputs(op(*values, **named))
    tracked = [r for r in results if r.requires_grad]
    gradients: Sequence[Any] = ()
    if leaves and tracked:
        from tangrad.autograd import grad

        total = sum(r.abs().sum() if r.dtype.is_complex else r.sum() for r in tracked)
        gradients = grad(total, leaves, allow_unused=True)
    return [*(r.detach() for r in results), *gradients]


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd_registration,
    "test_faketensor": _test_faketensor,
    "test_aot_dispatch_static": _test_recorded,
    "test_aot_dispatch_dynamic": _test_recorded,
}
