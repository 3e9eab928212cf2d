"""Reductions to the least and the greatest elements, and where they are.

amax and amin share the gradient among equal elements; the forms with indices give it to the
element whose index they return.
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import overload, reduction
from tangrad.ops.pointwise import clamp  # noqa: F401  maximum and minimum, which max and min overload
from tangrad.ops.reduction.sums import dim_errors, reduced_dims, restore

REAL = "bool integral floating"


def _share(self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """Return the weights with which elements share the derivative of an extreme value."""
    chosen = (self == restore(result, self, dim, keepdim)).to(self.dtype)
    return chosen / chosen.sum(dim, True)


def _extreme_vjp(g: Any, self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    return restore(g, self, dim, keepdim) * _share(self, result, dim, keepdim)


def _extreme_of_all_vjp(g: Any, self: Any, result: Any) -> Any:
    """Share a gradient among the extreme elements; if the result is NaN, these are the NaNs."""
    # An element unequal to itself is NaN, and then so is the result.
    chosen = (self == result) | (self != self)
    return g * chosen.to(self.dtype) / chosen.sum()


def _extreme_jvp(self: Any, self_t: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    return (self_t * _share(self, result, dim, keepdim)).sum(dim, keepdim)


def _check_extreme(name: str, self: Any, dim: Any) -> None:
    if dim in (None, ()) and self.numel() == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0, got a "
            f"tensor of shape {tuple(self.shape)}"
        )
    for position in reduced_dims(dim, self.ndim):
        if self.shape[position] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {position} to have non-zero size. "
                f"Got a tensor of shape {tuple(self.shape)}"
            )


def _extreme_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1)),
        s(s.tensor(3, 4), dim=1, keepdim=True),
        s(s.tensor(), dim=0),
        *([] if s.is_complex else [s(s.tensor(2, 0, 3), dim=2)]),
        s(s.values([[1, 1], [0, 1]]), dim=1),
        *(
            [s(s.values([[1.0, float("nan"), 2.0], [0.0, 1.0, 2.0]]), dim=1)]
            if s.is_floating
            else []
        ),
    ]


def _extreme_errors(s: Any) -> list[Any]:
    return [
        *dim_errors(s),
        (s(s.tensor(2, 0), dim=1), IndexError, "non-zero size"),
        (s(s.tensor(2, dtype="complex64")), RuntimeError, "not implemented"),
    ]


amax = reduction(
    "amax(Tensor self, dim[]? dim=(), bool keepdim=False) -> Tensor",
    strict_out_dtype=True,
    map="self",
    fold="maximum",
    finalize="a",
    dtypes=REAL,
    check=lambda self, dim: _check_extreme("amax", self, dim),
    vjp={"self": _extreme_vjp},
    jvp=_extreme_jvp,
    samples=_extreme_samples,
    errors=_extreme_errors,
    doc="Compute the maximum over dimensions, NaN if any element is.",
)

amin = reduction(
    "amin(Tensor self, dim[]? dim=(), bool keepdim=False) -> Tensor",
    strict_out_dtype=True,
    map="self",
    fold="minimum",
    finalize="a",
    dtypes=REAL,
    check=lambda self, dim: _check_extreme("amin", self, dim),
    vjp={"self": _extreme_vjp},
    jvp=_extreme_jvp,
    samples=_extreme_samples,
    errors=_extreme_errors,
    doc="Compute the minimum over dimensions, NaN if any element is.",
)


def _aminmax_vjp(
    g0: Any, g1: Any, self: Any, result0: Any, result1: Any, dim: int | None, keepdim: bool
) -> Any:
    dims = None if dim is None else (dim,)
    parts = [
        _extreme_vjp(g, self, result, dims, keepdim)
        for g, result in ((g0, result0), (g1, result1))
        if g is not None
    ]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _aminmax_jvp(
    self: Any, self_t: Any, result0: Any, result1: Any, dim: int | None, keepdim: bool
) -> Any:
    dims = None if dim is None else (dim,)
    return tuple(_extreme_jvp(self, self_t, result, dims, keepdim) for result in (result0, result1))


aminmax = reduction(
    "aminmax(Tensor self, *, dim? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
    strict_out_dtype=True,
    map="self; self",
    combine="minimum(a0, b0); maximum(a1, b1)",
    identity=None,
    finalize="a0; a1",
    results=("promoted", "promoted"),
    dtypes=REAL,
    check=lambda self, dim: _check_extreme("aminmax", self, dim),
    vjp={"self": _aminmax_vjp},
    jvp=_aminmax_jvp,
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, strided=True), dim=-1),
        s(s.tensor(3, 4), dim=0, keepdim=True),
    ],
    errors=lambda s: [(s(s.tensor(2, 0), dim=1), IndexError, "non-zero size")],
    doc="Compute the minimum and the maximum in one pass.",
)

# The state is (value, index). Among equal values the lowest index wins, whatever the order of
# combination; NaN is more extreme than any number.
_CHOOSE = (
    "better = (isnan(b0) & ~isnan(a0)) | (b0 {sign} a0); "
    "same = (b0 == a0) | (isnan(a0) & isnan(b0)); "
    "take = better | (same & (b1 < a1)); "
)
_MOST = _CHOOSE.format(sign=">")
_LEAST = _CHOOSE.format(sign="<")


def _check_arg_extreme(name: str, self: Any, dim: int | None) -> None:
    if dim is None and self.numel() == 0:
        raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0")
    if dim is not None:
        _check_extreme(name, self, (dim,))


def _arg_samples(s: Any) -> list[Any]:
    return [
        s(s.permutation(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), dim=-2),
        s(s.permutation(3, 4), dim=1, keepdim=True),
        s(s.tensor(), dim=0),
        s(s.values([[1, 1, 0], [0, 1, 1]]), dim=1),
        *([s(s.values([1.0, float("nan"), 2.0, float("nan")]))] if s.is_floating else []),
    ]


argmax = reduction(
    "argmax(Tensor self, dim? dim=None, bool keepdim=False) -> Tensor",
    strict_out_dtype=True,
    map="self; index",
    combine=_MOST + "where(take, b0, a0); where(take, b1, a1)",
    identity=None,
    finalize="a1",
    results=("int64",),
    dtypes="integral floating",
    check=lambda self, dim: _check_arg_extreme("argmax", self, dim),
    vjp="none: integer output",
    samples=_arg_samples,
    errors=lambda s: [
        (s(s.tensor(0)), IndexError, "argmax"),
        (s(s.tensor(3, 4), dim=2), IndexError, "Dimension out of range"),
    ],
    doc="Find the index of the maximum, the first of equal ones; flattened without `dim`.",
)

argmin = reduction(
    "argmin(Tensor self, dim? dim=None, bool keepdim=False) -> Tensor",
    strict_out_dtype=True,
    map="self; index",
    combine=_LEAST + "where(take, b0, a0); where(take, b1, a1)",
    identity=None,
    finalize="a1",
    results=("int64",),
    dtypes="integral floating",
    check=lambda self, dim: _check_arg_extreme("argmin", self, dim),
    vjp="none: integer output",
    samples=_arg_samples,
    errors=lambda s: [
        (s(s.tensor(0)), IndexError, "argmin"),
        (s(s.tensor(3, 4), dim=2), IndexError, "Dimension out of range"),
    ],
    doc="Find the index of the minimum, the first of equal ones; flattened without `dim`.",
)


def _selected_vjp(g0: Any, self_meta: Any, result1: Any, dim: int, keepdim: bool) -> Any:
    """Send the gradient of selected values to where they came from."""
    g, indices = (restore(t, self_meta, (dim,), keepdim) for t in (g0, result1))
    return g.new_zeros(self_meta.shape).scatter(dim, indices, g)


def _selected_jvp(self_t: Any, result1: Any, dim: int, keepdim: bool) -> Any:
    picked = self_t.gather(dim, restore(result1, self_t, (dim,), keepdim))
    return (picked if keepdim or self_t.ndim == 0 else picked.squeeze(dim)), None


def _rows_of_batch(x: Any, dim: int) -> Any:
    return x.movedim(dim, 0).reshape(x.shape[dim], -1 if x.numel() else 1)


max_all = reduction(
    "max_all(Tensor self) -> Tensor",
    map="self",
    fold="maximum",
    finalize="a",
    dtypes=REAL,
    check=lambda self: _check_nonempty("max", self),
    vjp={"self": _extreme_of_all_vjp},
    jvp=lambda self, self_t, result: _extreme_jvp(self, self_t, result, None, False),
    batch=lambda size, dims, self: (amax(_rows_of_batch(self, dims[0]), 1), 0),
    function=False,
    method=False,
    oracle="max",
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor()), s(s.tensor(2, 3, strided=True))],
    errors=lambda s: [(s(s.tensor(0)), RuntimeError, "max()")],
    doc="Compute the maximum of all elements.",
)

min_all = reduction(
    "min_all(Tensor self) -> Tensor",
    map="self",
    fold="minimum",
    finalize="a",
    dtypes=REAL,
    check=lambda self: _check_nonempty("min", self),
    vjp={"self": _extreme_of_all_vjp},
    jvp=lambda self, self_t, result: _extreme_jvp(self, self_t, result, None, False),
    batch=lambda size, dims, self: (amin(_rows_of_batch(self, dims[0]), 1), 0),
    function=False,
    method=False,
    oracle="min",
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor()), s(s.tensor(2, 3, strided=True))],
    errors=lambda s: [(s(s.tensor(0)), RuntimeError, "min()")],
    doc="Compute the minimum of all elements.",
)


def _check_nonempty(name: str, self: Any) -> None:
    if self.numel() == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _selecting_samples(s: Any) -> list[Any]:
    return [
        s(s.permutation(3, 4) if not s.is_bool else s.tensor(3, 4), 1),
        s(s.tensor(2, 3, 4, strided=True), dim=-2),
        s(s.tensor(3, 4), dim=0, keepdim=True),
        s(s.tensor(), 0),
        *(
            [s(s.values([[1.0, float("nan"), 2.0], [0.0, 1.0, 2.0]]), dim=1)]
            if s.is_floating
            else []
        ),
    ]


max_dim = reduction(
    "max_dim(Tensor self, dim dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    map="self; index",
    combine=_MOST + "where(take, b0, a0); where(take, b1, a1)",
    identity=None,
    finalize="a0; a1",
    results=("promoted", "int64"),
    dtypes=REAL,
    check=lambda self, dim: _check_extreme("max", self, (dim,)),
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    function=False,
    method=False,
    oracle="max",
    samples=_selecting_samples,
    errors=lambda s: [(s(s.tensor(2, 0), 1), IndexError, "non-zero size")],
    doc="Compute the maximum along a dimension and its index, the first of equal ones.",
)

min_dim = reduction(
    "min_dim(Tensor self, dim dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    map="self; index",
    combine=_LEAST + "where(take, b0, a0); where(take, b1, a1)",
    identity=None,
    finalize="a0; a1",
    results=("promoted", "int64"),
    dtypes=REAL,
    check=lambda self, dim: _check_extreme("min", self, (dim,)),
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    function=False,
    method=False,
    oracle="min",
    samples=_selecting_samples,
    errors=lambda s: [(s(s.tensor(2, 0), 1), IndexError, "non-zero size")],
    doc="Compute the minimum along a dimension and its index, the first of equal ones.",
)

max = overload(
    "max",
    "max_all",
    "maximum",
    "max_dim",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), 1),
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(3), s.tensor()),
    ],
    doc="Compute the maximum: of all elements, along a dimension, or of two tensors.",
)

min = overload(
    "min",
    "min_all",
    "minimum",
    "min_dim",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), 1),
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(3), s.tensor()),
    ],
    doc="Compute the minimum: of all elements, along a dimension, or of two tensors.",
)
