"""Define the ops that list the distinct elements, or slices, of a tensor, or look for them."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Operand, Tensor
from tangrad.ops.views.geometry import numel_of


def _check_distinct(self: Any, dim: int | None) -> None:
    if self.dtype.is_complex:
        raise NotImplementedError(f'"unique" not implemented for {self.dtype}: it has no order')
    if dim is None or self.ndim == 0 or numel_of(self.shape):
        return
    if self.shape.count(0) > 1:
        raise RuntimeError(
            "Number of zero sized dimensions is more than one, so unique cannot be applied: "
            f"shape {list(self.shape)}, dim {dim}"
        )
    others = [size for d, size in enumerate(self.shape) if d != dim]
    if self.shape[dim] and 0 in others:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied: "
            f"shape {list(self.shape)}, dim {dim}"
        )


def _distinct_reference(
    np: Any, self: Any, dim: int | None, consecutive: bool
) -> tuple[Any, Any, Any]:
    """Compare neighbouring rows, after a lexicographic sort unless only runs are asked for."""
    whole = dim is None or self.ndim == 0
    lines = self.reshape(-1) if whole else np.moveaxis(self, dim, 0)
    count = lines.shape[0]
    rows = lines.reshape((count, numel_of(lines.shape[1:])))
    order = np.arange(count) if consecutive or not rows.size else np.lexsort(rows.T[::-1])
    placed = rows[order]
    starts = np.ones(count, bool)
    starts[1:] = (placed[1:] != placed[:-1]).any(1)
    first = np.flatnonzero(starts)
    inverse = np.empty(count, np.int64)
    inverse[order] = np.cumsum(starts) - 1
    counts = np.diff(np.append(first, count))
    output = lines[order][first]
    if whole:
        return output, inverse.reshape(self.shape), counts
    return output, inverse, counts


_distinct = op(
    "_distinct(Tensor self, dim? dim, bool consecutive, bool inverse, bool counts)"
    " -> (Tensor, Tensor, Tensor)",
    dtypes="bool integral floating",
    check=_check_distinct,
    shape=None,
    shape_depends_on_data=True,
    dtype=lambda self: [self.dtype, "int64", "int64"],
    reference=_distinct_reference,
    vjp={"self": "none: how many elements are distinct jumps with their values"},
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(6, low=0, high=3), None, False, True, True),
        s(s.tensor(2, 3, low=0, high=3, strided=True), None, False, True, True),
    ],
    oracle=lambda torch, x, dim, consecutive, inverse, counts: torch.unique(
        x, return_inverse=True, return_counts=True
    ),
    doc="""List distinct elements or slices, which of them each is, and how often they occur.

    Slices lie along the first dimension of the list, whatever theirs was.
    What is not asked for may be an empty tensor.
    """,
)


def _chosen(found: Any, dim: int | None, inverse: bool, counts: bool) -> Any:
    """Give the parts that were asked for; the list alone is no tuple."""
    listed = found[0] if dim is None else found[0].movedim(0, dim)
    parts = [listed, *([found[1]] if inverse else []), *([found[2]] if counts else [])]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(6, low=0, high=3)),
        s(s.integers(0, 3, 7), return_inverse=True, return_counts=True),
        s(s.integers(0, 2, 5, 2), return_inverse=True, return_counts=True, dim=0),
        s(s.integers(0, 2, 2, 5, strided=True), return_counts=True, dim=-1),
        s(s.integers(0, 2, 2, 3), return_inverse=True),
        s(s.tensor(), return_inverse=True),
        s(s.tensor(0), return_inverse=True, return_counts=True),
        s(s.tensor(0, 2), dim=0),
    ]


def _errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(0, 2), dim=1), RuntimeError, "0 sized dimensions"),
        (s(s.tensor(0, 0), dim=0), RuntimeError, "more than one"),
        (s(s.tensor(2), dim=1), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="complex64")), NotImplementedError, "unique"),
    ]


@composite(
    dtypes="bool integral floating",
    shape_depends_on_data=True,
    samples=_samples,
    errors=_errors,
)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Dim | None = None,
) -> Tensor:
    """List the distinct elements, in ascending order; every NaN is distinct.

    Args:
        sorted: has no effect: the result always is.
        return_inverse: give also, in the shape of the input, where in the list each element is.
        return_counts: give also how often each occurs.
        dim: list the distinct slices along this dimension instead, in lexicographic order.

    Raises:
        NotImplementedError: the dtype is complex, and so has no order.
    """
    return _chosen(
        _distinct(input, dim, False, return_inverse, return_counts),
        dim,
        return_inverse,
        return_counts,
    )


@composite(
    dtypes="bool integral floating",
    shape_depends_on_data=True,
    samples=_samples,
    errors=_errors,
)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Dim | None = None
) -> Tensor:
    """Replace every run of equal elements by its first.

    Args:
        return_inverse: give also, in the shape of the input, to which run each element belongs.
        return_counts: give also how long each run is.
        dim: compare slices along this dimension instead.
    """
    return _chosen(
        _distinct(input, dim, True, return_inverse, return_counts),
        dim,
        return_inverse,
        return_counts,
    )


# Up to so many elements are compared one by one: sorting them would take longer.
_FEW = 16


def _as_operand(x: Any, like: Any) -> Any:
    return x if isinstance(x, tangrad.Tensor) else tangrad.as_tensor(x, device=like.device)


@composite(
    strict_out_dtype=True,
    out=True,
    names={"element": "elements", "test_element": "test_elements"},
    method=False,
    dtypes="integral floating",
    samples=lambda s: [
        s(s.integers(0, 9, 3, 4), s.integers(0, 9, 5)),
        s(s.integers(0, 90, 3, 4), s.integers(0, 90, 50), invert=True),
        s(s.tensor(6), s.values([1, 2]), assume_unique=True),
        s(s.values([1, 2, 3]), 2),
        s(2, s.values([1, 2, 3])),
        s(s.tensor(2, 3), s.tensor(0)),
        s(s.tensor(), s.tensor(2, 2)),
        *(
            [s(s.values([1.0, float("nan")]), s.values([float("nan")] * 20 + [1.0]))]
            if s.is_floating
            else []
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="bool"), s.tensor(2)), RuntimeError, "Unsupported input type"),
        (s(s.tensor(2), s.tensor(2, dtype="complex64")), RuntimeError, "Unsupported input type"),
    ],
)
def isin(
    elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Tell of each element whether it is among others; a NaN never is.

    Args:
        assume_unique: has no effect on the result.
        invert: tell whether it is not.

    Raises:
        RuntimeError: the dtype of an argument is bool or complex.
        TypeError: neither is a tensor.
    """
    if not any(isinstance(x, tangrad.Tensor) for x in (elements, test_elements)):
        raise TypeError(
            "isin(): elements or test_elements must be a Tensor, got "
            f"{type(elements).__name__} and {type(test_elements).__name__}"
        )
    elements = _as_operand(elements, test_elements)
    test_elements = _as_operand(test_elements, elements)
    for x in (elements, test_elements):
        if x.dtype.is_complex or x.dtype == tangrad.bool:
            raise RuntimeError(f"Unsupported input type encountered for isin(): {x.dtype}")
    common = tangrad.result_type(elements, test_elements)
    x, among = elements.to(common), test_elements.to(common).reshape((-1,))
    count = among.shape[0]
    if count <= _FEW:
        found = (x.unsqueeze(-1) == among).any(-1)
    else:
        among = among.sort().values
        place = tangrad.searchsorted(among, x.contiguous()).clamp(max=count - 1)
        found = among.index_select(0, place.reshape((-1,))).reshape(x.shape) == x
    return ~found if invert else found
